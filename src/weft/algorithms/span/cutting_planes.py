"""Cutting planes on hybrid data (the OCAS and BMRM family), in two round trips an iteration.

Every dual vector gives a cut R(w) ≥ o − b·w. The coordinator minimises λ/2 ‖w‖² + the maximum of
all cuts, a small QP in the cuts' weights, whose value is a lower bound on P*; the label holders
search the way from the best point to that minimum, and cut again at a guessed step on it.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.span.bounding import Bounding
from weft.algorithms.span.span import Span

Floats = NDArray[np.float64]

#: Where losses are measured between the best point and the model's minimum.
STEPS: Floats = np.concatenate([[0.0], np.geomspace(1e-3, 1.0, 31)])
#: The next cut is made a little beyond the step that was best last time.
_BEYOND = 1.5
_FIRST_REACH = 0.5
#: Solves in a row without weight after which a cut is dropped.
_IDLE = 12


class CuttingPlanes:
    """One iteration after the other; the cuts serve every λ."""

    def __init__(self, span: Span) -> None:
        self._span = span
        self._bounding = Bounding(span)
        self._reach = np.full(span.width, _FIRST_REACH)

    def step(self) -> None:
        """Complete the newest cuts, solve the small problem, search."""
        span = self._span
        target = self._bounding.take(span.absorb()) / span.lam
        guesses = np.minimum(1.0, _BEYOND * self._reach)[None, :]
        primal = span.search(target, STEPS, guesses)
        best = primal.argmin(axis=0)
        span.move(STEPS, best)
        self._reach = np.where(best > 0, STEPS[best], self._reach)
        self._drop()

    def _drop(self) -> None:
        """Forget cuts that no problem has used for long."""
        idle = self._bounding.idle
        if (idle >= _IDLE).sum() >= max(8, len(idle) // 8):
            self._span.drop(self._bounding.keep(np.flatnonzero(idle < _IDLE)))
