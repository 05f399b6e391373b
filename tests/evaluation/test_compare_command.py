"""Comparisons: fair, judged from outside, whole or not there at all."""

import json
import sys
from unittest.mock import Mock

import msgspec
import numpy as np
import pandas as pd
import pytest
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler
from sklearn.svm import LinearSVC, LinearSVR

from covering import cover
from weft import Tile
from weft.errors import ConfigError
from weft.federation.local_federation import Preprocessing
from weft.losses import LOSSES, get_loss
from weft.privacy.agreement import Consent
from weft.report.comparison_plot import _apart
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.fedavg_fedprox_hyfem import FedavgCoordinator
from weft.solvers.run_settings import Settings
from weft_evaluation import reference_optimum as judging
from weft_evaluation.algorithm_comparison import Arena
from weft_evaluation.choose_compared_algorithms import Entry, settings_for
from weft_evaluation.comparison_results import Comparison
from weft_evaluation.pooled_table_in_training_units import hold_out
from weft_evaluation.reference_optimum import Problem, score, solve, weights_of


def arena_of(tiles, settings, preprocessing=None, **more):
    how = preprocessing or Preprocessing(intercept=True, scaling="standard", unit_rows=True)
    return Arena(tiles, how, settings, consents={n: Consent.open(n) for n in tiles}, **more)


def rows_of(patchwork, classes=2):
    """The patchwork's west, which has all columns, cut into two parties by rows."""
    (west,) = patchwork(classes=classes, unlabelled=())["west"]
    return {"a": (west.rows(slice(0, 7)),), "b": (west.rows(slice(7, 12)),)}


def table_width(text):
    """Of the table in what was printed, with all names in it."""
    lines = text.splitlines()
    table = lines[2 : next(i for i, line in enumerate(lines) if line.startswith("above P*"))]
    assert any(line.startswith(" cutting-planes ") for line in table)
    return max(map(len, table))


