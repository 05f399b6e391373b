"""Tuned runs over seeds on one accelerator, a command of its own.

For experiments whose extractors are residual networks. The rate of each method is tuned at full
length with the first seed, as the 2024 text says; then come the other seeds. Every finished run is
a line of a file: what is there is not run again.
"""

from __future__ import annotations

import argparse
import json
import platform
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from time import perf_counter
from typing import Any, Literal

import msgspec
import numpy as np
import torch

from weft.array_types import Ints
from weft.errors import ConfigError
from weft_neural.cuda_device_and_vectors import device_of
from weft_neural.neuron_matching.settings import Matching
from weft_neural.settings import NeuralSettings
from weft_papers.hyfem.batched_networks.image_blocks_on_device import ImageBlocks
from weft_papers.hyfem.batched_networks.measuring import Measured
from weft_papers.hyfem.batched_networks.rounds import Exchange, Together, Turn, pooled
from weft_papers.hyfem.batched_networks.runs_as_json_lines import (
    KEY,
    Line,
    best_rate,
    key_of,
    read_lines,
)
from weft_papers.hyfem.scenes import Scene
from weft_papers.hyfem.setups import Kind, Plan, Setup, setup

#: Rates are tried from the middle outwards, until one is worse than that before it.
RATES = (0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.4)
_MIDDLE = 0.05


#: FedPer is the special case of HyFEM that Remark 3 names, and has no config of its own.
Method = Kind | Literal["fedper"]


class Study:
    """Runs of one experiment, written line by line.

    Parameters
    ----------
    norm
        How networks normalise: over the batch, or in groups of channels.
    until
        No run is begun that would not be done by then, in seconds of `perf_counter`.
    """

    def __init__(
        self, chosen: Setup, scene: Scene, out: Path, until: float, norm: str = "batch"
    ) -> None:
        self._setup, self._scene, self._out, self._until = chosen, scene, out, until
        self._norm = norm
        self._device = device_of("auto")
        self._low = torch.bfloat16 if self._device.type == "cuda" else torch.float32
        every = scene.blocks, scene.labels
        tested = scene.test_blocks, scene.test_labels
        self._pictures = ImageBlocks(every, tested, len(scene.class_names), self._device)
        self.lines = {key_of(line): line for line in read_lines(out)}

    def has(self, kind: Method) -> bool:
        """Whether there is anything to run: FedProx needs blocks that all have."""
        return kind != "fedprox" or bool(self._scene.common_blocks())

    def tune(self, kind: Method, **changes: Any) -> float | None:
        """The best rate of a method with seed 0, or None where time is up."""
        at = RATES.index(_MIDDLE)
        if not self._known(kind, at, changes):
            return None
        for step in (-1, 1):
            place = at
            while 0 <= place + step < len(RATES):
                place += step
                if not self._known(kind, place, changes):
                    return None
                if self._best(kind, changes) != RATES[place]:
                    break
        return self._best(kind, changes)

    def _best(self, kind: Method, changes: Mapping[str, Any]) -> float | None:
        return best_rate(self.lines.values(), self._setup.name, kind, self._norm, changes)

    def _known(self, kind: Method, place: int, changes: Mapping[str, Any]) -> bool:
        return self.take(kind, rate=RATES[place], seed=0, **changes)

    def take(self, kind: Method, **changes: Any) -> bool:
        """One run, unless it is there; False where time is up."""
        plan = self._plan("hyfem" if kind == "fedper" else kind, changes)
        settings = self._shaped(plan.settings(tuple(self._scene.blocks)))
        told = settings.rate, settings.mu2, settings.seed, settings.rounds
        key = self._setup.name, kind, self._norm, *told
        if key in self.lines:
            return True
        run, began = self._run(kind, settings), perf_counter()
        turns: list[Turn] = []
        for turn in run.run():
            turns.append(turn)
            if turn.turn == 4:
                left = (perf_counter() - began) / 4 * settings.rounds * 1.15
                if began + left > self._until:
                    return False
            if not np.isfinite(turn.loss):
                break
        line = _line(key, settings, turns, perf_counter() - began, self._device)
        line["operations"] = 3 * run.operations * settings.batch * settings.steps
        self._keep(key, line)
        return True

    def _plan(self, kind: Kind, changes: Mapping[str, Any]) -> Plan:
        chosen = setup(self._setup.name, changes={**self._setup.changes, **changes})
        return next(chosen.plans(self._scene.parties, self._scene.common_blocks(), [kind]))

    def _shaped(self, settings: NeuralSettings) -> NeuralSettings:
        shape = self._pictures.shape
        blocks = {
            name: msgspec.structs.replace(
                block, shape=shape, options={**block.options, "norm": self._norm}
            )
            for name, block in settings.blocks.items()
        }
        return msgspec.structs.replace(settings, blocks=blocks)

    def _run(self, kind: Method, settings: NeuralSettings) -> Together:
        scene, pictures = self._scene, self._pictures
        if kind == "central":
            everything = pooled(len(scene.labels), len(scene.blocks))
            alone = msgspec.structs.replace(settings, method="avg")
            return Together(pictures, everything, alone, exchange="nothing", low=self._low)
        if kind == "fedprox":
            common = scene.common_blocks()
            pictures = pictures.only(common)
            settings = msgspec.structs.replace(settings, matching=Matching(fixed=True))
            parties = {p: (range(len(common)), scene.rows(p)) for p in scene.parties}
            return Together(pictures, parties, settings, low=self._low)
        names = list(scene.blocks)
        held: dict[str, tuple[Sequence[int], Ints]] = {
            share.party: (
                [names.index(n) for n in names if n in share.blocks],
                scene.rows(share.party),
            )
            for share in scene.shares
        }
        if kind == "hyfem":
            return Together(pictures, held, settings, low=self._low)
        settings = msgspec.structs.replace(settings, method="avg")
        exchange: Exchange = "extractors" if kind == "fedper" else "nothing"
        return Together(pictures, held, settings, exchange=exchange, low=self._low)

    def _keep(self, key: tuple[Any, ...], line: Line) -> None:
        self.lines[key] = line
        with self._out.open("a", encoding="utf-8") as file:
            file.write(json.dumps(line) + "\n")
        last = line["history"][-1]
        told = {name: last[name] for name in ("server", "received", "own") if last[name]}
        seconds = line["seconds"] / max(1, line["rounds_run"])
        print(*key, told, f"{seconds:.3f} s a round with measuring", flush=True)


