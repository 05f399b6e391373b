"""What the local methods must know of the data before the first step.

``theory`` needs ‖x_i‖ ≤ 1. ``safe`` needs ‖x_i‖², or a bound per cohort, and ω ≥ ‖X̃‖₂² for
X̃ = the rows scaled to norm 1, which power iteration finds on the same two sums that training
uses: v = X̃ᵀu is a feature sum, X̃v a sample sum.

All of it comes once, before the first step, and in order: a total of ‖u‖² over all parties, less
one over some of them at the same u, would be that of a single party.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from weft.array_types import Floats
from weft.crypto import Adder, Cipher
from weft.crypto.scalar_mask_neighbours import Sharers
from weft.errors import ConfigError, ProtocolError
from weft.matching.party_view import PartyView
from weft.protocol import Channel
from weft.protocol.message_bytes import question_digest
from weft.protocol.shared_fields import SumRequest
from weft.solvers.hyfdca.messages import (
    GATHER,
    NORMS,
    SPREAD,
    BeginRequest,
    GatherReply,
    GatherRequest,
    SpreadReply,
    SpreadRequest,
)
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.party_contribution import Wire
from weft.sums.party_table_products import LocalTable
from weft.sums.party_table_with_overlap_weights import cohort_bounds
from weft.sums.scalar_sums import add_scalars, over_attending, pack_scalars
from weft.sums.shared_slots_by_party import Layout
from weft.sums.table_scaling_and_certificate_messages import RowNormsReply, RowNormsRequest

#: Power iteration ends when its estimate changes by less than this, relatively, after so many …
TOLERANCE = 1e-3
FEWEST_ROUNDS = 4
#: … and the estimate, which approaches from below, is raised by this factor.
MARGIN = 1.1
MOST_ROUNDS = 500


class DataNormsParty:
    """A party's half: its share of the norms, and products with X̃ and X̃ᵀ.

    Parameters
    ----------
    among_some
        Whether a party may be away meanwhile: the solver begins in the place of another one.
    """

    def __init__(
        self,
        view: PartyView,
        table: LocalTable,
        cipher: Cipher,
        norms: str,
        seed: int,
        *,
        among_some: bool = False,
    ) -> None:
        self._view = view
        self._table = table
        self._norms_rule = norms
        self._unit = 1.0
        self._seed = seed
        self._cipher = cipher
        rows, columns, n = view.n_shared_rows, view.n_shared_columns, view.n_samples
        # Parts of norms come in a common unit, bounds of cohorts rounded up by up to √2. The
        # first u has entries of size one and ‖u‖ never grows: it is scaled by 1/N, then by the
        # estimates before and after, which approach ‖X̃‖² ≤ N from below. With ‖x̃_i‖ ≤ 1 that
        # bounds |v/N| by the root of mean u², and leaves room for z, up to √N, of single parties.
        self._norm_wire = Wire("z", rows, 1.5 * view.row_holders, cipher, everyone=True, some=True)
        self._z = Wire("z", rows, 64.0 * math.sqrt(n), cipher, everyone=True, some=True)
        self._v = Wire("v", columns, 8.0, cipher, 1.0 / n, some=True)
        self._u: Floats = np.zeros((view.n_rows, 1))
        self._private: Floats = self._u[view.n_shared_rows :]
        self._sum: Floats = np.zeros((view.n_columns, 1))
        self.norms: Floats = np.zeros((view.n_rows, 1))
        self._among_some = among_some
        #: Training has begun, so that there is nothing more to find out.
        self.closed = False
        #: What was asked last, and all that was asked so far.
        self._step = ""
        self._asked = b""
        #: Over whom ‖u‖² is summed, in all rounds of the power iteration; None: everyone.
        self._attending: bytes | None = None

    def _go_on(self, step: str, message: SumRequest, *after: str) -> None:
        """Take every step once, in order; scalars depend on all that was asked before."""
        if self.closed or self._step not in after:
            raise ProtocolError(
                "a request for norms or curvature comes again, or too early or late"
            )
        self._step = step
        self._asked = question_digest(message, self._asked)

    def finish(self, message: BeginRequest) -> None:
        """All is found."""
        self._go_on("finished", message, "norms", "spread", "gather")

    def share_norms(self, message: RowNormsRequest) -> RowNormsReply:
        """This party's part of ‖x_i‖², or of the bound of the cohort, in a common unit."""
        self._go_on("norms", message, "")
        self._unit = message.unit
        squares = self._table.squares
        if self._norms_rule == "cohort":
            squares = cohort_bounds(squares, self._view)
        self.norms = squares.copy()
        shared = self._view.n_shared_rows
        if not shared:
            return RowNormsReply()
        return RowNormsReply(z=self._norm_wire.send(squares[:shared] / self._unit, message.z_pads))

    def take_norms(self, z: bytes | None) -> None:
        """The totals of everyone's parts."""
        shared = self._view.n_shared_rows
        if shared:
            self.norms[:shared] = self._norm_wire.open(z, 1) * self._unit

    def check_unit(self) -> None:
        """``theory`` holds for rows of norm at most one."""
        largest = float(self.norms.max(initial=0.0))
        if largest > 1.0 + 1e-9:
            raise ConfigError(
                "local = 'theory' needs ‖x‖ ≤ 1, but a sample has a larger norm; set unit_rows = "
                "true, or use local = 'safe'"
            )

    def spread(self, message: SpreadRequest) -> SpreadReply:
        """X̃ᵀu, with u from the last inner products, or random in the first round."""
        self._go_on("spread", message, "norms" if message.first else "gather")
        over = self._sharers(message)
        if message.first:
            self.take_norms(message.z)
            self._u = self._random()
        else:
            self._u[self._view.n_shared_rows :] = self._private
            if self._view.n_shared_rows:
                self._u[: self._view.n_shared_rows] = self._z.open(message.z, 1)
        v = np.zeros((self._view.n_columns, 1))
        self._table.accumulate(None, self._u * self._inverse_norms, v)
        self._sum = v
        counted = self._u[self._view.counted_rows]
        square = float((counted**2).sum()) / self._view.n_samples
        self._cipher.lasting(message.round, self._asked)
        reply = SpreadReply(squares=pack_scalars(self._cipher, "squares", square, over=over))
        if self._view.n_shared_columns:
            reply.v = self._v.send(v[: self._view.n_shared_columns], message.v_pads)
        return reply

    def _sharers(self, message: SpreadRequest) -> Sharers | None:
        """Over whom ‖u‖² is summed: the same parties in every round."""
        told = None if message.attending is None else message.attending.tobytes()
        if message.first:
            self._attending = told
        if told != self._attending or (told is not None and not self._among_some):
            raise ProtocolError("a request wants curvature over others than all that began with it")
        return over_attending(self._cipher, message.attending, harmless=True)

    def gather(self, message: GatherRequest) -> GatherReply:
        """This party's part of X̃v, scaled so that u keeps its size."""
        self._go_on("gather", message, "spread")
        shared = self._view.n_shared_columns
        v = self._sum
        if shared:
            v[:shared] = self._v.open(message.v, 1) * self._view.n_samples
        z = self._table.products(None, v) * self._inverse_norms * message.scale
        self._private = z[self._view.n_shared_rows :]
        rows = self._view.n_shared_rows
        return GatherReply(z=self._z.send(z[:rows], message.z_pads) if rows else None)

    @property
    def _inverse_norms(self) -> Floats:
        # Rows of zeros have no direction and no part in X̃.
        return np.where(self.norms > 0, 1.0 / np.sqrt(np.maximum(self.norms, 1e-300)), 0.0)

    def _random(self) -> Floats:
        """The same start at every holder of a cohort."""
        parts = [
            np.random.default_rng((self._seed, 0x0E6A, int(c))).standard_normal(int(size))
            for c, size in zip(self._view.cohort, self._view.sizes, strict=True)
        ]
        return np.concatenate(parts)[:, None]


