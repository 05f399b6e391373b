"""HyFEM and what it is compared with, the networks of all parties in one call.

The same rounds as a federation in this process takes (`weft_neural.local_federation`), with the
same first weights and minibatches; on the CPU they agree up to the order of sums. No messages and
no masks: for experiments only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from time import perf_counter
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import ConfigError
from weft_neural.cuda_device_and_vectors import new_stream
from weft_neural.extractors.resnet import ResNet
from weft_neural.local_sgd_steps import drawn_samples
from weft_neural.neural_network import first_extractor
from weft_neural.parameter_packing import first_layers, layer_shapes
from weft_neural.settings import NeuralSettings
from weft_papers.hyfem.batched_networks.classifiers import Classifiers
from weft_papers.hyfem.batched_networks.image_blocks_on_device import ImageBlocks
from weft_papers.hyfem.batched_networks.matching import Matcher, Server
from weft_papers.hyfem.batched_networks.measuring import Measured, measure
from weft_papers.hyfem.batched_networks.network_operations_interface import Operations
from weft_papers.hyfem.batched_networks.pytorch_operations import PytorchOperations
from weft_papers.hyfem.batched_networks.residual import FEATURES, Networks, outline

#: What parties exchange. Extractors alone, with classifiers of their own, is FedPer, to which
#: Remark 3 of the 2024 text reduces HyFEM.
Exchange = Literal["everything", "extractors", "nothing"]
#: Steps before a graph is captured, in which kernels are compiled.
_WARM_UP = 2


@dataclass(frozen=True)
class Turn:
    """One round.

    Attributes
    ----------
    loss
        Mean over parties of the loss of their steps.
    server, received, own
        Of the server's model after the round, of the copies that parties get of it, and of their
        networks after their own steps; None: not measured, or there is none.
    rows
        Of the server's hidden layer.
    steps_seconds, server_seconds, matching_seconds
        Of local steps with the copying before them, of averaging, of matching.
    """

    turn: int
    loss: float
    server: Measured | None
    received: Measured | None
    own: Measured | None
    rows: int
    steps_seconds: float
    server_seconds: float
    matching_seconds: float

    def row(self) -> dict[str, Any]:
        """For a file: numbers only."""
        return asdict(self)


class Together:
    """Parties whose extractors are residual networks of one shape.

    Parameters
    ----------
    pictures
        All samples, in the device's memory.
    parties
        By name, the numbers of a party's blocks and its samples.
    exchange
        Nothing: every party trains alone.
    low
        What networks compute with: float32, or bfloat16 on a CUDA device.
    """

    def __init__(
        self,
        pictures: ImageBlocks,
        parties: Mapping[str, tuple[Sequence[int], Ints]],
        settings: NeuralSettings,
        *,
        exchange: Exchange = "everything",
        low: torch.dtype = torch.float32,
    ) -> None:
        _check(settings)
        self._pictures, self._settings, self._exchange = pictures, settings, exchange
        self._names = list(parties)
        device = pictures.labels.device
        blocks = [list(own) for own, _ in parties.values()]
        self._rows = [torch.from_numpy(rows).to(device) for _, rows in parties.values()]
        pairs = [(party, block) for party, own in enumerate(blocks) for block in own]
        self._party_of = torch.tensor([party for party, _ in pairs], device=device)
        self._block_of = torch.tensor([block for _, block in pairs], device=device)
        self._shares = np.array([len(rows) for _, rows in parties.values()], float)
        self._shares /= self._shares.sum()
        modules = [
            first_extractor(name, settings.blocks[name], settings.seed) for name in pictures.names
        ]
        nets = [module for module in modules if isinstance(module, ResNet)]
        if len(nets) < len(modules):
            raise ConfigError("parties run together only if their extractors are residual networks")
        plan = outline(nets[0], pictures.shape)
        self.operations = plan.operations * len(pairs)
        self._ops = _operations(low)
        self.server = Networks(plan, len(nets), self._ops, device, low=low, learns=False)
        self.server.load(nets)
        self.networks = Networks(plan, len(pairs), self._ops, device, low=low)
        numbers = [
            [n for n, (party, _) in enumerate(pairs) if party == at] for at in range(len(blocks))
        ]
        self.classifiers = Classifiers(
            blocks, numbers, settings.hidden[0], pictures.classes, device
        )
        self._columns = [self._columns_of(own) for own in blocks]
        self._matcher = Matcher(self._columns, self._shares.tolist(), settings.matching)
        self._means = self._averaging(len(nets), len(pairs))
        self.matched = self._first_classifier()
        self._stepper = _Stepper(self)

    def _columns_of(self, blocks: Sequence[int]) -> torch.Tensor:
        """The server's columns of a party's inputs, and of the bias."""
        device = self._block_of.device
        starts = torch.tensor(list(blocks), device=device)[:, None] * FEATURES
        inner = torch.arange(FEATURES, device=device)
        last = torch.tensor([len(self._pictures.names) * FEATURES], device=device)
        return torch.cat([(starts + inner).flatten(), last])

    def _averaging(self, blocks: int, networks: int) -> torch.Tensor:
        """(blocks, networks): p_m over the sum of p over the holders of a block."""
        shares = torch.from_numpy(self._shares).to(self._party_of.device)
        weights = torch.zeros(blocks, networks, dtype=torch.float64, device=shares.device)
        weights[self._block_of, torch.arange(networks, device=shares.device)] = shares[
            self._party_of
        ]
        return (weights / weights.sum(dim=1, keepdim=True)).float()

    def _first_classifier(self) -> Server:
        settings, count = self._settings, len(self._names)
        width = settings.hidden[0]
        layers = self._first(len(self._pictures.names))
        return Server(layers, [np.arange(width) for _ in range(count)])

    def _first(self, blocks: int) -> tuple[torch.Tensor, torch.Tensor]:
        shapes = layer_shapes(blocks * FEATURES, self._settings.hidden, self._pictures.classes)
        low, high = first_layers(shapes, self._settings.seed)
        device = self._block_of.device
        return torch.from_numpy(low).to(device), torch.from_numpy(high).to(device)

    def run(self) -> Iterator[Turn]:
        """All rounds, one after the other."""
        self._hand_out()
        if self._exchange != "everything":
            for party, own in enumerate(self.classifiers.blocks):
                self.classifiers.set(party, *self._first(len(own)))
        for turn in range(1, self._settings.rounds + 1):
            yield self._take(turn)

    def _take(self, turn: int) -> Turn:
        settings = self._settings
        began = self._now()
        self._stepper.pull_here()
        loss = self._stepper.run(settings.steps, settings.rate_at(turn), self._drawn(turn))
        trained = self._now()
        evaluates = turn % settings.evaluate_every == 0 or turn == settings.rounds
        own = None
        if evaluates:
            own = measure(self._pictures, self.networks, self._block_of, self.classifiers.on_own)
        measured = averaged = matched = self._now()
        server = received = None
        if self._exchange != "nothing":
            self.server.mean_of(self.networks, self._means)
            averaged = matched = self._now()
            if self._exchange == "everything":
                self._match(turn)
                matched = self._now()
                self._hand_out()
            else:
                self.networks.copy_of(self.server, self._block_of)
            if evaluates:
                server, received = self._judge()
        return Turn(
            turn,
            loss,
            server,
            received,
            own,
            len(self.matched.layers[0]),
            trained - began,
            averaged - measured,
            matched - averaged,
        )

    def _match(self, turn: int) -> None:
        layers = [self.classifiers.layers(party) for party in range(len(self._names))]
        random = np.random.default_rng((self._settings.seed, 0x3A7C, turn))
        self.matched = self._matcher.match(layers, self.matched.rows, random)

    def _hand_out(self) -> None:
        """Every party gets its part of the server's model."""
        self.networks.copy_of(self.server, self._block_of)
        for party, columns in enumerate(self._columns):
            self.classifiers.set(party, *self.matched.copy_for(party, columns))

    def _judge(self) -> tuple[Measured | None, Measured]:
        """The server's model, where it has a classifier, and the parties' on its extractors."""
        low, high = self.matched.layers
        every = torch.arange(self.server.count, device=low.device)
        if self._exchange == "extractors":
            shared = self.classifiers.on_shared
            return None, measure(self._pictures, self.server, every, shared)

        def answer(features: torch.Tensor) -> torch.Tensor:
            inputs = features.permute(1, 0, 2).flatten(1)
            hidden = torch.relu(inputs @ low[:, :-1].T + low[:, -1])
            whole = hidden @ high[:, :-1].T + high[:, -1]
            return torch.cat([whole[None], self.classifiers.on_shared(features)])

        found = measure(self._pictures, self.server, every, answer)
        return found.only(slice(0, 1)), found.only(slice(1, None))

    def _drawn(self, turn: int) -> torch.Tensor:
        """(steps, parties, batch): samples of the minibatches."""
        settings = self._settings
        drawing = f"{settings.seed}".encode()
        drawn = [
            rows[
                drawn_samples(
                    *(len(rows), settings.steps, settings.batch, drawing),
                    f"round {turn} of {name}",
                ).to(rows.device)
            ]
            for name, rows in zip(self._names, self._rows, strict=True)
        ]
        return torch.stack(drawn, dim=1)

    def _now(self) -> float:
        if self._block_of.is_cuda:
            torch.cuda.synchronize()
        return perf_counter()


