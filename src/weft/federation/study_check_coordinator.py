"""Checking a study before it is trained: who holds what, and what a run would show, in counts.

The coordinator's half is the same in one process and over a network. It matches tokens as training
does, and asks for no sum. What leaves it are counts of groups of ``min_batch`` samples at least:
totals leave smaller groups out, so that no difference of two counts tells their sizes.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from weft.errors import ConfigError, DataError
from weft.federation.coordinator import announce_for
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.solver_by_holdings import mean_square, settle, settle_by_holdings
from weft.federation.study_check_messages import (
    CHECK_FILES,
    CHECK_VIEW,
    CheckedViewRequest,
)
from weft.guards.privacy_terms import OPEN, Terms
from weft.matching.build_holdings import Holding, build_holdings
from weft.matching.coordinator import name_similar, name_units, told_holdings
from weft.matching.holding_map import HoldingMap
from weft.matching.two_spellings import SimilarNames, TwoWritings
from weft.matching.unit_mismatches import OtherUnits, UnitTokens, check_units
from weft.privacy.ledger.expected_exposure import Outlook, outlook
from weft.privacy.ledger.expected_exposure_text import paragraphs
from weft.protocol import Channel, Nothing
from weft.solvers.algorithm_choice import (
    algorithm_of,
    check_cut,
    check_inference,
    resolve,
)
from weft.solvers.run_settings import Settings


@dataclass(frozen=True)
class StudyCheck:
    """What a check of a study found.

    Attributes
    ----------
    holdings
        Who holds what, without groups that are too small to be told of.
    hidden
        Holders and label holders of those groups.
    settings, reason
        Of the run that would be, and why its solver was chosen.
    notes
        Party to what it found in its files.
    doubts
        What parties write in two ways, in words for a submitter.
    refusals
        (party, sentence) for all that parties would refuse.
    """

    name: str
    holdings: HoldingMap
    hidden: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]
    settings: Settings
    reason: str
    look: Outlook
    classes: int | None
    notes: Mapping[str, tuple[str, ...]]
    doubts: tuple[str, ...]
    refusals: tuple[tuple[str, str], ...]

    def to_dict(self) -> dict[str, Any]:
        """All that a submitter is told, as plain values."""
        rows, columns = self.holdings.rows, self.holdings.columns
        least = self.look.terms.min_batch
        groups = [
            {"holders": self._names(rows.holders[c]), "labels": self._names(rows.marked[c]),
             "samples": int(size)}
            for c, size in enumerate(rows.sizes.tolist()) if size
        ]  # fmt: skip
        groups += [
            {"holders": list(holders), "labels": list(labels), "samples": f"<{least}"}
            for holders, labels in self.hidden
        ]
        return {
            "name": self.name,
            "solver": self.settings.solver,
            "reason": self.reason,
            "round_trips": None if self.look.trips is None else self.look.trips.sentence(),
            "classes": self.classes,
            "min_batch": least,
            "parties": [self._party(name) for name in self.holdings.parties],
            "groups": groups,
            "features": [
                {"holders": self._names(columns.holders[c]), "features": size}
                for c, size in self._columns()
            ],
            "left_out": self.holdings.small > 0,
            "notes": {party: list(said) for party, said in self.notes.items()},
            "doubts": list(self.doubts),
            "outlook": paragraphs(self.look, self.refusals),
            "refusals": [{"party": party, "sentence": said} for party, said in self.refusals],
        }

    def _names(self, numbers: Any) -> list[str]:
        return [self.holdings.parties[number] for number in numbers.tolist()]

    def _columns(self) -> list[tuple[int, int]]:
        """Column cohorts and their sizes, without the constant column."""
        columns, bias = self.holdings.columns, self.holdings.bias_slot
        return [
            (c, int(size))
            for c, size in enumerate(columns.sizes.tolist())
            if not columns.start[c] <= bias < columns.start[c + 1]
        ]

    def _party(self, name: str) -> dict[str, Any]:
        rows, columns = self.holdings.rows, self.holdings.columns
        number = self.holdings.index[name]
        marked = [c for c in rows.cohorts[number].tolist() if number in rows.marked[c]]
        return {
            "name": name,
            "samples": int(rows.sizes[rows.cohorts[number]].sum()),
            "features": sum(size for c, size in self._columns() if number in columns.holders[c]),
            "labels": int(rows.sizes[marked].sum()),
        }


def check_study(
    channel: Channel, preprocessing: Preprocessing, settings: Settings, run: bytes, name: str = ""
) -> StudyCheck:
    """Ask parties about a run that is not begun.

    Parameters
    ----------
    run
        Sixteen random bytes that name the check.
    name
        Of the study.
    """
    parties = channel.parties
    chosen, _ = resolve(settings)
    told = channel.ask(CHECK_FILES, dict.fromkeys(parties, Nothing())).insist("checking")
    shares = algorithm_of(chosen.solver).shares
    announced = announce_for(channel, preprocessing, settings, run, shares=shares)
    asked = settings
    settings, reason = settle(asked, announced.terms)
    doubts: list[DataError] = []
    held = told_holdings(
        channel,
        run=run,
        keys=announced.keys,
        classes=announced.agreed,
        matching=preprocessing.matching,
        holders=announced.holders,
        linked=settings.cipher != "plain",
    )
    holdings = _built(parties, held, preprocessing, settings, announced.terms, doubts)
    # A run leaves out some of the small groups, of which it is told here who holds them.
    everything = _built(parties, held, preprocessing, settings, OPEN, [])
    refusals: list[tuple[str, str]] = []
    least = announced.terms.min_batch
    shown, hidden = _large_groups(holdings, least), _small_groups(everything, least)
    try:
        settings, reason = settle_by_holdings(
            asked,
            (settings, reason),
            holdings,
            announced.classes,
            announced.terms,
            preprocessing,
            solvers=announced.solvers,
        )
        check_cut(settings, holdings)
        sites = preprocessing.reference_site is not None
        # A number of all samples would tell that of small groups.
        check_inference(settings, shown, announced.width, sites=sites)
    except ConfigError as error:
        refusals.append(("", error.told))
    square = mean_square(shown, preprocessing)
    objections, units = _objections(
        channel, holdings, preprocessing, settings, announced.width, square
    )
    refusals += objections
    if "units" not in preprocessing.confirmed:
        try:
            check_units(units, holdings.shared_features)
        except OtherUnits as doubt:
            doubts.append(doubt)
    _tell_owners(channel, doubts)
    look = outlook(
        shown,
        settings,
        announced.terms,
        classes=announced.width,
        mean_square=square,
        unit_rows=preprocessing.unit_rows,
    )
    return StudyCheck(
        name=name,
        holdings=shown,
        hidden=hidden,
        settings=settings,
        reason=reason,
        look=_of_large_groups(look),
        classes=None if announced.classes is None else len(announced.classes),
        notes={party: tuple(reply.notes.tolist()) for party, reply in told.items()},
        doubts=tuple(_in_words(doubt, least) for doubt in doubts),
        refusals=tuple(refusals),
    )


def _built(
    parties: Sequence[str],
    held: Sequence[Holding],
    preprocessing: Preprocessing,
    settings: Settings,
    terms: Terms,
    doubts: list[DataError],
) -> HoldingMap:
    """Who holds what in a run under some terms."""
    return build_holdings(
        parties,
        held,
        overlap=preprocessing.overlap,
        bias=preprocessing.intercept,
        confirm_separate_ids=preprocessing.confirm_separate_ids,
        sites=preprocessing.reference_site is not None,
        confirmed=preprocessing.confirmed,
        terms=terms,
        sealed=algorithm_of(settings.solver).shares,
        doubts=doubts,
    )


def _objections(
    channel: Channel,
    holdings: HoldingMap,
    preprocessing: Preprocessing,
    settings: Settings,
    classes: int,
    mean_square: float,
) -> tuple[list[tuple[str, str]], dict[str, UnitTokens | None]]:
    """What the parties would refuse, and tokens of their columns' sizes."""
    follows = algorithm_of(settings.solver).follows_draws(settings)
    views = {
        party: CheckedViewRequest(
            view=holdings.view(number, follow_draws=follows),
            settings=settings.to_json(),
            classes=classes,
            mean_square=mean_square,
            scales=preprocessing.scaling != "none",
            unit_rows=preprocessing.unit_rows,
            units="units" not in preprocessing.confirmed,
            bias_value=preprocessing.intercept_scaling if preprocessing.intercept else None,
        )
        for number, party in enumerate(channel.parties)
    }
    replies = channel.ask(CHECK_VIEW, views).insist("checking")
    found = [(p, said) for p, reply in replies.items() for said in reply.objections.tolist()]
    return found, {party: replies[party].units for party in channel.parties}


