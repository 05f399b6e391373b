"""The commands on data that is in order."""

import io
import json
import re
import stat
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from typer.testing import CliRunner

from weft import __version__, load_model
from weft.cli import _alone, command_line
from weft.cli.terminal_output import ProgressLine
from weft.data import load, write_tile
from weft_examples import demo


def frame_of(text):
    return pd.read_csv(io.StringIO(text), dtype={"id": str}).set_index("id")


def test_the_demo_meets_its_bars_and_prints_one_json_object(weft):
    outcome = weft("demo", "--json")
    assert outcome.code == 0
    assert outcome.err == ""
    figures = json.loads(outcome.out)
    assert figures["parties"] == 9
    assert abs(figures["relative_difference"]) <= 1e-3
    assert figures["certified_gap"] <= 1e-2
    # Worth federating for, and as good as pooling.
    assert figures["accuracy"] > figures["accuracy_best_party"] + 0.05
    assert abs(figures["accuracy"] - figures["accuracy_central"]) < 0.005
    assert figures["accuracy_majority"] < 0.6
    assert figures["seconds"] < 30
    assert figures["round_trips"] > 0
    assert figures["bytes"] > 0


@pytest.mark.usefixtures("no_pictures")
def test_the_demo_explains_itself_and_writes_results(weft, tmp_path, monkeypatch):
    """A smaller one: what it reaches at its own size is above."""
    smaller = partial(demo.Size, lam=1e-2, gap=1e-1, samples=300)
    monkeypatch.setattr(demo, "Size", smaller)
    # One that stands there already is written anew.
    (tmp_path / "results" / "demo").mkdir(parents=True)
    (tmp_path / "results" / "demo" / "summary.json").write_text(json.dumps({"name": demo.NAME}))
    outcome = weft("demo")
    assert outcome.code == 0, outcome.err
    assert "(solver cutting-planes)" in outcome.out
    assert "relative difference" in outcome.out
    assert "best party alone" in outcome.out
    assert (tmp_path / "results" / "demo" / "model.npz").is_file()
    assert "in a browser: results/demo/report.html" in outcome.out
    (tmp_path / "results" / "demo" / "summary.json").write_text("{}")
    assert "not of a demo" in weft("demo").err


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize(
    ("name", "suffix", "cutting"),
    [
        ("breast_cancer", "parquet", ["--split", "overlapping", "--parties", 4]),
        ("digits", "npz", ["--split", "dealt", "--k", 2, "--q", 2, "--seed", 3]),
        *(
            pytest.param(*case, marks=pytest.mark.release)
            for case in [
                (
                    "breast_cancer",
                    "csv",
                    ["--split", "columns", "--parties", 3, "--labels", "first"],
                ),
                ("breast_cancer", "csv", ["--split", "grid", "--k", 2, "--q", 3]),
                ("digits", "npz", ["--split", "quadrants", "--parties", 6, "--labels", "first"]),
            ]
        ),
    ],
)
def test_split_check_train_predict(weft, tmp_path, name, suffix, cutting):
    assert weft("split", name, *cutting, "--out", "p", "--format", suffix).code == 0
    seen = weft("check", "p/config.toml", "--json")
    assert seen.code == 0
    assert json.loads(seen.out)["kind"] == ("vertical" if "columns" in cutting else "hybrid")
    config = tmp_path / "p" / "config.toml"
    text = config.read_text().replace("gap = 1e-2", "gap = 3e-1")
    if "overlapping" in cutting:
        # Small groups of samples and a loss with kinks: min_batch would keep the gap above that.
        text = text.replace('loss = "hinge"', 'loss = "logistic"')
    config.write_text(text)
    trained = weft("train", "p/config.toml", "--out", "results/run", "--json")
    assert trained.code == 0, trained.err
    summary = json.loads(trained.out)
    assert summary["certificate"]["gap"] <= 3e-1
    written = {path.name for path in (tmp_path / "results/run").iterdir()}
    assert written == {
        "model.npz",
        "history.csv",
        "history.parquet",
        "report.html",
        "summary.json",
        "summary.md",
        "config.toml",
    }
    joint = weft("predict", "results/run/model.npz", "--joint", "p/config.toml")
    assert joint.code == 0, joint.err
    predicted = frame_of(joint.out)["prediction"]
    table = load(name)
    truth = pd.Series(table.labels, table.ids)
    assert (predicted == truth[predicted.index]).mean() > 0.8


