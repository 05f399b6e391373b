"""``weft reproduce hyfem``: the texts' settings, what is run, what is kept, and what is told."""

from __future__ import annotations

import json
import re
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

import weft
from weft.cli import main
from weft.errors import ConfigError, DataError
from weft_neural.curve_plots import apart
from weft_neural.extractors.registry import read_extractor_options
from weft_papers.hyfem import run_without_cli as hyfem_run
from weft_papers.hyfem import train_run as hyfem_training
from weft_papers.hyfem.command import EPILOG
from weft_papers.hyfem.report import rows_of, write_report
from weft_papers.hyfem.run_experiments import Study, done_before
from weft_papers.hyfem.run_result_file import RunFile, run_path
from weft_papers.hyfem.scenes import SCENES, Scene, Share
from weft_papers.hyfem.setups import Experiment, Setup, experiments, setup
from weft_papers.run_files import read_file, write_file

ROOT = Path(weft.__file__).parent
BLOCKS = ("a", "b", "c")
#: Imports outside of functions; parsing some hundred files takes seconds.
IMPORTS = re.compile(r"^(?:from (\S+) )?import (\([^)]*\)|.+)$", re.MULTILINE)
PARTS = ("training", "averaging", "matching")


@pytest.fixture
def scene(monkeypatch):
    """Four clouds in three blocks at two parties, who have the first block in common."""
    random = np.random.default_rng(3)
    centres = random.normal(size=(4, 6), scale=2)

    def drawn(count):
        labels = np.arange(count) % 4
        values = (centres[labels] + random.normal(size=(count, 6))).astype(np.float32)
        return {name: values[:, 2 * at : 2 * at + 2] for at, name in enumerate(BLOCKS)}, labels

    shares = (Share("p1", ("a", "b"), (0, 1, 2)), Share("p2", ("a", "c"), (1, 2, 3)))
    made = Scene("mfeat", *drawn(80), *drawn(40), tuple("wxyz"), shares)

    def load(name, data_dir, **options):
        if name != "mfeat":
            raise DataError(f"no files of {name}; put them there")
        return made

    monkeypatch.setattr("weft_papers.hyfem.scenes.load_scene", load)
    return made


def small(name="small", rounds=2, shared=None, variants=None, **changes):
    neural = {"coordinator_sees": "weights", "cipher": "plain", "rounds": 3, "steps": 4}
    neural |= {"hidden": [8], "blocks": {"*": {"options": {"hidden": [], "features": 4}}}}
    told = {"variants": variants} if variants else {}
    described = Experiment("Small", "ours", config=shared, **told)
    config = {"data": {"scene": "mfeat"}, "neural": neural}
    return Setup(name, described, config, changes={"rounds": rounds, **changes})


def forbid_training(monkeypatch):
    def refuse(*told, **more):
        raise AssertionError("a run was trained again")

    monkeypatch.setattr(hyfem_training, "train_run", refuse)


# ── what the texts say ────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("name", experiments())
def test_every_config_gives_settings_that_fit(name):
    chosen = setup(name)
    assert chosen.scene in SCENES
    for plan in chosen.plans(("p1",), ("a",)):
        settings = plan.settings(BLOCKS)
        for block in settings.blocks.values():
            read_extractor_options(block.extractor, block.options)
        assert len(settings.hidden) == 1


@pytest.mark.parametrize(
    ("names", "rounds", "extractor"),
    [
        (("cifar10", "eurosat"), 128, "resnet18"),
        (("modelnet40-1", "modelnet40-2", "c4-modelnet40-2"), 128, "resnet34"),
        (("c1-cifar10", "c1-eurosat"), 64, "resnet18"),
        (("c1-modelnet40",), 64, "resnet34"),
        (("2020-m4", "2020-m8"), 32, "resnet34"),
    ],
)
def test_rounds_steps_and_extractors_are_those_of_the_texts(names, rounds, extractor):
    for name in names:
        for plan in setup(name).plans(("p1",), ()):
            settings = plan.settings(BLOCKS)
            assert (settings.rounds, settings.steps) == (rounds, 32)
            assert {block.extractor for block in settings.blocks.values()} == {extractor}


def test_the_2020_text_has_three_methods_and_a_rate_that_falls():
    plans = list(setup("2020-m8").plans(("p1",), ()))
    found = [plan.settings(BLOCKS) for plan in plans if plan.kind == "hyfem"]
    assert [s.pulls for s in found] == [(0, 0), (1, 0.1), (1, 0.5)]
    assert {s.batch for s in found} == {32}
    rates = [found[0].rate_at(turn) for turn in (1, 8, 9, 17, 25)]
    np.testing.assert_allclose(rates, [0.005, 0.005, 0.001, 0.0002, 0.00004])