@pytest.fixture
def no_plot(monkeypatch):
    """As where matplotlib is not installed: drawing takes most of the time."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


QUICK = ("--round-trips", "70", "--cipher", "plain")


# ── the command ───────────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("rough_pictures")
def test_algorithms_stand_side_by_side_with_the_judge(weft, hospitals, tmp_path, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    config = hospitals.write()
    outcome = weft("compare", config, *QUICK, "--out", "c", "--test-share", "0.3")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    assert table_width(outcome.out) <= 80
    folder = tmp_path / "c"
    assert {path.name for path in folder.iterdir()} == {
        *("comparison.csv", "histories.csv", "comparison.png"),
        *("summary.json", "config.toml", "report.html"),
    }
    assert (folder / "comparison.png").read_bytes()[:4] == b"\x89PNG"
    summary = json.loads((folder / "summary.json").read_text())
    ran = {row["algorithm"]: row for row in summary["results"]}
    fits = {n for n, a in ALGORITHMS.items() if a.cut != "rows" and a.losses != "smooth"}
    assert fits == {name for name, row in ran.items() if row["kind"] != "baseline"}
    # Whatever is left out has a reason of its own, on a line of its own.
    assert set(summary["left_out"]) == set(ALGORITHMS) - fits
    for name in summary["left_out"]:
        assert f"- {name} left out: " in outcome.out
    assert "'hinge' has a kink" in summary["left_out"]["lbfgs"]
    distances = [r["distance"] for r in summary["results"] if r["distance"] is not None]
    assert distances == sorted(distances)
    assert ran["central"]["distance"] == 0.0
    for row in ran.values():
        if row["gap"] is not None:
            # What the runs prove is true, and the judge sees what they see.
            assert -1e-6 <= row["distance"] <= row["gap"] / (1 - row["gap"]) + 1e-6
    assert {name for name in ran if name.startswith("alone")} >= {"alone, mean of 2"}
    assert 0 < summary["test_samples"] < 40
    assert set(ran["hyfdca"]["test"]) == {"accuracy"}
    histories = pd.read_csv(folder / "histories.csv")
    assert set(histories["algorithm"]) == fits
    assert (histories["round_trips"] <= 80).all()
    # A simulation shows nobody anything.
    assert not (hospitals.folder / "ledger").exists()


@pytest.mark.usefixtures("no_plot")
def test_one_json_object_and_what_single_algorithms_are_told(weft, hospitals):
    hospitals.change("[privacy]", "[compare.fedavg]\na = 0.5\nb = 2\n\n[privacy]")
    hospitals.change("gap = 1e-2", 'gap = 1e-2\nname = "fedavg"\niic = 0.9\noptions = {steps = 2}')
    config = hospitals.write()
    chosen = "fedavg,auto,cutting-planes,hyfdca"
    told = ("--set", "fedavg.a=0.25", "--set", "hyfdca.local=practical", "--set", "hyfdca.iic=0.5")
    outcome = weft("compare", config, *QUICK, "--algorithms", chosen, *told, "--json")
    found = json.loads(outcome.out)
    ran = {row["algorithm"]: row for row in found["results"]}
    assert set(ran) == {"central", "fedavg", "cutting-planes", "hyfdca"}
    assert ran["fedavg"]["options"] == {"steps": 2, "a": 0.25, "b": 2}
    assert ran["hyfdca"]["options"] == {}
    assert found["left_out"] == {}
    assert found["folder"] == "results/two-hospitals-comparison"


@pytest.mark.usefixtures("no_plot")
def test_what_fails_gets_a_sentence_and_the_others_go_on(weft, hospitals, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    config = hospitals.write()
    told = ("--set", "fedavg.a=1e200", "--out", "c")
    outcome = weft("compare", config, *QUICK, "--algorithms", "fedavg,lbfgs,cutting-planes", *told)
    assert outcome.code == 0, outcome.err
    assert table_width(outcome.out) <= 140
    words = " ".join(outcome.out.split())
    assert "- fedavg failed: " in words
    assert "- no comparison plot: matplotlib is not installed" in words
    assert "- lbfgs failed: solver 'lbfgs' needs a smooth loss" in words
    row = next(line for line in outcome.out.splitlines() if line.startswith(" cutting-planes"))
    assert "failed" not in row
    assert "%" in row


@pytest.mark.usefixtures("no_plot")
def test_modelled_seconds_limit_a_run(weft, hospitals):
    """At ten seconds a round trip, computing does not matter; and one λ of several is chosen."""
    hospitals.change("lambda = 1e-2", "lambda = [1e-1, 1e-2]")
    hospitals.change("gap = 1e-2", "gap = 1e-2\nfolds = 2")
    config = hospitals.write()
    limits = ("--seconds", "600", "--latency", "10", "--gap", "0", "--cipher", "plain")
    chosen = ("--algorithms", "fedavg,sdca", "--lambda", "0.05")
    told = json.loads(weft("compare", config, *limits, *chosen, "--json").out)
    assert (told["settings"]["lam"], told["settings"]["path"]) == (0.05, [])
    found = {row["algorithm"]: row for row in told["results"]}
    assert found["fedavg"]["stopped"] == "600 modelled seconds"
    # The certificate of the last model comes on top.
    assert 600 <= found["fedavg"]["modelled_seconds"]["10"] <= 600 + 10 * 4
    # With everything at one party nothing travels, and nothing is waited for.
    assert found["sdca"]["round_trips"] == 0
    assert found["sdca"]["iterations"] > 60


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithms", "hyfdca,fedvag"], ["'fedvag' (the closest is 'fedavg')"]),
        (["--algorithms", ","], ["names none"]),
        (["--algorithms", "lbfgs,newton-cg"], ["no algorithm fits", "smooth loss"]),
        (["--set", "fedavg.rate=1"], ["--set [fedavg] has no key 'rate'"]),
        (["--set", "fedavg.b=fast"], ["[fedavg]", "b: ", "a number"]),
        (["--set", "fedavg.a=-1"], ["a above 0"]),
        (["--set", "hyfdca.local=save"], ["'save' is unknown (the closest is 'safe')"]),
        (["--set", "fedavg"], ["NAME.OPTION=VALUE"]),
        (["--set", "fedvag.a=1"], ["the closest is 'fedavg'"]),
        (["--algorithms", "hyfdca", "--set", "fedavg.a=1"], ["'fedavg', which this comparison"]),
        (
            ["--algorithms", "disco", "--set", "disco.precondition=first"],
            ["no algorithm fits", "smooth loss"],
        ),
        (["--cipher", "rot13"], ["rot13"]),
        (["--test-share", "1.5"], ["--test-share is 1.5"]),
        (["--round-trips", "0"], ["round_trips is 0"]),
        (["--latency", "-1"], ["latency is -1"]),
        (["--lambda", "0"], ["lambda = 0"]),
        (["--out", "hospitals"], ["hospitals exists and is not empty"]),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(weft, hospitals, tmp_path, arguments, words):
    config = hospitals.write()
    before = sorted(tmp_path.rglob("*"))
    outcome = weft("compare", config, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[compare.fedvag]\na = 1", "unknown solver 'fedvag' (the closest is 'fedavg')"),
        ("[compare.fedavg]\nrate = 1", "[compare.fedavg] has no key 'rate'"),
        ("[compare.fedavg]\nlocal = 'safe'", "[compare.fedavg] has no key 'local'"),
        ("[compare]\nfedavg = 1", "[compare.fedavg] must be a table"),
    ],
)
def test_a_config_that_tells_nonsense_is_refused(weft, hospitals, section, words):
    hospitals.change("[privacy]", f"{section}\n\n[privacy]")
    outcome = weft("compare", hospitals.write())
    assert outcome.code == 2
    assert outcome.err.startswith("weft: config.toml: ")
    assert words in outcome.err


def test_several_lambdas_need_a_choice(weft, hospitals):
    hospitals.change("lambda = 1e-2", "lambda = [1e-1, 1e-2]")
    hospitals.change("gap = 1e-2", "gap = 1e-2\nfolds = 2")
    refused = weft("compare", hospitals.write())
    assert refused.code == 2
    assert "choose one with --lambda" in refused.err


# ── the judge ─────────────────────────────────────────────────────────────────────────────────


@cover(
    ("loss", "classes"),
    [("hinge", 3), ("squared_hinge", 2)],
    others=[("hinge", 2), ("logistic", 3)],
)
def test_the_judge_and_a_converged_run_agree(patchwork, loss, classes):
    """With scaling, a constant column, overlapping cells, cells nobody has, labels lacking."""
    settings = Settings(lam=0.05, loss=loss, gap=1e-7, iterations=300, solver="auto")
    arena = arena_of(patchwork(classes=classes), settings)
    name = "lbfgs" if loss != "hinge" else "cutting-planes"
    found = arena.run(Entry(name, msgspec.structs.replace(settings, solver=name)))
    assert not found.failure
    assert found.primal == pytest.approx(arena.optimum.primal, rel=1e-6)
    # What the run has measured of its own model is what the judge measures.
    assert found.primal == pytest.approx(found.history[-1].primal, rel=1e-7)


def test_parties_may_weigh_the_same(patchwork):
    settings = Settings(
        lam=0.05, loss="logistic", weigh="parties", gap=None, iterations=200, solver="fedavg"
    )
    told = {"gradient": "full"}
    arena = arena_of(rows_of(patchwork), settings)
    found = arena.run(Entry("fedavg", settings_for("fedavg", settings, told)))
    assert found.primal == pytest.approx(found.history[-1].primal, rel=1e-7)
    assert found.primal == pytest.approx(arena.optimum.primal, rel=1e-3)
    assert len(set(arena.train.weights.tolist())) == 2


def test_the_pooled_table_is_the_one_that_scikit_learn_would_scale(patchwork):
    tiles = rows_of(patchwork)
    settings = Settings(lam=0.1, loss="logistic", solver="lbfgs", gap=1e-9)
    arena = arena_of(tiles, settings, Preprocessing(scaling="standard"))
    x = StandardScaler().fit_transform(np.vstack([t.block for (t,) in tiles.values()]))
    y = np.concatenate([t.labels for (t,) in tiles.values()])
    order = np.lexsort(x.T)
    mine = arena.train.block[np.lexsort(arena.train.block.T)]
    np.testing.assert_allclose(mine, x[order], atol=1e-6)
    model = LogisticRegression(C=1 / (0.1 * len(y)), fit_intercept=False, tol=1e-10).fit(x, y)
    np.testing.assert_allclose(arena.optimum.w[:, 0], model.coef_[0], atol=1e-4)
    found = arena.run(Entry("lbfgs", settings))
    assert found.train["accuracy"] == model.score(x, y)


@pytest.mark.parametrize("name", [name for name in LOSSES if get_loss(name).bounded])
def test_no_small_step_improves_on_the_judge(name):
    rng = np.random.default_rng(3)
    loss = get_loss(name)
    x = rng.normal(size=(60, 5))
    y = x @ rng.normal(size=(5, 2)) + rng.normal(size=(60, 2))
    if loss.task == "classification":
        y = np.where(y > 0, 1.0, -1.0)
        y[:, 1] = -1.0  # nobody is of that class
    if loss.joint:
        y = np.where(y[:, :1] > 0, [[1.0, -1.0]], [[-1.0, 1.0]])
    p = rng.random(60)
    problem = Problem(x, y, p / p.sum(), loss, 0.1)
    found = solve(problem)
    steps = rng.normal(size=(200, 5, 2)) * 10.0 ** -rng.integers(1, 5, (200, 1, 1))
    assert min(problem.primal(found.w + step) for step in steps) >= found.primal * (1 - 1e-7)


def test_a_judge_that_does_not_converge_gives_way(patchwork, monkeypatch):
    monkeypatch.setattr(judging, "_PASSES", (1, 1))
    settings = Settings(lam=1e-3, gap=1e-2, solver="cutting-planes")
    arena = arena_of(patchwork(), settings)
    found = arena.run(Entry("cutting-planes", settings))
    outcomes = [arena.central(), found]
    told = {"name": "", "settings": settings, "left_out": {}, "latency": 0.0}
    comparison = Comparison.of(arena, outcomes, **told)
    assert arena.optimum.primal > 1.01 * found.primal
    assert comparison.optimum == found.primal
    assert comparison.judged_by == "cutting-planes, below liblinear, which did not converge"
    assert [row["algorithm"] for row in comparison.rows()] == ["cutting-planes", "central"]
    assert comparison.lower_bound <= comparison.optimum


def test_parties_that_share_samples_cannot_weigh_the_same(patchwork):
    settings = Settings(lam=1e-3, solver="fedavg", weigh="parties")
    with pytest.raises(ConfigError, match="several share some"):
        arena_of(patchwork(), settings)


def test_parties_alone_are_judged_on_everything(patchwork):
    tiles = patchwork(unlabelled=("east",))
    settings = Settings(lam=0.05, loss="hinge", gap=1e-3, solver="cutting-planes")
    arena = arena_of(tiles, settings, Preprocessing())
    best, mean = arena.alone()
    accuracies, losses = [], []
    for name in ("north", "south", "west"):
        (tile,) = tiles[name]
        places = [list(arena.train.features).index(feature) for feature in tile.features]
        y = np.where(tile.labels > 0, 1, -1)
        model = LinearSVC(loss="hinge", C=1 / (0.05 * tile.n), fit_intercept=False, tol=1e-9)
        model.max_iter = 100_000
        scores = arena.train.block[:, places] @ model.fit(tile.block, y).coef_[0]
        signs = arena.train.signs[:, 0]
        accuracies.append(((scores > 0) == (signs > 0)).mean())
        hinge = np.maximum(0, 1 - signs * scores).mean()
        losses.append(0.025 * (model.coef_**2).sum() + hinge)
    assert best.train["accuracy"] == pytest.approx(max(accuracies))
    assert mean.train["accuracy"] == pytest.approx(np.mean(accuracies))
    assert mean.primal == pytest.approx(np.mean(losses), rel=1e-6)


def test_responses_are_scored_by_their_errors(patchwork):
    tiles = patchwork(classes=0, unlabelled=())
    settings = Settings(lam=1e-3, loss="absolute", gap=1e-3, solver="cutting-planes")
    arena = arena_of(tiles, settings, Preprocessing())
    model = LinearSVR(epsilon=0.0, C=1 / (1e-3 * 44), fit_intercept=False, tol=1e-9)
    model.max_iter = 100_000
    fitted = model.fit(arena.train.block, arena.train.targets)
    found = score(arena.train, arena.optimum.w)
    assert found["r2"] == pytest.approx(fitted.score(arena.train.block, arena.train.targets), 1e-4)
    errors = fitted.predict(arena.train.block) - arena.train.targets
    assert found["rmse"] == pytest.approx(np.sqrt((errors**2).mean()), 1e-3)


def test_ids_and_names_are_pooled_as_they_are_matched():
    """Case and blanks aside; the model's own names too."""
    rng = np.random.default_rng(0)
    block = rng.normal(size=(30, 3))
    labels = (block.sum(axis=1) > 0).astype(int)
    ids = [f"Ann {i}" for i in range(30)]
    left = Tile.make(ids, ["x ", "y"], block[:, :2], labels)
    right = Tile.make([i.upper() for i in ids], ["x", "z"], block[:, [0, 2]])
    settings = Settings(lam=0.1, loss="logistic", solver="lbfgs", gap=1e-6)
    arena = arena_of({"left": (left,), "right": (right,)}, settings)
    assert arena.train.block.shape == (30, 3)
    found = arena.run(Entry("lbfgs", settings))
    assert found.primal == pytest.approx(found.history[-1].primal, rel=1e-7)


