"""Several ``weft`` commands as processes of one machine, none of which outlives the group."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import token_hex
from types import TracebackType
from typing import Self

import psutil

from weft.errors import ConfigError, ProtocolError

#: Every process, also one that the engine started, has this in its environment.
_MARK = "WEFT_TRIAL"
#: Seconds that processes get to end by themselves, and between two looks at them.
_FAREWELL, _LOOK = 6.0, 0.1
#: One thread each: they share the cores of one machine.
_THREADS = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}


class ProcessGroup:
    """Processes with names; a context at whose end none of them runs any more.

    Parameters
    ----------
    logs
        Folder for what they print, ``NAME.log`` for each; it must exist.
    """

    def __init__(self, logs: Path) -> None:
        #: What Python runs; tests of failures put a script of their own here.
        self.program: tuple[str, ...] = ("-m", "weft")
        self._logs = logs
        self._mark = token_hex(16)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop_all()

    @property
    def environment(self) -> dict[str, str]:
        """What every process has in its environment, and those that it starts."""
        named = {name: os.environ.get(name, count) for name, count in _THREADS.items()}
        return {**named, _MARK: self._mark}

    def run(self, name: str, *arguments: str) -> None:
        """Start a ``weft`` command under a name, for the first time or again."""
        if self.is_running(name):
            raise ConfigError(f"{name} runs already; kill it first")
        with self._log(name).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, *self.program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env={**os.environ, **self.environment},
                # Ctrl-C reaches the caller only, which then stops all processes.
                start_new_session=True,
            )

    def log(self, name: str) -> str:
        """All that a process has printed, since its first start."""
        path = self._log(name)
        return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""

    def is_running(self, name: str) -> bool:
        process = self._processes.get(name)
        return process is not None and process.poll() is None

    def children(self, name: str) -> list[psutil.Process]:
        """Processes that a process has started."""
        found: list[psutil.Process] = []
        with suppress(psutil.NoSuchProcess):
            found += psutil.Process(self._processes[name].pid).children(recursive=True)
        return found

    def kill(self, name: str, number: int = signal.SIGKILL, *, alone: bool = False) -> None:
        """Send a signal to a process, and with it to those that it started.

        Parameters
        ----------
        number
            ``SIGKILL`` is waited for; ``SIGSTOP`` and ``SIGCONT`` put to sleep and wake up.
        alone
            To the process only.
        """
        process, children = self._processes[name], [] if alone else self.children(name)
        process.send_signal(number)
        for child in children:
            with suppress(psutil.NoSuchProcess):
                child.send_signal(number)
        if number == signal.SIGKILL:
            process.wait()
            psutil.wait_procs(children, timeout=_FAREWELL)

    def wait(self, name: str, seconds: float) -> int:
        """Wait for a process to end, and return its exit code."""
        try:
            return self._processes[name].wait(seconds)
        except subprocess.TimeoutExpired:
            raise ProtocolError(
                f"{name} has not ended within {seconds:g} s; {self._last_words([name])}"
            ) from None

    def wait_until(
        self, missing: Callable[[], Collection[str]], seconds: float, *, needed: Collection[str]
    ) -> None:
        """Wait until no name is missing any more.

        Parameters
        ----------
        needed
            Processes without which waiting is pointless; missing ones are needed too.
        """
        until = time.monotonic() + seconds
        while names := missing():
            ended = [name for name in {*needed, *names} if not self.is_running(name)]
            if ended or time.monotonic() > until:
                what = f"{ended[0]} has ended" if ended else f"{seconds:g} s are over"
                raise ProtocolError(
                    f"{', '.join(names)} cannot be waited for: {what}; "
                    f"{self._last_words({*ended, *names})}"
                )
            time.sleep(_LOOK)

    def processes(self) -> Iterator[psutil.Process]:
        """All processes that run, also those whose parent is gone."""
        for process in psutil.process_iter():
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied, psutil.ZombieProcess):
                if process.environ().get(_MARK) == self._mark:
                    yield process

    def stop_all(self) -> None:
        """End every process, in order where it can, by force where it cannot."""
        running = list(self.processes())
        for process in running:
            with suppress(psutil.NoSuchProcess):
                process.terminate()
                # One that was put to sleep would not hear it.
                process.send_signal(signal.SIGCONT)
        psutil.wait_procs(running, timeout=_FAREWELL)
        while left := list(self.processes()):
            for process in left:
                with suppress(psutil.NoSuchProcess):
                    process.kill()
            psutil.wait_procs(left, timeout=_FAREWELL)
        for own in self._processes.values():
            own.wait()

    def _log(self, name: str) -> Path:
        return self._logs / f"{name}.log"

    def _last_words(self, names: Collection[str]) -> str:
        said = {name: self.log(name).strip().splitlines() for name in names}
        return "; ".join(f"{n} said last: {w[-1] if w else 'nothing'}" for n, w in said.items())
