"""The event log: lines for people and machines, nothing private for the latter, and rotation."""

from __future__ import annotations

import json
import logging
import os
import time
from types import SimpleNamespace

import pytest
from toys import MemoryTransport, Place, ToyRequest, toy

from weft.errors import ConfigError, DataError
from weft.network.event_lines import OWN
from weft.network.network_channel import NetworkChannel
from weft.network.nvflare_processes import event_log_files
from weft.network.nvflare_processes.client_party import PartyComponent
from weft.network.nvflare_processes.event_log_files import (
    LogFollower,
    event_log_file,
    start_event_log,
)
from weft.network.nvflare_processes.leave_out_harmless_log_lines import leave_out_expected_errors
from weft.network.nvflare_processes.run_scheduler import RunScheduler
from weft.network.run_progress import Progress
from weft.network.serve_settings import ServeSettings, read_log_style, write_serve_settings
from weft.protocol import Failure, Request
from weft.solvers.solver_interfaces_and_results import Record
from weft.storage.journal import Journal

log = logging.getLogger("weft.site")


@pytest.fixture
def kit(tmp_path):
    """A kit with no more than a place for logs, and no handler left behind."""
    logger = logging.getLogger("weft")
    before, level = list(logger.handlers), logger.level
    yield SimpleNamespace(home=tmp_path, local=tmp_path)
    for handler in [new for new in logger.handlers if new not in before]:
        logger.removeHandler(handler)
        handler.close()
    logger.setLevel(level)


def lines(kit):
    return [json.loads(line) for line in event_log_file(kit, "json").read_text().splitlines()]


def test_a_json_line_names_its_run_and_tells_only_what_may_leave(kit):
    start_event_log(kit, "json")
    log.info("run %s: takes part", "study-1")
    unfit = DataError("sample 's41' has the label 7", harmless="has an unknown label")
    log.error("run %s: refused: %s", "study-1", unfit)
    log.error("run %s: refused: %s", "?", DataError("sample 's42' is twice in it"))
    log.error("run %s: %s", "study-1", ConfigError("9437 samples", told="too few samples"))
    log.info("run %s: exposed: %s", "study-1", "206 sums about its 9447 samples", extra=OWN)
    try:
        raise KeyError("value 9457")
    except KeyError:
        log.exception("run %s: broke down", "study-1")
    logging.getLogger("weft.network.nvflare_processes.client_party").info("chatter of the engine")
    found = lines(kit)
    assert [(line.get("run"), line["message"]) for line in found] == [
        ("study-1", "takes part"),
        ("study-1", "refused: has an unknown label"),
        (None, "refused: (in events.log)"),
        ("study-1", "too few samples"),
        ("study-1", "exposed: (in events.log)"),
        ("study-1", "broke down"),
    ]
    assert [line["level"] for line in found][:2] == ["info", "error"]
    assert found[-1]["error"] == "KeyError"
    packed = event_log_file(kit, "json").read_text()
    own = event_log_file(kit).read_text()
    for private in ("s41", "label 7", "s42", "9437 s", "9447 s", "value 9457"):
        assert private not in packed
        assert private in own
    assert event_log_file(kit, "json").stat().st_mode & 0o777 == 0o600


def test_every_line_of_a_runs_process_names_its_run(kit):
    start_event_log(kit, "json", "study-1")
    logging.getLogger("weft.network").info("%s is back", "west")
    assert [(line["run"], line["message"]) for line in lines(kit)] == [("study-1", "west is back")]


def test_a_site_sends_on_nothing_about_its_data(kit, tmp_path):
    """A real site that breaks down in every way that it can."""
    start_event_log(kit, "json")
    transport = MemoryTransport([Place("north", tmp_path / "north")])
    for number, fail in enumerate(("unfit", "break", "refuse")):
        journal = Journal(tmp_path / f"{fail}.weft")
        channel = NetworkChannel(transport, f"run-{number}", journal)
        channel.hello({})
        channel.exchange([Request(toy("toy.fails"), {"north": ToyRequest(fail=fail)})])
        channel.close()
        journal.close()
    found = lines(kit)
    assert {line["run"] for line in found} == {"run-0", "run-1", "run-2"}
    packed, own = event_log_file(kit, "json").read_text(), event_log_file(kit).read_text()
    for private in ("s41", "label 7", "a secret value"):
        assert private in own
        assert private not in packed


def size_of(path):
    """Of a file that may just have been moved away."""
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