def _tell_owners(channel: Channel, doubts: Sequence[DataError]) -> None:
    """Let sites name columns in their own logs; what they are is not for the coordinator."""
    for doubt in doubts:
        if isinstance(doubt, SimilarNames):
            name_similar(channel, doubt)
        if isinstance(doubt, OtherUnits):
            name_units(channel, doubt)


def _in_words(doubt: DataError, least: int) -> str:
    """For a submitter, who may know who holds groups of ``least`` samples, and columns."""
    if isinstance(doubt, TwoWritings):
        return doubt.in_a_check(least)
    if isinstance(doubt, OtherUnits):
        return doubt.in_a_check
    return doubt.told


def _large_groups(holdings: HoldingMap, least: int) -> HoldingMap:
    """The holdings in which groups of fewer samples are empty."""
    rows = holdings.rows
    kept = np.where(rows.sizes < least, 0, rows.sizes)
    start = np.concatenate([[0], np.cumsum(kept)])
    return replace(holdings, rows=replace(rows, start=start))


def _small_groups(
    holdings: HoldingMap, least: int
) -> tuple[tuple[tuple[str, ...], tuple[str, ...]], ...]:
    """Who holds groups of fewer samples, and who has their labels."""
    rows = holdings.rows

    def named(numbers: Any) -> tuple[str, ...]:
        return tuple(holdings.parties[number] for number in numbers.tolist())

    small = np.flatnonzero(rows.sizes < least).tolist()
    return tuple((named(rows.holders[c]), named(rows.marked[c])) for c in small)


def _of_large_groups(look: Outlook) -> Outlook:
    """An outlook without what is about small groups alone."""
    return replace(
        look,
        left_out=None,
        # Ledgers are the parties' own, by which each has said what it would refuse.
        has_ledger=True,
        exposures=tuple(one for one in look.exposures if one.view.samples),
        pairs=tuple(pair for pair in look.pairs if pair[2]),
    )
