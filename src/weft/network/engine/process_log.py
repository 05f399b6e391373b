"""The event log of a process: one readable line per event, in the kit and on the terminal."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path
from threading import Event, Thread

from weft.network.kits.open_kit import Kit

#: Loggers below this one are for people to read.
_ROOT = "weft"
#: Loggers that the engine makes for our components, and uses itself.
_CHATTER = "weft.network."
_FORMAT = "%(asctime)s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"
#: Seconds between two looks for new lines.
_LOOK = 0.1


def event_log_file(kit: Kit) -> Path:
    """The file; it also gets tracebacks of this process's own faults."""
    return kit.home / "events.log"


def start_event_log(kit: Kit) -> None:
    """Write everything that Weft logs in this process to the kit's event log."""
    path = event_log_file(kit)
    path.touch(mode=0o600)
    handler = logging.FileHandler(path, encoding="utf-8")
    handler.setFormatter(logging.Formatter(_FORMAT, _TIME))
    handler.addFilter(lambda record: not record.name.startswith(_CHATTER))
    logger = logging.getLogger(_ROOT)
    logger.setLevel(logging.INFO)
    logger.addHandler(handler)


class LogFollower:
    """Copies new lines of an event log, by this process or its jobs, to a terminal.

    Parameters
    ----------
    terminal
        File descriptor to write to.
    """

    def __init__(self, path: Path, terminal: int) -> None:
        self._path, self._terminal = path, terminal
        self._at = path.stat().st_size
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
            self._copy()
            if over:
                return
            time.sleep(_LOOK)

    def _copy(self) -> None:
        try:
            with self._path.open("rb") as file:
                file.seek(self._at)
                content = file.read()
            self._at += len(content)
            while content:
                content = content[os.write(self._terminal, content) :]
        except OSError:
            # A terminal that was closed must not end the process behind it.
            return
