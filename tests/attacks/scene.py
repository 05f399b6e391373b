"""Federations to attack: cuts of real tables, and what each role sees of a run.

Not a test itself. A coordinator sees the recorded messages (:class:`Post`), a party its own memory
after every phase that it answered (:class:`Diary`). The whole table is for the judge only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any
from unittest.mock import patch

import numpy as np

from weft import federation as federation_module
from weft.algorithms.settings import Settings
from weft.channels import LocalChannel, Message
from weft.crypto.fixed_point import FixedPoint
from weft.crypto.payload import read_block, words_of
from weft.data import Table, Tile, load
from weft.federation import Federation, Preparation, Trained
from weft.guards import OPEN, Terms
from weft.ledger.outlook import Outlook, outlook
from weft.ledger.words import paragraphs
from weft.party import Party
from weft.sums.bounds import Bounds

#: Terms of careful parties that know that there are only two of them.
PAIRS = Terms(allow_pairs=True)


@cache
def table_of(name: str, rows: int | None = None, *, scaled: bool = True, classes: int = 2) -> Table:
    """The first rows of a real table, standardised and of norm at most one, or as it is.

    With two classes, digits are small (0 to 4) or large.
    """
    whole = load(name)
    block = np.array(whole.block, np.float64)[:rows]
    varies = block.std(axis=0) > 0
    block, features, labels = block[:, varies], whole.features[varies], whole.labels[:rows]
    if scaled:
        block = (block - block.mean(axis=0)) / block.std(axis=0)
        block /= np.linalg.norm(block, axis=1).max() * (1 + 1e-9)
    if name == "digits" and classes == 2:
        labels = (labels > 4).astype(np.int64)
    return Table(whole.ids[:rows], features, np.ascontiguousarray(block), labels, whole.task, name)


def tile_of(table: Table, rows: Any = slice(None), columns: Any = slice(None)) -> Tile:
    """A part of a table, with its labels."""
    block = np.ascontiguousarray(table.block[rows][:, columns])
    return Tile.make(table.ids[rows], table.features[columns], block, table.labels[rows])


def by_rows(table: Table, parties: int) -> dict[str, tuple[Tile, ...]]:
    """All features of an even share of the samples each."""
    parts = np.array_split(np.arange(table.n), parties)
    return {f"p{k + 1}": (tile_of(table, part),) for k, part in enumerate(parts)}


def by_columns(table: Table, parties: int) -> dict[str, tuple[Tile, ...]]:
    """All samples of an even share of the features each."""
    parts = np.array_split(np.arange(table.m), parties)
    return {f"p{k + 1}": (tile_of(table, columns=part),) for k, part in enumerate(parts)}


def by_both(table: Table, k: int, q: int) -> dict[str, tuple[Tile, ...]]:
    """K groups of samples × Q groups of features, one party to each field."""
    rows = np.array_split(np.arange(table.n), k)
    columns = np.array_split(np.arange(table.m), q)
    return {
        f"r{a + 1}c{b + 1}": (tile_of(table, some, others),)
        for a, some in enumerate(rows)
        for b, others in enumerate(columns)
    }


# ── runs ──────────────────────────────────────────────────────────────────────────────────────


@dataclass
class Moment:
    """A party's memory after it answered a phase."""

    phase: str
    message: Message
    seen: dict[str, Any]


#: A block that a party decrypted: its kind, the slots (None: all shared ones) and the values.
Opened = tuple[str, Any, np.ndarray]
Note = Callable[[Party, str, Message, list[Opened]], dict[str, Any]]


@dataclass
class Diary:
    """What one party could write down of a run: whatever lies in its own memory.

    Parameters
    ----------
    note
        Takes the party, the phase that it just answered, the message and all blocks that it
        decrypted on the way; returns what is worth keeping.
    """

    note: Note
    moments: list[Moment] = field(default_factory=list)
    opened: list[Opened] = field(default_factory=list)

    def before(self, party: Party) -> None:
        """See what the party's own cipher opens from now on."""
        self.opened = []
        reveal = type(party._cipher).reveal

        def seen(kind: str, slots: Any, *rest: Any) -> np.ndarray:
            values = reveal(party._cipher, kind, slots, *rest)
            self.opened.append((kind, slots, values.copy()))
            return values

        party._cipher.reveal = seen  # type: ignore[method-assign]

    def after(self, party: Party, phase: str, message: Message) -> None:
        seen = self.note(party, phase, message, self.opened)
        if seen:
            kept = {k: v.copy() if isinstance(v, np.ndarray) else v for k, v in seen.items()}
            self.moments.append(Moment(phase, message, kept))

    def all(self, name: str) -> list[Any]:
        """Everything that was noted under a name, in order."""
        return [moment.seen[name] for moment in self.moments if name in moment.seen]


