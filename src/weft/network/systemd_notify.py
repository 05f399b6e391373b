"""What systemd, or another that starts ``weft serve`` and ``weft join``, is told (sd_notify)."""

from __future__ import annotations

import os
import socket
from collections.abc import MutableMapping
from contextlib import suppress

#: Variables by which a service manager says where it listens, and how often it wants to hear.
_SOCKET, _EVERY, _WHOM = "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"
#: Seconds to hand a datagram over: a manager that hangs must not hold this process up.
_PATIENCE = 1.0


class ServiceManager:
    """The service manager of this process; silent where there is none.

    Its variables are taken out of the environment: the processes of runs are not the service.

    Attributes
    ----------
    watchdog
        Seconds within which it wants a sign of life; None: it does not.
    """

    def __init__(self, environment: MutableMapping[str, str] | None = None) -> None:
        given = os.environ if environment is None else environment
        found = {name: given.pop(name, "") for name in (_SOCKET, _EVERY, _WHOM)}
        self._address = found[_SOCKET]
        if self._address.startswith("@"):
            # A name that is in no file system.
            self._address = "\0" + self._address[1:]
        meant = found[_WHOM] in ("", str(os.getpid()))
        wanted = int(found[_EVERY]) / 1e6 if found[_EVERY].isdigit() and meant else 0.0
        self.watchdog = wanted if self._address and wanted > 0 else None
        self._last = ""

    @property
    def listens(self) -> bool:
        """Whether there is one."""
        return bool(self._address)

    def ready(self) -> None:
        """The service does its work from now on."""
        self._tell("READY=1")

    def stopping(self) -> None:
        """The service was asked to end, or must."""
        self._tell("STOPPING=1")

    def alive(self, status: str) -> None:
        """A sign of life, with a line for ``systemctl status`` where that has changed."""
        told = f"STATUS={status.splitlines()[0] if status else ''}"
        news = [told] if told != self._last else []
        if self.watchdog is not None:
            news.append("WATCHDOG=1")
        if news:
            self._tell(*news)
        self._last = told

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        # A service works without whoever started it.
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as post:
            post.settimeout(_PATIENCE)
            post.sendto("\n".join(lines).encode(), self._address)
