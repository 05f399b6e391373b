"""The server's own component: who may start when, who comes and goes, how runs ended."""

import json
import logging
from types import SimpleNamespace

import pytest
from kitted import kit_of
from nvflare.apis.event_type import EventType
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.job_def import Job
from nvflare.apis.storage import StorageException
from nvflare.app_common.job_schedulers.job_scheduler import SCHEDULE_RESULT_OK

from weft.network.engine.server_only_jobs import RunScheduler
from weft.network.engine.write_job import ENDING, FORGETS, ending_file
from weft.network.kits.open_kit import Kit


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
        scheduler.handle_event(EventType.CLIENT_HEARTBEAT_RECEIVED, Context("north"))
    assert diary() == ["north is connected"]
    scheduler.handle_event(EventType.CLIENT_QUIT, Context("north"))
    scheduler.handle_event(EventType.CLIENT_REGISTER_PROCESSED, Context("north"))
    scheduler.handle_event(EventType.CLIENT_HEARTBEAT_RECEIVED, Context("north"))
    assert diary()[1:] == ["north has left", "north is connected"]


def test_a_submitter_is_no_party(diary):
    scheduler = RunScheduler()
    scheduler.handle_event(EventType.CLIENT_REGISTER_PROCESSED, Context("anna", kind="admin"))
    scheduler.handle_event(EventType.CLIENT_QUIT, Context("anna"))
    assert diary() == ["submitter anna is connected"]


@pytest.mark.parametrize(("room", "chosen"), [(1, "run"), (0, "forget")])
def test_giving_a_run_up_need_not_wait_for_room(room, chosen, monkeypatch):
    jobs = [
        Job(name, {}, {"coordinator": ["server"]}, {"submit_time": at, FORGETS: name == "forget"})
        for at, name in enumerate(("run", "forget"))
    ]
    scheduler = RunScheduler(max_jobs=1)
    for name in ("log_debug", "log_info"):
        monkeypatch.setattr(scheduler, name, lambda *_, **__: None)
    scheduler.scheduled_jobs = [] if room else ["another"]

    class Engine:
        def new_context(self):
            return self

        def __enter__(self):
            return Context()

        def __exit__(self, *_):
            pass

    found, _ = scheduler._do_schedule_job(jobs, Context(engine=Engine()), [], [])
    assert found.job_id == chosen


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
