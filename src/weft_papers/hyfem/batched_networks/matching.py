"""Algorithm 3 of the 2024 text where the classifiers are: one hidden layer, all parties present.

The same selections as `weft_neural.neuron_matching` finds, up to rounding; only costs of neurons
that want the same row leave the device.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch

from weft.array_types import Ints
from weft_neural.neuron_matching.assignment import NEW, assign
from weft_neural.neuron_matching.rematch_each_party_in_turn import numbered
from weft_neural.neuron_matching.settings import Matching


@dataclass
class Server:
    """The server's classifier.

    Attributes
    ----------
    layers
        (rows, inputs and bias) and (classes, rows and bias).
    rows
        Of each party, the server's row of every neuron.
    """

    layers: tuple[torch.Tensor, torch.Tensor]
    rows: list[Ints]

    def copy_for(self, party: int, columns: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Π_m w_0; columns are the server's of the party's inputs, and of the bias."""
        first, second = self.layers
        own = torch.from_numpy(self.rows[party]).to(first.device)
        at = torch.cat([own, own.new_tensor([second.shape[1] - 1])])
        return first[own][:, columns], second[:, at]


class Matcher:
    """Matches classifiers round by round.

    Parameters
    ----------
    columns
        Of each party, the server's columns of its inputs, and that of the bias, which is the last.
    weights
        p_m.
    """

    def __init__(
        self, columns: Sequence[torch.Tensor], weights: Sequence[float], settings: Matching
    ) -> None:
        if settings.cost != "weighted":
            raise ValueError('parties that run together are matched by cost = "weighted"')
        self._columns, self._weights, self._settings = columns, weights, settings
        width = 1 + max(int(own.max()) for own in columns)
        device = columns[0].device
        self._holds = torch.zeros(len(columns), width, device=device)
        for party, own in enumerate(columns):
            self._holds[party, own] = 1
        self._shares = torch.tensor(list(weights), device=device)

    def match(
        self,
        layers: Sequence[tuple[torch.Tensor, torch.Tensor]],
        before: Sequence[Ints],
        random: np.random.Generator,
    ) -> Server:
        """The server's classifier from those of all parties, which had these rows before."""
        rows = [own.copy() for own in before]
        if not self._settings.fixed:
            self._sweep(layers, rows, random)
        used = np.unique(np.concatenate(rows))
        found = [np.searchsorted(used, own) for own in rows]
        return Server(self._averaged(layers, found, len(used)), found)

    def _sweep(
        self,
        layers: Sequence[tuple[torch.Tensor, torch.Tensor]],
        rows: list[Ints],
        random: np.random.Generator,
    ) -> None:
        neurons = []
        for party, (first, _) in enumerate(layers):
            wide = first.new_zeros(len(first), self._holds.shape[1])
            wide[:, self._columns[party]] = first
            neurons.append(wide)
        penalty = self._penalty(layers)
        # The procedure draws an order of newcomers first, of whom there are none here.
        random.permutation(len(layers))
        for _ in range(self._settings.sweeps):
            changed = False
            for party in random.permutation(len(layers)).tolist():
                found = self._rows_of(party, neurons, rows, penalty)
                changed |= not np.array_equal(found, rows[party])
                rows[party] = found
            if not changed:
                break

    def _rows_of(
        self, party: int, neurons: Sequence[torch.Tensor], rows: Sequence[Ints], penalty: float
    ) -> Ints:
        others = [other for other in range(len(rows)) if other != party]
        existing = np.unique(np.concatenate([rows[other] for other in others]))
        costs = self._costs(party, neurons, rows, existing)
        count = len(neurons[party])
        free = count
        if self._settings.most is not None:
            widest = max(map(len, neurons))
            free = min(free, max(0, int(self._settings.most * widest) - len(existing)))
        return numbered(_assigned(costs, penalty, free), existing, rows[party])

    def _costs(
        self,
        party: int,
        neurons: Sequence[torch.Tensor],
        rows: Sequence[Ints],
        existing: Ints,
    ) -> torch.Tensor:
        """Σ_c pW/(p + W) (x_jc − mean_ic)² for neuron j and row i."""
        own = self._columns[party]
        device = own.device
        sums = torch.zeros(len(existing), len(own), device=device)
        users = torch.zeros(len(existing), len(rows), device=device)
        for other in range(len(rows)):
            if other == party:
                continue
            at = torch.from_numpy(np.searchsorted(existing, rows[other])).to(device)
            sums.index_add_(0, at, neurons[other][:, own], alpha=self._weights[other])
            users[at, other] = self._weights[other]
        totals = users @ self._holds[:, own]
        weight = self._weights[party]
        x = neurons[party][:, own]
        centre = x.mean(dim=0)
        x = x - centre
        mean = torch.where(totals > 0, sums / totals - centre, 0.0)
        factors = weight * totals / (weight + totals)
        pulls = factors * mean
        costs = x.square() @ factors.T - 2 * (x @ pulls.T) + (pulls * mean).sum(dim=1)
        return costs.clamp_(min=0)

    def _penalty(self, layers: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> float:
        """As `weft_neural.neuron_matching.rematch_each_party_in_turn` takes it."""
        if self._settings.penalty != "auto":
            return self._settings.penalty
        holders = self._holds.sum(dim=0)
        total, count = self._holds.new_zeros(()), 0
        for party, (first, _) in enumerate(layers):
            sizes = first.square().sum(dim=0)
            compared = holders[self._columns[party]] > 1
            compared[-1] = True
            total += 2 * self._weights[party] * sizes[compared].sum()
            count += len(first)
        return float(total) / count

    def _averaged(
        self, layers: Sequence[tuple[torch.Tensor, torch.Tensor]], rows: Sequence[Ints], size: int
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Every entry is the weighted mean over the parties that have it."""
        device, width = self._holds.device, self._holds.shape[1]
        first = torch.zeros(size, width, device=device)
        second = torch.zeros(len(layers[0][1]), size + 1, device=device)
        users = torch.zeros(size + 1, len(rows), device=device)
        users[size] = self._shares
        for party, (low, high) in enumerate(layers):
            at = torch.from_numpy(rows[party]).to(device)
            share = self._weights[party]
            users[at, party] = share
            wide = low.new_zeros(len(low), width)
            wide[:, self._columns[party]] = low
            first.index_add_(0, at, wide, alpha=share)
            after = torch.cat([at, at.new_tensor([size])])
            second.index_add_(1, after, high, alpha=share)
        totals = users[:size] @ self._holds
        first = torch.where(totals > 0, first / totals, 0.0)
        return first, second / users.sum(dim=1)


def _assigned(costs: torch.Tensor, penalty: float, free: int) -> Ints:
    """The row of every neuron, or ``NEW``, with the least sum of costs."""
    least, best = costs.min(dim=1)
    found = torch.where(least < penalty, best, NEW).cpu().numpy()
    taken = found[found != NEW]
    if len(np.unique(taken)) == len(taken) and len(found) - len(taken) <= free:
        return np.asarray(found, np.int64)
    table = costs.cpu().numpy()
    openings = np.full(len(table), penalty, dtype=table.dtype)
    return assign(table, openings, np.zeros(free, dtype=table.dtype))
