"""Faults that were found once, each with the smallest run that showed it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from covering import before_release
from weft.data import SPLITS, Table, Tile, load
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.messages import START, StartRequest
from weft.protocol import LocalChannel
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.hyfdca import data_norms
from weft.solvers.hyfdca.messages import WeightsReply, WeightsRequest
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Checkpointing
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.table_scaling_and_certificate_messages import SIZE


def small_digits(rows: int = 90) -> Table:
    table = load("digits").rows(np.arange(rows))
    longest = np.linalg.norm(table.block, axis=1).max()
    return replace(table, labels=table.labels % 2, block=table.block / longest)


class LosesOneAnswer(LocalChannel):
    """Loses what one party answers to one phase, so many times."""

    def __init__(self, handlers, phase, party, times):
        self.left = times

        def losing(name, call):
            def answer(asked, message):
                reply = call(asked, message)
                if (asked.name, name) == (phase, party) and self.left:
                    self.left -= 1
                    raise ConnectionError("reply lost")
                return reply

            return answer

        super().__init__({name: losing(name, call) for name, call in handlers.items()})


@pytest.mark.parametrize("times", [3, *before_release(1, 40)])
def test_a_lost_answer_to_a_freeze_never_mixes_two_alphas(times):
    """The party must not move on and then answer for the pair with a later α."""
    split = SPLITS["columns"](small_digits(), parties=3)
    a, b, c = split.parties
    settings = Settings(
        lam=0.1,
        gap=None,
        iterations=60,
        certify_every=1,
        participation={"trace": [[a, b], [a, c]]},
    )
    reference = {}
    federation = Federation(split.parties)
    plain = federation.train(settings)
    for record in plain.result.history:
        reference[record.certified_at] = (record.primal, record.dual)

    federation = Federation(split.parties)
    _, roster, adder, _ = federation.assemble(settings)
    handlers = {name: party.on for name, party in federation.parties.items()}
    channel = LosesOneAnswer(handlers, "certify.freeze", a, times)
    unit, label = units_above(channel, adder, SIZE, 2).tolist()
    start = StartRequest(
        settings=settings.to_json(),
        unit=unit,
        label=label,
        smallest_lam=settings.lam,
        offset=0.0,
        weight=1.0,
    )
    channel.ask(START, dict.fromkeys(handlers, start)).insist("start")
    coordinator = algorithm_of("hyfdca").coordinator()
    result = coordinator.run(channel, roster, settings, adder, unit=unit, label=label, classes=1)
    optimum = plain.result.certificate.primal[0]
    seen = [r for r in result.history if r.certified_at is not None]
    assert seen
    for record in seen:
        # No dual value lies above the optimum, and no gap is negative beyond fixed point's grain.
        assert record.dual <= optimum + 1e-9
        assert record.primal >= record.dual - 1e-12
        assert record.gap >= 0.0


def test_a_resumed_run_refuses_cells_or_scaling_that_changed(tmp_path: Path):
    split = SPLITS["grid"](small_digits(), 2, 2)
    settings = Settings(lam=1e-2, gap=None, iterations=8)

    def run(parties, how, resume):
        federation = Federation(parties, how, store=tmp_path)
        return federation.train(settings, checkpointing=Checkpointing(tmp_path, 4, resume))

    run(split.parties, Preprocessing(), False)
    smaller = {
        name: tuple(replace(tile, block=tile.block * 0.1) for tile in held)
        for name, held in split.parties.items()
    }
    for parties, how in (
        (smaller, Preprocessing()),
        (split.parties, Preprocessing(scaling="standard")),
        (split.parties, Preprocessing(unit_rows=True)),
    ):
        with pytest.raises(WeftError, match="not those of the checkpoint"):
            run(parties, how, True)
    run(split.parties, Preprocessing(), True)


def test_what_rounding_adds_up_to_in_feature_sums_is_gone_once_they_are_formed_anew(monkeypatch):
    """As if all of it came at once: in the end, sums are Σ x·α over the party's own cells."""
    monkeypatch.setattr("weft.solvers.hyfdca.party.RESUM_EVERY", 4)
    take = HyfdcaParty._take_weights

    def drifting(half, v):
        take(half, v)
        half.drawn = getattr(half, "drawn", 0) + 1
        if half.drawn == 6:
            half.v += 1e-3

    monkeypatch.setattr(HyfdcaParty, "_take_weights", drifting)
    parties = SPLITS["grid"](small_digits(), 2, 2).parties
    federation = Federation(parties)
    federation.train(Settings(lam=1e-2, gap=None, iterations=10))
    for name, (tile,) in parties.items():
        half = federation.parties[name]._half
        assert half.drawn > 8
        own = tile.block.T @ half.alpha[half.view.tile_rows[0]]
        assert np.abs(own).max() > 1e-2
        np.testing.assert_allclose(half.v[half.view.tile_columns[0]], own, atol=1e-12)


