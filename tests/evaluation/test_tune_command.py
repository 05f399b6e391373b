"""Tuning on files: seeded, whole or not there at all, and its config trains."""

import json
import math
import sys
import tomllib

import numpy as np
import pandas as pd
import pytest

from weft.federation.preprocessing_settings import Preprocessing
from weft.privacy.agreement import Consent
from weft.solvers.run_settings import Settings
from weft_evaluation.algorithm_comparison import Arena
from weft_evaluation.reference_optimum import weights_of
from weft_evaluation.tuning.convergence_and_cost_metrics import NAMES
from weft_evaluation.tuning.loss_along_run import Eye, Watch, from_outside
from weft_evaluation.tuning.tuned_config import written

QUICK = ("--trials", "4", "--iterations", "10", "--every", "1", "--holdout", "0.3")
PAPER = ("--algorithm", "fedavg", "--bound", "iic=0.5:2")


@pytest.fixture
def no_plot(monkeypatch):
    """As where matplotlib is not installed: drawing takes most of the time."""
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


@pytest.mark.usefixtures("rough_pictures")
def test_the_folder_has_everything_and_its_config_trains(weft, hospitals, tmp_path):
    """Also from another folder than the config's."""
    hospitals.change("iterations = 500", "iterations = 50")
    config = hospitals.write()
    outcome = weft("tune", config, *QUICK, *PAPER, "--out", "deep/t")
    assert outcome.code == 0, outcome.err
    assert outcome.err == ""
    folder = tmp_path / "deep" / "t"
    assert {path.name for path in folder.iterdir()} == {
        *("trials.csv", "front.csv", "summary.json", "tuning.png", "tuning.svg", "tuned.toml")
    }
    assert (folder / "tuning.png").read_bytes()[:4] == b"\x89PNG"
    words = " ".join(outcome.out.split())
    assert "(Δmin + ξΔmax)/(Δ + ξΔmax)" in words
    assert "ξ = 1" in words
    assert "evaluated every iteration" in words
    assert "accuracy of * is optimistic" in words
    summary = json.loads((folder / "summary.json").read_text())
    (result,) = summary["results"]
    trials = pd.read_csv(folder / "trials.csv")
    front = pd.read_csv(folder / "front.csv")
    assert len(trials) == result["trials"] == 4
    assert trials["standing"].value_counts()["chosen"] == 1
    assert result["chosen"]["trial"] == front["trial"][0]
    assert front["grade"].is_monotonic_decreasing
    # The grade is the mean of the coefficients that stand beside it.
    np.testing.assert_allclose(front.filter(like="coefficient_").mean(axis=1), front["grade"])
    # The table shows the chosen one, with all that it is judged by.
    line = next(line for line in outcome.out.splitlines() if f"*{front['trial'][0]}" in line)
    assert f"{front['grade'][0]:.3f}" in line
    assert max(map(len, outcome.out.splitlines()[5:12])) <= 80
    # A simulation shows nobody anything.
    assert not (hospitals.folder / "ledger").exists()
    tuned = tomllib.loads((folder / "tuned.toml").read_text())
    chosen = {k: v for k, v in result["chosen"]["options"].items() if v is not None}
    assert tuned["solver"]["name"] == "fedavg"
    found = {"iic": 1.0, "b": 1.0, **tuned["solver"], **tuned["solver"].get("options", {})}
    assert {name: found[name] for name in chosen} == chosen
    trained = weft("train", folder / "tuned.toml", "--out", "trained", "--json")
    assert trained.code == 0, trained.err
    used = json.loads(trained.out)["settings"]
    assert (used["solver"], used["gap"]) == ("fedavg", 1e-2)
    assert used["iic"] == chosen["iic"]


@pytest.mark.usefixtures("no_plot")
def test_the_same_seed_gives_the_same_trials(weft, hospitals, tmp_path):
    config = hospitals.write()
    runs = []
    for out, seed in (("a", 3), ("b", 3), ("c", 4)):
        told = ("--seed", seed, "--out", out, "--quiet")
        outcome = weft("tune", config, *QUICK, "--trials", 3, *PAPER, *told)
        assert (outcome.code, outcome.out, outcome.err) == (0, "", "")
        frame = pd.read_csv(tmp_path / out / "trials.csv")
        runs.append(frame[["trial", "iic", "a", "b", "loss", "score", "volatility", "progress"]])
    pd.testing.assert_frame_equal(runs[0], runs[1])
    pd.testing.assert_frame_equal(runs[0][:1], runs[2][:1])  # the config's own
    assert not runs[0].equals(runs[2])
    assert math.isnan(runs[0]["a"][0])


