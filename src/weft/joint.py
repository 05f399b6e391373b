"""Joint prediction: samples cut over several parties get their scores through a sample sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.channels import Channel, LocalChannel, Message, Sink
from weft.channels.message import array, binary, integer, number
from weft.crypto import Adder
from weft.crypto.keyring import AXES, Keyring, Keys
from weft.data.tile import Tile
from weft.errors import DataError, ProtocolError
from weft.keys import PartyKeys, check_keys, ephemeral_keys
from weft.ledger.account import Account, Ledger, count_sums
from weft.matching.meet import meet
from weft.matching.roster import Overlap
from weft.matching.seat import Seat
from weft.matching.tokens import tokens_of
from weft.model import Model
from weft.sums.contribution import Wire
from weft.sums.extremes import answer_largest, units_above
from weft.sums.layout import Layout
from weft.sums.local_table import Block, build_table
from weft.sums.totals import RunningTotals

Floats = NDArray[np.float64]


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
    ) -> None:
        self.name = name
        self._model = model
        place = {feature: i for i, feature in enumerate(model.features.tolist())}
        self._tiles: list[Tile] = []
        self._places: list[NDArray[np.int64]] = []
        for tile in tiles:
            known = np.array([f in place for f in tile.features.tolist()], bool)
            if not known.any():
                raise DataError(
                    f"party {name}, {tile.source or 'tile'}: none of its columns is a feature of "
                    "the model; check the column names"
                )
            self._tiles.append(tile.columns(np.flatnonzero(known)))
            self._places.append(np.array([place[f] for f in self._tiles[-1].features.tolist()]))
        self._keyring = Keyring(keys, cipher)
        self._cipher = self._keyring.cipher
        self._makers: dict[str, NDArray[np.int32]] = {}
        self._seat: Seat | None = None
        self._scores: Floats = np.zeros((0, len(model.coef)))
        self._account = None if ledger is None else Account(ledger, name, "predict")

    def on(self, phase: str, message: Message) -> Message:
        """Answer one phase."""
        phases = {
            "match.tokens": self._tokens,
            "match.seat": self._take_seat,
            "match.keys": self._take_keys,
            "joint.size": self._size,
            "joint.partial": self._partial,
            "joint.scores": self._take_scores,
        }
        if phase not in phases:
            raise ProtocolError(f"phase '{phase}' is not part of joint prediction")
        self._cipher.begin(message)
        return phases[phase](message)

    def _tokens(self, message: Message) -> Message:
        announced = self._keyring.announce(binary(message, "run"))
        secret = self._keyring.token_key()
        rows = [tokens_of(t.ids, secret, "rows") for t in self._tiles]
        columns = [tokens_of(t.features, secret, "columns") for t in self._tiles]
        count = sum(t.n for t in self._tiles)
        return {
            **announced,
            "rows": np.concatenate(rows),
            "columns": np.concatenate(columns),
            "labelled": np.ones(count, bool),
            "labels": np.zeros(count, np.uint64),
            "row_counts": np.array([t.n for t in self._tiles]),
            "column_counts": np.array([t.m for t in self._tiles]),
        }

    def _take_seat(self, message: Message) -> Message:
        seat = self._seat = Seat.from_message(message)
        boxes = self._keyring.make(message, seat.party, seat.shared_rows, seat.shared_columns)
        tally = count_sums(self._cipher, seat)
        if self._account is not None:
            self._account.open(seat, [tile.ids for tile in self._tiles], tally)
        self._makers = {a: array(message, f"{a}.maker") for a in AXES if f"{a}.maker" in message}
        return {**boxes, "key": self._cipher.key}

    def _take_keys(self, message: Message) -> Message:
        self._keyring.take(message, self._makers)
        return {}

    def _size(self, message: Message) -> Message:
        """One digit of the largest part of a score that any party has."""
        if integer(message, "digit") == 0:
            self._scores = self._partial_scores()
        return answer_largest(np.array([np.abs(self._scores).max(initial=0.0)]), message,
                              self._cipher)  # fmt: skip

    def _partial_scores(self) -> Floats:
        """This party's part of the scores, relative to a sample at every feature's centre."""
        seat = self._require_seat()
        coef = np.zeros((seat.n_columns, len(self._model.coef)))
        blocks: list[Block] = []
        for tile, places, columns in zip(self._tiles, self._places, seat.tile_columns, strict=True):
            coef[columns] = self._model.coef[:, places].T
            blocks.append(_centred(tile.block, self._model.scaling[0][places]))
        return build_table(seat, blocks, None).products(None, coef)

    def _partial(self, message: Message) -> Message:
        seat = self._require_seat()
        shared, bound = seat.n_shared_rows, number(message, "unit") * seat.row_holders
        self._wire = Wire("z", shared, bound, self._cipher)
        return {"z": self._wire.send(self._scores[:shared], message)} if shared else {}

    def _take_scores(self, message: Message) -> Message:
        shared = self._require_seat().n_shared_rows
        if shared:
            self._scores[:shared] = self._wire.open(message.get("z"), self._scores.shape[1])
        self._scores += self._model.centre_score
        return {}

    def close(self) -> None:
        """The prediction is over: what the ledger had booked ahead becomes what there was."""
        if self._account is not None:
            self._account.close()

    def _require_seat(self) -> Seat:
        if self._seat is None:
            raise ProtocolError(f"party {self.name} has no seat yet; matching comes first")
        return self._seat

    def scores(self) -> tuple[NDArray[np.object_], Floats]:
        """Ids and scores of this party's samples."""
        rows = self._require_seat().tile_rows
        ids = np.concatenate([t.ids for t in self._tiles])
        return ids, self._scores[np.concatenate(rows)]


