"""Smoothing, axes and comparisons of the HyFDCA experiments, from curves made by hand."""

import math
import shutil
import tomllib
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft_papers.hyfdca
from weft_papers.hyfdca.analysis import (
    MODES,
    SERIES,
    Findings,
    count,
    ends,
    relative_iterations,
    relative_times,
    smoothed,
)
from weft_papers.hyfdca.cases import SCALES, TITLES, Case, Plan, Shares, Target
from weft_papers.hyfdca.equal_time_rules import ends_of, timed_end
from weft_papers.hyfdca.evaluation_points import End, Points
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.paper import WALL_SECONDS, data_sets
from weft_papers.hyfdca.results_folder import ResultsFolder
from weft_papers.hyfdca.results_page import to_markdown
from weft_papers.hyfdca.run_case import Curve

ONE = Costs(
    compute=0.1, encryption=0.02, coordinator=0.03, wall=1.0, round_trips=4, bytes=1e3, counted=9
)


def curve(losses, accuracies, stride=10, **more):
    iterations = [stride * (i + 1) for i in range(len(losses))]
    return Curve(
        length=iterations[-1],
        iterations=iterations,
        losses=list(losses),
        accuracies=list(accuracies),
        costs=ONE,
        **more,
    )


# ── the paper ─────────────────────────────────────────────────────────────────────────────────


def test_the_nine_settings_are_those_of_the_paper():
    counts = {name: [s.count for s in paper.settings] for name, paper in data_sets().items()}
    assert counts["mnist"] == [5] * 3 + [500] * 3 + [5000] * 3
    assert counts["newsgroups"] == counts["covtype"] == [9] * 3 + [25] * 3 + [144] * 3
    for paper in data_sets().values():
        assert [s.fraction for s in paper.settings] == [0.1, 0.5, 0.9] * 3
        few, middle, many = paper.compared
        assert few.count < middle.count < many.count
        assert (few.fraction, middle.fraction, many.fraction) == (0.9, 0.5, 0.1)


def test_the_file_of_the_paper_has_its_hyper_parameters_to_the_last_digit():
    """Some cells of Tables 2, 3, 4 and 8, typed a second time."""
    path = Path(weft_papers.hyfdca.__file__).with_name("paper.toml")
    told = tomllib.loads(path.read_text())
    mnist, news, covtype = (told[name]["settings"] for name in ("mnist", "newsgroups", "covtype"))
    assert mnist[5]["hyfdca"] == {"iic": 0.08337}
    assert mnist[6]["fedavg"] == {"iic": 1.618, "a": 0.003995, "b": 0.8498}
    assert news[6]["hyfem"] == {"iic": 0.03, "a": 3.792, "b": 0.1815, "mu": 1.0}
    assert covtype[4]["hyfem"] == {"iic": 0.00004909, "a": 1.913, "b": 4.679, "mu": 0.6115}
    assert covtype[8]["seconds"] == [0.5341, 5.453, 0.031, 0.007782]
    assert math.isnan(news[7]["seconds"][2])


def test_settings_carry_what_the_paper_says():
    fedavg = Case("mnist", 4, "fedavg").settings(1e-3, 7)
    assert (fedavg.solver, fedavg.iic, fedavg.participation) == ("fedavg", 0.06561, 0.5)
    assert fedavg.options == {"a": 0.04185, "b": 0.00004166}
    practical = Case("mnist", 4, "hyfdca").settings(1e-3, 7)
    assert (practical.local, practical.iic) == ("practical", 0.002252)
    assert Case("mnist", 4, "safe").settings(1e-3, 7).local == "safe"
    assert Case("mnist", 4, "auto").settings(1e-3, 7).participation == "everyone"


# ── curves ────────────────────────────────────────────────────────────────────────────────────


@given(
    st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=30),
    st.integers(1, 12),
    st.integers(1, 80),
)
def test_smoothing_is_a_mean_over_the_last_iterations(values, stride, window):
    t = stride * np.arange(1.0, len(values) + 1)
    found = smoothed(t, np.array(values), window)
    for place, at in enumerate(t):
        near = [v for v, i in zip(values, t, strict=True) if at - window < i <= at]
        assert found[place] == pytest.approx(np.mean(near), abs=1e-9)


def test_the_axes_are_those_of_equations_14_and_15(tmp_path):
    t = np.array([20.0, 295.0, 2500.0])
    np.testing.assert_allclose(relative_iterations(t, 2500, 50), [0.0, 0.1, 1.0])
    plan = Plan.named("full", ["mnist"])
    results = ResultsFolder(tmp_path)
    for method, length in (("hyfdca", 3), ("fedavg", 6)):
        results.keep_curve(Case("mnist", 2, method), curve([1.0] * length, [0.5] * length))
    # Not one of the three that (14) speaks of.
    results.keep_curve(Case("mnist", 2, "safe"), curve([1.0] * 9, [0.5] * 9))
    results.keep_central("mnist", 0, {"loss": 0.5, "accuracy": 0.9, "how": "", "classes": 10})
    findings = Findings(plan, results)
    methods = ("hyfdca", "fedavg", "safe")
    lines = [findings.line(Case("mnist", 2, method), "time") for method in methods]
    short, long, _ = relative_times(lines)
    np.testing.assert_allclose(long, np.arange(1, 7) / 6)
    np.testing.assert_allclose(short, np.arange(1, 4) / 6)


