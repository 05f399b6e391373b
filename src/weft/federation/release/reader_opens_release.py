"""What a reader opens at the end of a run: the model, and second moments if it asked for any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.errors import DataError
from weft.federation.messages import ModelSlice
from weft.federation.model import Model
from weft.federation.release.encrypted_model_slices import join_slices, open_slice
from weft.federation.release.model_header import Head
from weft.federation.release.reader_join_second_moments import SecondMoments, join_moments
from weft.solvers.run_settings import Settings

if TYPE_CHECKING:
    from weft.federation.release.reader_standard_errors import Inference


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
    found = None
    if settings.inference != "none":
        # Few runs tell standard errors: the others wait for nothing that works them out.
        from weft.federation.release.reader_standard_errors import infer

        found = infer(slices, model, settings, moments)
    if settings.frees_weights:
        model = _without_stand_in(model, settings, found)
    return Released(model, moments if settings.second_moments else None, found)


def _without_stand_in(model: Model, settings: Settings, found: Inference | None) -> Model:
    """The model of weights without a penalty, which the inference has; refused without a proof."""
    if found is None or found.summary is None or found.reached is None:
        why = "a party was away" if found is None else found.why_not
        raise DataError(
            f"weights without a penalty are released with a proof alone, but {why}",
            told="weights without a penalty are released with a proof alone, and there is none; "
            "give them a small penalty such as 1e-6",
        )
    coef, (primal, dual) = found.summary.coef, found.reached
    rows, features = max(1, len(model.coef) - 1), len(model.features)
    weights = coef.reshape(rows, -1)
    if len(model.coef) > 1:
        # Against the first class; of all alike, weights add up to zero.
        weights = np.vstack([np.zeros(weights.shape[1]), weights])
        weights = weights - weights.mean(axis=0)
    return replace(
        model,
        coef=weights[:, :features].copy(),
        intercept=weights[:, features].copy() if weights.shape[1] > features else model.intercept,
        lam=0.0 if settings.without_penalty else model.lam,
        certificate={
            **model.certificate,
            "primal": [primal],
            "dual": [dual],
            "gap": (primal - dual) / primal,
        },
    )
