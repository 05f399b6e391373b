"""Signs of life of ``weft serve`` and ``weft join``, and what their metrics are wired to."""

from __future__ import annotations

import shutil
import time
from types import SimpleNamespace

import pytest
from kitted import ANNA, kit_of
from nvflare.apis.event_type import EventType
from nvflare.fuel.f3.cellnet.defs import CellChannel, MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message
from nvflare.private.fed.app.client import client_train
from nvflare.private.fed.app.server import server_train
from test_engine_scheduling import Context
from test_metrics import read

from weft import __version__
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes import engine_internals, kit_health, serve_and_join
from weft.network.nvflare_processes.client_party import PartyComponent
from weft.network.nvflare_processes.process_status_thread import ProcessHeart
from weft.network.nvflare_processes.run_scheduler import RunScheduler
from weft.network.process_pulse import Pulse, SeenSite, living_pulse, read_pulse, write_pulse
from weft.network.site_metrics import Traffic
from weft.network.site_run_index import IndexedRun
from weft.network.systemd_notify import ServiceManager
from weft.network.versions import VERSION_PROPERTY, told_version


@pytest.fixture
def kit(place, tmp_path):
    """Makes a copy of a kit, in which Weft may write."""

    def copy(name):
        shutil.copytree(kit_of(place, name), tmp_path / name)
        opened = Kit.open(tmp_path / name)
        opened.prepare()
        return opened

    return copy


@pytest.fixture
def in_this_process(monkeypatch):
    """Runs what the processes run, without the engine's loop and without ending this one."""
    monkeypatch.setattr(RunScheduler, "newest", None)
    monkeypatch.setattr(PartyComponent, "traffic", Traffic())
    monkeypatch.setattr(PartyComponent, "site", None)
    for change in ("forget_messages_by_one_thread", "open_no_local_port", "reconnect_soon"):
        monkeypatch.setattr(engine_internals, change, lambda: None)
    for change in ("collect_garbage_often", "return_large_blocks", "share_pools"):
        monkeypatch.setattr(serve_and_join, change, lambda *_: None)
    monkeypatch.setattr(serve_and_join, "leave_out_expected_errors", lambda: None)
    monkeypatch.setattr(serve_and_join, "check_port_free", lambda kit: None)
    monkeypatch.setattr(serve_and_join, "wait_for_coordinator", lambda *_: None)
    monkeypatch.setattr(serve_and_join, "_end_jobs", lambda: None)

    def run(kit, start, leave, style):
        start()
        leave()

    monkeypatch.setattr(serve_and_join, "_run", run)
    # One beat a test, by hand, in the place of a thread.
    monkeypatch.setattr(serve_and_join.ProcessHeart, "_go_on", lambda heart: None)
    monkeypatch.setattr("weft.network.nvflare_processes.process_status_thread._METRICS", 0.0)
    hearts = []
    begin = serve_and_join.ProcessHeart.start

    def start(heart):
        hearts.append(heart)
        begin(heart)

    monkeypatch.setattr(serve_and_join.ProcessHeart, "start", start)
    return hearts


class Engine:
    """A cell of the engine that keeps what it is told to call."""

    def __init__(self, kit):
        self.root = kit.path
        self.job_runner = SimpleNamespace(update_abnormal_finished_jobs=lambda *_: None)
        self.core_cell, self.called = self, {}

    def get_cell(self):
        return self

    def get_workspace(self):
        return SimpleNamespace(get_root_dir=lambda: str(self.root))

    def register_request_cb(self, channel, topic, cb):
        self.called[topic] = cb

    def set_cell_disconnected_cb(self, cb):
        self.called["lost"] = cb

    def set_cell_connected_cb(self, cb):
        self.called["found"] = cb

    def add_incoming_reply_filter(self, channel, topic, cb):
        self.called[channel, topic] = cb


def endpoint(name):
    return SimpleNamespace(info=SimpleNamespace(fqcn=name))


def test_serve_tells_who_is_there_by_its_metrics_and_its_pulse(
    kit, weft, tmp_path, in_this_process, monkeypatch
):
    served, path = kit("coordinator"), tmp_path / "weft.prom"
    found = []

    def look():
        (heart,) = in_this_process
        heart.beat()
        found.append((living_pulse(served.home), read(path)))

    def main(arguments):
        assert arguments.workspace == str(served.path)
        look()
        scheduler, engine = RunScheduler(), Engine(served)
        scheduler.handle_event(EventType.SYSTEM_START, Context(engine=engine))
        for name in ("north", "south"):
            known = Context(name)
            known.props[VERSION_PROPERTY] = "0.3.1"
            scheduler.handle_event(EventType.CLIENT_HEARTBEAT_PROCESSED, known)
        look()
        engine.called["lost"](endpoint("south"))
        look()

    monkeypatch.setattr(server_train, "main", main)
    serve_and_join.serve(served, serve_and_join.ServeSettings(metrics=str(path)))
    (first, _), (second, both), (third, one) = found
    assert (first.ready, first.sentence, first.weft) == (False, "starting", __version__)
    assert (second.ready, second.connected()) == (True, ["north", "south"])
    assert second.sites["north"].version == "0.3.1"
    assert second.sentence == "serving, 2 connected: north, south"
    assert (both["weft_connected_sites",], one["weft_connected_sites",]) == (2, 1)
    assert one["weft_site_connected", "south"] == 0
    assert third.sites["south"].state(time.time()) == "gone"
    assert both["weft_disk_free_bytes",] > 0
    # It has ended in order.
    assert read_pulse(served.home) is None


