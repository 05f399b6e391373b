"""The demo: six parties with three of four quadrants and five of ten digits each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from weft_neural.baseline_runs import Follow, Rivals, train_rivals
from weft_neural.cuda_device_and_vectors import Device
from weft_neural.local_federation import NeuralFederation, NeuralTrained
from weft_neural.server_model_accuracy import ServerJudge
from weft_neural.settings import Block, NeuralSettings
from weft_papers.hyfem.scenes import Scene, load_scene

NAME = "digits in quadrants"


@dataclass(frozen=True, eq=False)
class Demo:
    """How HyFEM and its rivals went."""

    scene: Scene
    trained: NeuralTrained
    rivals: Rivals

    def compared(self) -> str:
        """What was compared, in words."""
        scene, settings = self.scene, self.trained.settings
        common = " and ".join(scene.common_blocks())
        return (
            f"{len(scene.parties)} parties, each with 3 of 4 quadrants of the images of 5 of 10 "
            f"digits ({len(scene.labels)} images in all); {common} are common "
            f"to all. Each takes {settings.rounds} rounds of {settings.steps} steps. "
            f"Accuracy is on all digits of {len(scene.test_labels)} other images; whoever knows 5 "
            "digits only gets half of them right at best."
        )

    def tested(self) -> dict[str, Any]:
        """Of how many samples accuracies are, and what the most frequent class would reach."""
        labels = self.scene.test_labels
        most = np.bincount(self.scene.labels).argmax()
        return {"samples": len(labels), "majority": float((labels == most).mean())}


def run_demo(rounds: int, device: Device, follow: Follow) -> Demo:
    """Train HyFEM, then what it is compared with."""
    scene = load_scene("digits")
    settings = NeuralSettings(
        # Quadrants of 4 × 4 pixels are too small for convolutions to help.
        blocks={name: Block(extractor="mlp") for name in scene.blocks},
        coordinator_sees="weights",
        rounds=rounds,
        steps=8,
        rate=0.3,
    )
    classes = list(range(len(scene.class_names)))
    sources = scene.sources()
    trained = NeuralFederation(sources, device=device).train(
        settings,
        classes=classes,
        progress=follow("HyFEM"),
        judge=ServerJudge(*scene.tested(), device=device),
    )
    rivals = train_rivals(
        sources,
        settings,
        classes=classes,
        holders=trained.holders,
        scene=scene,
        device=device,
        follow=follow,
    )
    return Demo(scene, trained, rivals)
