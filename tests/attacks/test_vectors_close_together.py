"""Dual vectors at points close together, each two of which the guard lets pass.

What is left of three of them, first and last less twice the middle, is of the samples that bend in
between. Where that is one, it is its row.
"""

from __future__ import annotations

from collections.abc import Callable
from math import comb
from typing import Any

import numpy as np
import pytest

from weft.guards.min_batch_between_sums import SeenBatches
from weft.losses import get_loss
from weft.solvers.subspace.dual_ascent_with_approximate_gram import _near_zero, ascended

ASCENT = "weft.solvers.subspace.dual_ascent_with_approximate_gram"
LOGISTIC = get_loss("logistic")
SAMPLES, COLUMNS = 500, 20
#: A row is shown when the direction of what is left comes so near to it.
SHOWN = 0.97

Make = Callable[[Any, Any, float], Any]


def slopes(z: Any, y: Any, length: float) -> Any:
    return LOGISTIC.u(z, y)


def steps(begun: float = 0.0) -> Make:
    """Steps of ascent from ``begun`` times the label, all of them of one length."""

    def make(z: Any, y: Any, length: float) -> Any:
        return ascended(
            LOGISTIC,
            begun * y[:, None],
            z[:, None].copy(),
            y[:, None],
            np.ones((len(z), 1), bool),
            np.array([0, len(z)]),
            [],
            np.zeros((0, 1, 1)),
            # What is outside a basis, here everything, counts three times.
            np.array([length / 3.0]),
            least=10,
        )[:, 0]

    return make


class Coordinator:
    """Asks for vectors, and looks at what the guard lets pass."""

    def __init__(self, rows: Any, y: Any, make: Make) -> None:
        self._rows, self._y, self._make = rows, y, make
        self._guard = SeenBatches(np.zeros(len(y), np.int64), 10, 1, (y > 0).astype(np.int64))
        self._guard.admit(y[:, None] * 0.5)
        self.passed = 0
        #: How near each difference came to a row.
        self.near: list[float] = []

    def ask(self, points: list[Any], length: float = 1.0) -> None:
        made = [np.round(self._make(z, self._y, length) * 2**30) / 2**30 for z in points]
        if any(self._guard.admit(a[:, None].copy()).any() for a in made):
            return
        self.passed += 1
        most = len(made) - 1
        left = sum((-1) ** k * comb(most, k) * a for k, a in enumerate(made))
        b = self._rows.T @ left
        if np.linalg.norm(b) > 1e-7:
            lengths = np.linalg.norm(self._rows, axis=1) * np.linalg.norm(b)
            self.near.append(float((np.abs(self._rows @ b) / lengths).max()))

    @property
    def shown(self) -> int:
        return sum(cosine > SHOWN for cosine in self.near)


def labels(random: Any) -> Any:
    return np.where(random.random(SAMPLES) < 0.5, 1.0, -1.0)


def anything(make: Callable[[float], Make], longest: float, seeds: int = 60) -> tuple[int, int]:
    """Triples that pass, and those that show a row: tables, points and lengths of many kinds."""
    passed = shown = 0
    for seed in range(seeds):
        random = np.random.default_rng(seed)
        kind = random.integers(4)
        rows = random.standard_normal((SAMPLES, COLUMNS))
        if kind == 1:
            rows = random.standard_t(4, (SAMPLES, COLUMNS))
        if kind == 2:
            some = random.choice(SAMPLES, int(random.choice([20, 40, 100])), replace=False)
            rows[:, 0] = 0.0
            rows[some, 0] = random.standard_normal(len(some))
        if kind == 3:
            rows = np.exp(rows)
        here = rows[:, 0] if kind == 2 else rows @ random.standard_normal(COLUMNS)
        here = here / here.std()
        way = here if random.random() < 0.6 else rows @ random.standard_normal(COLUMNS) / 4.5
        liar = Coordinator(rows, labels(random), make(float(random.choice([0.0, 0.5, 0.9, 1.0]))))
        for _ in range(25):
            length = longest * np.exp(random.uniform(np.log(0.05), 0.0))
            scale = np.exp(random.uniform(np.log(0.3), np.log(300.0)))
            if random.random() < 0.3:
                scale = length / random.uniform(1.0, 5.0)
            step = np.exp(random.uniform(np.log(1e-4), np.log(0.3)))
            level = random.choice([0.0, 0.0, 3.0, 10.0, 30.0]) * random.standard_normal()
            points = [scale * (here + k * step * way) + level for k in (-1, 0, 1)]
            liar.ask(points, length)
        passed, shown = passed + liar.passed, shown + liar.shown
    return passed, shown


