"""The server's own component: who may start when, who comes and goes, how runs ended."""

import json
import logging
from contextlib import nullcontext
from types import SimpleNamespace

import pytest
from kitted import kit_of
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.impl.job_def_manager import SimpleJobDefManager
from nvflare.apis.job_def import Job, RunStatus
from nvflare.apis.storage import StorageException
from nvflare.app_common.job_schedulers.job_scheduler import SCHEDULE_RESULT_OK
from nvflare.app_common.storages.filesystem_storage import FilesystemStorage

from weft.errors import ConfigError
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.admin_session import info_of, places_of
from weft.network.nvflare_processes.coordinator_job import submitter_of
from weft.network.nvflare_processes.run_scheduler import RunScheduler
from weft.network.nvflare_processes.write_job import ENDING, FORGETS, ending_file
from weft.network.run_progress import Report
from weft.network.run_queue import QueueLimits


class Context:
    """The engine's context of an event, with what is asked of it here."""

    def __init__(self, who=None, kind="regular", job=None, engine=None):
        self.who, self.engine = who, engine
        self.props = {
            FLContextKey.CLIENT_TYPE: kind,
            FLContextKey.EVENT_DATA: {"job_id": job},
        }

    def get_prop(self, key, default=None):
        return self.props.get(key, default)

    def get_peer_context(self):
        return self

    def get_identity_name(self, default=""):
        return self.who

    def get_engine(self):
        return self.engine


@pytest.fixture
def diary(caplog):
    caplog.set_level(logging.INFO, "weft.server")

    def lines():
        return [record.getMessage() for record in caplog.records if record.name == "weft.server"]

    return lines


def test_the_scheduler_starts_jobs_without_asking_clients():
    job = Job("1", {}, {"coordinator": ["server", "nobody"]}, {})
    code, sites, _ = RunScheduler()._try_job(job, SimpleNamespace())
    assert code == SCHEDULE_RESULT_OK
    assert {site: info.app_name for site, info in sites.items()} == {"server": "coordinator"}


def test_a_party_that_outlived_its_coordinator_is_told_to_be_connected_once(diary):
    scheduler = RunScheduler()
    for _ in range(3):
        scheduler.handle_event(EventType.CLIENT_HEARTBEAT_PROCESSED, Context("north"))
    assert diary() == ["north is connected"]
    scheduler.handle_event(EventType.CLIENT_QUIT, Context("north"))
    scheduler.handle_event(EventType.CLIENT_REGISTER_PROCESSED, Context("north"))
    scheduler.handle_event(EventType.CLIENT_HEARTBEAT_PROCESSED, Context("north"))
    assert diary()[1:] == ["north has left", "north is connected"]


def test_a_submitter_is_no_party(diary):
    scheduler = RunScheduler()
    scheduler.handle_event(EventType.CLIENT_REGISTER_PROCESSED, Context("anna", kind="admin"))
    scheduler.handle_event(EventType.CLIENT_QUIT, Context("anna"))
    assert diary() == ["submitter anna is connected"]


class Engine:
    """As much of the server as a scheduler looks at, with the engine's own store of jobs."""

    def __init__(self, folder):
        self.manager = SimpleJobDefManager(str(folder / "jobs"))
        store = FilesystemStorage()
        self.manager._get_job_store = lambda fl_ctx: store
        (folder / "jobs").mkdir(exist_ok=True)
        self.scheduler = RunScheduler()
        for name in ("log_debug", "log_info"):
            for part in (self.scheduler, self.manager):
                setattr(part, name, lambda *_, **__: None)

    def new_context(self):
        return nullcontext(Context())

    def submit(self, run, who, **meta):
        told = {"name": run, "submitter_name": who, "deploy_map": {"coordinator": ["server"]}}
        return self.manager.create({**told, **meta}, b"", Context())["job_id"]

    def begin(self):
        """What the job runner does with the job that it is given; the name of its run."""
        waiting = self.manager.get_jobs_to_schedule(Context())
        job, _ = self.scheduler.schedule_job(self.manager, waiting, Context(engine=self))
        if job is None:
            return None
        self.scheduler.handle_event(EventType.JOB_STARTED, Context(job=job.job_id))
        self.manager.set_status(job.job_id, RunStatus.RUNNING, Context())
        return job.meta["name"]

    def end(self, job, status=RunStatus.FINISHED_COMPLETED, **ending):
        if ending:
            told = Report(run="?", **ending).to_plain()
            self.manager.update_meta(job, {ENDING: told}, Context())
        self.manager.set_status(job, status, Context())
        self.scheduler.remove_scheduled_job(job)

    def meta(self, job):
        return self.manager.get_job(job, Context()).meta


@pytest.fixture
def engine(tmp_path):
    return Engine(tmp_path)


def test_giving_a_run_up_need_not_wait_for_room(engine):
    engine.submit("run", "anna")
    assert engine.begin() == "run"
    engine.submit("next", "anna")
    engine.submit("forget", "anna", **{FORGETS: True})
    assert [engine.begin(), engine.begin()] == ["forget", None]


