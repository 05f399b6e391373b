"""Joint prediction: samples cut over several parties get their scores through a sample sum."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.channels import Channel, LocalChannel, Message
from weft.channels.message import array
from weft.crypto import adder_of, cipher_of
from weft.data.tile import Tile
from weft.errors import DataError, ProtocolError
from weft.matching.meet import meet
from weft.matching.roster import Overlap
from weft.matching.seat import Seat
from weft.matching.tokens import tokens_of
from weft.model import Model
from weft.sums.contribution import Wire
from weft.sums.local_table import Block, build_table
from weft.sums.totals import Layout, RunningTotals

Floats = NDArray[np.float64]


class JointParty:
    """A party that holds new samples and the released model, of which it uses its columns."""

    def __init__(
        self, name: str, tiles: Sequence[Tile], model: Model, secret: bytes, cipher: str
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
        self._secret = secret
        self._cipher = cipher_of(cipher)
        self._seat: Seat | None = None
        self._scores: Floats = np.zeros((0, len(model.coef)))

    def on(self, phase: str, message: Message) -> Message:
        """Answer one phase."""
        phases = {
            "match.tokens": self._tokens,
            "match.seat": self._take_seat,
            "joint.partial": self._partial,
            "joint.scores": self._take_scores,
        }
        if phase not in phases:
            raise ProtocolError(f"phase '{phase}' is not part of joint prediction")
        return phases[phase](message)

    def _tokens(self, message: Message) -> Message:
        rows = [tokens_of(t.ids, self._secret, "rows") for t in self._tiles]
        columns = [tokens_of(t.features, self._secret, "columns") for t in self._tiles]
        count = sum(t.n for t in self._tiles)
        return {
            "rows": np.concatenate(rows),
            "columns": np.concatenate(columns),
            "labelled": np.ones(count, bool),
            "labels": np.zeros(count, np.uint64),
            "row_counts": np.array([t.n for t in self._tiles]),
            "column_counts": np.array([t.m for t in self._tiles]),
        }

    def _take_seat(self, message: Message) -> Message:
        self._seat = Seat.from_message(message)
        return {}

    def _partial(self, message: Message) -> Message:
        """This party's part of the scores, relative to a sample at every feature's centre."""
        seat = self._require_seat()
        coef = np.zeros((seat.n_columns, len(self._model.coef)))
        blocks: list[Block] = []
        for tile, places, columns in zip(self._tiles, self._places, seat.tile_columns, strict=True):
            coef[columns] = self._model.coef[:, places].T
            blocks.append(_centred(tile.block, self._model.scaling[0][places]))
        self._scores = build_table(seat, blocks, None).products(None, coef)
        self._wire = Wire("z", seat.contributors, self._cipher)
        shared = seat.n_shared_rows
        return {"z": self._wire.send(self._scores[:shared])} if shared else {}

    def _take_scores(self, message: Message) -> Message:
        shared = self._require_seat().n_shared_rows
        if shared:
            self._scores[:shared] = self._wire.open(array(message, "z"))
        self._scores += self._model.centre_score
        return {}

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
    roster = meet(
        channel, classes=None, overlap=overlap, confirm_separate_ids=True, follow_draws=False
    )
    parties = channel.parties
    replies = channel.ask("joint.partial", {p: {} for p in parties}).insist("joint prediction")
    totals = RunningTotals("z", Layout(roster.rows, parties), classes, adder_of(cipher))
    totals.add(replies)
    messages: dict[str, Message] = {
        p: {"z": b} if len(b) else {} for p, b in totals.blocks(parties).items()
    }
    channel.ask("joint.scores", messages).insist("joint prediction")


def predict_scores(
    model: Model,
    tiles: Mapping[str, Sequence[Tile]],
    *,
    overlap: Overlap = "mean",
    cipher: str = "plain",
) -> tuple[NDArray[np.object_], Floats]:
    """Scores of samples whose features lie at several parties.

    A feature that nobody holds for a sample counts as its centre (zero without scaling).

    Returns
    -------
    ids, scores
        Every sample once, in order of first appearance; scores are (samples × classes).
    """
    secret = token_bytes(32)
    parties = {name: JointParty(name, held, model, secret, cipher) for name, held in tiles.items()}
    channel = LocalChannel({name: party.on for name, party in parties.items()})
    sum_scores(channel, len(model.coef), cipher, overlap)
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
