"""Tags by which the holders of cohorts confirm to each other what they were told.

A holder makes a tag of every sheet that it finds right, under a key of this run that the
coordinator lacks; the coordinator adds up those of all holders of a cohort. A party that does not
get the sum it expects knows that somebody was told something else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import blake2b, shake_256
from hmac import compare_digest
from itertools import pairwise

import msgspec
import numpy as np

from weft.array_types import Ints
from weft.crypto.secret_bytes import Secret
from weft.matching.cohort_holder_lists import TAG
from weft.matching.guard_facts_from_confirmed_lists import LyingView
from weft.matching.party_view import PartyView


@dataclass(frozen=True)
class Confirmation:
    """A party's tags of all its sheets, and what those of all holders come to, cohort by cohort."""

    own: bytes
    all: bytes

    def insist(self, told: bytes) -> None:
        """Refuse unless every holder of every cohort has confirmed the same sheet."""
        if not compare_digest(told, self.all):
            raise LyingView


def confirm(
    view: PartyView,
    ids: Sequence[str],
    features: Sequence[str],
    constant: float | None,
    key: Secret,
) -> Confirmation:
    """Tags of what all parties are told alike, and of a view's shared cohorts.

    Those of rows come first, then those of columns.

    Parameters
    ----------
    ids, features
        Of the shared rows and columns, by slot: holders of a cohort have the same.
    constant
        Value of the constant column, None without one.
    key
        Of this run, which the parties share and the coordinator lacks.
    """
    own, everybody = [], []
    state_of_key = blake2b(key=key.reveal(), digest_size=32, person=b"weft cohort")
    contents = [_common_content(view, constant)]
    contents += [*_row_contents(view, ids), *_column_contents(view, features)]
    for content, holders in contents:
        state = state_of_key.copy()
        state.update(content)
        # A tag for every place in the list of holders, which the content says too.
        tags = np.frombuffer(shake_256(state.digest()).digest(TAG * len(holders)), np.uint64)
        tags = tags.reshape(len(holders), -1)
        own.append(tags[int(np.searchsorted(holders, view.party))].tobytes())
        everybody.append(np.bitwise_xor.reduce(tags, axis=0).tobytes())
    return Confirmation(b"".join(own), b"".join(everybody))


def _common_content(view: PartyView, constant: float | None) -> tuple[bytes, Ints]:
    """What decides in which units sums are, which must be the same for all parties."""
    content = [
        "run",
        view.overlap,
        view.n_samples,
        view.label_parties,
        view.row_holders,
        view.column_holders,
        view.min_batch,
        constant,
    ]
    return msgspec.msgpack.encode(content), np.arange(view.n_parties)


def _row_contents(view: PartyView, ids: Sequence[str]) -> list[tuple[bytes, Ints]]:
    sheets, found = view.row_sheets, []
    entries = np.concatenate([[0], np.cumsum(sheets.lengths)]).tolist()
    lines = np.concatenate([[0], np.cumsum(sheets.line_lengths)]).tolist()
    sizes = sheets.sizes[np.searchsorted(sheets.numbers, sheets.columns)]
    for cohort, (first, end) in enumerate(pairwise(view.shared_rows.tolist())):
        a, b = entries[cohort : cohort + 2]
        line = slice(lines[a], lines[b])
        content = [
            "rows",
            view.overlap,
            int(view.cohort[cohort]),
            list(ids[first:end]),
            sheets.holders[a:b].tobytes(),
            sheets.labelled[a:b].tobytes(),
            sheets.line_lengths[a:b].tobytes(),
            sheets.columns[line].tobytes(),
            sheets.tiles[line].tobytes(),
            sizes[line].tobytes(),
            bool(view.exposed[cohort]),
            bool(view.crossed[cohort]),
        ]
        found.append((msgspec.msgpack.encode(content), sheets.holders[a:b]))
    return found


def _column_contents(view: PartyView, features: Sequence[str]) -> list[tuple[bytes, Ints]]:
    lists, found = view.column_sheets, []
    entries = np.concatenate([[0], np.cumsum(lists.lengths)]).tolist()
    for cohort, (first, end) in enumerate(pairwise(view.shared_columns.tolist())):
        holders = lists.holders[entries[cohort] : entries[cohort + 1]]
        number = int(view.column_number[cohort])
        content = ["columns", number, list(features[first:end]), holders.tobytes()]
        found.append((msgspec.msgpack.encode(content), holders))
    return found
