"""HyFDCA's Algorithm 1 in a few lines on one table, with the readings of its text as switches.

Parties in a grid of row groups × column groups, the hinge loss, no encryption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from weft.array_types import Floats, Ints


@dataclass(frozen=True)
class Reading:
    """How a text is read; the defaults are Weft's.

    Attributes
    ----------
    refreshed
        Who gets α anew at the start of an iteration: who was not there in the last one, or, as
        printed, who was not refreshed in it.
    subgradient
        Algorithm 3's u: −1 for −l'(z), 1 for l'(z) as printed; None: Algorithm 5.
    margin
        Of Algorithm 5's closed form: 1 − y xᵀw, or 1 − xᵀw as printed.
    window
        For the draws of how many further iterations parties send inner products, beside those of
        this one; None: for all samples, as printed.
    resum
        Feature sums are added up anew in every iteration, as printed, or changes are added.
    """

    refreshed: Literal["absent", "printed"] = "absent"
    subgradient: Literal[-1, 1] | None = None
    margin: Literal["signed", "printed"] = "signed"
    window: int | None = None
    resum: bool = True


@dataclass(frozen=True)
class Trace:
    """What a run ends with.

    Attributes
    ----------
    alpha, w
        The server's.
    refreshes
        How often a party got α anew, over all iterations.
    sent
        Inner products that parties sent.
    """

    alpha: Floats
    w: Floats
    refreshes: int
    sent: int


class Table:
    """Rows of length at most 1, labels ±1, parties in a grid."""

    def __init__(self, x: Floats, y: Floats, grid: tuple[int, int]) -> None:
        self.x = x / np.maximum(1.0, np.linalg.norm(x, axis=1, keepdims=True))
        self.y = y
        down, across = grid
        order = np.random.default_rng(0).permutation(len(x))
        self.parties: list[tuple[Ints, Ints]] = [
            (np.sort(rows), columns)
            for rows in np.array_split(order, down)
            for columns in np.array_split(np.arange(x.shape[1]), across)
        ]
        self.blocks = [self.x[np.ix_(rows, columns)] for rows, columns in self.parties]
        self.holders = across

    def primal(self, w: Floats, lam: float) -> float:
        losses = np.maximum(0.0, 1 - self.y * (self.x @ w))
        return float(0.5 * lam * w @ w + losses.mean())


class _Run:
    def __init__(self, table: Table, lam: float, reading: Reading, drawn: int, seed: int) -> None:
        self._table, self._lam, self._reading = table, lam, reading
        self._drawn, self._seed = drawn, seed
        count, width = table.x.shape
        self.alpha, self.w = np.zeros(count), np.zeros(width)
        self._ip = [np.zeros(len(rows)) for rows, _ in table.parties]
        self._sums = [np.zeros(len(columns)) for _, columns in table.parties]
        self._before: set[int] = set()
        self._seen = [np.zeros(len(rows)) for rows, _ in table.parties]
        self._known: dict[tuple[int, int], Ints] = {}
        self.refreshes = self.sent = 0

    def draws(self, turn: int, party: int) -> Ints:
        """Places among a party's rows."""
        if (turn, party) not in self._known:
            random = np.random.default_rng((self._seed, turn, party))
            rows = self._table.parties[party][0]
            drawn = random.choice(len(rows), min(self._drawn, len(rows)), replace=False)
            self._known[turn, party] = drawn
        return self._known[turn, party]

    def iterate(self, turn: int, there: list[int]) -> None:
        back = [party for party in there if party not in self._before]
        for party in back:
            self._add_up(party)
        self.refreshes += len(back)
        self._assemble()
        self._multiply(turn, there)
        z = np.zeros(len(self.alpha))
        for party, (rows, _) in enumerate(self._table.parties):
            z[rows] += self._ip[party]
        change = np.zeros(len(self.alpha))
        for party in there:
            rows = self._table.parties[party][0][self.draws(turn, party)]
            change[rows] += self._local(rows, z[rows], party) / self._table.holders
        self.alpha += change
        for party in there:
            self._add_up(party)
        self._assemble()
        printed = self._reading.refreshed == "printed"
        self._before = set(back) if printed else set(there)

    def _add_up(self, party: int) -> None:
        """Algorithm 4 at a party: anew, or what changed since it last did."""
        now = self.alpha[self._table.parties[party][0]]
        if self._reading.resum:
            self._sums[party] = now @ self._table.blocks[party]
        else:
            moved = np.flatnonzero(now != self._seen[party])
            more = (now - self._seen[party])[moved]
            self._sums[party] += more @ self._table.blocks[party][moved]
        self._seen[party] = now

    def _assemble(self) -> None:
        self.w = np.zeros_like(self.w)
        for (_, columns), sums in zip(self._table.parties, self._sums, strict=True):
            self.w[columns] += sums
        self.w /= self._lam * len(self.alpha)

    def _multiply(self, turn: int, there: list[int]) -> None:
        window = self._reading.window
        for party in there:
            weights, block = self.w[self._table.parties[party][1]], self._table.blocks[party]
            if window is None:
                self._ip[party] = block @ weights
                self.sent += len(block)
                continue
            wanted = [self._mates(turn + ahead, party) for ahead in range(window + 1)]
            places = np.unique(np.concatenate(wanted))
            self._ip[party][places] = block[places] @ weights
            self.sent += len(places)

    def _mates(self, turn: int, party: int) -> Ints:
        """What the party or another holder of its rows draws."""
        group = party - party % self._table.holders
        drawn = [self.draws(turn, other) for other in range(group, group + self._table.holders)]
        return np.concatenate(drawn)

    def _local(self, rows: Ints, z: Floats, party: int) -> Floats:
        y, alpha = self._table.y[rows], self.alpha[rows]
        scale = self._lam * len(self.alpha)
        if self._reading.subgradient is None:
            margin = 1 - (y * z if self._reading.margin == "signed" else z)
            found: Floats = y * np.clip(scale * margin + y * alpha, 0, 1) - alpha
            return found
        share = len(self._table.parties[party][0]) / len(self.alpha)
        slope = np.where(y * z < 1, -y, 0.0)
        direction = share * (self._reading.subgradient * slope - alpha)
        free = y * np.clip(self._lam * (1 - y * z) + y * alpha, 0, 1) - alpha
        # Outside 0 ≤ yα ≤ 1 the conjugate is infinite: s = 0 is then the best there is.
        return np.clip(free, np.minimum(direction, 0), np.maximum(direction, 0))


def run(
    table: Table,
    lam: float,
    reading: Reading,
    *,
    iterations: int,
    participation: float,
    drawn: int,
    seed: int = 0,
) -> Trace:
    """Algorithm 1, every party there with the given probability, and at least one of them."""
    found = _Run(table, lam, reading, drawn, seed)
    random = np.random.default_rng((seed, 0x5A))
    for turn in range(1, iterations + 1):
        present = np.flatnonzero(random.random(len(table.parties)) < participation).tolist()
        found.iterate(turn, present or [int(random.integers(len(table.parties)))])
    return Trace(found.alpha, found.w, found.refreshes, found.sent)
