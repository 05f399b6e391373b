"""The model that a run stands for, iteration by iteration, put together from what parties hold.

Nobody in a federation could do this: it reads the parties' own parts of the sums. It is for
experiments, where all tables are in one hand and P is wanted after any iteration, also while some
parties are away and no certificate can be had.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from weft.array_types import Floats, Ints
from weft.data.tile import Names
from weft.errors import ConfigError
from weft.federation.party import Party
from weft.matching.id_and_name_forms import normal_features
from weft.solvers.fedavg_fedprox_hyfem import FedavgParty
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.rounds.party import RoundParty


class Follower:
    """Reads w, in the order of a pooled table's columns, while a run goes on.

    Parameters
    ----------
    parties
        Of the run, when they have taken their seats.
    features
        Columns of the pooled table, without the constant one.
    bias
        Whether w has a last entry for the constant column.
    halves
        The parties' parts of the algorithm, in their order, where it does not run through their
        messages; None: the parties' own.
    """

    def __init__(
        self,
        parties: Mapping[str, Party],
        features: Names,
        *,
        bias: bool,
        halves: Sequence[Any] | None = None,
    ) -> None:
        self._halves: list[Any] = []
        self._columns: list[Ints] = []
        self._width = len(features) + bias
        index = pd.Index(normal_features(features))
        for number, party in enumerate(parties.values()):
            half: Any = party._half if halves is None else halves[number]
            if not isinstance(half, HyfdcaParty | RoundParty):
                raise ConfigError(
                    f"runs of solver '{half.settings.solver}' cannot be followed from outside; use "
                    "its certificates"
                )
            self._halves.append(half)
            self._columns.append(_columns_of(party, index, len(features)))

    def weights(self) -> Floats:
        """w as the totals stand now, also for columns whose holders are away."""
        if isinstance(self._halves[0], HyfdcaParty):
            return self._dual()
        return self._primal()

    def _dual(self) -> Floats:
        """w(α) = Σ_k X_kᵀα / λN, each party with the α that it knew when it was last there."""
        settings = self._halves[0].settings
        w = np.zeros((self._width, self._halves[0].w.shape[1]))
        for half, columns in zip(self._halves, self._columns, strict=True):
            w[columns] += half.v
        w /= settings.lam * self._halves[0].view.n_samples
        return w

    def _primal(self) -> Floats:
        """w as told by the newest holder of every column, and what its last holders added."""
        classes = self._halves[0].w.shape[1]
        newest = np.full(self._width, -1)
        for half, columns in zip(self._halves, self._columns, strict=True):
            newest[columns] = np.maximum(newest[columns], half.iteration)
        w = np.zeros((self._width, classes))
        added = np.zeros_like(w)
        for half, columns in zip(self._halves, self._columns, strict=True):
            current = newest[columns] == half.iteration
            w[columns[current]] = half.w[current]
            if isinstance(half, FedavgParty) and half.iteration > 0:
                shared = len(half.change)
                told = current[:shared]
                added[columns[:shared][told]] += half.change[told]
        return w + added


def _columns_of(party: Party, index: pd.Index[str], bias: int) -> Ints:
    """Pooled column of each local one."""
    view = party.view
    columns = np.full(view.n_columns, bias)
    for tile, places in zip(party.data.tiles, view.tile_columns, strict=True):
        columns[places] = index.get_indexer(pd.Index(normal_features(tile.features)))
    if (columns < 0).any():
        raise ConfigError(f"party {party.name} has a feature that the pooled table lacks")
    return columns
