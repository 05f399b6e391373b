"""``weft console``: what each kit's owner sees of a federation, and who may ask for it."""

from __future__ import annotations

import json
import shutil
import signal
import socket
import threading
import time
from http.client import HTTPConnection

import msgspec
import pytest
from kitted import ANNA, kit_of

from weft import __version__
from weft.errors import ConfigError
from weft.network.console.coordinator_view import CoordinatorView
from weft.network.console.page import page_of, state_of
from weft.network.console.page_server import PageServer
from weft.network.console.shared_view_records import ExposureRow, FederationView, RunRow, SiteRow
from weft.network.console.site_view import SiteView
from weft.network.console.submitter_view import SubmitterView
from weft.network.current_wait import Wait
from weft.network.kits.kit_folder import Kit
from weft.network.kits.nvflare_settings_of_kit import engine_folder
from weft.network.nvflare_processes.admin_session import NoCoordinator, RunInfo
from weft.network.process_pulse import Pulse, SeenSite, write_pulse
from weft.network.run_progress import Report
from weft.network.run_progress_file import GapPoint, RunFigures, write_figures
from weft.network.serve_settings import ServeSettings, write_serve_settings
from weft.network.site_run_index import RunIndex

WAIT = Wait(phase="match.tokens", parties=["south"], seconds=12, limit=60, why="is not connected")
CURVE = [GapPoint(1, 1, 0.5), GapPoint(9, 4, 0.01)]
RECORD = {
    "iteration": 4, "present": 2, "round_trips": 9, "bytes_down": 2e6, "bytes_up": 1e6,
    "compute_seconds": 1.0, "wall_seconds": 9.0, "primal": 0.5, "gap": 0.01, "certified_at": 4,
}  # fmt: skip


def running(run, **more):
    known = {"records": [RECORD], "parties": ["north", "south"], **more}
    return Report(run=run, state="running", **known)


class Coordinator:
    """A coordinator's kit whose files are written by hand."""

    def __init__(self, place, folder):
        shutil.copytree(kit_of(place, "coordinator"), folder / "kit")
        self.kit = Kit.open(folder / "kit")
        self.kit.prepare()
        self.jobs = 0

    def pulse(self, *, ago=0.0, **sites):
        now = time.time()
        write_pulse(self.kit.home, Pulse(
            kind="coordinator", weft="0.2.0", began=now - 100, beat=now - ago, ready=True,
            sites=sites,
        ))  # fmt: skip

    def job(self, run, status, **more):
        """As the engine stores them."""
        self.jobs += 1
        folder = engine_folder(self.kit.path) / "jobs" / str(self.jobs)
        folder.mkdir(parents=True)
        meta = {
            "job_id": str(self.jobs), "name": run, "status": status, "submitter_name": "anna",
            "submit_time": 1000.0 + self.jobs, **more,
        }  # fmt: skip
        (folder / "meta").write_text(json.dumps(meta))
        (folder / "data").write_text("not looked at")

    def figures(self, report, curve=()):
        write_figures(self.kit.home, RunFigures(report=report, began=1.0, curve=list(curve)))

    def results(self, run, summary):
        folder = self.kit.runs / run / "results"
        folder.mkdir(parents=True)
        (folder / "summary.json").write_text(json.dumps(summary))
        (self.kit.runs / run / "task.json").write_text(json.dumps({"settings": {"gap": 1e-3}}))
        (self.kit.runs / run / "submitter").write_text("anna")

    def look(self):
        return CoordinatorView(self.kit).look()


@pytest.fixture
def coordinator(place, tmp_path):
    return Coordinator(place, tmp_path)


