"""``weft serve``, ``join``, ``submit``, ``status`` and ``stop``: mistakes are one sentence each.

All of these end before the engine starts; what comes after is tested with real processes.
"""

import inspect
import json
import logging
import shutil
import socket
import stat
from contextlib import contextmanager
from dataclasses import asdict, replace
from importlib import import_module
from typing import ClassVar

import pytest
from kitted import ANNA, kit_of, refusal, sentence, write

from weft import __version__
from weft.cli import status_and_stop
from weft.crypto.keys import new_keys
from weft.federation.messages import RELEASE, TAKE_MODEL
from weft.federation.party import Party
from weft.federation.preprocessing_settings import Preprocessing
from weft.network import saved_join_settings
from weft.network.current_wait import Wait
from weft.network.kits.kit_folder import Kit
from weft.network.model_saving_party import ModelSavingParty
from weft.network.nvflare_processes import serve_and_join as processes
from weft.network.nvflare_processes.admin_session import RunInfo
from weft.network.nvflare_processes.engine_internals import open_no_local_port
from weft.network.open_site import open_site
from weft.network.run_progress import Report
from weft.network.run_queue import QueueLimits, Submission
from weft.network.run_status_line import report_text
from weft.network.saved_join_settings import (
    JoinSettings,
    exclusive_use,
    read_settings,
    write_settings,
)
from weft.network.serve_settings import read_serve_settings, write_serve_settings
from weft.network.site_data_keys_and_consent import load_member
from weft.network.site_run_index import RunIndex
from weft.network.submitted_task import LinearTask
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record
from weft.storage.atomic_files import StorageError

#: The module; its package has the command under that name.
following = import_module("weft.cli.submit_and_follow")
console = import_module("weft.cli.terminal_output")
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


def test_a_site_hears_all_that_is_wrong_with_its_data_at_once(place, site, weft, monkeypatch):
    joined = []
    monkeypatch.setattr(processes, "join", lambda *_: joined.append(1))
    write(site / "table.csv", "id;town;age;y\na;Bonn;1,5;0\nb;Ulm;2,5;1\nb;Ulm;3,5;1\n")
    kit = kit_of(place, "south")
    options = ["--data", "table.csv", "--id", "id", "--label", "y", "--keys", "keys"]
    code, out, err = weft("join", kit, *options)
    assert (code, joined) == (2, [])
    assert "2 problems in the files, listed above" in err
    assert "'town' is not numeric" in out
    assert "'b' occurs more than once" in out
    told = json.loads(weft("join", kit, *options, "--json")[1])
    (lines,) = told["mend"].values()
    write(site / "reading.toml", "\n".join(lines))
    code, out, _ = weft("join", kit, *options, "--reading", "reading.toml")
    assert (code, joined) == (0, [1])
    assert "table.csv: the decimal sign is a comma" in out
    kept = read_settings(Kit.open(kit))
    assert kept.reading == str(site / "reading.toml")


def test_an_address_with_credentials_is_neither_kept_nor_repeated(place, site, weft):
    address = "postgresql://anna:pw-7@host/clinic"
    outcome = weft(
        "join", kit_of(place, "south"), "--data", address, "--id", "id", "--keys", "keys"
    )
    assert "PGPASSWORD" in sentence(outcome)
    assert "pw-7" not in outcome[2]
    assert not (site / "local" / "weft.json").exists()


def test_where_a_sites_things_lie_is_named_once_only(place, site, weft, monkeypatch):
    joined = []
    monkeypatch.setattr(processes, "join", lambda *told: joined.append(told[2:]))
    kit = kit_of(place, "south")
    options = ["--data", "table.csv", "--id", "id", "--label", "y", "--keys", "keys"]
    assert weft("join", kit, *options)[0] == 0
    assert weft("join", kit, "--wait", "7", "--log", "json")[0] == 0
    assert weft("join", kit, *options)[0] == 0
    assert joined == [(60.0, "text", None), (7.0, "json", None), (60.0, "json", None)]
    kept = read_settings(Kit.open(kit))
    assert (kept.party, kept.id, kept.label) == ("south", "id", "y")
    assert kept.data == [str(site / "table.csv")]
    assert (site / "local" / "weft.json").stat().st_mode & 0o077 == 0