@pytest.mark.usefixtures("no_pictures")
def test_training_without_messages_gives_the_same_model(weft, tmp_path):
    folder = tmp_path / "parties"
    cut = ("--split", "rows", "--parties", "6", "--out", folder, "--format", "npz")
    assert weft("split", "breast_cancer", *cut).code == 0
    config = folder / "config.toml"
    text = config.read_text().replace("[solver]", '[solver]\nname = "hyfdca"\ncipher = "plain"\n')
    text = re.sub("(?m)^gap = .*$", "gap = 0.5\niic = 0.5\nparticipation = 0.5", text)
    open_ = 'ciphers = ["plain"]\nmin_batch = 1\nmin_contributors = 1\nallow_pairs = true\n'
    text = re.sub(r"(?m)^\[privacy\][^\[]*", f"[privacy]\n{open_}allow_exposure = true\n\n", text)
    if "[privacy]" not in text:
        text += f"\n[privacy]\n{open_}allow_exposure = true\n"
    config.write_text(text)
    quiet = weft("train", config, "--out", tmp_path / "quiet", "--without-messages")
    assert quiet.code == 0, quiet.err
    assert "without messages, to the same bits" in quiet.out
    assert not (folder / "ledger").exists()
    assert weft("train", config, "--out", tmp_path / "told").code == 0
    models = [(tmp_path / name / "model.npz").read_bytes() for name in ("quiet", "told")]
    assert models[0] == models[1]
    for more, why in (("--record", "record"), (f"--ledger={tmp_path}", "leave --ledger")):
        refused = weft("train", config, "--out", tmp_path / "no", "--without-messages", more)
        assert refused.code == 2
        assert why in refused.err
    assert not (tmp_path / "no").exists()


@pytest.mark.usefixtures("no_pictures")
def test_prediction_from_a_full_file_agrees_with_joint_prediction(weft, tmp_path):
    table = load("breast_cancer")
    write_tile(table.to_tile(), tmp_path / "all.csv", id_column="patient")
    weft("split", tmp_path / "all.csv", "--id", "patient", "--k", 2, "--q", 2, "--out", "p")
    config = tmp_path / "p" / "config.toml"
    config.write_text(config.read_text().replace("gap = 1e-2", "gap = 3e-1"))
    assert weft("train", "p/config.toml", "--quiet", "--out", "r").code == 0
    whole = weft("predict", "r/model.npz", "all.csv", "--id", "patient", "--scores")
    joint = weft("predict", "r/model.npz", "--joint", "p/config.toml", "--scores", "--out", "j.csv")
    assert (whole.code, joint.code, joint.out) == (0, 0, "")
    a, b = frame_of(whole.out), frame_of((tmp_path / "j.csv").read_text())
    assert np.allclose(a["score"], b.loc[a.index, "score"])
    lacking = weft("predict", "r/model.npz", "p/r1c1.csv", "--id", "patient")
    assert lacking.code == 2
    assert "r1c1.csv lacks 15 feature(s)" in lacking.err
    partial = weft("predict", "r/model.npz", "p/r1c1.csv", "--id", "patient", "--partial")
    assert len(frame_of(partial.out)) == table.n // 2


@pytest.mark.usefixtures("no_pictures")
def test_a_config_can_cut_a_named_data_set_itself(weft, tmp_path):
    (tmp_path / "c.toml").write_text(
        '[data]\ndataset = "digits"\nsplit = {name = "grid", k = 2, q = 2}\nunit_rows = true\n'
        "positive = [0, 2, 4, 6, 8]\n[model]\nlambda = 1e-1\n[solver]\ngap = 3e-1\n"
        "participation = {cyclic = 2}\niterations = 40\n"
        "[privacy]\nallow_pairs = true\nallow_exposure = true\n"
    )
    outcome = weft("train", "c.toml", "--json")
    assert outcome.code == 0, outcome.err
    summary = json.loads(outcome.out)
    assert summary["classes"] == [-1, 1]
    assert summary["folder"] == "results/c"
    assert len(summary["federation"]["parties"]) == 4


def test_check_tells_who_holds_what(weft, hospitals):
    hospitals.north = hospitals.north.iloc[:30]
    hospitals.south = hospitals.south.assign(age=1.0).iloc[5:]
    hospitals.change('file = "south.csv"', 'file = "south.csv"\nlabel = false')
    hospitals.south = hospitals.south.drop(columns="outcome")
    hospitals.change("[privacy]", "[privacy]\nallow_one_column = true\nmin_batch = 1")
    outcome = weft("check", hospitals.write())
    assert outcome.code == 0, outcome.err
    assert "hybrid, 2 parties, 30 samples × 4 features, 2 classes" in outcome.out
    assert "10 sample(s) are left out" in outcome.out
    assert "25 cell(s) are held more than once" in outcome.out
    assert "10 cell(s)" in outcome.out
    assert "no labels at south" in outcome.out
    assert "labels are visible to every holder" in outcome.out


