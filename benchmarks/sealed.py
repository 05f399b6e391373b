"""What sealed training costs, beside L-BFGS on plain sums, scikit-learn's optimum and SPU.

Every case is trained sealed and, in the same run, by ``lbfgs`` with cipher ``plain``, which hides
nothing; ``--only`` selects by a part of a case's name. Of each: what is certified, the true gap
(scikit-learn on the pooled table is the judge), round trips from matching to the model, bytes, and
seconds of the processor from the first phase of training to the last, masking of tables included.
Whatever no party spent is the dealer's, who is the coordinator.

The error of a gradient is the largest of its entries' errors: shares of the run's last gradient are
added up here, where all parties are in one hand, and held against the pooled table.

The last case is also held against a plain gradient of the slowest party's own columns, and two
against SecretFlow's SPU (SEMI2K): one gradient of it times as many as the case took, against all of
our training, with all parties in one process. SPU is installed in an environment of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit

from harness import Report
from harness.optima import primal, signs, with_constant
from harness.processor_clock import ProcessorClock
from harness.spu_peer import peer_gradient, peer_python
from weft.data import SPLITS, Split, Table, pool
from weft.federation.local_federation import Federation, Trained
from weft.federation.preprocessing_settings import Preprocessing
from weft.protocol import Channel
from weft.protocol.field_visibility import Form
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.wide_ring import numbers_of, plus

Floats = NDArray[np.float64]

GAP, MOST_TRIPS = 1e-3, 130
MB = 1e6
#: Share of P* by which a lower bound may lie above what scikit-learn finds.
ROUNDING = 1e-8
#: Phases of one gradient.
GRADIENT = tuple(f"sealed.{n}" for n in ("point", "scores", "slopes", "vector", "products"))
TRAINING = ("sealed.", "subspace.")


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def made(block: Floats, labels: NDArray[Any], name: str) -> Table:
    """A table with standard columns."""
    spread = block.std(axis=0)
    scaled = (block - block.mean(axis=0))[:, spread > 0] / spread[spread > 0]
    ids = np.arange(len(block)).astype(str).astype(object)
    features = np.array([f"x{j:03d}" for j in range(scaled.shape[1])], dtype=object)
    block = np.ascontiguousarray(scaled)
    return Table(ids, features, block, labels, task="classification", name=name)


def breast(smoke: bool) -> Table:
    from sklearn.datasets import load_breast_cancer

    block, labels = load_breast_cancer(return_X_y=True)
    return made(block[:60] if smoke else block, labels[:60] if smoke else labels, "breast")


def digits(smoke: bool) -> Table:
    from sklearn.datasets import load_digits

    block, labels = load_digits(n_class=3 if smoke else 10, return_X_y=True)
    return made(block[:90] if smoke else block, labels[:90] if smoke else labels, "digits")


def credit(smoke: bool) -> Table:
    """Limits, six months of delays, bills and payments, age and kinds: amounts have long tails."""
    count, random = 300 if smoke else 30_000, np.random.default_rng(5)
    wealth, trouble = random.standard_normal((2, count))

    def six(month: Callable[[], Floats]) -> Floats:
        return np.stack([month() for _ in range(6)], axis=1)

    def some(size: float) -> Floats:
        return size * random.standard_normal(count)

    limit = np.exp(0.7 * wealth + some(0.5))
    late = six(lambda: np.clip(np.round(1.2 * trouble - 0.4 * wealth + some(1) - 0.8), -2, 6))
    bills = six(lambda: limit * np.clip(0.5 + 0.25 * trouble + some(0.3), -0.1, 1.5))
    paid = six(lambda: np.exp(0.6 * wealth - 0.4 * trouble + some(1.1)))
    age = np.clip(35 + some(9), 21, 79)
    kinds = np.stack([random.random(count) < share for share in (0.6, 0.35, 0.45, 0.12)], axis=1)
    scores = -1.6 + 0.55 * late[:, 0] + 0.2 * late[:, 1] - 0.25 * np.log(limit)
    labels = random.random(count) < expit(scores - 0.15 * np.log(paid[:, 0]))
    block = np.column_stack([limit, late, bills, paid, age, kinds.astype(float)])
    return made(block, labels.astype(int), "credit")


def normal(smoke: bool) -> Table:
    rows, columns = (200, 9) if smoke else (100_000, 330)
    random = np.random.default_rng(1)
    block = random.standard_normal((rows, columns))
    scores = block @ random.standard_normal(columns) * 2 / np.sqrt(columns)
    return made(block, (random.random(rows) < expit(scores)).astype(int), "normal")


@dataclass(frozen=True)
class Case:
    """A table, how it is cut, and what it is held against besides L-BFGS."""

    name: str
    table: Callable[[bool], Table]
    cut: Callable[[Table], Split]
    lam: float
    plain: bool = False
    peer: bool = False


def by_columns(parties: int) -> Callable[[Table], Split]:
    return lambda table: SPLITS["columns"](table, parties=parties)


def by_grid(k: int, q: int) -> Callable[[Table], Split]:
    return lambda table: SPLITS["grid"](table, k=k, q=q)


CASES = (
    Case("breast cancer, 2 by columns", breast, by_columns(2), 1e-2),
    Case("breast cancer, 3 by columns", breast, by_columns(3), 1e-2),
    Case("breast cancer, 2×2", breast, by_grid(2, 2), 1e-2),
    Case("credit 30,000 × 24, 3 by columns", credit, by_columns(3), 1e-3, peer=True),
    Case("digits, ten classes, 3×3", digits, by_grid(3, 3), 1e-2),
    Case("100,000 × 330, 2 by columns", normal, by_columns(2), 1e-3, plain=True, peer=True),
)


# ── training ──────────────────────────────────────────────────────────────────────────────────


@dataclass(frozen=True)
class Run:
    """A trained model, what it took, and how many gradients."""

    federation: Federation
    trained: Trained
    clock: ProcessorClock
    gradients: int

    @property
    def dealer(self) -> float:
        """The coordinator's seconds from the first phase of training on."""
        return self.clock.spent.coordinating(*TRAINING)

    @property
    def slowest(self) -> float:
        return self.clock.spent.slowest(*TRAINING)

    def dealer_pace(self) -> float:
        """By gradient after the first, without what comes once, and with points tried again."""
        return self.clock.spent.coordinating_pace(*GRADIENT) / (self.gradients - 1)

    def slowest_pace(self) -> float:
        return self.clock.spent.slowest_pace(*GRADIENT) / (self.gradients - 1)