def test_the_ablation_changes_mu2_alone():
    plans = [p for p in setup("c4-mfeat").plans(("p1",), ()) if p.kind == "hyfem"]
    assert [plan.neural["mu2"] for plan in plans] == [0.1, 0.3, 0.5]
    rest = [{k: v for k, v in plan.neural.items() if k != "mu2"} for plan in plans]
    assert rest[0] == rest[1] == rest[2]


# ── what is run, and what is kept ─────────────────────────────────────────────────────────


def test_what_is_done_is_not_run_again_and_a_lost_run_comes_back_the_same(
    scene, tmp_path, monkeypatch
):
    study = Study(tmp_path / "out", device="cpu")
    found = study.take(small())
    assert list(found.runs) == ["hyfem", "central", "alone-p1", "alone-p2", "fedprox"]
    lost = run_path(tmp_path / "out", found.runs["hyfem"].plan)
    before = read_file(lost, RunFile)
    lost.unlink()
    trained = []
    train = hyfem_training.train_run
    monkeypatch.setattr(
        hyfem_training,
        "train_run",
        lambda s, p, *a, **k: trained.append(p.run) or train(s, p, *a, **k),
    )
    again = study.take(small()).runs["hyfem"]
    assert trained == ["hyfem"]
    for field in ("loss", "server_accuracy", "local_accuracy", "objective"):
        assert [r[field] for r in again.history] == [r[field] for r in before.history]


def test_runs_that_broke_off_or_were_set_otherwise_are_not_taken_for_done(scene, tmp_path):
    out = tmp_path / "out"
    plan = next(small().plans(("p1", "p2"), ("a",)))
    run = hyfem_training.train_run(small(), plan, scene, out, device="cpu")
    with pytest.raises(ConfigError, match=r"hyfem\.json holds a run with rounds = 2 instead of 3"):
        done_before(out, small(rounds=3), next(small(rounds=3).plans((), ())))
    run.finished = False
    write_file(run_path(out, plan), run)
    assert done_before(out, small(), plan) is None


def test_an_experiment_takes_over_equal_runs_of_the_one_it_shares_a_config_with(
    scene, tmp_path, monkeypatch
):
    study = Study(tmp_path / "out", device="cpu", kinds=("hyfem", "central"))
    first = study.take(small(mu2=0.1))
    forbid_training(monkeypatch)
    both = small("other", shared="small", variants={"x": {}}, mu2=0.1)
    taken = study.take(both)
    assert taken.runs["hyfem"].history == first.runs["hyfem"].history
    assert taken.runs["central"].plan.experiment == "other"
    with pytest.raises(AssertionError, match="trained again"):
        study.take(small("third", shared="small", mu2=0.2))


@pytest.mark.usefixtures("no_pictures")
def test_runs_from_elsewhere_are_drawn_without_their_data(scene, tmp_path, monkeypatch):
    out = tmp_path / "out"
    Study(out, device="cpu", kinds=("hyfem",)).take(small())

    def lacks(*told, **more):
        raise DataError("no files; put them there")

    monkeypatch.setattr("weft_papers.hyfem.scenes.load_scene", lacks)
    found = Study(out, device="cpu").take(small())
    assert list(found.runs) == ["hyfem"]
    assert found.lacking.startswith("central, alone-p1, alone-p2, fedprox not run: no files")
    assert write_report(out, [found], {}) == []
    with pytest.raises(DataError, match="no files"):
        Study(out, device="cpu").take(small("new"))


def test_a_party_alone_can_be_run_by_itself(scene, tmp_path, capsys):
    told = ["mfeat", "--out", str(tmp_path / "out"), "--device", "cpu", "--rounds", "1"]
    told += ["--only-run", "alone", "--party"]
    assert hyfem_run.main([*told, "p2", "--set", "steps=2", "rate=0.01"]) == 0
    files = list((tmp_path / "out").rglob("*.json"))
    assert [file.name for file in files] == ["alone-p2.json"]
    neural = read_file(files[0], RunFile).plan.neural
    assert (neural["steps"], neural["rate"]) == (2, 0.01)
    assert hyfem_run.main([*told, "p9"]) == 2
    assert "there is no party 'p9'; the parties are p1, p2" in capsys.readouterr().err


# ── what is told ──────────────────────────────────────────────────────────────────────────


