"""Which sample of a cohort has which of its slots: the holders' own doing.

The coordinator says which cohort a token belongs to and how large the cohort is. All holders of a
cohort hold the same samples of it, so each can order them by itself, and all come to the same
order, without a key: a run with the same seed gives the same bits although every run has other
tokens. The coordinator does not learn which token has which slot.

Samples are in the order of a hash of their ids, which says nothing about neighbours. Features are
in the order of their names, short ones first: x2 before x10, as they mostly stand in files, so that
a sparse row still walks through memory in one direction.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Ints, Slots
from weft.arrays_outside_heap import shared
from weft.errors import ProtocolError
from weft.fast_small_array_operations import cut
from weft.matching.guard_facts_from_confirmed_lists import facts_of
from weft.matching.party_view import PartyView, TileCohorts, ToldView

Names = NDArray[np.object_]

#: Of SipHash, as pandas has it: any 16 bytes, the same at all parties.
_KEY = "weft slot order."


def take_places(
    told: ToldView,
    ids: Sequence[Names],
    features: Sequence[Names],
    row_orders: Sequence[Slots],
    column_orders: Sequence[Ints],
) -> PartyView:
    """A view with the local slots of a party's rows and columns, and what its guards rely on.

    Parameters
    ----------
    ids, features
        Per tile, in normal form.
    row_orders, column_orders
        Per tile, the order in which their tokens were sent.
    """
    columns = np.bincount(told.column_cohort) if len(told.column_cohort) else np.zeros(0, np.int64)
    column_starts: Ints = np.concatenate([[0], np.cumsum(columns)]).astype(np.int64)
    row_cohorts, column_cohorts = told.tile_row_cohorts.cut(), told.tile_column_cohorts.cut()
    return PartyView.of(
        told,
        tile_row_cohorts=TileCohorts.of(()),
        tile_rows=_slots(_hashes(ids), row_orders, row_cohorts, told.cohort_start),
        tile_columns=_slots(_ranks(features), column_orders, column_cohorts, column_starts),
        **vars(facts_of(told)),
    )


def _slots(
    keys: NDArray[np.uint64] | Ints,
    orders: Sequence[NDArray[Any]],
    cohorts: Sequence[NDArray[np.int32]],
    starts: Ints,
) -> tuple[NDArray[np.int32], ...]:
    """Local slots, cohort by cohort and in each by ``keys``, which equal names have in common."""
    lengths = [len(order) for order in orders]
    if [len(part) for part in cohorts] != lengths:
        raise ProtocolError("the view is for other tiles than those whose tokens were sent")
    cohort = np.empty(sum(lengths), np.int64)
    ends = np.cumsum(lengths)
    for order, part, end in zip(orders, cohorts, ends.tolist(), strict=True):
        cohort[end - len(order) + order] = part
    seated = np.flatnonzero(cohort >= 0)
    key = keys[seated]
    # Equal keys of a cohort are one slot, whichever comes first.
    by_key = np.argsort(key)
    by_place = by_key[np.argsort(_narrow(cohort[seated])[by_key], kind="stable")]
    entry = seated[by_place]
    held, key = cohort[entry], key[by_place]
    # One sample may lie in several tiles of a party: equal hashes are one slot.
    new = np.ones(len(entry), bool)
    new[1:] = (held[1:] != held[:-1]) | (key[1:] != key[:-1])
    count = len(starts) - 1
    if len(held) and int(held.max()) >= count:
        raise ProtocolError("the view names a cohort that it does not describe")
    sizes = np.bincount(held[new], minlength=count)
    # The constant column is a cohort without a token.
    if ((sizes != np.diff(starts)) & (sizes > 0)).any():
        raise ProtocolError("the view's cohorts have other sizes than the tokens in them")
    before = np.cumsum(sizes) - sizes
    slots = np.full(len(cohort), -1, np.int32)
    slots[entry] = np.cumsum(new) - 1 + (starts[:-1] - before)[held]
    return tuple(shared(part) for part in cut(slots, np.array(lengths, np.int64)))


def _narrow(cohorts: Ints) -> NDArray[Any]:
    """The same numbers in as few bytes as they take: two bytes are sorted by counting."""
    return cohorts.astype(np.min_scalar_type(int(cohorts.max(initial=0))))


def _hashes(names: Sequence[Names]) -> NDArray[np.uint64]:
    joined = np.concatenate(names) if len(names) > 1 else names[0]
    return np.asarray(pd.util.hash_array(joined, hash_key=_KEY, categorize=False), np.uint64)


def _ranks(names: Sequence[Names]) -> Ints:
    """Places of names among all of them, by length and then by letter; equal names have one."""
    items: list[str] = [name for part in names for name in part.tolist()]
    keys = [chr(len(item) & 0xFFFF) + item for item in items]
    # Names that are in order already, as those of most files are, take one pass.
    order = sorted(range(len(keys)), key=keys.__getitem__)
    ranks = np.empty(len(order), np.int64)
    if len(names) == 1:
        ranks[order] = np.arange(len(order))
    else:
        new = [keys[a] != keys[b] for a, b in pairwise(order)]
        ranks[order] = np.concatenate([[0], np.cumsum(new, dtype=np.int64)])
    return ranks