def test_a_sample_is_held_out_by_all_its_holders(patchwork):
    tiles = patchwork(unlabelled=())
    kept, out = hold_out(tiles, 0.3, seed=1)
    sets = [
        {i for held in part.values() for tile in held for i in tile.ids} for part in (kept, out)
    ]
    assert not sets[0] & sets[1]
    assert len(sets[0] | sets[1]) == 44
    assert 5 <= len(sets[1]) <= 22
    assert hold_out(tiles, 0.3, seed=2)[1]["west"][0].ids.tolist() != out["west"][0].ids.tolist()


def test_a_model_is_read_back_in_the_units_of_training(patchwork):
    settings = Settings(lam=0.05, loss="logistic", gap=1e-8, solver="lbfgs")
    arena = arena_of(rows_of(patchwork), settings)
    trained = arena._federation().train(settings)
    w = weights_of(trained.model, arena.train)
    scores = arena.train.design @ w
    rows = np.vstack([tile.block for (tile,) in rows_of(patchwork).values()])
    np.testing.assert_allclose(np.sort(scores[:, 0]), np.sort(trained.model.decision(rows)[:, 0]))


def test_labels_of_lines_keep_apart():
    placed = _apart([0.1, 0.1, 0.11, 0.98, 0.99, 0.99])
    assert np.diff(placed).min() >= 0.042 - 1e-12
    assert min(placed) >= 0
    assert max(placed) <= 1
    assert _apart([]) == []
    assert _apart([0.2, 0.6]) == [0.2, 0.6]


def test_a_comparison_in_which_all_failed_leaves_nothing(weft, hospitals, tmp_path, monkeypatch):
    monkeypatch.setattr(
        FedavgCoordinator, "set_up", Mock(side_effect=ConfigError("the steps make no sense"))
    )
    config = hospitals.write()
    outcome = weft("compare", config, "--algorithms", "fedavg", "--out", tmp_path / "new")
    assert (outcome.code, outcome.out) == (2, "")
    assert "fedavg failed: the steps make no sense" in outcome.err
    assert not (tmp_path / "new").exists()