@pytest.mark.usefixtures("no_pictures")
def test_an_interrupted_run_resumes_to_the_same_model(weft, hospitals, tmp_path, monkeypatch):
    hospitals.change("gap = 1e-2", "gap = 1e-9\ncheckpoint_every = 2")
    hospitals.change("iterations = 500", "iterations = 8")
    config = hospitals.write()
    assert weft("train", config, "--quiet", "--out", "whole").code == 0

    def interrupt(self, record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressLine, "__call__", interrupt)
        assert weft("train", config, "--out", "cut").code == 130
    store = tmp_path / "cut.checkpoints"
    assert not (tmp_path / "cut").exists()
    assert stat.S_IMODE(store.stat().st_mode) == 0o700
    again = weft("train", config, "--out", "cut")
    assert again.code == 2
    assert "--resume" in again.err
    assert weft("train", config, "--out", "cut", "--resume").code == 0
    assert not store.exists()
    whole, cut = (load_model(tmp_path / name / "model.npz") for name in ("whole", "cut"))
    assert (whole.coef == cut.coef).all()
    histories = [pd.read_parquet(tmp_path / n / "history.parquet") for n in ("whole", "cut")]
    assert (histories[0]["round_trips"].diff()[1:] > 0).all()
    assert len(histories[0]) == len(histories[1])


def test_the_line_of_a_run_says_how_far_matching_is(weft, hospitals, monkeypatch):
    told, shown, tell = [], [], ProgressLine.tell

    def follow(self, how_far):
        told.append(how_far)
        self._status = SimpleNamespace(update=shown.append, stop=lambda: None)
        tell(self, how_far)
        if not how_far:
            raise KeyboardInterrupt

    monkeypatch.setattr("weft.matching.oprf_announcement_and_limits.PART", 60)
    monkeypatch.setattr(ProgressLine, "tell", follow)
    hospitals.change("[privacy]", '[privacy]\nmatching = "oprf"')
    assert weft("train", hospitals.write()).code == 130
    assert told == ["50 % of the ids are matched", ""]
    assert shown[0] == f"matching samples … {told[0]}"


def test_resuming_without_a_checkpoint_is_refused(weft, hospitals):
    outcome = weft("train", hospitals.write(), "--resume")
    assert outcome.code == 2
    assert "no checkpoint" in outcome.err


@pytest.mark.usefixtures("no_pictures")
def test_a_recorded_trace_of_participation_is_read_beside_the_config(weft, hospitals):
    hospitals.change("gap = 1e-2", 'gap = 1e-1\nparticipation = {trace = "trace.json"}')
    trace = [["north"], ["south"], ["north", "south"]]
    (hospitals.folder / "trace.json").write_text(json.dumps(trace))
    outcome = weft("train", hospitals.write(), "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["settings"]["participation"] == {"trace": trace}


def test_data_sets_are_listed(weft):
    outcome = weft("data", "list")
    assert outcome.code == 0
    assert "breast_cancer" in outcome.out


def test_the_installed_command_says_its_version_and_teaches():
    version = subprocess.run(
        [sys.executable, "-c", "from weft.cli import main; main()", "--version"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert version.stdout.strip() == f"weft {__version__}"


@pytest.mark.parametrize("command", ["demo", "split", "check", "train", "predict"])
def test_every_command_teaches_with_an_example(weft, command):
    outcome = weft(command, "--help")
    assert outcome.code == 0
    assert f"Example: weft {command}" in outcome.out


def test_a_command_that_is_loaded_alone_says_what_it_says_among_all():
    (every, _), runner = command_line(), CliRunner()
    for words in (["check", "--help"], ["check", "--nonsense"], ["check"]):
        alone, among = (
            runner.invoke(app, words, prog_name="weft") for app in (_alone("check"), every)
        )
        assert (alone.output, alone.exit_code) == (among.output, among.exit_code)
    # Groups, and the commands of plug-ins, come with all the others.
    assert [_alone(name) for name in ("keys", "demo", "data_list", "chekc", "--help")] == [None] * 5