def test_before_the_first_run_it_says_who_is_there(coordinator):
    view = coordinator.look()
    assert (view.state, view.sentence) == ("bad", "weft serve does not run")
    assert (view.sites, view.runs, view.exposure) == ([], [], [])
    now = time.time()
    coordinator.pulse(
        north=SeenSite(since=now - 50, seen=now, version="0.2.0"),
        south=SeenSite(since=now - 50, seen=now - 40),
        west=SeenSite(since=now - 5, seen=now - 6, there=False),
    )
    view = coordinator.look()
    assert (view.state, view.sentence) == ("good", "serving, 1 connected: north")
    assert [(site.name, site.state) for site in view.sites] == [
        ("north", "connected"), ("south", "silent"), ("west", "gone"),
    ]  # fmt: skip
    assert view.sites[0].version == "0.2.0"
    assert {"process", "certificate", "authority", "disk"} <= {one.about for one in view.symptoms}
    assert not view.runs


def test_runs_are_told_with_state_queue_wait_gaps_and_exposure(coordinator):
    coordinator.pulse(north=SeenSite(since=1, seen=time.time()))
    failed = Report(run="c", state="failed", sentence="party south refuses this")
    coordinator.job("b", "FINISHED:EXECUTION_EXCEPTION")
    coordinator.job("b", "FINISHED:COMPLETED", weft_ending={"run": "b", "state": "over"})
    coordinator.job("c", "FINISHED:COMPLETED", weft_ending=msgspec.to_builtins(failed))
    coordinator.job("a", "RUNNING")
    coordinator.job("d", "SUBMITTED")
    coordinator.figures(running("a", wait=WAIT, away={"south": "is not connected"}), CURVE)
    coordinator.results("b", {
        "exposed": "north showed as many sums", "exposure_reached": True,
        "exposed_parties": ["north"], "federation": {"parties": ["north", "south"]},
        "settings": {"noise": {"epsilon": 1.5, "delta": 1e-6}},
    })  # fmt: skip
    view = coordinator.look()
    a, d, c, b = view.runs
    assert (a.run, a.state, a.wait, a.curve) == ("a", "running", WAIT, CURVE)
    assert a.away == {"south": "is not connected"}
    assert "gap 1.00e-02" in a.progress
    assert (d.state, d.place, d.submitter) == ("waiting", 1, "anna")
    assert (c.state, c.sentence) == ("failed", "party south refuses this")
    assert (b.state, b.asked, b.reached, b.exposed) == (
        "over", 1e-3, True, "north showed as many sums",
    )  # fmt: skip
    # A party of a run that is not connected counts as away.
    assert [(site.name, site.state) for site in view.sites] == [
        ("north", "connected"), ("south", "away"),
    ]  # fmt: skip
    assert view.exposure == [
        ExposureRow(party="north", runs=1, reached=1, epsilon=1.5, delta=1e-6),
        ExposureRow(party="south", runs=1, reached=0, epsilon=1.5, delta=1e-6),
    ]


def test_a_run_of_the_same_name_by_another_submitter_hides_nothing_and_shows_nothing(coordinator):
    coordinator.pulse(north=SeenSite(since=1, seen=time.time()))
    coordinator.job("a", "RUNNING")
    coordinator.figures(running("a", wait=WAIT), CURVE)
    coordinator.results("a", {"exposed": "north showed as many sums", "exposure_reached": True})
    failed = Report(run="a", state="failed", sentence="run a was begun with another configuration")
    coordinator.job(
        "a", "FINISHED:COMPLETED", weft_ending=msgspec.to_builtins(failed), submitter_name="mallory"
    )
    by = {run.submitter: run for run in coordinator.look().runs}
    assert by.keys() == {"anna", "mallory"}
    assert (by["anna"].state, by["anna"].wait, by["anna"].curve) == ("running", WAIT, CURVE)
    assert by["anna"].exposed == "north showed as many sums"
    other = by["mallory"]
    assert (other.state, other.sentence) == ("failed", failed.sentence)
    assert (other.wait, other.curve, other.asked, other.exposed, other.reached) == (
        None, [], None, "", None,
    )  # fmt: skip


