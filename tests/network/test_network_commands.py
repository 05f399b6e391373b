"""``weft serve``, ``join``, ``submit``, ``status`` and ``stop``: mistakes are one sentence each.

All of these end before the engine starts; what comes after is tested with real processes.
"""

import socket
from dataclasses import asdict, replace

import pytest
from kitted import ANNA, kit_of, sentence, write

from weft.algorithms.base import Record
from weft.cli import network
from weft.keys import new_keys
from weft.network.engine import processes
from weft.network.joining import JoinSettings, open_site, read_settings, write_settings
from weft.network.kits.reading import Kit

TABLE = "id,age,y\na,1,0\nb,2,1\nc,3,1\n"


@pytest.fixture
def site(place, tmp_path, monkeypatch):
    """What site south has beside its kit; nothing is ever connected."""
    monkeypatch.setattr(Kit, "home", property(lambda kit: tmp_path / "home"))
    monkeypatch.setattr(Kit, "local", property(lambda kit: tmp_path / "local"))
    (tmp_path / "home").mkdir()
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "resources.json").write_text("{}")
    write(tmp_path / "table.csv", TABLE)
    new_keys(tmp_path / "keys", ("north", "south"))
    return tmp_path


@pytest.mark.parametrize(
    ("command", "name", "words"),
    [
        (["serve"], "south", "weft serve needs the coordinator's"),
        (["join"], "coordinator", "weft join needs a site's"),
        (["status"], "coordinator", "weft submit needs a submitter's"),
        (["stop"], "south", "weft submit needs a submitter's"),
    ],
)
def test_a_kit_of_another_kind_is_refused(place, weft, command, name, words):
    assert words in sentence(weft(*command, kit_of(place, name)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "--data"),
        (["--data", "table.csv"], "--id"),
        (["--data", "table.csv", "--id", "id"], "--keys"),
        (["--data", "none.csv", "--id", "id", "--keys", "keys"], "none.csv"),
        (["--data", "table.csv", "--id", "patient", "--keys", "keys"], "patient"),
        (["--data", "table.csv", "--id", "id", "--label", "no", "--keys", "keys"], "no"),
        (["--data", "table.csv", "--id", "id", "--keys", "elsewhere"], "elsewhere"),
        (["--data", "table.csv", "--id", "id", "--keys", "keys", "--policy", "p"], "policy"),
        (["--data", "table.csv", "--id", "id", "--keys", "keys", "--party", "north"], "north"),
    ],
)
def test_a_site_that_lacks_something_is_told_before_anything_starts(
    place, site, weft, options, words, monkeypatch
):
    monkeypatch.setattr(processes, "join", lambda *_: pytest.fail("was started"))
    assert words in sentence(weft("join", kit_of(place, "south"), *options))


def test_where_a_sites_things_lie_is_named_once_only(place, site, weft, monkeypatch):
    joined = []
    monkeypatch.setattr(processes, "join", lambda kit, found, wait: joined.append((kit, wait)))
    kit = kit_of(place, "south")
    options = ["--data", "table.csv", "--id", "id", "--label", "y", "--keys", "keys"]
    assert weft("join", kit, *options)[0] == 0
    assert weft("join", kit, "--wait", "7")[0] == 0
    assert [wait for _, wait in joined] == [60.0, 7.0]
    kept = read_settings(Kit.open(kit))
    assert (kept.party, kept.id, kept.label) == ("south", "id", "y")
    assert kept.data == [str(site / "table.csv")]
    assert (site / "local" / "weft.json").stat().st_mode & 0o077 == 0


def test_settings_that_are_damaged_are_told(place, site, weft):
    write(site / "local" / "weft.json", '{"party": 7}')
    assert "weft.json" in sentence(weft("join", kit_of(place, "south")))


def test_a_site_is_opened_from_what_it_kept(place, site):
    kit = Kit.open(kit_of(place, "south"))
    settings = JoinSettings(
        party="south", data=[str(site / "table.csv")], id="id", label="y", keys=str(site / "keys")
    )
    write_settings(kit, settings)
    assert read_settings(kit) == settings
    opened = open_site(settings, kit)
    assert opened.runs() == []
    opened.close()


def test_an_absent_coordinator_is_one_sentence(place, weft, tmp_path, monkeypatch):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    look = Kit.look.__func__
    monkeypatch.setattr(
        Kit, "look", classmethod(lambda cls, path: replace(look(cls, path), port=port))
    )
    config = write(tmp_path / "config.toml", "[model]\nlambda = 0.1\n[solver]\ngap = 0.1\n")
    for command in (["status"], ["stop"], ["submit", config]):
        said = sentence(weft(command[0], kit_of(place, ANNA), *command[1:]))
        assert f"localhost:{port} cannot be reached" in said


def test_a_submission_with_half_a_reader_or_a_full_folder_is_refused(place, weft, tmp_path):
    config = write(tmp_path / "config.toml", "[model]\nlambda = 0.1\n[solver]\ngap = 0.1\n")
    said = sentence(weft("submit", kit_of(place, ANNA), config, "--keys", "keys"))
    assert "--party" in said
    (tmp_path / "out").mkdir()
    write(tmp_path / "out" / "something", "")
    said = sentence(weft("submit", kit_of(place, ANNA), config, "--out", "out"))
    assert "out exists" in said


def test_a_line_about_a_run_says_who_answers_and_what_it_cost():
    record = asdict(Record(3, 1, 9, 2e6, 1e6, 0.0, 0.0, primal=0.5, gap=0.01, certified_at=2))
    line = network.report_text(record, ["north", "south"], {"south": "is not connected"})
    for part in ("iteration 3", "loss 0.5", "9 round trips", "3.0 MB", "1 of 2", "without south"):
        assert part in line
