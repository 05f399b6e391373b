"""What a party's ledger says: sums opened and shown, per sample, and who took part in which run.

Samples stand in it under keyed hashes of their ids, so that runs over other cohorts still add up;
the key lies in the same file and never leaves it.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from secrets import token_bytes
from typing import Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.secret_bytes import Secret
from weft.guards.min_batch_across_runs import Change
from weft.matching.id_and_name_forms import normal_features, normal_ids
from weft.matching.tokens import tokens_of
from weft.privacy.ledger.earlier_column_rules import RuleMemory
from weft.privacy.ledger.earlier_histogram_edges import EdgeMemory
from weft.privacy.ledger.earlier_samples import Attendance, Memory
from weft.privacy.ledger.earlier_score_buckets import ScoreMemory
from weft.privacy.ledger.earlier_scoring_partners import CompanyMemory
from weft.privacy.ledger.earlier_sealed_models_and_moments import (
    NUMBER_KINDS,
    NumberKind,
    NumberMemory,
)
from weft.privacy.ledger.fold_cuts_of_earlier_runs import FoldCut, FoldMemory

Hashes = NDArray[np.uint64]

Kind = Literal["train", "predict", "describe"]

_KEY_BYTES = 32
#: What is counted of every sample.
COUNTS = ("received", "shown", "foreign", "fewest")


class Cohort(msgspec.Struct, frozen=True, kw_only=True):
    """Samples of one run that the same parties hold.

    Attributes
    ----------
    foreign
        Columns of theirs that only other parties have.
    fewest
        The fewest columns that another holder of them lacks; zero: they all have all columns.
    received, shown
        Sums about one of these samples, at most.
    """

    samples: int
    holders: int
    foreign: int
    fewest: int
    received: int
    shown: int


class Question(msgspec.Struct, frozen=True, kw_only=True):
    """What a joint prediction showed others of a party's samples.

    Attributes
    ----------
    asker
        Who read the scores; empty: every holder of a sample.
    samples, scores
        How many samples were asked about, and how many numbers were told of them.
    company
        All parties of the prediction, in their order; empty: they are not remembered.
    """

    asker: str
    samples: int
    scores: int
    company: tuple[str, ...] = ()


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run in a party's journal.

    ``ended`` is None while the run is under way; of one that was killed, more sums stand in the
    ledger than there were, never fewer. ``exposed`` counts the samples in feature sums that others
    saw. ``epsilon`` and ``delta`` are those of the noise in its model; zero: it released none.
    ``rho`` is what its feature sums with noise told. ``moments`` names the matrices over all
    columns that went out with its model, ``numbers`` counts what they told of each column, and
    ``weights`` what a sealed model told of a sample, at most.
    ``told`` names weights and offsets that label holders were told, of ``told_samples`` samples.
    ``question`` is what a joint prediction showed others.
    """

    id: str
    began: str
    ended: str | None
    kind: Kind
    federation: str
    solver: str
    cohorts: tuple[Cohort, ...]
    exposed: int
    epsilon: float = 0.0
    delta: float = 0.0
    rho: float = 0.0
    moments: tuple[str, ...] = ()
    numbers: int = 0
    weights: int = 0
    told: tuple[str, ...] = ()
    told_samples: int = 0
    question: Question | None = None

    @property
    def received(self) -> int:
        """Sums about one sample that this party opened, at most."""
        return max((cohort.received for cohort in self.cohorts), default=0)

    @property
    def shown(self) -> int:
        """Sums about one sample that others could open, with this party's products in them."""
        return max((cohort.shown for cohort in self.cohorts), default=0)


