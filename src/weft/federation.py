"""A federation in one process: parties, channel, coordinator, and the model they agree on."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.algorithms.base import Checkpointing, Record, Result
from weft.algorithms.registry import algorithm_of, check_cut, resolve
from weft.algorithms.settings import Settings
from weft.channels import LocalChannel, Message, Meter, Sink
from weft.consortium.consent import Consent, key_holders
from weft.crypto import Adder
from weft.crypto.cost import Cost, Spent
from weft.data.tile import MissingPolicy, Tile, settle_missing
from weft.errors import ConfigError, DataError
from weft.guards import OPEN, Terms
from weft.guards.terms import Matching
from weft.keys import PartyKeys, check_keys, ephemeral_keys
from weft.ledger.account import Ledger
from weft.matching.meet import meet
from weft.matching.roster import Overlap, Roster
from weft.model import Model
from weft.party import Party
from weft.sums.extremes import units_above
from weft.sums.scaling import Rule, agree_on_scaling


@dataclass(frozen=True)
class Preparation:
    """How the parties' tables become one problem.

    Attributes
    ----------
    overlap
        A cell at several holders: ``mean``, ``first`` or ``sum`` (additive shares).
    intercept, intercept_scaling
        Whether there is a constant column, and its value.
    scaling, unit_rows
        Federated scaling of features; then all rows by one constant so that ‖x_i‖ ≤ 1.
    missing
        A blank cell in a tile: ``error``, ``zero`` or ``mean`` (needs a centring scaling).
    confirm_separate_ids
        Parties with different features whose ids never meet are meant to be so.
    classes
        The class values, if agreed beforehand; else collected from the tiles.
    matching
        Tokens of ids from the run secret alone (``hmac``), or also through key holders (``oprf``).
    """

    overlap: Overlap = "mean"
    intercept: bool = False
    intercept_scaling: float = 1.0
    scaling: Rule = "none"
    unit_rows: bool = False
    missing: MissingPolicy = "error"
    confirm_separate_ids: bool = False
    classes: Sequence[Any] | None = None
    matching: Matching = "hmac"


@dataclass
class Trained:
    """What training gave: the model, how the run went, and who held what.

    ``settings`` are those of the run, with the solver that was chosen.
    """

    model: Model
    result: Result
    roster: Roster
    meter: Meter
    channel: LocalChannel
    encryption: Spent
    settings: Settings


class Federation:
    """Parties that train together in this process.

    Parameters
    ----------
    tiles
        Party name to the tiles it holds.
    preparation
        How the tables become one problem.
    record
        True: keep all messages in the channel's transcript, to see what each side sees; a
        `Recorder` writes them to a file instead.
    timeout
        Seconds a party may take for a phase.
    store
        Folder for checkpoints.
    packed
        Let every message travel as bytes, as over a network.
    keys
        The parties' keys, from files; None: made for every run.
    terms
        What every party insists on; by default nothing, since all data is in one hand here.
    consents
        What each party takes part in, in the place of ``terms``.
    ledger
        Where the parties keep count of the sums that they open and show; None: nowhere.
    """

    def __init__(
        self,
        tiles: Mapping[str, Sequence[Tile]],
        preparation: Preparation | None = None,
        *,
        record: bool | Sink = False,
        timeout: float | None = None,
        store: Path | None = None,
        packed: bool = False,
        keys: Mapping[str, PartyKeys] | None = None,
        terms: Terms = OPEN,
        consents: Mapping[str, Consent] | None = None,
        ledger: Ledger | None = None,
    ) -> None:
        if not tiles:
            raise ConfigError("a federation needs at least one party")
        check_keys(keys, tiles)
        _check_consents(consents, tiles)
        self.preparation = preparation or Preparation()
        if self.preparation.missing == "mean" and self.preparation.scaling != "standard":
            raise ConfigError(
                "missing = 'mean' fills blank cells with the column's mean, which takes "
                "scaling = 'standard'; set it, or use missing = 'zero'"
            )
        self._tiles = {
            name: tuple(settle_missing(t, self.preparation.missing, name) for t in held)
            for name, held in tiles.items()
        }
        self._record = record
        self._timeout = timeout
        self._store = store
        self._packed = packed
        self._keys = keys
        self._consents = consents or {name: Consent(name, terms) for name in tiles}
        self.terms = reduce(Terms.stricter, (self._consents[name].terms for name in tiles))
        self._ledger = ledger
        self._start: Model | None = None
        self.parties: dict[str, Party] = {}

    def assemble(
        self, settings: Settings
    ) -> tuple[LocalChannel, Roster, Adder, NDArray[Any] | None]:
        """Make the parties, match their samples and features, agree on scaling."""
        how = self.preparation
        classes = self._classes(settings)
        # Not from the seed, which the coordinator knows: keys must not be its to compute.
        keys = self._keys or ephemeral_keys(tuple(self._tiles))
        adder = Adder(settings.cipher)
        self.parties = {
            name: Party(
                name,
                held,
                keys=keys[name],
                cipher=settings.cipher,
                store=self._store,
                start=self._start,
                consent=self._consents[name],
                ledger=self._ledger,
            )
            for name, held in self._tiles.items()
        }
        channel = LocalChannel(
            {name: party.on for name, party in self.parties.items()},
            timeout=self._timeout,
            record=self._record,
            packed=self._packed,
        )
        roster = meet(
            channel,
            adder,
            classes=classes,
            overlap=how.overlap,
            bias=how.intercept_scaling if how.intercept else None,
            confirm_separate_ids=how.confirm_separate_ids,
            # The safe method draws per cohort: nobody needs to know who else draws how much.
            follow_draws=settings.solver == "hyfdca" and settings.local != "safe",
            terms=self.terms,
            matching=how.matching,
            holders=key_holders(self._consents, self._tiles),
        )
        agree_on_scaling(channel, roster, how.scaling, how.unit_rows, adder)
        return channel, roster, adder, classes

    @property
    def recipients(self) -> tuple[str, ...] | None:
        """To whom the model goes by all rosters that bind a party; None: there is no roster."""
        found = [consent.recipients for consent in self._consents.values()]
        listed = [names for names in found if names is not None]
        if not listed:
            return None
        return tuple(name for name in listed[0] if all(name in names for names in listed))

    def train(
        self,
        settings: Settings,
        *,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        start: Model | None = None,
    ) -> Trained:
        """Run an algorithm from matching to the released model.

        Parameters
        ----------
        start
            A model to start from, of which every party uses its own features' weights.
        """
        try:
            return self._train(settings, progress, checkpointing, start)
        finally:
            for party in self.parties.values():
                party.close()

    def _train(
        self,
        settings: Settings,
        progress: Callable[[Record], None] | None,
        checkpointing: Checkpointing | None,
        start: Model | None,
    ) -> Trained:
        settings, reason = resolve(
            settings, saves=checkpointing is not None, warm=start is not None
        )
        if settings.norms == "auto":
            chosen: Literal["sample", "cohort"] = "cohort"
            if self.terms.allow_sample_norms or settings.local != "safe":
                chosen = "sample"
            settings = msgspec.structs.replace(settings, norms=chosen)
        self._start = start
        algorithm = algorithm_of(settings.solver)
        channel, roster, adder, classes = self.assemble(settings)
        check_cut(settings, roster)
        unit, label = units_above(channel, adder, "size", 2).tolist()
        lam = min(settings.smallest_lam, math.inf if start is None else start.lam)
        told: Message = {
            "settings": settings.to_json(),
            "unit": unit,
            "label": label,
            "lam": lam,
        }
        channel.ask("start", {p: dict(told) for p in channel.parties}).insist("starting")
        width = 1 if classes is None or len(classes) == 2 else len(classes)
        result = algorithm.coordinator().run(
            channel,
            roster,
            settings,
            adder,
            unit=unit,
            label=label,
            classes=width,
            progress=progress,
            checkpointing=checkpointing,
            warm=start is not None,
        )
        if reason:
            result.notes.insert(0, reason)
        self._admit_losses(result)
        if self.recipients is not None:
            result.notes.append(
                f"by the roster the model goes to {', '.join(self.recipients)} and to nobody else: "
                "hand it on to them only"
            )
        model = self.release(settings, result, classes)
        spent = self._spent(adder)
        return Trained(model, result, roster, channel.meter, channel, spent, settings)

    def _spent(self, adder: Adder) -> Spent:
        """What encryption has cost so far."""
        costs = [party.encryption for party in self.parties.values()]
        slowest = max(costs, key=lambda cost: cost.seconds)
        return Spent(slowest, sum(costs, Cost()), adder.cost)

    def release(self, settings: Settings, result: Result, classes: NDArray[Any] | None) -> Model:
        """Collect every party's columns of w, from the parties to whom the model goes."""
        there = [party for name, party in self.parties.items() if name not in result.gone]
        slices = [p.release(result.model_iteration, everything=bool(result.gone)) for p in there]
        joined = {
            field: np.concatenate([s[field] for s in slices])
            for field in ("names", "weights", "shift", "factor", "constant")
        }
        if result.gone:
            # Others answer for the features of whoever is gone, as far as they hold them.
            _, once = np.unique(joined["names"].astype(str), return_index=True)
            joined = {field: values[np.sort(once)] for field, values in joined.items()}
        names, weights, constant = joined["names"], joined["weights"], joined["constant"]
        shift, factor = joined["shift"], joined["factor"]
        row_factor = slices[0]["row_factor"]
        intercept = np.zeros(weights.shape[1])
        if constant.any():
            intercept = weights[constant][0] * slices[0]["bias_value"]
        order = self._order(names[~constant])
        weights, names = weights[~constant][order], names[~constant][order]
        shift, factor = shift[~constant][order], factor[~constant][order]
        coef = (weights * (factor * row_factor)[:, None]).T
        certificate = result.certificate
        return Model(
            features=names,
            coef=np.ascontiguousarray(coef),
            intercept=intercept - coef @ shift,
            classes=classes,
            scaling=(shift, factor * row_factor),
            loss=settings.loss,
            loss_parameters=settings.loss_parameters,
            lam=(result.lam or settings.lam) if result.stage is None else result.stage.lam,
            certificate={}
            if certificate is None
            else {
                "iteration": certificate.iteration,
                "primal": list(certificate.primal),
                "dual": list(certificate.dual),
                "gap": certificate.gap,
            },
            info={
                "solver": settings.solver,
                "parties": list(self.parties),
                "recipients": None if self.recipients is None else list(self.recipients),
            },
        )

    def _admit_losses(self, result: Result) -> None:
        """Features that only parties hold which are gone have no weight in the model."""
        known = {
            name
            for party, held in self._tiles.items()
            if party not in result.gone
            for tile in held
            for name in tile.features.tolist()
        }
        lost = {
            name
            for party in result.gone
            for tile in self._tiles[party]
            for name in tile.features.tolist()
        } - known
        if lost:
            result.certificate = None
            result.notes.append(
                f"the model lacks {len(lost)} feature(s) that only {', '.join(result.gone)} "
                "holds, and is not certified without them"
            )

    def _order(self, names: NDArray[np.object_]) -> NDArray[np.int64]:
        """Features in the order in which the parties first name them."""
        first: dict[str, int] = {}
        for held in self._tiles.values():
            for tile in held:
                for name in tile.features.tolist():
                    first.setdefault(name, len(first))
        return np.argsort([first[name] for name in names.tolist()], kind="stable")

    def _classes(self, settings: Settings) -> NDArray[Any] | None:
        if settings.make_loss().task == "regression":
            return None
        if self.preparation.classes is not None:
            classes = np.array(self.preparation.classes)
        else:
            found = [
                t.labels[t.labelled]
                for held in self._tiles.values()
                for t in held
                if t.labels is not None
            ]
            if not found:
                raise DataError(
                    "no party has labels; name the label column of at least one of them"
                )
            classes = common_classes(found)
        if len(classes) < 2:
            only = f"only the label {classes.tolist()[0]!r}" if len(classes) else "no label"
            raise DataError(
                f"the label column holds {only}, but classification needs two classes; "
                "check the label column, or use a regression loss such as 'squared'"
            )
        return classes


def _check_consents(consents: Mapping[str, Consent] | None, parties: Iterable[str]) -> None:
    for name in parties:
        if consents is not None and name not in consents:
            raise ConfigError(f"nothing says what party {name} consents to; give its Consent too")


def common_classes(found: Sequence[NDArray[Any]]) -> NDArray[Any]:
    """Sorted class values of several label arrays, as numbers where all of them are."""
    values = np.concatenate([pd.unique(labels.astype(object)) for labels in found])
    try:
        numbers = np.unique(values.astype(np.float64))
    except (TypeError, ValueError):
        return np.unique(np.array([str(v) for v in values]))
    whole = numbers.astype(np.int64)
    return whole if (whole == numbers).all() else numbers
