"""Inner products of the vectors of one problem, which are all that the coordinator knows of them.

A combination of vectors is an array of its coefficients. Products carry noise, whose most is known.
An intercept that λ does not hold back has a vector of its own, the first one: nothing but an entry
at the constant column. Products with it are the entries of all others there.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np

from weft.array_types import Floats


@dataclass
class VectorProducts:
    """Products of all vectors so far.

    Attributes
    ----------
    free
        Length of the vector of a free intercept; zero: there is none, λ holds all weights back.
    gram, error
        (vectors × vectors) products, and how far noise may have moved each.
    """

    free: float = 0.0
    gram: Floats = field(default_factory=lambda: np.zeros((0, 0)))
    error: Floats = field(default_factory=lambda: np.zeros((0, 0)))

    def __post_init__(self) -> None:
        if self.free:
            self.take(np.array([self.free**2]), np.zeros(1))

    @property
    def count(self) -> int:
        return len(self.gram)

    @property
    def first(self) -> int:
        """The number of the first vector that is a gradient."""
        return 1 if self.free else 0

    def take(self, row: Floats, error: Floats) -> None:
        """Products of a new vector with all before it, and with itself."""
        count = len(row)
        for name, values in (("gram", row), ("error", error)):
            grown = np.zeros((count, count))
            grown[:-1, :-1] = getattr(self, name)
            grown[-1, :] = grown[:, -1] = values
            setattr(self, name, grown)

    # ── over all columns ──────────────────────────────────────────────────────────────────

    def padded(self, a: Floats) -> Floats:
        return np.concatenate([a, np.zeros(self.count - len(a))])

    def unit(self, number: int) -> Floats:
        """One vector alone."""
        found: Floats = np.eye(1, self.count, number)[0]
        return found

    def dot(self, a: Floats, b: Floats) -> float:
        return float(self.padded(a) @ self.gram @ self.padded(b))

    def dot_error(self, a: Floats, b: Floats) -> float:
        return float(np.abs(self.padded(a)) @ self.error @ np.abs(self.padded(b)))

    def longest(self, a: Floats) -> float:
        """Above ‖a‖."""
        return math.sqrt(max(self.dot(a, a), 0.0) + self.dot_error(a, a))

    # ── over the columns that λ holds back ────────────────────────────────────────────────

    @property
    def entries(self) -> Floats:
        """The entry of every vector at a free intercept; zero where there is none."""
        return self.gram[:, 0] / self.free if self.free else np.zeros(self.count)

    @property
    def entry_errors(self) -> Floats:
        return self.error[:, 0] / self.free if self.free else np.zeros(self.count)

    @property
    def held_gram(self) -> Floats:
        """Products without what entries at a free intercept add to them."""
        entries = self.entries
        found: Floats = self.gram - np.outer(entries, entries)
        if self.free:
            found[0] = found[:, 0] = 0.0
        return found

    @property
    def held_gram_error(self) -> Floats:
        entries, off = np.abs(self.entries), self.entry_errors
        crossed = np.outer(entries, off)
        found: Floats = self.error + crossed + crossed.T + np.outer(off, off)
        if self.free:
            found[0] = found[:, 0] = 0.0
        return found

    def intercept(self, a: Floats) -> float:
        """The entry of a combination at a free intercept."""
        return float(self.padded(a) @ self.entries)

    def intercept_error(self, a: Floats) -> float:
        return float(np.abs(self.padded(a)) @ self.entry_errors)

    def held(self, a: Floats) -> Floats:
        """A combination without its entry at a free intercept."""
        found = self.padded(a)
        if self.free:
            found[0] -= self.intercept(a) / self.free
        return found

    def held_dot(self, a: Floats, b: Floats) -> float:
        return float(self.padded(a) @ self.held_gram @ self.padded(b))

    def held_error(self, a: Floats, b: Floats) -> float:
        return float(np.abs(self.padded(a)) @ self.held_gram_error @ np.abs(self.padded(b)))

    def held_longest(self, a: Floats) -> float:
        """Above the length of what λ holds back."""
        return math.sqrt(max(self.held_dot(a, a), 0.0) + self.held_error(a, a))