@dataclass
class LedgerContents:
    """What a party's file holds.

    Attributes
    ----------
    sample
        Keyed hashes of ids, ascending.
    received, shown
        Sums about each sample that this party opened, and that others could open.
    foreign, fewest
        The fewest columns that were ever foreign to this party, or to another holder; zero:
        none were.
    attended, versions, roles
        Who took part in the last runs that showed feature sums: samples by their ids; by their
        ids, cells and labels, since a corrected sample shows like one that comes and one that
        goes; and by their ids and what this party counts of them.
    folds
        How folds have cut the samples of the last runs that had any.
    scored
        In which buckets scores of samples were counted.
    numbers
        How much sealed models, and second moments, have told of each sample.
    companies
        With whom joint predictions have scored each sample.
    rules
        By which rules columns of samples became numbers.
    edges
        Where columns were cut to be described.
    """

    key: bytes
    sample: Hashes
    received: Ints
    shown: Ints
    foreign: Ints
    fewest: Ints
    runs: list[Run] = field(default_factory=list)
    attended: Memory = field(default_factory=Memory.new)
    versions: Memory = field(default_factory=Memory.new)
    folds: FoldMemory = field(default_factory=FoldMemory.new)
    numbers: dict[NumberKind, NumberMemory] = field(
        default_factory=lambda: {kind: NumberMemory.new() for kind in NUMBER_KINDS}
    )
    scored: ScoreMemory = field(default_factory=ScoreMemory.new)
    companies: CompanyMemory = field(default_factory=CompanyMemory.new)
    rules: RuleMemory = field(default_factory=RuleMemory.new)
    edges: EdgeMemory = field(default_factory=EdgeMemory.new)
    roles: Memory = field(default_factory=Memory.new)

    @classmethod
    def new(cls) -> LedgerContents:
        """No sample yet, and a key of its own."""
        received, shown, foreign, fewest = (np.zeros(0, np.int64) for _ in COUNTS)
        nobody = np.zeros(0, np.uint64)
        return cls(token_bytes(_KEY_BYTES), nobody, received, shown, foreign, fewest)

    def hashes(self, ids: NDArray[np.object_]) -> Hashes:
        """Under what samples stand in this file."""
        names = (name.encode() for name in normal_ids(ids).tolist())
        return tokens_of(names, Secret(self.key), "ledger")

    def add(
        self, samples: Hashes, received: Ints, shown: Ints, foreign: Ints, fewest: Ints
    ) -> None:
        """Book sums about samples, which come in any order, but once each."""
        place = self._places(samples)
        self.received[place] += received
        self.shown[place] += shown
        self.foreign[place] = _smaller(self.foreign[place], foreign)
        self.fewest[place] = _smaller(self.fewest[place], fewest)

    def note(self, run: Run) -> None:
        """Write a run into the journal, in the place of an earlier note on it."""
        self.runs = [run if known.id == run.id else known for known in self.runs]
        if run not in self.runs:
            self.runs.append(run)

    def spent(self, without: str = "") -> tuple[float, float]:
        """ε and δ of all models with noise, added up; but for one run."""
        runs = [run for run in self.runs if run.id != without]
        return sum(run.epsilon for run in runs), sum(run.delta for run in runs)

    def columns_told(self, without: str = "") -> set[str]:
        """Weights and offsets that all runs told cell by cell; but for one run."""
        return {name for run in self.runs if run.id != without for name in run.told}

    def rho_spent(self, without: str = "") -> float:
        """ρ of all feature sums with noise, added up; but for one run."""
        return sum(run.rho for run in self.runs if run.id != without)

    def questions(self, without: str = "") -> list[Question]:
        """What all joint predictions showed others; but for one run."""
        return [r.question for r in self.runs if r.question is not None and r.id != without]

    def company_hashes(self, companies: Sequence[bytes]) -> Hashes:
        """Under what companies of samples stand in this file."""
        return tokens_of(companies, Secret(self.key), "ledger companies")

    def remember(self, who: Attendance, began: str) -> None:
        """Take down who takes part in a run, before others see feature sums of it."""
        samples = self.hashes(who.ids)
        self.attended.remember(samples, who.places, began)
        self.versions.remember(self._version(samples, who.contents), who.places, began)
        self.roles.remember(self._version(samples, who.roles), who.places, began)
        plain = []
        for _, column, rule in self._rules_of(who):
            if rule is None:
                plain.append(column)
            else:
                self.rules.add(samples, column, rule)
        self.rules.add_plain(np.array(plain, np.uint64))

    def change(self, who: Attendance, at_least: int) -> Change | None:
        """Samples that runs would show in groups of fewer than ``at_least``, with this one."""
        samples = self.hashes(who.ids)
        ruled = self._ruled_otherwise(samples, who)
        if ruled:
            return Change(0, 0, 0, self.attended.runs[-1], ruled)
        found = self.attended.set_apart(samples, who.places, at_least)
        if found is not None:
            since, came, went = found
            return Change(len(came), len(went), 0, since)
        found = self.versions.set_apart(self._version(samples, who.contents), who.places, at_least)
        if found is not None:
            since, came, went = found
            return Change(0, 0, max(len(came), len(went)), since)
        found = self.roles.set_apart(self._version(samples, who.roles), who.places, at_least)
        if found is not None:
            since, came, went = found
            return Change(0, 0, 0, since, moved=max(len(came), len(went)))
        return None

    def _ruled_otherwise(self, samples: Hashes, who: Attendance) -> tuple[str, ...]:
        """Columns that earlier runs over some of these samples had by another rule."""
        if not self.attended.runs:
            return ()
        known = bool(np.isin(samples, self.attended.sample).any())
        return tuple(
            name
            for name, column, rule in self._rules_of(who)
            if self.rules.differs(samples, column, rule, known=known)
        )

    def _rules_of(self, who: Attendance) -> Iterator[tuple[str, int, int | None]]:
        """Every column with hashes of its name and its rule; None: it has none."""
        names = list(who.rules)
        columns = self.column_hashes(names)
        rules = tokens_of(who.rules.values(), Secret(self.key), "ledger rules")
        for name, column, rule in zip(names, columns.tolist(), rules.tolist(), strict=True):
            yield name, column, rule if who.rules[name] else None

    def column_hashes(self, names: Sequence[str]) -> Hashes:
        """Under what columns stand in this file."""
        forms = normal_features(np.array(names, dtype=object)).tolist()
        return tokens_of((form.encode() for form in forms), Secret(self.key), "ledger columns")

    def remember_folds(self, cut: FoldCut, began: str) -> None:
        """Take down the folds of a run, before others see feature sums of it."""
        self.folds.remember(self.hashes(cut.ids), cut.places, began)

    def cut_apart(self, cut: FoldCut, at_least: int) -> int:
        """How many samples folds would put into parts of fewer, with those of earlier runs."""
        return self.folds.cut_apart(self.hashes(cut.ids), cut, at_least)

    def numbers_told(self, kind: NumberKind, who: Attendance, rows: int) -> Ints:
        """Per local row of a view that has so many, how many numbers about it went out."""
        found = np.zeros(rows, np.int64)
        found[who.rows] = self.numbers[kind].of(self.hashes(who.ids))
        return found

    def add_numbers(self, kind: NumberKind, who: Attendance, by_row: Ints) -> None:
        """Take down that so many more go out, by local rows."""
        self.numbers[kind].add(self.hashes(who.ids), by_row[who.rows])

    def _version(self, samples: Hashes, more: Hashes) -> Hashes:
        """Under what samples stand with what they bring, or what this party counts of them."""
        pairs = np.stack([samples, more], axis=1)
        return tokens_of((pair.tobytes() for pair in pairs), Secret(self.key), "ledger versions")

    def of(self, samples: Hashes) -> tuple[Ints, Ints]:
        """What was received and shown of samples; zero of unknown ones."""
        place = np.searchsorted(self.sample, samples)
        known = np.zeros(len(samples), bool)
        inside = place < len(self.sample)
        known[inside] = self.sample[place[inside]] == samples[inside]
        received, shown = (np.zeros(len(samples), np.int64) for _ in range(2))
        received[known] = self.received[place[known]]
        shown[known] = self.shown[place[known]]
        return received, shown

    def _places(self, samples: Hashes) -> Ints:
        """Where samples stand, after new ones have got a place."""
        new = np.setdiff1d(samples, self.sample)
        if len(new):
            everybody = np.concatenate([self.sample, new])
            order = np.argsort(everybody, kind="stable")
            self.sample = everybody[order]
            for name in COUNTS:
                counts = np.concatenate([getattr(self, name), np.zeros(len(new), np.int64)])
                setattr(self, name, counts[order])
        return np.searchsorted(self.sample, samples).astype(np.int64)


def _smaller(one: Ints, other: Ints) -> Ints:
    """The smaller of two numbers of columns, of which zero means none at all."""
    return np.where(one == 0, other, np.where(other == 0, one, np.minimum(one, other)))
