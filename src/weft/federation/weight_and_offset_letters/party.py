"""Weights and offsets that a party without labels holds: told to those who have the labels.

A loss is computed where the label is, so its weight and its offset must be known there. A holder
of such a column that lacks the labels writes a letter to every label holder of its samples, which
lists the values by slot. Who has labels it knows from sheets that all holders have confirmed, not
from the coordinator, which carries letters that it can neither read nor write. All of that takes a
term (``allow_told_columns``), since it tells a column cell by cell. An offset in the holder's part
of the scores would tell no less: solvers get these by direction, and the offset is one of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Literal, TypeAlias

import msgspec
import numpy as np

from weft.array_types import Flags, Floats
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.secret_bytes import Secret
from weft.data.tile import Tile
from weft.data.weight_and_offset_columns import beside_values
from weft.errors import DataError, ProtocolError
from weft.federation.preprocessing_settings import SampleColumns
from weft.federation.weight_and_offset_letters.messages import (
    TAKE,
    TELL,
    Letters,
    TakeRequest,
    TellReply,
    TellRequest,
)
from weft.matching.party_view import PartyView
from weft.protocol import Answer, Nothing, answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.thread_safe_decoding import prepared

Said: TypeAlias = Literal["offset", "weight"]
_SAID: tuple[Said, ...] = ("offset", "weight")
#: What the keys of these letters are made for: none of another kind opens in their place.
_PURPOSE = "values of samples"
#: Rows that a party names where two holders differ.
_NAMED = 5


class WeightsAndOffsets:
    """A party's half.

    Parameters
    ----------
    party, found
        Its name, and its tiles as its files have them.
    columns
        Which columns are weights and offsets; None: there are none.
    view
        Gives its view, once matching has confirmed who holds its samples.
    consents
        Objects to tell a column, by its name.
    book
        Writes down which columns are told of how many samples, before they are.
    tiles
        Gives the tiles that it trains on, in which it fills in what it was told.

    Attributes
    ----------
    from_others
        Whether it trains on what others told it.
    """

    def __init__(
        self,
        party: str,
        found: Sequence[Tile],
        columns: SampleColumns | None,
        keyring: Keyring,
        view: Callable[[], PartyView],
        *,
        tiles: Callable[[], list[Tile]],
        consents: Callable[[str], None],
        book: Callable[[tuple[str, ...], int], None],
    ) -> None:
        self._party, self._found, self._keyring = party, found, keyring
        self._columns, self._view, self._tiles = columns, view, tiles
        self._consents, self._book = consents, book
        self._told = self._taken = self.from_others = False

    def answers(self) -> dict[str, Answer]:
        """The two phases."""
        return answers(answer(TELL, self._tell), answer(TAKE, self._take))

    # ── to others ─────────────────────────────────────────────────────────────────────────

    def _tell(self, message: TellRequest) -> TellReply:
        if self._told:
            raise ProtocolError(f"party {self._party} has told weights and offsets in this run")
        view, sheets = self._view(), self._view().row_sheets
        own = self._own(view, ~view.labelled)
        content: dict[int, dict[int, dict[Said, bytes]]] = {}
        rows = np.zeros(view.n_rows, bool)
        for cohort, reader, labelled in zip(
            sheets.cohort.tolist(), sheets.holders.tolist(), sheets.labelled.tolist(), strict=True
        ):
            if not labelled or view.labelled[cohort]:
                continue
            part = slice(*view.cohort_start[cohort : cohort + 2])
            known = {said: own[said][part] for said in own if not np.isnan(own[said][part]).any()}
            if known:
                number = int(view.cohort[cohort])
                content.setdefault(reader, {})[number] = {
                    said: values.tobytes() for said, values in known.items()
                }
                rows[part] = True
        if content:
            names = self._names()
            for name in names:
                self._consents(name)
            self._book(names, int(rows.sum()))
        self._told = True
        locked = [
            self._keyring.lock(reader, Secret(msgspec.msgpack.encode(told)), _PURPOSE)
            for reader, told in content.items()
        ]
        return TellReply(readers=np.array(list(content), np.int64), letters=Letters.of(locked))

    def _own(self, view: PartyView, cohorts: Flags) -> dict[Said, Floats]:
        """What its files say of the rows of some cohorts, by slot; NaN: nothing."""
        if self._columns is None:
            return {}
        by_slot: dict[Said, Floats] = {}
        for tile, slots in zip(self._found, view.tile_rows, strict=False):
            told = (slots >= 0) & cohorts[view.row_cohort[slots]]
            said = beside_values(tile, self._party, told, **self._columns.columns)
            for name, values in zip(_SAID, said, strict=True):
                if values is not None:
                    into = by_slot.setdefault(name, np.full(view.n_rows, np.nan))
                    into[slots[told]] = values[told]
        return by_slot

    def _names(self) -> tuple[str, ...]:
        """The columns in its files that are weights or offsets."""
        assert self._columns is not None
        held = {str(name) for tile in self._found for name in tile.features}
        return tuple(name for name in self._columns.named if name in held)

    # ── from others ───────────────────────────────────────────────────────────────────────

    def _take(self, message: TakeRequest) -> Nothing:
        writers, boxes = message.writers.tolist(), message.letters.cut()
        if self._taken:
            raise ProtocolError(f"party {self._party} has taken weights and offsets in this run")
        if len(set(writers)) != len(writers) or len(writers) != len(boxes):
            raise malformed("writers", "does not name everyone who wrote, once")
        view = self._view()
        values = self._own(view, view.labelled)
        for writer, box in zip(writers, boxes, strict=True):
            told = self._opened(view, writer, box)
            for said, theirs in told.items():
                mine = values.setdefault(said, np.full(view.n_rows, np.nan))
                self._refuse_difference(view, said, (mine != theirs) & ~np.isnan(mine + theirs))
                np.copyto(mine, theirs, where=np.isnan(mine))
        self._taken = True
        # Letters about samples whose values its own files have change nothing.
        self.from_others = any(self._lacks(place) for place in range(len(self._found)))
        self._fill(view, values)
        return Nothing()

    def _opened(self, view: PartyView, writer: int, box: bytes) -> dict[Said, Floats]:
        """What a letter says, by slot; NaN: nothing. Refuses rows that its writer does not hold."""
        secret = self._keyring.unlock(writer, box, _PURPOSE)
        told = msgspec.msgpack.decode(secret.reveal(), type=prepared(dict[int, dict[Said, bytes]]))
        sheets = view.row_sheets
        found: dict[Said, Floats] = {}
        theirs = sheets.cohort[(sheets.holders == writer) & ~sheets.labelled].tolist()
        place = {int(view.cohort[cohort]): cohort for cohort in theirs if view.labelled[cohort]}
        for number, by_name in told.items():
            if number not in place:
                raise ProtocolError(
                    f"party number {writer} told {self._party} of samples that not both hold"
                )
            part = slice(*view.cohort_start[place[number] : place[number] + 2])
            for said, packed in by_name.items():
                into = found.setdefault(said, np.full(view.n_rows, np.nan))
                if len(packed) != into[part].nbytes:
                    raise malformed("letters", "does not list a value for every sample")
                into[part] = np.frombuffer(packed)
        return found

    def _refuse_difference(self, view: PartyView, said: Said, differs: Flags) -> None:
        if not differs.any():
            return
        assert self._columns is not None
        names = np.full(view.n_rows, "", dtype=object)
        for tile, slots in zip(self._found, view.tile_rows, strict=False):
            names[slots[slots >= 0]] = tile.ids[slots >= 0]
        some = sorted(names[differs].tolist())[:_NAMED]
        raise DataError(
            f"party {self._party}: two holders of column '{self._columns.column_of(said)}' have "
            f"different values of sample {', '.join(map(str, some))}"
            f"{' and others' if int(differs.sum()) > _NAMED else ''}; correct them, or leave the "
            "column out at one of them",
            told="two holders of a column of weights or offsets have different values of the same "
            "samples; the log of who has their labels says more",
        )

    def look_at_own(self, view: PartyView) -> None:
        """Take from its other tiles what a tile with labels lacks, as far as they have it."""
        self._fill(view, self._own(view, view.labelled))

    def insist(self) -> None:
        """Refuse to go on with samples that nobody has said the weight or the offset of."""
        for place, tile in enumerate(self._found):
            for said in self._lacks(place):
                raise self._lacking(tile, said)

    def _lacks(self, place: int) -> list[Said]:
        """What the study names and a tile with labels does not have."""
        tile = self._tiles()[place]
        if self._columns is None or not tile.labelled.any():
            return []
        named = [said for said in _SAID if self._columns.column_of(said) is not None]
        return [said for said in named if getattr(tile, said) is None]

    def _fill(self, view: PartyView, values: Mapping[Said, Floats]) -> None:
        """Give tiles with labels what others, or other tiles, say of all of their samples."""
        tiles, nothing = self._tiles(), np.full(view.n_rows, np.nan)
        for place, slots in enumerate(view.tile_rows[: len(self._found)]):
            rows = np.where(tiles[place].labelled, slots, -1)
            for said in self._lacks(place):
                told = np.where(rows >= 0, values.get(said, nothing)[rows], 0.0)
                if not np.isnan(told).any():
                    given: dict[str, Any] = {said: told}
                    tiles[place] = replace(tiles[place], **given)

    def _lacking(self, tile: Tile, said: Said) -> DataError:
        assert self._columns is not None
        return DataError(
            f"party {self._party}: {tile.source or 'its tile'} has labels, but no column "
            f"'{self._columns.column_of(said)}', and nobody tells it what others have there; give "
            "it the column, and list it where it lists its features, or agree on "
            "allow_told_columns = true with who has it (and on a cipher that hides it)",
            told="a party with labels lacks a column of weights or offsets; give it the column, or "
            "agree on allow_told_columns = true with who has it",
        )
