"""Vertical FedSGD and FedBCD: central gradient descent, cut by columns, with labels anywhere."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from scipy.special import expit

from covering import before_release, every_value
from weft.data import SPLITS, Tile, pool
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.run_settings import Settings
from weft.solvers.shared_sample_draws import cohort_draws
from weft.solvers.solver_interfaces_and_results import Checkpointing

LAM = 0.02
labels_at = pytest.mark.parametrize("labels", ["all", "first"])


def settings_of(solver="fedsgd", **changes):
    how = {"loss": "logistic", "lam": LAM, "gap": None, "iterations": 20, "cipher": "plain"}
    return Settings(solver=solver, **{**how, **changes})


def split_of(table, labels="all", parties=3):
    return SPLITS["columns"](table, parties=parties, labels=labels)


def train(split, settings, **options):
    keys = {"progress", "checkpointing"} & options.keys()
    call = {key: options.pop(key) for key in keys}
    return Federation(split.parties, Preprocessing(), **options).train(settings, **call)


@pytest.fixture(scope="module")
def breast(tables):
    return tables.breast(80)


# ── the optimum ───────────────────────────────────────────────────────────────────────────


@every_value(
    labels=["all", "first"], solver=["fedsgd", "fedbcd"], loss=["logistic", "squared_hinge"]
)
def test_all_samples_in_a_batch_lead_to_the_optimum(breast, judge, solver, loss, labels):
    split = split_of(breast, labels)
    trained = train(split, settings_of(solver, loss=loss, iterations=900, gap=1e-5))
    problem = judge.problem(loss, split, LAM)
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert reached == pytest.approx(judge.optimum(problem), rel=1e-5)
    assert "certified gap" in trained.result.stopped


def test_regression_comes_to_the_closed_form(tables, judge):
    split = split_of(tables.diabetes(80))
    trained = train(split, settings_of(loss="squared", iterations=900, gap=1e-5))
    problem = judge.problem("squared", split, LAM)
    reached = problem.primal(judge.weights(trained.model, split)[0])
    assert reached == pytest.approx(judge.optimum(problem), rel=1e-5)


def halves(table):
    """Three parties with all rows: two have the labels of one half each, the third has none."""
    n = len(table.ids)
    rows = (np.arange(n // 2), np.arange(n // 2, n))
    parties = {}
    for k, columns in enumerate(np.array_split(np.arange(len(table.features)), 3)):
        parties[f"p{k}"] = tuple(
            Tile.make(
                table.ids[part],
                table.features[columns],
                table.block[np.ix_(part, columns)],
                table.labels[part] if half == k else None,
            )
            for half, part in enumerate(rows)
        )
    return replace(split_of(table), parties=parties)


@pytest.mark.parametrize("solver", ["fedbcd", *before_release("fedsgd")])
def test_labels_may_be_at_one_party_for_some_samples_and_at_another_for_others(
    breast, judge, solver
):
    split = halves(breast)
    trained = train(split, settings_of(solver, iterations=900, gap=1e-5))
    problem = judge.problem("logistic", breast, LAM)
    reached = problem.primal(judge.weights(trained.model, breast)[0])
    assert reached == pytest.approx(judge.optimum(problem), rel=1e-5)
    # Batches are drawn from both halves alike, so that means over them are unbiased.
    drawn = train(split, settings_of(solver, iterations=200, options={"batch": 21}))
    reached = problem.primal(judge.weights(drawn.model, breast)[0])
    assert reached == pytest.approx(judge.optimum(problem), rel=1e-2)


def test_minibatches_come_close_for_a_loss_with_a_kink(breast, judge):
    split = split_of(breast)
    settings = settings_of(loss="hinge", iterations=300, options={"batch": 20, "rate": 2.0})
    problem = judge.problem("hinge", split, LAM)
    reached = problem.primal(judge.weights(train(split, settings).model, split)[0])
    assert reached == pytest.approx(judge.optimum(problem), rel=0.02)


def test_the_automatic_rate_is_below_one_over_the_curvature_of_the_pooled_table(tables, judge):
    for table in (tables.breast(80), tables.digits(100)):
        split = split_of(table, parties=4)
        federation = Federation(split.parties, Preprocessing())
        federation.train(settings_of(iterations=1))
        x = judge.problem("logistic", split, LAM).x
        curvature = 0.25 * np.linalg.norm(x, 2) ** 2 / len(x) + LAM
        rates = {party._half._rate for party in federation.parties.values()}
        assert len(rates) == 1
        assert 0.05 / curvature < rates.pop() <= 1.0 / curvature


# ── the same as in one place ──────────────────────────────────────────────────────────────


def reference(federation, split, judge, *, rate, steps=1, mu=0.0, batch=None, iterations=20):
    """FedBCD-p of the paper on the pooled table, with blocks of columns side by side.

    A block whose party has no labels keeps the slopes as they were at the exchange.
    """
    problem = judge.problem("logistic", split, LAM)
    x, y, n = problem.x, problem.y, problem.n
    place = {name: i for i, name in enumerate(_features(split))}
    blocks = []
    for tiles in split.parties.values():
        columns = [place[name] for name in tiles[0].features.tolist()]
        blocks.append((columns, tiles[0].labels is not None))
    row_of = _rows(federation, split)
    w = np.zeros(x.shape[1])
    for t in range(1, iterations + 1):
        rows = np.arange(n)
        eta = rate
        if batch is not None:
            drawn = cohort_draws(0, t, np.array([[0, 0, n, batch]]))
            rows, eta = row_of[drawn], rate / np.sqrt(t)
        z = x[rows] @ w
        new = w.copy()
        for columns, labelled in blocks:
            own, start = w[columns], w[columns]
            block = x[np.ix_(rows, columns)]
            for _ in range(steps):
                here = z + block @ (own - start) if labelled else z
                slopes = -y[rows] * expit(-y[rows] * here)
                gradient = LAM * own + block.T @ slopes / len(rows) + mu * (own - start)
                own = own - eta * gradient
            new[columns] = own
        w = new
    return w


def _features(split):
    return pool(split).features.tolist()


def _rows(federation, split):
    """Per slot of the one cohort, the row of the pooled table."""
    place = {sample: i for i, sample in enumerate(pool(split).ids.tolist())}
    party = next(iter(federation.parties.values()))
    tile = next(iter(split.parties.values()))[0]
    rows = np.empty(len(place), int)
    rows[party.view.tile_rows[0]] = [place[sample] for sample in tile.ids.tolist()]
    return rows


@labels_at
@pytest.mark.parametrize(
    ("solver", "options"),
    [
        ("fedsgd", {"rate": 3.0}),
        ("fedsgd", {"rate": 3.0, "batch": 17}),
        ("fedbcd", {"rate": 2.0, "local_steps": 4}),
        ("fedbcd", {"rate": 2.0, "local_steps": 3, "mu": 0.3, "batch": 17}),
    ],
    ids=str,
)
def test_steps_are_those_of_the_paper_in_one_place(breast, judge, solver, options, labels):
    split = split_of(breast, labels)
    federation = Federation(split.parties, Preprocessing())
    trained = federation.train(settings_of(solver, options=options))
    w = reference(
        federation,
        split,
        judge,
        rate=options["rate"],
        steps=options.get("local_steps", 1),
        mu=options.get("mu", 0.0),
        batch=options.get("batch"),
    )
    assert np.abs(w).max() > 0.1
    np.testing.assert_allclose(judge.weights(trained.model, split)[0], w, atol=1e-9)


@labels_at
def test_one_local_step_is_fedsgd_to_the_bit(breast, labels):
    split = split_of(breast, labels)
    for options in ({}, {"batch": 17}):
        one = train(split, settings_of("fedsgd", options=options))
        other = train(split, settings_of("fedbcd", options={**options, "local_steps": 1}))
        assert np.array_equal(one.model.coef, other.model.coef)
        assert one.result.certificate == other.result.certificate


def test_several_classes_are_trained_side_by_side(tables, judge):
    table = tables.digits(90)
    three = np.arange(90) % 3
    split = split_of(type(table)(table.ids, table.features, table.block, three, table.task))
    both = train(split, settings_of(options={"batch": 30}))
    for number in range(3):
        single = np.where(three == number, 1, -1)
        alone = split_of(type(table)(table.ids, table.features, table.block, single, table.task))
        found = train(alone, settings_of(options={"batch": 30}))
        mine = judge.weights(both.model, split)[number]
        np.testing.assert_allclose(mine, judge.weights(found.model, alone)[0], atol=1e-12)


# ── what travels ──────────────────────────────────────────────────────────────────────────

BATCHES = {"fedsgd": {"batch": 17}, "fedbcd": {"batch": 17, "local_steps": 3}}


@every_value(labels=["all", "first"], solver=BATCHES)
def test_ciphers_change_no_bit_of_minibatches(breast, solver, labels):
    split = split_of(breast, labels)
    runs = [
        train(split, settings_of(solver, options=BATCHES[solver], iterations=8, cipher=cipher))
        for cipher in ("plain", "pad", "bfv")
    ]
    for other in runs[1:]:
        assert np.array_equal(runs[0].model.coef, other.model.coef)
        assert runs[0].result.certificate == other.result.certificate


class PowerCutError(Exception):
    """Not one of Weft's own errors."""


