"""A party: owns tiles and secrets, answers phases, shows nobody its cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from weft.crypto.party_key_agreement import Keys
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.randomness_kept_for_restart import Memory, RandomnessLog
from weft.data.columns.table_transformation import FileReading, Transformation
from weft.data.site_intercept_column import site_tile
from weft.data.tile import MissingPolicy, Tile
from weft.data.weight_and_offset_columns import label_companions, taken_off
from weft.errors import ConfigError, DataError, ProtocolError
from weft.federation.column_level_agreement.party import ColumnsParty, Settled
from weft.federation.messages import (
    RELEASE,
    START,
    TAKE_MODEL,
    ModelRequest,
    ReleaseReply,
    ReleaseRequest,
    StartRequest,
)
from weft.federation.model import Model
from weft.federation.participation_terms_and_classes.party import AnnouncingParty
from weft.federation.party_accepts_holdings import PartyHoldings
from weft.federation.party_checkpoints import PartyCheckpoints
from weft.federation.party_privacy_ledger import PartyLedger
from weft.federation.party_snapshots import PartySnapshots
from weft.federation.party_training_start_and_release import PartyTraining
from weft.federation.preprocessing_settings import SampleColumns
from weft.federation.release.party import ReleaseParty
from weft.federation.release.reader_join_second_moments import SecondMoments
from weft.federation.release.rounded_correlation_file import CorrelationTable
from weft.federation.resume_fingerprint import insist_on_origin
from weft.federation.terms_enforced_by_phase import InsistedTerms
from weft.federation.training_data import TrainingData
from weft.federation.unit_mismatches_party import UnitsParty
from weft.federation.weight_and_offset_letters.party import WeightsAndOffsets
from weft.guards import Terms
from weft.matching.party import MatchingParty
from weft.matching.party_view import PartyView
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.ledger_contents import Kind
from weft.privacy.ledger.run_booking import Ledger
from weft.privacy.ledger.run_exposure import exposure_of
from weft.protocol import Answer, Message, Nothing, Phase, answer, answers, fields_of, pack
from weft.protocol.metering import EncryptionCost
from weft.protocol.signed_transcript_hash import Transcript
from weft.solvers.solver_interfaces_and_results import PartyHalf
from weft.solvers.subspace.messages import EVALUATE
from weft.sums.count_sums_shown_to_party import SumCounter
from weft.sums.party_contribution import mend
from weft.sums.table_scaling_and_certificate_messages import MEND

if TYPE_CHECKING:
    from weft.federation.release.reader_standard_errors import Inference
    from weft.inference.coefficient_summary import Summary


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
    ledger, holdings, training
        Its bookings of this run, its place among the holdings, and its part in training.
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
    insisted: ClassVar[type[InsistedTerms]] = InsistedTerms
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
        found = tuple(tiles)
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
        by_site = reference is not None
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
            lambda: self.holdings.settled_view,
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
        owned = {"keys": keys, "run secret": keys.run, "memory": memory, "ledger": ledger}
        self._snapshots = PartySnapshots(self, keys.identity, owned)
        self.ledger = PartyLedger(
            ledger,
            self.ledger_kind,
            self._consent,
            draws,
            found,
            sample_columns,
            self.transformation,
        )
        self._insisted = self.insisted(self._consent, self._keyring)
        self._announcing = AnnouncingParty(
            name,
            self._consent,
            self._keyring,
            draws,
            labels=self.data.known_labels,
            on_shares=self._insisted.take,
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
        self._told = WeightsAndOffsets(
            name,
            found,
            sample_columns,
            self._keyring,
            lambda: self._matching.confirmed_view,
            tiles=lambda: self.data.tiles,
            consents=self._consent.check_told_column,
            book=self.ledger.note_told,
        )
        # Under a submitter's own, growing terms a column would tell how many values it has.
        least = self._consent.own_terms.min_batch
        self._units = UnitsParty(name, found, self._keyring, least)
        self._transcript = Transcript() if signs_transcript else None
        self.holdings = PartyHoldings(
            self.data,
            self._consent,
            self._keyring,
            self._matching,
            self._announcing,
            self._insisted,
            self._told,
            self._units,
            self.ledger,
            by_site=by_site,
        )
        self._half: PartyHalf | None = None
        self.training = PartyTraining(
            self.data,
            self._consent,
            self._keyring,
            draws,
            self.ledger,
            self._insisted,
            holdings=self.holdings,
            matching=self._matching,
            tiles=lambda: self.tiles,
            checkpoints=PartyCheckpoints(name, store),
            start=start,
            by_site=by_site,
        )
        #: What the half answers, which may change in the course of a run.
        self._answers: dict[str, Answer] = {}
        self._phases: dict[str, Answer] = {
            **self._announcing.answers(),
            **self._columns.answers(),
            **self._matching.answers(),
            **self._units.answers(),
            **self._told.answers(),
            **self.data.answers(),
            **self.holdings.answers(),
            **self.training.answers(),
            **answers(
                answer(MEND, partial(mend, self._cipher)),
                answer(START, self._start),
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
        if self._consent.roster is not None:
            self._consent.check_company(message)
        self._cipher.begin(message, name)
        if self._insisted.announced:
            self._insisted.before(phase, lambda: self.view)
        reply = found.handle(message)
        if name in self._answers:
            self.training.under_way = True
        if self._transcript is not None:
            self._transcript.add(name, fields_of(message), fields_of(reply))
        if self.ledger.kept and self._tells(phase, reply):
            self.ledger.note_attendance()
        return reply

    def settle(self, replies: Sequence[bytes] | None) -> None:
        """How the last envelope ended, told before every one, as `Transcript.settle` has it."""
        if self._transcript is not None:
            self._transcript.settle(replies)

    def _tells(self, phase: Phase[Any, Any], reply: Message) -> bool:
        """Whether a reply counts as taking part in training.

        Whatever the solver, feature sums are in the field ``v``
        (`weft.sums.coordinator_totals`). Counts of held-out scores count as well. On shares,
        totals over all samples are told from the beginning to the model.
        """
        on_shares = self._insisted.announced and phase.name in self._answers
        told = getattr(reply, "v", None) is not None or phase.name == EVALUATE.name
        return on_shares or told

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
        self.ledger.transformation = self.transformation
        self.remarks = settled.remarks
        self.data.tiles = list(settled.tiles)
        self._matching.know_columns(settled.tiles, settled.bindings)

    def close(self) -> None:
        """The run is over: what the ledger had booked ahead becomes what there was."""
        self.ledger.close()

    @property
    def view(self) -> PartyView:
        return self.holdings.view

    @property
    def sum_counter(self) -> SumCounter:
        """The sums over samples that it has opened and shown in this run."""
        return self.holdings.sum_counter

    # ── training ──────────────────────────────────────────────────────────────────────────

    def _start(self, message: StartRequest) -> Nothing:
        self._half = self.training.start(message, self._told)
        self._answers = self._half.phases()
        return Nothing()

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
        told = self.training.slice_of_model(message)
        exposed = exposure_of(self.view, self.sum_counter).reached
        return self._release.seal(told, exposed, self._transcript)

    def _take_model(self, message: ModelRequest) -> Nothing:
        settings = self.training.settings
        if settings is None:
            raise ProtocolError(f"party {self.name} has not trained; it takes no model")
        whole = None if message.everything else self.view.n_parties
        own = self.transformation
        self._release.take(message, settings, self.data.classes, whole, own)
        return Nothing()
