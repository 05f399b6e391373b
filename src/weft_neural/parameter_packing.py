"""A classifier on its way: one vector in messages, one matrix per layer in matching.

In the vector a layer's weights come before its biases, as PyTorch wants them; in the matrix the
biases are the last column, so that a row is all that makes up a neuron.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]


def layer_shapes(inputs: int, hidden: Sequence[int], classes: int) -> list[tuple[int, int]]:
    """Rows and columns of every layer's matrix."""
    widths = [inputs, *hidden, classes]
    return [(rows, columns + 1) for columns, rows in pairwise(widths)]


def size_of_layers(shapes: Sequence[tuple[int, int]]) -> int:
    return sum(rows * columns for rows, columns in shapes)


def split_layers(vector: Floats, shapes: Sequence[tuple[int, int]]) -> list[Floats]:
    """The matrices in a vector."""
    layers, at = [], 0
    for rows, columns in shapes:
        layer = np.empty((rows, columns), np.float32)
        weights = rows * (columns - 1)
        layer[:, :-1] = vector[at : at + weights].reshape(rows, columns - 1)
        layer[:, -1] = vector[at + weights : at + weights + rows]
        layers.append(layer)
        at += rows * columns
    return layers


def join_layers(layers: Sequence[NDArray[np.floating]]) -> Floats:
    """The inverse of :func:`split_layers`."""
    parts = [part.ravel() for layer in layers for part in (layer[:, :-1], layer[:, -1])]
    return np.concatenate(parts).astype(np.float32, copy=False)


def first_layers(shapes: Sequence[tuple[int, int]], seed: int) -> list[Floats]:
    """A classifier to begin with: uniform in ±1/√inputs, as PyTorch draws linear layers."""
    digest = blake2b(f"{seed} server".encode(), digest_size=8).digest()
    random = np.random.default_rng(int.from_bytes(digest, "big"))
    layers = []
    for rows, columns in shapes:
        bound = 1 / np.sqrt(max(1, columns - 1))
        layers.append(random.uniform(-bound, bound, (rows, columns)).astype(np.float32))
    return layers
