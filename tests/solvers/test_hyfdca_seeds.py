"""One seed, one run: bit for bit."""

from __future__ import annotations

from dataclasses import asdict
from functools import cache
from typing import Any

import numpy as np
import pytest

from covering import some_of
from weft.data import SPLITS
from weft.federation.local_federation import Federation, Preprocessing, Trained
from weft.solvers.run_settings import Settings

RUNS: dict[str, dict[str, Any]] = {
    "safe": {"iic": 0.2},
    "safe, parties away": {"iic": 0.2, "participation": 0.4},
    "practical": {"local": "practical", "iic": 0.1},
    "theory, in turns": {"local": "theory", "iic": 0.5, "participation": {"cyclic": 2}},
}
every_run = pytest.mark.parametrize("run", some_of(RUNS, "safe, parties away", "theory, in turns"))


def train(tables: Any, run: str, seed: int) -> Trained:
    """A run of its own."""
    split = SPLITS["overlapping"](tables.digits(300), 4, row_share=0.6, labels="first")
    settings = Settings(lam=1e-2, gap=None, iterations=10, seed=seed, **RUNS[run])
    return Federation(split.parties, Preprocessing(unit_rows=True)).train(settings)


@cache
def kept(tables: Any, run: str, seed: int) -> Trained:
    """A run that several tests compare with."""
    return train(tables, run, seed)


def values(trained: Trained) -> list[dict[str, Any]]:
    """The history without the clock."""
    rows = [asdict(record) for record in trained.result.history]
    return [{k: v for k, v in row.items() if not k.endswith("seconds")} for row in rows]


@every_run
def test_the_same_seed_gives_the_same_bits(tables: Any, run: str) -> None:
    one, two = kept(tables, run, 3), train(tables, run, 3)
    assert np.array_equal(one.model.coef, two.model.coef)
    assert values(one) == values(two)
    assert one.result.notes == two.result.notes


@every_run
def test_another_seed_gives_another_run(tables: Any, run: str) -> None:
    one, two = kept(tables, run, 3), train(tables, run, 4)
    assert not np.array_equal(one.model.coef, two.model.coef)
    assert [r.primal for r in one.result.history] != [r.primal for r in two.result.history]


def test_where_nothing_is_drawn_seeds_agree_on_the_path(tables: Any) -> None:
    """At iic = 1 with everyone present only the start of the power iteration is random."""
    split = SPLITS["grid"](tables.digits(300), 2, 2)
    how: dict[str, Any] = {"lam": 0.3, "gap": None, "iterations": 60, "cipher": "plain"}
    settings = [Settings(**how, seed=seed) for seed in (0, 1)]
    one, two = (Federation(split.parties).train(s).model for s in settings)
    np.testing.assert_allclose(one.coef, two.coef, atol=1e-3)
