"""Dual vectors that a party sent sums of beside its steps: frozen ones, and steps taken back.

Its steps are compared with the α before them. A step that is taken back because its reply never
arrived may have arrived all the same, and a frozen α is another one than the α of the last step:
whoever has their sums sees single samples in the next ones, unless these are compared with them.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats
from weft.errors import ProtocolError
from weft.guards.min_batch_between_sums import MinBatch


class SentAside:
    """What others may have seen sums of, though it is not, or not yet, this party's α.

    Parameters
    ----------
    guard
        The samples that count, and how many of them must differ.
    shared
        So many of the first rows have other holders too, who decide on their α as this party does.
    """

    def __init__(self, guard: MinBatch, shared: int) -> None:
        self._guard = guard
        self._shared: Flags = guard.rows[guard.start[:-1]] < shared
        self._vectors: list[Floats] = []
        #: Per vector, the atoms in which others are still to be compared with it.
        self._counts: list[Flags] = []

    def note(self, alpha: Floats) -> None:
        """Sums of this α are on their way."""
        self._vectors.append(alpha[self._guard.rows])
        self._counts.append(np.ones(len(self._guard.atoms), bool))

    def pass_by(self, alpha: Floats) -> None:
        """This is the party's α now: where it equals one that was sent, the next step is compared
        with it in any case."""
        if not self._vectors:
            return
        mine = alpha[self._guard.rows]
        for vector, counts in zip(self._vectors, self._counts, strict=True):
            counts &= self._guard.differs(mine, vector)
        left = [i for i, counts in enumerate(self._counts) if counts.any()]
        self._vectors = [self._vectors[i] for i in left]
        self._counts = [self._counts[i] for i in left]

    def insist_apart(self, new: Floats, old: Floats) -> None:
        """Refuse an α that comes too close to one that was sent."""
        if self._too_near(new, old).any():
            raise ProtocolError("a message brings α that is too close to one that was sent before")

    def hold_apart(self, new: Floats, old: Floats) -> Flags:
        """Undo, in place, changes from ``old`` that come too close; returns which atoms.

        Other holders of a sample cannot know what was sent here, and would not hold back the same.
        """
        near = self._too_near(new, old)
        if (near & self._shared).any():
            raise ProtocolError(
                "a step comes too close to one that was taken back, or to a frozen α; start again"
            )
        rows = self._guard.rows[np.repeat(near, np.diff(self._guard.start))]
        new[rows] = old[rows]
        return near

    def _too_near(self, new: Floats, old: Floats) -> Flags:
        """Atoms that change, and then differ in too few samples from a vector that was sent."""
        near = np.zeros(len(self._guard.atoms), bool)
        if not self._vectors:
            return near
        mine = new[self._guard.rows]
        for vector, counts in zip(self._vectors, self._counts, strict=True):
            near |= counts & self._guard.differs_in_few(mine, vector)
        return near & self._guard.differs(mine, old[self._guard.rows])

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint."""
        if not self._vectors:
            return {}
        return {"vectors": np.stack(self._vectors), "counts": np.stack(self._counts)}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self._vectors = list(state.get("vectors", ()))
        self._counts = [counts.astype(bool) for counts in state.get("counts", ())]