@pytest.mark.parametrize("share", [*before_release(1 / 11, 1 / 37), 1 / 200])
def test_an_omega_far_too_small_is_made_good_and_never_runs_away(monkeypatch, share):
    monkeypatch.setattr(data_norms, "MARGIN", share)
    split = SPLITS["grid"](small_digits(), 2, 2)
    settings = Settings(lam=1e-2, gap=1e-2, iterations=4000, cipher="plain")
    trained = Federation(split.parties).train(settings)
    assert trained.result.certificate.gap <= 1e-2
    doubled = [note for note in trained.result.notes if "doubled" in note]
    assert len(doubled) <= np.log2(1 / share) + 6


def two_columns(scale: float, label: float):
    """Three samples, one feature at either party."""
    ids, block = ["a", "b", "c"], [[scale], [scale / 2], [scale / 5]]
    return {
        name: (Tile.make(ids, [name], block, labels=[label, -label, label]),)
        for name in ("left", "right")
    }


@pytest.mark.parametrize("cipher", ["plain", "pad"])
def test_dual_variables_too_large_to_add_up_are_refused(cipher):
    """Each change fits, but their running total would not: steps too long for the data.

    Which of the two goes too far first depends on the draws.
    """
    settings = Settings(
        lam=1.0, loss="squared", local="practical", gap=None, iterations=200, cipher=cipher
    )
    with pytest.raises(ProtocolError, match="a value of the dual variables lies outside") as caught:
        Federation(two_columns(2.1, 9.0)).train(settings)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cipher", ["plain", *before_release("pad")])
def test_the_range_of_dual_variables_follows_the_largest_label(cipher):
    """Responses of millions were once beyond what could be added up."""
    settings = Settings(
        lam=1e3, loss="squared", local="practical", gap=None, iterations=200, cipher=cipher
    )
    tiles = two_columns(1.0, 9e6)
    trained = Federation(tiles).train(settings)
    assert trained.result.certificate.gap < 1e-12
    x = np.hstack([tiles[name][0].block for name in ("left", "right")])
    y = tiles["left"][0].labels
    ridge = np.linalg.solve(x.T @ x / 3 + 1e3 * np.eye(2), x.T @ y / 3)
    np.testing.assert_allclose(trained.model.coef[0], ridge, rtol=1e-6)


@pytest.mark.parametrize("intercept", [*before_release(False), True])
def test_a_feature_may_be_called_like_the_constant_column(intercept):
    table = small_digits()
    features = table.features.copy()
    features[3] = "(intercept)"
    split = SPLITS["grid"](replace(table, features=features), 2, 2)
    trained = Federation(split.parties, Preprocessing(intercept=intercept)).train(
        Settings(lam=1e-2, gap=0.5, iterations=200, cipher="plain")
    )
    assert sorted(trained.model.features) == sorted(features)
    assert trained.model.coef.shape == (1, table.m)


def test_an_estimate_counts_the_weights_of_parties_without_labels():
    split = SPLITS["columns"](small_digits(), parties=4)
    # A loss is estimated where at least two have labels: a sum of one would be its own.
    tiles = {
        name: held if number < 2 else tuple(replace(tile, labels=None) for tile in held)
        for number, (name, held) in enumerate(split.parties.items())
    }
    settings = Settings(
        lam=0.3,
        gap=None,
        iterations=40,
        certify_every=1,
        participation={"trace": [list(tiles)]},
    )
    history = Federation(tiles).train(settings).result.history
    estimate = next(r for r in reversed(history) if r.loss_estimate is not None)
    assert estimate.loss_estimate == pytest.approx(history[-1].primal, rel=0.02)


