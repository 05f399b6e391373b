"""One run for each algorithm, on the same tiles, and what the judge says of the models."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import msgspec
import numpy as np

from weft.array_types import Floats
from weft.crypto.keys import PartyKeys
from weft.data.columns.column_agreement import settled_together
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError, WeftError
from weft.federation.local_federation import Federation, Trained
from weft.federation.preprocessing_settings import Preprocessing
from weft.matching.class_labels import common_classes
from weft.privacy.agreement import Consent
from weft.solvers.algorithm_choice import ALGORITHMS, resolve
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record
from weft_evaluation.choose_compared_algorithms import ALONE, CENTRAL, Entry
from weft_evaluation.pooled_table_in_training_units import (
    PooledTable,
    Tiles,
    Units,
    hold_out,
    pooled,
    trained_on,
)
from weft_evaluation.reference_optimum import (
    Optimum,
    Problem,
    sample_scores,
    score,
    solve,
    weights_of,
)

#: Parties that train alone, at most: with hundreds, some tell as much as all.
_MOST_ALONE = 50
#: Name of the party that gets the pooled table, where an algorithm wants it whole.
_EVERYTHING = "everything"


@dataclass
class Outcome:
    """How one algorithm, or a baseline, fared.

    Attributes
    ----------
    kind
        ``federated``; ``pooled``: an algorithm with all tables at one party; ``baseline``.
    history
        The iterations, also those of a run that failed.
    primal
        P of the model on the pooled table, by the judge; None where there is no model.
    gap
        What the run itself has certified; None: nothing.
    train, test
        Accuracy, or R² and RMSE, on the samples trained on and on those held out.
    by_sample
        What it scores on each of those held out, else of those trained on, as `sample_scores` has
        it; None: there is no one model.
    failure
        Why there is no model, in a sentence; empty: there is one.
    phases
        What each phase of its messages cost.
    """

    name: str
    kind: Literal["federated", "pooled", "baseline"]
    settings: Settings | None = None
    history: list[Record] = field(default_factory=list)
    primal: float | None = None
    gap: float | None = None
    train: dict[str, float] = field(default_factory=dict)
    test: dict[str, float] = field(default_factory=dict)
    by_sample: Floats | None = None
    iterations: int = 0
    round_trips: int = 0
    bytes: int = 0
    compute_seconds: float = 0.0
    stopped: str = ""
    failure: str = ""
    notes: list[str] = field(default_factory=list)
    phases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def modelled_seconds(self, latency: float) -> float:
        """The slowest party's computing, and so much for every round trip."""
        return self.compute_seconds + latency * self.round_trips


