"""One party's network with its samples: local steps, measuring, and the weights that travel."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft_neural.cuda_device_and_vectors import received, sent
from weft_neural.local_sgd_steps import Samples, Trainer, accuracy
from weft_neural.neural_network import Net
from weft_neural.parameter_packing import layer_shapes, split_layers
from weft_neural.settings import Block, NeuralSettings
from weft_neural.trained_model import NeuralModel, Scale
from weft_neural.weighted_means_on_host_or_device import LARGEST_WEIGHT, Vector, host

Inputs = Mapping[str, NDArray[np.float32]]


@dataclass(frozen=True, eq=False)
class Labelled:
    """Samples as a network reads them, with the numbers of their classes."""

    inputs: Inputs
    labels: NDArray[np.int64]


class PartyNetwork:
    """A network that is trained where its samples are.

    Parameters
    ----------
    party
        Whose it is; its minibatches depend on it.
    blocks
        The party's blocks, in the order of the server's, with shapes.
    classes
        The class values.
    train, test
        Samples to train on, and to measure with.
    drawing
        What its minibatches depend on besides.
    """

    def __init__(
        self,
        party: str,
        settings: NeuralSettings,
        blocks: Mapping[str, Block],
        classes: NDArray[Any],
        train: Labelled,
        test: Labelled | None,
        device: torch.device,
        *,
        drawing: bytes = b"0",
    ) -> None:
        self._drawing = drawing
        self._party, self._settings = party, settings
        self._blocks, self._classes = dict(blocks), classes
        owner = f" of {party}" if settings.start == "own" else ""
        self.net = Net(
            blocks,
            settings.hidden,
            len(classes),
            seed=settings.seed,
            purpose=f"classifier{owner}",
            device=device,
        )
        samples = Samples(self.net.names, train.inputs, train.labels, device)
        self._trainer = Trainer(
            self.net, samples, pulls=settings.pulls, batch=settings.batch or None
        )
        self._test = None
        if test is not None:
            self._test = Samples(self.net.names, test.inputs, test.labels, device)
        self._trained = False

    def take(
        self, extractors: Vector, classifier: Vector | None, *, measure: bool = False
    ) -> float | None:
        """Be pulled towards the server's weights, and begin there; if wished, measure them.

        A classifier that is None stays as it is. With ``begin = "own"`` later steps begin where
        the last ended.
        """
        flats = self.net.extractor_weights, self.net.classifier_weights
        stays = self._settings.begin == "own" and self._trained
        own = [flat.clone() for flat in flats] if stays else []
        for vector, flat in zip((extractors, classifier), flats, strict=True):
            if vector is not None:
                received(vector, flat)
        self._trainer.pull_here()
        found = self.measured() if measure else None
        for flat, old in zip(flats, own, strict=False):
            flat.copy_(old)
        return found

    def train(self, turn: int) -> float:
        """Local steps of a round; returns their mean loss."""
        self._trained = True
        return self._trainer.run(
            self._settings.steps,
            self._settings.rate_at(turn),
            self._drawing,
            f"round {turn} of {self._party}",
        )

    @property
    def sound(self) -> bool:
        """Whether all its weights are numbers that others can work with."""
        flats = self.net.extractor_weights, self.net.classifier_weights
        return all(bool((flat.abs() < LARGEST_WEIGHT).all()) for flat in flats)

    def measured(self) -> float | None:
        """Accuracy on the samples to measure with, if there are any."""
        return None if self._test is None else accuracy(self.net, self._test)

    def weights(self) -> tuple[Vector, Vector]:
        """Copies of its extractors and its classifier."""
        return sent(self.net.extractor_weights), sent(self.net.classifier_weights)

    def extractors_of(self, blocks: list[str]) -> Vector:
        """Copies of the extractors of some blocks: their weights, then their statistics."""
        return sent(torch.cat(self.net.pieces(blocks)))

    def model(self, scaling: Mapping[str, Scale]) -> NeuralModel:
        """The network as a file can keep it."""
        net = self.net
        shapes = layer_shapes(sum(net.features.values()), self._settings.hidden, len(self._classes))
        return NeuralModel(
            self._blocks,
            self._classes,
            {name: host(self.extractors_of([name])) for name in net.names},
            {name: statistics for name, (_, statistics) in net.sizes.items()},
            dict(net.features),
            split_layers(host(sent(net.classifier_weights)), shapes),
            dict(scaling),
        )
