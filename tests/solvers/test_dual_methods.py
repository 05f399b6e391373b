"""CoCoA, CoCoA+, SDCA, D3CA and FedDCD: optima of the outside judge, iterates of plain numpy.

That ciphers, checkpoints and messages as bytes change no bit is promised for every method in
rounds at once (``tests/solvers/test_rounds.py``).
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.optimize
import scipy.sparse
from scipy.special import expit

from covering import before_release, cover, every_pair, every_value
from weft.data import SPLITS, Split, pool
from weft.errors import ConfigError
from weft.federation.local_federation import Federation
from weft.guards import Terms
from weft.losses import get_loss
from weft.solvers.feddcd import LocalProblem
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import order_of


def settings_of(solver, **changes):
    base = {"lam": 1e-2, "gap": None, "iterations": 100, "cipher": "plain", "certify_every": 10}
    return Settings(solver=solver, **{**base, **changes})


class Run:
    """A run, with w and α of every party after each iteration."""

    def __init__(self, split, settings, **options):
        self.federation = Federation(split.parties, **options)
        self.ids = pool(split).ids
        self.history = []
        self.trained = self.federation.train(settings, progress=self._look)
        self.certificate = self.trained.result.certificate

    @property
    def halves(self):
        return {name: party._half for name, party in self.federation.parties.items()}

    def _look(self, record):
        held = {
            name: (half.w, getattr(half, "alpha", half.w)) for name, half in self.halves.items()
        }
        self.history.append({name: (w.copy(), alpha.copy()) for name, (w, alpha) in held.items()})

    def alphas(self, alpha_reader):
        """α of the pooled table, after the last iteration."""
        return alpha_reader(self.federation, self.ids).read()


def distance(judge, run, split, settings):
    """(P(w) − P*)/P* of the released model."""
    problem = judge.problem(settings.loss, split, settings.lam)
    best = judge.optimum(problem)
    assert run.certificate.dual[0] <= best * (1 + 1e-6)
    found = problem.primal(judge.weights(run.trained.model, split)[0])
    assert found == pytest.approx(run.certificate.primal[0], rel=1e-9)
    return found / best - 1


# ── the optimum ───────────────────────────────────────────────────────────────────────────


SMOOTH = ("logistic", "smoothed_hinge", "squared")
ON_ROWS = [(s, loss) for s in ("cocoa", "cocoa+", "sdca") for loss in ("hinge", *SMOOTH)]


@cover(("solver", "loss"), [*ON_ROWS, *(("feddcd", loss) for loss in SMOOTH)], ids=str)
def test_methods_on_rows_reach_the_optimum_and_prove_it(judge, tables, solver, loss):
    table = tables.diabetes(300) if loss == "squared" else tables.breast(300)
    split = SPLITS["rows"](table, parties=1 if solver == "sdca" else 4)
    iterations = 200 if loss == "squared" else 60
    settings = settings_of(solver, loss=loss, lam=1e-3, iterations=iterations)
    run = Run(split, settings)
    bar = 1e-3 if loss == "hinge" else 1e-4
    assert distance(judge, run, split, settings) < bar
    assert run.certificate.gap < bar


@pytest.mark.parametrize("loss", ["logistic", *before_release("squared_hinge")])
def test_feddcd_reaches_the_optimum_while_parties_come_and_go(judge, tables, loss):
    split = SPLITS["rows"](tables.breast(300), parties=6)
    settings = settings_of("feddcd", loss=loss, iterations=100, participation=0.5)
    run = Run(split, settings)
    assert {record.present for record in run.trained.result.history} != {6}
    assert distance(judge, run, split, settings) < 1e-4


def uneven(table, *sizes):
    """Parties with so many samples each."""
    ends = np.cumsum(sizes)
    tiles = {
        f"p{k}": (table.rows(slice(end - size, end)).to_tile(),)
        for k, (size, end) in enumerate(zip(sizes, ends, strict=True))
    }
    return Split(tiles, "mean", "rows", table.task, table.name)


@pytest.mark.parametrize("solver", ["cocoa", "cocoa+", "feddcd"])
def test_parties_may_weigh_the_same_instead_of_samples(judge, tables, solver):
    sizes = (30, 60, 110)
    split = uneven(tables.breast(200), *sizes)
    settings = settings_of(solver, loss="logistic", weigh="parties")
    run = Run(split, settings)
    problem = judge.problem("logistic", split, settings.lam)
    share = np.repeat([1 / (len(sizes) * size) for size in sizes], sizes)

    def objective(w):
        margin = problem.y * (problem.x @ w)
        slopes = -problem.y * expit(-margin) * share
        value = settings.lam / 2 * w @ w + share @ np.logaddexp(0.0, -margin)
        return value, settings.lam * w + problem.x.T @ slopes

    tight = {"ftol": 1e-15, "gtol": 1e-10}
    start = np.zeros(problem.x.shape[1])
    best = scipy.optimize.minimize(objective, start, jac=True, method="L-BFGS-B", options=tight)
    found, _ = objective(judge.weights(run.trained.model, split)[0])
    assert found == pytest.approx(best.fun, rel=1e-6)
    equal, _ = objective(problem.solve())
    assert equal > best.fun * (1 + 1e-5), "the two problems have one solution: this shows nothing"


# ── the iterates ──────────────────────────────────────────────────────────────────────────


def dual_step(loss, alpha, z, y, q, holders):
    """argmax_a −l*(−a)/h − za − q/2 (a − α)², on paper."""
    if loss == "squared":
        return (y / holders - z + q * alpha) / (1 / holders + q)
    return y * np.clip(y * (alpha + (y / holders - z) / q), 0.0, 1.0)


def by_numpy(problem, tiles, iterations, steps, *, sigma=1.0, share=1.0, seed=0):
    """SDCA on every tile (number of the party, rows, columns), α moved by a share of each change.

    Every sample's loss is divided among all tiles that have it.
    """
    n, lam = problem.n, problem.lam
    holders = sum(np.isin(np.arange(n), rows) for _, rows, _ in tiles).astype(float)
    alpha = np.zeros(n)
    for t in range(1, iterations + 1):
        w, change = problem.x.T @ alpha / (lam * n), np.zeros(n)
        for number, rows, columns in tiles:
            a, mine = alpha.copy(), w[columns].copy()
            for i in rows[order_of(seed, t, number, len(rows), steps)]:
                x = problem.x[i, columns]
                q = sigma * (x @ x) / (lam * n)
                before = a[i]
                a[i] = dual_step(problem.loss, a[i], x @ mine, problem.y[i], q, holders[i])
                mine += sigma * (a[i] - before) / (lam * n) * x
            change += a - alpha
        alpha = alpha + share * change
    return alpha


def tiles_of(run, split):
    """Per party: its number, and where its rows and columns lie in the pooled table."""
    table = pool(split)
    row = {sample: i for i, sample in enumerate(table.ids.tolist())}
    column = {name: j for j, name in enumerate(table.features.tolist())}
    found = []
    for name, half in run.halves.items():
        ((tile,), view) = split.parties[name], run.federation.parties[name].view
        rows, columns = np.empty(tile.n, int), np.empty(tile.m, int)
        rows[view.tile_rows[0]] = [row[sample] for sample in tile.ids.tolist()]
        columns[view.tile_columns[0]] = [column[name] for name in tile.features.tolist()]
        found.append((half.view.party, rows, columns))
    return found


@every_pair(solver=["sdca", "cocoa", "cocoa+"], loss=["hinge", "squared"], iic=[0.3, 2.5])
def test_methods_on_rows_are_what_plain_numpy_computes(
    judge, tables, alpha_reader, solver, loss, iic
):
    table = tables.diabetes(60) if loss == "squared" else tables.breast(60)
    parties = 1 if solver == "sdca" else 4
    split = SPLITS["rows"](table, parties=parties)
    settings = settings_of(solver, loss=loss, iterations=8, iic=iic)
    run = Run(split, settings)
    problem = judge.problem(loss, split, settings.lam)
    how = {"sigma": parties} if solver == "cocoa+" else {"share": 1 / parties}
    steps = round(iic * 60 / parties + 0.49)
    expected = by_numpy(problem, tiles_of(run, split), 8, steps, **how)
    assert np.count_nonzero(expected) > 30
    found = run.alphas(alpha_reader)
    # One party rounds nothing; the others' feature sums travel in fixed point.
    assert np.abs(found - expected).max() < (1e-12 if parties == 1 else 1e-8)


@pytest.mark.parametrize("average", ["parties", "holders"])
@pytest.mark.parametrize("loss", ["hinge", "squared"])
def test_d3ca_on_tiles_is_what_plain_numpy_computes(judge, tables, alpha_reader, loss, average):
    table = tables.diabetes(60) if loss == "squared" else tables.breast(60)
    split = SPLITS["grid"](table, k=2, q=3)
    settings = settings_of("d3ca", loss=loss, iterations=6, options={"average": average})
    run = Run(split, settings)
    problem = judge.problem(loss, split, settings.lam)
    share = 1 / 6 if average == "parties" else 1 / 3
    expected = by_numpy(problem, tiles_of(run, split), 6, 10, share=share)
    assert np.abs(run.alphas(alpha_reader) - expected).max() < 1e-8


def test_with_one_party_all_of_them_are_sdca_to_the_bit(tables, alpha_reader):
    split = SPLITS["rows"](tables.breast(80), parties=1)
    runs = [
        Run(split, settings_of(solver, iterations=9, iic=0.4))
        for solver in ("sdca", "cocoa", "cocoa+", "d3ca")
    ]
    first = runs[0].alphas(alpha_reader)
    for run in runs:
        assert np.array_equal(run.alphas(alpha_reader), first)
        assert np.array_equal(run.trained.model.coef, runs[0].trained.model.coef)
        assert run.certificate == runs[0].certificate


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_hyfdca_of_the_paper_with_one_party_and_one_step_is_sdca(tables, loss):
    """On rows of norm one Algorithm 5 takes the exact dual step."""
    split = SPLITS["rows"](tables.pair(3, 8, 60), parties=1)
    how = {"loss": loss, "iic": 1 / 60, "iterations": 150, "certify_every": 1000}
    one = Run(split, settings_of("sdca", **how))
    other = Run(split, settings_of("hyfdca", local="practical", gamma=1, **how))
    assert np.count_nonzero(one.halves["p1"].alpha) > 30
    for mine, theirs in zip(one.history, other.history, strict=True):
        ((w, alpha),), ((v, beta),) = mine.values(), theirs.values()
        assert np.abs(alpha - beta).max() < 1e-12
        assert np.abs(w - v).max() < 1e-9


def test_d3ca_on_rows_is_cocoa(tables):
    split = SPLITS["rows"](tables.breast(100), parties=4)
    runs = [Run(split, settings_of(solver, iterations=20)) for solver in ("cocoa", "d3ca")]
    one, other = (run.trained.model.coef for run in runs)
    assert one == pytest.approx(other, abs=1e-9)


def test_d3ca_on_tiles_ends_beside_the_optimum(judge, tables):
    """No bar: nothing is promised. Each tile takes its own z for that of all."""
    split = SPLITS["grid"](tables.breast(), k=2, q=2)
    settings = settings_of("d3ca", iterations=150)
    run = Run(split, settings)
    assert 1e-5 < distance(judge, run, split, settings) < 1e-2
    assert run.certificate.gap > 1e-3


def feddcd_by_numpy(problem, parts, iterations, step):
    """The paper's Algorithm 1 with everyone, for the squared loss: local problems are linear."""
    k, m = len(parts), problem.x.shape[1]
    y, mean = np.zeros((k, m)), np.zeros(m)
    for _ in range(iterations):
        w = np.empty((k, m))
        for i, rows in enumerate(parts):
            x, labels = problem.x[rows], problem.y[rows]
            hessian = k / problem.n * x.T @ x + problem.lam * np.eye(m)
            w[i] = np.linalg.solve(hessian, k / problem.n * x.T @ labels + y[i])
        mean = w.mean(axis=0)
        y -= step * problem.lam * (w - mean)
    return mean


