"""Local steps: perturbed SGD on (8) of the 2024 text, as Algorithm 2 takes them.

With g the gradient of the loss of a minibatch and c the server's weights, a step is
w ← w − η (g + μ (w − c)), with μ1 for extractors and μ2 for the classifier.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import cross_entropy

from weft.array_types import Ints
from weft_neural.cuda_device_and_vectors import new_stream
from weft_neural.neural_network import Net

#: Steps before a graph is captured, in which libraries choose their kernels.
_WARM_UP = 3
#: Samples that are measured at once.
_AT_ONCE = 2_000


class Samples:
    """Labelled samples in a device's memory, by block in the order of a network's."""

    def __init__(
        self,
        names: Sequence[str],
        blocks: Mapping[str, NDArray[np.float32]],
        labels: Ints,
        device: torch.device,
    ) -> None:
        self.inputs = [_placed(blocks[name], device) for name in names]
        self.labels = torch.from_numpy(np.ascontiguousarray(labels, np.int64)).to(device)

    def __len__(self) -> int:
        return len(self.labels)

    def some(self, index: torch.Tensor | slice) -> tuple[list[torch.Tensor], torch.Tensor]:
        return [part[index] for part in self.inputs], self.labels[index]


def _placed(block: NDArray[np.float32], device: torch.device) -> torch.Tensor:
    tensor = torch.from_numpy(np.ascontiguousarray(block, np.float32)).to(device)
    if tensor.dim() == 4:
        return tensor.to(memory_format=torch.channels_last)
    return tensor


class Trainer:
    """Takes local steps with one network on one party's samples.

    On a CUDA device a step is captured once as a graph and replayed: networks on small blocks would
    wait for the launching of their kernels otherwise.

    Parameters
    ----------
    pulls
        μ1 and μ2.
    batch
        Samples of a step; None: all samples in every step.
    """

    def __init__(
        self, net: Net, samples: Samples, *, pulls: tuple[float, float], batch: int | None
    ) -> None:
        self._net, self._samples = net, samples
        self._whole = batch is None
        self._batch = len(samples) if batch is None else batch
        self._flats = net.extractor_weights, net.classifier_weights
        self._centres = [torch.zeros_like(flat) for flat in self._flats]
        self._pulled = net.pulled
        self._pulls = pulls
        self._weights: list[torch.Tensor] = list(net.parameters())
        self._device = samples.labels.device
        self._index = torch.zeros(self._batch, dtype=torch.int64, device=self._device)
        # −η, ημ1 and ημ2 and the loss lie in the device's memory, where a graph finds them.
        self._step_size, *self._shares = (torch.zeros((), device=self._device) for _ in range(3))
        self._loss = torch.zeros((), device=self._device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def run(self, steps: int, rate: float, drawing: bytes, purpose: str) -> float:
        """Take steps, pulled towards where :meth:`pull_here` was called; returns the mean loss.

        Minibatches are drawn uniformly, depending on ``drawing`` and on what they are for.
        """
        self._net.train()
        self._step_size.fill_(-rate)
        for share, pull in zip(self._shares, self._pulls, strict=True):
            share.fill_(rate * pull)
        drawn = self._drawn(steps, drawing, purpose)
        if self._device.type == "cuda" and self._graph is None:
            self._graph = self._captured()
        self._loss.zero_()
        for step in range(steps):
            self._index.copy_(drawn[step])
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
        return float(self._loss) / max(1, steps)

    def pull_here(self) -> None:
        """From now on steps are pulled towards the weights that the network has now."""
        for centre, flat in zip(self._centres, self._flats, strict=True):
            centre.copy_(flat)

    def _drawn(self, steps: int, drawing: bytes, purpose: str) -> torch.Tensor:
        if self._whole:
            return torch.arange(self._batch, device=self._device).expand(steps, -1)
        drawn = drawn_samples(len(self._samples), steps, self._batch, drawing, purpose)
        return drawn.to(self._device)

    def _step(self) -> None:
        inputs, labels = self._samples.some(self._index)
        loss = cross_entropy(self._net(inputs), labels)
        gradients = torch.autograd.grad(loss, self._weights)
        with torch.no_grad():
            self._loss += loss.detach()
            for flat, centre, size, share, pull in zip(
                self._flats, self._centres, self._pulled, self._shares, self._pulls, strict=True
            ):
                if pull:
                    flat[:size].lerp_(centre[:size], share)
            changes = torch._foreach_mul(gradients, self._step_size)
            torch._foreach_add_(self._weights, list(changes))

    def _captured(self) -> torch.cuda.CUDAGraph:
        """One step as a graph; what the steps to warm up changed is put back."""
        before = [flat.clone() for flat in self._flats]
        main, side = torch.cuda.current_stream(), new_stream(self._device)
        side.wait_stream(main)
        with torch.cuda.stream(side):
            for _ in range(_WARM_UP):
                self._step()
        main.wait_stream(side)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            self._step()
        for flat, old in zip(self._flats, before, strict=True):
            flat.copy_(old)
        return graph


def drawn_samples(count: int, steps: int, batch: int, drawing: bytes, purpose: str) -> torch.Tensor:
    """(steps, batch) numbers below ``count``, uniform; they depend on the last two."""
    digest = blake2b(drawing + f" {purpose}".encode(), digest_size=8).digest()
    random = torch.Generator()
    random.manual_seed(int.from_bytes(digest, "big") >> 1)
    return torch.randint(count, (steps, batch), generator=random)


@torch.no_grad()
def share_right(answer: Callable[[list[torch.Tensor]], torch.Tensor], samples: Samples) -> float:
    """Share of the samples whose largest logit is that of their class."""
    right = torch.zeros((), dtype=torch.int64, device=samples.labels.device)
    for at in range(0, len(samples), _AT_ONCE):
        inputs, labels = samples.some(slice(at, at + _AT_ONCE))
        right += (answer(inputs).argmax(dim=1) == labels).sum()
    return int(right) / max(1, len(samples))


def accuracy(net: Net, samples: Samples) -> float:
    """Share of the samples that a network puts into the right class."""
    return share_right(net.eval(), samples)