class Arena:
    """Tables in one hand: federations of them, the pooled table, and its optimum.

    Parameters
    ----------
    tiles, preprocessing, settings
        As for a `Federation`.
    consents
        What each party takes part in.
    keys
        The parties' keys; None: made for every run.
    test_share
        Share of the samples that all parties hold out; None: none.

    Attributes
    ----------
    roster
        Who holds what.
    train, test
        The pooled samples that are trained on, and those held out.
    alone_scores
        What each party that `alone` tried reaches, on those held out where there are any.
    """

    def __init__(
        self,
        tiles: Tiles,
        preprocessing: Preprocessing,
        settings: Settings,
        *,
        consents: Mapping[str, Consent],
        keys: Mapping[str, PartyKeys] | None = None,
        test_share: float | None = None,
    ) -> None:
        if preprocessing.sample_columns.named or settings.class_weight is not None:
            raise ConfigError(
                "methods are compared on samples that weigh the same, without an offset; leave "
                "offset, exposure, weight and class_weight out"
            )
        if not settings.penalize_intercept:
            raise ConfigError(
                "methods are compared with an intercept that is penalised, as most of them can do "
                "nothing else; set penalize_intercept = true in [model]"
            )
        least = {name: consents[name].terms.min_batch for name in tiles}
        self._tiles = settled_together(tiles, least, preprocessing.missing)
        self._preparation = preprocessing
        self._consents, self._keys = consents, keys
        self._settings = settings
        out: dict[str, tuple[Tile, ...]] | None = None
        if test_share is not None:
            self._preparation = self._with_classes()
            self._tiles, out = hold_out(self._tiles, test_share, settings.seed)
        federation = self._federation()
        _, self.holdings, _, classes = federation.assemble(resolve(settings)[0])
        units = Units.of(federation.parties.values(), classes, preprocessing.overlap)
        self._seated = trained_on(self._tiles, federation.parties)
        self.train = pooled(self._seated, units, weigh=settings.weigh)
        self.test = None if out is None else pooled(out, units)
        self._check(settings)
        self._few = _some(self._seated, self.holdings.n_samples, settings.seed)
        self.problem = Problem.of(self.train, settings.make_loss(), settings.lam)
        self.alone_scores: dict[str, dict[str, float]] = {}

    @cached_property
    def optimum(self) -> Optimum:
        """What the judge finds on the pooled table; it takes its time."""
        return solve(self.problem)

    def _with_classes(self) -> Preprocessing:
        """Classes of all samples: one of them might be held out as a whole."""
        labels = [
            tile.labels[tile.labelled]
            for held in self._tiles.values()
            for tile in held
            if tile.labels is not None
        ]
        known = self._preparation.classes is not None or not labels
        if known or self._settings.make_loss().task == "regression":
            return self._preparation
        return msgspec.structs.replace(self._preparation, classes=common_classes(labels).tolist())

    def _federation(self, tiles: Tiles | None = None) -> Federation:
        # Without a ledger: nobody is shown anything that is not in this one hand already.
        return Federation(
            tiles or self._tiles, self._preparation, keys=self._keys, consents=self._consents
        )

    def _check(self, settings: Settings) -> None:
        if settings.weigh == "parties" and self.holdings.rows.n_shared:
            raise ConfigError(
                "weigh = 'parties' is for samples that one party holds each, but here several "
                "share some; leave it out"
            )
        if self.train.n != self.holdings.n_samples:
            raise DataError(
                f"the judge pooled {self.train.n} samples, but the parties matched "
                f"{self.holdings.n_samples}; give a sample the same id and label everywhere"
            )

    def majority(self) -> float | None:
        """Accuracy of naming the class that most samples trained on have; None: a regression."""
        if self.train.units.classes is None:
            return None
        named = np.bincount(self.train.targets.astype(np.int64)).argmax()
        return float(((self.test or self.train).targets == named).mean())

    # ── algorithms ────────────────────────────────────────────────────────────────────────

    def run(
        self,
        entry: Entry,
        progress: Callable[[Record], None] | None = None,
        *,
        opened: Callable[[Federation], None] | None = None,
        warm_up: bool = True,
    ) -> Outcome:
        """One algorithm; what goes wrong becomes a sentence.

        Parameters
        ----------
        opened
            Gets the federation before it trains, to look at it meanwhile.
        warm_up
            Whether compiled loops are made first; not for one that has just run.
        """
        whole = ALGORITHMS[entry.name].cut == "whole" and len(self.holdings.parties) > 1
        outcome = Outcome(entry.name, "pooled" if whole else "federated", entry.settings)
        if entry.settings is None:
            outcome.failure = entry.refusal
            return outcome

        def watch(record: Record) -> None:
            outcome.history.append(record)
            if progress is not None:
                progress(record)

        try:
            # A method that diverges need not also warn.
            with np.errstate(all="ignore"):
                if warm_up:
                    self._warm_up(entry.settings, whole=whole)
                trained = self._train(entry.settings, watch, opened, whole=whole)
                self._judge(outcome, trained)
        except WeftError as error:
            outcome.failure = str(error)
        except (ArithmeticError, np.linalg.LinAlgError) as error:
            outcome.failure = f"'{entry.name}' diverged ({error})"
        self._count(outcome)
        return outcome

    def _warm_up(self, settings: Settings, *, whole: bool) -> None:
        """A few samples first: compiled loops are made or loaded now, and not timed."""
        short = msgspec.structs.replace(
            settings,
            iterations=2,
            gap=None,
            round_trips=None,
            seconds=None,
            participation="everyone",
            # A cipher that is not compiled is slow.
            cipher="pad" if settings.cipher == "paillier" else settings.cipher,
        )
        # What goes wrong here goes wrong again, and is told then.
        with suppress(WeftError, ArithmeticError, np.linalg.LinAlgError):
            if whole:
                few = self.train.to_tile().rows(slice(0, 50))
                Federation({_EVERYTHING: (few,)}, Preprocessing(intercept=True)).train(short)
            else:
                self._federation(self._few).train(short)

    def _train(
        self,
        settings: Settings,
        watch: Callable[[Record], None],
        opened: Callable[[Federation], None] | None,
        *,
        whole: bool,
    ) -> Trained:
        federation = self._pooled_alone() if whole else self._federation()
        if whole and settings.latency is not None:
            settings = msgspec.structs.replace(settings, latency=0.0)
        if opened is not None:
            opened(federation)
        return federation.train(settings, progress=watch)

    def _pooled_alone(self) -> Federation:
        """One party with the pooled table."""
        units = self.train.units
        how = Preprocessing(
            intercept=units.bias is not None,
            intercept_scaling=units.bias or 1.0,
            classes=None if units.classes is None else list(range(len(units.classes))),
        )
        return Federation({_EVERYTHING: (self.train.to_tile(),)}, how)

    def _judge(self, outcome: Outcome, trained: Trained) -> None:
        result = trained.result
        outcome.history = result.history
        outcome.settings, outcome.stopped = trained.settings, result.stopped
        outcome.notes, outcome.phases = result.notes, trained.meter.to_dict()
        outcome.gap = None if result.certificate is None else result.certificate.gap
        self._measure(outcome, weights_of(trained.model, self.train))

    def _measure(self, outcome: Outcome, w: Floats) -> None:
        primal = self.problem.primal(w)
        if not math.isfinite(primal):
            outcome.failure = f"'{outcome.name}' diverged: the loss of its model is not finite"
            return
        outcome.primal = primal
        outcome.train = score(self.train, w)
        held_out = None if self.test is None else self._aligned(self.test)
        outcome.test = {} if held_out is None else score(held_out, w)
        outcome.by_sample = sample_scores(held_out or self.train, w)

    def _aligned(self, table: PooledTable) -> PooledTable:
        return table.of_features(self.train.features)

    def _count(self, outcome: Outcome) -> None:
        """What a run has cost; where all is at one party, nothing travels."""
        if not outcome.history:
            return
        last = outcome.history[-1]
        outcome.iterations = last.iteration
        outcome.compute_seconds = last.compute_seconds
        if outcome.kind == "federated":
            outcome.round_trips = last.round_trips
            outcome.bytes = last.bytes_down + last.bytes_up

    # ── baselines ─────────────────────────────────────────────────────────────────────────

    def central(self) -> Outcome:
        """The judge itself, on the pooled table."""
        outcome = Outcome(CENTRAL, "baseline", stopped=self.optimum.how)
        outcome.compute_seconds = self.optimum.seconds
        self._measure(outcome, self.optimum.w)
        return outcome

    def alone(self) -> list[Outcome]:
        """Every party with what it has, solved by the judge: the best of them, and their mean."""
        found = []
        for name, held in list(self._seated.items())[:_MOST_ALONE]:
            if not any(tile.labelled.any() for tile in held):
                continue
            outcome = Outcome(f"{ALONE}, best ({name})", "baseline")
            table = pooled({name: held}, self.train.units)
            solved = solve(Problem.of(table, self.problem.loss, self.problem.lam))
            outcome.compute_seconds, outcome.stopped = solved.seconds, solved.how
            self._measure(outcome, _embedded(solved.w, table, self.train))
            if outcome.primal is not None:
                self.alone_scores[name] = outcome.test or outcome.train
            found.append(outcome)
        good = [outcome for outcome in found if outcome.primal is not None]
        if not good:
            return []
        return [max(good, key=quality), _mean(good)]