def test_what_an_earlier_process_of_a_run_left_is_not_how_it_is_now(coordinator):
    coordinator.job("a", "RUNNING")
    coordinator.figures(Report(run="a", state="failed", sentence="south was away"))
    coordinator.pulse()
    (run,) = coordinator.look().runs
    assert (run.state, run.sentence) == ("starting", "")
    coordinator.figures(Report(run="a", state="starting", wait=WAIT), CURVE)
    (run,) = coordinator.look().runs
    assert (run.state, run.wait, run.curve) == ("starting", WAIT, CURVE)


def test_a_coordinator_that_is_dead_is_told_from_one_that_serves(coordinator):
    coordinator.job("a", "RUNNING")
    coordinator.figures(running("a", wait=WAIT), CURVE)
    coordinator.pulse(ago=40, north=SeenSite(since=1, seen=2))
    view = coordinator.look()
    assert view.state == "bad"
    assert view.sentence == "weft serve has given no sign of life for 40 s"
    (run,) = view.runs
    assert (run.state, run.wait) == ("interrupted", None)
    assert [(site.name, site.state) for site in view.sites] == [
        ("north", "unknown"), ("south", "unknown"),
    ]  # fmt: skip


def test_of_years_of_runs_the_last_ones_are_shown_and_all_are_counted(coordinator):
    """A page that is told all of them again every three seconds would keep a machine busy."""
    coordinator.pulse()
    curve = [GapPoint(n / 2, n, 0.5**n) for n in range(1, 241)]
    for number in range(70):
        run = f"study-{number}"
        coordinator.job(run, "FINISHED:COMPLETED", weft_ending={"run": run, "state": "over"})
        coordinator.figures(running(run), curve)
        if number < 3:
            coordinator.results(run, {"federation": {"parties": ["north"]}})
    coordinator.job("now", "RUNNING")
    viewpoint = CoordinatorView(coordinator.kit)
    view = viewpoint.look()
    assert len(view.runs) == 71
    assert view.exposure == [ExposureRow(party="north", runs=3, reached=0)]
    state = state_of(view)
    assert [run["run"] for run in state["runs"]][:2] == ["now", "study-69"]
    assert (len(state["runs"]), state["earlier"]) == (51, 20)
    assert len(json.dumps(state)) < 1e6
    # What has ended is not read again.
    shutil.rmtree(coordinator.kit.home / "figures")
    assert viewpoint.look().runs == view.runs


def test_a_member_that_no_run_takes_is_told(coordinator):
    write_serve_settings(coordinator.kit, ServeSettings(denied=("west",)))
    now = time.time()
    coordinator.pulse(north=SeenSite(since=now, seen=now), west=SeenSite(since=now, seen=now))
    assert [(site.name, site.denied) for site in coordinator.look().sites] == [
        ("north", False), ("west", True),
    ]  # fmt: skip


def test_nothing_of_the_host_is_on_the_page_and_no_name_of_a_run_is_a_path(coordinator, tmp_path):
    coordinator.pulse()
    write_figures(tmp_path, RunFigures(report=running("secret"), began=1.0))
    coordinator.job("../../figures/secret", "RUNNING")
    coordinator.job("</script><script>alert(1)</script>", "FINISHED:COMPLETED")
    folder = engine_folder(coordinator.kit.path) / "jobs"
    (folder / "hurt").mkdir()
    (folder / "hurt" / "meta").write_text("{")
    view = coordinator.look()
    assert {run.progress for run in view.runs} == {""}
    page = page_of(view)
    assert str(tmp_path) not in page
    assert "<script>alert" not in page
    assert page.count("<script") == 2


def test_status_takes_the_coordinators_kit_too(coordinator, weft):
    code, out, _ = weft("status", coordinator.kit.path)
    assert (code, out) == (0, "weft serve does not run.\nNo run yet.\n")
    coordinator.pulse(north=SeenSite(since=1, seen=time.time()))
    coordinator.job("a", "RUNNING")
    coordinator.figures(running("a", wait=WAIT))
    _, out, _ = weft("status", coordinator.kit.path)
    first, second, third = out.splitlines()
    assert first == "Connected: north."
    assert second.startswith("a: running, submitted 1970")
    assert third.startswith("  waits for south (is not connected)")
    told = json.loads(weft("status", coordinator.kit.path, "--json")[1])
    assert (told["connected"], told["runs"][0]["wait"]["seconds"]) == (["north"], 12)


