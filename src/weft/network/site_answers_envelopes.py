"""A site: takes part in runs by answering envelopes, and survives a kill."""

from __future__ import annotations

import logging
import shutil
from pathlib import Path
from threading import Lock, Thread
from typing import Literal

from weft.errors import ConfigError, DataError, ProtocolError, WeftError
from weft.network import clock
from weft.network.envelope_bytes import (
    Damaged,
    End,
    Ended,
    Envelope,
    Failed,
    Garbled,
    Hello,
    Ping,
    Pong,
    Welcome,
    Work,
    decode_envelope,
    encode,
)
from weft.network.hide_paths import without_paths
from weft.network.journaled_party_of_run import RETURNING, SiteRun
from weft.network.party_interface import OpenParty
from weft.network.site_run_index import IndexedRun, RunIndex
from weft.network.versions import OtherVersion, check_version
from weft.protocol import pack
from weft.storage.atomic_files import DamagedFile, StorageError

log = logging.getLogger("weft.site")

#: What others are told where the real error could reveal too much.
_DATA = "has data that do not fit this run; its own log says which"

#: Name of the folder of all runs in a site's folder.
_RUNS = "runs"
#: Seconds after which a run that nobody asks for is kept on disk only.
_REST = 900.0


class Site:
    """One party's side of the network, independent of the engine.

    Parameters
    ----------
    folder
        Where it keeps its runs: owner-only, not to be shared by two processes.
    open_party
        Makes the party of a run; a WeftError is a refusal.
    most_runs
        In how many runs it takes part in total; None for any number.
    tells_columns
        Whether others are told which of its columns cannot be used, and why, in words that name no
        value and no sample.

    Raises
    ------
    StorageError
        The folder cannot be used.
    """

    def __init__(
        self,
        folder: Path,
        open_party: OpenParty,
        *,
        most_runs: int | None = None,
        tells_columns: bool = True,
    ) -> None:
        self._folder = folder
        self._open_party = open_party
        self._most_runs, self._tells_columns = most_runs, tells_columns
        self._lock = Lock()
        self._runs: dict[str, SiteRun] = {}
        #: What was last wrong with the files of a run.
        self._logged: dict[str, str] = {}
        try:
            for needed in (folder, folder / _RUNS):
                needed.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{folder} cannot be made ({error.strerror or error}); check its permissions"
            ) from None
        self._index = RunIndex(folder)
        self._sweep()

    def runs(self) -> list[IndexedRun]:
        """All runs that it took or takes part in."""
        return self._index.entries()

    def answer(self, envelope: bytes) -> bytes:
        """The reply to an envelope; never raises, and may be called from several threads."""
        run = "?"
        try:
            content = decode_envelope(envelope)
            run = content.run
            return self._answer(content, envelope)
        except Damaged as error:
            return encode(Garbled(without_paths(str(error))))
        except DamagedFile as error:
            self._log_once(run, error)
            return _failed("refused", error.told)
        except StorageError as error:
            # Not a refusal: the disk may have room again next time.
            self._log_once(run, error)
            return _failed("failed", error.told)
        except DataError as error:
            log.error("run %s: refused: %s", run, error)
            return _failed("refused", self._harmless(error))
        except WeftError as error:
            log.warning("run %s: refused: %s", run, error)
            return _failed("refused", error.told)
        except Exception as error:
            log.exception("run %s: broke down", run)
            # Its text may hold data, which is not for the coordinator.
            kind = type(error).__name__
            return _failed("failed", f"broke down ({kind}); its own log says more")

    def _harmless(self, error: DataError) -> str:
        """What others are told of data that do not fit: no value, no id, no file."""
        return (error.harmless if self._tells_columns else "") or _DATA

    def _log_once(self, run: str, error: StorageError) -> None:
        """Log what is wrong with the disk; a run asks every other second."""
        with self._lock:
            new = self._logged.get(run) != str(error)
            self._logged[run] = str(error)
        if new:
            log.error("run %s: %s", run, error)

    def close(self) -> None:
        """End this process's part; its runs stay as they are for the next process."""
        with self._lock:
            for known in self._runs.values():
                known.leave()
            self._runs.clear()

    def _answer(self, envelope: Envelope, packed: bytes) -> bytes:
        match envelope:
            case Hello():
                return encode(self._hello(envelope))
            case Work():
                return self._work(envelope, packed)
            case Ping():
                return encode(self._pong(envelope.run))
            case End():
                return encode(self._end(envelope))

    # ── what it is asked ──────────────────────────────────────────────────────────────────

    def _hello(self, hello: Hello) -> Welcome:
        check_version(hello.weft, "the coordinator")
        with self._lock:
            self._check_open(hello.run)
            if self._index.get(hello.run) is None:
                self._check_most(hello.run)
            self._rest(hello.run)
            known = self._known(hello.run) or self._make(hello.run)
        with known.lock:
            if not known.begun:
                return self._begin(known, hello)
            announcement = pack(known.resume(hello))
            self._enter(known.run)
            return Welcome.of(announcement)

    def _begin(self, new: SiteRun, hello: Hello) -> Welcome:
        try:
            announcement = pack(new.begin(hello))
            self._enter(new.run)
        except BaseException:
            with self._lock:
                self._runs.pop(new.run, None)
            new.delete()
            raise
        log.info("run %s: takes part", new.run)
        return Welcome.of(announcement)

    def _enter(self, run: str) -> None:
        """Count a run, once."""
        with self._lock:
            if self._index.get(run) is None:
                self._index.begin(run)

    def _work(self, work: Work, packed: bytes) -> bytes:
        with self._lock:
            self._check_open(work.run)
            known = self._known(work.run)
        if known is None:
            lost = "has lost its memory of" if work.answered else "was not asked to take part in"
            raise ProtocolError(f"{lost} run {work.run}; start a new run")
        with known.lock:
            with self._lock:
                # Refusals tell something too: else questions could be tried until one is answered.
                self._index.ask(work.run)
            return known.work(work, packed)

    def _pong(self, run: str) -> Pong:
        """Whether an envelope of the run would be worked on at once; does not wait."""
        try:
            with self._lock:
                entry = self._index.get(run)
                known = self._known(run) if entry is None or not entry.ended else None
        except (DamagedFile, OtherVersion):
            known = None
        if known is None or not known.begun:
            # The next envelope is refused with a better reason.
            return Pong(True)
        if not known.lock.acquire(blocking=False):
            return Pong(False, known.doing)
        try:
            if known.ready:
                return Pong(True)
            doing = known.trouble or RETURNING
        finally:
            known.lock.release()
        Thread(target=self._rebuild, args=(known,), daemon=True).start()
        return Pong(False, doing)

    def _rebuild(self, known: SiteRun) -> None:
        with known.lock:
            try:
                known.rebuild()
                known.trouble = ""
            except StorageError as error:
                known.trouble = error.told
                self._log_once(known.run, error)
            except DataError as error:
                known.trouble = self._harmless(error)
                log.error("run %s: cannot be brought back: %s", known.run, error)
            except WeftError as error:
                known.trouble = error.told
                log.error("run %s: cannot be brought back: %s", known.run, error)
            except Exception as error:
                known.trouble = f"broke down ({type(error).__name__}); its own log says more"
                log.exception("run %s: cannot be brought back", known.run)

    def _end(self, end: End) -> Ended:
        with self._lock:
            entry = self._index.get(end.run)
            known = None if entry is not None and entry.ended else self._known(end.run)
        if known is None:
            return Ended([] if entry is None else entry.worked)
        with known.lock:
            self._close(known, end.last)
            worked = known.worked_since(end.last)
            with self._lock:
                if known.last or (entry is not None and entry.asked):
                    how = "over" if end.over else "given up"
                    self._index.end(end.run, how, worked)
                else:
                    # Nothing was asked, so it does not count as a run.
                    self._index.forget(end.run)
                known.delete()
                self._runs.pop(end.run, None)
        log.info("run %s: %s", end.run, "over" if end.over else "given up")
        return Ended(worked)

    def _close(self, known: SiteRun, heard: int) -> None:
        try:
            known.close(heard)
        except Exception as error:
            # The ledger keeps what was booked ahead, which is never too little.
            log.warning("run %s: was not closed in order (%s)", known.run, error)

    def _sweep(self) -> None:
        """Delete files that a kill at the end of a run left: they hold its secrets."""
        for entry in self._index.entries():
            if entry.ended:
                shutil.rmtree(self._folder / _RUNS / entry.run, ignore_errors=True)

    # ── runs ──────────────────────────────────────────────────────────────────────────────

    def _known(self, run: str) -> SiteRun | None:
        """A run that this site has begun, perhaps before a restart."""
        if run not in self._runs and (self._folder / _RUNS / run).is_dir():
            self._make(run)
        known = self._runs.get(run)
        if known is not None:
            known.asked = clock.now()
        return known

    def _make(self, run: str) -> SiteRun:
        self._runs[run] = SiteRun(run, self._folder / _RUNS / run, self._open_party)
        self._runs[run].asked = clock.now()
        return self._runs[run]

    def _rest(self, begins: str) -> None:
        """Keep runs that nobody has asked for since long on disk only: each takes files and memory.

        One that is asked for after all comes back from its journal, as after a restart.
        """
        for run, known in [*self._runs.items()]:
            if run != begins and clock.now() - known.asked > _REST and known.lock.acquire(False):
                try:
                    known.leave()
                    del self._runs[run]
                finally:
                    known.lock.release()
                log.info("run %s: rests, since nobody has asked for it", run)

    def _check_open(self, run: str) -> None:
        entry = self._index.get(run)
        if entry is not None and entry.ended:
            raise ProtocolError(
                f"run {run} is over here since {entry.ended} ({entry.how}); start a new run"
            )

    def _check_most(self, run: str) -> None:
        # Runs that are about to begin count too.
        beginning = [n for n in self._runs if n != run and self._index.get(n) is None]
        taken = len(self._index) + len(beginning)
        if self._most_runs is not None and taken >= self._most_runs:
            raise ConfigError(
                f"takes part in {self._most_runs} run(s) at most, and has done so; ask its owner "
                "to raise most_runs"
            )


def _failed(kind: Literal["refused", "failed"], reason: str) -> bytes:
    return encode(Failed(kind, without_paths(reason)))
