"""Samples by two numbers, such as group and class: which have the same two, and how many."""

from __future__ import annotations

import numpy as np

from weft.array_types import Ints

#: Places of a table of counts, per number that is counted in it, beyond which sorting is cheaper.
_SPARSE = 8


def number_pairs(first: Ints, second: Ints) -> tuple[Ints, Ints]:
    """A number for each pair, from 0 on in the order of pairs, and how many have each number.

    By counting, since most samples are of few kinds: sorting takes ten times as long.
    """
    outer, inner = number_values(first)[0], number_values(second)[0]
    width = int(inner.max(initial=0)) + 1
    return number_values(outer * width + inner)


def number_values(values: Ints) -> tuple[Ints, Ints]:
    """A number for each value, from 0 on in the order of values, and how many have each number."""
    if not len(values):
        return np.zeros(0, np.int64), np.zeros(0, np.int64)
    least = int(values.min())
    span = int(values.max()) - least + 1
    if span > _SPARSE * len(values):
        _, number, counts = np.unique(values, return_inverse=True, return_counts=True)
        return number, counts
    places = values.astype(np.int64) - least
    counts = np.bincount(places, minlength=span)
    there = counts > 0
    return (np.cumsum(there) - 1)[places], counts[there]