def sum_scores(channel: Channel, classes: int, cipher: str, overlap: Overlap = "mean") -> None:
    """Coordinator: match the new samples and add up the partial scores, unread."""
    adder = Adder(cipher)
    roster = meet(
        channel,
        adder,
        classes=None,
        overlap=overlap,
        confirm_separate_ids=True,
        follow_draws=False,
    )
    parties = channel.parties
    (unit,) = units_above(channel, adder, "joint.size").tolist()
    messages: dict[str, Message] = adder.open(parties)
    for message in messages.values():
        message["unit"] = unit
    totals = RunningTotals("z", Layout(roster.rows, parties), classes, adder)
    totals.invite(messages)
    totals.add(channel.ask("joint.partial", messages).insist("joint prediction"))
    messages = adder.open(parties)
    for party, block in totals.blocks(parties).items():
        messages[party]["z"] = block
    channel.ask("joint.scores", messages).insist("joint prediction")


def predict_scores(
    model: Model,
    tiles: Mapping[str, Sequence[Tile]],
    *,
    overlap: Overlap = "mean",
    cipher: str = "pad",
    keys: Mapping[str, PartyKeys] | None = None,
    record: Sink | None = None,
    ledger: Ledger | None = None,
) -> tuple[NDArray[np.object_], Floats]:
    """Scores of samples whose features lie at several parties.

    A feature that nobody holds for a sample counts as its centre (zero without scaling).

    Parameters
    ----------
    tiles
        Party name to the tiles of new samples it holds.
    keys
        The parties' keys, from files; None: made for this prediction.
    record
        Takes every message, to see what each side sees.
    ledger
        Where the parties keep count of the sums that they open and show; None: nowhere.

    Returns
    -------
    ids, scores
        Every sample once, in order of first appearance; scores are (samples × classes).
    """
    check_keys(keys, tiles)
    own = keys or ephemeral_keys(tuple(tiles))
    parties = {
        name: JointParty(name, held, model, own[name], cipher, ledger)
        for name, held in tiles.items()
    }
    channel = LocalChannel(
        {name: party.on for name, party in parties.items()}, record=record or False
    )
    try:
        sum_scores(channel, len(model.coef), cipher, overlap)
    finally:
        for party in parties.values():
            party.close()
    found: dict[str, Any] = {}
    for party in parties.values():
        for sample, score in zip(*party.scores(), strict=True):
            found.setdefault(sample, score)
    ids = np.array(list(found), dtype=object)
    return ids, np.array(list(found.values())).reshape(len(ids), len(model.coef))


def _centred(block: Block, centre: Floats) -> Block:
    if isinstance(block, np.ndarray):
        return np.nan_to_num(block - centre)
    return block if not centre.any() else np.nan_to_num(block.toarray() - centre)
