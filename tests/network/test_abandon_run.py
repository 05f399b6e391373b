"""Runs that are given up: nothing is kept of them anywhere, and nobody can take them up again."""

from types import SimpleNamespace

import pytest
from toys import MemoryTransport, Place, ToyRequest, toy

from weft.errors import ConfigError, ProtocolError
from weft.federation.preprocessing_settings import Preprocessing
from weft.network.coordinator_run import coordinate_run
from weft.network.discard_run import SUBMITTER, TASK, abandon_run, leave_run
from weft.network.envelope_bytes import End, Failed, Hello, Welcome, decode_reply, encode
from weft.network.network_channel import NetworkChannel
from weft.network.nvflare_processes import admin_session as asking
from weft.network.nvflare_processes.admin_session import AbandonRequest, RunInfo
from weft.network.run_progress import Progress, Report
from weft.network.run_queue import Submission
from weft.network.site_run_index import RunIndex
from weft.network.submitted_task import LinearTask
from weft.protocol import pack
from weft.solvers.run_settings import Settings
from weft.storage.journal import Journal

RUN, ANNA = "two-clinics-1", "anna@north.example"
NAMES = ("north", "south")


def task(**more):
    settings = Settings(lam=0.1, gap=1e-3)
    return LinearTask(
        name="t", parties=NAMES, settings=settings, preprocessing=Preprocessing(), **more
    )


@pytest.fixture
def scene(tmp_path):
    """A run after its first exchange, whose coordinator and submitter have gone home."""
    places = {name: Place(name, tmp_path / name) for name in NAMES}
    transport = MemoryTransport(places.values())
    folder = tmp_path / "coordinator" / RUN
    journal = Journal(folder / "journal.weft")
    (folder / TASK).write_text(task(timeout=1.0).to_json())
    (folder / SUBMITTER).write_text(ANNA)
    channel = NetworkChannel(transport, RUN, journal)
    channel.hello({"about": "a test"})
    channel.ask(toy("work.a"), {name: ToyRequest(x=1) for name in NAMES})
    channel.close()
    journal.close()
    return SimpleNamespace(places=places, transport=transport, folder=folder)


def forget(scene, who=ANNA):
    return abandon_run(lambda parties: scene.transport, scene.folder, RUN, who)


def kept(place):
    return (place.folder / "runs" / RUN).exists()


def hello(place):
    return decode_reply(place.site.answer(encode(Hello.of(RUN, pack({"about": "a test"})))))


def test_a_run_that_is_given_up_is_deleted_everywhere_and_cannot_be_taken_up_again(scene):
    assert all(kept(place) for place in scene.places.values())
    assert forget(scene) == {}
    assert not scene.folder.exists()
    for place in scene.places.values():
        assert not kept(place)
        assert place.toy.closed
        place.kill()
        reply = hello(place)
        assert isinstance(reply, Failed)
        assert "given up" in reply.reason


def test_who_was_away_is_named_and_can_drop_the_run_alone(scene):
    scene.transport.fate = lambda party, envelope: "lost" if party == "south" else "fine"
    deaf = forget(scene)
    assert {party: failure.kind for party, failure in deaf.items()} == {"south": "late"}
    assert not scene.folder.exists()
    south = scene.places["south"]
    assert kept(south)
    south.site.close()
    leave_run(south.folder, RUN)
    assert not kept(south)
    south.start()
    reply = hello(south)
    assert isinstance(reply, Failed)
    assert "dropped by its owner" in reply.reason


def test_one_submitter_does_not_give_up_the_runs_of_another(scene):
    asked = len(scene.transport.sent)
    with pytest.raises(ConfigError, match="is not bert@south"):
        forget(scene, "bert@south.example")
    assert len(scene.transport.sent) == asked
    assert scene.folder.exists()


def test_parties_that_missed_the_end_of_a_run_hear_that_it_is_over(scene):
    (scene.folder / "results").mkdir()
    assert forget(scene) == {}
    told = [envelope for _, envelope in scene.transport.sent if isinstance(envelope, End)]
    assert [end.over for end in told] == [True, True]
    assert RunIndex(scene.places["north"].folder).get(RUN).how == "over"


