"""Run experiments: finished runs are kept, missing ones are run if their data are there."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.errors import ConfigError, DataError
from weft_papers.hyfem.run_result_file import RunFile, check_same, run_path
from weft_papers.hyfem.setups import KINDS, Kind, Plan, Setup, setup
from weft_papers.run_files import read_file, write_file

if TYPE_CHECKING:
    from weft_neural.cuda_device_and_vectors import Device
    from weft_papers.hyfem.scenes import Scene
    from weft_papers.hyfem.train_run import Progress

#: Called before a run with its number and how many there are; gives what follows its rounds.
Reporter = Callable[[Plan, int, int], "Progress"]


@dataclass
class Found:
    """An experiment as far as it is done.

    Attributes
    ----------
    runs
        Those that are finished, by name.
    lacking
        Runs that are not, in words, and why.
    """

    setup: Setup
    runs: dict[str, RunFile] = field(default_factory=dict)
    lacking: str | None = None

    def of(self, kind: Kind) -> list[RunFile]:
        """Finished runs of one kind, in the order of their plans."""
        return [run for run in self.runs.values() if run.plan.kind == kind]

    @property
    def trial(self) -> str | None:
        """Says so where rounds are fewer than the config's."""
        short = [run for run in self.runs.values() if run.shortened]
        if not short:
            return None
        rounds = sorted({run.rounds for run in short})
        told = " or ".join(str(count) for count in rounds)
        return f"trial of {told} of {short[0].rounds_of_text} rounds"


class Study:
    """Runs experiments into an output folder.

    Parameters
    ----------
    out
        May hold runs of before: those are not run again.
    kinds
        Which kinds to run; finished runs of other kinds are shown too.
    """

    def __init__(
        self,
        out: Path,
        *,
        data_dir: str | None = None,
        device: Device = "auto",
        kinds: Sequence[Kind] = KINDS,
        reporter: Reporter | None = None,
    ) -> None:
        check_folder(out)
        self._out, self._data_dir, self._device = out, data_dir, device
        self._kinds, self._reporter = kinds, reporter

    def take(self, setup: Setup) -> Found:
        """Run what an experiment lacks; refuses if nothing is done and its data are missing."""
        scene: Scene | None = None
        done = done_runs(self._out, setup)
        if done:
            first = next(iter(done.values()))
            parties, common = tuple(first.parties), tuple(first.common)
        else:
            scene = setup.load(self._data_dir)
            parties, common = scene.parties, scene.common_blocks()
        found = Found(setup)
        left: list[Plan] = []
        for plan in setup.plans(parties, common):
            run = done_before(self._out, setup, plan)
            if run is not None:
                found.runs[plan.run] = run
            elif plan.kind in self._kinds:
                left.append(plan)
        if left and scene is None:
            try:
                scene = setup.load(self._data_dir)
            except DataError as error:
                found.lacking = f"{', '.join(plan.run for plan in left)} not run: {error}"
        if scene is not None:
            self._run(found, left, scene)
        order = [plan.run for plan in setup.plans(parties, common)]
        found.runs = {name: found.runs[name] for name in order if name in found.runs}
        return found

    def _run(self, found: Found, plans: Sequence[Plan], scene: Scene) -> None:
        from weft_papers.hyfem.train_run import train_run

        for number, plan in enumerate(plans, start=1):
            progress = self._reporter and self._reporter(plan, number, len(plans))
            found.runs[plan.run] = train_run(
                found.setup, plan, scene, self._out, device=self._device, progress=progress or None
            )


def seen(out: Path, name: str) -> Found | None:
    """An experiment's finished runs, whatever their settings; None: there are none."""
    found = Found(setup(name))
    runs = done_runs(out, found.setup)
    for kind in KINDS:
        found.runs |= {run: done for run, done in runs.items() if done.plan.kind == kind}
    return found if runs else None


def done_before(out: Path, setup: Setup, plan: Plan) -> RunFile | None:
    """A finished run that is what a plan asks for, also one of the experiment it shares a config
    with: that one is taken over.
    """
    path = run_path(out, plan)
    run = read_file(path, RunFile)
    if run is not None and run.finished:
        check_same(path, run.plan, plan)
        return run
    shared = setup.experiment.config
    for other in () if shared is None else sorted((out / shared / "runs").glob("*.json")):
        twin = read_file(other, RunFile)
        if twin is not None and twin.finished and _same(twin.plan, plan):
            run = msgspec.structs.replace(twin, plan=plan)
            write_file(path, run)
            return run
    return None


def _same(one: Plan, other: Plan) -> bool:
    """Whether two plans of different experiments train the same."""
    return all(
        getattr(one, name) == getattr(other, name)
        for name in ("kind", "party", "scene", "options", "neural")
    )


def done_runs(out: Path, setup: Setup) -> Mapping[str, RunFile]:
    """An experiment's finished runs, by name."""
    found = {}
    for path in sorted((out / setup.name / "runs").glob("*.json")):
        run = read_file(path, RunFile)
        if run is not None and run.finished:
            found[path.stem] = run
    return found


def check_folder(out: Path) -> None:
    """Refuse a folder that holds something else."""
    if out.exists() and not out.is_dir():
        raise ConfigError(f"{out} is a file; name a folder with --out")
    if out.is_dir() and any(out.iterdir()) and not any(out.glob("*/runs")):
        raise ConfigError(
            f"the folder {out} holds something else than runs of HyFEM; name another one with --out"
        )