def train(split: Split, lam: float, solver: str, cipher: str) -> Run:
    """From matching to the model."""
    federation = Federation(split.parties, Preprocessing(intercept=True, overlap=split.overlap))
    clocks: list[ProcessorClock] = []

    def through(channel: Channel) -> Channel:
        clocks.append(ProcessorClock(channel))
        return clocks[0]

    settings = Settings(
        lam=lam, loss="logistic", solver=solver, cipher=cipher, gap=GAP, round_trips=4 * MOST_TRIPS
    )
    trained = federation.train(settings, through=through)
    # The first, at w = 0, is one more.
    return Run(federation, trained, clocks[0], len(trained.result.history) + 1)


def gradient_error(federation: Federation) -> float:
    """The largest error of an entry of the last gradient, from all parties' shares of it."""
    halves: list[Any] = [party._half for party in federation.parties.values()]
    table, vectors = halves[0]._whole, [half._vectors[-1] for half in halves]
    problem = int(vectors[0].problems[0])
    block = np.zeros((table.n_rows, table.n_columns))
    labels, point = np.zeros(table.n_rows), np.zeros(table.n_columns, np.uint64)
    total = np.zeros((table.n_columns, 2), np.uint64)
    for half, vector in zip(halves, vectors, strict=True):
        context, place = half._context, half._place
        block[np.ix_(place.rows, place.columns)] += context.table.dense()
        counted = np.flatnonzero(context.view.counted_rows)
        labels[place.rows[counted]] = context.labels[counted, problem]
        total = plus(total, vector.share(half._first)[0])
        point += half._points[-1][1][0]
    weights = point.view(np.int64) * 2.0**-28
    slopes = np.where(labels == 0, 0.0, expit(block @ weights) - (labels > 0))
    unit = 2.0 ** -halves[0]._widths.vector
    found = np.array([number * unit for number in numbers_of(total)])
    return float(np.abs(found - block.T @ slopes).max() / np.count_nonzero(labels))


def best_weights(block: Floats, labels: Floats, lam: float) -> Floats:
    """scikit-learn's on the pooled table, class by class."""
    from sklearn.linear_model import LogisticRegression

    columns = []
    for y in labels.T:
        model = LogisticRegression(
            C=1.0 / (lam * len(y)),
            fit_intercept=False,
            solver="newton-cholesky",
            tol=1e-10,
            max_iter=200,
        )
        columns.append(model.fit(block, y).coef_[0])
    return np.stack(columns, axis=1)


# ── rows ──────────────────────────────────────────────────────────────────────────────────────


def judge(report: Report, case: Case, run: Run, table: Table) -> None:
    """What is certified, and what is true."""
    certificate, classes = run.trained.result.certificate, run.trained.model.classes
    assert certificate is not None
    assert classes is not None
    report.add(f"{case.name}: certified", certificate.gap, "relative gap", bar=GAP)
    block, labels = with_constant(table.block), signs(table, classes)
    model = run.trained.model
    assert model.features.tolist() == table.features.tolist()
    w = np.vstack([model.coef.T, model.intercept[None, :]])
    best = np.array(
        primal(block, labels, "logistic", case.lam, best_weights(block, labels, case.lam))
    )
    own = np.array(primal(block, labels, "logistic", case.lam, w))
    true, dual = float(((own - best) / own).max()), np.array(certificate.dual)
    report.add(f"{case.name}: true gap", true, "relative gap", bar=certificate.gap)
    report.add(
        f"{case.name}: D above P*", float(((dual - best) / best).max()), "of P*", bar=ROUNDING
    )
    report.add(
        f"{case.name}: error of a gradient", gradient_error(run.federation), "largest", bar=1e-5
    )