def test_nobody_is_asked_about_a_run_of_which_nothing_is_kept(scene):
    forget(scene)
    asked = len(scene.transport.sent)
    assert forget(scene) == {}
    assert len(scene.transport.sent) == asked


def test_a_site_drops_no_run_that_it_does_not_have_and_no_run_twice(scene):
    north = scene.places["north"]
    north.site.close()
    with pytest.raises(ConfigError, match="takes no part in a run 'other'"):
        leave_run(north.folder, "other")
    leave_run(north.folder, RUN)
    ended = RunIndex(north.folder).get(RUN)
    leave_run(north.folder, RUN)
    assert RunIndex(north.folder).get(RUN) == ended


def test_a_run_that_is_refused_leaves_nothing_behind(tmp_path):
    def refuse(request):
        raise ConfigError("no runs on a Sunday")

    places = [
        Place("north", tmp_path / "north"),
        Place("south", tmp_path / "south", make=refuse),
    ]
    transport = MemoryTransport(places)
    folder = tmp_path / "coordinator" / RUN
    with pytest.raises(ProtocolError, match="no runs on a Sunday"):
        coordinate_run(lambda parties: transport, folder, task(), Progress(RUN), ANNA)
    assert not folder.exists()
    assert not any(kept(place) for place in places)
    # North may be asked for it anew.
    assert isinstance(hello(places[0]), Welcome)


class Server:
    """A session with a server that is played: jobs end when they are stopped or submitted."""

    submitter = "anna"

    def __init__(self, *jobs, told=None, parties=NAMES):
        self.jobs = {job.job: job for job in jobs}
        self.told, self.parties = told, list(parties)
        self.stopped, self.deleted = [], []

    def runs(self):
        return list(self.jobs.values())

    def connected(self):
        return self.parties

    def stop(self, job):
        self.stopped.append(job)

    def status(self, job):
        going = job in self.jobs and not self.jobs[job].ended and job not in self.stopped
        return "RUNNING" if going else "FINISHED:COMPLETED"

    def submit(self, run, task):
        assert (run, task) == (RUN, None)
        return "new"

    def fetch(self, job, names, into):
        assert (job, names) == ("new", ())
        return self.told

    def delete(self, job):
        self.deleted.append(job)


def job(number, status, run=RUN, submitter="anna"):
    known = Submission(number, run, submitter, 1.0, 1.0)
    return RunInfo(run, number, status, "today", submission=known)


def test_a_run_is_stopped_given_up_and_its_jobs_are_deleted(monkeypatch):
    monkeypatch.setattr(asking, "_LOOK", 0.0)
    told = Report(run=RUN, state="forgotten", away={"south": "is not connected"})
    server = Server(
        job("1", "FINISHED:ABORTED"), job("2", "RUNNING"), job("3", "RUNNING", "other"),
        job("4", "RUNNING", submitter="mallory"), told=told,
    )  # fmt: skip
    assert AbandonRequest(server, RUN).send() == {"south": "is not connected"}
    assert server.stopped == ["2"]
    assert server.deleted == ["1", "2", "new"]


@pytest.mark.parametrize(
    ("server", "words"),
    [
        (Server(job("1", "RUNNING", "other")), "knows no run"),
        (Server(job("1", "RUNNING", submitter="mallory")), "knows no run .* of yours"),
        (Server(job("1", "FINISHED:ABORTED"), parties=()), "no party is connected"),
        (Server(job("1", "FINISHED:ABORTED")), "its process died"),
        (
            Server(
                job("1", "FINISHED:ABORTED"),
                told=Report(run=RUN, state="failed", sentence="it is not yours"),
            ),
            "could not be given up: it is not yours",
        ),
    ],
    ids=["unknown", "another's", "nobody there", "died", "refused"],
)
def test_what_cannot_be_given_up_is_one_sentence_and_nothing_is_deleted(server, words):
    with pytest.raises((ConfigError, ProtocolError), match=words):
        AbandonRequest(server, RUN).send()
    assert server.deleted == []


def test_a_coordinator_that_takes_too_long_is_not_waited_for_for_ever(monkeypatch):
    monkeypatch.setattr(asking, "_LOOK", 0.0)
    server = Server(job("1", "RUNNING"))
    server.stop = lambda job: None
    with pytest.raises(ProtocolError, match="has not given run"):
        AbandonRequest(server, RUN, patience=0.01).send()
