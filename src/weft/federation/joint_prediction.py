"""Joint prediction: samples cut over several parties get their scores through a sample sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto import Adder
from weft.crypto.keyring import Keyring, Keys
from weft.crypto.keys import PartyKeys, check_keys, ephemeral_keys
from weft.data.tile import Tile
from weft.errors import DataError, ProtocolError
from weft.federation.messages import (
    JOINT_PARTIAL,
    JOINT_SCORES,
    JOINT_SIZE,
    PartialScoresReply,
    PartialScoresRequest,
    ScoresRequest,
)
from weft.federation.model import Model
from weft.guards.terms import Matching
from weft.matching.coordinator import meet
from weft.matching.holding_map import Overlap
from weft.matching.id_normalization import normal_features
from weft.matching.messages import VIEW, ViewReply, ViewRequest
from weft.matching.party import MatchingParty
from weft.privacy.agreement.consent import Consent, key_holders
from weft.privacy.ledger.run_booking import Account, Ledger, count_sums
from weft.protocol import (
    Answer,
    Channel,
    LocalChannel,
    Message,
    Nothing,
    Phase,
    Sink,
    answer,
    answers,
)
from weft.sums.contribution import Wire
from weft.sums.local_table import Block, build_table
from weft.sums.maxima import LargestParty, units_above
from weft.sums.messages import DigitReply, DigitRequest
from weft.sums.running_totals import RunningTotals
from weft.sums.shared_slot_layout import Layout


class JointParty:
    """A party that holds new samples and the released model, of which it uses its columns."""

    def __init__(
        self,
        name: str,
        tiles: Sequence[Tile],
        model: Model,
        keys: Keys,
        cipher: str,
        ledger: Ledger | None = None,
        consent: Consent | None = None,
    ) -> None:
        self.name = name
        self._consent = consent or Consent.open(name)
        self._consent.check_own(keys.identity.public, sum(t.n for t in tiles), labels=False)
        self._consent.check_model()
        self._consent.check_cipher(cipher)
        self._model = model
        place = {feature: i for i, feature in enumerate(normal_features(model.features).tolist())}
        self._tiles: list[Tile] = []
        self._places: list[NDArray[np.int64]] = []
        for tile in tiles:
            found = [place.get(f, -1) for f in normal_features(tile.features).tolist()]
            known = np.array(found) >= 0
            if not known.any():
                raise DataError(
                    f"party {name}, {tile.source or 'tile'}: none of its columns is a feature of "
                    "the model; check the column names"
                )
            self._tiles.append(tile.columns(np.flatnonzero(known)))
            self._places.append(np.array(found)[known])
            model.check_blanks(self._tiles[-1].block, self._places[-1])
        self._keyring = Keyring(keys, cipher, self._consent.terms)
        self._cipher = self._keyring.cipher
        roster = self._consent.roster
        self._matching = MatchingParty(
            name,
            self._tiles,
            keys,
            self._keyring,
            accept=self._consent.check_matching,
            known=None if roster is None else roster.members,
        )
        self._scores: Floats = np.zeros((0, len(model.coef)))
        self._largest = LargestParty(self._cipher)
        #: Where sums of scores go, once they were told.
        self._wire: Wire | None = None
        self._finished = False
        self._account = (
            None
            if ledger is None
            else Account(
                ledger,
                name,
                "predict",
                strict=not self._consent.terms.allow_exposure,
                most_explained=self._consent.terms.most_explained,
            )
        )

    def _answers(self) -> dict[str, Answer]:
        return {
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
        found = self._answers().get(phase.name)
        if found is None or type(message) is not phase.request:
            raise ProtocolError(f"phase '{phase.name}' is not part of joint prediction")
        self._consent.check_company(message)
        self._cipher.begin(message, phase.name)
        return found.handle(message)

    def _take_view(self, message: ViewRequest) -> ViewReply:
        if self._matching.seated:
            raise ProtocolError(f"party {self.name} has taken its view in this prediction already")
        view = self._matching.sit(message)
        self._consent.check_sample_sums(view)
        reply = self._matching.make_seeds(message, alone=self._consent.alone(view.n_parties))
        sum_counter = count_sums(self._cipher, view)
        if self._account is not None:
            self._account.open(view, self._matching.ids, sum_counter)
        return reply

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
        # In another unit than the others', its part would be nothing, or everything.
        self._largest.insist_on_unit(message.unit)
        view = self._matching.view
        shared, bound = view.n_shared_rows, message.unit * view.row_holders
        self._wire = Wire("z", shared, bound, self._cipher)
        sent = self._wire.send(self._scores[:shared], message.z_pads) if shared else None
        return PartialScoresReply(z=sent)

    def _take_scores(self, message: ScoresRequest) -> Nothing:
        if self._wire is None or self._finished:
            raise ProtocolError(f"party {self.name} does not wait for scores")
        self._finished = True
        shared = self._matching.view.n_shared_rows
        if shared:
            self._scores[:shared] = self._wire.open(message.z, self._scores.shape[1])
        self._scores += self._model.centre_score
        return Nothing()

    def close(self) -> None:
        """The prediction is over: what the ledger had booked ahead becomes what there was."""
        if self._account is not None:
            self._account.close()

    def scores(self) -> tuple[NDArray[np.object_], NDArray[np.object_], Floats]:
        """Ids as compared, ids as written, and scores of this party's samples."""
        rows = np.concatenate(self._matching.view.tile_rows)
        written = np.concatenate([t.ids for t in self._tiles])
        return np.concatenate(self._matching.ids), written, self._scores[rows]


