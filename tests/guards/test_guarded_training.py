"""Real runs under guards: what the parties put into sums, and what is certified nevertheless."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import dataclass, field
from functools import cache
from itertools import product

import numpy as np
import pytest
from guarded import (
    PLAIN,
    check_apart,
    check_steps,
    effective,
    local_rows,
    optimum,
    table_of,
    train,
    trained_table,
    watched,
)

from covering import cover, some_of
from weft.data import SPLITS
from weft.guards import OPEN, Terms
from weft.solvers.hyfdca.local_methods import CohortDrawing
from weft.solvers.run_settings import Settings

LEAST = PLAIN.min_batch
BREAST, DIGITS = table_of("breast_cancer", 400), table_of("digits", 600)
TEN = table_of("digits", 500, classes=10)


@dataclass
class Vectors:
    """Dual vectors as each party used them for the feature sums that it told.

    Attributes
    ----------
    used
        Per party, (rows × vectors · problems) blocks in the order of the sums.
    bent
        Per party, of each block, whether the Hessian made it out of a direction.
    """

    used: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    bent: dict[str, list[bool]] = field(default_factory=lambda: defaultdict(list))
    _heard: set[tuple[str, int]] = field(default_factory=set)

    def after(self, party, phase, message, reply):
        if not phase.startswith("subspace."):
            return
        half = party._half
        # Whoever lacks labels knows its vectors when it has followed.
        last = (
            ("subspace.search", "subspace.gather")
            if party.view.labelled.all()
            else ("subspace.follow",)
        )
        # Where somebody did not answer, all are asked again.
        again = (party.name, message.get("serial")) in self._heard
        if phase in last and half.samples.duals.shape[1] and not again:
            self._heard.add((party.name, message["serial"]))
            self.used[party.name].append(half.samples.duals.copy())
            self.bent[party.name].append("direction" in message)

    def steps(self, party: str, rows: np.ndarray, width: int):
        """Per problem, vectors of the same kind one after the other."""
        for bent in (False, True):
            pairs = zip(self.used[party], self.bent[party], strict=True)
            blocks = [block[rows] for block, kind in pairs if kind == bent]
            for problem in range(width if blocks else 0):
                yield np.hstack(blocks)[:, problem::width]


@dataclass
class Alphas:
    """α of HyFDCA as each party used it for the feature sums that it told, and what it drew."""

    used: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))
    drawn: dict[str, list[np.ndarray]] = field(default_factory=lambda: defaultdict(list))

    def after(self, party, phase, message, reply):
        if phase not in ("hyfdca.weights", "hyfdca.fused", "hyfdca.step", "hyfdca.dual"):
            return
        half = party._half
        if "v" in reply:
            self.used[party.name].append(half.alpha.copy())
        drawn = half._turn.drawn
        if phase in ("hyfdca.weights", "hyfdca.fused") and party.view.labelled.any():
            rows = np.arange(party.view.n_rows) if drawn is None else drawn
            self.drawn[party.name].append(rows)


def exposed_atoms(party):
    """The rows of every group of samples that others see sums of."""
    view, half = party.view, party._half
    cohorts = view.row_cohort
    group = half.rows.atoms(cohorts) if hasattr(half, "rows") else cohorts
    for cohort in np.flatnonzero(view.exposed).tolist():
        for number in np.unique(group[view.guarded_cohort == cohort]).tolist():
            yield np.flatnonzero((view.guarded_cohort == cohort) & (group == number))


def check_common(federation, used):
    """All holders of a sample use the same value of every vector for it."""
    counts = {len(blocks) for blocks in used.values()}
    assert len(counts) == 1
    values: dict[str, np.ndarray] = {}
    for name, blocks in used.items():
        rows = np.hstack(blocks)
        for sample, row in local_rows(federation.parties[name]).items():
            assert np.array_equal(values.setdefault(sample, rows[row]), rows[row])
    return values


def check_true(table, settings, certificate, classes):
    """D ≤ P* ≤ P for some classes, by an outside judge."""
    for number, positive in classes.items():
        best = optimum(table, settings.loss, settings.lam, positive)
        assert certificate.dual[number] <= best * (1 + 1e-7)
        assert certificate.primal[number] >= best * (1 - 1e-7)


GRID = {"k": 3, "q": 3}
RUNS = {
    "digits grid, hinge": (DIGITS, "grid", GRID, {"lam": 1e-3}),
    "digits grid, logistic": (DIGITS, "grid", GRID, {"lam": 1e-3, "loss": "logistic"}),
    "labels at first": (DIGITS, "grid", {**GRID, "labels": "first"}, {"lam": 1e-3}),
    "two groups": (DIGITS, "grid", GRID, {"lam": 1e-3, "groups": 2}),
    "ten classes": (TEN, "grid", {**GRID, "labels": "first"}, {"lam": 3e-3, "gap": 5e-2}),
    "breast rows, hinge": (BREAST, "rows", {"parties": 4}, {"lam": 1e-3}),
    "folds": (BREAST, "rows", {"parties": 4}, {"lam": 3e-3, "folds": 3}),
    "breast rows, newton": (
        BREAST,
        "rows",
        {"parties": 4},
        {"lam": 1e-3, "loss": "logistic", "solver": "newton-cg"},
    ),
}
#: Runs in which something is to be held back or spread, which is what they are for.
RESTRAINED = ("digits grid, hinge", "labels at first", "two groups", "breast rows, hinge", "folds")


#: With every change; the others are held back for the same reasons.
SOME = ("labels at first", "digits grid, logistic", "folds", "breast rows, newton")


@pytest.mark.parametrize("name", some_of(RUNS, *SOME))
def test_vectors_of_real_runs_keep_apart_and_bounds_are_true(name):
    table, way, options, changes = RUNS[name]
    base = {"solver": "lbfgs" if "loss" in changes else "cutting-planes", "gap": 1e-3}
    settings = Settings(**{**base, "iterations": 60, "cipher": "plain", **changes})
    vectors = Vectors()
    with watched(vectors.after):
        federation, trained = train(SPLITS[way](table, **options), settings)
    check_common(federation, vectors.used)
    width = federation.parties[next(iter(vectors.used))]._half.problems.width
    atoms = 0
    for party, blocks in vectors.used.items():
        columns = np.hstack(blocks)
        for rows in exposed_atoms(federation.parties[party]):
            atoms += 1
            check_apart(columns[rows], LEAST)
            for steps in vectors.steps(party, rows, width):
                check_steps(steps, LEAST)
    assert atoms >= len(federation.parties)
    result = trained.result
    classes = {0: 1} if width < 10 else {0: 0, 8: 8}
    check_true(trained_table(federation, table), settings, result.certificate, classes)
    held = [note for note in result.notes if f"min_batch = {LEAST} held back" in note]
    if name in RESTRAINED:
        assert held, "nothing was held back: this run shows nothing"
    assert result.certificate.gap < 0.1, "nothing was trained"


def test_without_guards_vectors_come_close():
    """What the tests above would find: the same run with open terms."""
    table, way, options, changes = RUNS["breast rows, hinge"]
    settings = Settings(solver="cutting-planes", gap=1e-3, iterations=60, cipher="plain", **changes)
    vectors = Vectors()
    with watched(vectors.after):
        federation, trained = train(SPLITS[way](table, **options), settings, OPEN)
    assert not any("min_batch" in note for note in trained.result.notes)
    view = federation.parties["p1"].view
    assert not view.exposed.any()
    with pytest.raises(AssertionError, match="a difference of"):
        check_apart(np.hstack(vectors.used["p1"]), LEAST)


def test_a_run_that_cannot_go_on_says_so_and_stops():
    terms = Terms(ciphers=("plain",), min_batch=60)
    settings = Settings(lam=1e-5, solver="cutting-planes", gap=1e-6, cipher="plain")
    federation, trained = train(SPLITS["rows"](DIGITS, parties=4), settings, terms)
    result = trained.result
    assert result.stopped == "min_batch = 60 keeps the gap from falling below this"
    assert any("min_batch = 60 held back or spread" in note for note in result.notes)
    assert len(result.history) < settings.iterations
    check_true(trained_table(federation, DIGITS), settings, result.certificate, {0: 1})
    # The note tells the gap that is certified.
    assert f"{result.certificate.gap:.1e}" in result.notes[-1]


def test_hyfdca_stops_after_a_hundred_certificates_that_a_guard_keeps_from_getting_better():
    """Other methods stop after twenty."""
    terms = Terms(ciphers=("plain",), min_batch=60)
    settings = Settings(lam=1e-3, solver="hyfdca", gap=1e-6, cipher="plain", certify_every=1)
    _, trained = train(SPLITS["rows"](DIGITS, parties=4), settings, terms)
    result = trained.result
    assert result.stopped == "min_batch = 60 keeps the gap from falling below this"
    # Every α is held back, so that the first certificate is as good as any.
    assert len({record.gap for record in result.history}) == 1
    assert len(result.history) == 1 + 100


HYFDCA = {
    "safe grid": (DIGITS, "grid", GRID, {"local": "safe"}),
    "safe grid, labels at first": (DIGITS, "grid", {**GRID, "labels": "first"}, {"local": "safe"}),
    "safe rows": (BREAST, "rows", {"parties": 3}, {"local": "safe"}),
    "practical grid": (DIGITS, "grid", GRID, {"local": "practical"}),
    "practical rows": (BREAST, "rows", {"parties": 3}, {"local": "practical"}),
    "practical rows, logistic": (
        BREAST,
        "rows",
        {"parties": 3},
        {"local": "practical", "loss": "logistic"},
    ),
}


some_hyfdca = cover(
    ("name", "iic"),
    [("safe grid", 0.1), ("safe rows", 1.0), ("practical rows, logistic", 0.1)],
    others=product(HYFDCA, [0.1, 1.0]),
)


@cache
def moving(name, iic):
    """A run, and the α of its parties; each is made once."""
    table, way, options, changes = HYFDCA[name]
    settings = Settings(lam=1e-3, iic=iic, gap=None, iterations=40, cipher="plain", **changes)
    alphas = Alphas()
    with watched(alphas.after):
        return *train(SPLITS[way](table, **options), settings), alphas


@some_hyfdca
def test_between_feature_sums_enough_samples_move_or_none(name, iic):
    federation, trained, alphas = moving(name, iic)
    check_common(federation, alphas.used)
    moved = 0
    for name_, blocks in alphas.used.items():
        party = federation.parties[name_]
        for rows in exposed_atoms(party):
            before = np.zeros_like(blocks[0][rows])
            for now in blocks:
                worth = effective((now[rows] - before)[:, 0])
                assert worth == 0.0 or worth >= LEAST * (1 - 1e-6)
                moved += worth > 0
                before = now[rows]
    assert moved > 0, "nothing was trained"
    if trained.result.certificate is not None:
        judged = trained_table(federation, HYFDCA[name][0])
        check_true(judged, trained.settings, trained.result.certificate, {0: 1})


@some_hyfdca
def test_never_all_samples_of_an_exposed_group_are_drawn(name, iic):
    """If all moved, those at an even speed would cancel in differences of differences."""
    federation, _, alphas = moving(name, iic)
    for name_, draws in alphas.drawn.items():
        view = federation.parties[name_].view
        for cohort in np.flatnonzero(view.exposed & view.labelled).tolist():
            counts = [int((view.row_cohort[rows] == cohort).sum()) for rows in draws]
            assert max(counts) <= 0.7 * view.sizes[cohort]
    assert alphas.drawn


def test_few_drawn_samples_are_made_more():
    """Of few samples too few would change for a guard to let them."""
    settings = Settings(lam=1e-3, iic=0.01, gap=None, iterations=1, cipher="plain")
    federation, _ = train(SPLITS["grid"](DIGITS, **GRID), settings)
    party = federation.parties["r1c1"]
    assert isinstance(party._half.drawing, CohortDrawing)
    assert party._half.drawing.counts.tolist() == [10 * LEAST]
    assert party.view.sizes.tolist() == [200]
