"""Algorithm 3 of the 2024 text: one party after the other is taken out and matched again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from weft.array_types import Ints
from weft.errors import ConfigError
from weft_neural.neuron_matching import costs as pricing
from weft_neural.neuron_matching.assignment import NEW, assign
from weft_neural.neuron_matching.averaging import Rows, averaged, objective, others_of
from weft_neural.neuron_matching.classifier_arrays import Classifier, Floats, Matched, checked
from weft_neural.neuron_matching.settings import Matching
from weft_neural.neuron_matching.threaded_row_passes import few_blas_threads


def match_classifiers(
    classifiers: Mapping[str, Sequence[Floats]],
    inputs: Mapping[str, Ints],
    n_inputs: int,
    weights: Mapping[str, float],
    *,
    settings: Matching,
    previous: Matched | None = None,
    random: np.random.Generator,
) -> Matched:
    """The server's classifier from those of the parties.

    Parameters
    ----------
    classifiers
        By party of this round, its layers: (neurons, inputs and 1 for the bias, the last column).
    inputs
        By party, the server's column of each of its columns, without the bias.
    n_inputs
        How many columns the server has.
    weights
        By party p_m, above 0.
    previous
        What the round before gave. Its parties keep their rows until they are taken out. Those
        without a classifier now are away: they keep their rows, others are matched with the copy
        that they were given (``inputs`` and ``weights`` must name them too), and entries that
        nobody else has keep their value. Without it, parties are matched one after the other with
        what those before them built, the widest first.
    random
        Draws the order of the parties.
    """
    parties = checked(classifiers, inputs, n_inputs, weights, previous)
    if settings.fixed:
        rows = _fixed(parties)
    else:
        start = {} if previous is None else previous.rows
        known = {party.name for party in parties}
        rows = {name: list(own) for name, own in start.items() if name in known}
        with few_blas_threads():
            _Procedure(parties, rows, settings, n_inputs).run(random)
    sizes = _renumber(rows)
    layers = averaged(parties, rows, sizes, n_inputs)
    return Matched(layers=layers, rows=rows, objective=objective(parties, layers, rows))


def _fixed(parties: Sequence[Classifier]) -> Rows:
    """Neuron j of every party is row j."""
    first = parties[0]
    for party in parties:
        if party.widths != first.widths:
            raise ConfigError(
                f"{party.name} has hidden layers of {party.widths} neurons, {first.name} of "
                f"{first.widths}; give all the same widths, or set fixed = false"
            )
    return {party.name: [np.arange(n) for n in party.widths] for party in parties}


def _renumber(rows: Rows) -> list[int]:
    """Drop rows that no party uses; how many each hidden layer then has."""
    sizes = []
    for layer in range(len(next(iter(rows.values())))):
        used = np.unique(np.concatenate([own[layer] for own in rows.values()]))
        for own in rows.values():
            own[layer] = np.searchsorted(used, own[layer])
        sizes.append(len(used))
    return sizes


class _Procedure:
    """The selections while they are being found; rows keep their numbers until the end."""

    def __init__(
        self, parties: Sequence[Classifier], rows: Rows, settings: Matching, n_inputs: int
    ) -> None:
        self._parties, self._rows, self._settings = parties, rows, settings
        hidden = range(len(parties[0].widths))
        widest = [max(party.widths[layer] for party in parties) for layer in hidden]
        most = settings.most
        self._most = [None if most is None else int(most * width) for width in widest]
        self._weights = {party.name: party.weight for party in parties}
        if settings.cost == "pfnm":
            scale = len(parties) / sum(self._weights.values()) / settings.sigma**2
            self._weights = {name: weight * scale for name, weight in self._weights.items()}
        self._penalties = [self._penalty(layer, n_inputs) for layer in hidden]

    def run(self, random: np.random.Generator) -> None:
        here = [party for party in self._parties if not party.away]
        newcomers = [party for party in _shuffled(here, random) if party.name not in self._rows]
        # The widest first: fewer rows are then opened by parties that could have shared them.
        for party in sorted(newcomers, key=lambda party: -sum(party.widths)):
            self._match(party)
        for _ in range(self._settings.sweeps):
            changes = [self._match(party) for party in _shuffled(here, random)]
            if not any(changes):
                break

    def _match(self, party: Classifier) -> bool:
        """Match one party again, layer by layer; whether any of its rows changed."""
        before = self._rows.get(party.name)
        # Until a layer is matched again, its old rows are not used: layers are taken in order.
        own = [] if before is None else list(before)
        self._rows[party.name] = own
        for layer in range(len(party.widths)):
            found = self._rows_of(party, layer, before[layer] if before else None)
            own[layer : layer + 1] = [found]
        return before is None or any(
            not np.array_equal(old, new) for old, new in zip(before, own, strict=True)
        )

    def _rows_of(self, party: Classifier, layer: int, old: Ints | None) -> Ints:
        neurons = party.layers[layer]
        others = others_of(party, layer, self._rows, self._parties, self._weights)
        if others is None:
            return np.arange(len(neurons)) if old is None else old
        most = self._most[layer]
        free = len(neurons)
        if most is not None:
            free = min(free, max(0, most - len(others.rows)))
        settings, weight = self._settings, self._weights[party.name]
        if settings.cost == "pfnm":
            prior, count = settings.sigma0**-2, len(self._parties)
            table = pricing.pfnm_costs(neurons, weight, prior, count, others)
            openings = pricing.pfnm_openings(neurons, weight, prior)
            steps = pricing.pfnm_steps(free, settings.gamma, count)
        else:
            if settings.cost == "weighted":
                table = pricing.weighted_costs(neurons, weight, others)
            else:
                table = pricing.squared_costs(neurons, others)
            openings = np.full(len(neurons), self._penalties[layer], dtype=table.dtype)
            steps = np.zeros(free, dtype=table.dtype)
        return numbered(assign(table, openings, steps), others.rows, old)

    def _penalty(self, layer: int, n_inputs: int) -> float:
        """What a new row costs: as set, or from the size of all neurons."""
        if self._settings.penalty != "auto":
            return self._settings.penalty
        squared = self._settings.cost == "squared"
        holders = np.zeros(n_inputs, dtype=np.int64)
        for party in self._parties:
            holders[party.inputs] += 1
        total, count = 0.0, 0
        for party in self._parties:
            neurons = party.layers[layer]
            sizes = np.einsum("jc,jc->c", neurons, neurons)
            if layer == 0:  # only columns that others have can be compared
                sizes = sizes[np.append(holders[party.inputs] > 1, True)]
            size = float(sizes.sum(dtype=np.float64))
            # Unrelated neurons x and y are ‖x‖² + ‖y‖² apart: one that is less far shares a row.
            total += 2 * size if squared else 2 * party.weight * size
            count += len(neurons)
        return total / count


def _shuffled(parties: Sequence[Classifier], random: np.random.Generator) -> list[Classifier]:
    return [parties[number] for number in random.permutation(len(parties))]


def numbered(chosen: Ints, existing: Ints, old: Ints | None) -> Ints:
    """Numbers of the server's rows: a neuron that had a row of its own keeps its number."""
    new = chosen == NEW
    rows = np.where(new, NEW, existing[chosen])
    if old is not None:
        rows[new] = np.where(np.isin(old[new], existing), NEW, old[new])
    lacking = np.flatnonzero(rows == NEW)
    taken = np.concatenate((existing, rows))
    unused = np.setdiff1d(np.arange(taken.max() + 1 + len(lacking)), taken)
    rows[lacking] = unused[: len(lacking)]
    return rows
