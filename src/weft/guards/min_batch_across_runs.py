"""``min_batch`` between runs: no samples may stand alone in what several runs show together.

Every solver begins where all samples weigh the same, so that the first feature sums of two runs
differ by the rows that only one of them had: one sample more or fewer is shown exactly. With more
runs an observer may add and subtract as it likes. What it can single out then depends only on who
took part when: samples that took part in the same runs cannot be told apart. So these go together,
and wherever fewer than ``min_batch`` of them do, their attendance must be a combination of that of
larger groups, so that whatever shows them shows a larger group too.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints

Bools = NDArray[np.bool_]

#: Attendance is zeros and ones: what is left of it by rounding is far below this.
_NOTHING = 1e-9


@dataclass(frozen=True)
class Change:
    """Samples that would stand alone between an earlier run and the next one.

    Attributes
    ----------
    came, went
        Samples that only the next run has, and only the earlier one.
    corrected
        Samples of both whose cells or labels are others now.
    since
        When the earlier run began (ISO 8601, UTC).
    ruled
        Columns that became numbers by other rules in earlier runs over some of the samples; then
        nobody was counted, since whoever chooses rules would learn from that.
    moved
        Samples of both of which this party counts another part now, since others hold them or
        hold them no longer.
    """

    came: int
    went: int
    corrected: int
    since: str
    ruled: tuple[str, ...] = ()
    moved: int = 0

    def __str__(self) -> str:
        counts = (self.came, self.went, self.corrected, self.moved)
        what = ("came", "went", "got other cells or labels", "got other holders")
        parts = [f"{n} {word}" for n, word in zip(counts, what, strict=True) if n]
        if self.ruled:
            parts.append(f"{', '.join(self.ruled)} got other rules")
        return f"{' and '.join(parts)} since its run of {self.since[:16].replace('T', ' ')}"


def standing_alone(present: Bools, group: Ints, at_least: int) -> Bools:
    """Samples that the last run would set apart in groups of fewer than ``at_least``.

    Parameters
    ----------
    present
        (runs × samples) who takes part in which run; the last one is still to come.
    group
        Per sample, its cohort: whoever holds a sample knows it, and all others of its cohort.
    """
    *earlier, now = present
    if any((run == now).all() for run in earlier):
        return np.zeros(len(now), bool)
    shown, known = _alone(present[:-1], np.zeros_like(group), at_least)
    showing, samples = _alone(present, group, at_least)
    # What earlier runs have shown already, with leave to do so, no refusal takes back.
    if showing <= shown:
        return np.zeros(len(now), bool)
    new = samples & ~known
    return new if new.any() else samples


def _alone(present: Bools, group: Ints, at_least: int) -> tuple[int, Bools]:
    """How many sums over a few samples runs single out, and the samples in these sums."""
    runs = len(present)
    pattern = (present.astype(np.int64) << np.arange(runs)[:, None]).sum(axis=0)
    kinds, kind, sizes = np.unique(
        (group << runs) | pattern, return_inverse=True, return_counts=True
    )
    who, attended = kinds >> runs, (kinds[:, None] >> np.arange(runs)) & 1
    # Whoever is in every run is never singled out alone: its cohort was large enough in each.
    constant = (attended == attended[:, :1]).all(axis=1)
    few = (sizes < at_least) & ~constant
    found = 0
    alone = np.zeros(len(kinds), bool)
    always = np.ones((1, runs), np.int64)
    for number in np.unique(who[few]).tolist():
        mine, small = who == number, np.flatnonzero((who == number) & few)
        basis = _basis(np.vstack([always, attended[mine & ~few]]))
        # What of a few samples' attendance is no combination of that of larger groups.
        rest = attended[small] - (attended[small] @ basis.T) @ basis
        found += int(np.linalg.matrix_rank(rest, tol=_NOTHING * np.sqrt(len(rest))))
        alone[small] = np.linalg.norm(rest, axis=1) > _NOTHING
    return found, alone[kind.ravel()]


def _basis(rows: Ints) -> NDArray[np.float64]:
    """Directions of length one that all of these rows are combinations of."""
    _, sizes, directions = np.linalg.svd(rows.astype(np.float64), full_matrices=False)
    found: NDArray[np.float64] = directions[sizes > _NOTHING * sizes.max(initial=1.0)]
    return found
