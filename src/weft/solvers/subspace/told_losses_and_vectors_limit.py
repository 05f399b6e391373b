"""How many tables of losses and dual vectors a party tells in a run of so many iterations.

Each says a little about single samples; a coordinator that asks on and on learns them. A party
tells what the iterations that were agreed on can need, and no more.
"""

from __future__ import annotations

import math
from typing import Self

from weft.errors import ProtocolError
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.cutting_planes_solver import EAGER
from weft.solvers.subspace.newton_cg_solver import MOST_PRODUCTS
from weft.solvers.subspace.settings import SPAN_NEWTON

#: Tables in an iteration, at most: of the search, and of one after a party was away.
_TABLES = 2
#: Dual vectors in an iteration, at most, besides those for products with the Hessian.
_VECTORS = 4
#: Where cutting planes may stand in for Newton's method in the span: cuts, and ascent of two kinds.
_VECTORS_OF_PLANES = EAGER.count + 2
#: One more where free intercepts of all classes of a joint loss need cuts beside them.
_VECTORS_OF_CLASSES = 5
#: Vectors of which cohorts may be left out, for each value of λ. It tells that some sample of these
#: is beyond a bound; bad guesses lead there now and then, if losses have no steepest slope.
_LEFT_OUT = 32


class MeasurementLimit:
    """What is left to tell.

    Parameters
    ----------
    tables, vectors
        How many of each may be asked for.
    left_out
        In how many vectors cohorts may be left out.
    """

    def __init__(self, tables: float, vectors: float, left_out: int) -> None:
        self._tables, self._vectors, self._left_out = tables, vectors, left_out
        self._more_of_planes = 0.0

    @classmethod
    def of(cls, settings: Settings) -> Self:
        """For a run with these settings; without a number of iterations there is no limit."""
        iterations = math.inf if settings.iterations is None else settings.iterations + 1
        steps = iterations * len(settings.lambdas)
        products = MOST_PRODUCTS if settings.solver == "newton-cg" else 0
        loss = settings.make_loss()
        vectors = _VECTORS_OF_CLASSES if loss.joint else _VECTORS
        left_out = _LEFT_OUT * len(settings.lambdas)
        limit = cls(_TABLES * steps, (vectors + products) * steps, left_out)
        if settings.solver == SPAN_NEWTON:
            limit._more_of_planes = (_VECTORS_OF_PLANES - vectors) * steps
        return limit

    def begin_planes(self) -> None:
        """Cutting planes stand in: they ask for more vectors in an iteration."""
        self._vectors += self._more_of_planes
        self._more_of_planes = 0.0

    def tell_table(self) -> None:
        """A table of losses is asked for."""
        self._tables -= 1
        self._check()

    def tell_vectors(self, count: int) -> None:
        """So many dual vectors are asked for."""
        self._vectors -= count
        self._check()

    def leave_out(self, count: int) -> None:
        """Cohorts are left out of so many vectors."""
        self._left_out -= count
        if self._left_out < 0:
            raise ProtocolError(
                "a message leads beyond what can be added, again and again; "
                "scale the columns, or take a larger lambda"
            )

    def _check(self) -> None:
        if self._tables < 0 or self._vectors < 0:
            raise ProtocolError("a message asks for more than the iterations of this run can need")
