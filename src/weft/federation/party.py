"""A party: owns tiles and secrets, answers phases, shows nobody its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.crypto.keyring import Keyring, Keys
from weft.crypto.randomness_log import Memory, RandomnessLog
from weft.crypto.secrets import PublicIdentity
from weft.data.scaling import ColumnScaling
from weft.data.tile import Tile
from weft.data.tile_digest import add_tile
from weft.errors import ConfigError, DataError, ProtocolError
from weft.federation.announcements.party import AnnouncingParty
from weft.federation.messages import (
    RELEASE,
    START,
    TAKE_MODEL,
    ModelRequest,
    ModelSlice,
    ReleaseReply,
    ReleaseRequest,
    StartRequest,
)
from weft.federation.model import Model
from weft.federation.party_checkpoints import PartyCheckpoints
from weft.federation.release.party import ReleaseParty
from weft.federation.resume_fingerprint import insist_on_origin
from weft.guards import Terms
from weft.matching.messages import VIEW, ViewReply, ViewRequest
from weft.matching.party import MatchingParty
from weft.matching.party_view import PartyView
from weft.matching.tokens import encode_labels
from weft.privacy.agreement.consent import Consent
from weft.privacy.ledger.account import Account, Ledger, count_sums
from weft.privacy.ledger.attendance import attendance
from weft.protocol import Answer, Message, Nothing, Phase, answer, answers, fields_of, pack
from weft.protocol.metering import EncryptionCost
from weft.solvers.base import PartyHalf
from weft.solvers.messages import (
    FORGET,
    RESTORE,
    SAVE,
    Constants,
    ForgetRequest,
    RestoreRequest,
    SaveRequest,
)
from weft.solvers.party_context import PartyContext
from weft.solvers.settings import Settings
from weft.solvers.solver_choice import algorithm_of
from weft.solvers.subspace.class_fold_problems import folds_of
from weft.sums.contribution import SumCounter
from weft.sums.fixed_point_bounds import Bounds
from weft.sums.local_table import LocalTable, build_table
from weft.sums.maxima import answer_largest
from weft.sums.messages import (
    COLUMN_SPREAD,
    COLUMN_SUMS,
    EXTREMES,
    FINISH_SCALING,
    LONGEST_ROW,
    ROW_NORMS,
    ROW_SIZE,
    SCALE_ROWS,
    SIZE,
    DigitReply,
    DigitRequest,
    FinishScalingRequest,
    ScaleRowsRequest,
)
from weft.sums.scaling import ScalingParty

Floats = NDArray[np.float64]

#: Name of the constant column in models.
INTERCEPT = "(intercept)"


class Party:
    """One member of a federation, as the channel sees it.

    Parameters
    ----------
    name
        Name in the federation.
    tiles
        What it holds; several tiles may cover different samples and features.
    keys
        Its identity, and the secret that the parties share and the coordinator never gets.
    cipher
        Name of the cipher under every sum.
    store
        Folder for this party's own checkpoints.
    start
        A model to start from; only the weights of its own features are used.
    terms
        What it insists on.
    consent
        What it takes part in, in the place of terms alone.
    ledger
        Where it keeps count of the sums that it opens and shows; None: nowhere.
    members
        Public keys of all parties that may take part, as this one knows them; by default those of
        its roster.
    readers
        Who gets the model, with their keys; by default the members to whom the roster gives it,
        or all members without one.
    memory
        Keeps what it draws in this run: another party with this memory, made of the same things,
        is brought to the same state by the same messages. By default it forgets.

    Attributes
    ----------
    sum_counter
        The sums over samples that it has opened and shown in this run.
    model
        The released model, where this party gets it.
    """

    #: Phases after which it may have a model: its attribute, and the suffix of its file.
    saved_models: ClassVar = {TAKE_MODEL.name: (("model", ".npz"),)}

    def __init__(
        self,
        name: str,
        tiles: Sequence[Tile],
        *,
        keys: Keys,
        cipher: str = "pad",
        store: Path | None = None,
        start: Model | None = None,
        terms: Terms | None = None,
        consent: Consent | None = None,
        ledger: Ledger | None = None,
        members: Mapping[str, PublicIdentity] | None = None,
        readers: Mapping[str, PublicIdentity] | None = None,
        memory: Memory | None = None,
    ) -> None:
        if not tiles:
            raise DataError(f"party {name} holds no tile; give it at least one file")
        self.name = name
        self._tiles = list(tiles)
        self._consent = consent or Consent(name, terms or Terms())
        self._consent.check_own(
            keys.identity.public,
            sum(tile.n for tile in tiles),
            labels=any(tile.labelled.any() for tile in tiles),
        )
        self._terms = self._consent.terms
        self._draws = draws = RandomnessLog(memory)
        if memory is not None:
            if store is not None:
                raise ConfigError(
                    f"party {name} has a memory, from which it takes a run up where it was; give "
                    "it no folder for checkpoints"
                )
            insist_on_origin(draws, tiles, keys, cipher, self._consent, start)
        self._keyring = Keyring(keys, cipher, self._terms, draws)
        self._cipher = self._keyring.cipher
        self._table: LocalTable | None = None
        self._checkpoints = PartyCheckpoints(name, store)
        self._account = (
            None
            if ledger is None
            else Account(ledger, name, "train", strict=self._consent.forbids_exposure, draws=draws)
        )
        self.sum_counter = SumCounter(np.zeros(0, bool))
        self._model = start
        self._bias: float | None = None
        self._classes: NDArray[Any] | None = None
        self._announcing = AnnouncingParty(
            name, self._consent, self._keyring, draws, labels=self._known_labels
        )
        self._targets: list[Floats] = []
        roster = self._consent.roster
        self._release = ReleaseParty(self._consent, self._keyring, keys.identity, members, readers)
        self._matching = MatchingParty(
            name,
            tiles,
            keys,
            self._keyring,
            targets=self._encode_labels,
            accept=self._consent.check_matching,
            known=None if roster is None else roster.members,
            draws=draws,
        )
        self._scaling: ScalingParty | None = None
        self._half: PartyHalf | None = None
        self._settings: Settings | None = None
        #: What the half answers, which may change in the course of a run.
        self._answers: dict[str, Answer] = {}
        self._phases: dict[str, Answer] = {
            **self._announcing.answers(),
            **self._matching.answers(),
            **answers(
                answer(VIEW, self._take_view),
                answer(EXTREMES, lambda m: self._scaler.extremes(m)),
                answer(COLUMN_SUMS, lambda m: self._scaler.sums(m)),
                answer(COLUMN_SPREAD, lambda m: self._scaler.spread(m)),
                answer(FINISH_SCALING, self._finish_scaling),
                answer(ROW_SIZE, lambda m: self._scaler.size([t.block for t in self._tiles], m)),
                answer(ROW_NORMS, lambda m: self._scaler.norms(m)),
                answer(LONGEST_ROW, lambda m: self._scaler.longest(m)),
                answer(SCALE_ROWS, self._scale_rows),
                answer(SIZE, self._size),
                answer(START, self._start),
                answer(SAVE, self._save),
                answer(RESTORE, self._restore),
                answer(FORGET, self._forget),
                answer(RELEASE, self._seal),
                answer(TAKE_MODEL, self._take_model),
            ),
        }

    def on(self, phase: Phase[Any, Any], message: Message) -> Message:
        """Answer one phase."""
        found = self._phases.get(phase.name) or self._answers.get(phase.name)
        if found is None:
            raise ProtocolError(f"phase '{phase.name}' is not known or comes too early")
        if type(message) is not phase.request:
            raise ProtocolError(f"phase '{phase.name}' came with a message of another phase")
        if self._draws.lasting:
            self._draws.hear(phase.name, pack(fields_of(message)))
        self._consent.check_company(message)
        self._cipher.begin(message)
        reply = found.handle(message)
        if self._account is not None and getattr(reply, "v", None) is not None:
            self._account.note_attendance()
        return reply

    def replaying(self) -> AbstractContextManager[None]:
        """While the messages of before an interruption come again: all but the last.

        What the memory has is never drawn or booked twice, in this block or outside of it; in it,
        what the memory lacks is an error. Of the last message it may lack something: nobody knows
        how far the party had come with it.
        """
        return self._draws.replaying()

    @property
    def encryption(self) -> EncryptionCost:
        """What this party has spent on encryption."""
        return self._cipher.cost

    # ── matching ──────────────────────────────────────────────────────────────────────────

    def _known_labels(self) -> list[NDArray[Any]]:
        return [tile.labels[tile.labelled] for tile in self._tiles if tile.labels is not None]

    def _encode_labels(self, classes: NDArray[Any] | None) -> list[Floats]:
        """Labels per tile as numbers, for the classes that were agreed on."""
        self._classes = classes
        self._targets = [self._encoded(tile) for tile in self._tiles]
        return self._targets

    def _encoded(self, tile: Tile) -> Floats:
        if tile.labels is None:
            return np.full(tile.n, np.nan)
        return encode_labels(tile.labels, tile.labelled, self._classes, tile.source or "its tile")

    def _take_view(self, message: ViewRequest) -> ViewReply:
        if self._matching.seated:
            # Guards and counts of sums begin with a view.
            raise ProtocolError(f"party {self.name} has taken its view in this run already")
        self._bias = message.bias_value
        view = self._matching.sit(message)
        self._announcing.check_parties(view.n_parties)
        self._consent.check_seat(view)
        self._scaling = self._half = self._table = None
        reply = self._matching.make_seeds(message, alone=self._consent.alone(view.n_parties))
        # Without a ledger, sums that nothing hides need no counting: simulations of thousands.
        if self._account is not None or self._cipher.name != "plain":
            self.sum_counter = count_sums(self._cipher, view)
        if self._account is not None:
            self._account.open(view, self._matching.ids, self.sum_counter)
            who = attendance(view, self._tiles)
            self._account.attend(who, self._consent.check_change)
        return reply

    def close(self) -> None:
        """The run is over: what the ledger had booked ahead becomes what there was."""
        if self._account is not None:
            self._account.close()

    @property
    def view(self) -> PartyView:
        return self._matching.view

    # ── scaling ───────────────────────────────────────────────────────────────────────────

    @property
    def _scaler(self) -> ScalingParty:
        if self._scaling is None:
            blocks = [t.block for t in self._tiles]
            self._scaling = ScalingParty(
                self.view,
                blocks,
                self._bias,
                self._cipher,
                sample_norms=self._terms.allow_sample_norms,
            )
        return self._scaling

    def _finish_scaling(self, message: FinishScalingRequest) -> Nothing:
        self._scaler.finish(message)
        scaled = []
        for tile, columns in zip(self._tiles, self.view.tile_columns, strict=True):
            scaling = ColumnScaling(
                tile.features, self._scaler.shift[columns], self._scaler.factor[columns]
            )
            scaled.append(scaling.apply(tile, self.name))
        self._tiles = scaled
        return Nothing()

    def _scale_rows(self, message: ScaleRowsRequest) -> Nothing:
        factor = message.factor
        self._tiles = [replace(tile, block=tile.block * factor) for tile in self._tiles]
        if self._bias is not None:
            self._bias *= factor
        self._scaler.row_factor = factor
        return Nothing()

    # ── training ──────────────────────────────────────────────────────────────────────────

    def _size(self, message: DigitRequest) -> DigitReply:
        """One digit of the largest part of ‖x_i‖², and of the largest label, of any party."""
        if message.digit == 0:
            self._table = self.table()
        largest = 0.0 if self._table is None else self._table.squares.max(initial=0.0)
        label = np.abs(self._labels()).max(initial=0.0)
        return answer_largest(np.array([largest, label]), message, self._cipher)

    def _start(self, message: StartRequest) -> Nothing:
        if self._half is not None:
            raise ProtocolError(f"party {self.name} has started in this run already")
        settings = Settings.from_json(message.settings)
        self._consent.check(settings, self.view)
        table = self.table() if self._table is None else self._table
        unit, label = message.unit, message.label
        loss, lam = settings.make_loss(), message.smallest_lam
        context = PartyContext(
            self.view,
            table,
            self._labels(),
            self._cipher,
            Bounds.of(loss, lam, self.view.row_holders, unit, label),
            contributors=1 if self._terms.allow_pairs else self._terms.min_contributors,
            folds=self._folds(settings) if settings.folds else None,
            start=None if self._model is None else self._start_from(self._model),
            draws=self._draws,
        )
        if self._account is not None:
            self._account.solver = settings.solver
        self._settings = settings
        self._half = algorithm_of(settings.solver).party(context, settings)
        self._answers = self._half.phases()
        return Nothing()

    def _start_from(self, model: Model) -> Floats:
        """The weights of this party's columns in a model, in the units it was trained in."""
        view, known = self.view, len(model.coef)
        classes = 1 if self._classes is None or len(self._classes) == 2 else len(self._classes)
        if known != classes:
            raise ConfigError(
                f"the model to start from has weights for {known} class(es), but this problem has "
                f"{classes}; start without it"
            )
        start = np.zeros((view.n_columns, classes))
        for tile, columns in zip(self._tiles, view.tile_columns, strict=True):
            start[columns] = model.trained_weights(tile.features)
        if view.bias_slot >= 0 and self._bias:
            start[view.bias_slot] = model.centre_score / self._bias
        return start

    def _folds(self, settings: Settings) -> NDArray[np.int8]:
        """The fold of every local row."""
        folds = np.zeros(self.view.n_rows, np.int8)
        for ids, rows in zip(self._matching.ids, self.view.tile_rows, strict=True):
            held = rows >= 0
            folds[rows[held]] = folds_of(ids[held], settings.folds, settings.seed)
        return folds

    def table(self) -> LocalTable:
        """The cells of this party, arranged for its view."""
        return build_table(self.view, [t.block for t in self._tiles], self._bias)

    def _labels(self) -> Floats:
        """Targets per local row: the response, ±1, or a column of ±1 per class."""
        target = np.full(self.view.n_rows, np.nan)
        for rows, values in zip(self.view.tile_rows, self._targets, strict=True):
            known = (rows >= 0) & ~np.isnan(values)
            target[rows[known]] = values[known]
        if self._classes is None:
            responses: Floats = np.nan_to_num(target)[:, None]
            return responses
        count = len(self._classes)
        positive = np.array([1]) if count == 2 else np.arange(count)
        signs: Floats = np.where(target[:, None] == positive, 1.0, -1.0)
        return signs

    @property
    def units(self) -> ColumnScaling:
        """How its cells become those that it trains on."""
        names = self._names()
        columns = np.arange(self.view.n_columns) != self.view.bias_slot
        if self._scaling is None:
            zeros = np.zeros(int(columns.sum()))
            return ColumnScaling(names[columns], zeros, zeros + 1.0)
        scaler = self._scaling
        factor = scaler.factor[columns] * scaler.row_factor
        return ColumnScaling(names[columns], scaler.shift[columns], factor)

    @property
    def bias(self) -> float | None:
        """Value of the constant column as it trains on it; None: there is none."""
        return self._bias

    def _names(self) -> NDArray[np.object_]:
        """Names of its columns."""
        names = np.full(self.view.n_columns, INTERCEPT, dtype=object)
        for tile, columns in zip(self._tiles, self.view.tile_columns, strict=True):
            names[columns] = tile.features
        return names

    # ── the model ─────────────────────────────────────────────────────────────────────────

    @property
    def model(self) -> Model | None:
        return self._release.model

    def _seal(self, message: ReleaseRequest) -> ReleaseReply:
        return self._release.seal(self._slice(message.model, everything=message.everything))

    def _take_model(self, message: ModelRequest) -> Nothing:
        if self._settings is None:
            raise ProtocolError(f"party {self.name} has not trained; it takes no model")
        whole = None if message.everything else self.view.n_parties
        self._release.take(message, self._settings, self._classes, whole)
        return Nothing()

    def _slice(self, model: int | None, *, everything: bool) -> ModelSlice:
        """The weights of the columns this party answers for, in the order of its files.

        With ``everything`` those of all its columns, for when another party is gone. Weights are
        in the units of the scaled table.
        """
        if self._half is None:
            raise ProtocolError(f"party {self.name} has not trained; nothing to release")
        w, view = self._half.weights(model), self.view
        scaler = self._scaling
        shift = scaler.shift if scaler is not None else np.zeros(view.n_columns)
        factor = scaler.factor if scaler is not None else np.ones(view.n_columns)
        columns = self._columns_in_order()
        if not everything:
            columns = columns[view.owned[columns]]
        return ModelSlice(
            names=self._names()[columns].astype(str),
            weights=w[columns],
            shift=shift[columns],
            factor=factor[columns],
            row_factor=float(scaler.row_factor) if scaler is not None else 1.0,
            constant=columns == view.bias_slot,
            bias_value=None if self._bias is None else float(self._bias),
        )

    def _columns_in_order(self) -> NDArray[np.int64]:
        """All its columns as its files first name them, the constant one last."""
        slots: list[NDArray[Any]] = [*self.view.tile_columns, np.arange(self.view.n_columns)]
        return np.asarray(pd.unique(np.concatenate(slots)), np.int64)

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def _save(self, message: SaveRequest) -> Nothing:
        if self._half is None:
            raise ProtocolError(f"party {self.name} has not started; nothing to save")
        self._half.settle(message.ack)
        state, keys = self._half.state(), self._keyring.state()
        self._checkpoints.put(message.iteration, state, keys, self._content)
        return Nothing()

    @cached_property
    def _content(self) -> NDArray[np.uint8]:
        """A hash of all that this party trains on, to know it again."""
        digest = blake2b(f"{self.view.overlap} {self._bias!r}".encode())
        for tile, target in zip(self._tiles, self._targets, strict=True):
            add_tile(digest.update, tile)
            digest.update(np.ascontiguousarray(target).tobytes())
        return np.frombuffer(digest.digest(), np.uint8)

    def _restore(self, message: RestoreRequest) -> Nothing:
        if self._half is None:
            raise ProtocolError(f"party {self.name} has not started; nothing to restore")
        state, keys = self._checkpoints.take(message.iteration, self._content)
        epoch = message.epoch
        self._checkpoints.raise_epoch(int(keys["key"]), epoch)
        self._keyring.restore(keys, epoch)
        self._half.restore(state, message.constants or Constants())
        return Nothing()

    def _forget(self, message: ForgetRequest) -> Nothing:
        self._checkpoints.forget_before(message.iteration)
        return Nothing()
