"""A party's network: an extractor for each of its blocks, and a classifier on top.

All weights lie in two vectors, one of the extractors and one of the classifier, of which the
modules' parameters are views: what is sent, averaged and pulled is a vector.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from hashlib import blake2b
from itertools import chain, pairwise
from threading import RLock

import torch
from torch import nn
from torch.nn.functional import linear

from weft_neural.cuda_device_and_vectors import new_stream
from weft_neural.extractors import feature_count, make_extractor
from weft_neural.settings import Block

#: PyTorch's layers draw from a generator of the whole process: one network at a time is made. A
#: site may bring several runs back at once, each in a thread of its own.
_DRAWING = RLock()


class Net(nn.Module):
    """Extractors by block, their outputs side by side, and a perceptron with ReLU between layers.

    Parameters
    ----------
    blocks
        The party's blocks, in the order of the server's; every block has its shape.
    hidden
        Rows of the hidden layers.
    classes
        Outputs.
    seed
        Of the first weights: those of a block's extractor are the same at all who hold it.
    purpose
        Of the classifier, whose first weights depend on it too.

    Attributes
    ----------
    names
        Of its blocks.
    features
        Outputs of every extractor.
    sizes
        How many weights and how many statistics of normalising layers every block has.
    extractor_weights, classifier_weights
        The vectors. In that of the extractors the weights of all blocks come first, then the
        statistics of all blocks.
    pulled
        How many numbers of the two vectors are weights.
    """

    def __init__(
        self,
        blocks: Mapping[str, Block],
        hidden: Sequence[int],
        classes: int,
        *,
        seed: int = 0,
        purpose: str = "classifier",
        device: torch.device | None = None,
    ) -> None:
        super().__init__()
        self.names = tuple(blocks)
        place = torch.device("cpu") if device is None else device
        made = {name: first_extractor(name, block, seed) for name, block in blocks.items()}
        self.features = {
            name: feature_count(made[name], shape_of(name, blocks[name])) for name in made
        }
        widths = [sum(self.features.values()), *hidden, classes]
        with _seeded(seed, purpose):
            linears = [nn.Linear(a, b) for a, b in pairwise(widths)]
        made = {name: module.to(place) for name, module in made.items()}
        self.extractors = nn.ModuleList(made.values())
        self.linears = nn.ModuleList(layer.to(place) for layer in linears)
        self.sizes, self.extractor_weights = _flatten(made, place)
        _, self.classifier_weights = _flatten({"": self.linears}, place)
        self.pulled = (
            sum(weights for weights, _ in self.sizes.values()),
            len(self.classifier_weights),
        )
        self._streams: list[torch.cuda.Stream] = []
        if place.type == "cuda":
            # Blocks wait for nobody but the classifier: small networks leave room for each other.
            self._streams = [new_stream(place) for _ in self.extractors]

    def pieces(self, blocks: Sequence[str]) -> list[torch.Tensor]:
        """Parts of the extractors' vector: weights of some blocks, then their statistics."""
        weights, statistics = {}, {}
        at, after = 0, self.pulled[0]
        for name, (own, kept) in self.sizes.items():
            weights[name] = self.extractor_weights[at : at + own]
            statistics[name] = self.extractor_weights[after : after + kept]
            at, after = at + own, after + kept
        return [part[name] for part in (weights, statistics) for name in blocks]

    def forward(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Logits of samples whose blocks are given in order."""
        return self.classify(self.extracted(inputs))

    def extracted(self, inputs: Sequence[torch.Tensor]) -> torch.Tensor:
        """Outputs of all extractors, side by side."""
        return torch.cat(self._outputs(inputs), dim=1)

    def _outputs(self, inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if not self._streams:
            return [net(x) for net, x in zip(self.extractors, inputs, strict=True)]
        outputs = []
        main = torch.cuda.current_stream()
        for net, x, stream in zip(self.extractors, inputs, self._streams, strict=True):
            stream.wait_stream(main)
            with torch.cuda.stream(stream):
                outputs.append(net(x))
        for stream in self._streams:
            main.wait_stream(stream)
        return outputs

    def classify(self, features: torch.Tensor) -> torch.Tensor:
        """Logits from the extractors' outputs."""
        layers = [layer for layer in self.linears if isinstance(layer, nn.Linear)]
        return perceptron([(layer.weight, layer.bias) for layer in layers], features)


def perceptron(
    layers: Sequence[tuple[torch.Tensor, torch.Tensor]], features: torch.Tensor
) -> torch.Tensor:
    """Layers of weights and biases, with ReLU between them."""
    for number, (weights, biases) in enumerate(layers):
        features = linear(features, weights, biases)
        if number < len(layers) - 1:
            features = torch.relu(features)
    return features


def shape_of(name: str, block: Block) -> tuple[int, ...]:
    if block.shape is None:
        raise ValueError(f"block {name} has no shape yet")
    return block.shape


def first_extractor(name: str, block: Block, seed: int) -> nn.Module:
    """A block's extractor before any step: the same at all who hold the block."""
    with _seeded(seed, f"extractor {name}"):
        return make_extractor(block.extractor, shape_of(name, block), block.options)


@contextmanager
def _seeded(seed: int, purpose: str) -> Iterator[None]:
    """Let what is drawn depend on the seed and on what it is for, and on nothing before it."""
    digest = blake2b(f"{seed} {purpose}".encode(), digest_size=8).digest()
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(int.from_bytes(digest, "big") >> 1)
        yield


def _flatten(
    modules: Mapping[str, nn.Module], place: torch.device
) -> tuple[dict[str, tuple[int, int]], torch.Tensor]:
    """Put all weights, then all statistics into one vector, and make them views of it."""
    weights = {name: [*_weights(module)] for name, module in modules.items()}
    statistics = {name: [*_statistics(module)] for name, module in modules.items()}
    sizes = {name: (_count(weights[name]), _count(statistics[name])) for name in modules}
    flat = torch.empty(sum(map(sum, sizes.values())), dtype=torch.float32, device=place)
    at = 0
    for owner, name, tensor in chain(*weights.values(), *statistics.values()):
        view = _view(flat[at : at + tensor.numel()], tensor.shape)
        view.copy_(tensor.detach())
        if name in owner._parameters:
            tensor.data = view
        else:
            owner._buffers[name] = view
        at += tensor.numel()
    return sizes, flat


_Part = tuple[nn.Module, str, torch.Tensor]


def _weights(module: nn.Module) -> Iterator[_Part]:
    for owner in module.modules():
        yield from ((owner, name, p) for name, p in owner._parameters.items() if p is not None)


def _statistics(module: nn.Module) -> Iterator[_Part]:
    """What normalising layers remember; what they only count is not among it."""
    for owner in module.modules():
        for name, buffer in owner._buffers.items():
            if buffer is not None and buffer.is_floating_point():
                yield owner, name, buffer


def _count(parts: Sequence[_Part]) -> int:
    return sum(tensor.numel() for _, _, tensor in parts)


def _view(flat: torch.Tensor, shape: torch.Size) -> torch.Tensor:
    """A part of the vector in the shape of a weight; filters lie with their channels last."""
    if len(shape) != 4:
        return flat.view(shape)
    outputs, inputs, height, width = shape
    return flat.view(outputs, height, width, inputs).permute(0, 3, 1, 2)
