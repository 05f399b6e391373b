"""The event log of a process: one line per event, in the kit and on the terminal."""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Sequence
from contextlib import suppress
from io import TextIOWrapper
from itertools import pairwise
from logging.handlers import WatchedFileHandler
from pathlib import Path
from threading import Event, Thread

from weft.network.event_lines import JsonLines, LogStyle, TextLines
from weft.network.kits.kit_folder import Kit

#: Loggers below this one are for people to read.
_ROOT = "weft"
#: Loggers that the engine makes for our components, and uses itself.
_CHATTER = "weft.network."
#: Seconds between two looks for new lines.
_LOOK = 0.1
#: Bytes of a log before a new one is begun, and how many old ones are kept.
MOST_BYTES, KEPT = 10_000_000, 5


def event_log_file(kit: Kit, style: LogStyle = "text") -> Path:
    """The file; that of ``text`` also gets tracebacks of this process's own faults."""
    return kit.home / ("events.jsonl" if style == "json" else "events.log")


def start_event_log(kit: Kit, style: LogStyle = "text", run: str = "") -> None:
    """Write everything that Weft logs in this process to the kit's event log.

    Parameters
    ----------
    style
        With ``json`` there is a second file, of JSON lines.
    run
        The run of this process, if it is that of one run.
    """
    files: list[tuple[LogStyle, logging.Formatter]] = [("text", TextLines())]
    if style == "json":
        files.append(("json", JsonLines(run)))
    logger = logging.getLogger(_ROOT)
    logger.setLevel(logging.INFO)
    for kind, lines in files:
        handler = _EventFile(event_log_file(kit, kind))
        handler.setFormatter(lines)
        handler.addFilter(lambda record: not record.name.startswith(_CHATTER))
        logger.addHandler(handler)


class _EventFile(WatchedFileHandler):
    """Appends to a file, for its owner only; to a new one where somebody moved it away."""

    def __init__(self, path: Path) -> None:
        super().__init__(path, encoding="utf-8")

    def _open(self) -> TextIOWrapper:
        handle = os.open(self.baseFilename, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        return TextIOWrapper(os.fdopen(handle, "ab"), encoding=self.encoding)


class LogFollower:
    """Copies new lines of an event log, by this process or its jobs, to a terminal.

    It also begins a new file where one of the kit's logs is full: it is the one place that several
    processes which write to a file do not have to agree on.

    Parameters
    ----------
    path
        The log to be copied.
    terminal
        File descriptor to write to.
    others
        More event logs.
    streams
        Logs whose writers keep them open, so that they are copied and cut instead of moved.
    """

    def __init__(
        self,
        path: Path,
        terminal: int,
        *,
        others: Sequence[Path] = (),
        streams: Sequence[Path] = (),
    ) -> None:
        self._path, self._terminal = path, terminal
        self._moved, self._cut = (path, *others), tuple(streams)
        self._file = path.open("rb", buffering=0)
        self._file.seek(0, os.SEEK_END)
        self._over = Event()
        self._thread = Thread(target=self._follow, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Copy the rest and stop."""
        self._over.set()
        self._thread.join(timeout=2.0)

    def _follow(self) -> None:
        while True:
            over = self._over.is_set()
            # A terminal that was closed, or a full disk, must not end the process behind it.
            with suppress(OSError):
                self._copy()
            with suppress(OSError):
                self._begin_anew()
            if over:
                return
            time.sleep(_LOOK)

    def _copy(self) -> None:
        content = self._file.read()
        if not content and self._is_moved():
            # Nobody has added to the old one since the last look.
            self._file.close()
            self._file = self._path.open("rb", buffering=0)
            content = self._file.read()
        while content:
            content = content[os.write(self._terminal, content) :]

    def _is_moved(self) -> bool:
        try:
            now = self._path.stat()
        except FileNotFoundError:
            return False
        return now.st_ino != os.fstat(self._file.fileno()).st_ino

    def _begin_anew(self) -> None:
        for path in (*self._moved, *self._cut):
            if not path.exists() or path.stat().st_size < MOST_BYTES:
                continue
            first = _make_room(path)
            if path in self._cut:
                shutil.copyfile(path, first)
                os.truncate(path, 0)
            else:
                path.replace(first)


def _make_room(path: Path) -> Path:
    """Move old files up by one; the name of the youngest, which is free then."""
    names = [path.with_name(f"{path.name}.{number}") for number in range(1, KEPT + 1)]
    for younger, older in reversed(list(pairwise(names))):
        if younger.exists():
            younger.replace(older)
    return names[0]
