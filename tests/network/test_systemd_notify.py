"""``weft serve`` and ``weft join`` under a service manager: what it hears, and units for it."""

from __future__ import annotations

import configparser
import os
import re
import shutil
import socket
import subprocess
from pathlib import Path
from threading import Event

import pytest
from kitted import kit_of

from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.process_status_thread import ProcessHeart
from weft.network.process_pulse import read_pulse
from weft.network.systemd_notify import ServiceManager

OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"


@pytest.fixture(params=["file", "abstract"])
def manager(request, tmp_path, monkeypatch):
    """The address of a manager, and all that it has heard."""
    if request.param == "file":
        # A socket's path is short; that of a test's folder may not be.
        monkeypatch.chdir(tmp_path)
        told = real = "notify"
    else:
        told, real = f"@weft-test-{os.getpid()}", f"\0weft-test-{os.getpid()}"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as box:
        box.bind(real)
        box.settimeout(5)

        def heard():
            found = []
            box.setblocking(False)
            while True:
                try:
                    found.append(box.recv(4096).decode())
                except BlockingIOError:
                    return found

        yield told, heard


def test_a_manager_hears_of_start_life_and_end_and_a_line_when_it_changes(manager):
    address, heard = manager
    given = {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000", "PATH": "kept"}
    told = ServiceManager(given)
    assert given == {"PATH": "kept"}
    assert told.watchdog == 3.0
    told.ready()
    told.alive("no run")
    told.alive("no run")
    told.alive("study-1 running\nREADY=0")
    told.stopping()
    assert heard() == [
        "READY=1",
        "STATUS=no run\nWATCHDOG=1",
        "WATCHDOG=1",
        "STATUS=study-1 running\nWATCHDOG=1",
        "STOPPING=1",
    ]


def test_a_watchdog_of_another_process_is_not_ours(manager):
    address, heard = manager
    told = ServiceManager(
        {"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}
    )
    assert told.watchdog is None
    told.alive("no run")
    told.alive("no run")
    assert heard() == ["STATUS=no run"]


@pytest.mark.parametrize("given", [{}, {"NOTIFY_SOCKET": "/nowhere/at/all"}])
def test_without_a_manager_nothing_happens(given):
    told = ServiceManager(dict(given))
    told.ready()
    told.alive("no run")
    told.stopping()


def test_the_heart_tells_the_manager_once_that_it_is_ready_and_beats_for_the_watchdog(
    manager, place, tmp_path, monkeypatch
):
    address, heard = manager
    monkeypatch.setattr(Kit, "home", property(lambda kit: tmp_path))
    state = {"ready": False}
    heart = ProcessHeart(
        Kit.inspect(kit_of(place, "coordinator")),
        lambda: state,
        Event(),
        status=lambda pulse: pulse.sentence,
        manager=ServiceManager({"NOTIFY_SOCKET": address, "WATCHDOG_USEC": "1000000"}),
    )
    assert heart._pause == 0.5
    heart.beat()
    assert heard() == ["STATUS=starting\nWATCHDOG=1"]
    state["ready"] = True
    heart.beat()
    heart.beat()
    assert heard() == ["READY=1", "STATUS=serving, 0 connected\nWATCHDOG=1", "WATCHDOG=1"]
    assert read_pulse(tmp_path).ready
    heart.stop()
    heart.beat()
    assert heard() == ["STOPPING=1"]
    assert read_pulse(tmp_path) is None


def units():
    found = re.findall(r"```ini\n(.*?)```", OPERATIONS.read_text("utf-8"), re.DOTALL)
    assert len(found) == 2
    return found


@pytest.mark.parametrize("number", [0, 1])
def test_the_units_of_the_docs_ask_for_what_weft_tells(number, tmp_path):
    text = units()[number]
    unit = configparser.RawConfigParser(strict=True)
    unit.optionxform = str
    unit.read_string(text)
    service = unit["Service"]
    assert service["Type"] == "notify"
    assert float(service["WatchdogSec"]) > 4
    program, command, *_ = service["ExecStart"].split()
    assert (Path(program).name, command) == ("weft", ["serve", "join"][number])
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not installed: only the keys were looked at")
    # A program that exists on this machine: whether a path does is not the unit's fault.
    path = tmp_path / f"weft-{command}.service"
    path.write_text(text.replace(program, "/bin/true").replace("User=weft", "User=root"))
    said = subprocess.run(
        ["systemd-analyze", "verify", "--recursive-errors=no", str(path)],
        capture_output=True,
        text=True,
    )
    complaints = [line for line in said.stderr.splitlines() if path.name in line]
    assert (complaints, said.returncode) == ([], 0), said.stderr