def costs(report: Report, case: Case, run: Run, plain: Run) -> None:
    name, spent = case.name, run.clock.spent
    trips = run.clock.meter.round_trips
    report.add(f"{name}: gradients", run.gradients, "", anchor=plain.gradients)
    report.add(
        f"{name}: round trips", trips, "", anchor=plain.clock.meter.round_trips, bar=MOST_TRIPS
    )
    count = run.gradients
    dealt = sum(spent.down[phase, Form.DEALT] for phase in GRADIENT)
    report.add(f"{name}: dealt a gradient", dealt / MB / count, "MB")
    # The first slopes are opened without a point.
    opened = sum(spent.up[phase, Form.MASKED] for phase in (*GRADIENT, "sealed.first"))
    each = opened / MB / count / len(spent.parties)
    report.add(f"{name}: opened a gradient, by each party", each, "MB")
    tables = spent.up["sealed.tables", Form.MASKED] / MB
    report.add(f"{name}: masked tables, once", tables, "MB")
    report.add(f"{name}: bytes", spent.bytes / MB, "MB", anchor=plain.clock.spent.bytes / MB)
    report.add(f"{name}: dealer", run.dealer, "s", anchor=plain.dealer)
    report.add(f"{name}: slowest party", run.slowest, "s", anchor=plain.slowest)
    report.add(f"{name}: dealer a gradient", run.dealer_pace(), "s")
    report.add(
        f"{name}: slowest party a gradient",
        run.slowest_pace(),
        "s",
        anchor=plain.slowest / plain.gradients,
    )


def plain_gradient(block: Floats) -> float:
    """Seconds of Xw, its sigmoid and Xᵀα, several times, the median."""
    random = np.random.default_rng(0)
    w, y = random.standard_normal(block.shape[1]), random.random(len(block))
    found = []
    for _ in range(9):
        began = process_time()
        block.T @ (expit(block @ w) - y)
        found.append(process_time() - began)
    return median(found)


def beside_plain(report: Report, case: Case, run: Run, split: Split) -> None:
    """Over a plain gradient of the largest tile, which is the slowest party's own."""
    blocks = [np.asarray(tile.block) for _, tile in split.tiles()]
    one = plain_gradient(max(blocks, key=lambda block: block.size))
    report.add(f"{case.name}: plain gradient of one party's columns", one, "s")
    for who, pace, bar in (
        ("slowest party", run.slowest_pace(), 6.0),
        ("dealer", run.dealer_pace(), 8.0),
    ):
        report.add(f"{case.name}: {who} a gradient over plain", pace / one, "×", bar=bar)


def beside_peer(report: Report, case: Case, run: Run, table: Table, parties: int) -> None:
    names = [f"{case.name}: {n}" for n in ("training over SPU", "SPU's error of a gradient")]
    python = None if report.smoke else peer_python()
    if python is None:
        for name in names:
            report.lacks(name, "SPU")
        return
    model = run.trained.model
    assert model.classes is not None
    block = with_constant(table.block)
    labels = (signs(table, model.classes)[:, 0] > 0).astype(float)
    weights = np.append(model.coef[0], model.intercept[0])
    theirs = peer_gradient(python, block, labels, weights, parties)
    report.add(f"{case.name}: SPU a gradient, all parties", theirs.seconds, "s")
    faster = theirs.seconds * run.gradients / run.clock.spent.total(*TRAINING)
    report.add(names[0], faster, "× faster", bar=20.0, better="higher")
    report.add(names[1], theirs.error, "largest")


def compile_both(case: Case) -> None:
    """On a tiny table."""
    split = case.cut(case.table(True))
    for solver, cipher in (("sealed", "pad"), ("lbfgs", "plain")):
        train(split, 1e-1, solver, cipher)


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Sealed training", "plain L-BFGS", arguments)
    # The others run the same code on a tiny table.
    cases = (CASES[2], CASES[-1]) if report.smoke else CASES
    for case in cases:
        if not report.wants(case.name):
            continue
        table = case.table(report.smoke)
        split = case.cut(table)
        pooled = pool(split)
        if not report.smoke:
            compile_both(case)
        run = train(split, case.lam, "sealed", "pad")
        print(f"{case.name}: {run.trained.result.stopped}", flush=True)
        for note in run.trained.result.notes:
            print(f"  {note}", flush=True)
        judge(report, case, run, pooled)
        costs(report, case, run, train(split, case.lam, "lbfgs", "plain"))
        if case.plain:
            beside_plain(report, case, run, split)
        if case.peer:
            beside_peer(report, case, run, pooled, len(split.parties))
    report.close()


if __name__ == "__main__":
    main()