#: Of triples that pass; slopes have 0.7 to 1.1 % of 5,000, steps 1.0 to 1.5 % of 7,000.
NOW_AND_THEN = 0.02


def test_slopes_of_the_logistic_loss_show_a_row_now_and_then() -> None:
    """So the threat model says."""
    passed, shown = anything(lambda begun: slopes, 20.0)
    assert passed > 900
    assert 0 < shown < NOW_AND_THEN * passed


@pytest.mark.parametrize("asked", [20.0, 1e6])
def test_steps_of_ascent_show_rows_about_as_often(asked: float) -> None:
    """However long a coordinator has them."""
    passed, shown = anything(steps, asked)
    assert passed > 900
    assert shown < NOW_AND_THEN * passed


def test_steps_without_a_limit_would_show_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ASCENT}._LONGEST", 1e9)
    passed, shown = anything(steps, 1e3)
    assert shown > 2.0 * NOW_AND_THEN * passed


def along_a_ray(scale: float, seed: int) -> Coordinator:
    """Steps about as long as scores are large, at three targets on one ray."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((SAMPLES, COLUMNS))
    y = labels(random)
    z = rows @ random.standard_normal(COLUMNS)
    liar = Coordinator(rows, y, steps())
    for length in np.linspace(1.5, 4.5, 30) * scale:
        for step in (3e-3, 3e-2):
            liar.ask([scale * z / z.std() * (1.0 + k * step) for k in (-1, 0, 1)], length)
    return liar


def in_a_rare_column(nonzero: int, seed: int) -> Coordinator:
    """Where most samples have a zero, the scores of the others are as far away as one likes."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((SAMPLES, COLUMNS))
    some = random.choice(SAMPLES, nonzero, replace=False)
    rows[:, 0] = 0.0
    rows[some, 0] = random.standard_normal(nonzero)
    liar = Coordinator(rows, labels(random), steps(0.5))
    for length in np.geomspace(0.05, 6.0, 60) * 1e4:
        liar.ask([1e4 * rows[:, 0] * (1.0 + k * 3e-3) for k in (-1, 0, 1)], length)
    return liar


LIARS = {
    "scores of 30": lambda seed: along_a_ray(30.0, seed),
    "scores of 300": lambda seed: along_a_ray(300.0, seed),
    "40 of 500 are not zero": lambda seed: in_a_rare_column(40, seed),
}


@pytest.mark.parametrize("name", LIARS)
def test_long_steps_along_a_ray_show_no_row(name: str) -> None:
    liars = [LIARS[name](seed) for seed in range(3)]
    # It is not the guard that sees to that.
    assert all(liar.passed > 50 for liar in liars)
    assert not any(liar.near and max(liar.near) > 0.9 for liar in liars)


