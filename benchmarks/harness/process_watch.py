"""Memory, threads, descriptors and files of processes over many runs, and how fast they grow."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from statistics import median

import psutil

#: Looks at a process, after its first ones, from which growth can be told.
FEWEST = 6


@dataclass(frozen=True)
class Look:
    """A process after a run, with those that it has started: MB, threads, descriptors."""

    run: int
    pid: int
    rss: float
    threads: int
    descriptors: int

    @classmethod
    def at(cls, run: int, process: psutil.Process) -> Look:
        found = []
        for one in (process, *process.children(recursive=True)):
            # Those of a site may end at any time.
            with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
                found.append((one.memory_info().rss / 1e6, one.num_threads(), one.num_fds()))
        memory, threads, descriptors = (sum(figures) for figures in zip(*found, strict=True))
        return cls(run, process.pid, memory, int(threads), int(descriptors))


class ProcessWatch:
    """Looks at named processes after every run.

    Parameters
    ----------
    warm
        Looks at a process before its growth counts: the first run of every method loads and
        compiles what it needs, and pools of threads fill.
    """

    def __init__(self, warm: int) -> None:
        self._warm = warm
        self._looks: dict[str, list[Look]] = defaultdict(list)

    def look(self, run: int, name: str, process: psutil.Process) -> Look:
        found = Look.at(run, process)
        self._looks[name].append(found)
        return found

    def names(self) -> list[str]:
        return list(self._looks)

    def longest(self, name: str) -> list[Look]:
        """Looks at the process of that name that lived longest, after its first runs."""
        lives = defaultdict(list)
        for look in self._looks[name]:
            lives[look.pid].append(look)
        return max(lives.values(), key=len)[self._warm :]

    def growth(self, name: str, figure: str) -> float | None:
        """Of a figure in a hundred runs; None if the process was watched too briefly."""
        looks = self.longest(name)
        if len(looks) < FEWEST:
            return None
        return 100 * slope([(look.run, float(getattr(look, figure))) for look in looks])


def slope(points: Iterable[tuple[float, float]]) -> float:
    """The median of the slopes of all pairs (Theil and Sen): single outliers do not count."""
    return median((b - a) / (x - w) for (w, a), (x, b) in combinations(points, 2))


def count_files(folder: Path) -> int:
    return sum(path.is_file() for path in folder.rglob("*"))
