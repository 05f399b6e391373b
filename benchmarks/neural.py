"""Accuracy of HyFEM beside central training, parties alone, and FedProx on what all have.

Two scenes of six parties with half of the classes each: Multiple Features (3 of 6 views) and MNIST
(3 of 4 quadrants). All are tested on all ten classes; figures are means over seeds. Every run takes
as many steps as the others. A party's own accuracies are those of its network after its last steps
(``local``) and of its copy of the server's before them (``received``). Needs the data directory:
set WEFT_DATA.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import fmean
from time import process_time
from typing import Any

import torch

from harness import Number, Report
from harness.splits import find_data
from weft_neural.baselines import train_alone, train_central, train_fedprox
from weft_neural.local_federation import NeuralFederation, NeuralTrained
from weft_neural.server_model_accuracy import ServerJudge
from weft_neural.settings import Block, NeuralSettings
from weft_papers.hyfem.scenes import Scene, load_scene


@dataclass(frozen=True)
class Case:
    """A scene, and how networks are trained on it; ``options`` are those of its data."""

    scene: str
    features: int
    rounds: int
    steps: int
    rate: float = 0.1
    options: Mapping[str, Any] = field(default_factory=dict)


CASES = (
    Case("mfeat", features=32, rounds=32, steps=16),
    Case("mnist", features=64, rounds=64, steps=32, options={"samples": 10_000}),
)
#: It comes with scikit-learn.
SMOKE = (Case("digits", features=4, rounds=1, steps=1, options={"samples": 200}),)


class Figures:
    """Figures of all seeds by name."""

    def __init__(self) -> None:
        self._found: dict[str, list[float]] = {}

    def add(self, name: str, value: float | None) -> None:
        if value is None:
            raise ValueError(f"{name} was not measured")
        self._found.setdefault(name, []).append(value)

    def timed(self, name: str, train: Callable[[], NeuralTrained]) -> NeuralTrained:
        began = process_time()
        run = train()
        self.add(f"{name}, seconds", process_time() - began)
        return run

    def mean(self, name: str) -> float:
        return fmean(self._found[name])


def settings_of(scene: Scene, case: Case, seed: int) -> NeuralSettings:
    block = Block(extractor="mlp", options={"hidden": (), "features": case.features})
    return NeuralSettings(
        blocks=dict.fromkeys(scene.blocks, block),
        coordinator_sees="weights",
        rate=case.rate,
        rounds=case.rounds,
        steps=case.steps,
        evaluate_every=case.rounds,
        seed=seed,
    )


def measure(scene: Scene, case: Case, seed: int, figures: Figures) -> None:
    """All runs of one seed."""
    how = settings_of(scene, case, seed)
    classes = range(len(scene.class_names))
    sources, common = scene.sources(), scene.common_blocks()
    test, labels = scene.tested()
    judge = ServerJudge(test, labels, device="cpu")
    federation = NeuralFederation(sources, device="cpu")
    ours = figures.timed("server", lambda: federation.train(how, judge=judge))
    figures.add("server", ours.last.server_accuracy)
    figures.add("local", ours.last.local_accuracy)
    figures.add("received", ours.last.received_accuracy)
    central = figures.timed("central", lambda: train_central(scene.pool(), how, device="cpu"))
    figures.add("central", central.last.local_accuracy)
    for party in scene.parties:
        alone = train_alone(party, scene.source(party), how, classes=classes, device="cpu")
        figures.add("alone", alone.last.local_accuracy)
    seen = ServerJudge({block: test[block] for block in common}, labels, device="cpu")
    prox = figures.timed(
        "FedProx", lambda: train_fedprox(sources, common, how, device="cpu", judge=seen)
    )
    figures.add("FedProx", prox.last.server_accuracy)


def main(arguments: Sequence[str] | None = None) -> None:
    find_data()
    torch.set_num_threads(1)
    seeds = Number(3, 1, "seeds to take the mean over")
    report = Report("HyFEM's accuracy", "central", arguments, {"seeds": seeds})
    for case in SMOKE if report.smoke else CASES:
        name = case.scene
        if not report.wants(name):
            continue
        figures = Figures()
        for seed in range(int(report.number("seeds"))):
            measure(load_scene(name, **case.options, seed=seed), case, seed, figures)
        central, prox = figures.mean("central"), figures.mean("FedProx")
        bar = max(0.95 * central, prox + 0.03)
        for what in ("server", "local", "received", "central", "alone", "FedProx"):
            report.add(
                f"{name}, {what}",
                figures.mean(what),
                "accuracy",
                anchor=central,
                bar=bar if what == "server" else None,
                better="higher",
            )
        for what in ("server", "central", "FedProx"):
            report.add(f"{name}, {what}", figures.mean(f"{what}, seconds"), "s")
    report.close()


if __name__ == "__main__":
    main()