def share_norms(channel: Channel, unit: float, rows: Layout, adder: Adder) -> IncrementTotals:
    """Coordinator: add up everyone's share of the norms."""
    round_ = adder.advance()
    messages = {party: RowNormsRequest(round=round_, unit=unit) for party in channel.parties}
    totals = IncrementTotals("z", rows, 1, adder)
    totals.invite(messages)
    totals.add(channel.ask(NORMS, messages).insist("sharing norms"))
    return totals


def find_omega(
    channel: Channel,
    norms: IncrementTotals,
    columns: Layout,
    adder: Adder,
    n_samples: int,
    log: Callable[[str], None],
) -> float:
    """Coordinator: power iteration for ‖X̃‖₂², from public totals only."""
    parties = channel.parties
    scale = 1.0 / n_samples
    estimate = before = 0.0
    last_square = 0.0
    z = norms
    for round_ in range(MOST_ROUNDS):
        number = adder.advance()
        messages = {party: SpreadRequest(round=number, first=not round_) for party in parties}
        adder.attend(messages)
        for party, block in z.blocks(parties).items():
            messages[party].z = block
        v = IncrementTotals("v", columns, 1, adder)
        v.invite(messages)
        replies = channel.ask(SPREAD, messages).insist("power iteration")
        (square,) = add_scalars(replies, "squares", 1, messages) or [0.0]
        if round_:
            estimate = math.sqrt(square / last_square) / scale if last_square > 0 else 0.0
            settled = abs(estimate - before) < TOLERANCE * estimate
            if square <= 0 or (settled and round_ >= FEWEST_ROUNDS):
                break
            before = estimate
            scale = 1.0 / estimate
        last_square = square
        v.add(replies)
        number = adder.advance()
        down = {party: GatherRequest(round=number, scale=scale) for party in parties}
        for party, block in v.blocks(parties).items():
            down[party].v = block
        z = IncrementTotals("z", norms.layout, 1, adder)
        z.invite(down)
        z.add(channel.ask(GATHER, down).insist("power iteration"))
    else:
        log(f"power iteration had not settled after {MOST_ROUNDS} rounds")
    omega = MARGIN * max(estimate, 1e-12)
    log(f"ω = {omega:.4g} after {round_ + 1} rounds of power iteration")
    return omega
