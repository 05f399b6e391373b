"""A site in a process of its own: it answers, ends when nothing is asked, and may die."""

import os
import signal
import socket
import struct
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from weft.network.envelope_bytes import Failed, Ping, Pong, decode_reply, encode
from weft.network.metrics_text import single
from weft.network.nvflare_processes import site_worker_process
from weft.network.nvflare_processes.fork_server import ForkServer
from weft.network.nvflare_processes.on_demand_worker_process import SiteProcess
from weft.network.nvflare_processes.site_process_frames import (
    FIRST,
    MOST_LETTERS,
    MOST_PINGS,
    Frame,
    Opening,
    receive_frame,
    send_frame,
)
from weft.network.site_run_index import RunIndex

SPENT = single("weft_exposure_epsilon", "ε of released models with noise.", 0.5)
#: Seconds that anything may take on a busy machine.
LONG = 60.0


def answer(letter):
    """Says which process it is; some letters let it sleep or die."""
    if letter.startswith(b"sleep"):
        time.sleep(LONG)
    if letter == b"die":
        os.kill(os.getpid(), signal.SIGKILL)
    return b"%d:" % os.getpid() + letter


def work(connection):
    send_frame(connection, Frame(FIRST, msgspec.json.encode(Opening(["a note"]))))
    exposure = SimpleNamespace(metrics=lambda: [SPENT])
    site_worker_process._answer_all(connection, SimpleNamespace(answer=answer), exposure)


@contextmanager
def opened(folder, work=work, **more):
    site = SiteProcess(ForkServer(work), folder, **more)
    try:
        yield site
    finally:
        site.close()


def pid_of(reply):
    return int(reply.split(b":")[0])


def wait_for(what):
    until = time.monotonic() + LONG
    while not what():
        assert time.monotonic() < until
        time.sleep(0.01)


def test_letters_are_answered_by_one_process_several_at_once(tmp_path):
    with opened(tmp_path) as site:
        assert site.start().result().notes == ["a note"]
        threading.Thread(target=site.answer, args=(b"sleep",), daemon=True).start()
        large = bytes(3_000_000)
        replies = [site.answer(letter) for letter in (b"a", large, b"b")]
        assert [reply.split(b":", 1)[1] for reply in replies] == [b"a", large, b"b"]
        (pid,) = {pid_of(reply) for reply in replies}
        assert pid != os.getpid()
        assert site.exposure() == [SPENT]
    assert not psutil.pid_exists(pid)


def test_its_process_ends_where_nothing_is_asked_and_another_begins(tmp_path, monkeypatch):
    monkeypatch.setattr("weft.network.nvflare_processes.on_demand_worker_process._LOOK", 0.01)
    with opened(tmp_path, idle=0.05) as site:
        first = pid_of(site.answer(b"a"))
        assert site.exposure() == [SPENT]
        wait_for(lambda: not psutil.pid_exists(first))
        assert not site.works
        # Only a run could have changed it.
        assert site.exposure() == [SPENT]
        # Whoever takes part in a run is waited for longer.
        RunIndex(tmp_path).begin("r")
        assert pid_of(site.answer(b"b")) != first
        time.sleep(0.3)
        assert site.works
        assert [run.run for run in site.runs()] == ["r"]
        # Nor does it end where the index cannot be read.
        (tmp_path / "runs.json").write_bytes(b"{")
        time.sleep(0.1)
        assert site.works


def test_a_process_that_dies_costs_its_letters_only(tmp_path, caplog):
    with opened(tmp_path) as site:
        first = pid_of(site.answer(b"a"))
        lost = decode_reply(site.answer(b"die"))
        assert isinstance(lost, Failed)
        # Not a refusal: it is asked again.
        assert lost.kind == "failed"
        assert "1 letter(s) lost" in caplog.text
        assert pid_of(site.answer(b"a")) != first


def test_pings_are_answered_while_a_process_begins(tmp_path):
    told, tell = os.pipe()

    def slow(connection):
        os.read(told, 1)
        work(connection)

    with opened(tmp_path, slow) as site:
        threading.Thread(target=site.answer, args=(b"a",), daemon=True).start()
        wait_for(lambda: site.works)
        said = decode_reply(site.answer(encode(Ping("r"))))
        assert isinstance(said, Pong)
        assert not said.ready
        assert "reads its tables" in said.doing
        os.write(tell, b".")
    os.close(told)
    os.close(tell)


def test_pings_are_answered_where_more_letters_come_than_a_site_works_on(tmp_path, monkeypatch):
    """The others are refused with a sentence, and taken again when some are answered."""
    monkeypatch.setattr("weft.network.nvflare_processes.on_demand_worker_process.MOST_LETTERS", 3)
    monkeypatch.setattr("weft.network.nvflare_processes.on_demand_worker_process.MOST_PINGS", 1)
    told, tell = os.pipe()

    def hold(letter):
        if letter == b"hold":
            os.read(told, 1)
        return letter

    def work(connection):
        site_worker_process._say(connection, Opening())
        site_worker_process._answer_all(connection, SimpleNamespace(answer=hold), None)

    with opened(tmp_path, work) as site, ThreadPoolExecutor() as threads:
        assert site.start().result().wrong == ""
        held = [threads.submit(site.answer, b"hold") for _ in range(3)]
        wait_for(lambda: len(site._working._waiting) == 3)
        full = decode_reply(site.answer(b"a"))
        assert full.kind == "failed"
        assert "more letters at once" in full.reason
        ping = encode(Ping("r"))
        assert site.answer(ping) == ping
        os.write(tell, b"...")
        assert [reply.result(LONG) for reply in held] == [b"hold"] * 3
        assert site.answer(b"a") == b"a"
    os.close(told)
    os.close(tell)