def test_a_full_log_is_moved_and_no_line_is_lost_on_the_terminal(kit, monkeypatch):
    monkeypatch.setattr(event_log_files, "MOST_BYTES", 300)
    monkeypatch.setattr(event_log_files, "KEPT", 2)
    monkeypatch.setattr(event_log_files, "_LOOK", 0.001)
    start_event_log(kit)
    path, stream = event_log_file(kit), kit.home / "engine.log"
    heard, terminal = os.pipe()
    engine = os.open(stream, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    follower = LogFollower(path, terminal, streams=[stream])
    for number in range(60):
        log.info("event %d", number)
        os.write(engine, b"x" * 20)
        until = time.monotonic() + 60.0
        while max(size_of(path), size_of(stream)) >= 300 and time.monotonic() < until:
            time.sleep(0.001)
    follower.close()
    os.close(terminal)
    with os.fdopen(heard, "rb") as file:
        said = file.read().decode()
    assert [int(line.rsplit(" ", 1)[1]) for line in said.splitlines()] == list(range(60))
    os.close(engine)
    # Where the last event filled the log, the next one begins another.
    log.info("and one more")
    names = {"events.log", "events.log.1", "events.log.2"}
    assert {found.name for found in kit.home.glob("events.log*")} == names
    assert (kit.home / "engine.log.1").exists()
    assert stream.stat().st_size < 300


def test_processes_of_runs_log_as_the_server_was_told(kit):
    assert read_log_style(kit) == "text"
    write_serve_settings(kit, ServeSettings(log="json"))
    assert read_log_style(kit) == "json"
    (kit.local / "weft.json").write_text("{")
    assert read_log_style(kit) == "text"


def test_repeated_iterations_are_no_news(caplog):
    caplog.set_level("INFO", "weft.coordinator")
    progress = Progress("study-1")
    away = {"west": Failure("failed", "is not connected")}

    def iterate(*numbers, repeated=False):
        for number in numbers:
            progress._next_line = 0.0
            told = Record(number, 2, number, 10, 10, 0.0, 0.0)
            progress.add(told, {} if repeated else away, repeated=repeated)

    def said():
        found = [entry.getMessage().split(": ", 1)[1].split(",")[0] for entry in caplog.records]
        caplog.clear()
        return found

    iterate(1, 2)
    assert said() == ["west is away: it is not connected", "iteration 1", "iteration 2"]
    progress.resume(7)
    iterate(1, repeated=True)
    iterate(2, 3)
    assert said() == ["goes on after 7 exchanges", "iteration 3"]
    assert len(progress.since().records) == 3
    # A new process of the same run, which goes on after two iterations.
    progress = Progress("study-1")
    iterate(1, 2, repeated=True)
    iterate(3)
    assert said() == ["west is away: it is not connected", "iteration 3"]


def cell(name):
    return SimpleNamespace(info=SimpleNamespace(fqcn=name))


def test_each_side_says_once_when_the_other_is_gone_and_back(caplog):
    caplog.set_level("INFO", "weft")
    party, scheduler = PartyComponent(), RunScheduler()
    party.found(cell("server"))
    for tell in (party.lost, party.lost, party.found, party.found):
        tell(cell("server"))
    party.lost(cell("somebody"))
    scheduler._meet("west", "", comes=True)
    for name in ("west", "west", "submitter"):
        scheduler.lost(cell(name))
    assert [entry.getMessage() for entry in caplog.records] == [
        "the coordinator is gone; this site tries to reach it until it is back",
        "the coordinator is back",
        "west is connected",
        "west is gone: its connection broke",
    ]


def test_only_errors_that_healthy_runs_have_are_left_out(caplog):
    leave_out_expected_errors()
    leave_out_expected_errors()
    cells = logging.getLogger("nvflare.fuel.f3.cellnet.core_cell.CoreCell")
    commands = logging.getLogger("nvflare.private.fed.server.server_commands.AppCommandProcessor")
    asked = "[ME=server D=server.:ec09f68 SCH=server_command STP=app_command SEQ=0] "
    cells.error(asked + "cannot send to 'server.94b7ce39': target_unreachable")
    cells.warning(asked + "no connection to child server.94b7ce39")
    commands.error("no app command func for topic weft.progress")
    assert not caplog.records
    cells.error("[ME=south D=server TP=heart_beat] cannot send to 'server': target_unreachable")
    commands.error("no app command func for topic another")
    assert len(caplog.records) == 2
