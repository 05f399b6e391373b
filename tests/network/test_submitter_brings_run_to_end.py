"""Runs are seen through: handed in again when their process died, and no more often than said."""

import io
import json
import zipfile

import pytest
from kitted import kit_of
from nvflare.private.fed.server.job_meta_validator import JobMetaValidator

from weft.errors import ConfigError, ProtocolError
from weft.federation.preprocessing_settings import Preprocessing
from weft.network.installed_job_kinds import read_task
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes import submitter_brings_run_to_end as supervising
from weft.network.nvflare_processes.admin_session import NoCoordinator, RunInfo
from weft.network.nvflare_processes.submitter_brings_run_to_end import Supervisor
from weft.network.nvflare_processes.write_job import FORGETS, task_file, write_job
from weft.network.run_progress import Progress, Report
from weft.network.run_queue import Submission
from weft.network.submitted_task import LinearTask
from weft.protocol import Failure
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record

RUN = "two-clinics-1"
SETTINGS = Settings(lam=0.1, gap=1e-3)
TASK = LinearTask(
    name="two clinics", parties=("north", "south"), settings=SETTINGS, preprocessing=Preprocessing()
)
OVER = Report(run=RUN, state="over")


class Server:
    """A coordinator's server that is played: what becomes of each job, in their order.

    ``died``: its process dies. ``gone``: the server dies with it. A report: how it ended.
    """

    def __init__(self, *fates):
        self.fates = list(fates)
        self.jobs = []
        self.running = None

    def __call__(self, kit):
        return self

    def __enter__(self):
        return self

    def __exit__(self, *_):
        pass

    def runs(self):
        status = "RUNNING" if self.running else "FINISHED:COMPLETED"
        return [RunInfo(RUN, "0", status, "today")] if self.running or self.jobs else []

    def submit(self, run, task):
        assert (run, task) == (RUN, TASK)
        self.jobs.append(self.fates.pop(0))
        return str(len(self.jobs))

    def progress(self, job, since):
        if self.jobs and self.jobs[-1] == "gone":
            self.jobs[-1] = "died"
            raise NoCoordinator("the coordinator does not answer any more")
        return None

    def status(self, job):
        if self.jobs and self.jobs[-1] == "died" and not self.knocked:
            raise NoCoordinator("the coordinator does not answer any more")
        return "FINISHED:COMPLETED"

    knocked = True

    def fetch(self, job, names, into):
        self.running = None
        found = self.jobs[-1] if self.jobs else OVER
        return found if isinstance(found, Report) else None


@pytest.fixture
def supervise(place, monkeypatch):
    def run(server, **options):
        monkeypatch.setattr(supervising, "Session", server)
        monkeypatch.setattr(supervising, "_ASK", 0.0)
        said = []
        monkeypatch.setattr(
            supervising, "wait_for_coordinator", lambda kit, seconds, say: said.append("?")
        )
        kit = Kit.open(kit_of(place, "anna@north.example"))
        supervisor = Supervisor(kit, RUN, TASK, said.append, lambda report: None, **options)
        return supervisor.run_to_end(place), said

    return run


def test_a_run_that_comes_to_its_end_is_handed_in_once(supervise):
    server = Server(OVER)
    ended, said = supervise(server)
    assert (ended, said, server.jobs) == (OVER, [], [OVER])


@pytest.mark.parametrize("state", ["failed", "stopped"])
def test_a_run_that_ends_for_a_reason_is_not_tried_again(supervise, state):
    told = Report(run=RUN, state=state, sentence="party south refuses this")
    ended, said = supervise(Server(told, OVER))
    assert (ended, said) == (told, [])


def test_a_run_whose_process_died_is_handed_in_again(supervise):
    server = Server("died", "died", OVER)
    ended, said = supervise(server)
    assert (ended, len(server.jobs)) == (OVER, 3)
    assert len(said) == 2
    assert all("died" in line and RUN in line for line in said)


def test_a_coordinator_that_is_gone_is_waited_for(supervise):
    server = Server("gone", OVER)
    server.knocked = False
    ended, said = supervise(server)
    assert ended == OVER
    assert said[0].startswith("the coordinator does not answer")
    assert said[1] == "?"
    assert "is there" in said[2]


def test_a_coordinator_that_stays_away_is_not_waited_for_for_ever(supervise):
    server = Server(*["gone"] * 9)
    server.knocked = False
    with pytest.raises(ProtocolError, match="stays away"):
        supervise(server, patience=-1.0)


def test_a_run_that_is_still_at_it_is_followed_and_not_handed_in_twice(supervise):
    server = Server()
    server.running = True
    ended, _ = supervise(server)
    assert (ended, server.jobs) == (OVER, [])


def test_a_run_that_dies_and_dies_is_given_up_with_a_sentence(supervise):
    server = Server(*["died"] * 9)
    with pytest.raises(ProtocolError, match="died 3 times"):
        supervise(server, tries=3)
    assert len(server.jobs) == 3


