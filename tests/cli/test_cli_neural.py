"""``weft neural``: runs from files and scenes, predictions, the demo, and what is refused how."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from weft_neural.trained_model import NeuralModel  # noqa: E402
from weft_papers.hyfem.scenes import SCENES  # noqa: E402

CONFIG = """
name = "three clinics"

[data]
id = "patient"
label = "outcome"

[neural]
coordinator_sees = "weights"
rounds = 6
steps = 16
rate = 0.2
hidden = [8]
test_share = 0.25

[neural.matching]
sweeps = 2

[neural.blocks.mri]
columns = ["mri_*"]
options = { hidden = [8], features = 6 }

[neural.blocks.blood]
extractor = "linear"
options = { features = 4 }

[neural.blocks.gait]
extractor = "identity"

[privacy]
allow_networks = true
coordinator_sees = "weights"

[[party]]
name = "north"
file = "north.csv"

[[party]]
name = "south"
file = "south.csv"

[[party]]
name = "west"
file = "west.csv"
"""

COLUMNS = ["mri_2", "mri_10", "blood.x", "blood.y", "gait_1"]
#: Samples and columns of each party; the order of columns is each party's own.
HELD = {
    "north": (slice(0, 60), ["mri_10", "mri_2", "blood.x", "blood.y"]),
    "south": (slice(50, 110), ["gait_1", "blood.y", "blood.x"]),
    "west": (slice(100, 150), ["mri_2", "mri_10", "gait_1"]),
}


class Clinics:
    """Three parties with two of three blocks each, and their config."""

    def __init__(self, folder):
        self.folder = folder
        rng = np.random.default_rng(0)
        kinds = rng.integers(0, 3, 150)
        centres = rng.normal(size=(3, len(COLUMNS)))
        values = 3 * centres[kinds] + rng.normal(size=(150, len(COLUMNS)))
        table = pd.DataFrame(values, columns=COLUMNS)
        table.insert(0, "patient", [f"n{number:03d}" for number in range(150)])
        self.table = table.assign(outcome=np.array(["ill", "unsure", "well"])[kinds])
        self.files = {
            name: self.table.iloc[rows][["patient", *columns, "outcome"]]
            for name, (rows, columns) in HELD.items()
        }
        self.config = CONFIG

    def change(self, old, new):
        assert old in self.config
        self.config = self.config.replace(old, new)

    def write(self):
        for name, table in self.files.items():
            table.to_csv(self.folder / f"{name}.csv", index=False)
        path = self.folder / "config.toml"
        path.write_text(self.config, encoding="utf-8")
        return path


@pytest.fixture
def clinics(tmp_path):
    folder = tmp_path / "clinics"
    folder.mkdir()
    return Clinics(folder)


def names_in(folder):
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


@pytest.mark.usefixtures("no_pictures")
def test_a_run_from_files_leaves_models_that_predict_with_the_blocks_that_files_have(
    weft, clinics, tmp_path
):
    done = weft("neural", "run", clinics.write(), "--out", "found", "--baselines")
    assert done.code == 0, done.err
    assert done.err == ""
    folder = tmp_path / "found"
    assert names_in(folder) == {
        *("model.npz", "history.csv", "history.parquet", "rivals.csv", "summary.json"),
        *("accuracy.png", "accuracy.svg", "config.toml", "report.html"),
        *(f"parties/{party}/{end}.npz" for party in HELD for end in ("own", "received")),
    }
    summary = json.loads((folder / "summary.json").read_text())
    history = pd.read_csv(folder / "history.csv")
    assert history["turn"].tolist() == list(range(1, 7))
    assert summary["loss"] == history["loss"].iloc[-1] < history["loss"].iloc[0] / 2
    assert {name: told["blocks"] for name, told in summary["federation"].items()} == {
        "north": ["mri", "blood"],
        "south": ["blood", "gait"],
        "west": ["mri", "gait"],
    }
    assert summary["compared"]["central"] is None
    assert "FedProx is not compared: no block is at every party" in done.out
    assert f"{summary['accuracy']['own']:.1%}" in done.out
    predictions_follow_the_columns(weft, clinics, folder)


def predictions_follow_the_columns(weft, clinics, folder):
    """All blocks, then one: the answers are those of the model on arrays put together by hand."""
    new, model = clinics.table, NeuralModel.load(folder / "model.npz")
    new.sample(frac=1, axis=1, random_state=0).to_csv("all.csv", index=False)
    arguments = ("neural", "predict", folder / "model.npz")
    done = weft(*arguments, "all.csv", "--id", "patient", "--probabilities")
    assert (done.code, done.err) == (0, "")
    blocks = {"mri": COLUMNS[:2], "blood": COLUMNS[2:4], "gait": COLUMNS[4:]}
    inputs = {name: new[columns].to_numpy() for name, columns in blocks.items()}
    (folder / "told.csv").write_text(done.out)
    told = pd.read_csv(folder / "told.csv")
    assert told["id"].tolist() == new["patient"].tolist()
    chances = told[[f"probability {value}" for value in ("ill", "unsure", "well")]].to_numpy()
    np.testing.assert_allclose(chances, model.probabilities(inputs), atol=1e-6)
    assert (told["prediction"] == new["outcome"]).mean() > 0.7

    new[["patient", "mri_10", "mri_2"]].to_csv("scans.csv", index=False)
    done = weft(*arguments, "scans.csv", "--id", "patient", "--out", "part.csv")
    assert "no columns of blood, gait; using the part of the model for mri" in done.err
    found = pd.read_csv("part.csv")["prediction"].tolist()
    assert found == model.restricted(["mri"]).predict({"mri": inputs["mri"]}).tolist()
    # The same from all columns, by name; and the two files joined by id are all blocks but one.
    named = weft(*arguments, "all.csv", "--id", "patient", "--blocks", "mri")
    assert (named.err, named.out.splitlines()[1:]) == (
        "",
        [f"{i},{kind}" for i, kind in zip(new["patient"], found, strict=True)],
    )
    new[["patient", "gait_1"]].iloc[:20].to_csv("steps.csv", index=False)
    done = weft(*arguments, "scans.csv", "steps.csv", "--id", "patient")
    assert done.code == 2
    assert "sample 'n020' and 129 more lack some of the blocks mri, gait" in done.err
    assert "no block 'brain'" in weft(*arguments, "all.csv", "--blocks", "brain").err


SCENE = """
[data]
scene = "digits"
options = { samples = 150, test_samples = 60 }