@pytest.mark.usefixtures("rough_pictures")
def test_the_table_has_what_the_runs_measured(scene, tmp_path):
    out = tmp_path / "out"
    found = Study(out, device="cpu").take(small())
    write_report(out, [found], {})
    (row,) = pd.read_csv(out / "table.csv").to_dict("records")
    runs = {
        path.stem: json.loads(path.read_text())["history"]
        for path in (out / "small" / "runs").glob("*.json")
    }
    alone = [runs[f"alone-{party}"][-1]["local_accuracy"] for party in scene.parties]
    spent = np.array([[r[f"{p}_seconds"] for r in runs["hyfem"]] for p in PARTS]).sum(axis=1)
    expected = {
        "server": runs["hyfem"][-1]["server_accuracy"],
        "local_spread": runs["hyfem"][-1]["local_spread"],
        "central": runs["central"][-1]["local_accuracy"],
        "alone": np.mean(alone),
        "alone_spread": np.std(alone),
        "fedprox_server": runs["fedprox"][-1]["server_accuracy"],
        "seconds_per_round": spent.sum() / 2,
        "matching_share": spent[2] / spent.sum(),
    }
    assert {name: row[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    curves = pd.read_csv(out / "small" / "curves.csv")
    assert curves.groupby("run").size().to_dict() == dict.fromkeys(runs, 2)
    summary = json.loads((out / "summary.json").read_text())
    assert summary["experiments"]["small"]["trial"] == "trial of 2 of 3 rounds"
    # Beside the shapes of letters, matplotlib writes as a comment what they spell.
    assert "trial of 2 of 3 rounds" in (out / "small" / "accuracy.svg").read_text()
    assert rows_of(found)[0].rounds_of_text == 3


@pytest.mark.usefixtures("no_pictures")
def test_the_command_runs_what_it_has_data_for_and_lists_the_rest(
    scene, tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("COLUMNS", "140")
    told = ["reproduce", "hyfem", "--rounds", "1", "--no-baselines", "--out", str(tmp_path / "out")]
    with pytest.raises(SystemExit) as stop:
        main([*told, "--only", "mfeat", "--only", "eurosat"])
    said = capsys.readouterr().out
    assert stop.value.code in (None, 0)
    assert "1 of 64 rounds" in said
    assert "not run: eurosat: no files of eurosat" in said
    with pytest.raises(SystemExit):
        main([*told, "--only", "c4-mfeat"])
    table = pd.read_csv(tmp_path / "out" / "table.csv")
    assert table["experiment"].tolist() == ["c4-mfeat"] * 3 + ["mfeat"]
    capsys.readouterr()
    for rest, words in (
        (["--only", "eurosat"], "nothing was run; no files of eurosat"),
        (["--only", "mfeet"], "did you mean 'mfeat'?"),
        (["--only", "mfeat", "--seed", "1"], "holds a run with seed = None instead of 1"),
    ):
        with pytest.raises(SystemExit) as stop:
            main([*told, *rest])
        assert stop.value.code == 2
        assert words in " ".join(capsys.readouterr().err.split())


def test_the_help_names_every_experiment():
    named = re.findall(r"[\w-]+", EPILOG.partition("Experiments:")[2].partition("Example:")[0])
    assert [name for name in named if name in experiments()] == list(experiments())


def test_a_folder_with_something_else_stays_as_it_is(tmp_path):
    (tmp_path / "summary.json").write_text("{}")
    with pytest.raises(ConfigError, match="something else than runs of HyFEM"):
        Study(tmp_path)


@given(st.lists(st.floats(0, 1), max_size=8))
def test_labels_are_apart_in_order_and_inside(places):
    found = apart(places, 0.06, most=1.0)
    order = np.argsort(places, kind="stable")
    assert (np.diff(np.array(found)[order]) >= 0.06 - 1e-9).all()
    assert max(found, default=0) <= 1 + 1e-9
    if len(places) > 1 and np.diff(np.sort(places)).min() >= 0.06:
        # Sums of numbers far below what a pixel shows lose their last digits.
        np.testing.assert_allclose(found, places, atol=1e-12)


def test_training_loads_nothing_of_the_command_line():
    """Machines that train may lack the command line's packages."""
    seen, waiting = set(), ["weft_papers.hyfem.run_without_cli", "weft_papers.hyfem.train_run"]
    while waiting:
        module = waiting.pop()
        if module not in seen:
            seen.add(module)
            waiting += loaded_with(module)
    assert {
        "weft_neural.local_federation",
        "weft_papers.hyfem.scenes.cifar10_and_eurosat",
        "torch",
    } <= seen
    foreign = {module.split(".")[0] for module in seen}
    assert not foreign & {"typer", "rich", "click", "sklearn", "matplotlib"}


def loaded_with(module):
    """What a file of Weft, and the packages it lies in, import when they are loaded."""
    if not module.startswith("weft"):
        return []
    base = ROOT.parent.joinpath(*module.split("."))
    path = base / "__init__.py" if base.is_dir() else base.with_suffix(".py")
    if not path.exists():
        return []
    found = [module.rpartition(".")[0]]
    for module, names in IMPORTS.findall(path.read_text()):
        listed = [name.split(" as ")[0].strip() for name in names.strip("()").split(",")]
        found += [module, *(f"{module}.{name}" for name in listed)] if module else listed
    return found
