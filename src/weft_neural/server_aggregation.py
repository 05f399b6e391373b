"""The server's model: extractors averaged over who holds them, classifiers matched.

No PyTorch here: weights are vectors and matrices, whoever trained them.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft_neural.messages import TrainReply
from weft_neural.neuron_matching import Matched, match_classifiers, pruned
from weft_neural.parameter_packing import (
    first_layers,
    join_layers,
    layer_shapes,
    size_of_layers,
    split_layers,
)
from weft_neural.settings import Block, NeuralSettings
from weft_neural.trained_model import NeuralModel, Scale, input_columns
from weft_neural.weighted_means_on_host_or_device import (
    Vector,
    host,
    joined,
    mean,
    piece,
    vector_of,
)


@dataclass(frozen=True)
class Assembly:
    """What is known of a run's networks before the first round.

    Attributes
    ----------
    blocks
        All blocks that any party holds, in their order, with shapes.
    holders
        Per party, its blocks in that order.
    features
        Outputs of every block's extractor.
    sizes
        How many weights and statistics every block's extractor has.
    counts
        Samples of every party, or 1 where all parties weigh the same.
    scaling
        Mean and deviation of columns.
    """

    blocks: Mapping[str, Block]
    holders: Mapping[str, tuple[str, ...]]
    features: Mapping[str, int]
    sizes: Mapping[str, tuple[int, int]]
    counts: Mapping[str, int]
    classes: NDArray[Any]
    scaling: Mapping[str, Scale]

    @cached_property
    def weights(self) -> dict[str, float]:
        """p_m, which add up to one."""
        total = sum(self.counts.values())
        return {party: count / total for party, count in self.counts.items()}

    def total(self, names: Sequence[str]) -> int:
        """How many numbers the extractors of some blocks have together."""
        return sum(sum(self.sizes[name]) for name in names)

    def cut(self, names: Sequence[str], whole: Vector) -> dict[str, Vector]:
        """A vector of all weights, then all statistics, by block: its weights, its statistics."""
        at, after = 0, sum(self.sizes[name][0] for name in names)
        found: dict[str, Vector] = {}
        for name in names:
            size, kept = self.sizes[name]
            parts = [piece(whole, at, at + size), piece(whole, after, after + kept)]
            found[name] = joined(parts) if kept else parts[0]
            at, after = at + size, after + kept
        return found

    def join(self, names: Sequence[str], vectors: Mapping[str, Vector]) -> Vector:
        """The inverse of :meth:`cut`."""
        weights, statistics = [], []
        for name in names:
            size, kept = self.sizes[name]
            weights.append(piece(vectors[name], 0, size))
            statistics.append(piece(vectors[name], size, size + kept))
        return joined(weights + statistics)


class Server:
    """Holds the server's model between rounds.

    Parameters
    ----------
    extractors
        First weights of every block.

    Attributes
    ----------
    extractors
        θ_0 by block: weights, then statistics.
    matched
        w_0 and every party's selection Π_m; None before anybody's classifier is known.
    seconds
        Spent on averaging and on matching so far.
    """

    def __init__(
        self, settings: NeuralSettings, assembly: Assembly, extractors: Mapping[str, Vector]
    ) -> None:
        self.assembly = assembly
        self._settings = settings
        self.extractors = dict(extractors)
        self.matched: Matched | None = None
        self.seconds = {"averaging": 0.0, "matching": 0.0}
        self._inputs = {
            party: input_columns(assembly.features, own) for party, own in assembly.holders.items()
        }
        self._n_inputs = sum(assembly.features.values())
        self._shapes = {
            party: layer_shapes(len(columns), settings.hidden, len(assembly.classes))
            for party, columns in self._inputs.items()
        }
        if settings.start == "common":
            shapes = layer_shapes(self._n_inputs, settings.hidden, len(assembly.classes))
            rows = {party: [np.arange(n) for n in settings.hidden] for party in assembly.holders}
            layers = first_layers(shapes, settings.seed)
            self.matched = Matched(layers, rows, [0.0] * len(layers))

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows of the hidden layers; none before anybody's classifier is known."""
        return () if self.matched is None else tuple(map(len, self.matched.layers[:-1]))

    def copy_for(self, party: str) -> tuple[Vector, Vector | None]:
        """P_m Θ_0 and Π_m w_0: the extractors of its blocks and its pruned classifier.

        The latter is None as long as the party has sent none.
        """
        own = self.assembly.holders[party]
        extractors = self.assembly.join(own, self.extractors)
        if self.matched is None or party not in self.matched.rows:
            return extractors, None
        layers = pruned(self.matched.layers, self._inputs[party], self.matched.rows[party])
        return extractors, join_layers(layers)

    def take(self, replies: Mapping[str, TrainReply], turn: int) -> None:
        """The minima of (10) and (11) for those who answered; others' parts stay as they are."""
        began = perf_counter()
        found = {party: self._extractors_in(party, reply) for party, reply in replies.items()}
        for name in self.extractors:
            holders = [party for party, vectors in found.items() if name in vectors]
            if holders:
                vectors = [found[party][name] for party in holders]
                weights = [self.assembly.weights[party] for party in holders]
                self.extractors[name] = mean(vectors, weights)
        middle = perf_counter()
        classifiers = {party: self._layers_in(party, reply) for party, reply in replies.items()}
        known = {*classifiers, *(self.matched.rows if self.matched is not None else ())}
        self.matched = match_classifiers(
            classifiers,
            {party: columns for party, columns in self._inputs.items() if party in known},
            self._n_inputs,
            {party: p for party, p in self.assembly.weights.items() if party in known},
            settings=self._settings.matching,
            previous=self.matched,
            random=np.random.default_rng((self._settings.seed, 0x3A7C, turn)),
        )
        self.seconds["averaging"] += middle - began
        self.seconds["matching"] += perf_counter() - middle

    def _extractors_in(self, party: str, reply: TrainReply) -> dict[str, Vector]:
        own = self.assembly.holders[party]
        with sent_by(party):
            whole = vector_of(reply.extractors, "extractors", self.assembly.total(own))
        return self.assembly.cut(own, whole)

    def _layers_in(self, party: str, reply: TrainReply) -> list[NDArray[np.float32]]:
        shapes = self._shapes[party]
        with sent_by(party):
            vector = vector_of(reply.classifier, "classifier", size_of_layers(shapes))
        return split_layers(host(vector), shapes)

    def model(self) -> NeuralModel:
        """The server's model as a file can keep it."""
        if self.matched is None:
            raise ProtocolError("no party has sent a classifier; there is no model")
        assembly = self.assembly
        return NeuralModel(
            dict(assembly.blocks),
            assembly.classes,
            {name: host(vector) for name, vector in self.extractors.items()},
            {name: kept for name, (_, kept) in assembly.sizes.items()},
            dict(assembly.features),
            [np.asarray(layer, np.float32) for layer in self.matched.layers],
            dict(assembly.scaling),
        )


@contextmanager
def sent_by(party: str) -> Iterator[None]:
    """Say which party sent what cannot be used."""
    try:
        yield
    except ProtocolError as error:
        raise ProtocolError(f"party {party}: {error}") from None
