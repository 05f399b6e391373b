"""The extractors there are, and how one of them is made for a shape."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any

import msgspec

from weft.errors import ConfigError
from weft.thread_safe_decoding import prepared
from weft_neural.extractors.options import (
    CnnOptions,
    IdentityOptions,
    LinearOptions,
    MlpOptions,
    ResNetOptions,
)

if TYPE_CHECKING:
    from torch import nn

Shape = tuple[int, ...]


@dataclass(frozen=True)
class Entry:
    """An extractor as the list of them shows it.

    Attributes
    ----------
    about
        One line on what it is.
    options
        What it is told, with defaults.
    build
        Makes it for the shape of one sample; refuses a shape that does not fit.
    """

    about: str
    options: type[msgspec.Struct]
    build: Callable[[Shape, Any], nn.Module]


def make_extractor(name: str, shape: Shape, options: Mapping[str, Any]) -> nn.Module:
    """A new network (n, \\*shape) → (n, features), weights drawn from torch's generator.

    Parameters
    ----------
    name
        One of `EXTRACTORS`.
    shape
        Of one sample: (length,) of a vector, (channels, height, width) of an image.
    options
        What this extractor reads; anything else is refused.
    """
    chosen = read_extractor_options(name, options)
    if not shape or min(shape) < 1:
        raise ConfigError(
            f"extractor '{name}' cannot read blocks of shape {list(shape)}; give lengths of 1 or "
            "more"
        )
    try:
        return EXTRACTORS[name].build(tuple(shape), chosen)
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            f"extractor '{name}' needs torch, which is not installed; pip install 'weft[neural]'"
        ) from None


def read_extractor_options(name: str, options: Mapping[str, Any]) -> msgspec.Struct:
    """The options as the extractor knows them; needs no torch."""
    if name not in EXTRACTORS:
        close = get_close_matches(name, EXTRACTORS, 1)
        hint = f" (the closest is '{close[0]}')" if close else ""
        raise ConfigError(
            f"unknown extractor '{name}'{hint}; choose one of {', '.join(EXTRACTORS)}"
        )
    kind = EXTRACTORS[name].options
    try:
        return msgspec.convert(dict(options), prepared(kind))
    except msgspec.ValidationError as error:
        known = ", ".join(field.name for field in msgspec.structs.fields(kind)) or "none"
        raise ConfigError(
            f"the options of extractor '{name}' do not fit ({error}); it knows {known}"
        ) from None


def feature_count(module: nn.Module, shape: Shape) -> int:
    """Length of an extractor's output, by putting one sample of zeros through it."""
    import torch

    first = next(module.parameters(), torch.empty(0))
    sample = torch.zeros((1, *shape), dtype=first.dtype, device=first.device)
    # Testing mode: one sample has no variance to normalise by, and must not count as seen.
    training = module.training
    try:
        with torch.no_grad():
            count = module.eval()(sample).shape[1]
    finally:
        module.train(training)
    return int(count)


def _image(name: str, shape: Shape, least: int) -> tuple[int, int, int]:
    if len(shape) != 3:
        raise ConfigError(
            f"extractor '{name}' reads images (channels, height, width), but the block has the "
            f"shape {list(shape)}; use 'mlp', or give the block such a shape"
        )
    channels, height, width = shape
    if min(height, width) < least:
        raise ConfigError(
            f"extractor '{name}' needs images of {least} × {least} pixels or more here, but the "
            f"block has {height} × {width}; use another extractor, or options that shrink less"
        )
    return channels, height, width


def _identity(shape: Shape, options: IdentityOptions) -> nn.Module:
    from weft_neural.extractors import simple

    return simple.identity()


def _linear(shape: Shape, options: LinearOptions) -> nn.Module:
    from weft_neural.extractors import simple

    return simple.linear(math.prod(shape), options.features)


def _mlp(shape: Shape, options: MlpOptions) -> nn.Module:
    from weft_neural.extractors import simple

    return simple.mlp((math.prod(shape), *options.hidden, options.features))


def _cnn(shape: Shape, options: CnnOptions) -> nn.Module:
    # Each convolution halves the image; what it halves must still have two pixels.
    image = _image("cnn", shape, 2 ** len(options.channels))
    from weft_neural.extractors import simple

    return simple.cnn(image, options.channels, options.features)


def _resnet(name: str, blocks: tuple[int, int, int, int]) -> Callable[[Shape, Any], nn.Module]:
    def build(shape: Shape, options: ResNetOptions) -> nn.Module:
        auto = options.stem == "auto"
        # The last stage must see a pixel of its own after 3 halvings, 5 with the large stem.
        least = 32 if options.stem == "large" else 8
        channels, height, width = _image(name, shape, least)
        small = max(height, width) <= 64 if auto else options.stem == "small"
        from weft_neural.extractors.resnet import ResNet

        return ResNet(channels, blocks, small_stem=small, norm=options.norm)

    return build


EXTRACTORS: dict[str, Entry] = {
    "identity": Entry(
        "the block itself as one vector; nothing to learn", IdentityOptions, _identity
    ),
    "linear": Entry("one affine map", LinearOptions, _linear),
    "mlp": Entry("affine layers, each followed by a ReLU", MlpOptions, _mlp),
    "cnn": Entry("a few strided convolutions, for small images", CnnOptions, _cnn),
    "resnet18": Entry(
        "CNN part of ResNet-18 (He et al. 2016) and one pooling layer; 512 features",
        ResNetOptions,
        _resnet("resnet18", (2, 2, 2, 2)),
    ),
    "resnet34": Entry(
        "CNN part of ResNet-34 (He et al. 2016) and one pooling layer; 512 features",
        ResNetOptions,
        _resnet("resnet34", (3, 4, 6, 3)),
    ),
}


def register_extractor(
    name: str,
    build: Callable[[Shape, Any], nn.Module],
    *,
    about: str = "",
    options: type[msgspec.Struct] = IdentityOptions,
) -> None:
    """Let blocks name a network of your own: any module (n, \\*shape) → (n, features).

    All who hold such a block must register it before the run, under the same name and from the same
    code: what travels is its name and its weights.

    Parameters
    ----------
    build
        Makes it for the shape of one sample and the options of the block.
    about
        One line on what it is.
    options
        What it is told, with defaults; by default nothing.
    """
    if name in EXTRACTORS:
        raise ConfigError(f"there is an extractor '{name}' already; choose another name")
    EXTRACTORS[name] = Entry(about, options, build)
