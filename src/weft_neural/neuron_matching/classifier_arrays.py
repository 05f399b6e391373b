"""Classifiers as lists of arrays, and how a party's lies in the server's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import DataError

Floats = NDArray[np.floating[Any]]


@dataclass(frozen=True)
class Matched:
    """The server's classifier, and where the neurons of every party lie in it.

    Attributes
    ----------
    layers
        Layer l has shape (rows of l, rows of l − 1, and 1 for the bias, which is the last column).
    rows
        By party and hidden layer, the server's row of every neuron: the selections Π_m.
    objective
        By layer Σ_m p_m ‖w_m − Π w_0 Πᵀ‖² over the parties of this round.
    """

    layers: list[Floats]
    rows: dict[str, list[Ints]]
    objective: list[float]


@dataclass(frozen=True)
class Classifier:
    """What one party has: its layers, the server's columns of its inputs, its weight.

    A party that is ``away`` has the copy that the server last gave it: others are matched with it,
    but it has no part in the new means.
    """

    name: str
    layers: list[Floats]
    inputs: Ints
    weight: float
    away: bool = False

    @property
    def widths(self) -> list[int]:
        """Neurons of every hidden layer."""
        return [len(layer) for layer in self.layers[:-1]]


def pruned(layers: Sequence[Floats], inputs: Ints, rows: Sequence[Ints]) -> list[Floats]:
    """Π_m w_0: the part of the server's classifier that lies at a party.

    Parameters
    ----------
    layers
        The server's.
    inputs
        The server's column of every input of the party, without the bias.
    rows
        The server's row of every neuron of the party, by hidden layer.
    """
    last = np.arange(len(layers[-1]), dtype=np.int64)
    columns = inputs
    parts = []
    for layer, chosen in zip(layers, [*rows, last], strict=True):
        parts.append(layer[np.ix_(chosen, with_bias(columns, layer.shape[1] - 1))])
        columns = chosen
    return parts


def with_bias(columns: Ints, bias: int) -> Ints:
    """The columns, and the bias's after them."""
    return np.append(columns, bias)


def checked(
    classifiers: Mapping[str, Sequence[Floats]],
    inputs: Mapping[str, Ints],
    n_inputs: int,
    weights: Mapping[str, float],
    previous: Matched | None,
) -> list[Classifier]:
    """All parties with what they have, those of this round first."""
    if not classifiers:
        raise DataError("no party gave a classifier; match at least one")
    parties = [
        _present(name, list(layers), _inputs(name, inputs, n_inputs), _weight(name, weights))
        for name, layers in classifiers.items()
    ]
    first = parties[0]
    for party in parties[1:]:
        _check_alike(party, first)
    if previous is None:
        return parties
    for party in parties:
        old = previous.rows.get(party.name)
        if old is not None and [len(rows) for rows in old] != party.widths:
            raise DataError(
                f"{party.name} has hidden layers of {party.widths} neurons, and had "
                f"{[len(rows) for rows in old]} in the round before; keep the widths in a run"
            )
    if [len(previous.layers), len(previous.layers[-1])] != [
        len(first.layers),
        len(first.layers[-1]),
    ]:
        raise DataError(
            f"{first.name} has {len(first.layers)} layers and {len(first.layers[-1])} outputs, the "
            f"server {len(previous.layers)} and {len(previous.layers[-1])}; give all the same"
        )
    for name, rows in previous.rows.items():
        if name not in classifiers:
            own = _inputs(name, inputs, n_inputs)
            kept = pruned(previous.layers, own, rows)
            parties.append(Classifier(name, kept, own, _weight(name, weights), away=True))
    return parties


def _inputs(name: str, inputs: Mapping[str, Ints], n_inputs: int) -> Ints:
    if name not in inputs:
        raise DataError(f"the inputs of {name} are missing; give those of every party of the run")
    own = np.asarray(inputs[name], dtype=np.int64)
    if len(np.unique(own)) < len(own) or (len(own) and not 0 <= own.min() <= own.max() < n_inputs):
        raise DataError(
            f"the inputs of {name} are not distinct columns among the server's {n_inputs}; give "
            "each of its columns one of the server's"
        )
    return own


def _weight(name: str, weights: Mapping[str, float]) -> float:
    weight = float(weights.get(name, 0.0))
    if not 0 < weight < np.inf:
        raise DataError(f"{name} weighs {weight:g}; give every party of the run a weight above 0")
    return weight


def _present(name: str, layers: list[Floats], inputs: Ints, weight: float) -> Classifier:
    columns = len(inputs)
    for number, layer in enumerate(layers, 1):
        if layer.ndim != 2 or layer.shape[1] != columns + 1 or not len(layer):
            raise DataError(
                f"layer {number} of {name} has shape {layer.shape}; give (neurons, {columns + 1}), "
                "the last column for the bias"
            )
        if not np.isfinite(layer).all():
            raise DataError(
                f"layer {number} of {name} has values that are not finite; train with a lower rate"
            )
        columns = len(layer)
    if not layers:
        raise DataError(f"{name} gave a classifier without layers; give at least one")
    return Classifier(name, layers, inputs, weight)


def _check_alike(party: Classifier, first: Classifier) -> None:
    mine = len(party.layers), len(party.layers[-1]), party.layers[0].dtype
    other = len(first.layers), len(first.layers[-1]), first.layers[0].dtype
    if mine != other:
        raise DataError(
            f"{party.name} has {mine[0]} layers, {mine[1]} outputs and type {mine[2]}, "
            f"{first.name} {other[0]}, {other[1]} and {other[2]}; give all the same"
        )
