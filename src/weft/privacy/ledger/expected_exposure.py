"""What a run would show to whom, before anything is sent: views, forecast and what was spent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

import msgspec
import numpy as np

from weft.array_types import Ints
from weft.errors import ConfigError
from weft.guards.min_batch_across_runs import Change
from weft.guards.privacy_terms import Terms
from weft.matching.holding_map import HoldingMap
from weft.privacy.ledger.foreign_columns_by_receiver import View, views_of
from weft.solvers.algorithm_choice import ALGORITHMS, algorithm_of, resolve
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.round_trip_forecast import TripForecast, forecast_trips
from weft.solvers.run_settings import Settings
from weft.solvers.sum_count_forecast import Forecast, forecast_rounds


def forecast(
    settings: Settings, *, classes: int, mean_square: float, unit_rows: bool = False
) -> Forecast:
    """What a run with these settings, whose solver is chosen, will take.

    Parameters
    ----------
    classes
        Problems side by side: one for two classes and for a response.
    mean_square
        1/N Σ ‖x_i‖² of the scaled table.
    unit_rows
        Whether norms of rows are summed for scaling, which takes a sum of its own.
    """
    algorithm = algorithm_of(settings.solver)
    if algorithm.forecast is not None:
        ahead = algorithm.forecast(settings, classes, mean_square)
    else:
        ahead = forecast_rounds(settings, classes, mean_square, algorithm.sample_sums or 0)
    return ahead.plus(int(unit_rows))


def alternatives(settings: Settings) -> list[tuple[str, Settings]]:
    """Other ways to train this model, and what to write in the config for them."""
    found: list[tuple[str, Settings]] = []

    def offer(what: str, **changes: object) -> None:
        try:
            changed, _ = resolve(msgspec.structs.replace(settings, **changes))
        except ConfigError:
            return
        found.append((what, changed))

    for solver, algorithm in ALGORITHMS.items():
        if solver == settings.solver:
            continue
        if algorithm.shares:
            offer('mode = "sealed" in [privacy]', solver=solver, mode="sealed")
        elif algorithm.ours:
            # What only serves comparison is no advice.
            offer(f'name = "{solver}" in [solver]', solver=solver, mode="sums")
    if settings.folds:
        # Without folds nothing chooses among several values of λ.
        offer("one lambda and no folds", path=(), folds=0, evaluation=EvaluationSettings())
    if settings.folds > 2:
        offer("folds = 2", folds=2)
    if len(settings.lambdas) > 2:
        largest = (settings.lambdas[0],)
        offer("two values of lambda", path=largest)
    if settings.gap is not None and settings.gap < 1e-1:
        wider = min(10 * settings.gap, 1e-1)
        offer(f"gap = {wider:g}", gap=wider)
    return found


#: Whether as many sums have been seen as columns are foreign: already, by the forecast, by what
#: forecasts err, by the limits of the run, or not at all.
Standing = Literal["reached before", "likely", "close", "possible", "not reached"]
#: Forecasts are right to within this factor.
ERROR = 3


def share_explained(sums: int, columns: int) -> tuple[float, float]:
    """Which share of the variance of foreign columns so many sums explain, least and most.

    Sums are linear functions of the columns. Of columns that have nothing in common and vary alike,
    k of d functions explain k/d. Columns of real tables are correlated: their principal variances
    fall about as 1, 1/2, 1/3, …, of which the k functions that tell most explain H_k/H_d, with the
    harmonic numbers H. Columns that are copies of each other are known after one sum.
    """
    seen = min(sums, columns)
    if not seen:
        return 0.0, 0.0
    falling = 1.0 / np.arange(1, columns + 1)
    return seen / columns, float(falling[:seen].sum() / falling.sum())


def sums_too_many(columns: Ints, most: float) -> Ints:
    """Per number of foreign columns, the fewest sums that explain more than the share ``most``.

    Where nothing less is asked for, these are as many as there are columns; zero for no columns.
    """
    found = columns.copy()
    for count in np.unique(columns[columns > 0]).tolist() if most < 1 else []:
        shares = (k for k in range(1, count + 1) if share_explained(k, count)[1] > most)
        found[columns == count] = next(shares)
    return found


@dataclass(frozen=True)
class Exposure:
    """A view, and how many sums it will have.

    Attributes
    ----------
    spent
        Sums that the receiver got in earlier runs, according to its ledger.
    likely, most
        Sums of this run; None: nothing limits them.
    """

    view: View
    spent: int
    likely: int
    most: int | None

    @property
    def standing(self) -> Standing:
        columns = self.view.columns
        if self.spent >= columns:
            return "reached before"
        if self.spent + self.likely >= columns:
            return "likely"
        if self.most is not None and self.spent + self.most < columns:
            return "not reached"
        return "close" if self.spent + ERROR * self.likely >= columns else "possible"

    @property
    def likely_reached(self) -> bool:
        """Whether a party that allows no exposure refuses the run before it begins."""
        return self.standing in ("reached before", "likely")

    @property
    def explained(self) -> tuple[float, float]:
        """Which share of the variance of the foreign columns the sums explain, least and most."""
        return share_explained(self.spent + self.likely, self.view.columns)

    @property
    def reached(self) -> bool:
        """Whether the foreign columns must count as known after this run."""
        return self.standing in ("reached before", "likely", "close")


@dataclass(frozen=True)
class Way:
    """A way to train, and what it would take.

    ``enough`` has those who would get as many sums as they lack columns, of some samples at
    least, and ``perhaps`` those who would if the forecast is too low.
    """

    what: str
    solver: str
    likely: int
    enough: tuple[str, ...]
    perhaps: tuple[str, ...]

    @classmethod
    def of(cls, what: str, solver: str, ahead: Forecast, found: Sequence[Exposure]) -> Way:
        """Who is reached, in which way."""
        sure = dict.fromkeys(e.view.receiver for e in found if e.reached and e.standing != "close")
        close = dict.fromkeys(e.view.receiver for e in found if e.standing == "close")
        perhaps = tuple(party for party in close if party not in sure)
        return cls(what, solver, ahead.likely, tuple(sure), perhaps)


@dataclass(frozen=True)
class Outlook:
    """All that a run would show.

    Attributes
    ----------
    sealed
        Whether it trains on shares, so that nobody opens a sum over samples.
    trips
        Round trips that it would take; None: nobody knows.
    exposures
        Who gets sums over samples with columns that are foreign to it.
    pairs
        Two parties that hold samples as the only ones, their number, and which of the two get
        sums.
    left_out, rare, rare_cells
        Samples in groups that are too small, samples whose class too few of their group have, and
        cells of columns in which too few samples of a group differ. The first is None where nobody
        may be told, nor counts any of them.
    learners
        Party to the number of its samples whose labels it has not, but will learn.
    shared_columns
        Number of holders to the number of columns that have so many.
    crossed
        Samples of which a party could compute cells that it does not hold, because it has the
        sample and, elsewhere, the feature.
    label_holders
        Parties with labels, whose losses the coordinator gets as a sum.
    groups
        Groups of samples that the same parties hold: the coordinator knows all their sizes.
    free_intercept, counts_classes
        Whether the coordinator learns the intercept, which has no penalty, and how many samples
        each class has.
    second_moments
        Matrices over all columns that whoever gets the model gets besides.
    released
        Problems whose finished weights everybody knows who gets the model.
    ways
        What the run would take as planned, and in other ways.
    changes
        Party to those of its samples that differences between runs would show.
    """

    parties: tuple[str, ...]
    solver: str
    sealed: bool
    terms: Terms
    coordinator_sees: str
    free_intercept: bool
    counts_classes: bool
    samples: int
    left_out: int | None
    rare: int
    rare_cells: int
    forecast: Forecast
    trips: TripForecast | None
    exposures: tuple[Exposure, ...]
    pairs: tuple[tuple[str, str, int, tuple[str, ...]], ...]
    learners: dict[str, int]
    shared_columns: dict[int, int]
    crossed: int
    label_holders: tuple[str, ...]
    groups: int
    second_moments: tuple[str, ...]
    released: int
    ways: tuple[Way, ...]
    changes: dict[str, Change]
    has_ledger: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return {
            "terms": {name: getattr(self.terms, name) for name in self.terms.__struct_fields__},
            "sealed": self.sealed,
            "coordinator_sees": self.coordinator_sees,
            "free_intercept": self.free_intercept,
            "counts_classes": self.counts_classes,
            "left_out_by_min_batch": self.left_out,
            "rare_classes_left_out": self.rare,
            "rare_cells_left_out": self.rare_cells,
            "forecast": asdict(self.forecast),
            "round_trips": None if self.trips is None else asdict(self.trips),
            "exposures": [
                {
                    **{k: v for k, v in asdict(exposure.view).items() if k != "cohorts"},
                    "about": list(exposure.view.about),
                    "cohorts": list(exposure.view.cohorts),
                    "spent": exposure.spent,
                    "likely": exposure.likely,
                    "most": exposure.most,
                    "standing": exposure.standing,
                    "variance_explained": list(exposure.explained),
                }
                for exposure in self.exposures
            ],
            "pairs": [
                {"parties": [one, other], "samples": samples, "receivers": list(receivers)}
                for one, other, samples, receivers in self.pairs
            ],
            "learn_labels": self.learners,
            "columns_by_holders": {str(k): v for k, v in self.shared_columns.items()},
            "coordinator": {
                "groups": self.groups,
                "losses_of": list(self.label_holders),
            },
            "second_moments": list(self.second_moments),
            "ways": [asdict(way) for way in self.ways],
            "small_changes": {party: asdict(change) for party, change in self.changes.items()},
            "ledger": self.has_ledger,
        }


def outlook(
    holdings: HoldingMap,
    settings: Settings,
    terms: Terms,
    *,
    classes: int,
    mean_square: float,
    unit_rows: bool = False,
    spent: Mapping[str, Ints] | None = None,
    changes: Mapping[str, Change] | None = None,
) -> Outlook:
    """Look ahead at a run.

    Parameters
    ----------
    settings
        With the solver that was chosen.
    terms
        What the parties agreed on.
    classes, mean_square, unit_rows
        See :func:`weft.privacy.ledger.expected_exposure.forecast`.
    spent
        Party to the sums that it has received of each of its shared cohorts; None: there is no
        ledger.
    changes
        Party to those of its samples that differences between runs would show, by its ledger.
    """

    def ahead(of: Settings) -> Forecast:
        return forecast(of, classes=classes, mean_square=mean_square, unit_rows=unit_rows)

    views, now = views_of(holdings), ahead(settings)
    sealed = algorithm_of(settings.solver).shares
    exposures = _exposures(holdings, views, now, spent or {})
    ways = [Way.of(f"as planned ({settings.solver})", settings.solver, now, exposures)]
    for what, changed in alternatives(settings):
        other = ahead(changed)
        found = _exposures(holdings, views, other, spent or {})
        ways.append(Way.of(what, changed.solver, other, found))
    return Outlook(
        parties=holdings.parties,
        solver=settings.solver,
        sealed=sealed,
        terms=terms,
        coordinator_sees=settings.coordinator_sees,
        free_intercept=settings.frees_intercept(holdings.bias_slot >= 0),
        counts_classes=settings.class_weight == "balanced",
        samples=holdings.n_samples,
        left_out=holdings.small,
        rare=holdings.rare,
        rare_cells=holdings.rare_cells,
        forecast=now,
        trips=forecast_trips(
            settings, holdings.parties, mean_square, labelled=not _learners(holdings)
        ),
        exposures=exposures,
        pairs=() if sealed else _pairs(holdings, now),
        learners={} if sealed else _learners(holdings),
        shared_columns=_shared_columns(holdings),
        crossed=0 if sealed else int(holdings.rows.sizes[holdings.crossed].sum()),
        label_holders=tuple(p for p in holdings.parties if p in holdings.label_parties),
        groups=len(holdings.rows.sizes),
        second_moments=settings.second_moments,
        released=classes,
        ways=tuple(ways),
        changes=dict(changes or {}),
        has_ledger=spent is not None,
    )


def _exposures(
    holdings: HoldingMap, views: Sequence[View], ahead: Forecast, spent: Mapping[str, Ints]
) -> tuple[Exposure, ...]:
    found = []
    for view in views:
        likely, most = ahead.of(view.labelled)
        before = _spent_on(holdings, view, spent)
        if likely or most != 0 or before:
            found.append(Exposure(view, before, likely, most))
    return tuple(found)


def _spent_on(holdings: HoldingMap, view: View, spent: Mapping[str, Ints]) -> int:
    """What the receiver's ledger says of these samples."""
    if view.receiver not in spent:
        return 0
    mine = holdings.rows.cohorts[holdings.index[view.receiver]]
    return int(spent[view.receiver][np.searchsorted(mine, view.cohorts)].max(initial=0))


