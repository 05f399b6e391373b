"""The small quadratic program of a cutting-plane method: one ``Master`` per class."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
from numpy.typing import ArrayLike, NDArray

from weft.array_types import Floats, Ints
from weft.solvers.subspace.bundle_qp_kernels import ascend

Number = TypeVar("Number", np.float64, np.int64)

# Room for cuts at the start. Memory that no cut has used yet costs nothing but addresses.
_ROOM = 64


class State(NamedTuple):
    """The problem, the point and the working memory of a solve; arrays of one entry per cut."""

    gram: Any  # (≥ cuts, ≥ cuts)
    group: Any
    height: Any
    mu: Any
    slope: Any  # height − scale Hμ; between two ``slopes`` only that of cuts that may move
    base: Any  # (groups,)
    top: Any  # (groups,) the steepest slope, or any scratch
    factor: Any  # (≥ cuts, ≥ cuts), lower triangle
    order: Any  # the cuts of the factor's rows
    waiting: Any  # cuts that may move but are not in the factor yet
    count: Any  # lengths of order and waiting
    free: Any
    moves: Any
    step: Any
    direction: Any  # as order, with an entry more for the cut that slides
    product: Any
    cosine: Any
    sine: Any


@dataclass(frozen=True)
class Solution:
    """Weights of the cuts, and how good they are.

    Attributes
    ----------
    mu : (n,) array
        Feasible: μ ≥ 0 and every group's sum is at most 1, to rounding.
    value : float
        The objective at μ: a lower bound of the optimum.
    gap : float
        The optimum is at most ``value + gap``. Above the tolerance asked for only where
        rounding prevents better; then ``value`` is still what it says.
    """

    mu: Floats
    value: float
    gap: float


class Master:
    """Maximise Σ_j b_j μ_j − ½ μᵀHμ over μ ≥ 0 with Σ_{j∈g} μ_j ≤ 1 for every group g.

    Cuts (g_j, b_j) enter through their inner products H_ij = g_i·g_j/λ alone. Every solve
    starts from the last μ, new cuts at 0, and is exact: an active-set method, whose solutions
    have at most rank(H) + groups cuts above 0.

    Parameters
    ----------
    groups : int
        Cuts of the same group share a weight of 1.
    """

    def __init__(self, groups: int) -> None:
        if groups < 1:
            raise ValueError(f"a master needs at least one group, not {groups}")
        # The slacks of the constraints are the first cuts: Gram rows and intercepts of 0.
        self._slacks = groups
        self._size = groups
        room = groups + _ROOM
        self._gram: Floats = np.zeros((room, room))
        self._factor: Floats = np.empty((room, room))
        self._intercepts: Floats = np.zeros(room)
        self._mu: Floats = np.zeros(room)
        self._mu[:groups] = 1.0
        self._groups: Ints = np.zeros(room, dtype=np.int64)
        self._groups[:groups] = np.arange(groups)
        self._idle: Ints = np.zeros(room, dtype=np.int64)

    @property
    def n(self) -> int:
        """How many cuts are live."""
        return self._size - self._slacks

    @property
    def mu(self) -> Floats:
        """Weights after the last solve; 0 for cuts added since."""
        return self._mu[self._slacks : self._size]

    @property
    def intercepts(self) -> Floats:
        """The b_j."""
        return self._intercepts[self._slacks : self._size]

    @property
    def groups(self) -> Ints:
        """The group of every cut."""
        return self._groups[self._slacks : self._size]

    @property
    def gram(self) -> Floats:
        """The inner products H of the live cuts."""
        return self._gram[self._slacks : self._size, self._slacks : self._size]

    def add(
        self, cross: ArrayLike, among: ArrayLike, intercepts: ArrayLike, groups: ArrayLike
    ) -> None:
        """Add cuts with weight 0.

        Parameters
        ----------
        cross : (new, n) array
            Inner products (over λ) of the new cuts with the live ones.
        among : (new, new) array
            Inner products (over λ) of the new cuts with each other.
        intercepts : (new,) array
            The b_j.
        groups : (new,) array of int
            Their groups.
        """
        height = np.asarray(intercepts, dtype=np.float64)
        new = height.size
        old = np.asarray(cross, dtype=np.float64).reshape(new, -1) if new else np.empty((0, self.n))
        block = np.asarray(among, dtype=np.float64)
        owner = np.asarray(groups, dtype=np.int64)
        if height.ndim != 1 or owner.shape != (new,) or old.shape != (new, self.n):
            raise ValueError(
                f"{new} cuts for {self.n} live ones come with groups of shape {owner.shape} "
                f"and inner products of shape {old.shape}"
            )
        if block.shape != (new, new) and new:
            raise ValueError(f"{new} cuts come with mutual inner products of {block.shape}")
        if not (np.isfinite(height).all() and np.isfinite(old).all() and np.isfinite(block).all()):
            raise ValueError("cuts must be finite")
        if new == 0:
            return
        if owner.min() < 0 or owner.max() >= self._slacks:
            raise ValueError(f"groups of cuts must lie in 0 … {self._slacks - 1}")

        self._make_room(self._size + new)
        first, fresh = self._slacks, slice(self._size, self._size + new)
        self._gram[fresh, first : self._size] = old
        self._gram[first : self._size, fresh] = old.T
        self._gram[fresh, fresh] = (block + block.T) / 2
        self._intercepts[fresh] = height
        self._groups[fresh] = owner
        self._mu[fresh] = 0.0
        self._idle[fresh] = 0
        self._size += new

    def lift(self, intercepts: Floats) -> None:
        """Give the live cuts other b_j."""
        self._intercepts[self._slacks : self._size] = intercepts

    def solve(self, *, tolerance: float, scale: float = 1.0) -> Solution:
        """Maximise Σ_j b_j μ_j − scale/2 μᵀHμ, from the last μ on.

        Parameters
        ----------
        tolerance : float
            Largest ``gap`` of the solution, absolute. With 0 it goes as far as rounding lets it.
        scale : float
            Above zero: 1/λ, where H holds inner products as they are.
        """
        if not 0.0 < scale < np.inf:
            raise ValueError(f"the scale of a master must be positive and finite, not {scale}")
        if not tolerance >= 0.0:
            raise ValueError(f"the tolerance of a master must not be negative, but is {tolerance}")
        live = slice(0, self._size)
        value, gap = ascend(self._state(self._intercepts[live]), float(scale), float(tolerance))
        self._idle[live] = np.where(self._mu[live] > 0.0, 0, self._idle[live] + 1)
        return Solution(self.mu.copy(), float(value), float(gap))

    def solve_aside(self, intercepts: Floats, *, tolerance: float, scale: float) -> Floats:
        """Weights for other b_j; those of the last solve, and its idle cuts, stay as they are."""
        mu = self._mu[: self._size].copy()
        height = np.concatenate([np.zeros(self._slacks), intercepts])
        ascend(self._state(height)._replace(mu=mu), float(scale), float(tolerance))
        found: Floats = mu[self._slacks :]
        return found

    @property
    def idle(self) -> Ints:
        """In how many solves in a row each cut has had weight 0."""
        return self._idle[self._slacks : self._size]

    def keep(self, cuts: Ints) -> None:
        """Forget all cuts but these; weight of the others goes to the slack of their group."""
        kept = np.concatenate([np.arange(self._slacks), cuts + self._slacks])
        if kept.size == self._size:
            return
        self._gram[: kept.size, : kept.size] = self._gram[np.ix_(kept, kept)]
        for column in (self._intercepts, self._mu, self._groups, self._idle):
            column[: kept.size] = column[kept]
        self._size = kept.size
        used = np.bincount(self.groups, self.mu, minlength=self._slacks)
        self._mu[: self._slacks] = np.maximum(1.0 - used, 0.0)

    def _make_room(self, size: int) -> None:
        """Double the storage until ``size`` cuts fit; cuts are copied O(1) times on average."""
        room = self._mu.size
        if size <= room:
            return
        while room < size:
            room *= 2
        gram = np.zeros((room, room))
        gram[: self._size, : self._size] = self._gram[: self._size, : self._size]
        self._gram = gram
        self._factor = np.empty((room, room))
        self._intercepts = _longer(self._intercepts, room)
        self._mu = _longer(self._mu, room)
        self._groups = _longer(self._groups, room)
        self._idle = _longer(self._idle, room)

    def _state(self, height: Floats) -> State:
        """The problem with working memory for one solve."""
        n, groups = self._size, self._slacks
        # A row more than the most cuts: a sliding cut has its entry behind those of the factor.
        floats = np.zeros((8, n + 1))
        ints = np.zeros((3, n + 1), dtype=np.int64)
        return State(
            gram=self._gram,
            group=self._groups[:n],
            height=height,
            mu=self._mu[:n],
            slope=floats[0, :n],
            base=np.zeros(groups, dtype=np.int64),
            top=floats[1, :groups],
            factor=self._factor,
            order=ints[0],
            waiting=ints[1],
            count=np.zeros(2, dtype=np.int64),
            free=ints[2],
            moves=floats[2],
            step=floats[3],
            direction=floats[4],
            product=floats[5],
            cosine=floats[6],
            sine=floats[7],
        )


def _longer(column: NDArray[Number], room: int) -> NDArray[Number]:
    """The column, with zeros behind it."""
    return np.concatenate([column, np.zeros(room - column.size, dtype=column.dtype)])