def _line(
    key: Sequence[Any],
    settings: NeuralSettings,
    turns: Sequence[Turn],
    seconds: float,
    device: torch.device,
) -> Line:
    """A run as a line; of rounds in which nothing was measured only their seconds count."""
    later = turns[1:] or turns
    return {
        **dict(zip(KEY, key, strict=True)),
        "mu1": settings.mu1,
        "steps": settings.steps,
        "batch": settings.batch,
        "rounds_run": len(turns),
        "seconds": round(seconds, 1),
        "seconds_a_round": {
            part: round(sum(getattr(t, f"{part}_seconds") for t in later) / len(later), 4)
            for part in ("steps", "server", "matching")
        },
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu",
        "versions": {"python": platform.python_version(), "torch": torch.__version__},
        "history": [
            {
                "round": turn.turn,
                "loss": round(turn.loss, 4),
                "rows": turn.rows,
                "server": _told(turn.server),
                "received": _told(turn.received),
                "own": _told(turn.own),
            }
            for turn in turns
            if turn.own is not None or turn is turns[-1]
        ],
    }


def _told(found: Measured | None) -> dict[str, float] | None:
    """Means over models, and the spread of their accuracies."""
    if found is None:
        return None
    losses = sum(found.losses) / len(found.losses)
    return {
        "accuracy": round(found.accuracy, 5),
        "spread": round(found.spread, 5),
        "loss": round(losses, 4),
    }


def main(arguments: list[str] | None = None) -> int:
    """Run what the arguments ask for; returns the exit code."""
    command = "python -m weft_papers.hyfem.batched_networks.tuned_runs_over_seeds"
    parser = argparse.ArgumentParser(prog=command, description=__doc__)
    add = parser.add_argument
    add("experiment", help="such as cifar10 or c1-cifar10")
    add("--data-dir", help="folder with the original files; default: WEFT_DATA")
    add("--out", type=Path, default=Path("runs.jsonl"), help="file of finished runs")
    add("--seconds", type=float, default=1e9, help="begin no run that would end later")
    add("--kinds", nargs="+", default=["hyfem", "central", "alone", "fedprox", "fedper"])
    add("--seeds", type=int, default=3)
    add("--mu2", nargs="*", type=float, default=[], help="other pulls of HyFEM's classifiers")
    add("--norm", choices=("batch", "group"), default="batch", help="of the networks")
    add("--rounds", type=int, help="fewer rounds, for a trial")
    add("--samples", type=int, help="at most so many training samples")
    told = parser.parse_args(arguments)
    until = perf_counter() + told.seconds
    changes = {} if told.rounds is None else {"rounds": told.rounds}
    try:
        chosen = setup(told.experiment, changes=changes, samples=told.samples)
        study = Study(chosen, chosen.load(told.data_dir), told.out, until, told.norm)
    except ConfigError as error:
        print(error, file=sys.stderr)
        return 2
    rates = {kind: study.tune(kind) for kind in told.kinds if study.has(kind)}
    print("tuned", rates, flush=True)
    for seed in range(1, told.seeds):
        for kind, rate in rates.items():
            if rate is not None:
                study.take(kind, rate=rate, seed=seed)
    for seed in range(told.seeds):
        for mu2 in told.mu2 if rates.get("hyfem") is not None else []:
            study.take("hyfem", rate=rates["hyfem"], seed=seed, mu2=mu2)
    return 0


if __name__ == "__main__":
    sys.exit(main())
