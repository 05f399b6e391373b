"""The certificate tells the truth, computed again on the pooled table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from covering import before_release, cover
from weft.data import SPLITS, Split, pool
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.messages import ReleaseRequest
from weft.federation.training_data import INTERCEPT
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record

LAM = 1e-2


def frozen_weights(federation: Federation, features: Any, iteration: int) -> np.ndarray:
    """w of the pair frozen at an iteration, as the parties keep it, in the order of features."""
    place = {name: j for j, name in enumerate(features.tolist())}
    w = np.full(len(features), np.nan)
    for party in federation.parties.values():
        released = party.training.slice_of_model(ReleaseRequest(model=iteration, everything=False))
        assert INTERCEPT not in released.names
        for name, value in zip(released.names, released.weights[:, 0], strict=True):
            w[place[name]] = value
    assert not np.isnan(w).any()
    return w


@cover(
    ("loss", "local", "iic", "labels"),
    [
        (*case, labels)
        for case in [
            ("hinge", "safe", 1.0),
            ("hinge", "safe", 0.1),
            ("logistic", "safe", 0.1),
            ("hinge", "theory", 1.0),
            ("hinge", "practical", 0.02),
        ]
        for labels in ("all", "first")
    ],
)
def test_with_everyone_present_every_iteration_is_certified_exactly(
    judge: Any, tables: Any, alpha_reader: Any, loss: str, local: str, iic: float, labels: str
) -> None:
    split = SPLITS["grid"](tables.digits(200), 2, 2, labels=labels)
    problem = judge.problem(loss, split, LAM)
    ids = pool(split).ids
    federation = Federation(split.parties)
    expected = {0: np.zeros(problem.n)}
    records: list[Record] = []

    def look(record: Record) -> None:
        expected[record.iteration] = alpha_reader(federation, ids).read()
        records.append(record)

    settings = Settings(
        cipher="plain",
        lam=LAM,
        loss=loss,
        local=local,
        iic=iic,
        gap=None,
        iterations=15,
        certify_every=1,
    )
    trained = federation.train(settings, progress=look)
    records.append(trained.result.history[-1])
    assert [r.certified_at for r in records] == [*range(15), 15]
    for record in records:
        alpha = expected[record.certified_at]
        primal, dual = problem.primal(problem.weights(alpha)), problem.dual(alpha)
        assert record.primal == pytest.approx(primal, abs=1e-8)
        assert record.dual == pytest.approx(dual, abs=1e-8)
        assert record.gap == pytest.approx((primal - dual) / primal, abs=1e-8)


# All steps meet both shares of parties, and each of both meets labels everywhere and at some.
@cover(
    ("local", "iic", "participation", "labels"),
    [
        ("safe", 0.1, 0.4, "all"),
        ("practical", 0.02, 0.4, "first"),
    ],
    others=[
        ("theory", 1.0, 0.4, "first"),
        ("practical", 0.02, 0.4, "all"),
        ("safe", 1.0, 0.1, "all"),
        ("safe", 1.0, 0.4, "first"),
        ("safe", 0.1, 0.1, "first"),
        ("theory", 1.0, 0.1, "all"),
        ("practical", 0.02, 0.1, "first"),
    ],
)
def test_with_parties_away_the_certificate_is_that_of_a_frozen_pair(
    judge: Any,
    tables: Any,
    alpha_reader: Any,
    local: str,
    iic: float,
    participation: float,
    labels: str,
) -> None:
    iterations = 600 if participation == 0.1 else 110
    split = SPLITS["grid"](tables.digits(200), 3, 3, labels=labels)
    problem = judge.problem("hinge", split, LAM)
    best = judge.optimum(problem, exact=True)
    table = pool(split)
    federation = Federation(split.parties)
    pairs: dict[int, tuple[float, float]] = {}

    def look(record: Record) -> None:
        at = record.certified_at
        if at is None:
            return
        if at not in pairs:
            alpha = alpha_reader(federation, table.ids).read(frozen=True)
            w = frozen_weights(federation, table.features, at)
            np.testing.assert_allclose(w, problem.weights(alpha), atol=1e-8)
            pairs[at] = (problem.primal(w), problem.dual(alpha))
        primal, dual = pairs[at]
        assert at < record.iteration
        assert record.primal == pytest.approx(primal, abs=1e-8)
        assert record.dual == pytest.approx(dual, abs=1e-8)
        assert record.primal - record.dual >= primal - best - 1e-9

    settings = Settings(
        cipher="plain",
        lam=LAM,
        loss="hinge",
        local=local,
        iic=iic,
        gap=None,
        iterations=iterations,
        certify_every=1,
        participation=participation,
    )
    trained = federation.train(settings, progress=look)
    assert len(pairs) >= 4
    certificate = trained.result.certificate
    released = problem.primal(judge.weights(trained.model, split)[0])
    assert certificate is not None
    assert certificate.iteration == iterations
    assert certificate.primal[0] == pytest.approx(released, abs=1e-8)
    assert certificate.primal[0] - certificate.dual[0] >= released - best - 1e-9


@pytest.mark.parametrize("target", [0.3, *before_release(0.1)])
def test_an_estimate_below_the_target_does_not_stop_a_run(tables: Any, target: float) -> None:
    split: Split = SPLITS["grid"](tables.digits(300), 3, 3)
    settings = Settings(
        cipher="plain",
        lam=LAM,
        loss="hinge",
        iic=0.1,
        gap=target,
        iterations=5000,
        certify_every=1,
        participation=0.25,
    )
    result = Federation(split.parties, Preprocessing()).train(settings).result
    tempting = [
        r for r in result.history[:-1] if r.gap_estimate is not None and r.gap_estimate <= target
    ]
    assert tempting, "no estimate fell below the target; this run proves nothing"
    assert all(r.gap is None or r.gap > target for r in result.history[:-1])
    assert result.history[-1].gap <= target
    assert result.stopped.startswith("certified gap")


def test_the_model_released_is_the_one_that_was_certified(judge: Any, tables: Any) -> None:
    split = SPLITS["grid"](tables.digits(200), 3, 2)
    settings = Settings(
        cipher="plain", lam=LAM, loss="hinge", iic=0.5, gap=0.1, certify_every=1, participation=0.3
    )
    trained = Federation(split.parties).train(settings)
    problem = judge.problem("hinge", split, LAM)
    released = problem.primal(judge.weights(trained.model, split)[0])
    assert trained.model.certificate["primal"][0] == pytest.approx(released, abs=1e-8)
    assert trained.result.certificate.iteration < trained.result.history[-1].iteration
