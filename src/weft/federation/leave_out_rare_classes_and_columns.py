"""What is too rare to be trained on: samples of rare classes, and columns that few samples have.

Holders of labels decide about samples, each for its own; those who hold a sample without its label
are told by a label holder, under the cipher. The coordinator learns how many samples and cells are
left out in all, and of none of them which: their slots stay, with nothing in them. On shares, where
one party alone has labels, it does not even learn how many: they count as samples.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from weft.array_types import Flags, Floats
from weft.crypto import Adder, Cipher
from weft.errors import DataError
from weft.federation.messages import (
    LEAVE_OUT,
    RARE,
    LeaveReply,
    LeaveRequest,
    RareReply,
    RareRequest,
)
from weft.guards.leave_out_rare_classes import in_rare_class
from weft.matching.counted_and_labelled_rows import followed
from weft.matching.holding_map import HoldingMap
from weft.matching.party_view import PartyView
from weft.matching.tamper_proof_sample_count import CountCheck, add_told
from weft.protocol import Channel, Message
from weft.protocol.declared_message_fields import malformed
from weft.solvers.participation import CohortSpeakers
from weft.sums.latest_slot_values_and_proposals import LatestValues
from weft.sums.party_contribution import Posts, own_slots
from weft.sums.scalar_sums import add_scalars, pack_numbers, pack_scalars
from weft.sums.shared_slots_by_party import Layout

if TYPE_CHECKING:
    from weft.crypto.secret_bytes import Secret

#: Flags are 0 or 1.
_BOUND = 2.0
_NO_CLASS = (
    "no class has min_batch = {} samples in a group that the same parties hold; lower it, or bring "
    "more samples"
)


def leave_out_rare(channel: Channel, holdings: HoldingMap, adder: Adder) -> HoldingMap:
    """Coordinator: let the parties leave out what is too rare; the map says how much that was."""
    if holdings.terms.min_batch == 1 or not holdings.exposed.any():
        return holdings
    everyone = list(holdings.parties)
    board = LatestValues("alpha", Layout(holdings.rows, holdings.parties), 1, adder)
    speakers, lacking = CohortSpeakers(holdings, labelled=True).of(everyone), followed(holdings)
    send = {party: speakers[party] & lacking[party] for party in everyone}
    round_ = adder.advance()
    asked = {party: RareRequest(round=round_, send=send[party]) for party in everyone}
    board.invite(asked, send)
    replies = channel.ask(RARE, asked).insist("leaving out rare classes")
    board.post(replies, 1, round_)
    kept = _total(replies, "kept")
    if not 0 < kept <= holdings.n_samples:
        raise DataError(_NO_CLASS.format(holdings.terms.min_batch))
    round_ = adder.advance()
    confirmed = _confirmed(replies) if adder.linked else b""
    told = {
        party: LeaveRequest(round=round_, samples=kept, confirmed=confirmed) for party in everyone
    }
    for party, (slots, block) in board.changes(
        dict.fromkeys((p for p in everyone if p in holdings.partly_unlabelled), 0)
    ).items():
        told[party].alpha_slots, told[party].alpha = slots, block
    left = channel.ask(LEAVE_OUT, told).insist("leaving out rare classes")
    rare = holdings.n_samples - kept
    return replace(holdings, rare=rare, rare_cells=_total(left, "cells"))


def _total(replies: Mapping[str, Message], field: str) -> int:
    totals = add_scalars(replies, field, 1, replies)
    assert totals is not None
    return round(totals[0])


def _confirmed(replies: Mapping[str, RareReply]) -> bytes:
    return add_told((reply.confirmed or b"" for reply in replies.values()), "confirmed")


def remarks(holdings: HoldingMap) -> list[str]:
    """What is left out, in a sentence that is the same whether or not anything is.

    Whoever submits a study chooses the ends of bins, levels and classes, and would learn from a
    sentence that comes and goes whether a single cell lies beyond such an end.
    """
    least = holdings.terms.min_batch
    if least == 1 or not holdings.exposed.any():
        return []
    return [
        f"samples of classes that fewer than min_batch = {least} samples of their group have, and "
        "cells of columns in which fewer of a group differ, are left out unsaid, if there are any: "
        "such cells count as what the rest of their group has there, and the model and its "
        "certificate are those of the table without them"
    ]


class RareParty:
    """A party's half.

    Parameters
    ----------
    view
        Gives its view of the holdings, with nothing left out.
    target
        Gives the class of its local rows as a number; NaN: it has no label, or there are none.
    facts_key
        Gives the key under which parties confirm facts of the run; None: under cipher plain.
    tells
        Whether the coordinator may read how many are kept, under a view.
    """

    def __init__(
        self,
        view: Callable[[], PartyView],
        target: Callable[[], Floats],
        cipher: Cipher,
        facts_key: Callable[[], Secret | None],
        tells: Callable[[PartyView], bool],
    ) -> None:
        self._view = view
        self._target = target
        self._cipher = cipher
        self._facts_key = facts_key
        self._tells = tells
        self._rare: Flags | None = None
        self._count: CountCheck | None = None

    def find(self, message: RareRequest) -> RareReply:
        """Decide about the samples with a label here, and tell holders who lack it."""
        view = self._view()
        rare = in_rare_class(view.guarded_cohort, self._target(), view.min_batch)
        self._rare = rare
        counted = view.counts[view.row_cohort]
        kept = int((counted & ~rare).sum())
        if not self._tells(view):
            if counted.any() and not kept:
                raise DataError(_NO_CLASS.format(view.min_batch))
            kept = int(counted.sum())
        reply = RareReply(kept=pack_scalars(self._cipher, "kept", float(kept)))
        key = self._facts_key()
        if key is not None:
            self._count = CountCheck(key, "kept", view.n_parties)
            told = self._count.tell(view.party, kept)
            reply.confirmed = pack_numbers(self._cipher, "confirmed", [told])
        flags, pads = message.send, message.alpha_pads
        if flags.shape != view.sizes.shape:
            raise malformed("send", "has no flag per cohort")
        slots = np.flatnonzero(flags[view.row_cohort[: view.n_shared_rows]]).astype(np.int32)
        # A cipher of whole chunks waits for everyone who was asked, also if nothing changed.
        if len(slots) or (pads is not None and pads.chain is not None):
            new = rare[slots].astype(np.float64)[:, None]
            reply.alpha = self._wire(view).post(new, np.zeros_like(new), slots, pads, flags)
            reply.alpha_slots = slots
        return reply

    def take(self, message: LeaveRequest) -> PartyView:
        """The view without all samples that are left out."""
        view, rare = self._view(), self._rare
        if rare is None:
            raise malformed("samples", "comes before rare classes were asked for")
        self._rare = None
        lacking = (view.exposed & ~view.labelled)[view.row_cohort]
        if message.alpha is not None:
            slots = own_slots(message.alpha_slots, "alpha_slots", view.n_shared_rows)
            told = self._wire(view).take(message.alpha, 1, slots, lacking[: view.n_shared_rows])
            rare[slots] = np.where(lacking[slots], told[:, 0] > 0.5, rare[slots])
        elif lacking.any():
            # Without their labels, this party cannot tell by itself.
            raise malformed("alpha_slots", "do not name all samples without a label here")
        if self._count is not None:
            self._count.insist(message.samples, message.confirmed)
        if not 0 < message.samples <= view.n_samples:
            raise malformed("samples", "is not how many samples there can be")
        return view.without(rare, message.samples)

    def tell(self, message: LeaveRequest, cells: int) -> LeaveReply:
        """How many cells it leaves out."""
        return LeaveReply(cells=pack_scalars(self._cipher, "cells", float(cells)))

    def _wire(self, view: PartyView) -> Posts:
        return Posts("alpha", view.n_shared_rows, _BOUND, self._cipher)