def test_no_letter_that_is_taken_waits_for_a_thread():
    assert site_worker_process._THREADS > MOST_LETTERS + MOST_PINGS


@pytest.mark.parametrize("kind", ["refused", "failed"])
def test_a_site_that_cannot_be_opened_says_why_to_its_owner_only(tmp_path, caplog, kind):
    def refuse(connection):
        wrong = Opening(wrong="row 7 of table.csv is empty", kind=kind, told="has other data")
        site_worker_process._say(connection, wrong)

    with opened(tmp_path, refuse) as site:
        for _ in range(2):
            said = decode_reply(site.answer(b"a"))
            assert (said.kind, said.reason) == (kind, "has other data")
        assert caplog.text.count("row 7 of table.csv is empty") == 2


def test_nothing_outlives_a_site_that_is_killed(tmp_path):
    """The one that is connected is killed while a letter is worked on."""
    told, tell = os.pipe()
    pid = os.fork()
    if not pid:
        site = SiteProcess(ForkServer(work), tmp_path)
        os.write(tell, site.answer(b"a"))
        threading.Thread(target=site.answer, args=(b"sleep",), daemon=True).start()
        time.sleep(LONG)
        os._exit(1)
    working = pid_of(os.read(told, 100))
    fork_server = psutil.Process(working).ppid()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for(lambda: not alive(working) and not alive(fork_server))


def alive(pid):
    """Where nobody waits for orphans, an ended one stays as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


# ── attacks ───────────────────────────────────────────────────────────────────────────────────


def test_no_letter_is_taken_for_a_question_of_the_owner(tmp_path):
    """Whatever a coordinator writes, even nothing, the site answers, and not its ledger."""
    with opened(tmp_path) as site:
        for letter in (b"", b"\0", b"\1" + bytes(16)):
            reply = site.answer(letter)
            assert reply.endswith(b":" + letter)
            assert b"epsilon" not in reply


def test_a_letter_that_comes_as_its_process_ends_starts_one_other_only(tmp_path, monkeypatch):
    """Two would lock each other out of the files of a run."""
    monkeypatch.setattr("weft.network.nvflare_processes.on_demand_worker_process._LOOK", 0.01)
    is_over, replies = SiteProcess._is_over, []

    def just_then(site, working):
        over = is_over(site, working)
        if over and not replies:
            site._idle = LONG
            replies.append(site.answer(b"just then"))
        return over

    monkeypatch.setattr(SiteProcess, "_is_over", just_then)
    with opened(tmp_path, idle=0.05) as site:
        first = pid_of(site.answer(b"a"))
        # When it is gone, nothing is done about it any more.
        wait_for(lambda: replies and not alive(first))
        second = pid_of(replies[0])
        assert second != first
        assert pid_of(site.answer(b"b")) == second


BROKEN = {
    "a size beyond all memory": lambda number: struct.pack("<?QQ", False, number, 2**63),
    "the end of a frame is missing": lambda number: struct.pack("<?QQ", False, number, 100) + b"x",
    "an answer to nothing": lambda number: struct.pack("<?QQ", False, number + 77, 0),
    "half a head": lambda number: b"\0\1\2",
}


@pytest.mark.parametrize("what", BROKEN)
def test_a_process_that_breaks_the_rules_is_ended_and_its_letter_asked_again(
    tmp_path, monkeypatch, what
):
    # Else the test fails for what a thread raised, which is what shall be logged.
    monkeypatch.setattr(threading, "excepthook", lambda args: None)
    told = tmp_path / "told"

    def breaking(connection):
        if told.exists():
            work(connection)
            return
        told.touch()
        site_worker_process._say(connection, Opening())
        frame = receive_frame(connection)
        connection.sendall(BROKEN[what](frame.number))
        connection.shutdown(socket.SHUT_WR)
        # It ends when nobody listens any more.
        connection.recv(1)

    with opened(tmp_path, breaking) as site:
        lost = decode_reply(site.answer(b"a"))
        assert (lost.kind, lost.reason) == (
            "failed",
            "lost its process for runs; its own log says more",
        )
        assert site.answer(b"a").endswith(b":a")


def test_without_its_nursery_a_site_ends_so_that_it_is_started_again(tmp_path):
    pid = os.fork()
    if not pid:
        fork_server = ForkServer(work)
        os.kill(fork_server._pid, signal.SIGKILL)
        os.waitpid(fork_server._pid, 0)
        SiteProcess(fork_server, tmp_path).answer(b"a")
        os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 2


def test_nobody_else_has_a_way_to_the_process_that_works(tmp_path):
    """Its connection has no name to connect to, and no program that it runs gets hold of it."""

    def tell(connection):
        facts = [connection.getsockname(), os.get_inheritable(connection.fileno())]
        send_frame(connection, Frame(FIRST, msgspec.json.encode(Opening([repr(facts)]))))
        receive_frame(connection)

    with opened(tmp_path, tell) as site:
        assert site.start().result().notes == [repr(["", False])]
        ours = site._working._connection
        assert ours.getsockname() == ours.getpeername() == ""
        assert not os.get_inheritable(ours.fileno())
