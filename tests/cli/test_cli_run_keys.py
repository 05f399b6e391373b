"""Runs with keys from files: ``--keys FOLDER`` and ``[keys] folder`` in a config."""

import shutil

import pytest

from weft.crypto.keys import ephemeral_keys, load_all, new_keys, read_public
from weft.data import Tile
from weft.errors import ConfigError
from weft.federation.local_federation import Federation
from weft.federation.local_joint_prediction import predict_scores
from weft.federation.model import load_model
from weft.protocol.recording_file import Recording

pytestmark = pytest.mark.usefixtures("no_pictures")

PARTIES = ["north", "south"]


@pytest.fixture
def keys(tmp_path):
    new_keys(tmp_path / "keys", PARTIES)
    return tmp_path / "keys"


@pytest.fixture
def quick(hospitals):
    """The hospitals, soon content with a model."""
    hospitals.change("gap = 1e-2", "gap = 5e-1")
    return hospitals


def sentence(outcome):
    """What a refusal says: one line on stderr, nothing on stdout."""
    assert outcome.code == 2
    assert not outcome.out
    assert outcome.err.count("\n") == 1
    return outcome.err


def announced(path):
    """Public keys and marks of the run secret that the parties of a recording announced."""
    replies = [
        entry
        for entry in Recording(path).entries()
        if entry.phase == "announce" and entry.direction == "up"
    ]
    public = {entry.party: entry.message["keys.public"] for entry in replies}
    return public, {entry.message["keys.mark"] for entry in replies}


def test_training_uses_the_identities_and_the_secret_of_the_folder(weft, quick, keys, tmp_path):
    """And finds the model that it finds without."""
    config = quick.write()
    assert weft("train", config, "--out", "fresh").code == 0
    for name in ("one", "two"):
        outcome = weft("train", config, "--keys", keys, "--record", "--out", name)
        assert outcome.code == 0, outcome.err
    members = read_public(keys).members
    expected = {name: members[name].to_bytes() for name in PARTIES}
    (first, marks), (second, others) = (
        announced(tmp_path / name / "messages.weft") for name in ("one", "two")
    )
    assert first == second == expected
    # The mark goes with the run too: two runs under one secret cannot be told to share it.
    assert len(marks) == len(others) == 1
    assert marks != others
    fresh, *kept = (load_model(tmp_path / name / "model.npz") for name in ("fresh", "one", "two"))
    assert all((fresh.coef == model.coef).all() for model in kept)


def test_a_config_names_the_folder_beside_it(weft, quick, keys, tmp_path):
    shutil.move(keys, quick.folder / "own keys")
    quick.change(
        '[[party]]\nname = "north"', '[keys]\nfolder = "own keys"\n\n[[party]]\nname = "north"'
    )
    config = quick.write()
    assert weft("train", config, "--record", "--out", "results").code == 0
    public, _ = announced(tmp_path / "results" / "messages.weft")
    members = read_public(quick.folder / "own keys").members
    assert public == {name: members[name].to_bytes() for name in PARTIES}
    # The command line has the last word.
    new_keys(tmp_path / "others", PARTIES)
    assert weft("train", config, "--keys", "others", "--record", "--out", "more").code == 0
    public, _ = announced(tmp_path / "more" / "messages.weft")
    assert public["north"] == read_public(tmp_path / "others").members["north"].to_bytes()


def test_joint_prediction_takes_keys(weft, quick, keys, tmp_path):
    config = quick.write()
    assert weft("train", config, "--out", "results").code == 0
    model = "results/model.npz"
    plain = weft("predict", model, "--joint", config)
    outcome = weft("predict", model, "--joint", config, "--keys", keys, "--record", "m.weft")
    assert outcome.code == 0, outcome.err
    assert outcome.out == plain.out
    public, _ = announced(tmp_path / "m.weft")
    assert public["south"] == read_public(keys).members["south"].to_bytes()
    said = sentence(weft("predict", model, quick.folder / "north.csv", "--keys", keys))
    assert "--keys, --record and --ledger are for --joint" in said
    (keys / "south" / "identity.key").chmod(0o644)
    assert "south" in sentence(weft("predict", model, "--joint", config, "--keys", keys))


