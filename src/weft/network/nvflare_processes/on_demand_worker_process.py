"""A site whose work is done in a process of its own, which ends when nothing is asked.

What reads tables, computes and encrypts takes some 300 MB, and Python gives little of it back. So
the process that is connected loads none of it. It starts another one when a letter comes, and ends
it when none has come for a while: the next one begins from the files of the site, as after a
restart.
"""

from __future__ import annotations

import logging
import os
import select
import socket
from collections.abc import Callable
from concurrent.futures import Future
from contextlib import suppress
from functools import partial
from itertools import count
from pathlib import Path
from threading import Lock, Thread
from time import monotonic

import msgspec

from weft.errors import ProtocolError
from weft.network.envelope_bytes import Failed, Ping, Pong, decode_envelope, encode
from weft.network.kits.kit_folder import Kit
from weft.network.metrics_text import Metric
from weft.network.nvflare_processes import require_client
from weft.network.nvflare_processes.fork_server import ForkServer
from weft.network.nvflare_processes.no_core_dumps import write_no_core
from weft.network.nvflare_processes.site_process_frames import (
    FIRST,
    MOST_LETTERS,
    MOST_PINGS,
    Frame,
    Opening,
    receive_frame,
    send_frame,
)
from weft.network.nvflare_processes.site_worker_process import work_for_site
from weft.network.saved_join_settings import JoinSettings
from weft.network.site_run_index import IndexedRun, RunIndex
from weft.storage.atomic_files import StorageError
from weft.thread_safe_decoding import prepared

log = logging.getLogger("weft.site")

#: Seconds without a letter after which its process ends: if no run is under way, and if one is.
_IDLE, _IDLE_IN_RUN = 300.0, 900.0
#: Seconds between two looks whether that is so, and for the ledger.
_LOOK, _LEDGER = 1.0, 5.0
_STARTING = "starts its process for runs and reads its tables"
_BROKE = "lost its process for runs; its own log says more"
_FULL = "has more letters at once than it works on; ask again when it has answered some"


def open_apart(
    settings: JoinSettings, kit: Kit, tell: Callable[[str], None] = lambda _: None
) -> SiteProcess | None:
    """Open a site in a process of its own, while this one has no threads yet.

    ``tell`` hears how its tables were read. None if it cannot be opened, or if this system has no
    such processes: then `weft.network.open_site.open_site` says what is wrong, or opens it here.
    """
    write_no_core()
    if not hasattr(os, "fork"):  # pragma: no cover - Windows has none.
        return None
    site = SiteProcess(ForkServer(partial(work_for_site, settings=settings, kit=kit)), kit.home)
    # It loads what it needs meanwhile, and is small without the engine.
    working = site.start()
    require_client()
    opening = working.result()
    if opening is None or opening.wrong:
        site.close()
        return None
    for note in opening.notes:
        tell(note)
    return site


class SiteProcess:
    """A site as `weft.network.site_answers_envelopes.Site` is one, in another process.

    Parameters
    ----------
    fork_server
        Starts processes that answer letters.
    folder
        The site's, with the index of its runs.
    idle
        Seconds without a letter, without a run under way, after which its process ends.
    """

    def __init__(self, fork_server: ForkServer, folder: Path, idle: float = _IDLE) -> None:
        self._fork_server, self._folder, self._idle = fork_server, folder, idle
        self._lock = Lock()
        self._working: _WorkingProcess | None = None
        self._exposure: list[Metric] = []
        self._closed = False

    @property
    def works(self) -> bool:
        """Whether there is a process for its runs now."""
        return self._working is not None

    def start(self) -> Future[Opening | None]:
        """Start its process, if there is none; what it says first, None if it breaks down."""
        with self._lock:
            return self._begun().opening

    def answer(self, envelope: bytes) -> bytes:
        """The reply to an envelope; never raises, and may be called from several threads."""
        with self._lock:
            if self._closed:
                return encode(Failed("failed", _BROKE))
            try:
                working = self._begun()
            except OSError:
                # Without it no run can be worked on any more; a service manager starts it again.
                log.critical("the process that starts others is gone, and so this one ends")
                os._exit(2)
            if not working.opening.done() and _is_ping(envelope):
                return encode(Pong(False, _STARTING))
            if not working.has_room(envelope):
                return encode(Failed("failed", _FULL))
            number, reply = working.expect()
        working.send(Frame(number, envelope))
        return reply.result()

    def runs(self) -> list[IndexedRun]:
        """All runs that it took or takes part in."""
        return RunIndex(self._folder).entries()

    def exposure(self) -> list[Metric]:
        """What its ledger says is spent; only a run changes it, so nothing is started for that."""
        with self._lock:
            working = self._working
            if working is None or not working.opening.done():
                return self._exposure
            number, reply = working.expect(letter=False)
        working.send(Frame(number, b"", owner=True))
        with suppress(TimeoutError, msgspec.MsgspecError):
            # Of a process that computes or ends, what was known last has to do.
            self._exposure = msgspec.json.decode(reply.result(_LEDGER), type=prepared(list[Metric]))
        return self._exposure

    def close(self) -> None:
        """End its process; its runs stay as they are for the next one."""
        with self._lock:
            self._closed = True
        self._fork_server.close()

    def _begun(self) -> _WorkingProcess:
        if self._working is None:
            working = self._working = _WorkingProcess(self._fork_server.start())
            Thread(target=self._follow, args=(working,), name="weft site", daemon=True).start()
        return self._working

    def _follow(self, working: _WorkingProcess) -> None:
        """Take its replies until it ends, or has nothing to do."""
        try:
            while working.take(_LOOK) and not self._is_over(working):
                pass
        finally:
            # Whatever happens here, nobody waits for it any longer. Another may have begun since it
            # was over: two that work would lock each other out of the files of a run.
            with self._lock:
                if self._working is working:
                    self._working = None
            working.end()

    def _is_over(self, working: _WorkingProcess) -> bool:
        """Whether nothing is asked any more; from then on no letter goes to this process."""
        if working.idle <= self._idle:
            return False
        patience = self._patience()
        with self._lock:
            if working.idle <= patience:
                return False
            self._working = None
        return True

    def _patience(self) -> float:
        try:
            under_way = any(not run.ended for run in self.runs())
        except StorageError:
            # Whoever is asked next says so.
            under_way = True
        return _IDLE_IN_RUN if under_way else self._idle


