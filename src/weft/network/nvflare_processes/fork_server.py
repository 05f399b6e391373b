"""A small process that starts others by forking, for one that has threads and cannot fork itself.

It is forked while its parent has no threads yet, and loads nothing: what it starts begins as small
as it is, and gives all its memory back when it ends. It ends with its parent, however that ends,
and takes those that it started with it.
"""

from __future__ import annotations

import os
import signal
import socket
import traceback
from collections.abc import Callable
from contextlib import suppress
from typing import NoReturn

Work = Callable[[socket.socket], None]


class ForkServer:
    """Starts processes that all do the same work, each with a connection of its own.

    Parameters
    ----------
    work
        What they do; they end when it is done.
    """

    def __init__(self, work: Work) -> None:
        self._control, theirs = socket.socketpair()
        self._pid = os.fork()
        if not self._pid:
            try:
                self._control.close()
                _nurse(theirs, work)
            finally:
                # Whatever happens, it must not go on as if it were its parent.
                os._exit(1)
        theirs.close()

    def start(self) -> socket.socket:
        """Start a process; the connection to it, which breaks when it ends.

        Raises
        ------
        OSError
            The fork server is gone.
        """
        ours, theirs = socket.socketpair()
        with theirs:
            try:
                socket.send_fds(self._control, [b"+"], [theirs.fileno()])
            except OSError:
                ours.close()
                raise
        return ours

    def close(self) -> None:
        """End the fork server and all that it started, and wait for it."""
        self._control.close()
        with suppress(ChildProcessError):
            os.waitpid(self._pid, 0)


def _work(work: Work, handle: int) -> NoReturn:
    code = 1
    try:
        work(socket.socket(fileno=handle))
        code = 0
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _nurse(control: socket.socket, work: Work) -> NoReturn:
    started: set[int] = set()

    def bury(*_: object) -> None:
        # One by one: of a process that is not waited for, nobody else gets the number.
        for pid in [*started]:
            if os.waitpid(pid, os.WNOHANG)[0]:
                started.discard(pid)

    # Whoever ends the parent ends it by this: a terminal or a service manager tells all at once.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    signal.signal(signal.SIGCHLD, bury)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard in (0, 1, 2):
        os.dup2(nothing, standard)
    while handles := socket.recv_fds(control, 1, 1)[1]:
        # What a process runs in turn must not hold its connection open.
        os.set_inheritable(handles[0], False)
        pid = os.fork()
        if not pid:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            control.close()
            _work(work, handles[0])
        os.close(handles[0])
        started.add(pid)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for pid in started:
        os.kill(pid, signal.SIGKILL)
    for pid in started:
        # Files that they had locked are free when this process has ended.
        os.waitpid(pid, 0)
    os._exit(0)