class _Stepper:
    """Local steps of all parties, on a CUDA device as a graph."""

    def __init__(self, owner: Together) -> None:
        self._owner, self._pictures = owner, owner._pictures
        self._ops, self._settings = owner._ops, owner._settings
        self._networks, self._classifiers = owner.networks, owner.classifiers
        device = owner._block_of.device
        self._centres = [torch.zeros_like(t) for t in self._weights()]
        self._rate, *self._pulls = (torch.zeros((), device=device) for _ in range(3))
        self._index = torch.zeros(
            len(owner._names), self._settings.batch, dtype=torch.int64, device=device
        )
        self._losses = torch.zeros(len(owner._names), device=device)
        self._graph: torch.cuda.CUDAGraph | None = None
        if device.type == "cuda":
            self._graph = self._captured()

    def _weights(self) -> list[torch.Tensor]:
        return [self._networks.filters, self._networks.norms, *self._classifiers.tensors]

    def pull_here(self) -> None:
        """From now on steps are pulled towards the weights as they are now."""
        for centre, tensor in zip(self._centres, self._weights(), strict=True):
            centre.copy_(tensor)

    def run(self, steps: int, rate: float, drawn: torch.Tensor) -> float:
        """Take steps; returns their mean loss."""
        self._rate.fill_(rate)
        for share, pull in zip(self._pulls, self._settings.pulls, strict=True):
            share.fill_(rate * pull)
        self._losses.zero_()
        for step in range(steps):
            self._index.copy_(drawn[step])
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
        weights = torch.from_numpy(self._owner._shares).to(self._losses)
        return float((self._losses * weights).sum()) / steps

    def _step(self) -> None:
        owner, networks = self._owner, self._networks
        images = self._pictures.some(owner._block_of, self._index[owner._party_of])
        features = networks.forward(images, learn=True)
        labels = self._pictures.labels[self._index]
        losses, dfeatures, gradients = self._classifiers.gradients(features, labels)
        networks.back(dfeatures)
        self._losses += losses
        first, second = self._pulls
        copies = None if networks.copies is networks.filters else networks.copies
        filters, norms, *rest = self._centres
        self._ops.update(networks.filters, filters, networks.dfilters, copies, self._rate, first)
        self._ops.update(networks.norms, norms, networks.dnorms, None, self._rate, first)
        self._classifiers.update(self._ops, rest, gradients, self._rate, second)

    def _captured(self) -> torch.cuda.CUDAGraph:
        """One step as a graph; weights are set afterwards."""
        main, side = torch.cuda.current_stream(), new_stream(self._losses.device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step()
        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        return graph


def _operations(low: torch.dtype) -> Operations:
    if low == torch.float32:
        return PytorchOperations()
    from weft_papers.hyfem.batched_networks.triton_operations import TritonOperations

    return TritonOperations()


def _check(settings: NeuralSettings) -> None:
    fits = {
        "hidden": len(settings.hidden) == 1,
        "batch": settings.batch > 0,
        "begin": settings.begin == "server",
        "start": settings.start == "common",
        "participation": settings.participation == "everyone",
        "weigh": settings.weigh == "samples",
    }
    for name, fit in fits.items():
        if not fit:
            raise ConfigError(
                f"parties that run together have one hidden layer, minibatches and Algorithm 2 as "
                f"it is; {name} = {getattr(settings, name)} needs a federation of its own"
            )


def pooled(count: int, blocks: int) -> dict[str, tuple[Sequence[int], NDArray[np.int64]]]:
    """Central training: one party that has everything."""
    return {"pool": (range(blocks), np.arange(count))}
