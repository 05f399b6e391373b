"""Means over parties at their selections: the server's layers, and a layer without one party."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft_neural.neuron_matching import matched_layer_kernels
from weft_neural.neuron_matching.classifier_arrays import Classifier, Floats, with_bias
from weft_neural.neuron_matching.costs import Others
from weft_neural.neuron_matching.threaded_row_passes import by_rows

Rows = dict[str, list[Ints]]


def columns_of(party: Classifier, layer: int, rows: Rows, bias: int) -> Ints:
    """The server's columns of a party's layer, the bias last."""
    return with_bias(rows[party.name][layer - 1] if layer else party.inputs, bias)


def others_of(
    party: Classifier,
    layer: int,
    rows: Rows,
    parties: Sequence[Classifier],
    weights: Mapping[str, float],
) -> Others | None:
    """The layer as the other parties make it, on the party's columns; None where it is alone."""
    others = [other for other in parties if other is not party and other.name in rows]
    if not others:
        return None
    known = [columns_of(one, layer, rows, -1)[:-1] for one in (*others, party)]
    bias = max((int(columns.max()) + 1 for columns in known if len(columns)), default=0)
    place = np.full(bias + 1, -1, dtype=np.int64)
    place[with_bias(known[-1], bias)] = np.arange(len(known[-1]) + 1)
    found = [place[with_bias(columns, bias)] for columns in known[:-1]]
    holders = np.zeros((len(others), len(known[-1]) + 1), dtype=bool)
    for holder, at in zip(holders, found, strict=True):
        holder[at[at >= 0]] = True
    order, starts = _grouped(holders)
    rank = np.empty_like(order)
    rank[order] = np.arange(len(order))

    used = [rows[other.name][layer] for other in others]
    existing = np.unique(np.concatenate(used))
    dtype = party.layers[layer].dtype
    sums = np.zeros((len(existing), len(order)), dtype=dtype)
    users = np.zeros((len(existing), len(others)))
    shares = np.array([weights[other.name] for other in others])
    for number, (other, own, at) in enumerate(zip(others, used, found, strict=True)):
        row = np.searchsorted(existing, own)
        users[row, number] = 1
        common = np.flatnonzero(at >= 0)
        share = dtype.type(shares[number])
        _scatter(sums, row, rank[at[common]], other.layers[layer], common, share)
    totals = (users * shares) @ holders[:, order[starts[:-1]]]
    return Others(
        rows=existing,
        order=order,
        starts=starts,
        weights=totals.astype(dtype),
        sums=sums,
        users=users.sum(axis=1).astype(np.int64),
    )


def _scatter(out: Floats, rows: Ints, to: Ints, values: Floats, at: Ints, weight: Any) -> None:
    """As the kernel does: no two neurons of a party have the same row."""

    def some(part: slice) -> None:
        matched_layer_kernels.scatter(out, rows[part], to, values[part], at, weight)

    by_rows(len(rows), len(to), some)


def _grouped(holders: NDArray[np.bool_]) -> tuple[Ints, Ints]:
    """An order of the columns in which those with the same holders are neighbours, and where
    each such group begins, and the end.
    """
    _, pattern = np.unique(np.packbits(holders, axis=0), axis=1, return_inverse=True)
    order = np.argsort(pattern, kind="stable")
    starts = np.flatnonzero(np.diff(pattern[order], prepend=-1, append=-1))
    return order, starts


def averaged(
    parties: Sequence[Classifier], rows: Rows, sizes: Sequence[int], n_inputs: int
) -> list[Floats]:
    """Line 9 of Algorithm 3: every entry is the weighted mean over the parties that have it.

    Entries that only parties have that are away keep the value that these parties were given;
    entries that no party has are 0.
    """
    first = parties[0].layers
    here = [party for party in parties if not party.away]
    shapes = zip([*sizes, len(first[-1])], [n_inputs, *sizes], strict=True)
    layers = []
    for layer, (height, width) in enumerate(shapes):
        dtype = first[layer].dtype
        sums = np.zeros((height, width + 1), dtype=dtype)
        users, holders = np.zeros((height, len(here))), np.zeros((len(here), width + 1))
        for number, party in enumerate(here):
            down, across = _entries(party, layer, rows, width)
            users[down, number], holders[number, across] = party.weight, 1
            values, all_of_it = party.layers[layer], np.arange(len(across))
            _scatter(sums, down, across, values, all_of_it, dtype.type(party.weight))
        weights = (users @ holders).astype(dtype)
        kept = np.zeros_like(sums)
        for party in parties:
            if party.away:
                matched_layer_kernels.place(
                    kept, *_entries(party, layer, rows, width), party.layers[layer]
                )
        layers.append(np.divide(sums, weights, out=kept, where=weights > 0))
    return layers


def objective(parties: Sequence[Classifier], layers: Sequence[Floats], rows: Rows) -> list[float]:
    """By layer Σ_m p_m ‖w_m − Π w_0 Πᵀ‖² over the parties of this round, from the differences."""
    sums = [0.0] * len(layers)
    for party in parties:
        if party.away:
            continue
        for number, layer in enumerate(layers):
            at = _entries(party, number, rows, layer.shape[1] - 1)
            sums[number] += party.weight * matched_layer_kernels.gap(
                layer, *at, party.layers[number]
            )
    return sums


def _entries(party: Classifier, layer: int, rows: Rows, bias: int) -> tuple[Ints, Ints]:
    """The server's rows and columns of a party's layer."""
    own = rows[party.name]
    height = own[layer] if layer < len(own) else np.arange(len(party.layers[layer]))
    return height, columns_of(party, layer, rows, bias)