def _some(tiles: Tiles, samples: int, seed: int) -> dict[str, tuple[Tile, ...]]:
    """The tiles of about two hundred samples; all of them where that leaves a party with none."""
    try:
        return hold_out(tiles, min(200 / samples, 0.99), seed)[1]
    except DataError:
        return {name: tuple(held) for name, held in tiles.items()}


def _embedded(w: Floats, own: PooledTable, whole: PooledTable) -> Floats:
    """Weights of some features among those of all, with zeros elsewhere."""
    place = {name: column for column, name in enumerate(whole.features.tolist())}
    bias = int(whole.units.bias is not None)
    full = np.zeros((len(place) + bias, w.shape[1]))
    columns = [place[name] for name in own.features.tolist()]
    full[columns] = w[: len(columns)]
    if bias:
        full[-1] = w[-1]
    return full


def quality(outcome: Outcome) -> float:
    """Accuracy or R², on samples held out where there are any."""
    scores = outcome.test or outcome.train
    return scores.get("accuracy", scores.get("r2", -math.inf))


def _mean(outcomes: list[Outcome]) -> Outcome:
    """The mean of what parties reach alone."""

    def mean(scores: list[dict[str, float]]) -> dict[str, float]:
        return {key: float(np.mean([s[key] for s in scores])) for key in scores[0]}

    return Outcome(
        f"{ALONE}, mean of {len(outcomes)}",
        "baseline",
        primal=float(np.mean([outcome.primal for outcome in outcomes])),
        train=mean([outcome.train for outcome in outcomes]),
        test=mean([outcome.test for outcome in outcomes]),
        compute_seconds=float(np.mean([outcome.compute_seconds for outcome in outcomes])),
        stopped=outcomes[0].stopped,
    )