@pytest.mark.parametrize("step", [1.0, 1.7])
def test_feddcd_is_what_plain_numpy_computes(judge, tables, step):
    split = uneven(tables.diabetes(100), 20, 30, 50)
    settings = settings_of("feddcd", loss="squared", iterations=7, options={"step": step})
    run = Run(split, settings)
    problem = judge.problem("squared", split, settings.lam)
    expected = feddcd_by_numpy(problem, [rows for _, rows, _ in tiles_of(run, split)], 7, step)
    found = judge.weights(run.trained.model, split)[0]
    assert np.abs(found - expected).max() < 1e-8
    assert np.abs(expected - problem.solve()).max() > 1e-5, "converged: this shows little"


@pytest.mark.parametrize("shape", [(30, 8), (8, 30), (100, 40), (40, 100), (0, 5)])
@pytest.mark.parametrize("loss", ["logistic", "smoothed_hinge", "squared_hinge", "huber"])
def test_local_problems_are_solved_to_the_accuracy_asked_for(judge, tables, loss, shape):
    """By the judge's slopes; wide and tall tables, of few cells that are not zero and of all."""
    (n, m), rng = shape, np.random.default_rng(7)
    x = rng.standard_normal(shape) * (rng.random(shape) < (0.1 if n + m > 100 else 1.0))
    y, tilt = rng.choice([-1.0, 1.0], (n, 2)), 0.01 * rng.standard_normal((m, 2))
    weight, lam = 3.0 / max(n, 1), 1e-3
    ours = get_loss(loss, **({"g": 0.5} if loss in ("smoothed_hinge", "huber") else {}))
    problem = LocalProblem(scipy.sparse.csr_array(x), y, ours, weight, lam)
    w = problem.solve(tilt, np.zeros((m, 2)), 1e-9)
    judged = replace(judge.problem("logistic", tables.breast(2), lam), loss=loss, x=x)
    for c in range(2):
        slopes = replace(judged, y=y[:, c]).slopes(x @ w[:, c])
        gradient = weight * x.T @ slopes + lam * w[:, c] - tilt[:, c]
        assert np.linalg.norm(gradient) <= 1e-8 * lam * max(np.linalg.norm(w[:, c]), 1.0)


