"""A site's metrics: its connection and its runs."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable
from threading import Lock

from weft.network.kits.nvflare_settings_of_kit import GONE
from weft.network.metrics_text import Metric, single
from weft.network.site_run_index import IndexedRun
from weft.report.json_safe_and_rounded_values import rounded


class Traffic:
    """Letters of a site's process, and whether its coordinator is there."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connected = False
        self._lost = 0
        self._letters = self._down = self._up = 0
        self._last = self._seen = 0.0

    @property
    def ready(self) -> bool:
        """Whether the coordinator has ever been there."""
        return self._seen > 0

    @property
    def seen(self) -> float:
        """When the coordinator was last heard of, by the clock of this machine; 0: never."""
        return self._seen

    def lose(self) -> None:
        """The connection to the coordinator broke."""
        with self._lock:
            self._connected = False
            self._lost += 1

    def find(self) -> None:
        """There is a connection to the coordinator, new or again."""
        with self._lock:
            self._connected = True
            self._seen = time.time()

    def hear(self) -> None:
        """The coordinator has answered a heartbeat."""
        with self._lock:
            self._seen = time.time()

    def note(self, letter: int, answer: int) -> None:
        """A letter of that many bytes was answered by so many."""
        with self._lock:
            self._letters += 1
            self._down, self._up = self._down + letter, self._up + answer
            self._last = self._seen = time.time()

    def metrics(self) -> list[Metric]:
        with self._lock:
            down, up, last = rounded(self._down), rounded(self._up), self._last
            letters, lost, seen = self._letters, self._lost, self._seen
            there = self._connected and time.time() - seen <= GONE
        sizes = [({"direction": "down"}, down), ({"direction": "up"}, up)]
        return [
            single("weft_coordinator_connected", "Whether the coordinator answers.", there),
            Metric(
                "weft_coordinator_seconds_since_seen",
                "Since the coordinator last answered a heartbeat or asked.",
                [({}, int(time.time() - seen))] if seen else [],
            ),
            Metric(
                "weft_coordinator_lost_total", "How often it was lost.", [({}, lost)], "counter"
            ),
            Metric(
                "weft_seconds_since_letter",
                "Since the coordinator last asked.",
                [({}, int(time.time() - last))] if last else [],
            ),
            Metric("weft_letters_total", "Letters that were answered.", [({}, letters)], "counter"),
            Metric(
                "weft_bytes_total",
                "From and to the coordinator, with two digits.",
                [*sizes],
                "counter",
            ),
        ]


def run_metrics(runs: Iterable[IndexedRun]) -> list[Metric]:
    """How many runs a site has taken part in, by state."""
    states = {"under way": 0, "over": 0, "given up": 0}
    found = Counter(run.how if run.ended else "under way" for run in runs)
    values = {**states, **found}
    counted = [({"state": state}, float(count)) for state, count in values.items()]
    return [Metric("weft_runs", "Runs that this site has taken part in.", [*counted])]
