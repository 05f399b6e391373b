"""A party stays away: the run waits, then stops with what is proved, or goes on uncertified."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

import numpy as np
import pytest

from covering import cover
from weft.data import SPLITS, pool
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Trained
from weft.protocol import LocalChannel
from weft.solvers.hyfdca.coordinator import HyfdcaCoordinator
from weft.solvers.run_settings import Settings

LAM = 1e-3
GONE = "r2c2"
#: Round trips after which the party dies: in each phase of an iteration at least once.
ROUNDS = range(24, 30)
SOLVERS = [("cutting-planes", "hinge"), ("lbfgs", "logistic"), ("newton-cg", "logistic")]


class Handed(Exception):
    """The sums have been handed over."""


@contextmanager
def death_of(party: str, after: int) -> Iterator[None]:
    """The party answers nothing any more once the channel has made so many round trips."""
    exchange = LocalChannel.exchange

    def dead(*_: object) -> None:
        raise RuntimeError("gone")

    def watched(channel, requests):
        if channel.meter.round_trips >= after:
            channel._handlers[party] = dead
        return exchange(channel, requests)

    with patch.object(LocalChannel, "exchange", watched):
        yield


def train(split, solver, loss, *, cipher="plain", **settings) -> tuple[Federation, Trained]:
    federation = Federation(split.parties)
    chosen = Settings(
        lam=LAM, loss=loss, solver=solver, patience=0.0, cipher=cipher, gap=1e-9, **settings
    )
    return federation, federation.train(chosen)


# Each phase of an iteration is lost in the test of the sums below.
@cover(
    ("solver", "loss", "after"),
    [(*solver, 24 + 2 * number) for number, solver in enumerate(SOLVERS)],
    others=[(*s, after) for s in SOLVERS for after in ROUNDS],
)
def test_the_run_stops_with_a_certificate_that_holds(solver, loss, after, tables, judge):
    split = SPLITS["grid"](tables.digits(200), k=3, q=2)
    # A Newton step takes many products.
    with death_of(GONE, after + 60 * (solver == "newton-cg")):
        _, trained = train(split, solver, loss)
    result = trained.result
    assert GONE in result.stopped
    assert result.gone == (GONE,)
    problem = judge.problem(loss, split, LAM)
    (primal,), (dual,) = result.certificate.primal, result.certificate.dual
    best = judge.optimum(problem)
    assert dual <= best * (1 + 1e-9)
    assert best <= primal * (1 + 1e-9)
    # Others hold all features of the one that is gone: the model is the certified one.
    w = judge.weights(trained.model, split)[0]
    assert problem.primal(w) == pytest.approx(primal, rel=1e-9)


def test_features_that_only_the_missing_party_holds_are_not_in_the_model(tables):
    split = SPLITS["grid"](tables.digits(200), k=1, q=4)
    gone = next(iter(split.parties))
    with death_of(gone, 24):
        _, trained = train(split, "cutting-planes", "hinge")
    lost = {name for tile in split.parties[gone] for name in tile.features}
    assert lost
    assert not lost & set(trained.model.features)
    assert trained.result.certificate is None
    assert any("lacks" in note and gone in note for note in trained.result.notes)


@cover(
    ("solver", "loss", "cipher"),
    [(*SOLVERS[1], "pad")],
    others=[(*s, cipher) for s in SOLVERS for cipher in ("pad", "plain")],
)
def test_hyfdca_goes_on_from_there_and_says_that_nothing_is_certified(solver, loss, cipher, tables):
    split = SPLITS["grid"](tables.digits(200), k=3, q=2)
    with death_of(GONE, 26 + 60 * (solver == "newton-cg")):
        _, trained = train(split, solver, loss, cipher=cipher, when_missing="hyfdca", iterations=30)
    result = trained.result
    assert result.certificate is None
    assert trained.model.certificate == {}
    assert any("without it, uncertified" in note for note in result.notes)
    estimates = [r.loss_estimate for r in result.history if r.loss_estimate is not None]
    assert len(estimates) > 8
    assert estimates[-1] <= estimates[0] * (1 + 1e-6)


@cover(("solver", "loss", "after"), [(*s, after) for s in SOLVERS[:2] for after in ROUNDS])
def test_the_sums_at_the_hand_over_are_still_those_of_everyone(solver, loss, after, tables, judge):
    """Whoever speaks for a cohort adds what the missing party had put into its sums."""
    split = SPLITS["grid"](tables.digits(200), k=3, q=2)
    seen = []

    def stop_there(_, run, *__):
        seen.append(run)
        raise Handed

    federation = Federation(split.parties)
    settings = Settings(
        lam=LAM,
        loss=loss,
        solver=solver,
        patience=0.0,
        cipher="plain",
        gap=1e-9,
        when_missing="hyfdca",
    )
    with (
        death_of(GONE, after),
        patch.object(HyfdcaCoordinator, "go_on", stop_there),
        pytest.raises(Handed),
    ):
        federation.train(settings)
    (run,) = seen
    problem = judge.problem(loss, split, LAM)
    pooled = pool(split)
    place = {sample: i for i, sample in enumerate(pooled.ids.tolist())}
    column = {name: j for j, name in enumerate(pooled.features.tolist())}
    alpha = np.zeros(problem.n)
    here = {n: p for n, p in federation.parties.items() if n != GONE}
    for party in here.values():
        rows = [place[sample] for sample in party.data.tiles[0].ids.tolist()]
        alpha[rows] = party._half.fallbacks.newest.half.alpha[party.view.tile_rows[0], 0]
    w = problem.weights(alpha)
    assert np.abs(w).max() > 0.1
    z = problem.x @ w
    for name, party in here.items():
        half, tile = party._half.fallbacks.newest.half, party.data.tiles[0]
        columns = [column[feature] for feature in tile.features.tolist()]
        assert half.w[party.view.tile_columns[0], 0] == pytest.approx(w[columns], abs=1e-9)
        v_total = run.v.store.words.view(np.int64)[run.v.layout.own[name]]
        assert v_total[:, 0] * half.v_sum._format.unit / LAM == pytest.approx(
            half.w[: party.view.n_shared_columns, 0], abs=1e-7
        )
        rows = [place[sample] for sample in tile.ids.tolist()]
        z_total = np.zeros(party.view.n_rows)
        z_total[: party.view.n_shared_rows] = (
            run.z.store.words.view(np.int64)[run.z.layout.own[name]][:, 0] * half.z_sum._format.unit
        )
        assert z_total[party.view.tile_rows[0]] == pytest.approx(z[rows], abs=1e-7)


def test_a_party_that_is_missing_from_the_start_is_named(tables):
    split = SPLITS["grid"](tables.digits(200), k=2, q=2)
    with death_of("r1c1", 9), pytest.raises(ProtocolError, match="r1c1"):
        train(split, "lbfgs", "logistic")