def test_a_policy_and_a_roster_once_named_are_kept_until_others_are(place, site, weft, monkeypatch):
    monkeypatch.setattr(processes, "join", lambda *_: None)
    kit = kit_of(place, "south")
    options = ["--data", "table.csv", "--id", "id", "--label", "y", "--keys", "keys"]
    write(site / "strict.toml", "min_batch = 20\n")
    assert weft("join", kit, *options, "--policy", "strict.toml")[0] == 0
    for more in (options, []):
        code, out, _ = weft("join", kit, *more)
        assert code == 0
        assert f"The policy of the last time counts: {site / 'strict.toml'}" in out
        assert read_settings(Kit.open(kit)).policy == str(site / "strict.toml")
    write(site / "other.toml", "min_batch = 30\n")
    code, out, _ = weft("join", kit, *options, "--policy", "other.toml")
    assert (code, "of the last time" in out) == (0, False)
    said = sentence(weft("join", kit, "--policy", "other.toml", "--no-policy"))
    assert "exclude each other" in said
    assert weft("join", kit, "--no-policy")[0] == 0
    assert read_settings(Kit.open(kit)).policy is None


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
    inspect = Kit.inspect.__func__
    monkeypatch.setattr(
        Kit, "inspect", classmethod(lambda cls, path: replace(inspect(cls, path), port=port))
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
    line = report_text(
        Report(
            run="a",
            state="running",
            records=[record],
            parties=["north", "south"],
            away={"south": "is not connected"},
        )
    )
    for part in ("iteration 3", "loss 0.5", "9 round trips", "3.0 MB", "1 of 2", "without south"):
        assert part in line


# ── what a coordinator says ───────────────────────────────────────────────────────────────


class Server:
    """A session that is played, with jobs from the newest to the oldest."""

    def __init__(self, *jobs, reports=None):
        self.jobs, self.reports = list(jobs), reports or {}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def connected(self):
        return ["north", "south"]

    def runs(self):
        return self.jobs

    def progress(self, job, since):
        return self.reports.get(job)

    def stop(self, job):
        self.stopped.append(job)

    #: Jobs that were stopped in this test.
    stopped: ClassVar[list[str]] = []
    submitter = "anna"


def job(run, number, status, state=None, sentence=""):
    ending = None if state is None else Report(run=run, state=state, sentence=sentence)
    return RunInfo(run, number, status, "today", ending)


def queued(run, number, who="anna"):
    """A job that waits since the moment of its number."""
    place = Submission(str(number), run, who, float(number), waits=True)
    return RunInfo(run, str(number), "SUBMITTED", "today", submission=place)


@pytest.fixture
def server(monkeypatch):
    def play(*jobs, **options):
        monkeypatch.setattr(status_and_stop, "_session", lambda kit: Server(*jobs, **options))

    return play


WAIT = Wait(phase="match.tokens", parties=["south"], seconds=12, limit=300, why="is not connected")


VERSIONS = {"coordinator": __version__, "north": "0.0.9"}


def test_status_tells_runs_that_are_over_from_those_that_failed(place, weft, server):
    server(
        job("a", "5", "RUNNING"),
        job("b", "4", "FINISHED:COMPLETED", "over"),
        job("c", "3", "FINISHED:ABORTED", "failed", "party south refuses this"),
        job("d", "2", "FINISHED:ABORTED", "stopped"),
        # An earlier try of the same run does not count.
        job("b", "1", "FINISHED:EXECUTION_EXCEPTION"),
        job("e", "0", "FINISHED:EXECUTION_EXCEPTION"),
        reports={"5": Report(run="a", state="running", wait=WAIT, versions=VERSIONS)},
    )
    kit = kit_of(place, ANNA)
    _, out, _ = weft("status", kit)
    assert out.splitlines() == [
        "Connected: north, south.",
        "a: running, submitted today",
        f"  other versions of Weft than here ({__version__}): north 0.0.9",
        "  waits for south (is not connected): sending tokens of ids and columns, since 12 s, for "
        "300 s at most",
        "b: over, submitted today",
        "c: failed, submitted today: party south refuses this",
        "d: stopped, submitted today",
        "e: its process died, submitted today",
    ]
    told = json.loads(weft("status", kit, "--json")[1])
    assert [run["state"] for run in told["runs"]][:3] == ["running", "over", "failed"]
    assert told["weft"] == __version__
    assert told["runs"][0]["versions"] == VERSIONS
    assert told["runs"][0]["wait"]["parties"] == ["south"]
    assert told["runs"][1]["wait"] is None
    assert told["runs"][2]["sentence"] == "party south refuses this"


def test_status_tells_the_queue_in_which_submitters_take_turns(place, weft, server):
    going = RunInfo("a", "1", "RUNNING", "today", submission=Submission("1", "a", "anna", 1.0, 1.0))
    server(queued("e", 5, "bert"), queued("d", 4), queued("c", 3), going)
    kit = kit_of(place, ANNA)
    assert weft("status", kit)[1].splitlines()[1:] == [
        "e: waiting, 1 of 3 in the queue, submitted today by bert",
        "d: waiting, 3 of 3 in the queue, submitted today by anna",
        "c: waiting, 2 of 3 in the queue, submitted today by anna",
        "a: running, submitted today by anna",
    ]
    told = json.loads(weft("status", kit, "--json")[1])["runs"]
    assert [(run["place"], run["submitter"]) for run in told] == [
        (1, "bert"), (3, "anna"), (2, "anna"), (None, "anna"),
    ]  # fmt: skip


def test_a_run_is_taken_out_of_the_queue_by_its_name_only(place, weft, server, monkeypatch):
    monkeypatch.setattr(Server, "stopped", [])
    server(queued("c", 3), queued("b", 2), job("a", "1", "RUNNING"))
    kit = kit_of(place, ANNA)
    code, out, _ = weft("stop", kit, "c")
    assert (code, Server.stopped) == (0, ["3"])
    assert "c is taken out of the queue" in out
    assert "Run a is stopped" in weft("stop", kit)[1]
    assert Server.stopped == ["3", "1"]
    server(queued("c", 3))
    assert "no run is running" in sentence(weft("stop", kit))


def test_which_run_is_stopped_need_not_be_said_where_one_has_but_one(
    place, weft, server, monkeypatch
):
    monkeypatch.setattr(Server, "stopped", [])
    jobs = [
        RunInfo(who, who, "RUNNING", "today", submission=Submission(who, who, who, 1.0, 1.0))
        for who in ("bert", "anna")
    ]
    server(*jobs)
    assert weft("stop", kit_of(place, ANNA))[0] == 0
    assert Server.stopped == ["anna"]


def test_giving_a_run_up_names_who_does_not_know_it(place, weft, server, monkeypatch):
    server()
    monkeypatch.setattr(
        "weft.network.nvflare_processes.admin_session.AbandonRequest.send",
        lambda _: {"south": "is not connected"},
    )
    code, out, _ = weft("stop", kit_of(place, ANNA), "a-1", "--forget")
    assert code == 0
    assert "a-1 is given up" in out
    assert "south does not know it (is not connected)" in out
    assert "--forget" in out


def test_which_run_is_given_up_must_be_said(place, weft, server):
    server()
    assert "name the run" in sentence(weft("stop", kit_of(place, ANNA), "--forget"))
    assert "'../a'" in sentence(weft("stop", kit_of(place, ANNA), "../a", "--forget"))


@pytest.mark.parametrize(
    ("report", "has", "has_not"),
    [
        (Report(run="a", state="failed", sentence="no"), ["--resume a", "a --forget"], []),
        (Report(run="a", state="failed", sentence="no", kept=False), ["anew"], ["--resume"]),
        (Report(run="a", state="stopped"), ["--resume a"], []),
        (Report(run="a", state="stopped", kept=False), ["out of the queue", "--resume a"], []),
    ],
    ids=["kept", "not begun", "stopped", "waited"],
)
def test_only_what_is_kept_is_said_to_go_on(report, has, has_not):
    told = following._why_not(report, "anna")
    assert all(words in told for words in has)
    assert not any(words in told for words in has_not)


def test_without_a_terminal_a_run_is_followed_by_a_line_now_and_then(capsys, monkeypatch):
    now = [100.0]
    monkeypatch.setattr(console, "monotonic", lambda: now[0])
    record = asdict(Record(3, 1, 9, 2e6, 1e6, 0.0, 0.0, primal=0.5, gap=0.01, certified_at=2))
    quiet, line = (console.RunLine("a-1", "matching samples", quiet=told) for told in (True, False))
    reports = [
        Report(run="a-1", state="starting"),
        Report(run="a-1", state="running"),
        Report(run="a-1", state="running", records=[record], parties=["north"]),
        Report(run="a-1", state="running", parties=["north"]),
    ]
    for number, report in enumerate(reports):
        now[0] = 100.0 + 6.0 * number
        quiet.follow(report)
        line.follow(report)
    now[0] = 200.0
    line.follow(reports[-1])
    said = capsys.readouterr().err.splitlines()
    assert [words.partition(" · ")[0] for words in said] == ["a-1: iteration 3"] * 2


# ── what a site's owner can do ────────────────────────────────────────────────────────────


def test_a_sites_owner_sees_its_runs_and_drops_one(place, site, weft):
    kit = kit_of(place, "south")
    assert weft("status", kit)[1] == "No run yet.\n"
    register = RunIndex(site / "home")
    register.begin("a-1")
    register.begin("b-1")
    register.end("a-1", "over", [])
    memory = site / "home" / "runs" / "b-1" / "memory"
    memory.mkdir(parents=True)
    write(memory / "secret.memory", "secret")
    _, out, _ = weft("status", kit)
    assert "a-1: over since" in out
    assert "b-1: under way" in out
    assert "--forget" in out
    code, out, _ = weft("join", kit, "--forget", "b-1")
    assert code == 0
    assert "b-1 is dropped" in out
    assert not (site / "home" / "runs" / "b-1").exists()
    told = json.loads(weft("status", kit, "--json")[1])["runs"]
    assert [run["how"] for run in told] == ["over", "dropped by its owner"]
    assert "takes no part in a run 'c-1'" in sentence(weft("join", kit, "--forget", "c-1"))


def test_what_a_site_refuses_by_its_policy_names_no_file(site):
    policy = write(site / "of-doctor-jones.toml", 'solvers = ["lbfgs"]\n')
    member = load_member(
        "south",
        [site / "table.csv"],
        id_column="id",
        label="y",
        keys=site / "keys",
        ledger=Ledger(site / "ledger", "two clinics"),
        policy=policy,
    )
    task = LinearTask(
        name="t",
        parties=("north", "south"),
        settings=Settings(lam=0.1, gap=0.1, solver="hyfdca"),
        preprocessing=Preprocessing(),
    )
    said = refusal(lambda: member.open_party(task.told(), {}))
    assert said.endswith("(its own policy says so)")


def test_two_processes_do_not_work_with_one_sites_kit(place, site, weft, monkeypatch):
    monkeypatch.setattr(processes, "join", lambda *_: pytest.fail("was started"))
    monkeypatch.setattr(saved_join_settings, "_ENDING", 0.0)
    kit = kit_of(place, "south")
    options = ["--data", "table.csv", "--id", "id", "--label", "y", "--keys", "keys"]
    with exclusive_use(Kit.open(kit)):
        for more in (options, ["--forget", "b-1"]):
            assert "runs with" in sentence(weft("join", kit, *more))


class Release:
    """A party that gets the model; its disk may be full."""

    saved_models = Party.saved_models

    def __init__(self):
        self.model, self.full, self.saved = self, False, 0
        self.coefficient_table = self.correlation_table = None

    def replaying(self):
        """As a party has it."""

    close = replaying

    def on(self, phase, message):
        return phase.name

    def save(self, path):
        if self.full:
            raise StorageError(f"{path}: cannot be written")
        path.write_text("model")
        self.saved += 1


def test_a_full_disk_is_an_obstacle_to_a_model_only_where_none_was_kept(tmp_path, caplog):
    party = Release()
    keeping = ModelSavingParty(party, tmp_path / "models" / "a-1")
    party.full = True
    with pytest.raises(StorageError):
        keeping.on(TAKE_MODEL, None)
    party.full = False
    assert keeping.on(RELEASE, None) == RELEASE.name
    assert party.saved == 0
    assert keeping.on(TAKE_MODEL, None) == TAKE_MODEL.name
    party.full = True
    with caplog.at_level(logging.WARNING):
        assert keeping.on(TAKE_MODEL, None) == TAKE_MODEL.name
    assert "from before" in caplog.text
    assert party.saved == 1


def test_no_name_of_a_run_takes_the_place_of_another_runs_models(tmp_path):
    """Run x.received once had the file in which run x keeps what it received."""
    runs = ("x", "x.received", "x.npz", "x.received.npz", "x.own")
    for run in runs:
        party = Release()
        party.saved_models = {TAKE_MODEL.name: (("own", "own.npz"), ("received", "received.npz"))}
        party.own = party.received = party
        ModelSavingParty(party, tmp_path / "models" / run).on(TAKE_MODEL, None)
    kept = [path for path in (tmp_path / "models").rglob("*") if path.is_file()]
    assert len(kept) == 2 * len(runs)


def test_a_site_opens_no_door_for_job_processes(monkeypatch):
    from nvflare.fuel.f3.cellnet.core_cell import CoreCell

    made = []
    assert "create_internal_listener" in inspect.signature(CoreCell.__init__).parameters
    monkeypatch.setattr(CoreCell, "__init__", lambda cell, **options: made.append(options))
    open_no_local_port()
    CoreCell(fqcn="south", create_internal_listener=True)
    assert made == [{"fqcn": "south", "create_internal_listener": False}]


def test_whether_runs_are_recorded_and_how_events_are_told_is_kept_in_the_kit(
    place, weft, monkeypatch, tmp_path
):
    kit = tmp_path / "kit"
    shutil.copytree(kit_of(place, "coordinator"), kit)
    told = []

    def serve(kit, settings):
        told.append((settings.record, settings.log))
        write_serve_settings(kit, settings)

    monkeypatch.setattr(processes, "serve", serve)
    for options in ([], ["--record"], ["--log", "json"], ["--no-record"], ["--log", "text"]):
        assert weft("serve", kit, *options)[0] == 0
    kept = [(False, "text"), (True, "text"), (True, "json"), (False, "json"), (False, "text")]
    assert told == kept
    settings = kit / "local" / "weft.json"
    assert stat.S_IMODE(settings.stat().st_mode) == 0o600
    write(settings, '{"record": 7}')
    assert "--no-record" in sentence(weft("serve", kit))


def test_how_many_runs_there_may_be_is_kept_in_the_kit(place, weft, monkeypatch, tmp_path):
    kit = tmp_path / "kit"
    shutil.copytree(kit_of(place, "coordinator"), kit)
    told = []

    def serve(kit, settings):
        told.append(settings.queue)
        write_serve_settings(kit, settings)

    monkeypatch.setattr(processes, "serve", serve)
    for options in ([], ["--at-once", "2"], ["--each-at-once", "1", "--each-waiting", "3"], []):
        assert weft("serve", kit, *options)[0] == 0
    both = QueueLimits(at_once=2, each_at_once=1, each_waiting=3)
    assert told == [QueueLimits(), QueueLimits(at_once=2), both, both]
    assert weft("serve", kit, "--at-once", "9")[0] == 2


def test_a_party_that_was_removed_is_denied_until_it_is_admitted(
    place, weft, monkeypatch, tmp_path
):
    kit = tmp_path / "kit"
    shutil.copytree(kit_of(place, "coordinator"), kit)
    told = []

    def serve(kit, settings):
        told.append((settings.record, *settings.denied))
        write_serve_settings(kit, settings)

    monkeypatch.setattr(processes, "serve", serve)
    for options in (["--record"], ["--deny", "west", "--deny", "east"], [], ["--admit", "east"]):
        assert weft("serve", kit, *options)[0] == 0
    both = (True, "east", "west")
    assert told == [(True,), both, both, (True, "west")]
    settings = read_serve_settings(Kit.inspect(kit))
    settings.check_parties(("north", "east"))
    said = refusal(lambda: settings.check_parties(("north", "west")))
    assert "takes west into no run any more" in said
    assert "[[party]]" in said


# ── how a run ended ───────────────────────────────────────────────────────────────────────

ENDED = {"settings": {"gap": 1e-3}, "path": None, "stopped": "iterations", "gone": []}
PROVED = {"gap": 1e-4}


@pytest.mark.parametrize(("certificate", "code"), [(PROVED, 0), (None, 3)])
def test_a_run_that_ends_uncertified_has_an_exit_code_of_its_own(
    place, weft, tmp_path, monkeypatch, certificate, code
):
    @contextmanager
    def followed(kit, config, make_task, **options):
        yield following.Returned("a-1", None, tmp_path)

    monkeypatch.setattr(following, "followed_run", followed)
    monkeypatch.setattr(
        "weft.network.write_submitter_results.write_out",
        lambda *given, **more: ({**ENDED, "certificate": certificate}, []),
    )
    config = tmp_path / "study.toml"
    config.write_text('name = "study"\n[model]\nloss = "logistic"\nlambda = 0.1\n')
    found, out, err = weft("submit", kit_of(place, ANNA), config, "--json")
    assert (found, err) == (code, "")
    told = json.loads(out)
    assert told["complete"] == (code == 0)
    assert [("was not reached" in said) for said in told["shortcomings"]] == [True] * (code == 3)
