"""How many times parties and coordinator speak in an iteration."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covering import cover, every_value
from weft.data import SPLITS, Split
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.run_settings import Settings

GRID = [f"r{i}c{j}" for i in (1, 2) for j in (1, 2)]


def grid(tables: Any, labels: str = "all") -> Split:
    return SPLITS["grid"](tables.digits(120), 2, 2, labels=labels)


def trips(split: Split, iterations: int = 13, **settings: Any) -> list[int]:
    """Round trips of the iterations from the second on, the closing certificate left out."""
    seen: list[int] = []
    how: dict[str, Any] = {"lam": 0.1, "gap": None, "certify_every": 1, **settings}
    preprocessing = Preprocessing(overlap=split.overlap, unit_rows=True)
    Federation(split.parties, preprocessing).train(
        Settings(iterations=iterations, **how), progress=lambda r: seen.append(r.round_trips)
    )
    return np.diff(seen).tolist()


@pytest.mark.parametrize("iic", [0.2, 1.0])
def test_safe_takes_two(tables: Any, iic: float) -> None:
    assert set(trips(grid(tables), iic=iic)) == {2}


@every_value(local=["safe", "practical", "theory"], participation=["everyone", 0.5])
def test_horizontal_data_takes_one(tables: Any, local: str, participation: Any) -> None:
    split = SPLITS["rows"](tables.digits(120), 4)
    assert set(trips(split, local=local, participation=participation, iic=0.5)) == {1}


@every_value(local=["practical", "theory"], cutting=["grid", "columns"])
def test_practical_and_theory_take_three(tables: Any, local: str, cutting: str) -> None:
    split = grid(tables) if cutting == "grid" else SPLITS["columns"](tables.digits(120), 3)
    assert set(trips(split, local=local, iic=0.5)) == {3}


def test_safe_takes_three_where_some_holders_have_no_labels(tables: Any) -> None:
    assert set(trips(grid(tables, labels="first"), iic=0.5)) == {3}


@cover(
    ("local", "labels", "usual", "certify_every"),
    [
        (*case, certify_every)
        for case in [
            ("safe", "all", 2),
            ("safe", "first", 3),
            ("practical", "all", 3),
            ("theory", "all", 4),
        ]
        for certify_every in (1, 1000)
    ],
)
def test_a_returning_party_adds_one(
    tables: Any, local: str, labels: str, usual: int, certify_every: int
) -> None:
    """``theory`` under partial participation has the second sample sum besides. Certificates
    of frozen pairs ride on these trips and add none."""
    trace = [GRID, GRID, GRID[:-1], GRID]
    found = trips(
        grid(tables, labels),
        local=local,
        iic=0.5,
        participation={"trace": trace},
        certify_every=certify_every,
    )
    # Iterations 2 to 13; the last party is away in 3, 7, 11 and returns in 4, 8, 12.
    assert found == [usual, usual, usual + 1, usual] * 3


def test_theory_in_vertical_turns_takes_five(tables: Any) -> None:
    """Everyone who comes returns, then three trips, then the second sample sum."""
    split = SPLITS["columns"](tables.digits(120), 4)
    assert set(trips(split, local="theory", participation={"cyclic": 2})[1:]) == {5}