[neural]
coordinator_sees = "weights"
rounds = 2
steps = 2

[neural.blocks."*"]
extractor = "mlp"
options = { hidden = [], features = 8 }

[neural.blocks.top_right]
options = { channels = [4], features = 8 }
"""


@pytest.mark.usefixtures("no_pictures")
def test_a_scene_knows_its_blocks_and_is_compared_with_all_rivals(weft, tmp_path):
    (tmp_path / "scene.toml").write_text(SCENE)
    done = weft("neural", "run", "scene.toml", "--baselines", "--record", "--json")
    assert done.code == 0, done.err
    told = json.loads(done.out)
    assert told["folder"] == "results/scene"
    blocks = told["model"]["blocks"]
    # What is described by name gets what suits images, the rest what * says.
    assert {name: block["extractor"] for name, block in blocks.items()} == {
        "top_left": "mlp",
        "top_right": "cnn",
        "bottom_left": "mlp",
        "bottom_right": "mlp",
    }
    assert told["compared"]["common_blocks"] == ["top_left", "bottom_left"]
    for accuracy in (
        *(told["accuracy"][name] for name in ("server", "own", "received")),
        *(told["compared"][name] for name in ("central", "alone")),
        told["compared"]["fedprox"]["server"],
    ):
        assert 0 < accuracy < 1
    curves = pd.read_csv(tmp_path / "results/scene/rivals.csv")
    assert curves.groupby("curve")["turn"].apply(list).to_dict() == {
        name: [1, 2] for name in ("central", "alone", "FedProx server", "FedProx own")
    }
    audited = weft("audit", "results/scene")
    assert audited.code == 0, audited.err
    assert "neural.train" in audited.out
    again = weft("neural", "run", "scene.toml")
    assert again.code == 2
    assert "results/scene exists" in again.err


# ── refusals ──────────────────────────────────────────────────────────────────────────────


def nobody_agreed_to_show_weights(c):
    c.change('[neural]\ncoordinator_sees = "weights"\n', "[neural]\n")


def nobody_allows_networks(c):
    c.change("allow_networks = true\n", "")


def an_unknown_extractor(c):
    c.change('"linear"', '"liner"')


def an_unknown_option(c):
    c.change("{ features = 4 }", "{ feature = 4 }")


def an_unknown_setting(c):
    c.change("rounds = 6", "round = 6")


def a_pattern_of_no_column(c):
    c.change('["mri_*"]', '["mri_*", "mro_*"]')


def a_block_of_nobody(c):
    c.change("[neural.blocks.gait]", "[neural.blocks.walk]")


def no_blocks_at_all(c):
    start, end = c.config.index("[neural.blocks.mri]"), c.config.index("[privacy]")
    c.config = c.config[:start] + c.config[end:]


def a_party_without_labels(c):
    c.change('file = "south.csv"', 'file = "south.csv"\nlabel = false')
    c.files["south"] = c.files["south"].drop(columns="outcome")


def other_columns_at_another_party(c):
    c.files["west"] = c.files["west"].rename(columns={"mri_2": "mri_3"})


def a_column_of_two_blocks(c):
    c.change('extractor = "identity"', 'extractor = "identity"\ncolumns = ["gait_1", "mri_2"]')


def a_blank_cell(c):
    c.files["north"] = c.files["north"].assign(mri_2=np.nan)


def a_rate_that_blows_up(c):
    c.change("rate = 0.2", "rate = 1e9\nmethod = 'avg'")


def a_scene_and_parties(c):
    c.change('label = "outcome"', 'scene = "digits"')


def a_section_of_linear_models(c):
    c.config += "\n[solver]\ngap = 1e-3\n"


REFUSALS = {
    nobody_agreed_to_show_weights: "set coordinator_sees = 'weights' if that is agreed",
    nobody_allows_networks: 'write allow_networks = true and coordinator_sees = "weights" under',
    an_unknown_extractor: "unknown extractor 'liner' (the closest is 'linear')",
    an_unknown_option: "extractor 'linear' do not fit",
    an_unknown_setting: "[neural] has no key 'round' (did you mean 'rounds'?)",
    a_pattern_of_no_column: "no party has a column 'mro_*' (the closest is 'mri_",
    a_block_of_nobody: "no party has block walk",
    no_blocks_at_all: "need a [neural.blocks.NAME] for every block",
    a_party_without_labels: "party south has no labels",
    other_columns_at_another_party: "north and west have different columns in block mri",
    a_column_of_two_blocks: "column mri_2 belongs to the blocks mri and gait",
    a_blank_cell: "column 'mri_2' has no value for sample 'n000'",
    a_rate_that_blows_up: "lower rate",
    a_scene_and_parties: "[data] scene and [[party]] exclude each other",
    a_section_of_linear_models: "the config has no key 'solver'",
}


@pytest.mark.parametrize("mistake", REFUSALS, ids=lambda mistake: mistake.__name__)
def test_a_mistake_is_one_sentence_and_leaves_nothing(weft, clinics, tmp_path, mistake):
    mistake(clinics)
    path = clinics.write()
    before = names_in(tmp_path)
    done = weft("neural", "run", path, "--record")
    assert done.code == 2
    assert REFUSALS[mistake] in done.err
    assert done.err.startswith("weft: ")
    assert done.err.count("\n") == 1
    assert done.out == ""
    assert names_in(tmp_path) == before
    assert not (tmp_path / "results").exists()


def test_without_pytorch_a_sentence_names_the_extra(weft, clinics, monkeypatch):
    path = clinics.write()
    monkeypatch.setitem(sys.modules, "torch", None)
    for arguments in (("run", path), ("demo",), ("predict", "model.npz", "new.csv")):
        done = weft("neural", *arguments)
        assert done.code == 2
        assert "pip install 'weft[neural]'" in done.err
        assert done.err.count("\n") == 1
    assert weft("neural", "extractors").code == 0
    assert weft("neural", "scenes").code == 0


def test_train_and_neural_run_point_to_each_other(weft, clinics, hospitals):
    assert "weft neural run" in weft("train", clinics.write()).err
    assert "weft train" in weft("neural", "run", hospitals.write()).err


def test_keys_are_made_for_the_parties_of_a_neural_config(weft, clinics, tmp_path):
    done = weft("keys", "new", "keys", "--config", clinics.write(), "--json")
    assert done.code == 0, done.err
    assert list(json.loads(done.out)["parties"]) == list(HELD)


def test_baselines_need_something_to_measure_with(weft, clinics):
    clinics.change("test_share = 0.25\n", "")
    done = weft("neural", "run", clinics.write(), "--baselines")
    assert (done.code, "test_share = 0.2" in done.err) == (2, True)


# ── demo and lists ────────────────────────────────────────────────────────────────────────


@pytest.mark.release
def test_the_demo_compares_hyfem_with_three_rivals(weft, tmp_path):
    done = weft("neural", "demo", "--rounds", 1)
    assert done.code == 0, done.err
    for name in ("HyFEM, server", "central", "alone", "FedProx, server"):
        assert name in done.out
    assert "top_left and bottom_left are common to all" in done.out
    summary = json.loads((tmp_path / "results/neural-demo/summary.json").read_text())
    assert summary["rounds"] == 1
    assert f"{summary['compared']['central']:.1%}" in done.out
    page = (tmp_path / "results/neural-demo/report.html").read_text("utf-8")
    # What everybody agreed to show stands first, and scores beside the most frequent class.
    assert page.index("Exposed:") < page.index("always the most frequent class")
    assert "results/neural-demo/report.html" in done.out


def test_lists_name_everything(weft):
    done = weft("neural", "scenes")
    assert all(name in done.out for name in SCENES)
    assert "hidden = [64], features = 32" in weft("neural", "extractors").out
