"""Cases on all cores, side by side."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from multiprocessing import get_context, parent_process
from pathlib import Path
from queue import Empty
from threading import Thread
from time import monotonic
from typing import Any

from threadpoolctl import threadpool_limits

from weft.errors import WeftError
from weft_papers.hyfdca.cases import Case, Plan, Target
from weft_papers.hyfdca.equal_time_rules import ends_of
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.results_folder import ResultsFolder
from weft_papers.hyfdca.run_case import Curve, measure, run
from weft_papers.hyfdca.setting_data import central

#: Seconds between two looks at how far the workers are.
_LOOK = 0.5

#: Gets a line on the current work, the share that is done, and the seconds left if known.
Progress = Callable[[str, float, float | None], None]


def measure_all(plan: Plan, results: ResultsFolder, progress: Progress) -> None:
    """Costs of all cases, one at a time and with nothing beside them."""
    todo = [case for case in plan.costed() if results.costs_alone(case) is None]
    began = monotonic()
    with _workers(1) as (pool, _):
        for done, case in enumerate(todo):
            left = (monotonic() - began) / done * (len(todo) - done) if done else None
            progress(f"measuring {case.title}", done / len(todo), left)
            costs = pool.submit(measure, case).result()
            if costs is not None:
                results.keep_costs(case, costs)


def run_all(plan: Plan, results: ResultsFolder, progress: Progress, *, workers: int) -> None:
    """Optima and curves of all cases; each is kept when it is done."""
    seed = plan.seed
    jobs: list[_Job] = [_Central(d, seed) for d in plan.data if not results.central(d, seed)]
    for case in sorted(plan.cases(), key=plan.urgency):
        curve, target = results.curve(case), plan.target(case)
        costs = results.costs(case)
        if curve is None or not curve.reaches(case, target, costs):
            jobs.append(_Run(case, target, results.unfinished(case), costs))
    waiting = list(jobs)
    with _workers(workers) as (pool, news):
        board = _Board(jobs, progress)
        open_: dict[Future[Any], _Job] = {}
        while waiting or open_:
            while waiting and len(open_) < workers:
                job = _next(waiting, open_.values())
                open_[pool.submit(job.do)] = job
            finished, _ = wait(open_, _LOOK, FIRST_COMPLETED)
            for future in finished:
                job = open_.pop(future)
                job.keep(results, future.result())
                board.finish(job)
            board.hear(news)


class _Job:
    """Something that a worker does.

    Attributes
    ----------
    work
        How much it is, in any unit.
    """

    data: str
    name: str
    work: float

    def do(self) -> Any:
        raise NotImplementedError

    def keep(self, results: ResultsFolder, found: Any) -> None:
        raise NotImplementedError


class _Central(_Job):
    """The optimum on a pooled table."""

    def __init__(self, data: str, seed: int) -> None:
        self.data, self.name, self._seed = data, f"{data}, liblinear", seed
        self.work = 20.0

    def do(self) -> dict[str, Any]:
        return central(self.data, self._seed)

    def keep(self, results: ResultsFolder, found: Any) -> None:
        results.keep_central(self.data, self._seed, found)


class _Run(_Job):
    """The curve of a case."""

    def __init__(self, case: Case, target: Target, folder: Path, costs: Costs | None) -> None:
        self.data, self.name, self.case = case.data, case.title, case
        self._target, self._folder, self._costs = target, folder, costs
        # Setting up, and about a ten-thousandth of a second for each party that takes part.
        taking_part = case.setting.count * case.setting.fraction
        self.work = 20.0 + 1e-4 * taking_part * max(
            e.iterations for e in ends_of(case, target, costs)
        )

    def do(self) -> Curve:
        def tell(iteration: int, length: int) -> None:
            _news.put((self.name, iteration, length))

        return run(self.case, self._target, folder=self._folder, costs=self._costs, progress=tell)

    def keep(self, results: ResultsFolder, found: Any) -> None:
        results.keep_curve(self.case, found)


def _next(waiting: list[_Job], open_: Iterable[_Job]) -> _Job:
    """The first of a data set that no other worker has, while there is a choice.

    A worker that stays with a data set need not read it again.
    """
    busy = {job.data for job in open_}
    for place, job in enumerate(waiting):
        if job.data not in busy:
            return waiting.pop(place)
    return waiting.pop(0)


class _Board:
    """How far all jobs are."""

    def __init__(self, jobs: Sequence[_Job], progress: Progress) -> None:
        self._jobs = {job.name: job for job in jobs}
        self._share = dict.fromkeys(self._jobs, 0.0)
        self._open = set(self._jobs)
        self._total = sum(job.work for job in jobs)
        self._progress = progress
        self._began, self._last = monotonic(), ""

    def hear(self, news: Any) -> None:
        """What the workers have said since the last look."""
        while True:
            try:
                name, iteration, length = news.get_nowait()
            except Empty:
                break
            if name in self._open:
                self._share[name] = min(1.0, iteration / length)
            self._last = f"{name} · iteration {iteration:,} of {length:,}"
        self._tell()

    def finish(self, job: _Job) -> None:
        self._share[job.name] = 1.0
        self._open.discard(job.name)
        self._tell()

    def _tell(self) -> None:
        done = sum(job.work * self._share[name] for name, job in self._jobs.items())
        share = done / self._total if self._total else 1.0
        spent = monotonic() - self._began
        left = spent / share * (1.0 - share) if share > 0.02 else None
        runs = sum(share == 1.0 for share in self._share.values())
        self._progress(f"{runs} of {len(self._jobs)} done · {self._last}", share, left)


# ── in the workers ────────────────────────────────────────────────────────────────────────────

_news: Any = None


def _begin(news: Any) -> None:
    global _news
    _news = news
    # One thread each: the cores are shared out by runs.
    threadpool_limits(1)
    # A command that is killed cannot end its workers, which would go on in its folder.
    Thread(target=_follow_parent, daemon=True).start()


def _follow_parent() -> None:
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


@contextmanager
def _workers(count: int) -> Iterator[tuple[ProcessPoolExecutor, Any]]:
    """Processes, and where they tell how far they are; an error or Ctrl-C ends them at once."""
    context = get_context("spawn")
    news = context.Queue()
    pool = ProcessPoolExecutor(count, context, initializer=_begin, initargs=(news,))
    try:
        yield pool, news
    except BrokenProcessPool:
        raise WeftError(
            "a worker was ended from outside, perhaps for want of memory; what is done is kept: "
            "give the command again, with --workers 1 if it happens again"
        ) from None
    except BaseException:
        for process in list(getattr(pool, "_processes", {}).values()):
            process.terminate()
        raise
    finally:
        pool.shutdown(cancel_futures=True)
        news.close()


def cores() -> int:
    """How many this process may use."""
    return len(os.sched_getaffinity(0))
