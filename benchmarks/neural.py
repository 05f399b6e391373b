"""Accuracy of HyFEM beside central training, parties alone, and FedProx on what all have.

Two scenes of six parties with half of the classes each: Multiple Features (3 of 6 views) and MNIST
(3 of 4 quadrants). All are tested on all ten classes; figures are means over seeds. Every run takes
as many steps as the others. A party's own accuracies are those of its network after its last steps
(``local``) and of its copy of the server's before them (``received``). Needs the data directory:
set WEFT_DATA.
"""

from __future__ import annotations

from collections.abc import Callable
from statistics import fmean
from time import process_time

import torch

from harness import Report
from harness.splits import find_data
from weft.neural.baselines import train_alone, train_central, train_fedprox
from weft.neural.local_federation import NeuralFederation, NeuralTrained
from weft.neural.server_accuracy import ServerJudge
from weft.neural.settings import Block, NeuralSettings
from weft_papers.hyfem.scenes import Scene, load_scene

#: Scene: options of its data, features of a block, rate, rounds, steps.
SCENES = {
    "mfeat": ({}, 32, 0.1, 32, 16),
    "mnist": ({"samples": 10_000}, 64, 0.1, 64, 32),
}


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


def settings_of(scene: Scene, name: str, seed: int) -> NeuralSettings:
    _, features, rate, rounds, steps = SCENES[name]
    block = Block(extractor="mlp", options={"hidden": (), "features": features})
    return NeuralSettings(
        blocks=dict.fromkeys(scene.blocks, block),
        coordinator_sees="weights",
        rate=rate,
        rounds=rounds,
        steps=steps,
        evaluate_every=rounds,
        seed=seed,
    )


def measure(scene: Scene, name: str, seed: int, figures: Figures) -> None:
    """All runs of one seed."""
    how = settings_of(scene, name, seed)
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


def main() -> None:
    find_data()
    torch.set_num_threads(1)
    report = Report("HyFEM's accuracy", "central", {"seeds": (3, "seeds to take the mean over")})
    for name, (options, *_) in SCENES.items():
        if not report.wants(name):
            continue
        figures = Figures()
        for seed in range(int(report.options.seeds)):
            scene = load_scene(name, **options, seed=seed)
            measure(scene, name, seed, figures)
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