class Queue(Server):
    """A run that waits in a queue, which is another one whenever it is looked at."""

    def __init__(self, *looks, ending=None):
        super().__init__(OVER)
        self.looks, self.ending = list(looks), ending

    def info(self, number, run, status, started=0.0, ending=None):
        known = Submission(number, run, run, float(number), started, waits=status == "SUBMITTED")
        return RunInfo(run, number, status, "today", ending, submission=known)

    def runs(self):
        if not self.jobs:
            return []
        if not self.looks:
            return [self.info("1", RUN, "FINISHED:ABORTED", ending=self.ending)]
        before, going = self.looks.pop(0)
        others = [self.info(str(n - 9), f"b{n}", "SUBMITTED") for n in range(before)]
        others += [self.info(str(n - 20), f"c{n}", "RUNNING", 1.0) for n in range(going)]
        return [self.info("1", RUN, "SUBMITTED"), *others]

    def status(self, job):
        return "SUBMITTED" if self.looks else "FINISHED:ABORTED"

    def fetch(self, job, names, into):
        pytest.fail("nothing of it has begun")


def test_a_run_that_waits_tells_its_place_when_that_changes(supervise, monkeypatch):
    monkeypatch.setattr(supervising, "_LOOK", 0.0)
    _, said = supervise(Queue((2, 1), (2, 1), (0, 1), (0, 0)))
    assert said == [
        f"run {RUN} waits: 1 under way, 2 before it in the queue",
        f"run {RUN} waits: 1 under way, it is the next",
    ]


def test_a_run_that_ends_in_the_queue_is_not_handed_in_again(supervise, monkeypatch):
    monkeypatch.setattr(supervising, "_LOOK", 0.0)
    server = Queue((1, 1))
    assert supervise(server)[0] == Report(run=RUN, state="stopped", kept=False)
    assert server.jobs == [OVER]
    refused = Report(run=RUN, state="failed", sentence="too many", kept=False)
    assert supervise(Queue((1, 1), ending=refused))[0] == refused


def test_the_engine_takes_the_job_and_finds_no_code_in_it(tmp_path):
    job = write_job(tmp_path, RUN, TASK)
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w") as archive:
        for path in sorted(tmp_path.rglob("*")):
            inner = str(path.relative_to(tmp_path)) + ("/" if path.is_dir() else "")
            archive.writestr(inner, b"" if path.is_dir() else path.read_bytes())
    valid, problem, meta = JobMetaValidator().validate(RUN, content.getvalue())
    assert (valid, problem) == (True, "")
    assert "byoc" not in meta
    kinds = {path.suffix for path in job.rglob("*") if path.is_file()}
    assert kinds == {".json"}
    server = json.loads((job / "coordinator/config/config_fed_server.json").read_text())
    assert [flow["path"].split(".")[0] for flow in server["workflows"]] == ["weft"]


def test_a_job_that_gives_a_run_up_says_so_and_has_no_task(tmp_path):
    job = write_job(tmp_path, RUN, None)
    assert json.loads((job / "meta.json").read_text())[FORGETS] is True
    server = json.loads((job / "coordinator/config/config_fed_server.json").read_text())
    assert server["workflows"][0]["args"] == {"run": RUN, "forget": True}
    assert not task_file(job / "coordinator").exists()


def test_a_run_that_is_being_given_up_is_not_followed(supervise):
    server = Server()
    server.runs = lambda: [RunInfo(RUN, "0", "RUNNING", "today", forgets=True)]
    with pytest.raises(ConfigError, match="is being given up"):
        supervise(server)


def test_the_task_comes_through_a_job_as_it_was(tmp_path):
    job = write_job(tmp_path, RUN, TASK)
    assert read_task(task_file(job / "coordinator").read_text()) == TASK


def record(number, gap=None):
    return Record(number, 2, number, 10, 10, 0.0, 0.0, gap=gap)


def test_progress_tells_each_iteration_once_and_only_numbers_that_json_has():
    progress = Progress(RUN)
    assert progress.since(0).state == "starting"
    progress.begin(("north", "south"))
    progress.add(record(1, gap=float("inf")), {})
    progress.add(record(2), {"south": Failure("late", "gave no answer")})
    first = progress.since(0)
    assert [told["iteration"] for told in first.records] == [1, 2]
    assert first.away == {"south": "gave no answer"}
    json.dumps(first.to_plain(), allow_nan=False)
    progress.add(record(3), {})
    rest = progress.since(2)
    assert [told["iteration"] for told in rest.records] == [3]
    assert (rest.state, rest.away) == ("running", {})
    progress.end("failed", "a reason")
    assert (progress.since(3).state, progress.since(3).sentence) == ("failed", "a reason")


def test_the_diary_has_the_last_iteration_of_a_run_before_its_end(caplog):
    caplog.set_level("INFO", "weft.coordinator")
    progress = Progress(RUN)
    for number in (1, 2, 3):
        progress.add(record(number, gap=0.5 / number), {})
    progress.end("over")
    told = [entry.getMessage().removeprefix(f"run {RUN}: ") for entry in caplog.records]
    assert [line.partition(",")[0] for line in told] == ["iteration 1", "iteration 3", "over"]
