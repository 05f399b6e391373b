"""What a reader opens at the end of a run: the model, and second moments if it asked for any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.federation.messages import ModelSlice
from weft.federation.model import Model
from weft.federation.release.fit_inference import Inference, infer
from weft.federation.release.model_header import Head
from weft.federation.release.model_slices import join_slices, open_slice
from weft.federation.release.second_moments import SecondMoments, join_moments
from weft.solvers.settings import Settings


class Released(NamedTuple):
    """A model, and what came with it.

    Attributes
    ----------
    second_moments
        Matrices that the run was asked for.
    inference
        Its standard errors, or why it has none; None: none were asked for.
    """

    model: Model
    second_moments: SecondMoments | None
    inference: Inference | None


def open_release(
    letters: Mapping[str, bytes],
    head: Head,
    settings: Settings,
    *,
    reader: Identity,
    writers: Mapping[str, PublicIdentity],
    run: bytes,
    overlapping: bool = False,
) -> Released:
    """Open the letters that the parties wrote to a reader, and join what is in them.

    Parameters
    ----------
    letters
        By party.
    run
        Random name of the run, which they were written for.
    overlapping
        Whether a party was gone, so that others answer for its features too.
    """
    slices = [
        open_slice(letter, party, reader, writers[party], run) for party, letter in letters.items()
    ]
    return joined(slices, head, settings, overlapping=overlapping)


def joined(
    slices: Sequence[ModelSlice], head: Head, settings: Settings, *, overlapping: bool
) -> Released:
    """What the slices of all parties, in their order, add up to."""
    model = join_slices(slices, head, overlapping=overlapping)
    moments = join_moments(slices, model, settings)
    found = None if settings.inference == "none" else infer(slices, model, settings, moments)
    return Released(model, moments if settings.second_moments else None, found)
