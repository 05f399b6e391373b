"""Describing a study's columns before it is trained: counts, means, spreads and distributions.

The coordinator's half is the same in one process and over a network. It matches tokens as training
does, and reads sums over all holders of a column, in which every sample is counted by one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
import numpy as np

from weft.array_types import Floats, Ints
from weft.crypto import Adder
from weft.errors import ConfigError
from weft.federation.coordinator import announce_for, match
from weft.federation.descriptive_statistics_messages import (
    DESCRIBE_CENTRES,
    DESCRIBE_COUNTS,
    DESCRIBE_MIDDLE,
    DESCRIBE_NAMES,
    DESCRIBE_SIZES,
    DESCRIBE_SPREADS,
    RESPONSE,
    SPREADS,
    CentresRequest,
    DistributionRequest,
    NamesReply,
    NamesRequest,
    SpreadRequest,
)
from weft.federation.histogram_bars_and_quantiles import QUANTILES, Distribution
from weft.federation.leave_out_rare_classes_and_columns import leave_out_rare
from weft.federation.participation_terms_and_classes.coordinator import Announced
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.solver_by_holdings import settle
from weft.guards.cells_safe_to_describe import ColumnLine
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel
from weft.solvers.algorithm_choice import algorithm_of, resolve
from weft.solvers.run_settings import Settings
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.scalar_sums import add_scalars

#: A spread is at least this part of the size of its column: less is rounding.
_LEAST_SPREAD = 2.0**-36
#: Name of a response among columns.
RESPONSE_NAME = "(response)"


def described_as(preprocessing: Preprocessing) -> Preprocessing:
    """How tables become one to be described: blank cells stay blank, every cell counts once.

    The rest is as in training, so that the same samples are left out.
    """
    if preprocessing.overlap == "sum":
        raise ConfigError(
            "cells that are additive shares (overlap = 'sum') mean nothing by themselves; "
            "describe the table before it is dealt out"
        )
    return msgspec.structs.replace(
        preprocessing,
        reference_site=None,
        overlap="first",
        missing="mean",
        scaling="none",
        unit_rows=False,
    )


@dataclass(frozen=True)
class Description:
    """What a description found, as plain values.

    Attributes
    ----------
    columns
        Name, holders, cells, blank cells, mean, standard deviation, quantiles and bars of each.
    categories
        Name, holders, and how many have which level, of declared categories and bins.
    outcome
        The same of labels, in all and by site.
    untold
        Per holders, of how many columns their terms tell nothing.
    """

    name: str
    parties: tuple[str, ...]
    samples: int
    min_batch: int
    columns: list[dict[str, Any]]
    categories: list[dict[str, Any]]
    outcome: dict[str, Any]
    untold: list[dict[str, Any]]

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "parties": list(self.parties),
            "samples": self.samples,
            "min_batch": self.min_batch,
            "columns": self.columns,
            "categories": self.categories,
            "outcome": self.outcome,
            "untold": self.untold,
        }


def describe_study(
    channel: Channel, preprocessing: Preprocessing, settings: Settings, run: bytes, name: str = ""
) -> Description:
    """Ask parties to describe their columns.

    Parameters
    ----------
    preprocessing
        As `described_as` gives it.
    settings
        Of the study: its loss says whether labels are classes, its cipher what hides sums.
    run
        Sixteen random bytes that name the description.
    """
    adder = Adder(settings.cipher)
    shares = algorithm_of(resolve(settings)[0].solver).shares
    announced = announce_for(channel, preprocessing, settings, run, shares=shares)
    settings, _ = settle(settings, announced.terms)
    # With other samples than those that are trained on, the difference would tell of a few.
    holdings = match(channel, preprocessing, settings, announced, run, adder)
    holdings = leave_out_rare(channel, holdings, adder)
    totals = _Asking(channel, adder, holdings, announced).totals()
    return _described(totals, holdings, announced, name)


@dataclass(frozen=True, eq=False)
class _Totals:
    """What parties told in all; a response is the last column."""

    replies: Mapping[str, NamesReply]
    centres: Floats
    units: Floats
    lengths: Floats
    sums: Floats
    counts: Floats
    outcomes: Floats


class _Asking:
    """The phases, one after the other."""

    def __init__(
        self, channel: Channel, adder: Adder, holdings: HoldingMap, announced: Announced
    ) -> None:
        self._channel, self._adder, self._holdings = channel, adder, holdings
        self._classes = announced.classes
        self._width = holdings.n_features + (announced.classes is None)

    def totals(self) -> _Totals:
        channel, adder, width = self._channel, self._adder, self._width
        sizes = np.asarray(self._holdings.columns.sizes, np.int64)
        asked = NamesRequest(round=adder.advance(), sizes=sizes)
        replies = channel.ask(DESCRIBE_NAMES, self._all(asked)).insist("describing")
        size = _usable(units_above(channel, adder, DESCRIBE_SIZES, width))
        told = channel.ask(
            DESCRIBE_CENTRES, self._all(CentresRequest(round=adder.advance(), units=size))
        ).insist("describing")
        sums = self._added(told, "sums", (width, 3))
        centres = sums[:, 2] / np.maximum(sums[:, 0], 1.0) * size
        middle = SpreadRequest(round=adder.advance(), centres=centres)
        channel.ask(DESCRIBE_MIDDLE, self._all(middle)).insist("describing")
        far, near = units_above(channel, adder, DESCRIBE_SPREADS, 2 * width).reshape(2, width)
        units = np.maximum(far, size * _LEAST_SPREAD)
        lengths = np.maximum(near, size * _LEAST_SPREAD)
        question = DistributionRequest(round=adder.advance(), units=units, lengths=lengths)
        answered = channel.ask(DESCRIBE_COUNTS, self._all(question)).insist("describing")
        intervals = len(ColumnLine(0.0, 1.0).line.start)
        counts = self._added(answered, "counts", (width, SPREADS + intervals))
        parties = len(channel.parties)
        shape = (parties, RESPONSE)
        if self._classes is not None:
            shape = (1 + parties, len(self._classes) + 1)
        outcomes = self._added(answered, "outcomes", shape)
        return _Totals(replies, centres, units, lengths, sums, counts, outcomes)

    def _all(self, message: Any) -> dict[str, Any]:
        return dict.fromkeys(self._channel.parties, message)

    def _added(self, replies: Mapping[str, Any], field: str, shape: tuple[int, int]) -> Floats:
        totals = add_scalars(replies, field, shape[0] * shape[1], replies)
        assert totals is not None
        return np.array(totals).reshape(shape)


def _usable(units: Floats) -> Floats:
    """Units that can be divided by; of a column of zeros alone, one."""
    return np.where((units > 1e-290) & (units < 1e290), units, 1.0)


def _described(
    totals: _Totals, holdings: HoldingMap, announced: Announced, name: str
) -> Description:
    names, origins, untold = _names(totals.replies, holdings)
    columns, levels = [], dict[tuple[str, int], list[int]]()
    cohort = np.repeat(np.arange(len(holdings.columns.sizes)), holdings.columns.sizes)
    for place, called in names.items():
        if origins[place]:
            levels.setdefault((origins[place], int(cohort[place])), []).append(place)
        else:
            columns.append(_column(totals, place, called, _holders(holdings, int(cohort[place]))))
    categories = [
        _category(totals, places, origin, names, _holders(holdings, at))
        for (origin, at), places in levels.items()
    ]
    return Description(
        name=name,
        parties=tuple(holdings.parties),
        samples=holdings.n_samples,
        min_batch=announced.terms.min_batch,
        columns=sorted(columns, key=lambda one: str(one["name"])),
        categories=sorted(categories, key=lambda one: str(one["name"])),
        outcome=_outcome(totals, holdings, announced),
        untold=untold,
    )


def _holders(holdings: HoldingMap, cohort: int) -> list[str]:
    return [holdings.parties[number] for number in holdings.columns.holders[cohort].tolist()]


def _names(
    replies: Mapping[str, NamesReply], holdings: HoldingMap
) -> tuple[dict[int, str], dict[int, str], list[dict[str, Any]]]:
    """Column to its name and its declared column, and of how many columns nothing is told."""
    names, origins = dict[int, str](), dict[int, str]()
    for number, party in enumerate(holdings.parties):
        reply, places = replies[party], _places(holdings, number)
        if len(reply.names) != len(places) or len(reply.origins) != len(places):
            raise ConfigError(f"party {party} named other columns than its own; stop this run")
        for place, called, origin in zip(
            places.tolist(), reply.names.tolist(), reply.origins.tolist(), strict=True
        ):
            if called:
                names.setdefault(place, called)
                origins.setdefault(place, origin)
    start, untold = holdings.columns.start, []
    for cohort in range(len(holdings.columns.sizes)):
        own = set(range(int(start[cohort]), int(start[cohort + 1]))) - {holdings.bias_slot}
        lacking = len(own - set(names))
        if lacking:
            untold.append({"holders": _holders(holdings, cohort), "columns": lacking})
    return dict(sorted(names.items())), origins, untold


def _places(holdings: HoldingMap, party: int) -> Ints:
    """Where the columns of a party are among all, in the order of its slots."""
    columns = holdings.columns
    parts = [
        np.arange(columns.start[cohort], columns.start[cohort + 1])
        for cohort in columns.cohorts[party].tolist()
    ]
    return np.concatenate([np.zeros(0, np.int64), *parts])


def _column(totals: _Totals, place: int, name: str, holders: Sequence[str]) -> dict[str, Any]:
    cells, blank = (round(float(n)) for n in totals.sums[place, :2])
    found = {"name": name, "holders": list(holders), "cells": cells, "missing": blank}
    if not cells:
        return {**found, "mean": None, "sd": None, "quantiles": {}, "histogram": None}
    mean, sd = _moments(cells, totals.counts[place], totals.centres[place], totals.units[place])
    line = ColumnLine.around(float(totals.centres[place]), float(totals.lengths[place]))
    counted = Distribution(line, np.round(totals.counts[place, SPREADS:]))
    return {
        **found,
        "mean": mean,
        "sd": sd,
        "quantiles": {f"{share:g}": counted.quantile(share) for share in QUANTILES},
        "histogram": counted.bars(),
    }


def _moments(cells: int, sums: Floats, centre: float, unit: float) -> tuple[float, float | None]:
    """Mean and standard deviation (with n − 1), from sums of deviations."""
    first, second = sums[0] / cells, sums[1] / cells
    mean = float(centre + first * unit)
    if cells < 2:
        return mean, None
    variance = max(float(second - first**2), 0.0) * cells / (cells - 1)
    return mean, float(np.sqrt(variance) * unit)


def _category(
    totals: _Totals,
    places: Sequence[int],
    origin: str,
    names: Mapping[int, str],
    holders: Sequence[str],
) -> dict[str, Any]:
    """How many have which level, and how many another one, or one that few have."""
    cells, blank = (round(float(n)) for n in totals.sums[places[0], :2])
    levels = {}
    for place in places:
        sums, unit = totals.counts[place], totals.units[place]
        held = cells * totals.centres[place] + sums[0] * unit
        levels[names[place].removeprefix(f"{origin}=")] = round(float(held))
    return {
        "name": origin,
        "holders": list(holders),
        "cells": cells,
        "missing": blank,
        "levels": levels,
        "other": cells - sum(levels.values()),
    }


def _outcome(totals: _Totals, holdings: HoldingMap, announced: Announced) -> dict[str, Any]:
    """Labels in all, and by site where the site tells its own."""
    told = [p for p in holdings.parties if totals.replies[p].tells_site]
    index = holdings.index
    if announced.classes is None:
        response = _column(
            totals, holdings.n_features, RESPONSE_NAME, sorted(holdings.label_parties)
        )
        sites = {}
        for party in told:
            count, *sums = totals.outcomes[index[party]]
            if round(count):
                mean, sd = _moments(
                    round(count), np.array(sums), totals.centres[-1], totals.units[-1]
                )
                sites[party] = {"cells": round(count), "mean": mean, "sd": sd}
        return {"response": response, "sites": sites}
    names = [str(value) for value in announced.classes.tolist()]

    def counted(row: Floats) -> dict[str, Any]:
        counts = [round(float(n)) for n in row]
        return {"classes": dict(zip(names, counts[:-1], strict=True)), "unsaid": counts[-1]}

    sites = {party: counted(totals.outcomes[1 + index[party]]) for party in told}
    return {**counted(totals.outcomes[0]), "sites": sites}
