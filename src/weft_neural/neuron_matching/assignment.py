"""The cheapest way to give every neuron a row of its own, existing or new."""

from __future__ import annotations

import numpy as np
from scipy.sparse import coo_array

from weft.array_types import Ints
from weft_neural.neuron_matching.classifier_arrays import Floats

NEW = -1


def assign(costs: Floats, openings: Floats, steps: Floats) -> Ints:
    """The row of every neuron, or ``NEW``, with the least sum of costs.

    Parameters
    ----------
    costs
        (neurons, existing rows).
    openings, steps
        Neuron j in the s-th new row costs openings[j] + steps[s]; there are as many new rows as
        ``steps``, and together with the existing ones they are enough.
    """
    if len(steps) and not np.ptp(steps):
        # Without a bound on new rows the problem falls apart, and is often solved at a glance. Its
        # solution is one of the bounded problem where it keeps to the bound.
        chosen = _assign_freely(costs, openings + steps[0])
        if np.count_nonzero(chosen == NEW) <= len(steps):
            return chosen
    # It takes a fifth of a second to load, in every process that only reads settings.
    from scipy.optimize import linear_sum_assignment

    table = np.hstack((costs, np.add.outer(openings, steps).astype(costs.dtype)))
    _, chosen = linear_sum_assignment(table)
    chosen[chosen >= costs.shape[1]] = NEW
    return chosen.astype(np.int64)


def _assign_freely(costs: Floats, openings: Floats) -> Ints:
    """The same where every neuron may have a new row.

    Only pairs that cost less than a new row matter. Neurons and rows that no chain of such pairs
    connects do not compete, so that each connected part is solved alone: a part with one neuron
    takes its minimum. Where all minima are in different rows, they are the solution.
    """
    neurons, rows = costs.shape
    best: Ints = costs.argmin(axis=1)
    best[costs[np.arange(neurons), best] >= openings] = NEW
    if np.bincount(best + 1, minlength=2)[1:].max() <= 1:
        return best
    from scipy.optimize import linear_sum_assignment
    from scipy.sparse.csgraph import connected_components

    chosen = np.full(neurons, NEW, dtype=np.int64)
    one, other = np.nonzero(costs < openings[:, None])
    graph = coo_array(
        (np.ones(len(one), dtype=bool), (one, neurons + other)), shape=(neurons + rows,) * 2
    )
    _, part = connected_components(graph, directed=False)
    at, part_of_row = part[:neurons], part[neurons:]
    candidates = np.flatnonzero(np.bincount(one, minlength=neurons))
    sizes = np.bincount(at[candidates], minlength=part.max() + 1)
    alone = candidates[sizes[at[candidates]] == 1]
    chosen[alone] = best[alone]
    for crowd in np.flatnonzero(sizes > 1):
        members, choices = np.flatnonzero(at == crowd), np.flatnonzero(part_of_row == crowd)
        block = np.minimum(costs[np.ix_(members, choices)], openings[members, None])
        lacking = max(0, len(members) - len(choices))
        table = np.hstack((block, np.repeat(openings[members, None], lacking, axis=1)))
        who, where = linear_sum_assignment(table.astype(costs.dtype))
        taken = where < len(choices)
        who, where = who[taken], where[taken]
        cheaper = block[who, where] < openings[members[who]]
        chosen[members[who[cheaper]]] = choices[where[cheaper]]
    return chosen
