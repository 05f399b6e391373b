"""The least that playing parties in one process can cost: objects, messages and numpy products.

Seconds differ threefold from machine to machine. So what an iteration of Weft costs is held against
this loop in the same run, in processor time: as many party objects, each asked as often, and for as
many drawn rows the two products that a dual step needs. It has no guards, no draws that parties
agree on, no certificates, no declared messages, and it trains nothing worth having.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from weft.array_types import Floats, Ints
from weft.data import Tile
from weft.solvers.participation import RandomFraction


@dataclass(frozen=True)
class Ask:
    """Rows of each tile, and numbers for them or for the columns."""

    rows: list[Ints]
    numbers: list[Floats]


@dataclass(frozen=True)
class Answer:
    numbers: list[Floats]


class BareParty:
    """Its blocks, and where their rows and columns are among all."""

    def __init__(
        self, tiles: Sequence[Tile], rows: dict[str, int], columns: dict[str, int]
    ) -> None:
        self.blocks = [tile.block for tile in tiles]
        self.rows = [np.array([rows[i] for i in tile.ids]) for tile in tiles]
        self.columns = [np.array([columns[f] for f in tile.features]) for tile in tiles]

    def products(self, asked: Ask) -> Answer:
        held = zip(self.blocks, asked.rows, asked.numbers, strict=True)
        return Answer([block[rows] @ w for block, rows, w in held])

    def changes(self, asked: Ask) -> Answer:
        held = zip(self.blocks, asked.rows, asked.numbers, strict=True)
        return Answer([block[rows].T @ steps for block, rows, steps in held])

    def nothing(self, asked: Ask) -> Answer:
        return Answer(asked.numbers)

    def draw(self, random: np.random.Generator, share: float) -> list[Ints]:
        """A share of the rows of each block, at least one."""
        sizes = (len(rows) for rows in self.rows)
        return [random.choice(n, size=max(1, round(share * n)), replace=False) for n in sizes]


def bare_seconds(
    tiles: Mapping[str, Sequence[Tile]],
    *,
    fraction: float,
    drawn: float,
    round_trips: float,
    iterations: int,
) -> float:
    """Processor seconds of an iteration of the bare loop.

    Parameters
    ----------
    fraction
        Of the parties, who take part.
    drawn
        Share of a party's rows in an iteration.
    round_trips
        Of an iteration; those beyond two carry messages and compute nothing.
    """
    ids = sorted({i for held in tiles.values() for tile in held for i in tile.ids})
    names = sorted({f for held in tiles.values() for tile in held for f in tile.features})
    rows, columns = ({name: k for k, name in enumerate(found)} for found in (ids, names))
    parties = {name: BareParty(held, rows, columns) for name, held in tiles.items()}
    rule = RandomFraction(tuple(parties), fraction)
    random = np.random.default_rng(0)
    z, w = np.zeros(len(ids)), np.zeros(len(names))
    begun = time.process_time()
    for iteration in range(iterations):
        here = [parties[name] for name in rule.present(iteration + 1)]
        chosen = [party.draw(random, drawn) for party in here]
        for party, mine in zip(here, chosen, strict=True):
            answer = party.products(Ask(mine, [w[columns] for columns in party.columns]))
            for rows, drawn_rows, found in zip(party.rows, mine, answer.numbers, strict=True):
                z[rows[drawn_rows]] = found
        for party, mine in zip(here, chosen, strict=True):
            held = zip(party.rows, mine, strict=True)
            steps = [np.clip(1.0 - z[rows[some]], -1.0, 1.0) for rows, some in held]
            answer = party.changes(Ask(mine, steps))
            for columns, found in zip(party.columns, answer.numbers, strict=True):
                w[columns] += found / len(ids)
        for _ in range(max(0, round(round_trips) - 2)):
            for party, mine in zip(here, chosen, strict=True):
                party.nothing(Ask(mine, [w[columns] for columns in party.columns]))
    return (time.process_time() - begun) / iterations
