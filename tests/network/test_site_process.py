"""A site in a process of its own: it answers, ends when nothing is asked, and may die."""

import os
import signal
import threading
import time
from contextlib import contextmanager
from types import SimpleNamespace

import msgspec
import psutil
import pytest

from weft.network.engine import site_worker
from weft.network.engine.letter_frames import FIRST, Opening, send_frame
from weft.network.engine.nursery import Nursery
from weft.network.engine.site_process import SiteProcess
from weft.network.envelope import Failed, Ping, Pong, decode_reply, encode
from weft.network.metrics_text import single
from weft.network.run_index import RunIndex

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
    send_frame(connection, FIRST, msgspec.json.encode(Opening(["a note"])))
    exposure = SimpleNamespace(metrics=lambda: [SPENT])
    site_worker._answer_all(connection, SimpleNamespace(answer=answer), exposure)


@contextmanager
def opened(folder, work=work, **more):
    site = SiteProcess(Nursery(work), folder, **more)
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
    monkeypatch.setattr("weft.network.engine.site_process._LOOK", 0.01)
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


@pytest.mark.parametrize("kind", ["refused", "failed"])
def test_a_site_that_cannot_be_opened_says_why_to_its_owner_only(tmp_path, caplog, kind):
    def refuse(connection):
        wrong = Opening(wrong="row 7 of table.csv is empty", kind=kind, told="has other data")
        site_worker._say(connection, wrong)

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
        site = SiteProcess(Nursery(work), tmp_path)
        os.write(tell, site.answer(b"a"))
        threading.Thread(target=site.answer, args=(b"sleep",), daemon=True).start()
        time.sleep(LONG)
        os._exit(1)
    working = pid_of(os.read(told, 100))
    nursery = psutil.Process(working).ppid()
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    wait_for(lambda: not alive(working) and not alive(nursery))


def alive(pid):
    """Where nobody waits for orphans, an ended one stays as a zombie."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
