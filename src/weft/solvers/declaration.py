"""What an algorithm declares: its halves, what it needs, what it guarantees, who sees what."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import msgspec

from weft.solvers.base import Coordinator, PartyFactory
from weft.solvers.settings import Settings

#: How the table may be cut: both ways, by rows or by columns only, or not at all.
Cut = Literal["any", "rows", "columns", "whole"]


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For algorithms that read the common settings only."""


def _nothing(settings: Settings) -> str:
    return ""


@dataclass(frozen=True)
class Algorithm:
    """A solver: its two halves, one line on what it does, and what it needs.

    Attributes
    ----------
    options
        What only this algorithm reads, as ``[solver.options]`` of a config.
    reads
        Settings, of those that not every algorithm reads, that this one does.
    cut
        ``rows``: every party has all features, and every sample is at one party. ``columns``: every
        party has all samples, and every feature is at one party. ``whole``: one party has the
        whole table.
    losses
        ``any``, ``smooth`` ones only, or only those with ``kinks``.
    everyone
        Whether every party must take part in every iteration.
    spans
        Whether it trains paths of λ, leaves out folds and starts from a model.
    saves
        Whether it keeps checkpoints.
    ours
        Whether Weft recommends it, rather than have it for comparison.
    sample_sums
        Sums over samples that a party opens in an iteration, certificates aside; None: none, which
        an algorithm from outside must say itself.
    weighs
        Whether parties instead of samples may weigh the same.
    guarantee
        What it converges to.
    trips
        Round trips of an iteration, in words.
    reference
        Where it comes from.
    coordinator_sees, parties_see
        What each side learns besides what all runs show, which is sizes and totals of losses.
    shown_alone
        What of a single party's own others would see under these settings, in words; empty:
        nothing, as all is in sums over several, which an algorithm from outside must say itself.
    """

    name: str
    coordinator: type[Coordinator]
    party: PartyFactory
    about: str
    options: type[msgspec.Struct] = NoOptions
    reads: tuple[str, ...] = ()
    cut: Cut = "any"
    losses: Literal["any", "smooth", "kinks"] = "any"
    everyone: bool = False
    spans: bool = False
    saves: bool = True
    ours: bool = False
    sample_sums: int | None = None
    weighs: bool = False
    guarantee: str = ""
    trips: str = ""
    reference: str = ""
    coordinator_sees: str = ""
    parties_see: str = ""
    shown_alone: Callable[[Settings], str] = _nothing
