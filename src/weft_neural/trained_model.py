"""A network that was trained by many: the server's, a party's, or one put together for a new party.

It is saved as an ``.npz`` file with no code in it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self
from zipfile import BadZipFile

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, DataError
from weft.storage.atomic_files import replacing
from weft.thread_safe_decoding import prepared
from weft_neural.parameter_packing import join_layers
from weft_neural.scaling import as_input
from weft_neural.settings import Block

if TYPE_CHECKING:
    from weft_neural.neural_network import Net

Floats = NDArray[np.float32]
Scale = tuple[NDArray[np.float64], NDArray[np.float64]]

_FORMAT = "weft neural model 1"
#: Samples that go through the network at once.
_AT_ONCE = 2_000

#: What reading a file that is damaged, or no model, may end in.
_UNREADABLE = (
    *(OSError, ValueError, KeyError, EOFError, NotImplementedError, RuntimeError),
    *(BadZipFile, zlib.error, SyntaxError, msgspec.MsgspecError),
)


@dataclass(frozen=True, eq=False)
class NeuralModel:
    """Extractors by block, and the classifier on top of them.

    Attributes
    ----------
    blocks
        The blocks that it reads, in their order, each with its shape.
    classes
        The class values.
    extractors
        By block: its weights, then its statistics, as one vector.
    statistics
        By block: how many of those numbers are statistics.
    features
        By block: outputs of its extractor.
    classifier
        One matrix per layer; the last column is the bias.
    scaling
        Mean and deviation of columns, by block that has them.
    """

    blocks: Mapping[str, Block]
    classes: NDArray[Any]
    extractors: Mapping[str, Floats]
    statistics: Mapping[str, int]
    features: Mapping[str, int]
    classifier: Sequence[Floats]
    scaling: Mapping[str, Scale] = field(default_factory=dict)

    @property
    def hidden(self) -> tuple[int, ...]:
        """Rows of the hidden layers."""
        return tuple(len(layer) for layer in self.classifier[:-1])

    def restricted(self, blocks: Sequence[str]) -> NeuralModel:
        """The model for somebody who has these blocks only.

        Its classifier has all rows, with the columns of these blocks: Π_m w_0 of the text for a
        party that nobody knew in training.
        """
        unknown = [name for name in blocks if name not in self.blocks]
        if unknown or not blocks:
            what = f"has no block '{unknown[0]}'" if unknown else "cannot work without any block"
            raise ConfigError(f"this model {what}; choose some of {', '.join(self.blocks)}")
        names = [name for name in self.blocks if name in set(blocks)]
        first = self.classifier[0]
        columns = np.append(input_columns(self.features, names), first.shape[1] - 1)
        return NeuralModel(
            {name: self.blocks[name] for name in names},
            self.classes,
            {name: self.extractors[name] for name in names},
            {name: self.statistics[name] for name in names},
            {name: self.features[name] for name in names},
            [np.ascontiguousarray(first[:, columns]), *self.classifier[1:]],
            {name: self.scaling[name] for name in names if name in self.scaling},
        )

    # ── predicting ────────────────────────────────────────────────────────────────────────

    def net(self) -> Net:
        """The network in PyTorch, on the CPU."""
        import torch

        from weft_neural.neural_network import Net

        net = Net(self.blocks, self.hidden, len(self.classes))
        cuts = {name: len(v) - self.statistics[name] for name, v in self.extractors.items()}
        weights = [vector[: cuts[name]] for name, vector in self.extractors.items()]
        statistics = [vector[cuts[name] :] for name, vector in self.extractors.items()]
        sizes = {name: own + kept for name, (own, kept) in net.sizes.items()}
        if any(len(self.extractors[name]) != size for name, size in sizes.items()):
            raise DataError(
                "the weights of this model do not fit its extractors; it is damaged, or was made "
                "by another version of Weft"
            )
        with torch.no_grad():
            net.extractor_weights.copy_(torch.from_numpy(np.concatenate(weights + statistics)))
            net.classifier_weights.copy_(torch.from_numpy(join_layers(self.classifier)))
        return net.eval()

    def probabilities(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[np.float64]:
        """Of every class for every sample, whose blocks are given as they were measured."""
        import torch

        read = [torch.from_numpy(self._input(inputs, name)) for name in self.blocks]
        net, parts = self.net(), []
        with torch.no_grad():
            for at in range(0, max(1, len(read[0])), _AT_ONCE):
                logits = net([block[at : at + _AT_ONCE] for block in read])
                parts.append(torch.softmax(logits.double(), dim=1).numpy())
        return np.concatenate(parts)

    def predict(self, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
        """The likeliest class of every sample."""
        chosen: NDArray[Any] = self.classes[self.probabilities(inputs).argmax(axis=1)]
        return chosen

    def _input(self, inputs: Mapping[str, NDArray[Any]], name: str) -> Floats:
        block = inputs.get(name)
        if block is None:
            raise DataError(
                f"block '{name}' is missing, which this model reads; give it, or restrict the "
                "model to the blocks that there are"
            )
        shape = self.blocks[name].shape or ()
        if prod(block.shape[1:]) != prod(shape):
            raise DataError(
                f"block '{name}' has samples of shape {list(block.shape[1:])}, but this model "
                f"reads {list(shape)}"
            )
        return as_input(block.reshape(len(block), *shape), self.scaling.get(name))

    # ── files ─────────────────────────────────────────────────────────────────────────────

    def save(self, path: Path) -> None:
        """Write it, whole or not at all."""
        head = {
            "format": _FORMAT,
            "blocks": {name: msgspec.to_builtins(block) for name, block in self.blocks.items()},
            "statistics": dict(self.statistics),
            "features": dict(self.features),
        }
        arrays: dict[str, NDArray[Any]] = {
            "head": np.array(json.dumps(head)),
            "classes": _plain(self.classes),
        }
        for number, name in enumerate(self.blocks):
            arrays[f"extractor {number}"] = self.extractors[name]
            if name in self.scaling:
                arrays[f"mean {number}"], arrays[f"deviation {number}"] = self.scaling[name]
        for number, layer in enumerate(self.classifier):
            arrays[f"layer {number}"] = layer
        with replacing(path) as draft, draft.open("wb") as file:
            np.savez(file, **arrays)  # type: ignore[arg-type]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote."""
        try:
            with np.load(path, allow_pickle=False) as found:
                return cls._from(found)
        except _UNREADABLE as error:
            raise DataError(
                f"{path} is no neural model that this version can read ({error}); name a model.npz "
                "that weft neural run wrote"
            ) from None

    @classmethod
    def _from(cls, found: Mapping[str, NDArray[Any]]) -> Self:
        head = msgspec.json.decode(str(found["head"]), type=prepared(_Head))
        if head.format != _FORMAT:
            raise ValueError(f"its format is {head.format!r}")
        blocks = head.blocks
        layers = sum(name.startswith("layer ") for name in found)
        scaling = {
            name: (found[f"mean {number}"], found[f"deviation {number}"])
            for number, name in enumerate(blocks)
            if f"mean {number}" in found
        }
        model = cls(
            blocks,
            found["classes"],
            {name: found[f"extractor {number}"] for number, name in enumerate(blocks)},
            head.statistics,
            head.features,
            [found[f"layer {number}"] for number in range(layers)],
            scaling,
        )
        _check(model)
        return model


