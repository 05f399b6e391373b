"""Choosing solver and λ on the command line, and what a path leaves behind."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from covering import cover
from weft import Federation, Preprocessing, Settings, load_model
from weft.data import SPLITS, load
from weft.protocol import LocalChannel
from weft.report.convergence_plot import plot_convergence
from weft.report.fold_scores_by_lambda_plot import plot_path
from weft.report.history_table import history_frame
from weft.report.lambda_path import choice_sentence, edge_remark, path_frame
from weft.report.model_card import model_card
from weft.report.progress_and_ending_text import progress_text
from weft.report.results_folder import write_results
from weft.report.summary import shortfall, summarise, to_markdown

LIST = "lambda = [1e-1, 1e-2, 1e-3]"


@pytest.fixture
def searching(hospitals):
    """The two hospitals with three λ and three folds."""
    hospitals.change("lambda = 1e-2", LIST)
    hospitals.change("gap = 1e-2", "gap = 1e-1\nfolds = 3")
    return hospitals


@pytest.fixture(scope="module")
def settings():
    return Settings(lam=1e-3, path=(1e-1, 1e-2), folds=3, gap=1e-1, solver="auto")


@pytest.fixture(scope="module")
def trained(settings):
    split = SPLITS["grid"](load("breast_cancer").rows(slice(0, 200)), k=2, q=2)
    preprocessing = Preprocessing(scaling="standard", unit_rows=True)
    return Federation(split.parties, preprocessing).train(settings)


@pytest.fixture(scope="module")
def frame(trained):
    return path_frame(trained.result, "classification")


def is_picture(path):
    return path.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.usefixtures("no_pictures")
def test_a_list_of_lambdas_is_compared_and_one_is_released(weft, searching, tmp_path):
    outcome = weft("train", searching.write(), "--out", "results")
    assert outcome.code == 0, outcome.err
    folder = tmp_path / "results"
    path = pd.read_csv(folder / "path.csv")
    assert path["lambda"].tolist() == [1e-1, 1e-2, 1e-3]
    assert (folder / "path.png").exists()
    chosen = path[path["chosen"]].iloc[0]
    assert chosen["mean_score"] == path["mean_score"].max()
    assert load_model(folder / "model.npz").lam == chosen["lambda"]
    assert f"λ = {chosen['lambda']:g} of 3 was chosen: accuracy" in outcome.out
    assert "over 3 folds; see path.png" in outcome.out
    assert "- solver: cutting-planes, since" in outcome.out
    summary = json.loads((folder / "summary.json").read_text())
    assert summary["solver"] == "cutting-planes"
    assert summary["settings"]["solver"] == "auto"
    assert summary["lambda"] == chosen["lambda"]
    assert [row["lambda"] for row in summary["path"]] == [1e-1, 1e-2, 1e-3]
    told = (folder / "summary.md").read_text()
    assert "| solver | cutting-planes |" in told
    assert f"| **{chosen['lambda']:g}** |" in told
    assert set(pd.read_csv(folder / "history.csv")["lam"]) == {1e-1, 1e-2, 1e-3}


@pytest.mark.usefixtures("no_pictures")
def test_one_lambda_with_folds_is_scored(weft, hospitals, tmp_path):
    hospitals.change("gap = 1e-2", "gap = 1e-1\nfolds = 4")
    outcome = weft("train", hospitals.write(), "--out", "results")
    assert outcome.code == 0, outcome.err
    assert "λ = 0.01: accuracy" in outcome.out
    assert "was tried" not in outcome.out
    assert len(pd.read_csv(tmp_path / "results" / "path.csv")) == 1
    assert (tmp_path / "results" / "path.png").exists()


@pytest.mark.usefixtures("no_pictures")
def test_a_held_out_share_chooses_and_judges_and_is_kept_with_the_model(weft, searching, tmp_path):
    searching.change("folds = 3", "")
    config = searching.write()
    config.write_text(config.read_text() + "[evaluation]\nheld_out = 0.4\nthreshold = 0.3\n")
    outcome = weft("train", config, "--out", "results")
    assert outcome.code == 0, outcome.err
    assert "of 3 was chosen: accuracy" in outcome.out
    assert "of the samples were held out to judge" in outcome.out
    assert "by 40% of the samples, held out, in one run" in " ".join(
        weft("check", config).out.split()
    )
    model = load_model(tmp_path / "results" / "model.npz")
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    judged, found = model.info["evaluation"], summary["evaluation"]
    assert judged["accuracy"] == found["accuracy"]
    assert judged["models"][0]["auc"] == found["models"][0]["auc"]
    # The file goes to whoever gets the model: no counts and no curves.
    assert "roc" not in str(judged)
    assert "samples" not in str(judged)
    assert model.info["threshold"] == 0.3
    card = model_card(model, None)
    assert card["model"]["threshold"] == 0.3
    assert card["evaluation"]["evaluation"] == judged


@pytest.mark.usefixtures("no_pictures")
def test_one_lambda_without_folds_leaves_no_path(weft, hospitals, tmp_path):
    outcome = weft("train", hospitals.write(), "--out", "results", "--json")
    summary = json.loads(outcome.out)
    assert (summary["path"], summary["choice"], summary["lambda"]) == (None, None, 1e-2)
    assert not list((tmp_path / "results").glob("path.*"))


@pytest.mark.usefixtures("no_pictures")
def test_a_list_of_one_lambda_is_that_lambda(weft, hospitals):
    hospitals.change("lambda = 1e-2", "lambda = [1e-2]")
    outcome = weft("train", hospitals.write(), "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["lambda"] == 1e-2


def test_check_says_which_solver_will_run_and_what_is_chosen(weft, searching):
    config = searching.write()
    outcome = weft("check", config)
    assert outcome.code == 0, outcome.err
    assert "- solver: cutting-planes, since loss 'hinge' has kinks" in outcome.out
    assert "λ will be chosen of 0.1, 0.01, 0.001 by 3 folds" in outcome.out
    assert json.loads(weft("check", config, "--json").out)["solver"] == "cutting-planes"


SETTLED = [
    ('name = "hyfdca"', "hyfdca"),
    ('name = "cutting-planes"\ngroups = 2', "cutting-planes"),
    ("participation = 0.5", "cutting-planes"),
    ("iic = 0.5", "hyfdca"),
    ("checkpoint_every = 5", "hyfdca"),
    ('patience = 5\nwhen_missing = "hyfdca"', "cutting-planes"),
]


@pytest.mark.parametrize(("line", "solver"), SETTLED)
def test_the_config_settles_the_solver(weft, hospitals, line, solver):
    hospitals.change("gap = 1e-2", f"gap = 5e-1\n{line}")
    assert json.loads(weft("check", hospitals.write(), "--json").out)["solver"] == solver


@pytest.mark.usefixtures("no_pictures")
@cover(("line", "solver"), [SETTLED[3], SETTLED[5]], others=SETTLED)
def test_training_takes_the_solver_that_the_config_settles(weft, hospitals, line, solver):
    hospitals.change("gap = 1e-2", f"gap = 5e-1\n{line}")
    trained = weft("train", hospitals.write(), "--json")
    assert trained.code == 0, trained.err
    assert json.loads(trained.out)["solver"] == solver


@pytest.mark.parametrize(
    ("model", "solver", "words"),
    [
        (LIST, "", ["lambda lists 3 values", "set folds = 5 in [solver]"]),
        ("lambda = []", "", ["[model] needs lambda, such as lambda = [0.1, 0.01]"]),
        ('lambda = [1e-1, "small"]', "folds = 2", ["[model] lambda", "a number"]),
        ("lambda = [1e-1, 0.0]", "folds = 2", ["lambda = 0", "inference = true"]),
        (LIST, 'folds = 3\nname = "hyfdca"', ["'hyfdca' does not take several values of lambda"]),
        (LIST, "folds = 3\niic = 0.5", ["does not take several values of lambda"]),
        ("lambda = 1e-2", "folds = 1", ["folds is 1"]),
        ("lambda = 1e-2", 'name = "lbfgs"', ["smooth loss", "'hinge' has a kink"]),
        ("lambda = 1e-2", 'name = "cutting-planes"\niic = 0.5', ["iic = 0.5", "solver hyfdca"]),
        ("lambda = 1e-2", 'name = "cutting-planes"\ncheckpoint_every = 5', ["no checkpoints"]),
        ("lambda = 1e-2", 'name = "hyfdca"\npatience = 5', ["patience", "does not know it"]),
        ("lambda = 1e-2", 'when_missing = "wait"', ["when_missing", "stop, hyfdca"]),
        ("lambda = 1e-2", "groups = 0", ["groups is 0"]),
    ],
)
def test_a_choice_that_makes_no_sense_is_one_sentence(
    weft, hospitals, tmp_path, model, solver, words
):
    hospitals.change("lambda = 1e-2", model)
    hospitals.change("gap = 1e-2", f"gap = 1e-2\n{solver}")
    config = hospitals.write()
    before = sorted(tmp_path.rglob("*"))
    for command in ("check", "train"):
        outcome = weft(command, config)
        assert (outcome.code, outcome.out) == (2, "")
        assert outcome.err.startswith("weft: config.toml: ")
        assert outcome.err.count("\n") == 1
        for word in words:
            assert word in outcome.err
    assert sorted(tmp_path.rglob("*")) == before


def test_resuming_a_solver_without_checkpoints_is_refused(weft, hospitals):
    hospitals.change("gap = 1e-2", 'gap = 1e-2\nname = "cutting-planes"')
    outcome = weft("train", hospitals.write(), "--resume")
    assert outcome.code == 2
    assert "keeps no checkpoints" in outcome.err


def test_train_teaches_how_to_choose(weft):
    told = " ".join(weft("train", "--help").out.split())
    assert "lambda = [1e-1, 1e-2, 1e-3]" in told
    assert "folds = 5" in told
    assert "weft check tells which" in told


def test_the_demo_refuses_a_solver_that_does_not_fit(weft):
    refused = weft("demo", "--solver", "lbfgs")
    assert refused.code == 2
    assert "smooth loss" in refused.err


@pytest.mark.release
def test_the_demo_says_which_solver_ran(weft):
    """The demo itself is in test_cli_commands.py, solvers that were asked for are above."""
    auto = json.loads(weft("demo", "--json").out)
    papers = json.loads(weft("demo", "--json", "--solver", "hyfdca").out)
    assert (auto["solver"], papers["solver"]) == ("cutting-planes", "hyfdca")
    assert auto["round_trips"] < papers["round_trips"] / 5
    assert auto["certified_gap"] <= 2e-3


def test_progress_names_the_lambda_of_a_path(trained):
    assert progress_text(trained.result.history[0]).startswith("λ = 0.1 · iteration 1 · ")


@pytest.mark.release
@cover(
    ("folds", "task", "rows"),
    [(True, "regression", 3), (False, "classification", 1)],
    others=[(True, "classification", 1), (False, "regression", 1), (False, "classification", 3)],
)
def test_every_path_can_be_drawn(frame, tmp_path, folds, task, rows):
    shown = frame[frame["chosen"]] if rows == 1 else frame
    if not folds:
        shown = shown[["lambda", "loss", "gap", "round_trips", "chosen"]]
    path = tmp_path / "path.png"
    # Either with one row and with several, with folds and without.
    target = 1e-2 if folds == (rows == 1) else None
    assert plot_path(shown, path, title="a path", task=task, target=target) is None
    assert is_picture(path)


@pytest.mark.usefixtures("rough_pictures")
def test_gaps_of_zero_and_none_known_can_be_drawn(frame, trained, tmp_path):
    odd = frame.assign(gap=[0.0, np.inf, 1e-3])
    assert plot_path(odd, tmp_path / "a.png", title="odd", task="classification") is None
    assert is_picture(tmp_path / "a.png")
    history = history_frame(trained.result.history)
    history["gap"] = np.inf
    history["dual"] = -np.inf
    assert plot_convergence(history, tmp_path / "b.png", title="odd", target=1e-2) is None


def test_without_matplotlib_the_table_is_there_all_the_same(
    trained, settings, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, remarks = write_results(tmp_path, trained, settings, name="a run")
    assert remarks[0].split(":")[0] == "no path plot"
    assert (tmp_path / "path.csv").is_file()
    assert not list(tmp_path.glob("*.png"))


def test_a_gap_missed_at_one_lambda_is_said(trained, settings):
    summary = summarise(trained, settings, "a run")
    json.dumps(summary, allow_nan=False)
    assert shortfall(summary) is None
    summary["path"][1]["gap"] = 0.5
    assert "was not reached at λ = 0.01;" in shortfall(summary)
    assert shortfall(summary) in to_markdown(summary)


@pytest.mark.usefixtures("no_pictures")
def test_folds_that_no_sample_falls_into_do_not_hide_the_others(weft, hospitals, tmp_path):
    hospitals.north, hospitals.south = hospitals.north.iloc[:12], hospitals.south.iloc[:12]
    hospitals.change("gap = 1e-2", "gap = 1e-1\nfolds = 20")
    assert weft("train", hospitals.write(), "--out", "results").code == 0
    row = pd.read_csv(tmp_path / "results" / "path.csv").iloc[0]
    scores = row[[f"fold_{fold}" for fold in range(1, 21)]].astype(float)
    assert scores.isna().any()
    assert row["mean_score"] == pytest.approx(scores.mean())
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert None in summary["path"][0].values()


@pytest.mark.usefixtures("no_pictures")
@cover(
    ("folds", "when_missing", "rounds"),
    [(0, "stop", 44), (3, "hyfdca", 52)],
    others=[(3, "hyfdca", 44), (3, "stop", 52), (0, "hyfdca", 52)],
)
def test_a_path_that_a_party_leaves_is_reported_as_far_as_it_went(
    tmp_path, monkeypatch, folds, when_missing, rounds
):
    exchange = LocalChannel.exchange

    def gone(*_):
        raise RuntimeError("gone")

    def watched(channel, requests):
        if channel.meter.round_trips >= rounds:
            channel._handlers["p2"] = gone
        return exchange(channel, requests)

    monkeypatch.setattr(LocalChannel, "exchange", watched)
    asked = Settings(
        lam=1e-3,
        path=(1e-1, 1e-2),
        folds=folds,
        solver="auto",
        gap=1e-4,
        patience=0.0,
        when_missing=when_missing,
        iterations=30,
    )
    split = SPLITS["rows"](load("breast_cancer"), parties=3)
    preprocessing = Preprocessing(scaling="standard", unit_rows=True)
    trained = Federation(split.parties, preprocessing).train(asked)
    summary, _ = write_results(tmp_path, trained, asked, name="left")
    assert "p2" in " ".join(summary["notes"])
    json.loads((tmp_path / "summary.json").read_text())
    assert to_markdown(summary)
    assert (summary["path"] is None) == (not (tmp_path / "path.png").exists())


def test_a_choice_at_the_edge_is_remarked(frame):
    for place, words in ((0, "no larger λ than 0.1"), (1, None), (2, "no smaller λ than 0.001")):
        chosen = frame.assign(chosen=[row == place for row in range(3)])
        remark = edge_remark(chosen)
        assert remark is None if words is None else words in remark


def test_the_choice_is_told_in_the_measure_of_the_task(frame):
    error = frame.assign(mean_score=[-4.0, -3.0, -2.0], std_score=0.5, chosen=[False, False, True])
    told = choice_sentence(error, "regression")
    assert told.startswith("λ = 0.001 of 3 was chosen: mean squared error 2 ± 0.5")
    assert "accuracy" in choice_sentence(frame, "classification")
