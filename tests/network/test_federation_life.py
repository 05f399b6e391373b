"""The life of a federation: who comes, who leaves, keys and machines that change."""

from __future__ import annotations

import json
import shutil
import zipfile
from contextlib import redirect_stdout
from io import StringIO

import pytest
from cryptography.hazmat.primitives.asymmetric import rsa
from founded import ANNA, Founded
from kitted import certificate_of, refusal, sentence, shake_hands

from weft.cli import main
from weft.crypto.keys import load_keys
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.network.kits import certificate_requests, provisioning
from weft.network.kits.coordinator_move_letter import follow, read_address
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes import prune_runs
from weft.network.run_progress import Report
from weft.network.run_progress_file import RunFigures, figures_of_run, write_figures
from weft.network.site_run_index import RunIndex
from weft.privacy.ledger.ledger_file import Book

THREE = ("north", "south", "west")


@pytest.fixture(scope="module")
def first(tmp_path_factory, key):
    """Founded once; its TLS keys are all the same, and cost nothing."""

    def run(*arguments):
        with redirect_stdout(StringIO()), pytest.raises(SystemExit) as stop:
            main([str(argument) for argument in arguments])
        return stop.value.code, "", ""

    federation = Founded(tmp_path_factory.mktemp("founded"), run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(provisioning, "new_key", lambda: key)
        patch.setattr(certificate_requests, "new_key", lambda: key)
        patch.setattr("nvflare.lighter.utils.generate_keys", lambda: (key, key.public_key()))
        federation.found(*THREE)
    return federation


@pytest.fixture
def founded(first, tmp_path, weft, quick):
    return first.copied(tmp_path, weft)


@pytest.fixture(scope="module")
def alone(first, tmp_path_factory):
    """The bits of a run to which nothing happens."""
    calm = first.copied(tmp_path_factory.mktemp("calm"), first._weft)
    return calm.run("a-1").coef.tobytes()


def amended(founded, *changes):
    """The next roster, not signed yet."""
    path = founded.folder / "roster-2.json"
    said = founded.weft("federation", "amend", founded.folder / "roster-1.json", path, *changes)
    return path, said


# ── members ───────────────────────────────────────────────────────────────────────────────────


def test_a_party_that_comes_later_takes_part_in_the_next_run(founded):
    first = founded.run("a-1")
    card = founded.card("east")
    roster, said = amended(founded, card, "--labels", "east", "--model", "east")
    assert "- east comes" in said
    four = (*THREE, "east")
    founded.sign(roster, four)
    founded.hand_out_secret(roster, four)
    request, requests = founded.request("east")
    plan = founded.plan(four)
    founded.weft("federation", "add", plan, "east", "--out", founded.kits, "--requests", requests)
    founded.install("east", request)
    founded.table("east", 3)
    for name in four:
        founded.join(name, roster)
    second = founded.run("b-1", four)
    assert set(second.features) - set(first.features) == {"east1", "east2"}
    # Of the terms nothing has changed, and the old roster does not count any more.
    before, now = (json.loads(founded.weft("federation", "show", path, "--json"))["roster"]
                   for path in (founded.folder / "roster-1.json", roster))  # fmt: skip
    assert (before["terms"], before["limits"]) == (now["terms"], now["limits"])
    assert (before["serial"], now["serial"]) == (1, 2)
    founded.join("north", founded.folder / "roster-1.json")
    with pytest.raises(ConfigError, match="has serial 1, but this site has seen 2"):
        founded.run("c-1", THREE)


def test_a_member_that_left_gets_no_run_secret_and_no_run(founded):
    roster, said = amended(founded, "--remove", "west")
    assert "- west leaves" in said
    both = ("north", "south")
    founded.sign(roster, both)
    founded.hand_out_secret(roster, both)
    for name in both:
        founded.join(name, roster)
    assert len(founded.run("a-1", both).features) == 4
    with pytest.raises(ProtocolError, match="knows no west by its roster"):
        founded.run("b-1", THREE)
    # Its own keys open none of the new boxes, even if it gets hold of them.
    shutil.copy(founded.keys("north") / "public.json", founded.keys("west"))
    for box in founded.keys("north").glob("*/run-*.box"):
        shutil.copy(box, founded.keys("west") / "west")
    with pytest.raises(WeftError, match="has no keys of west"):
        load_keys(founded.keys("west"), "west")


def test_identity_keys_are_rotated_and_the_old_ones_are_refused(founded):
    founded.run("a-1")
    card = founded.card("south", "keys-2")
    roster, said = amended(founded, card)
    assert "- south has new keys" in said
    new = {"south": founded.folder / "south" / "keys-2"}
    founded.sign(roster, THREE, new)
    founded.hand_out_secret(roster, THREE, new)
    for name in THREE:
        founded.join(name, roster, new.get(name))
    founded.run("b-1")
    ledger = Book(founded.kit("south") / "weft" / "ledger", "south").read()
    assert len(ledger.runs) == 2
    founded.join("south", roster)
    with pytest.raises(WeftError, match="south"):
        founded.run("c-1")


def test_a_roster_is_not_amended_by_names_that_do_not_fit(founded, weft):
    for changes, words in [
        (["--remove", "east"], "'east' cannot be removed"),
        (["--labels", "east"], "--labels names 'east', which is none of nobody"),
        (["north/keys.json", "--model", "north"], "--model names 'north'"),
        (["north/keys.json", "--remove", "north"], "'north' cannot be removed"),
    ]:
        said = sentence(weft("federation", "amend", "roster-1.json", "roster-2.json", *changes))
        assert words in said


# ── kits ──────────────────────────────────────────────────────────────────────────────────────


def renewed_kit(founded, name):
    """A new certificate for a member, at the organiser's; and the key to it."""
    (founded.kits / f"{name}.zip").rename(founded.kits / f"{name}-1.zip")
    request, requests = founded.request(name, 2)
    plan = founded.folder / "organiser" / "federation.toml"
    founded.weft("federation", "add", plan, name, "--out", founded.kits, "--requests", requests)
    return founded.kits / f"{name}.zip", request


def test_a_kit_is_renewed_in_its_place_and_runs_under_way_go_on(founded, alone):
    founded.begin("b-1")
    for name in ("coordinator", "south"):
        before = certificate_of(founded.kit(name)).serial_number
        archive, request = renewed_kit(founded, name)
        founded.weft(
            "federation", "install", archive, "--request", request, "--renew", founded.kit(name)
        )
        assert certificate_of(founded.kit(name)).serial_number != before
    assert founded.run("b-1").coef.tobytes() == alone
    assert [run.run for run in RunIndex(founded.kit("south") / "weft").entries()] == ["b-1"]


def test_a_kit_is_not_renewed_with_what_is_not_its_own(founded, weft, monkeypatch):
    archive, request = renewed_kit(founded, "south")
    base = ["federation", "install", archive, "--request", request]
    said = sentence(weft(*base, "--renew", founded.kit("north")))
    assert "has the name 'south', but" in said
    assert "exclude each other" in sentence(weft(*base, "--renew", "k", "--out", "l"))
    # Another authority, as somebody on the way could make one; or the organiser, anew.
    foreign = rsa.generate_private_key(65537, 2048)
    tools = "nvflare.lighter.utils.generate_keys"
    monkeypatch.setattr(tools, lambda: (foreign, foreign.public_key()))
    other = founded.folder / "organiser" / "other"
    plan = founded.plan(THREE)
    _, requests = founded.request("south", 3)
    founded.weft("federation", "new", plan, "--out", other, "--requests", requests)
    base = ["federation", "install", other / "south.zip", "--request", "south/request-3"]
    base += ["--renew", founded.kit("south")]
    assert "is of another authority" in sentence(weft(*base))
    assert weft(*base, "--new-authority")[0] == 0
    assert Kit.open(founded.kit("south")).fingerprint == Kit.open(other / "coordinator").fingerprint


# ── the coordinator's place ───────────────────────────────────────────────────────────────────


def moved(founded, host):
    """The coordinator's kit is copied to another machine, and gets a certificate for its name."""
    there = founded.folder / "elsewhere"
    shutil.copytree(founded.kit("coordinator"), there)
    number = len(list(founded.kits.glob("coordinator*.zip")))
    (founded.kits / "coordinator.zip").rename(founded.kits / f"coordinator-{number}.zip")
    request, requests = founded.request("coordinator", 1 + number)
    plan = founded.plan(THREE, host)
    founded.weft("federation", "move", plan, "--out", founded.kits, "--requests", requests)
    founded.weft(
        "federation", "install", founded.kits / "coordinator.zip", "--request", request,
        "--renew", there,
    )  # fmt: skip
    return there


def test_the_coordinator_moves_and_runs_under_way_go_on(founded, alone):
    founded.begin("b-1")
    there = moved(founded, "weft.example.org")
    with pytest.raises(WeftError, match="does not accept this coordinator"):
        founded.run("b-1", coordinator=there)
    for name in THREE:
        founded.weft("federation", "follow", founded.kit(name), founded.kits / "moved-1.json")
    assert founded.run("b-1", coordinator=there).coef.tobytes() == alone
    submitter = founded.kits / ANNA
    founded.weft("federation", "follow", submitter, founded.kits / "moved-1.json")
    (server, _) = shake_hands(Kit.open(there), Kit.open(submitter))
    assert server["commonName"] == ANNA
    assert Kit.open(submitter).host == "weft.example.org"
    # Who comes now gets a kit with the new place.
    _, requests = founded.request("south", 2)
    (founded.kits / "south.zip").unlink()
    plan = founded.folder / "organiser" / "federation.toml"
    founded.weft("federation", "add", plan, "south", "--out", founded.kits, "--requests", requests)


def test_a_coordinator_under_the_same_name_goes_on_where_its_kit_was_copied_to(founded, alone):
    founded.begin("b-1")
    shutil.copytree(founded.kit("coordinator"), founded.folder / "elsewhere")
    shutil.rmtree(founded.kit("coordinator"))
    model = founded.run("b-1", coordinator=founded.folder / "elsewhere")
    assert model.coef.tobytes() == alone


def test_only_the_newest_letter_of_the_authority_moves_a_kit(founded, weft):
    moved(founded, "weft.example.org")
    shutil.rmtree(founded.folder / "elsewhere")
    moved(founded, "other.example.org")
    north, letters = founded.kit("north"), sorted(founded.kits.glob("moved-*.json"))
    founded.weft("federation", "follow", north, letters[1])
    assert "letter is of move 1" in sentence(weft("federation", "follow", north, letters[0]))
    forged = json.loads(letters[1].read_text()) | {"host": "evil.example.org", "number": 9}
    letters[0].write_text(json.dumps(forged))
    assert "not signed by the authority" in sentence(
        weft("federation", "follow", north, letters[0])
    )
    letters[0].write_text("{}")
    assert "is damaged" in sentence(weft("federation", "follow", north, letters[0]))
    assert Kit.open(north).host == "other.example.org"
    said = refusal(lambda: follow(Kit.open(founded.kit("coordinator")), read_address(letters[1])))
    assert "--renew" in said
    plan = founded.folder / "organiser" / "federation.toml"
    assert "is at other.example.org:18002 already" in sentence(
        weft("federation", "move", plan, "--out", founded.kits)
    )


def test_an_archive_does_not_bring_a_kit_to_another_place(founded, weft, tmp_path):
    """Only the certificate in it is signed: whoever relays it could write another host."""
    archive, request = renewed_kit(founded, "north")
    shutil.unpack_archive(archive, tmp_path / "opened")
    startup = tmp_path / "opened" / "startup" / "fed_client.json"
    startup.write_text(startup.read_text().replace("localhost", "south"))
    shutil.make_archive(str(tmp_path / "forged"), "zip", tmp_path / "opened")
    forged = tmp_path / "forged.zip"
    strip_folders(forged)
    said = sentence(
        weft(
            "federation", "install", forged, "--request", request, "--renew", founded.kit("north")
        )
    )  # fmt: skip
    assert "has the coordinator at south:18002" in said


def strip_folders(path):
    """An archive without entries of folders, which no kit has."""
    with zipfile.ZipFile(path) as archive:
        files = {n: archive.read(n) for n in archive.namelist() if not n.endswith("/")}
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


# ── backups ───────────────────────────────────────────────────────────────────────────────────


def test_a_run_does_not_go_on_from_a_backup(founded):
    founded.begin("a-1")
    kit = founded.kit("south")
    shutil.copytree(kit, founded.folder / "backup")
    shutil.rmtree(kit)
    (founded.folder / "backup").rename(kit)
    with pytest.raises(ProtocolError, match="would use pads a second time; start a new run"):
        founded.run("a-1")
    said = founded.weft("federation", "restored", kit)
    assert "a-1 is dropped" in said
    assert not list((kit / "weft" / "runs").iterdir())
    with pytest.raises(ProtocolError, match="dropped by its owner"):
        founded.run("a-1")
    founded.run("b-1")
    assert "0 runs under way" in founded.weft("federation", "restored", kit)


def test_a_whole_machine_that_was_set_back_drops_its_runs_when_it_is_told(founded, weft):
    """It cannot know by itself; the index may be older than the runs in it, too."""
    founded.begin("a-1")
    for name in ("coordinator", "north"):
        home = founded.kit(name) / "weft"
        (home / "runs.json").unlink(missing_ok=True)
        said = founded.weft("federation", "restored", founded.kit(name))
        assert "1 run under way" in said
        assert not list((home / "runs").iterdir())
    with pytest.raises(ProtocolError, match="run a-1 is over here"):
        founded.run("a-1")
    assert "no run is kept" in sentence(weft("federation", "restored", founded.kits / ANNA))


# ── what is kept of runs ──────────────────────────────────────────────────────────────────────


def stored_job(kit, run, number, status="FINISHED:COMPLETED"):
    """A job as the engine stores it."""
    folder = kit / "weft" / "engine" / "jobs" / f"job-{number}"
    folder.mkdir(parents=True)
    (folder / "data").write_bytes(bytes(1000))
    (folder / "meta").write_text(json.dumps({"name": run, "status": status, "job_id": number}))
    return folder


def test_old_runs_are_pruned_and_nothing_else(founded, weft, monkeypatch):
    kit = founded.kit("coordinator")
    runs = kit / "weft" / "runs"
    founded.run("a-1")
    for run in ("b-1", "c-1"):
        shutil.copytree(runs / "a-1", runs / run)
    founded.begin("d-1")
    (runs / "b-1" / "messages.weft").write_bytes(b"recorded")
    jobs = [stored_job(kit, run, n) for n, run in enumerate(("a-1", "a-1", "b-1", "c-1"))]
    jobs += [stored_job(kit, "d-1", 4), stored_job(kit, "e-1", 5, "SUBMITTED")]
    jobs += [stored_job(kit, "f-1", 6), stored_job(kit, "../../local", 7)]
    for run in ("a-1", "b-1"):
        write_figures(kit / "weft", RunFigures(report=Report(run=run, state="over")))
    now = runs.stat().st_mtime
    monkeypatch.setattr("time.time", lambda: now + 10 * 86400)
    assert "--older-than" in sentence(weft("prune", kit))
    assert "weft serve needs the coordinator's" in sentence(
        weft("prune", founded.kit("north"), "--keep", "0")
    )
    found = json.loads(founded.weft("prune", kit, "--older-than", "11", "--json"))
    assert found["deleted"] == []
    found = json.loads(founded.weft("prune", kit, "--older-than", "9", "--dry-run", "--json"))
    assert sorted(found["deleted"]) == ["a-1", "c-1", "f-1", "job-7"]
    assert found["can_go_on"] == ["d-1", "e-1"]
    assert found["bytes"] > 4000
    assert all(job.exists() for job in jobs)
    founded.weft("prune", kit, "--older-than", "9")
    assert sorted(path.name for path in runs.iterdir()) == ["b-1", "d-1"]
    assert [job.exists() for job in jobs] == [False, False, True, False, True, True, False, False]
    assert (kit / "local" / "resources.json").exists()
    assert figures_of_run(kit / "weft", "a-1") is None
    assert figures_of_run(kit / "weft", "b-1") is not None
    assert "Deleted 1 run" in founded.weft("prune", kit, "--keep", "0", "--recordings")
    # What can go on still does, and no site's ledger has changed.
    founded.run("d-1")
    assert len(Book(founded.kit("north") / "weft" / "ledger", "north").read().runs) == 2
    monkeypatch.setattr(prune_runs, "check_port_free", raising)
    assert "weft serve runs with" in sentence(weft("prune", kit, "--keep", "0"))


def raising(kit):
    raise ConfigError("the port is taken")


def test_the_last_runs_are_kept():
    known = [prune_runs.KeptRun(str(n), (), 100.0 - n) for n in range(4)]
    known.append(prune_runs.KeptRun("going", (), None))

    def old(**limits):
        told = {"older_than": None, "keep": None, "recordings": False, **limits}
        return [one.run for one in prune_runs.old_runs(known, 100.0 + 86400.0, **told)]

    assert old(keep=3) == ["3"]
    assert old(keep=9) == []
    assert old(keep=1, older_than=1.00002) == ["2", "3"]
