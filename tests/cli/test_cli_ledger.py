"""``weft ledger`` shows the past, and training says when a threshold was crossed."""

import json
import shutil
from pathlib import Path

import pytest

from weft.privacy.ledger.ledger_file import Book

pytestmark = pytest.mark.usefixtures("no_pictures")

CONFIG = """
name = "two hospitals"

[data]
dataset = "breast_cancer"
split = { name = "columns", parties = 2 }
scaling = "standard"
unit_rows = true

[model]
loss = "hinge"
lambda = 1e-2

[solver]
gap = 1e-2

[privacy]
allow_pairs = true
allow_exposure = true
"""


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    """Where the first of these tests leaves what its run said and wrote for the others."""
    return tmp_path_factory.mktemp("kept")


@pytest.fixture
def trained(weft, tmp_path, kept):
    """A folder with one run; what that said."""
    if not (kept / "said").exists():
        (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")
        outcome = weft("train", "config.toml", "--out", "one")
        assert outcome.code == 0
        shutil.copytree(tmp_path, kept, dirs_exist_ok=True)
        (kept / "said").write_text(outcome.out, encoding="utf-8")
    shutil.copytree(kept, tmp_path, dirs_exist_ok=True)
    return Path("said").read_text(encoding="utf-8")


def test_every_run_adds_a_line_and_its_sums(trained, weft):
    first = json.loads(weft("ledger", "ledger", "--json").out)
    assert set(first) == {"p1", "p2"}
    weft("train", "config.toml", "--out", "two")
    second = json.loads(weft("ledger", "ledger", "--json").out)
    for party, before in first.items():
        after = second[party]
        assert [run["federation"] for run in after["runs"]] == ["two hospitals"] * 2
        (group,), (more,) = before["groups"], after["groups"]
        assert group["samples"] == more["samples"] == 569
        assert more["received"] == [2 * count for count in group["received"]]
        assert group["foreign"] == group["fewest"] == [15, 15]
    told = " ".join(weft("ledger", "ledger").out.split())
    assert "p1: 569 samples, 2 runs" in told
    count = second["p1"]["groups"][0]["received"][0]
    assert f"569 samples: got {count} sums, lacks 15 columns" in told
    one = weft("ledger", "ledger", "--party", "p2").out
    assert "p2: 569 samples" in one
    assert "p1: 569 samples" not in one


def test_training_says_once_the_threshold_is_crossed(trained, weft):
    sentence = "as many sums as they lack columns"
    assert sentence not in trained
    for number in range(3):
        outcome = weft("train", "config.toml", "--out", f"more{number}")
    lines = [line for line in outcome.out.splitlines() if sentence in line]
    assert len(lines) == 1
    assert "p1 of 569 samples and p2 of 569 samples; see weft ledger ledger" in lines[0]
    assert "(REACHED)" in weft("ledger", "ledger").out


def test_another_folder_can_be_named(weft, tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG, encoding="utf-8")
    assert weft("train", "config.toml", "--ledger", "safe/place").code == 0
    assert not (tmp_path / "ledger").exists()
    assert set(json.loads(weft("ledger", "safe/place", "--json").out)) == {"p1", "p2"}


def test_a_joint_prediction_is_in_the_ledger(hospitals, weft):
    config = hospitals.write()
    assert weft("train", config, "--out", "one").code == 0
    folder = config.parent / "ledger"
    before = json.loads(weft("ledger", folder, "--json").out)["north"]
    assert weft("predict", "one/model.npz", "--joint", config, "--out", "p.csv").code == 0
    after = json.loads(weft("ledger", folder, "--json").out)["north"]
    assert [run["kind"] for run in after["runs"]] == ["train", "predict"]
    assert after["groups"][0]["received"][0] == before["groups"][0]["received"][0] + 1
    assert "predict" in weft("ledger", folder).out


def test_a_damaged_ledger_is_one_sentence_in_every_command(trained, weft, tmp_path):
    Book(tmp_path / "ledger", "p2").path.write_bytes(b"not a ledger")
    for command in (
        ("train", "config.toml", "--out", "two"),
        ("check", "config.toml"),
        ("ledger", "ledger"),
    ):
        outcome = weft(*command)
        assert outcome.code == 2, command
        assert "ledger of party p2 cannot be read" in outcome.err
        assert outcome.err.count("\n") == 1
    assert not (tmp_path / "two").exists()
    assert weft("ledger", "ledger", "--party", "nobody").code == 2


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("nowhere",), "there is no ledger folder nowhere"),
        (("empty",), "empty holds no ledger"),
        (("ledger", "--party", "p9"), "no ledger of a party 'p9'; there are p1, p2"),
    ],
)
def test_what_is_not_there_is_one_sentence(trained, weft, tmp_path, arguments, words):
    (tmp_path / "empty").mkdir()
    outcome = weft("ledger", *arguments)
    assert outcome.code == 2
    assert words in outcome.err
    assert outcome.err.count("\n") == 1