class _Head(msgspec.Struct, frozen=True):
    """What a file says of its arrays."""

    format: str
    blocks: dict[str, Block]
    statistics: dict[str, int]
    features: dict[str, int]


def _check(model: NeuralModel) -> None:
    """Refuse arrays that do not fit together: they would fail, or answer nonsense, later."""
    for vector in (*model.extractors.values(), *model.classifier):
        if vector.dtype != np.float32 or not np.isfinite(vector).all():
            raise ValueError("its weights are not all finite numbers of 32 bits")
    for name, block in model.blocks.items():
        if not 0 <= model.statistics[name] <= model.extractors[name].size or not block.shape:
            raise ValueError(f"the weights of block '{name}' do not fit")
        for numbers in model.scaling.get(name, ()):
            if numbers.shape != (prod(block.shape),) or numbers.dtype != np.float64:
                raise ValueError(f"the scaling of block '{name}' does not fit")
    widths = [sum(model.features[name] for name in model.blocks)]
    for layer in model.classifier:
        if layer.ndim != 2 or layer.shape[1] != widths[-1] + 1:
            raise ValueError("its layers do not fit each other")
        widths.append(len(layer))
    if len(widths) < 3 or model.classes.shape != (widths[-1],):
        raise ValueError("its classes do not fit its layers")


def input_columns(features: Mapping[str, int], chosen: Sequence[str]) -> NDArray[np.int64]:
    """Where the outputs of some blocks' extractors lie among those of all."""
    ends = np.cumsum([0, *features.values()])
    start = dict(zip(features, ends.tolist(), strict=False))
    ranges = [np.arange(start[name], start[name] + features[name]) for name in chosen]
    return np.concatenate(ranges)


def _plain(classes: NDArray[Any]) -> NDArray[Any]:
    return classes.astype(str) if classes.dtype == object else classes