def _pairs(
    holdings: HoldingMap, ahead: Forecast
) -> tuple[tuple[str, str, int, tuple[str, ...]], ...]:
    """Who shares samples with one other party only."""
    rows = holdings.rows
    found: dict[tuple[str, str, tuple[str, ...]], int] = {}
    for cohort in np.flatnonzero(rows.holders.lengths == 2).tolist():
        one, other = (holdings.parties[k] for k in rows.holders[cohort].tolist())
        marked = {holdings.parties[k] for k in rows.marked[cohort].tolist()}
        receivers = tuple(p for p in (one, other) if p in marked or ahead.others)
        key = (one, other, receivers)
        found[key] = found.get(key, 0) + int(rows.sizes[cohort])
    return tuple((one, other, n, receivers) for (one, other, receivers), n in found.items())


def _learners(holdings: HoldingMap) -> dict[str, int]:
    rows, found = holdings.rows, dict.fromkeys(holdings.parties, 0)
    for cohort in np.flatnonzero(rows.holders.lengths > rows.marked.lengths).tolist():
        for holder in np.setdiff1d(rows.holders[cohort], rows.marked[cohort]).tolist():
            found[holdings.parties[holder]] += int(rows.sizes[cohort])
    return {party: count for party, count in found.items() if count}


def _shared_columns(holdings: HoldingMap) -> dict[int, int]:
    """How many columns have how many holders, where they have several; the constant one aside."""
    columns, found = holdings.columns, dict[int, int]()
    for cohort in np.flatnonzero(columns.shared_cohort).tolist():
        size = int(columns.sizes[cohort])
        if columns.start[cohort] <= holdings.bias_slot < columns.start[cohort + 1]:
            size -= 1
        if size:
            holders = int(columns.holders.lengths[cohort])
            found[holders] = found.get(holders, 0) + size
    return dict(sorted(found.items()))