class _WorkingProcess:
    """One process for the work of a site, seen from the one that is connected."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._readable = select.poll()
        self._readable.register(connection, select.POLLIN)
        self._sending, self._change = Lock(), Lock()
        self._numbers = count(FIRST + 1)
        #: What it is asked, and whether that is a letter.
        self._waiting: dict[int, tuple[Future[bytes], bool]] = {}
        self._asked = monotonic()
        #: What it said first; None: nothing before it ended.
        self.opening: Future[Opening | None] = Future()

    @property
    def idle(self) -> float:
        """Seconds since it had anything to do."""
        with self._change:
            busy = not self.opening.done() or any(letter for _, letter in self._waiting.values())
            return 0.0 if busy else monotonic() - self._asked

    def has_room(self, envelope: bytes) -> bool:
        """Whether it takes one more letter, so that none has to wait for a thread."""
        with self._change:
            letters = sum(letter for _, letter in self._waiting.values())
        if letters < MOST_LETTERS:
            return True
        return letters < MOST_LETTERS + MOST_PINGS and _is_ping(envelope)

    def expect(self, *, letter: bool = True) -> tuple[int, Future[bytes]]:
        """The number of what it will be asked, and where its reply will be."""
        with self._change:
            number, reply = next(self._numbers), Future[bytes]()
            self._waiting[number] = reply, letter
        return number, reply

    def send(self, frame: Frame) -> None:
        # Where it has ended, whoever takes its replies notices too.
        with self._sending, suppress(OSError):
            send_frame(self._connection, frame)

    def take(self, seconds: float) -> bool:
        """Take a reply, if one comes within that time; false: it has ended."""
        if not self._readable.poll(1000 * seconds):
            return True
        frame = receive_frame(self._connection)
        if frame is None:
            return False
        number, content, _ = frame
        if number == FIRST:
            opening = msgspec.json.decode(content, type=prepared(Opening))
            with self._change:
                self._asked = monotonic()
            self.opening.set_result(opening)
            return not opening.wrong
        with self._change:
            reply, letter = self._waiting.pop(number)
            if letter:
                self._asked = monotonic()
        reply.set_result(content)
        return True

    def end(self) -> None:
        """Let it end, and answer what it was asked in its place."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        if not self.opening.done():
            self.opening.set_result(None)
        opening = self.opening.result()
        lost = encode(Failed("failed", _BROKE))
        with self._change:
            waiting, self._waiting = self._waiting, {}
        if opening is None or (waiting and not opening.wrong):
            log.error("the process for runs has ended by itself; %d letter(s) lost", len(waiting))
        elif opening.wrong:
            log.error("the site cannot be opened: %s", opening.wrong)
        for reply, _ in waiting.values():
            reply.set_result(opening.reply if opening is not None and opening.wrong else lost)
        with self._sending:
            self._connection.close()


def _is_ping(envelope: bytes) -> bool:
    try:
        return isinstance(decode_envelope(envelope), Ping)
    except ProtocolError:
        return False