def test_theory_looks_at_the_norms_and_not_at_their_bounds():
    split = SPLITS["grid"](small_digits(), 2, 2)
    settings = Settings(lam=1.0, local="theory", norms="cohort", gap=None, iterations=2)
    assert (
        Federation(split.parties, Preprocessing(unit_rows=True)).train(settings).model is not None
    )


def test_vertical_data_with_a_blank_label_are_still_vertical():
    table = small_digits(30)
    labels = table.labels.astype(float)
    split = SPLITS["columns"](replace(table, labels=labels), parties=2)
    first, second = (held[0] for held in split.parties.values())
    blank = second.labels.copy()
    blank[4] = np.nan
    tiles = {"first": (first,), "second": (replace(second, labels=blank),)}
    _, roster, _, _ = Federation(tiles).assemble(Settings(lam=1.0))
    assert roster.vertical


@pytest.mark.parametrize(
    "wrong",
    [
        {"gamma": 3.0, "local": "practical"},
        {"gamma": 0.0, "local": "theory"},
        {"gamma": 0.5},
        {"gap": None, "iterations": None},
    ],
)
def test_settings_that_cannot_work_are_refused_early(wrong):
    with pytest.raises(ConfigError):
        Settings(lam=1.0, **wrong)


def test_zero_and_minus_zero_are_the_same_response():
    ids, block = ["a", "b"], [[1.0], [2.0]]
    tiles = {
        "one": (Tile.make(ids, ["x"], block, labels=[0.0, 1.0]),),
        "two": (Tile.make(ids, ["y"], block, labels=[-0.0, 1.0]),),
    }
    Federation(tiles).train(Settings(lam=1.0, loss="squared", gap=None, iterations=2))


def test_classes_of_mixed_kinds_are_told_apart_by_their_text():
    ids, block = ["a", "b"], [[1.0], [2.0]]
    labels = np.array(["ill", 1], dtype=object)
    trained = Federation({"p": (Tile.make(ids, ["x"], block, labels=labels),)}).train(
        Settings(lam=1.0, gap=None, iterations=2)
    )
    assert trained.model.classes.tolist() == ["1", "ill"]


def test_norms_for_unit_rows_reach_only_the_holder_that_counts_them():
    split = SPLITS["columns"](small_digits(30), parties=2, labels="first")
    trained = Federation(split.parties, Preprocessing(unit_rows=True), record=True).train(
        Settings(lam=1.0, gap=None, iterations=1)
    )
    told = {
        r.party
        for r in trained.channel.transcript
        if r.phase == "scale.longest" and "z" in r.message
    }
    assert told == {next(iter(split.parties))}


def test_norms_of_all_are_told_again_once_the_step_was_repeated(
    simulate, patchwork, quick, monkeypatch
):
    """Not with the step that is taken back, else totals could be chosen among; but after it."""
    simulation = simulate(patchwork(), quick(cipher="plain", iterations=2))
    simulation.go()
    half = simulation.half("north")
    half.settle(half._sequence - 1)
    monkeypatch.setattr("weft.solvers.hyfdca.party.pack_scalars", lambda *told: b"")

    def ask(ack):
        request = WeightsRequest(iteration=3, round=1, ahead=1, ack=ack, every=True)
        half._tell_norms(request, WeightsReply())

    with pytest.raises(ProtocolError, match="takes a step back"):
        ask(half._sequence)
    ask(half._sequence + 1)


@pytest.mark.parametrize("local", ["safe", "practical"])
@pytest.mark.parametrize("ahead", [0, -3])
def test_a_window_of_no_iterations_is_refused(simulate, patchwork, quick, local, ahead):
    """Compiled code would write what is drawn now behind the end of such a window."""
    simulation = simulate(patchwork(), quick(cipher="plain", iterations=1, local=local, iic=0.5))
    simulation.go()
    with pytest.raises(ProtocolError, match="'ahead' is no number of iterations"):
        simulation.half("north").drawing.turn(2, ahead, False)
