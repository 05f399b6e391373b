"""Replays of HyFDCA, FedAvg and HyFEM come to the bits of the library's own runs."""

import numpy as np
import pytest

from weft.data import load
from weft.solvers.hyfdca.coordinator_run_state import Run
from weft.solvers.hyfdca.data_norms import find_omega
from weft_evaluation.assemble_weights_from_parties import Follower
from weft_papers.hyfdca import optima_of_other_readings, run_case
from weft_papers.hyfdca import setting_data as context
from weft_papers.hyfdca.cases import Case, Target
from weft_papers.hyfdca.fedavg_and_hyfem_without_messages import ReplayedAveraging
from weft_papers.hyfdca.hyfdca_without_messages import ReplayedHyfdca
from weft_papers.hyfdca.paper import BASELINES, Options, Setting
from weft_papers.hyfdca.run_case import run

#: Settings where most take part, and where half do, so that many come back after an absence.
FEW, HALF = 2, 4


class _Enough(Exception):
    pass


@pytest.fixture(autouse=True)
def few_digits(monkeypatch):
    """120 digits of 8 × 8 pixels in the place of every data set."""
    table = load("digits")
    rows = [np.arange(120), np.arange(120, 150)]
    parts = [context._divided(context._rows(table, some), 16.0) for some in rows]
    samples = context.Samples(*parts, context._longest(parts[0], context.BIAS))
    monkeypatch.setattr(context, "_samples", lambda name, seed: samples)
    context.setting_data.cache_clear()
    run_case._matched.cache_clear()
    yield
    context.setting_data.cache_clear()
    run_case._matched.cache_clear()


def by_the_library(case, data, iterations):
    """w after some iterations, by messages between coordinator and parties; and ω."""
    federation, found, follower = run_case._federation(data), {}, []

    def follow(record):
        if not follower:
            follower.append(Follower(federation.parties, data.features, bias=False))
        if record.iteration in iterations:
            found[record.iteration] = follower[0].weights().copy()
        if record.iteration == max(iterations):
            raise _Enough

    with pytest.raises(_Enough):
        federation.train(case.settings(data.lam, 10**6, "plain"), progress=follow)
    method = getattr(next(iter(federation.parties.values()))._half, "method", None)
    return found, getattr(method, "_omega", None)


@pytest.mark.parametrize(
    ("data", "number", "method"),
    [
        ("mnist", FEW, "hyfdca"),
        ("mnist", FEW, "fedavg"),
        ("covtype", HALF, "hyfdca"),
        ("covtype", HALF, "safe"),
        ("covtype", HALF, "hyfem"),
        pytest.param("mnist", FEW, "safe", marks=pytest.mark.release),
        pytest.param("mnist", FEW, "unit", marks=pytest.mark.release),
        pytest.param("newsgroups", HALF, "fedavg", marks=pytest.mark.release),
    ],
)
def test_a_replay_has_the_bits_of_the_run(monkeypatch, data, number, method):
    # So that sums taken anew against drift are part of it.
    monkeypatch.setattr("weft.solvers.hyfdca.iterations_without_messages.RESUM_EVERY", 16)
    monkeypatch.setattr("weft.solvers.hyfdca.party.RESUM_EVERY", 16)
    case, iterations = Case(data, number, method), (1, 2, 3, 24)
    unit = method == "unit"
    held = context.setting_data(data, case.setting, unit_rows=unit)
    told, omega = by_the_library(case, held, iterations)
    matched = run_case._matched(data, number, unit, 0)
    seated = matched.seat(case.settings(held.lam, 10**6, "plain"))
    replay = (ReplayedAveraging if method in BASELINES else ReplayedHyfdca)(seated)
    follower = Follower(matched.federation.parties, held.features, bias=False, halves=seated.halves)
    for t in iterations:
        replay.advance(t)
        np.testing.assert_array_equal(follower.weights(), told[t])
    assert np.abs(told[24]).max() > 0
    if method == "safe":
        assert seated.run.omega == omega > 0


def test_omega_doubles_when_it_does_in_the_run(monkeypatch):
    """Far too small a bound lets D fall, which the certificates of frozen pairs show."""
    found = "weft.solvers.hyfdca.coordinator.find_omega"
    monkeypatch.setattr(found, lambda *asked: 1e-4 * find_omega(*asked))
    monkeypatch.setattr(Run, "certify_every", 2)
    monkeypatch.setattr(Setting, "hyfdca", Options(iic=0.5))
    case, iterations = Case("covtype", FEW, "safe"), (1, 40)
    held = context.setting_data("covtype", case.setting)
    told, omega = by_the_library(case, held, iterations)
    matched = run_case._matched("covtype", FEW, False, 0)
    seated = matched.seat(case.settings(held.lam, 10**6, "plain"))
    replay, first = ReplayedHyfdca(seated), seated.run.omega
    replay.advance(40)
    assert seated.halves[0].method._omega == omega >= 4 * first
    parties = matched.federation.parties
    follower = Follower(parties, held.features, bias=False, halves=seated.halves)
    np.testing.assert_array_equal(follower.weights(), told[40])


@pytest.mark.parametrize("method", ["safe", "fedavg"])
def test_an_interrupted_replay_goes_on_to_the_same_points(tmp_path, monkeypatch, method):
    monkeypatch.setattr(Case, "save_every", 10)
    case, target = Case("covtype", HALF, method), Target(25, 0.0)
    whole = run(case, target)

    def interrupt(iteration, length):
        if iteration > 1.2 * case.save_every:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(case, target, folder=tmp_path / "unfinished", progress=interrupt)
    seen = []
    again = run(
        case, target, folder=tmp_path / "unfinished", progress=lambda i, length: seen.append(i)
    )
    assert min(seen) > case.save_every
    assert again.iterations == whole.iterations
    assert again.losses == whole.losses
    assert again.accuracies == whole.accuracies


def test_central_training_that_is_cut_short_ends_above_the_optimum():
    data = context.setting_data("covtype", Case("covtype", FEW, "hyfdca").setting)
    optimum = optima_of_other_readings._solved(data, data.problem)
    short, long = (optima_of_other_readings._ascended(data, steps) for steps in (400, 40_000))
    assert optimum["loss"] < long["loss"] < short["loss"]