def everything_below(folder):
    return sorted(path for path in folder.rglob("*"))


def with_another_run(folder, tmp_path):
    """South's folder is of an earlier run secret than public.json."""
    shutil.copytree(folder / "south", tmp_path / "old")
    new_keys(folder, PARTIES, renew_run=True)
    shutil.rmtree(folder / "south")
    shutil.move(tmp_path / "old", folder / "south")


@pytest.mark.parametrize("command", ["train", "check"])
@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda f, t: shutil.rmtree(f), ["public.json does not exist", "weft keys new"]),
        (with_another_run, ["party south holds another run secret than the others", "--renew-run"]),
        (lambda f, t: (f / "north" / "identity.key").chmod(0o640), ["party north", "chmod 600"]),
        (lambda f, t: (f / "north").chmod(0o755), ["party north", "chmod 700"]),
        (lambda f, t: shutil.rmtree(f / "south"), ["party south: its private keys"]),
        (
            lambda f, t: (shutil.rmtree(f), new_keys(f, ["north", "west"])),
            ["has no keys of south, only of north, west"],
        ),
    ],
)
def test_unsuitable_keys_stop_a_run_before_it_begins(
    weft, quick, keys, tmp_path, command, spoil, words
):
    quick.change(
        '[[party]]\nname = "north"', '[keys]\nfolder = "../keys"\n\n[[party]]\nname = "north"'
    )
    config = quick.write()
    spoil(keys, tmp_path)
    before = everything_below(tmp_path)
    options = ["--record"] if command == "train" else []
    said = sentence(weft(command, config, *options))
    for word in words:
        assert word in said
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[keys]", "[keys] needs folder"),
        ('[keys]\nfolder = ""', "[keys] needs folder"),
        ("[keys]\nfolder = 3", "[keys] folder: expected text"),
        ('[keys]\nfoldr = "keys"', "did you mean 'folder'?"),
    ],
)
def test_a_section_without_a_folder_is_one_sentence(weft, quick, section, words):
    quick.change('[[party]]\nname = "north"', f'{section}\n\n[[party]]\nname = "north"')
    assert words in sentence(weft("train", quick.write()))


def test_keys_in_place_of_a_section_are_one_sentence(weft, quick):
    quick.change('name = "two hospitals"', 'name = "two hospitals"\nkeys = "keys"')
    assert "keys must be a section [keys]" in sentence(weft("train", quick.write()))


def test_the_library_wants_the_keys_of_all_parties(keys):
    tiles = {name: (Tile.make(["a", "b"], ["x"], [[1.0], [2.0]], [0, 1]),) for name in "ab"}
    with pytest.raises(ConfigError, match="there are no keys of a, b"):
        Federation(tiles, keys=load_all(keys, PARTIES))
    with pytest.raises(ConfigError, match="there are no keys of b"):
        predict_scores(None, tiles, keys=ephemeral_keys(["a"]))


def test_a_run_can_be_resumed_with_its_keys(weft, hospitals, keys, tmp_path, monkeypatch):
    from weft.cli.terminal_output import ProgressLine

    hospitals.change("gap = 1e-2", "gap = 1e-9\ncheckpoint_every = 2")
    hospitals.change("iterations = 500", "iterations = 6")
    config = hospitals.write()
    assert weft("train", config, "--keys", keys, "--out", "whole").code == 0

    def interrupt(self, record):
        if record.iteration == 5:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProgressLine, "__call__", interrupt)
        assert weft("train", config, "--keys", keys, "--out", "cut").code == 130
    outcome = weft("train", config, "--keys", keys, "--out", "cut", "--resume")
    assert outcome.code == 0, outcome.err
    whole, cut = (load_model(tmp_path / name / "model.npz") for name in ("whole", "cut"))
    assert (whole.coef == cut.coef).all()