@labels_at
def test_minibatches_of_a_resumed_run_are_the_same(breast, tmp_path, labels):
    split, options = split_of(breast, labels), BATCHES["fedbcd"]
    settings = settings_of("fedbcd", options=options, iterations=12, cipher="pad", certify_every=5)
    whole = train(split, settings)

    def cut_off(record):
        if record.iteration == 7:
            raise PowerCutError

    first = Checkpointing(tmp_path, 3)
    with pytest.raises(PowerCutError):
        train(split, settings, store=tmp_path, checkpointing=first, progress=cut_off)
    again = train(split, settings, store=tmp_path, checkpointing=replace(first, resume=True))
    assert np.array_equal(whole.model.coef, again.model.coef)
    assert whole.result.certificate == again.result.certificate


@pytest.mark.parametrize(("labels", "trips"), [("all", 1), ("first", 2)])
def test_an_iteration_takes_one_round_trip_and_two_where_labels_are_missing(breast, labels, trips):
    history = train(split_of(breast, labels), settings_of(iterations=9)).result.history
    assert history[7].round_trips - history[0].round_trips == 7 * trips


def test_z_of_a_batch_goes_to_label_holders_only_and_slopes_of_a_batch_to_the_others(breast):
    split = split_of(breast, "first")
    settings = settings_of(options={"batch": 17}, cipher="pad", iterations=5, certify_every=5)
    transcript = train(split, settings, record=True).channel.transcript
    holder = next(name for name, tiles in split.parties.items() if tiles[0].labels is not None)
    steps = [e for e in transcript if e.phase in ("rounds.merge", "rounds.local")]
    assert {e.party for e in steps if "z" in e.message} == {holder}
    assert {e.party for e in steps if "delta" in e.message} == set(split.parties)
    for entry in steps[len(split.parties) :]:
        for kind in {"z", "delta"} & entry.message.keys():
            # A block of all eighty samples has eight bytes for each.
            assert len(entry.message[kind]) < 80 * 8


# ── refusals ──────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("solver", "options", "says"),
    [
        ("fedsgd", {"batch": 0}, "batch is 0"),
        ("fedsgd", {"rate": -1.0}, "rate is -1"),
        ("fedsgd", {"local_steps": 2}, "it knows batch, rate, decay"),
        ("fedbcd", {"local_steps": 0}, "local_steps is 0"),
        ("fedbcd", {"mu": -0.5}, r"mu is -0\.5"),
    ],
)
def test_options_that_make_no_sense_are_refused(breast, solver, options, says):
    with pytest.raises(ConfigError, match=says):
        train(split_of(breast), settings_of(solver, options=options))


def test_a_table_cut_by_rows_is_refused(breast):
    with pytest.raises(ConfigError, match="'fedsgd' needs every party to have all samples"):
        train(SPLITS["rows"](breast, parties=3), settings_of())


def test_steps_that_run_away_are_stopped_with_a_sentence(breast):
    settings = settings_of(loss="squared_hinge", iterations=500, options={"rate": 1000.0})
    with pytest.raises(ProtocolError, match="weights grow without end under solver 'fedsgd'"):
        train(split_of(breast), settings)