def sum_scores(
    channel: Channel,
    classes: int,
    cipher: str,
    overlap: Overlap = "mean",
    matching: Matching = "hmac",
    holders: Sequence[str] | None = None,
) -> None:
    """Coordinator: match the new samples and add up the partial scores, unread."""
    adder = Adder(cipher)
    roster = meet(
        channel,
        adder,
        classes=None,
        overlap=overlap,
        confirm_separate_ids=True,
        # Columns have the names of the model's features, whatever other names look like them.
        confirmed=("names",),
        follow_draws=False,
        matching=matching,
        holders=holders,
    )
    parties = channel.parties
    (unit,) = units_above(channel, adder, JOINT_SIZE).tolist()
    round_ = adder.advance()
    messages = {party: PartialScoresRequest(round=round_, unit=unit) for party in parties}
    totals = RunningTotals("z", Layout(roster.rows, parties), classes, adder)
    totals.invite(messages)
    totals.add(channel.ask(JOINT_PARTIAL, messages).insist("joint prediction"))
    round_ = adder.advance()
    scores = {party: ScoresRequest(round=round_) for party in parties}
    for party, block in totals.blocks(parties).items():
        scores[party].z = block
    channel.ask(JOINT_SCORES, scores).insist("joint prediction")


def predict_scores(
    model: Model,
    tiles: Mapping[str, Sequence[Tile]],
    *,
    overlap: Overlap = "mean",
    cipher: str = "pad",
    matching: Matching = "hmac",
    keys: Mapping[str, PartyKeys] | None = None,
    record: Sink | None = None,
    ledger: Ledger | None = None,
    consents: Mapping[str, Consent] | None = None,
) -> tuple[NDArray[np.object_], Floats]:
    """Scores of samples whose features lie at several parties.

    A feature that nobody holds for a sample counts as its centre (zero without scaling).

    Parameters
    ----------
    tiles
        Party name to the tiles of new samples it holds.
    matching
        Whether tokens of ids come from the run secret alone, or also through key holders.
    keys
        The parties' keys, from files; None: made for this prediction.
    record
        Takes every message, to see what each side sees.
    ledger
        Where the parties keep count of the sums that they open and show; None: nowhere.
    consents
        What each party takes part in; None: anything.

    Returns
    -------
    ids, scores
        Every sample once, in order of first appearance and as first written; scores are
        (samples × classes).
    """
    check_keys(keys, tiles)
    own = keys or ephemeral_keys(tuple(tiles))
    parties = {
        name: JointParty(name, held, model, own[name], cipher, ledger, (consents or {}).get(name))
        for name, held in tiles.items()
    }
    channel = LocalChannel(
        {name: party.on for name, party in parties.items()}, record=record or False
    )
    try:
        holders = key_holders(consents or {}, tiles)
        sum_scores(channel, len(model.coef), cipher, overlap, matching, holders)
    finally:
        for party in parties.values():
            party.close()
    found: dict[str, tuple[str, Floats]] = {}
    for party in parties.values():
        for sample, written, score in zip(*party.scores(), strict=True):
            found.setdefault(sample, (written, score))
    ids = np.array([written for written, _ in found.values()], dtype=object)
    scores = np.array([score for _, score in found.values()])
    return ids, scores.reshape(len(ids), len(model.coef))