class Session:
    """A session with a coordinator that is played."""

    opened = 0

    def __init__(self, kit):
        Session.opened += 1
        self.asked = []

    def __exit__(self, *_):
        pass

    def connected(self):
        return ["north"]

    def runs(self):
        over = Report(run="b", state="over")
        return [
            RunInfo("a", "2", "RUNNING", "today"),
            RunInfo("b", "1", "FINISHED:COMPLETED", "today", over),
        ]

    def progress(self, job, since):
        self.asked.append(since)
        if len(self.asked) == 3:
            raise NoCoordinator("the coordinator does not answer any more")
        last = 2 * len(self.asked)
        records = [{**RECORD, "iteration": n, "gap": 1 / n} for n in range(since + 1, last + 1)]
        return running("a", records=records, wait=WAIT, versions={"north": "0.2.0"})


def test_a_submitter_sees_what_it_is_told_and_a_session_that_broke_is_opened_again(
    place, monkeypatch
):
    monkeypatch.setattr("weft.network.console.submitter_view.Session", Session)
    Session.opened = 0
    view = SubmitterView(Kit.inspect(kit_of(place, ANNA)))
    view.look()
    seen = view.look()
    assert view._session.asked == [0, 1]
    a, b = seen.runs
    assert [(point.iteration, point.gap) for point in a.curve] == [
        (1, 1), (2, 1 / 2), (3, 1 / 3), (4, 1 / 4),
    ]  # fmt: skip
    assert (a.wait, b.state) == (WAIT, "over")
    assert [(site.name, site.state, site.version) for site in seen.sites] == [
        ("north", "connected", "0.2.0"), ("south", "away", ""),
    ]  # fmt: skip
    with pytest.raises(NoCoordinator):
        view.look()
    assert view.look().runs[0].state == "running"
    assert Session.opened == 2
    view.close()


def test_a_site_sees_its_connection_and_its_runs(place, tmp_path):
    shutil.copytree(kit_of(place, "south"), tmp_path / "south")
    kit = Kit.open(tmp_path / "south")
    kit.prepare()
    assert SiteView(kit).look().sentence == "weft join does not run"
    index = RunIndex(kit.home)
    index.begin("a")
    index.begin("b")
    index.end("a", "over", [])
    now = time.time()
    write_pulse(kit.home, Pulse(kind="site", weft="0", began=1, beat=now, ready=True, seen=now))
    view = SiteView(kit).look()
    assert (view.state, view.sentence) == ("good", "connected")
    assert [(run.run, run.state) for run in view.runs] == [("b", "running"), ("a", "over")]
    assert (view.sites, view.exposure) == ([], [])


# ── who may ask ───────────────────────────────────────────────────────────────────────────────


class Still:
    """A viewpoint from which nothing moves."""

    def __init__(self, trouble=None):
        self.trouble, self.looks = trouble, 0

    def look(self):
        self.looks += 1
        if self.trouble is not None:
            raise self.trouble
        return FederationView(
            kind="coordinator", owner="coordinator", federation="two clinics", weft=__version__,
            now=time.time(), state="good", sentence="serving", runs=[RunRow(run="a", state="over")],
            sites=[SiteRow(name="north", state="connected")],
        )  # fmt: skip

    def close(self):
        pass


@pytest.fixture
def serve():
    servers = []

    def start(viewpoint):
        server = PageServer(viewpoint)
        thread = threading.Thread(target=server.serve_forever, args=(0.02,))
        thread.start()
        servers.append((server, thread))
        return server

    yield start
    for server, thread in servers:
        server.shutdown()
        thread.join()
        server.server_close()


def ask(server, path=None, method="GET", **headers):
    connection = HTTPConnection("127.0.0.1", server.server_port, timeout=5)
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    connection.request(method, f"/{server.secret}/" if path is None else path, headers=given)
    answer = connection.getresponse()
    content = answer.read().decode()
    connection.close()
    return answer, content