def test_join_tells_its_connection_by_its_metrics_and_its_pulse(
    kit, tmp_path, in_this_process, monkeypatch
):
    joined, path = kit("south"), tmp_path / "weft.prom"
    site = SimpleNamespace(runs=lambda: [IndexedRun("a", "now")], close=lambda: None)
    found = []

    def look():
        (heart,) = in_this_process
        heart.beat()
        found.append((living_pulse(joined.home), read(path)))

    def main(arguments):
        look()
        party, engine = PartyComponent(), Engine(joined)
        party.handle_event(EventType.SYSTEM_BOOTSTRAP, Context(engine=engine))
        party.handle_event(EventType.SYSTEM_START, Context(engine=engine))
        look()
        heard = engine.called[CellChannel.SERVER_MAIN, "heart_beat"]
        PartyComponent.traffic._seen -= 40
        heard(Message({MessageHeaderKey.RETURN_CODE: ReturnCode.COMM_ERROR}))
        look()
        heard(Message({MessageHeaderKey.RETURN_CODE: ReturnCode.OK}))
        look()

    monkeypatch.setattr(client_train, "main", main)
    serve_and_join.join(joined, site, 1.0, metrics=path)
    pulses = [pulse for pulse, _ in found]
    there = [told["weft_coordinator_connected",] for _, told in found]
    assert there == [0, 1, 0, 1]
    assert [pulse.well for pulse in pulses] == [False, True, False, True]
    assert pulses[0].sentence == "not connected yet"
    assert pulses[2].sentence == "the coordinator has been silent for 40 s"
    assert found[1][1]["weft_runs", "under way"] == 1
    assert read_pulse(joined.home) is None


def test_a_heart_goes_on_where_something_cannot_be_told(kit, caplog):
    served, beats = kit("coordinator"), []

    def look():
        beats.append(1)
        if len(beats) in (2, 3):
            raise RuntimeError("changed size during iteration")
        if len(beats) == 5:
            heart.stop()
        return {"ready": True}

    news = SimpleNamespace(wait=lambda seconds: None, clear=lambda: None)
    heart = ProcessHeart(served, look, news, status=lambda pulse: "", manager=ServiceManager({}))
    heart.beat()
    heart._go_on()
    assert len(beats) == 5
    assert [entry.getMessage() for entry in caplog.records] == ["a sign of life is not given"]


def test_a_site_says_its_version_with_every_heartbeat():
    said = {}
    context = SimpleNamespace(set_prop=lambda name, value, **how: said.update({name: (value, how)}))
    PartyComponent().handle_event(EventType.BEFORE_CLIENT_HEARTBEAT, context)
    assert said == {VERSION_PROPERTY: (__version__, {"private": False, "sticky": False})}
    assert told_version(__version__) == __version__
    for bad in (None, 7, "", "<b>", "1" * 21, "0.2\n"):
        assert told_version(bad) == ""


@pytest.mark.parametrize("name", ["coordinator", "south"])
def test_the_doctor_says_whether_the_process_of_a_kit_lives(kit, name, weft):
    opened = kit(name)
    now, verb = time.time(), "serve" if name == "coordinator" else "join"

    def found(**fields):
        write_pulse(opened.home, Pulse(kind=opened.kind, weft="0", began=now, **fields))
        return kit_health.examine_process(opened)

    assert kit_health.examine_process(opened).found == f"weft {verb} does not run"
    assert found(beat=now - 60, ready=True, seen=now).found.endswith("no sign of life for 60 s")
    assert found(beat=now).state == "bad"
    assert found(beat=now, ready=True, seen=now).state == "good"
    silent = found(beat=now, ready=True, seen=now - 45)
    if name == "south":
        assert (silent.state, bool(silent.mend)) == ("bad", True)
        assert silent.found == "weft join: the coordinator has been silent for 45 s"
        return
    assert silent.state == "good"
    sites = {"north": SeenSite(since=now, seen=now), "west": SeenSite(since=now, seen=now - 90)}
    assert found(beat=now, ready=True, sites=sites).found.endswith("1 connected: north")
    code, out, _ = weft("doctor", opened.path, "--running")
    assert (code, out.splitlines()[-1]) == (
        0, "good  process: weft serve: serving, 1 connected: north"
    )  # fmt: skip
    write_pulse(opened.home, Pulse(kind="coordinator", weft="0", began=now, beat=now - 20))
    assert weft("doctor", opened.path, "--running")[0] == 2
    assert weft("doctor", opened.path)[0] == 0


def test_nothing_runs_with_the_kit_of_a_submitter(place, weft):
    code, out, err = weft("doctor", kit_of(place, ANNA), "--running")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert "nothing runs with the kit of a submitter" in err