# ── faults ────────────────────────────────────────────────────────────────────────────────


@every_value(phase=["rounds.local", "rounds.merge"], answered=[True, False])
def test_feddcd_keeps_its_dual_variables_at_sum_zero_when_somebody_falls_silent(
    judge, tables, monkeypatch, phase, answered
):
    """Three times p2 is not heard in a phase, whether or not the request reached it."""
    split = SPLITS["rows"](tables.breast(200), parties=4)
    settings = settings_of("feddcd", loss="logistic", iterations=60)
    opened, calls = Federation._open, []

    def open_(federation, settings):
        channel = opened(federation, settings)
        handler = channel._handlers["p2"]

        def answer(asked, message):
            calls.append(asked.name)
            silent = asked.name == phase and calls.count(phase) in (3, 4, 9)
            reply = handler(asked, message) if answered or not silent else None
            if silent:
                raise ConnectionError("the reply was lost")
            return reply

        channel._handlers["p2"] = answer
        return channel

    monkeypatch.setattr(Federation, "_open", open_)
    run = Run(split, settings)
    assert sum(record.present < 4 for record in run.trained.result.history) >= 2
    total = sum(half._tilt for half in run.halves.values())
    assert max(np.abs(half._tilt).max() for half in run.halves.values()) > 1e-3
    assert np.abs(total).max() < 1e-9
    assert distance(judge, run, split, settings) < 1e-6