def test_the_page_and_its_state_are_told_to_whoever_knows_the_address(serve):
    server = serve(Still())
    answer, page = ask(server)
    assert (answer.status, answer.headers["Content-Type"]) == (200, "text/html; charset=utf-8")
    policy = answer.headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert answer.headers["Cache-Control"] == "no-store"
    assert "Python" not in str(answer.headers)
    assert "two clinics" in page
    answer, text = ask(server, f"/{server.secret}/state.json", Sec_Fetch_Site="same-origin")
    assert answer.status == 200
    assert json.loads(text)["sites"][0]["name"] == "north"
    again = ask(server, Host=f"localhost:{server.server_port}")[0]
    assert again.status == 200
    # One look serves all who ask within a moment.
    assert server._viewpoint.looks == 1
    assert len(server.secret) >= 32
    assert server.socket.getsockname()[0] == "127.0.0.1"


@pytest.mark.parametrize(
    ("path", "method", "headers", "status"),
    [
        ("/", "GET", {}, 404),
        ("/state.json", "GET", {}, 404),
        ("/wrong/state.json", "GET", {}, 404),
        ("/{secret}/../../etc/passwd", "GET", {}, 404),
        ("/{secret}/console.js", "GET", {}, 404),
        (None, "POST", {}, 405),
        (None, "PUT", {}, 405),
        (None, "DELETE", {}, 405),
        (None, "OPTIONS", {}, 405),
        (None, "HEAD", {}, 405),
        # A name of somebody else that leads to this machine.
        (None, "GET", {"Host": "evil.example"}, 421),
        (None, "GET", {"Host": "127.0.0.1"}, 421),
        (None, "GET", {"Host": "127.0.0.1.evil.example:{port}"}, 421),
        (None, "GET", {"Sec_Fetch_Site": "cross-site"}, 403),
        (None, "GET", {"Sec_Fetch_Site": "same-site"}, 403),
    ],
)
def test_everybody_else_is_refused_and_learns_nothing(serve, path, method, headers, status):
    server = serve(Still())
    fill = {"secret": server.secret, "port": server.server_port}
    path = None if path is None else path.format(**fill)
    given = {name: value.format(**fill) for name, value in headers.items()}
    answer, content = ask(server, path, method, **given)
    assert answer.status == status
    assert "clinics" not in content
    assert server._viewpoint.looks == 0


def test_a_federation_that_cannot_be_seen_is_one_sentence_without_paths(serve, tmp_path):
    server = serve(Still(ConfigError(f"{tmp_path}/kit cannot be read (denied); look at it")))
    for path in (None, f"/{server.secret}/state.json"):
        answer, content = ask(server, path)
        assert answer.status == (503 if path is None else 200)
        assert "… cannot be read (denied); look at it" in content
        assert str(tmp_path) not in content


def test_a_port_that_is_taken_is_one_sentence():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of this machine .* --port"):
            PageServer(Still(), port)


@pytest.mark.parametrize("name", ["coordinator", "south", ANNA])
def test_the_command_prints_an_address_until_it_is_ended(place, weft, name, monkeypatch):
    handlers = []
    monkeypatch.setattr(signal, "signal", lambda number, how: handlers.append((number, how)))

    def serve_forever(server, poll_interval):
        ((number, how),) = handlers
        assert number == signal.SIGTERM
        how(number, None)

    monkeypatch.setattr(PageServer, "serve_forever", serve_forever)
    code, out, err = weft("console", kit_of(place, name))
    assert (code, err) == (0, "")
    first, last = out.splitlines()
    assert first.startswith("Open http://127.0.0.1:")
    assert last == "Ended."


def test_a_state_says_its_wait_in_words():
    run = RunRow(run="a", state="running", wait=WAIT)
    told = state_of(msgspec.structs.replace(Still().look(), runs=[run]))["runs"][0]["waits"]
    assert told.startswith("waits for south (is not connected): sending tokens")