def test_huge_losses_leave_no_trace_in_later_means():
    t = np.arange(1.0, 6.0)
    for huge in (1e20, math.inf):
        found = smoothed(t, np.array([huge, 1.0, 1.0, 1.0, 1.0]), 2)
        np.testing.assert_array_equal(found[2:], [1.0, 1.0, 1.0])


def test_ends_are_means_over_the_window_or_lie_between_neighbours():
    t, loss = np.array([10.0, 20.0, 28.0, 30.0, 50.0]), np.array([5.0, 4.0, 3.0, 2.0, 0.0])
    values = {"loss": loss}
    assert ends(t, values, 30, 5) == {"loss": 2.5}
    # Nothing was evaluated there.
    assert ends(t, values, 40, 5) == {"loss": 1.0}
    # It does not go there, or not near enough.
    assert ends(t, values, 100, 5) is None
    assert ends(t, values, 5, 5) is None
    assert ends(t, values, 51, 5) == {"loss": 0.0}
    # It ended where it should.
    assert ends(t, values, 100, 5, early=True) == {"loss": 0.0}


@given(st.lists(st.integers(10, 50_000), min_size=1, max_size=4))
def test_points_lead_to_all_ends_with_some_in_their_windows(lengths):
    wanted = [End(length, max(1, length // 50)) for length in lengths]
    points = Points(wanted)
    seen, now = [], 0
    while now < points.length:
        following = points.after(now)
        assert following > now
        seen.append(now := following)
    assert seen[-1] == points.length
    for end, window in wanted:
        within = [i for i in seen if end - window < i <= end]
        assert len(within) >= min(window, 5)
        assert end in within
    assert len(seen) <= len(wanted) * (31 + 8)


# ── equal time ────────────────────────────────────────────────────────────────────────────────


def test_equal_time_has_three_rules():
    """The paper's own count of iterations leaves no time for latency."""
    case, target = Case("covtype", 6, "hyfem"), Target(30_000, WALL_SECONDS, 300, most=10**6)
    assert timed_end(case, target, "paper", None).iterations == 12_274_122
    assert timed_end(case, target, "computing", None) is None
    assert timed_end(case, target, "computing", ONE).iterations == 108_000
    assert timed_end(case, target, "time", ONE).iterations == int(WALL_SECONDS / 1.18)
    # What takes more iterations than any run has is left out.
    assert [end.iterations for end in ends_of(case, target, ONE)] == [30_000, 108_000, 9_152]
    assert timed_end(Case("covtype", 6, "auto"), target, "paper", None) is None
    assert timed_end(case, Target(30_000, 0.0, 300), "paper", None) is None


def test_modelled_seconds_are_computing_encryption_and_round_trips():
    assert ONE.seconds(0.0) == pytest.approx(0.15)
    assert ONE.seconds(0.8) == pytest.approx(0.15 + 3.2)


# ── comparisons ───────────────────────────────────────────────────────────────────────────────


PLAN = Plan(dict.fromkeys(data_sets(), Shares(0.1, 0.1, 0.0)))


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """All runs of the comparisons: ours are better but on MNIST, where HyFEM is more accurate."""
    folder = tmp_path_factory.mktemp("archive")
    plan, results = PLAN, ResultsFolder(folder)
    for case in plan.cases():
        loss, accuracy = {"fedavg": (2.0, 0.7), "hyfem": (3.0, 0.8)}.get(case.method, (1.0, 0.9))
        if case.method == "hyfem" and case.data == "mnist":
            accuracy = 0.95
        points, at = Points([*ends_of(case, plan.target(case), ONE)]), [0]
        while at[-1] < points.length:
            at.append(points.after(at[-1]))
        count_ = len(at) - 1
        made = curve([loss] * count_, [accuracy] * count_)
        made.iterations, made.length = at[1:], at[-1]
        results.keep_curve(case, made)
    for data in plan.data:
        found = {"loss": 0.5, "accuracy": 0.9, "how": "liblinear", "classes": 1}
        results.keep_central(data, 0, found)
    return folder


@pytest.fixture
def findings(archive, tmp_path):
    shutil.copytree(archive, tmp_path, dirs_exist_ok=True)
    return Findings(PLAN, ResultsFolder(tmp_path))


def test_there_are_36_comparisons_of_each_kind_and_losses_are_told(findings):
    for method in SERIES:
        found = list(findings.comparisons(method))
        assert len(found) == 4 * 36
        assert [count(found, mode) for mode in MODES] == [(33, 36)] * 4
        behind = [c for c in found if not c.ahead]
        assert {(c.case.data, c.against, c.measure) for c in behind} == {
            ("mnist", "hyfem", "accuracy")
        }


def test_equal_is_not_ahead_and_diverged_is_behind(findings, tmp_path):
    results = ResultsFolder(tmp_path)
    case = Case("covtype", 2, "fedavg")
    same = results.curve(Case("covtype", 2, "hyfdca"))
    results.keep_curve(case, same)
    findings = Findings(findings.plan, results)
    some = [c for c in findings.comparisons("hyfdca") if c.case == Case("covtype", 2, "hyfdca")]
    assert [c.ahead for c in some if c.against == "fedavg"] == [False] * 8
    gone = curve([0.6, 1e9], [0.9, 0.9], ended=True, diverged="the weights grew without end")
    gone.length = 20
    results.keep_curve(case, gone)
    findings = Findings(findings.plan, results)
    some = [c for c in findings.comparisons("hyfdca") if c.case == Case("covtype", 2, "hyfdca")]
    assert [c.ahead for c in some if c.against == "fedavg"] == [True] * 8


def test_a_longer_run_is_cut_off_where_the_experiment_ends(findings):
    plan = findings.plan
    for case in plan.cases():
        equal = findings.line(case, "iterations").iterations
        assert equal[-1] <= plan.target(case).iterations
        for mode in ("computing", "time"):
            assert findings.line(case, mode).seconds[-1] <= 0.1 * WALL_SECONDS


def test_runs_that_go_elsewhere_are_not_compared(findings, tmp_path):
    """A short run of ours says nothing about a long one of theirs, nor the reverse."""
    results, case = ResultsFolder(tmp_path), Case("covtype", 2, "fedavg")
    for other in (curve([0.1], [0.9], stride=10), curve([0.1], [0.9], stride=10**7)):
        results.keep_curve(case, other)
        found = Findings(findings.plan, results).comparisons("hyfdca")
        some = [c for c in found if c.case == Case("covtype", 2, "hyfdca")]
        assert {c.against for c in some} == {"hyfem"}


def test_equal_time_is_compared_as_far_as_both_runs_go(findings, tmp_path):
    results, case = ResultsFolder(tmp_path), Case("covtype", 2, "fedavg")
    # 2,160 iterations at the paper's 0.05638 s: about a ninth of a tenth of its 10,800 s.
    results.keep_curve(case, curve([0.1] * 216, [0.9] * 216))
    found = Findings(findings.plan, results).comparisons("hyfdca")
    some = {
        c.mode: c.share
        for c in found
        if (c.case.number, c.against) == (2, "fedavg") and c.case.data == "covtype"
    }
    assert some["paper"] == pytest.approx(2161 * 0.05638 / 1080)
    assert some["computing"] == pytest.approx(2161 * 0.1 / 1080)
    assert some["time"] == 1.0


def test_without_seconds_nothing_is_compared_by_time(findings, tmp_path):
    plan = Plan(dict.fromkeys(data_sets(), Shares(0.1, 0.0, 0.0)))
    found = list(Findings(plan, ResultsFolder(tmp_path)).comparisons("safe"))
    assert [count(found, mode) for mode in MODES] == [(33, 36), (0, 0), (0, 0), (0, 0)]


def test_rows_of_norm_one_are_run_once(findings):
    news = findings.case("newsgroups", 2, "unit")
    assert news not in findings.plan.cases()
    assert findings.stand_in(news).method == "hyfdca"
    mnist = findings.case("mnist", 2, "unit")
    assert findings.stand_in(mnist) == mnist


def test_the_page_has_other_readings_of_the_problem(findings, tmp_path):
    results = ResultsFolder(tmp_path)
    found = {"loss": 0.0731, "accuracy": 0.9, "how": "dual ascent"}
    results.keep_candidate("mnist", "cut short", found)
    page = to_markdown(Findings(findings.plan, results), command="", about=[], note="")
    assert "| MNIST | cut short | 0.0731 | 90.0% | dual ascent | 0.07242 |" in page


def test_the_page_says_what_was_found(findings):
    page = to_markdown(findings, command="weft reproduce hyfdca", about=["x"], note="Shortened.")
    assert "| HyFDCA, in the paper | 36 of 36 | 33 of 36 | – | – |" in page
    assert "| HyFDCA safe |" + " **33 of 36** |" * 4 in page
    assert "12,274,122" in page
    assert page.count("| MNIST | 5 parties, 0.9 | HyFEM | iterations | accuracy |") == 3
    for number in (5, 6, 7, 8):
        assert f"## Table {number}:" in page
    assert "(for News20)" in page


def test_shares_of_the_paper_are_in_order():
    shares = [share.iterations for share in SCALES.values()]
    assert shares == sorted(shares)
    assert len(Plan.named("full").cases()) == 27 + 9 * (len(TITLES) - 1) - 3 - 2