def test_who_gives_up_many_runs_holds_nobody_up(engine):
    engine.scheduler.limits = QueueLimits(each_waiting=3)
    jobs = [engine.submit(f"e{n}", "eve", **{FORGETS: True}) for n in range(5)]
    engine.submit("b1", "bert")
    engine.submit("b0", "bert", **{FORGETS: True})
    begun = [engine.begin() for _ in range(4)]
    # The run at once, and of each submitter one that is given up.
    assert begun[0] == "b1"
    assert sorted(begun[1:3]) == ["b0", "e0"]
    assert begun[3] is None
    statuses = [engine.meta(job)["status"] for job in jobs]
    assert statuses == ["RUNNING", *["SUBMITTED"] * 2, *["FINISHED:CAN_NOT_SCHEDULE"] * 2]
    # One that is under way takes no room from runs.
    engine.scheduler.limits = QueueLimits(at_once=2)
    engine.submit("c1", "carl")
    assert engine.begin() == "c1"


@pytest.mark.parametrize("claims", [True, False])
def test_who_claims_to_give_a_run_up_to_pass_the_queue_is_found_out(tmp_path, claims):
    path = tmp_path / "meta.json"
    path.write_text(json.dumps({FORGETS: claims, "submitter_name": "anna"}))
    workspace = SimpleNamespace(get_job_meta_path=lambda job: str(path))
    assert submitter_of(workspace, "1", forget=claims) == "anna"
    with pytest.raises(ConfigError, match="not what it says it is"):
        submitter_of(workspace, "1", forget=not claims)


def test_submitters_take_turns_also_after_the_coordinator_was_started_again(engine, tmp_path):
    jobs = {f"a{n}": engine.submit(f"a{n}", "anna") for n in (1, 2, 3)}
    jobs |= {f"b{n}": engine.submit(f"b{n}", "bert") for n in (1, 2)}
    begun = []
    for _ in range(5):
        run = engine.begin()
        assert engine.begin() is None
        engine.end(jobs[run], state="over")
        begun.append(run)
        engine = Engine(tmp_path)
    assert begun == ["a1", "b1", "a2", "b2", "a3"]


def test_a_run_whose_process_died_goes_on_before_others_begin(engine):
    first = engine.submit("a1", "anna")
    engine.begin()
    engine.submit("b1", "bert")
    engine.end(first, RunStatus.FINISHED_ABNORMAL)
    # Neither the name of another's run nor a run that could not begin goes first.
    engine.submit("a1", "carl")
    again = engine.submit("a1", "anna")
    places = places_of([info_of(engine.meta(job)) for job in engine_jobs(engine)])
    assert places[again] == 1
    assert engine.begin() == "a1"
    assert engine.meta(again)["status"] == "RUNNING"
    engine.end(again, state="failed", kept=False)
    engine.submit("a1", "anna")
    assert engine.begin() == "b1"


def engine_jobs(engine):
    return [job.job_id for job in engine.manager.get_all_jobs(Context())]


def test_two_runs_are_under_way_at_once_where_the_kit_says_so(engine):
    engine.scheduler.limits = QueueLimits(at_once=2, each_at_once=1)
    for run in ("a1", "a2"):
        engine.submit(run, "anna")
    assert [engine.begin(), engine.begin()] == ["a1", None]
    engine.submit("b1", "bert")
    engine.submit("c1", "carl")
    assert [engine.begin(), engine.begin()] == ["b1", None]


def test_more_than_may_wait_for_one_submitter_is_refused_and_told(engine):
    engine.scheduler.limits = QueueLimits(each_waiting=1)
    engine.submit("a1", "anna")
    engine.begin()
    jobs = [engine.submit(f"a{n}", "anna") for n in (2, 3)] + [engine.submit("b1", "bert")]
    assert engine.begin() is None
    assert [engine.meta(job)["status"] for job in jobs] == [
        "SUBMITTED", "FINISHED:CAN_NOT_SCHEDULE", "SUBMITTED",
    ]  # fmt: skip
    told = info_of(engine.meta(jobs[1]))
    assert told.never_began
    assert told.words == "failed"
    assert "anna has 1 run in the queue already" in told.ending.sentence


class Store:
    """The engine with its notes of jobs."""

    def __init__(self, root, known=("1",)):
        self.root, self.notes = root, {job: {} for job in known}
        self.job_def_manager = self

    def get_workspace(self):
        return SimpleNamespace(get_root_dir=lambda: str(self.root))

    def update_meta(self, job, meta, fl_ctx):
        if job not in self.notes:
            raise StorageException("no such job")
        self.notes[job] |= meta


@pytest.fixture
def kit(place, tmp_path, monkeypatch):
    monkeypatch.setattr(Kit, "home", property(lambda kit: tmp_path))
    return Kit.inspect(kit_of(place, "coordinator"))


def test_how_a_run_ended_is_noted_with_its_job(kit):
    told = {"run": "a", "state": "failed", "sentence": "why"}
    path = ending_file(kit, "1")
    path.parent.mkdir()
    path.write_text(json.dumps(told))
    engine = Store(kit.path)
    RunScheduler().handle_event(EventType.JOB_COMPLETED, Context(job="1", engine=engine))
    assert engine.notes == {"1": {ENDING: told}}
    assert not path.exists()


@pytest.mark.parametrize("known", [("1",), ()], ids=["its process died", "it is deleted"])
def test_a_job_of_which_nothing_is_to_be_noted_does_no_harm(kit, known):
    engine = Store(kit.path, known)
    if not known:
        ending_file(kit, "1").parent.mkdir()
        ending_file(kit, "1").write_text("{}")
    RunScheduler().handle_event(EventType.JOB_COMPLETED, Context(job="1", engine=engine))
    assert engine.notes == {job: {} for job in known}
    assert not ending_file(kit, "1").exists()
