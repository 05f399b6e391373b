"""What a process of Weft does again and again: signs of life, the service manager, metrics."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from threading import Event, Lock, Thread
from typing import Any

import msgspec

from weft import __version__
from weft.network.kits.kit_folder import Kit
from weft.network.process_metrics_file import MetricsFile
from weft.network.process_pulse import BEAT, Pulse, end_pulse, write_pulse
from weft.network.systemd_notify import ServiceManager

log = logging.getLogger("weft.process")

#: Seconds between two files of metrics.
_METRICS = 15.0


class ProcessHeart:
    """Beats in a thread of its own, as long as this process lives.

    Parameters
    ----------
    look
        The fields of a :class:`Pulse` that change.
    news
        Is set where something has changed that others should know at once.
    status
        What the service manager shows beside this process.
    metrics
        The file for metrics, if there is one.
    """

    def __init__(
        self,
        kit: Kit,
        look: Callable[[], dict[str, Any]],
        news: Event,
        *,
        status: Callable[[Pulse], str],
        metrics: MetricsFile | None = None,
        manager: ServiceManager | None = None,
    ) -> None:
        self._kit, self._look, self._news = kit, look, news
        self._status, self._metrics = status, metrics
        self._manager = ServiceManager() if manager is None else manager
        now = time.time()
        self._pulse = Pulse(kind=kit.kind, weft=__version__, began=now, beat=now)
        self._next_metrics = 0.0
        self._lock = Lock()
        self._ended = False
        #: What kept it from beating the last time.
        self._trouble = ""

    @property
    def _pause(self) -> float:
        """A watchdog is to hear it twice within its time, so that one may be late."""
        return min(BEAT, (self._manager.watchdog or 2 * BEAT) / 2)

    def start(self) -> None:
        """Beat now, and again as long as this process lives.

        Raises
        ------
        StorageError
            Metrics cannot be written at all.
        """
        if self._metrics is not None:
            self._metrics.write_first()
            self._next_metrics = time.monotonic() + _METRICS
        self.beat()
        Thread(target=self._go_on, name="weft heart", daemon=True).start()

    def stop(self) -> None:
        """This process ends in order."""
        self._manager.stopping()
        with self._lock:
            self._ended = True
            end_pulse(self._kit.home)

    def _go_on(self) -> None:
        while not self._ended:
            self._news.wait(self._pause)
            self._news.clear()
            try:
                self.beat()
                self._trouble = ""
            except Exception as error:
                # A process that works must not be taken for dead because it cannot tell something.
                if str(error) != self._trouble:
                    log.exception("a sign of life is not given")
                self._trouble = str(error)

    def beat(self) -> None:
        """Tell everybody how this process is."""
        before = self._pulse
        self._pulse = msgspec.structs.replace(before, beat=time.time(), **self._look())
        with self._lock:
            if self._ended:
                return
            write_pulse(self._kit.home, self._pulse)
        if self._manager.listens:
            if self._pulse.ready and not before.ready:
                self._manager.ready()
            self._manager.alive(self._status(self._pulse))
        if self._metrics is not None and time.monotonic() >= self._next_metrics:
            self._next_metrics = time.monotonic() + _METRICS
            self._metrics.write_again()