@pytest.mark.parametrize("name", ["scores of 30", "40 of 500 are not zero"])
def test_without_a_limit_they_would(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(f"{ASCENT}._LONGEST", 1e9)
    assert max(max(LIARS[name](seed).near) for seed in range(3)) > 0.99


def with_basis(rows: Any, y: Any, z: Any, basis: Any, length: float) -> Any:
    """Steps in a cohort from half the label; of its rows, products with a few vectors are known."""
    return ascended(
        LOGISTIC,
        0.5 * y[:, None],
        z[:, None].copy(),
        y[:, None],
        np.ones((len(z), 1), bool),
        np.array([0, len(z)]),
        [column[:, None].copy() for column in rows.T],
        basis[:, :, None],
        np.array([length]),
        least=10,
    )[:, 0]


def turned_basis(seed: int) -> Coordinator:
    """A huge basis of one direction, turned a little: were samples shortened one by one, each
    would change its side alone."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((SAMPLES, COLUMNS))
    y = labels(random)
    two = rows @ random.standard_normal((COLUMNS, 2))
    two /= two.std(axis=0)
    drift = rows @ random.standard_normal(COLUMNS) / 4.5
    turns: list[Any] = []

    def make(z: Any, y: Any, length: float) -> Any:
        return with_basis(two, y, z, 1e10 * turns.pop(0)[:, None], length)

    liar = Coordinator(rows, y, make)
    for angle in random.uniform(0.0, np.pi, 40):
        turn = np.pi / SAMPLES / 2
        turns[:] = [
            np.array([np.cos(at), np.sin(at)]) for at in (angle - turn, angle, angle + turn)
        ]
        middle = 3.0 * two @ turns[1]
        liar.ask([middle + k * 0.1 * drift for k in (-1, 0, 1)])
    return liar


def changed_lengths(seed: int) -> Coordinator:
    """The same points and basis: were there a bend where a sample lies in the span, some lengths
    would lead past those of single samples."""
    random = np.random.default_rng(seed)
    rows = random.standard_normal((SAMPLES, COLUMNS))
    y = labels(random)
    few = rows @ random.standard_normal((COLUMNS, 4))
    few /= few.std(axis=0)
    asked: list[Any] = []

    def make(z: Any, y: Any, length: float) -> Any:
        basis, factor = asked.pop(0)
        return with_basis(few, y, z, basis, length * factor)

    liar = Coordinator(rows, y, make)
    for _ in range(60):
        basis = random.standard_normal((4, 1))
        basis /= np.linalg.norm(basis)
        asked[:] = [(basis, 1.0 + k * 3e-3) for k in (-1, 0, 1)]
        z = 1.5 * few @ random.standard_normal(4)
        liar.ask([z, z, z], random.uniform(0.3, 3.0))
    return liar


@pytest.mark.parametrize("ask", [turned_basis, changed_lengths])
def test_neither_a_basis_nor_lengths_that_change_show_a_row(
    ask: Callable[[int], Coordinator],
) -> None:
    for seed in range(3):
        liar = ask(seed)
        assert liar.passed >= 40
        assert max(liar.near) < 0.95


def test_samples_shortened_one_by_one_would(monkeypatch: pytest.MonkeyPatch) -> None:
    def shorten(inside: Any, cohort_start: Any, most: float) -> None:
        squares = (inside.astype(float) ** 2).sum(axis=1)
        inside *= np.sqrt(np.minimum(1.0, most / squares))[:, None].astype(np.float32)

    monkeypatch.setattr(f"{ASCENT}._shorten", shorten)
    assert max(max(turned_basis(seed).near) for seed in range(3)) > 0.99


def test_eight_slopes_on_a_line_show_more_than_three() -> None:
    """So the threat model says: of whatever solver, with rows that are normal."""
    best = {}
    for count in (3, 8):
        near: list[float] = []
        for seed in range(3):
            random = np.random.default_rng(seed)
            rows = random.standard_normal((SAMPLES, COLUMNS))
            liar = Coordinator(rows, labels(random), slopes)
            for _ in range(30):
                scale = np.exp(random.uniform(np.log(0.5), np.log(30.0)))
                here, way = (rows @ random.standard_normal(COLUMNS) / 4.5 for _ in range(2))
                for step in (0.03, 0.1, 0.3):
                    middle = (count - 1) / 2
                    liar.ask([scale * (here + (k - middle) * step * way) for k in range(count)])
            near += liar.near
        best[count] = max(near)
    assert best[3] < 0.95
    assert best[8] > 0.98


@pytest.mark.parametrize("scale", [0.0, 1.0, 1e3, 1e300])
@pytest.mark.parametrize("rows", [1, 30, 500])
def test_scores_are_brought_so_near_that_enough_samples_bend(scale: float, rows: int) -> None:
    z = np.random.default_rng(rows).standard_normal(rows) * scale
    near = _near_zero(z, np.ones(rows, bool), np.array([0, rows]), 10.0)
    odds = np.exp(-np.abs(near))
    assert (4.0 * odds / (1.0 + odds) ** 2).sum() >= min(20.0, 0.5 * rows)
    again = _near_zero(near, np.ones(rows, bool), np.array([0, rows]), 10.0)
    np.testing.assert_array_equal(again, near)
