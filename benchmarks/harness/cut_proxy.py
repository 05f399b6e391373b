"""A door in front of a port, behind which connections can be cut as a network would."""

from __future__ import annotations

import socket
from contextlib import suppress
from threading import Lock, Thread

_BYTES = 1 << 16


class CutProxy:
    """Passes on what comes to a port of the loopback, until a connection is cut.

    Parameters
    ----------
    port, behind
        Where it listens, and where it passes connections on to.
    """

    def __init__(self, port: int, behind: int) -> None:
        self._behind = behind
        self._open: set[socket.socket] = set()
        self._lock = Lock()
        self._door = socket.create_server(("127.0.0.1", port), backlog=64)
        Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._door.close()
        self.cut()

    def cut(self) -> int:
        """Break all connections; how many there were."""
        with self._lock:
            ends = tuple(self._open)
        for end in ends:
            self._end(end)
        return len(ends) // 2

    def _accept(self) -> None:
        while True:
            try:
                outer, _ = self._door.accept()
            except OSError:
                return
            try:
                inner = socket.create_connection(("127.0.0.1", self._behind), timeout=5.0)
            except OSError:
                # As where nobody listens.
                outer.close()
                continue
            inner.settimeout(None)
            with self._lock:
                self._open |= {outer, inner}
            for here, there in ((outer, inner), (inner, outer)):
                Thread(target=self._pass_on, args=(here, there), daemon=True).start()

    def _pass_on(self, here: socket.socket, there: socket.socket) -> None:
        with suppress(OSError):
            while content := here.recv(_BYTES):
                there.sendall(content)
        self._end(here)
        self._end(there)

    def _end(self, end: socket.socket) -> None:
        with self._lock:
            self._open.discard(end)
        # Whoever waits for it wakes up; closing alone would leave it waiting.
        with suppress(OSError):
            end.shutdown(socket.SHUT_RDWR)
        end.close()
