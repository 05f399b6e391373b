"""Small extractors: a vector itself, affine layers, a few convolutions.

Convolutions have strides instead of max-pools: those have no deterministic backward pass on CUDA.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from torch import nn


def identity() -> nn.Module:
    """The block as a vector."""
    return nn.Flatten()


def linear(inputs: int, features: int) -> nn.Module:
    """x ↦ Wx + b."""
    return nn.Sequential(nn.Flatten(), nn.Linear(inputs, features))


def mlp(widths: Sequence[int]) -> nn.Module:
    """Affine layers between these widths, a ReLU after each.

    The last has one too: a classifier begins with an affine layer, and two of those in a row are
    one.
    """
    layers: list[nn.Module] = [nn.Flatten()]
    for before, after in pairwise(widths):
        layers += [nn.Linear(before, after), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)


def cnn(image: tuple[int, int, int], channels: Sequence[int], features: int) -> nn.Module:
    """3 × 3 convolutions that halve the image, then one affine layer; a ReLU after each."""
    before, height, width = image
    layers: list[nn.Module] = []
    for after in channels:
        layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.ReLU(inplace=True)]
        before, height, width = after, (height + 1) // 2, (width + 1) // 2
    flat = before * height * width
    layers += [nn.Flatten(), nn.Linear(flat, features), nn.ReLU(inplace=True)]
    return nn.Sequential(*layers)