# ── guards ────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(("solver", "iic"), [("cocoa", 0.2), ("cocoa+", 0.2), ("d3ca", 0.1)])
def test_guards_let_alpha_change_at_enough_samples_or_at_none(tables, solver, iic):
    """What is held back is forgotten, so that never more change than an iteration draws."""
    cut = {"k": 2, "q": 3} if solver == "d3ca" else {"parties": 3}
    split = SPLITS["grid" if solver == "d3ca" else "rows"](tables.breast(300), **cut)
    terms = Terms(ciphers=("plain",), min_batch=10, allow_pairs=True)
    # Few samples move at a time: of these steps some must be held back.
    run = Run(split, settings_of(solver, lam=1e-3, iic=iic, iterations=60), terms=terms)
    assert run.certificate.primal[0] < 0.5
    held = moved = 0
    drawn = 3 * 5 if solver == "d3ca" else 20
    for before, after in zip(run.history, run.history[1:], strict=False):
        for name, (_, alpha) in after.items():
            view = run.federation.parties[name].view
            changes = np.abs(alpha - before[name][1])[:, 0]
            for some in np.split(changes, view.cohort_start[1:-1]):
                effective = some.sum() ** 2 / max((some**2).sum(), 1e-300)
                assert not some.any() or effective > 10 * (1 - 1e-6)
                assert np.count_nonzero(some) <= drawn
                held += not some.any()
                moved += some.any()
    assert held
    assert moved


# ── what is refused ───────────────────────────────────────────────────────────────────────


def test_what_a_method_cannot_do_is_said_in_one_sentence(tables):
    rows = SPLITS["rows"](tables.breast(60), parties=3)
    tiles = SPLITS["grid"](tables.breast(60), k=2, q=2)
    for split, settings, words in (
        (tiles, settings_of("cocoa"), "needs every party to have all features"),
        (rows, settings_of("sdca"), "needs the whole table at one party"),
        (rows, settings_of("cocoa+", participation=0.5), "needs every party in every iteration"),
        (rows, settings_of("feddcd"), "needs a smooth loss"),
        (rows, settings_of("feddcd", loss="logistic", options={"step": 2.0}), "multiple of λ"),
        (rows, settings_of("feddcd", loss="logistic", options={"accuracy": 0.0}), "above 0"),
        (tiles, settings_of("d3ca", options={"average": "tiles"}), "options of solver 'd3ca'"),
    ):
        with pytest.raises(ConfigError, match=words):
            Federation(split.parties).train(settings)
