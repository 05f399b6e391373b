"""A party: owns tiles and secrets, answers phases, shows nobody its cells."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import Any, ClassVar, cast

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.party_run_keys import Keyring, Keys
from weft.crypto.replay_log import Memory, RandomnessLog
from weft.data.columns.column_agreement import rules_of
from weft.data.columns.column_rules import PLAIN
from weft.data.columns.column_transformation import FileReading, Transformation
from weft.data.sample_columns import label_companions, taken_off
from weft.data.site_column import site_tile
from weft.data.tile import MissingPolicy, Tile
from weft.errors import ConfigError, DataError, ProtocolError
from weft.federation.announcements.party import AnnouncingParty
from weft.federation.column_units_party import UnitsParty
from weft.federation.columns.party import ColumnsParty, Settled
from weft.federation.group_levels import group_levels
from weft.federation.messages import (
    LEAVE_OUT,
    RARE,
    RELEASE,
    START,
    TAKE_MODEL,
    LeaveReply,
    LeaveRequest,
    ModelRequest,
    ModelSlice,
    ReleaseReply,
    ReleaseRequest,
    StartRequest,
)
from weft.federation.model import Model
from weft.federation.party_checkpoints import PartyCheckpoints
from weft.federation.party_snapshots import PartySnapshots
from weft.federation.preprocessing_settings import SampleColumns
from weft.federation.rare_samples import RareParty
from weft.federation.release.correlation_table import CorrelationTable
from weft.federation.release.fit_inference import Inference
from weft.federation.release.noised_weights import NoiseSize, NoisyRelease
from weft.federation.release.party import ReleaseParty
from weft.federation.release.second_moments import SecondMoments
from weft.federation.release.statistics_party import StatisticsGuard, StatisticsParty
from weft.federation.resume_fingerprint import insist_on_origin
from weft.federation.sealed_run_terms import SealedSeat
from weft.federation.told_columns_party import ToldColumns
from weft.federation.training_data import TrainingData
from weft.guards import Terms
from weft.guards.model_noise import row_bound
from weft.guards.score_buckets import EarlierCounts
from weft.inference.coefficient_summary import Summary
from weft.matching.messages import VIEW, ViewReply, ViewRequest
from weft.matching.party import MatchingParty
from weft.matching.party_view import PartyView
from weft.privacy.agreement.consent import Consent
from weft.privacy.ledger.earlier_numbers import NumberKind
from weft.privacy.ledger.earlier_samples import Attendance, attendance
from weft.privacy.ledger.expected_exposure import forecast
from weft.privacy.ledger.ledger_file import Kind
from weft.privacy.ledger.run_booking import Account, Ledger, count_sums
from weft.privacy.ledger.run_exposure import exposure_of
from weft.protocol import Answer, Message, Nothing, Phase, answer, answers, fields_of, pack
from weft.protocol.metering import EncryptionCost
from weft.protocol.shared_fields import PadLinks
from weft.protocol.transcript import Transcript
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.base import InferringHalf, PartyHalf, SharingHalf
from weft.solvers.common_messages import (
    FORGET,
    RESTORE,
    SAVE,
    Constants,
    ForgetRequest,
    RestoreRequest,
    SaveRequest,
)
from weft.solvers.party_context import PartyContext
from weft.solvers.sealed.reader_groups import Told
from weft.solvers.settings import Settings
from weft.solvers.subspace.messages import EVALUATE
from weft.sums.fixed_point_bounds import Bounds
from weft.sums.messages import MEND, MendReply, MendRequest
from weft.sums.sum_counter import SumCounter

#: Bytes that the noise in a model follows from.
SEED_BYTES = 32


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
    signs_transcript
        Whether it signs the hash of all that it saw, at the end of a run.
    missing
        What becomes of blank cells; those of ``tiles`` are settled, but for declared columns.
    reading
        How its files were read, for the model to have new ones read alike.

    Attributes
    ----------
    data
        What it trains on.
    tiles
        What it holds, with declared columns as numbers once levels are agreed on.
    transformation
        How they became numbers.
    remarks
        What became of cells that no rule foresaw, for its owner.
    sum_counter
        The sums over samples that it has opened and shown in this run.
    model
        The released model, where this party gets it.
    """

    #: Phases after which it may have a model: its attribute, and the name of its file.
    saved_models: ClassVar = {
        TAKE_MODEL.name: (
            ("model", "model.npz"),
            ("coefficient_table", "coefficients.csv"),
            ("coefficient_table", "coefficients.tex"),
            ("correlation_table", "correlations.csv"),
        )
    }
    #: Which terms it insists on, and when.
    seat: ClassVar[type[SealedSeat]] = SealedSeat
    #: What its ledger calls a run.
    ledger_kind: ClassVar[Kind] = "train"

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
        signs_transcript: bool = True,
        missing: MissingPolicy = "error",
        sample_columns: SampleColumns | None = None,
        reading: FileReading | None = None,
    ) -> None:
        if not tiles:
            raise DataError(f"party {name} holds no tile; give it at least one file")
        #: As its files have them, before a study says what becomes of columns.
        self._found, self._beside = tuple(tiles), sample_columns
        if sample_columns is not None:
            tiles = [taken_off(tile, name, **sample_columns.columns) for tile in tiles]
        self.name = name
        self._consent = consent or Consent(name, terms or Terms())
        self._consent.check_own(
            keys.identity.public,
            sum(tile.n for tile in tiles),
            labels=any(tile.labelled.any() for tile in tiles),
        )
        reference = None if sample_columns is None else sample_columns.reference_site
        self._by_site = reference is not None
        site = None if reference is None else site_tile(tiles, name, reference)
        if site is not None:
            # Last, behind those of its files.
            tiles = [*tiles, site]
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
        self.data = TrainingData(
            name,
            tiles,
            self._cipher,
            lambda: self._settled_view,
            sample_norms=self._terms.allow_sample_norms,
            missing=missing,
            sample_columns=sample_columns is not None and bool(sample_columns.named),
            site=None if site is None else str(site.features[0]),
        )
        self._reading = () if reading is None else (reading,)
        self.tiles, self.transformation = tuple(tiles), Transformation(readings=self._reading)
        self.remarks: tuple[str, ...] = ()
        self._columns = ColumnsParty(
            name,
            tiles,
            self._keyring,
            draws,
            # A submitter's terms would steer which levels are rare.
            least=self._consent.own_terms.min_batch,
            missing=missing,
            settle=self._take_columns,
        )
        self._checkpoints = PartyCheckpoints(name, store)
        owned = {"keys": keys, "run secret": keys.run, "memory": memory, "ledger": ledger}
        self._snapshots = PartySnapshots(self, keys.identity, owned)
        self._account = (
            None
            if ledger is None
            else Account(
                ledger,
                name,
                self.ledger_kind,
                strict=not self._terms.allow_exposure,
                most_explained=self._terms.most_explained,
                draws=draws,
            )
        )
        self.sum_counter = SumCounter(np.zeros(0, bool))
        self._model = start
        self._seat = self.seat(self._consent, self._keyring)
        self._announcing = AnnouncingParty(
            name,
            self._consent,
            self._keyring,
            draws,
            labels=self.data.known_labels,
            on_shares=self._seat.take,
            declares=self._columns.declares,
        )
        roster = self._consent.roster
        self._release = ReleaseParty(self._consent, self._keyring, keys.identity, members, readers)
        self._matching = MatchingParty(
            name,
            tiles,
            keys,
            self._keyring,
            beside=[label_companions(tile) for tile in tiles],
            targets=lambda told: self.data.encode_labels(self._announcing.agreed(told)),
            accept=self._consent.check_matching,
            known=None if roster is None else roster.members,
            draws=draws,
            later=self._columns.declares,
        )
        self._told = ToldColumns(
            name,
            self._found,
            sample_columns,
            self._keyring,
            lambda: self._matching.confirmed_view,
            tiles=lambda: self.data.tiles,
            consents=self._consent.check_told_column,
            book=self._book_told,
        )
        # Under a submitter's own, growing terms a column would tell how many values it has.
        least = self._consent.own_terms.min_batch
        self._units = UnitsParty(name, self._found, self._keyring, least)
        self._transcript = Transcript() if signs_transcript else None
        self._noise: NoisyRelease | None = None
        self._rare = RareParty(
            lambda: self._matching.view,
            lambda: self.data.class_numbers(self._matching.view),
            self._cipher,
            self._keyring.facts_key,
            self._seat.tells_counts,
        )
        #: Its view without samples that are too rare; None: nothing was left out yet.
        self._trimmed: PartyView | None = None
        self._half: PartyHalf | None = None
        self._settings: Settings | None = None
        #: Its part in sums for standard errors, and a bound for all parties' ‖x‖².
        self._statistics: StatisticsParty | None = None
        self._longest_row = math.inf
        #: What the half answers, which may change in the course of a run, and whether it did.
        self._answers: dict[str, Answer] = {}
        self._trains = False
        self._phases: dict[str, Answer] = {
            **self._announcing.answers(),
            **self._columns.answers(),
            **self._matching.answers(),
            **self._units.answers(),
            **self._told.answers(),
            **self.data.answers(),
            **answers(
                answer(VIEW, self._take_view),
                answer(RARE, self._rare.find),
                answer(LEAVE_OUT, self._leave_out),
                answer(MEND, self._mend),
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
        name = phase.name
        found = self._phases.get(name) or self._answers.get(name)
        if found is None:
            raise ProtocolError(f"phase '{name}' is not known or comes too early")
        if type(message) is not found.phase.request:
            raise ProtocolError(f"phase '{name}' came with a message of another phase")
        if self._draws.lasting:
            self._draws.hear(name, pack(fields_of(message)))
        self._consent.check_company(message)
        self._cipher.begin(message, name)
        self._seat.before(phase, lambda: self.view)
        reply = found.handle(message)
        self._trains = self._trains or name in self._answers
        if self._transcript is not None:
            self._transcript.add(name, fields_of(message), fields_of(reply))
        if self._account is not None and self._tells(phase, reply):
            self._account.note_attendance()
        return reply

    def settle(self, replies: Sequence[bytes] | None) -> None:
        """How the last envelope ended, told before every one, as `Transcript.settle` has it."""
        if self._transcript is not None:
            self._transcript.settle(replies)

    def _tells(self, phase: Phase[Any, Any], reply: Message) -> bool:
        """Whether a reply counts as taking part in training.

        Whatever the solver, feature sums are in the field ``v`` (`weft.sums.running_totals`). So do
        counts of held-out scores. On
        shares, totals over all samples are told from the beginning to the model.
        """
        on_shares = self._seat.announced and phase.name in self._answers
        told = getattr(reply, "v", None) is not None or phase.name == EVALUATE.name
        return on_shares or told

    def _mend(self, message: MendRequest) -> MendReply:
        reply = MendReply()
        for kind in ("v", "z", "delta"):
            pads: PadLinks | None = getattr(message, f"{kind}_pads")
            if pads is not None:
                block, slots = self._cipher.mend(kind, pads)
                setattr(reply, kind, block)
                setattr(reply, f"{kind}_slots", slots)
        return reply

    def replaying(self) -> AbstractContextManager[None]:
        """While the messages of before an interruption come again: all but the last.

        What the memory has is never drawn or booked twice, in this block or outside of it; in it,
        what the memory lacks is an error. Of the last message it may lack something: nobody knows
        how far the party had come with it.
        """
        return self._draws.replaying()

    @property
    def snapshots(self) -> PartySnapshots | None:
        """Saves what this party becomes in training; None: before that."""
        return None if self._half is None else self._snapshots

    @property
    def exposure(self) -> str:
        """What this run has exposed of its samples, in one line, for its own eyes."""
        if not self._matching.seated:
            return "nothing, since no sample was matched"
        return exposure_of(self.view, self.sum_counter).line

    @property
    def encryption(self) -> EncryptionCost:
        """What this party has spent on encryption."""
        return self._cipher.cost

    # ── matching ──────────────────────────────────────────────────────────────────────────

    def _take_columns(self, settled: Settled) -> None:
        """Go on with tables of numbers."""
        self.tiles = settled.tiles
        self.transformation = msgspec.structs.replace(
            settled.transformation, readings=self._reading
        )
        self.remarks = settled.remarks
        self.data.tiles = list(settled.tiles)
        self._matching.know_columns(settled.tiles, settled.bindings)

    def _take_view(self, message: ViewRequest) -> ViewReply:
        if self._matching.seated:
            # Guards and counts of sums begin with a view.
            raise ProtocolError(f"party {self.name} has taken its view in this run already")
        self.data.bias = message.bias_value
        view = self._matching.sit(message)
        self._announcing.check_parties(view.n_parties)
        self._seat.check_view(view)
        if self._by_site:
            self._check_sites(view)
        self._told.look_at_own(view)
        reply = self._matching.make_seeds(message, alone=self._consent.alone(view.n_parties))
        if message.units:
            reply.units = self._units.tell(view, self._matching.features)
        # Without a ledger, sums that nothing hides need no counting: simulations of thousands.
        if self._account is not None or self._cipher.name != "plain":
            self.sum_counter = count_sums(self._cipher, view)
        if self._account is not None:
            self._account.open(view, self._matching.ids, self.sum_counter)
        if not self._guarded(view):
            self._attend(view)
        return reply

    def _check_sites(self, view: PartyView) -> None:
        """Refuse samples that would be of two sites, and to tell of its own by itself."""
        if self.data.site is not None:
            self._consent.check_site_intercept()
        if (view.computing[view.labelled] > 1).any():
            raise DataError(
                f"party {self.name} has labels of samples that another party has labels of too, "
                "but with reference_site a sample is of one site; leave the label out at all "
                "parties but one",
                told="two parties have labels of the same samples, but with reference_site a "
                "sample is of one site; leave the label out at all parties but one",
            )

    @staticmethod
    def _guarded(view: PartyView) -> bool:
        """Whether others see sums, or a model, from which something rare must be left out."""
        return view.min_batch > 1 and bool(view.exposed.any())

    def _attend(self, view: PartyView) -> None:
        """Let the ledger object to who takes part."""
        if self._account is not None:
            who = self.attendance(view, everyone=self._seat.announced)
            self._account.attend(who, self._consent.check_change)

    @staticmethod
    def tells_of_all(settings: Settings, view: PartyView) -> bool:
        """Whether a run tells of all its samples, whoever else sees sums of them.

        On shares it does, and so do counts of the held-out scores that it has.
        """
        counts = settings.evaluates and bool(view.counted_rows.any())
        return algorithm_of(settings.solver).shares or counts

    def attendance(self, view: PartyView, *, everyone: bool) -> Attendance | None:
        """Who takes part under a view, as its ledger is told; ``everyone``: on shares."""
        rules = dict.fromkeys(rules_of(self._found), b"")
        if self._beside is not None:
            places = self._beside.columns.items()
            rules |= {name: place.encode() for place, name in places if name in rules}
        for column in self.transformation.columns:
            if column.rule != PLAIN:
                rules[column.name] = msgspec.json.encode(column, order="sorted")
        return attendance(view, self._found, rules, everyone=everyone)

    def _leave_out(self, message: LeaveRequest) -> LeaveReply:
        """Leave out what is too rare, before any sum is made of it."""
        if self._trimmed is not None:
            raise ProtocolError(f"party {self.name} has left out what is rare already")
        view = self._trimmed = self._rare.take(message)
        cells = 0
        if self._guarded(view):
            self._attend(view)
            cells = self.data.leave_out_columns()
        return self._rare.tell(message, cells)

    def close(self) -> None:
        """The run is over: what the ledger had booked ahead becomes what there was."""
        if self._account is not None:
            self._account.close()

    @property
    def view(self) -> PartyView:
        return self._matching.view if self._trimmed is None else self._trimmed

    @property
    def _least(self) -> int:
        """Of how many samples what others read must be, by its own terms, or by the run's.

        Whoever else could raise its own would see what is merged, or refused, from where on.
        """
        own = self._consent.own_terms.min_batch
        return own if own > 1 else self.view.min_batch

    @property
    def _settled_view(self) -> PartyView:
        """Its view, once everything rare is left out."""
        if self._trimmed is None and self._guarded(self.view):
            raise ProtocolError(
                f"party {self.name} was not asked what is too rare to be trained on; that comes "
                "before sums"
            )
        return self.view

    # ── training ──────────────────────────────────────────────────────────────────────────

    def _start(self, message: StartRequest) -> Nothing:
        if self._half is not None:
            raise ProtocolError(f"party {self.name} has started in this run already")
        settings = Settings.from_json(message.settings)
        algorithm = algorithm_of(settings.solver)
        self._seat.start(self.view, shares=algorithm.shares)
        view = self._settled_view
        self._consent.check(settings, view)
        if (settings.make_loss().task != "regression") != (self.data.classes is not None):
            raise ProtocolError(
                f"party {self.name} is to train with a loss that does not fit its labels as it was "
                "told of them; stop this run"
            )
        self.data.check_labels(settings.make_loss())
        self._told.insist()
        if settings.trained_factors != self.data.penalties:
            raise ProtocolError(
                f"party {self.name} was told other penalty factors than those of the run that is "
                "to start; stop this run"
            )
        if settings.noise is not None:
            self._prepare_noise(settings)
        sigma = self._prepare_sum_noise(settings)
        data, unit, label = self.data, message.unit, message.label
        loss, smallest_lam = settings.make_loss(), message.smallest_lam
        context = PartyContext(
            view,
            data.table,
            data.labels(),
            self._cipher,
            Bounds.of(
                loss,
                smallest_lam,
                view.row_holders,
                unit,
                label,
                free_intercept=settings.frees_intercept(data.bias is not None),
                offset=message.offset,
                weight=message.weight * settings.largest_class_weight,
            ),
            contributors=1 if self._terms.allow_pairs else self._terms.min_contributors,
            # On shares, folds are of row numbers, and nobody opens a sum without one.
            folds=None if algorithm.shares else self._folds(settings),
            start=None if self._model is None else data.weights_of(self._model),
            bias=data.bias,
            given=data.given(settings),
            offset=message.offset,
            group_levels=group_levels(self.name, self.tiles, view, settings.evaluation.groups),
            draws=self._draws,
            sum_sigma=sigma,
            spend_rho=self._spend_rho,
            min_batch=self._consent.own_terms.min_batch,
            rare_pairs=self._consent.own_terms.allow_rare_pairs,
            site_statistics=self._terms.allow_site_statistics,
            tells_counts=self._seat.tells_counts(view),
            wide_models=self._terms.allow_exposure or self._consent.alone(view.n_parties),
            foresee_models=partial(self._foresee_numbers, "models"),
            foresee_moments=partial(self._foresee_numbers, "moments"),
            judge_folds=self._judge_folds,
            book_scores=self._book_scores,
            openings=self._keyring.opening_pads() if algorithm.shares else None,
        )
        if self._account is not None:
            self._account.solver = settings.solver
            self._account.foresee(self._likely_sums(settings))
        self._longest_row = unit * view.row_holders
        if settings.inference != "none" and not algorithm.shares:
            self._statistics = self._prepare_statistics(settings)
        # In other units, or under other settings, totals would not be sums of the same.
        self._cipher.agree(pack(fields_of(message)))
        self._settings = settings
        self._half = algorithm.party(context, settings)
        self._answers = self._half.phases()
        return Nothing()

    def _prepare_statistics(self, settings: Settings) -> StatisticsParty:
        """Object to sums for standard errors that would tell single rows, before training."""
        guard = StatisticsGuard(
            self._least,
            self._terms.allow_site_statistics,
            partial(self._foresee_numbers, "moments"),
        )
        return self.checked_statistics(settings, guard)

    def checked_statistics(self, settings: Settings, guard: StatisticsGuard) -> StatisticsParty:
        """Its part in sums for standard errors, unless the guard objects to them."""
        made = StatisticsParty(
            self.name,
            self.data,
            settings,
            self._cipher,
            guard,
            self._longest_row,
            by_site=self._by_site,
        )
        made.check()
        return made

    def _prepare_noise(self, settings: Settings) -> None:
        """Bound the rows, and see to it that there is budget left."""
        noise = settings.noise
        assert noise is not None
        if self._account is not None:
            self._account.check_budget(noise, self._consent.budget)
        self.data.shorten_rows(noise.row_norm)
        classes = self.data.classes
        size = NoiseSize.of(
            settings,
            samples=self.view.n_samples,
            classes=1 if classes is None or len(classes) == 2 else len(classes),
            holders=self.view.row_holders,
            bias=self.data.bias,
        )
        self._noise = NoisyRelease(noise, size, self.name)

    def _prepare_sum_noise(self, settings: Settings) -> float:
        """Bound the rows; returns the standard deviation of the noise in feature sums."""
        noise = settings.sum_noise
        if noise is None:
            return 0.0
        self.data.shorten_rows(noise.row_norm)
        rows = row_bound(noise.row_norm, self.view.row_holders, self.data.bias)
        loss = settings.make_loss()
        return noise.sigma(lipschitz=loss.lipschitz, rows=rows, samples=self.view.n_samples)

    def _spend_rho(self, rho: float) -> None:
        """Book what feature sums with noise tell, before they are sent."""
        if self._account is not None:
            self._account.spend_rho(rho, self._consent.sum_budget)

    def _book_told(self, columns: tuple[str, ...], samples: int) -> None:
        """Book which columns others are told cell by cell, before they are."""
        if self._account is not None:
            self._account.note_told(columns, samples)

    def _foresee_numbers(self, kind: NumberKind, told: Told, hessian: bool = False) -> None:
        """Let the ledger object to what a model or second moments tell, before training."""
        if self._account is not None:
            self._account.foresee_numbers(kind, told, hessian=hessian)

    def _judge_folds(self, folds: int, judge: Callable[[], None]) -> None:
        """Judge folds of classes that are this party's alone; the ledger remembers how it ended."""
        if self._account is None:
            judge()
        else:
            self._account.judge_folds(folds, judge)

    def _book_scores(
        self,
        rows: Ints,
        starts: Ints,
        levels: Ints,
        choose: Callable[[Sequence[EarlierCounts]], Ints],
    ) -> Ints:
        """Choose buckets of held-out scores; with a ledger, so that they keep apart from others."""
        if self._account is None or not len(rows):
            return choose(())
        names = np.full(self.view.n_rows, "", dtype=object)
        for own, slots in zip(self._matching.ids, self.view.tile_rows, strict=True):
            names[slots[slots >= 0]] = own[slots >= 0]
        alone = self._terms.allow_small_changes
        return self._account.note_scores(names[rows], starts, levels, choose, alone=alone)

    def _likely_sums(self, settings: Settings) -> int:
        """Sums that the run will show of a sample, by what this party knows of the table.

        The norm of the rows is that of its own columns, taken to be like those of the others.
        """
        view, classes = self.view, self.data.classes
        squares = self.data.table.squares
        columns = max(1, view.n_columns - (view.bias_slot >= 0))
        foreign = float(view.foreign.max(initial=0))
        mean = float(squares.mean()) if len(squares) else 0.0
        ahead = forecast(
            settings,
            classes=1 if classes is None or len(classes) == 2 else len(classes),
            mean_square=mean * (columns + foreign) / columns,
        )
        return ahead.likely

    def _folds(self, settings: Settings) -> NDArray[np.int8] | None:
        """The fold of every row, if the ledger does not object to them; None: there are none."""
        if not settings.folds:
            return None
        folds = self.data.folds(self._matching.ids, settings)
        if self._account is not None and len(folds.cut.ids):
            self._account.note_folds(folds.cut, self._consent.check_folds)
        if self._account is not None and self.tells_of_all(settings, self.view):
            who = self.attendance(self.view, everyone=True)
            self._account.attend_scores(who, self._consent.check_change)
        return folds.of_rows

    # ── the model ─────────────────────────────────────────────────────────────────────────

    @property
    def model(self) -> Model | None:
        return self._release.model

    @property
    def second_moments(self) -> SecondMoments | None:
        """What came with the model, where this party gets it and the run was to have any.

        No file holds them: whoever goes on with them does so in this process.
        """
        return self._release.second_moments

    @property
    def inference(self) -> Inference | None:
        """Standard errors of the model, or why it has none; None: none were asked for."""
        return self._release.inference

    @property
    def coefficient_table(self) -> Summary | None:
        """The table of coefficients with their standard errors, where there is one."""
        return None if self.inference is None else self.inference.summary

    @property
    def correlation_table(self) -> CorrelationTable | None:
        """Correlations of all columns, where this party opened their Gram matrix."""
        moments = self.second_moments
        return None if moments is None else CorrelationTable.of(moments)

    def _seal(self, message: ReleaseRequest) -> ReleaseReply:
        told = self._slice(message)
        exposed = exposure_of(self.view, self.sum_counter).reached
        return self._release.seal(told, exposed, self._transcript)

    def _take_model(self, message: ModelRequest) -> Nothing:
        if self._settings is None:
            raise ProtocolError(f"party {self.name} has not trained; it takes no model")
        whole = None if message.everything else self.view.n_parties
        own = self.transformation
        self._release.take(message, self._settings, self.data.classes, whole, own)
        return Nothing()

    def _slice(self, message: ReleaseRequest) -> ModelSlice:
        if self._half is None:
            raise ProtocolError(f"party {self.name} has not trained; nothing to release")
        if self._noise is not None:
            self._noise.check(message)
        if self._settings is not None and algorithm_of(self._settings.solver).shares:
            return self._shared_slice(cast("SharingHalf", self._half), message)
        weights = self._half.weights(message.model)
        if self._noise is not None:
            weights = self._noised(self._noise, weights, message)
        slice_ = self.data.slice_of(weights, everything=message.everything)
        if self._statistics is not None and not message.everything:
            if self._account is not None:
                self._account.note_moments(("hessian",))
            half = cast("InferringHalf", self._half)
            slice_.statistics = self._statistics.share(half, message.model)
        return slice_

    def _shared_slice(self, half: SharingHalf, message: ReleaseRequest) -> ModelSlice:
        if message.everything:
            raise ProtocolError(
                f"party {self.name} has shares of the model, which are worth nothing without those "
                "of everyone; bring all parties back"
            )
        if self._account is not None:
            self._account.note_model()
        slice_ = self.data.share_of(half.model_share(message.model))
        if self._settings is not None and self._settings.second_moments:
            made = half.moment_shares(message.model)
            if self._account is not None and (made.gram is not None or made.hessians):
                self._account.note_moments(self._settings.second_moments)
            slice_.moments = self.data.moments_of(made, self._longest_row)
        return slice_

    def _noised(self, noisy: NoisyRelease, weights: Floats, message: ReleaseRequest) -> Floats:
        """Weights with noise, which is in the ledger before it is used."""
        if self._account is not None:
            self._account.spend(noisy.noise, self._consent.budget)
        return noisy.add(weights, message, self._draws.random("model noise", SEED_BYTES))

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def _save(self, message: SaveRequest) -> Nothing:
        if self._half is None:
            raise ProtocolError(f"party {self.name} has not started; nothing to save")
        self._half.settle(message.ack)
        state, keys = self._half.state(), self._keyring.state()
        self._checkpoints.put(message.iteration, state, keys, self.data.content)
        return Nothing()

    def _restore(self, message: RestoreRequest) -> Nothing:
        if self._half is None:
            raise ProtocolError(f"party {self.name} has not started; nothing to restore")
        if self._trains:
            # What it sent since would be forgotten, and might be sent again, almost the same.
            raise ProtocolError(f"party {self.name} is training already; it restores nothing now")
        state, keys = self._checkpoints.take(message.iteration, self.data.content)
        epoch = message.epoch
        self._checkpoints.raise_epoch(int(keys["key"]), epoch)
        self._keyring.restore(keys, epoch)
        self._half.restore(state, message.constants or Constants())
        return Nothing()

    def _forget(self, message: ForgetRequest) -> Nothing:
        self._checkpoints.forget_before(message.iteration)
        return Nothing()