@pytest.mark.release
@pytest.mark.usefixtures("no_plot")
def test_several_algorithms_diverging_trials_and_json(weft, hospitals, tmp_path):
    """Steps of 1e6 and more grow without end; each algorithm gets a config of its own."""
    hospitals.change("gap = 1e-2", 'gap = 1e-2\nlocal = "practical"\niic = 0.5')
    config = hospitals.write()
    told = ("--algorithm", "hyfdca", *PAPER, "--bound", "fedavg.a=1e6:1e9", "--json")
    outcome = weft("tune", config, *QUICK, *told)
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    assert found["folder"] == "results/two-hospitals-tuning"
    assert found["configs"] == ["tuned-hyfdca.toml", "tuned-fedavg.toml"]
    hyfdca, fedavg = found["results"]
    assert hyfdca["diverged"] == 0
    # The config's own steps are fine, and so they are chosen.
    assert (fedavg["trials"], fedavg["diverged"], fedavg["front"]) == (4, 3, 1)
    assert fedavg["chosen"]["trial"] == 1
    assert set(hyfdca["chosen"]["metrics"]) == set(NAMES)
    folder = tmp_path / found["folder"]
    trials = pd.read_csv(folder / "trials.csv")
    assert (trials[trials["standing"] == "diverged"]["algorithm"] == "fedavg").all()
    tuned = tomllib.loads((folder / "tuned-fedavg.toml").read_text())
    assert "local" not in tuned["solver"]  # which fedavg does not know
    assert tuned["compare"]["hyfdca"]["local"] == "practical"
    compared = weft("compare", folder / "tuned-fedavg.toml", "--algorithms", "hyfdca,fedavg")
    assert compared.code == 0, compared.err


@pytest.mark.usefixtures("no_plot")
def test_time_ends_a_search(weft, hospitals):
    """The config's own options are tried however short it is."""
    told = ("--seconds", "1e-9", "--iterations", "12", "--json")
    found = json.loads(weft("tune", hospitals.write(), *told).out)
    (result,) = found["results"]
    assert (result["algorithm"], result["trials"]) == ("hyfdca", 1)
    assert result["evaluated_every"] >= 1


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--algorithm", "fedvag"], ["unknown solver 'fedvag' (the closest is 'fedavg')"]),
        (["--algorithm", "auto"], ["'auto' is no algorithm"]),
        (["--algorithm", "lbfgs"], ["smooth loss"]),
        (["--algorithm", "cocoa"], ["every sample at one party"]),
        (["--algorithm", "sdca"], ["the whole table at one party"]),
        (["--bound", "iic=0.1"], ["OPTION=LOW:HIGH"]),
        (["--bound", "iic=0.1:2"], ["iic is 2", "at most 1"]),
        (["--iterations", "3"], ["--iterations is 3"]),
        (["--every", "80"], ["--every is 80"]),
        (["--holdout", "1"], ["--holdout is 1"]),
        (["--distinguishing", "2"], ["--distinguishing is 2"]),
        (["--seconds", "0"], ["--seconds is 0"]),
        (["--weight", "speed=1"], ["no metric 'speed'"]),
        (["--out", "hospitals"], ["hospitals exists and is not empty"]),
    ],
)
def test_a_mistake_is_one_sentence_and_leaves_nothing(weft, hospitals, tmp_path, arguments, words):
    config = hospitals.write()
    before = sorted(tmp_path.rglob("*"))
    outcome = weft("tune", config, *arguments)
    assert (outcome.code, outcome.out) == (2, "")
    assert outcome.err.count("\n") == 1
    for word in words:
        assert word in outcome.err
    assert sorted(tmp_path.rglob("*")) == before


def test_what_is_seen_on_the_way_is_the_model_that_a_shorter_run_releases(patchwork):
    """Judge: runs that end there, whose released model is evaluated."""
    tiles = patchwork()
    how = Preprocessing(intercept=True, scaling="standard", unit_rows=True)
    consents = {name: Consent.open(name) for name in tiles}
    for solver, options in (("hyfdca", {}), ("fedavg", {"a": 0.1}), ("admm", {})):
        told = Settings(lam=0.05, loss="logistic", solver=solver, options=options, gap=None)
        arena = Arena(tiles, how, told, consents=consents, test_share=0.2)
        watch = Watch(Eye(arena), 1, 5, from_outside)
        federation = arena._federation()
        watch.open(federation)
        run = {"cipher": "plain", "lam": 0.05, "loss": "logistic", "solver": solver, "gap": None}
        federation.train(Settings(**run, options=options, iterations=5), progress=watch)
        points = {point.iteration: point for point in watch.points}
        assert points[0].loss == pytest.approx(math.log(2))
        model = arena._federation().train(Settings(**run, options=options, iterations=3)).model
        w = weights_of(model, arena.train)
        assert points[3].loss == pytest.approx(arena.problem.primal(w), rel=1e-6)


def test_toml_is_read_as_it_was_meant():
    content = {
        "name": 'a "quoted" näme\n',
        "numbers": [1, 2.5, 1e-7, -3],
        "data": {"flag": True, "split": {"name": "grid", "k": 3}, "odd key": ["a", "b\\c"]},
        "party": [{"name": "north", "files": ["x.csv"]}, {"name": "süd", "label": False}],
    }
    assert tomllib.loads(written(content)) == content
