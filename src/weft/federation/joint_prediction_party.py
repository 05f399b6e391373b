"""A party of a joint prediction: new samples, the model, and its part of every score."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Ints, Slots
from weft.crypto.party_key_agreement import Keys
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.randomness_kept_for_restart import Memory, RandomnessLog
from weft.data.tile import Tile
from weft.errors import DataError, ProtocolError
from weft.federation.messages import (
    JOINT_PARTIAL,
    JOINT_SCORES,
    JOINT_SIZE,
    PartialScoresReply,
    PartialScoresRequest,
    ScoresReply,
    ScoresRequest,
)
from weft.federation.model import Model
from weft.federation.participation_terms_and_classes.party import AnnouncingParty
from weft.federation.prediction_table import Predictions
from weft.federation.resume_fingerprint import insist_on_origin
from weft.federation.sealed_score_letter import seal_scores
from weft.matching.id_and_name_forms import normal_features
from weft.matching.messages import VIEW, ViewReply, ViewRequest
from weft.matching.party import MatchingParty
from weft.matching.party_view import PartyView
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.ledger_contents import Question
from weft.privacy.ledger.run_booking import Ledger
from weft.privacy.ledger.sum_booking import count_sums
from weft.protocol import Answer, Message, Phase, answer, answers, fields_of, pack
from weft.protocol.shared_fields import PUBLIC
from weft.sums.maxima_from_digit_sums import LargestParty
from weft.sums.party_contribution import Wire
from weft.sums.party_table_products import Block
from weft.sums.party_table_with_overlap_weights import build_table
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

#: What others are told of a table that has nothing to do with the model.
NO_COLUMN = "has a table of new samples in which no column is a feature of the model"


@dataclass(frozen=True)
class Asker:
    """The one party that reads scores.

    Attributes
    ----------
    name, number
        Its name, and its number among the parties.
    identity
        Its public keys, as the party that is told of it knows them; None: it takes any.
    company
        All parties of the prediction, in their order; empty: they are not remembered.
    """

    name: str
    number: int
    identity: PublicIdentity | None = None
    company: tuple[str, ...] = ()


class JointParty:
    """A party that holds new samples and the released model, of which it uses its columns.

    Parameters
    ----------
    asker
        Who alone reads scores, of its own samples; None: every holder reads those of its samples.
    memory
        As in :class:`weft.federation.party.Party`.
    remarks
        What became of cells that training did not foresee, for its owner.

    Attributes
    ----------
    predictions
        What it may read, once scores were told; None before.
    """

    #: After this phase the party that asked has predictions, and the name of their file.
    saved_models: ClassVar = {JOINT_SCORES.name: (("predictions", "predictions.csv"),)}

    def __init__(
        self,
        name: str,
        tiles: Sequence[Tile],
        model: Model,
        keys: Keys,
        cipher: str,
        ledger: Ledger | None = None,
        consent: Consent | None = None,
        *,
        asker: Asker | None = None,
        memory: Memory | None = None,
        remarks: Sequence[str] = (),
    ) -> None:
        self.name, self.remarks = name, tuple(remarks)
        self._consent = consent or Consent.open(name)
        self._consent.check_own(keys.identity.public, sum(t.n for t in tiles), labels=False)
        self._consent.check_model()
        self._consent.check_cipher(cipher)
        self._model, self._identity, self._asker = model, keys.identity, asker
        self._tiles, self._places = _known_columns(name, tiles, model)
        self._draws = draws = RandomnessLog(memory)
        if memory is not None:
            insist_on_origin(draws, self._tiles, keys, cipher, self._consent, model)
        self._keyring = Keyring(keys, cipher, self._consent.terms, draws)
        self._cipher = self._keyring.cipher
        self._announcing = AnnouncingParty(
            name, self._consent, self._keyring, draws, labels=lambda: ()
        )
        roster = self._consent.roster
        self._matching = MatchingParty(
            name,
            self._tiles,
            keys,
            self._keyring,
            accept=self._consent.check_matching,
            known=None if roster is None else roster.members,
            draws=draws,
        )
        self._scores: Floats = np.zeros((0, len(model.coef)))
        #: Per shared row, whether somebody reads its score.
        self._asked: Flags = np.zeros(0, bool)
        self._largest = LargestParty(self._cipher)
        #: Where sums of scores go, once they were told.
        self._wire: Wire | None = None
        self.predictions: Predictions | None = None
        self._account = None
        if ledger is not None:
            self._account = ledger.account(name, "predict", self._consent.terms, draws)
        self._phases = {
            **self._announcing.answers(),
            **self._matching.answers(),
            **answers(
                answer(VIEW, self._take_view),
                answer(JOINT_SIZE, self._size),
                answer(JOINT_PARTIAL, self._partial),
                answer(JOINT_SCORES, self._take_scores),
            ),
        }

    def on(self, phase: Phase[Any, Any], message: Message) -> Message:
        """Answer one phase."""
        found: Answer | None = self._phases.get(phase.name)
        if found is None or type(message) is not phase.request:
            raise ProtocolError(f"phase '{phase.name}' is not part of joint prediction")
        if self._draws.lasting:
            self._draws.hear(phase.name, pack(fields_of(message)))
        self._consent.check_company(message)
        self._cipher.begin(message, phase.name)
        return found.handle(message)

    def replaying(self) -> AbstractContextManager[None]:
        """While the messages of before an interruption come again."""
        return self._draws.replaying()

    @property
    def _reads(self) -> bool:
        """Whether this party gets scores."""
        return self._asker is None or self._asker.name == self.name

    def _take_view(self, message: ViewRequest) -> ViewReply:
        if self._matching.seated:
            raise ProtocolError(f"party {self.name} has taken its view in this prediction already")
        view = self._matching.sit(message)
        if view.overlap != self._model.overlap:
            raise ProtocolError(
                f"party {self.name} was told that overlap = '{view.overlap}', but the model was "
                f"trained with overlap = '{self._model.overlap}'; stop this run"
            )
        self._announcing.check_parties(view.n_parties)
        self._consent.check_sample_sums(view)
        self._check_asker(message)
        self._asked = self._asked_rows(view)
        self._consent.check_claims(self._claimed(view))
        # Of the samples of the one that asks, nobody else reads scores.
        by_others = self._asked & (self._asker is None or not self._reads)
        asked = int(by_others.sum())
        self._consent.check_asked(asked)
        reply = self._matching.make_seeds(message, alone=self._consent.alone(view.n_parties))
        sum_counter = count_sums(self._cipher, view, by_others)
        if self._account is not None:
            self._account.open(view, self._matching.ids, sum_counter)
            if asked:
                self._account.note_question(
                    self._question(asked), by_others, self._consent.check_question
                )
        return reply

    def _question(self, asked: int) -> Question:
        """What others are to read of its samples, for its ledger."""
        return Question(
            asker="" if self._asker is None else self._asker.name,
            samples=asked,
            scores=asked * len(self._model.coef),
            company=() if self._asker is None else self._asker.company,
        )

    def _check_asker(self, message: ViewRequest) -> None:
        """Refuse another party in the place of the one that asks."""
        asker = self._asker
        if asker is None or asker.identity is None or message.seeds is None:
            return
        cards = message.seeds.participants.cards()
        inside = asker.number < len(cards)
        if not inside or cards[asker.number][:PUBLIC] != asker.identity.to_bytes():
            raise ProtocolError(
                f"party {self.name} was told of another party in the place of {asker.name}, which "
                "asks for scores; stop this run"
            )

    def _asked_rows(self, view: PartyView) -> Flags:
        """Per shared row, whether its score is read by whoever asked: of its own samples alone."""
        if self._asker is None:
            return np.ones(view.n_shared_rows, bool)
        sheets = view.row_sheets
        held = np.zeros(len(sheets.lengths), bool)
        held[sheets.cohort[sheets.holders == self._asker.number]] = True
        return held[view.row_cohort[: view.n_shared_rows]]

    def _claimed(self, view: PartyView) -> bool:
        """Whether the party that asks says to have cells of a sample which this party has too."""
        if self._asker is None or self._reads:
            return False
        sheets, cells = view.row_sheets, view.row_sheets.cells > 0
        found = np.zeros((2, len(sheets.lengths), cells.shape[1]), bool)
        for place, party in enumerate((view.party, self._asker.number)):
            entries = sheets.holders == party
            found[place, sheets.cohort[entries]] = cells[entries]
        return bool((found[0] & found[1]).any())

    def _size(self, message: DigitRequest) -> DigitReply:
        """One digit of the largest part of a score that any party has."""
        return self._largest.tell(message, self._largest_part)

    def _largest_part(self) -> Floats:
        self._scores = self._partial_scores()
        return np.array([np.abs(self._scores).max(initial=0.0)])

    def _partial_scores(self) -> Floats:
        """This party's part of the scores, relative to a sample at every feature's centre."""
        view = self._matching.view
        coef = np.zeros((view.n_columns, len(self._model.coef)))
        blocks: list[Block] = []
        for tile, places, columns in zip(self._tiles, self._places, view.tile_columns, strict=True):
            coef[columns] = self._model.coef[:, places].T
            blocks.append(self._model.centred(tile.block, places))
        return build_table(view, blocks, None).products(None, coef)

    def _partial(self, message: PartialScoresRequest) -> PartialScoresReply:
        if self._wire is not None:
            raise ProtocolError(f"party {self.name} has told its part of the scores already")
        number = None if self._asker is None else self._asker.number
        if (message.asker, message.model) != (number, self._model.fingerprint):
            raise ProtocolError(
                f"party {self.name} was told of another party that asks, or of another model, than "
                "it agreed to; stop this run"
            )
        # In another unit than the others', its part would be nothing, or everything.
        self._largest.insist_on_unit(message.unit)
        view = self._matching.view
        shared, bound = view.n_shared_rows, message.unit * view.row_holders
        self._wire = Wire("z", shared, bound, self._cipher)
        # Nobody reads the rest, and so nothing of it is sent.
        part = np.where(self._asked[:, None], self._scores[:shared], 0.0)
        sent = self._wire.send(part, message.z_pads) if shared else None
        return PartialScoresReply(z=sent)

    def _take_scores(self, message: ScoresRequest) -> ScoresReply:
        if self._wire is None or self.predictions is not None or not self._reads:
            raise ProtocolError(f"party {self.name} does not wait for scores")
        shared = self._matching.view.n_shared_rows
        if shared:
            self._scores[:shared] = self._wire.open(message.z, self._scores.shape[1])
        self._scores += self._model.centre_score
        rows, first = self._rows_once()
        written = np.concatenate([tile.ids for tile in self._tiles])
        self.predictions = Predictions(self._model, written[first], self._scores[rows])
        if self._asker is None:
            return ScoresReply()
        letter = seal_scores(self.predictions, self._identity, self._keyring.run_id)
        return ScoresReply(scores=letter)

    def close(self) -> None:
        """The prediction is over: what the ledger had booked ahead becomes what there was."""
        if self._account is not None:
            self._account.close()

    def compared_ids(self) -> NDArray[np.object_]:
        """Ids of `predictions` in the form in which they are compared."""
        _, first = self._rows_once()
        compared: NDArray[np.object_] = np.concatenate(self._matching.ids)[first]
        return compared

    def _rows_once(self) -> tuple[Slots, Ints]:
        """The slot of every sample, once, and where in its tiles it comes first."""
        rows = np.concatenate(self._matching.view.tile_rows)
        first = np.sort(np.unique(rows, return_index=True)[1])
        return rows[first], first


def _known_columns(
    name: str, tiles: Sequence[Tile], model: Model
) -> tuple[list[Tile], list[NDArray[np.int64]]]:
    """The columns of each tile that are features of the model, and their places in it."""
    place = {feature: i for i, feature in enumerate(normal_features(model.features).tolist())}
    kept: list[Tile] = []
    places: list[NDArray[np.int64]] = []
    for tile in tiles:
        found = [place.get(f, -1) for f in normal_features(tile.features).tolist()]
        known = np.array(found) >= 0
        if not known.any():
            raise DataError(
                f"party {name}, {tile.source or 'tile'}: none of its columns is a feature of "
                "the model; check the column names",
                harmless=NO_COLUMN,
            )
        kept.append(tile.columns(np.flatnonzero(known)))
        places.append(np.array(found)[known])
        model.check_blanks(kept[-1].block, places[-1])
    return kept, places