@dataclass
class Run:
    """A run, and the parties that took part in it."""

    trained: Trained
    federation: Federation
    settings: Settings

    def party(self, name: str) -> Party:
        return self.federation.parties[name]

    @property
    def post(self) -> Post:
        """What the coordinator got and gave."""
        return Post(self)

    def rows_of(self, name: str, table: Table) -> np.ndarray:
        """For the judge: which rows of the table are a party's local rows."""
        party = self.party(name)
        where = {i: k for k, i in enumerate(table.ids.tolist())}
        out = np.full(party.seat.n_rows, -1)
        for tile, slots in zip(party._tiles, party.seat.tile_rows, strict=True):
            held = slots >= 0
            out[slots[held]] = [where[i] for i in tile.ids[held].tolist()]
        return out

    def columns_of(self, name: str, table: Table) -> np.ndarray:
        """For the judge: which columns of the table are a party's local columns; −1: constant."""
        party = self.party(name)
        where = {f: k for k, f in enumerate(table.features.tolist())}
        out = np.full(party.seat.n_columns, -1)
        for tile, slots in zip(party._tiles, party.seat.tile_columns, strict=True):
            out[slots] = [where[f] for f in tile.features.tolist()]
        return out


class Post:
    """The coordinator's view: all messages, and what it knows of the fixed point."""

    def __init__(self, run: Run) -> None:
        self.entries = run.trained.channel.transcript or []
        self.parties = list(run.federation.parties)
        start = next(e.message for e in self.entries if e.phase == "start")
        holders = int(run.trained.roster.rows.holders.lengths.max())
        settings = run.settings
        self.n_samples = run.trained.roster.n_samples
        self.bounds = Bounds.of(
            settings.make_loss(), start["lam"], holders, start["unit"], start["label"]
        )

    def units(self, kind: str) -> float:
        """What a unit of fixed point is worth."""
        bound = {"z": self.bounds.z, "v": self.bounds.v, "alpha": self.bounds.alpha}[kind]
        unit = FixedPoint(bound, kind).unit
        return unit * self.n_samples if kind == "v" else unit

    def replies(self, party: str, field_: str, *phases: str) -> Iterator[tuple[Any, Message]]:
        """(message, reply) of one party where the reply has a field."""
        for entry in self.entries:
            if entry.party == party and field_ in entry.reply and entry.phase in phases:
                yield entry.message, entry.reply

    def words(self, packed: bytes, kind: str) -> np.ndarray:
        """The words of a block as if nothing hid them."""
        words = words_of(read_block(packed, kind), kind)
        return words.view(np.int64) * self.units(kind)


@contextmanager
def watched(diaries: Mapping[str, Diary], around: Any = None) -> Iterator[None]:
    """Let parties of every federation made here keep diaries.

    ``around`` may wrap each party's handler besides: a coordinator that does what it likes.
    """

    class Watched(LocalChannel):
        def __init__(self, handlers: Mapping[str, Any], **options: Any) -> None:
            mine = {name: writing(name, call) for name, call in handlers.items()}
            if around is not None:
                mine = {name: around(name, call) for name, call in mine.items()}
            super().__init__(mine, **options)

    def writing(name: str, call: Any) -> Any:
        if name not in diaries:
            return call

        def answer(phase: str, message: Message) -> Message:
            diaries[name].before(call.__self__)
            reply = call(phase, message)
            diaries[name].after(call.__self__, phase, message)
            return reply

        return answer

    with patch.object(federation_module, "LocalChannel", Watched):
        yield


def run(
    tiles: Mapping[str, Sequence[Tile]],
    settings: Settings,
    terms: Terms = OPEN,
    *,
    preparation: Preparation | None = None,
    diaries: Mapping[str, Diary] | None = None,
    around: Any = None,
    record: bool = False,
) -> Run:
    """Train a federation of these tiles; diaries are written on the way."""
    with watched(diaries or {}, around):
        federation = Federation(tiles, preparation, record=record, terms=terms)
        trained = federation.train(settings)
    return Run(trained, federation, trained.settings)


def look_ahead(
    tiles: Mapping[str, Sequence[Tile]], settings: Settings, terms: Terms
) -> tuple[Outlook, str]:
    """What ``weft check`` would say before a run: what it found, and its words."""
    federation = Federation(tiles)
    _, roster, _, classes = federation.assemble(settings)
    squares = sum(float(party.table().squares.sum()) for party in federation.parties.values())
    found = outlook(
        roster,
        settings,
        terms,
        classes=1 if classes is None or len(classes) == 2 else len(classes),
        mean_square=squares / roster.n_samples,
    )
    return found, " ".join(" ".join(paragraphs(found, [])).split())
