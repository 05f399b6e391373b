"""The certificate: P(w(α)) − D(α), an upper bound on the distance to central training.

A certificate belongs to one frozen pair (α, w(α)). With everyone present that is the current
iterate, and the sums come for free. Under partial participation the coordinator freezes α at
an iteration; each party, when next present, adds its feature sums of that α, then its inner
products with that w, then losses and conjugates. When all have answered, the pair is certified.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.crypto import Adder, Cipher
from weft.losses import Loss
from weft.matching.party_view import PartyView
from weft.protocol import Request
from weft.protocol.declared_message_fields import malformed
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.largest_possible_sums import Bounds
from weft.sums.latest_slot_values_and_proposals import LatestValues
from weft.sums.party_contribution import Gathering, Latest, own_slots
from weft.sums.party_table_products import LocalTable
from weft.sums.scalar_sums import add_scalars, pack_scalars
from weft.sums.shared_slots_by_party import Layout
from weft.sums.table_scaling_and_certificate_messages import (
    FREEZE,
    PAIR_LOSSES,
    PAIR_PRODUCTS,
    FreezeReply,
    FreezeRequest,
    PairLossesReply,
    PairLossesRequest,
    PairProductsReply,
    PairProductsRequest,
)


class MeasuredLoss(NamedTuple):
    """1/N Σ l at a model, how far that may be off, and no less than ‖∇P‖ there."""

    mean: float
    error: float
    slope: float


@dataclass(frozen=True)
class Certificate:
    """P and D of one frozen pair, per class.

    Attributes
    ----------
    iteration
        The iteration after which the pair was frozen.
    primal, dual
        P(w) and D(α); P(w) − P* ≤ P(w) − D(α) for every class.
    measured
        Mean losses and slopes, where P(w) is a bound and not what was measured.
    """

    iteration: int
    primal: tuple[float, ...]
    dual: tuple[float, ...]
    measured: tuple[MeasuredLoss, ...] = ()

    @property
    def gap(self) -> float:
        """The largest relative gap (P − D)/P over the classes; never below zero by rounding."""
        return max(0.0, *(_relative(p, d) for p, d in zip(self.primal, self.dual, strict=True)))

    @classmethod
    def of_sums(
        cls, iteration: int, lam: float, norms: list[float], losses: list[float]
    ) -> Certificate:
        """From ‖w‖² per class, and Σ l/N then Σ l*/N per class."""
        classes = len(norms)
        half = [0.5 * lam * n for n in norms]
        primal = tuple(h + l for h, l in zip(half, losses[:classes], strict=True))
        dual = tuple(-h - l for h, l in zip(half, losses[classes:], strict=True))
        return cls(iteration, primal, dual)


def _relative(primal: float, dual: float) -> float:
    """(P − D)/P; no loss is below zero, so that a P below zero proves nothing.

    Nor does a D above P, by more than rounding.
    """
    if primal > 0:
        return (primal - dual) / primal if dual <= primal * (1 + 1e-6) else math.inf
    return 0.0 if primal == 0 else math.inf


class DualSettings(Protocol):
    """What certificates must know of a run's settings."""

    @property
    def lam(self) -> float: ...

    @property
    def coordinator_sees(self) -> str: ...


def feature_cipher(cipher: Cipher, settings: DualSettings) -> Cipher:
    """What hides feature sums: in the papers' protocol, nothing."""
    return cipher.in_the_clear() if settings.coordinator_sees == "papers" else cipher


class DualState(Protocol):
    """What a party of a dual algorithm keeps, as far as certificates need it."""

    view: PartyView
    table: LocalTable
    labels: Floats
    loss: Loss
    cipher: Cipher
    bounds: Bounds
    alpha: Floats
    alpha_wire: Latest
    v: Floats

    @property
    def settings(self) -> DualSettings: ...

    def insist_on_enough(self, slots: Slots, new: Floats) -> None:
        """Refuse α from others that differs in too few samples of a cohort from what was sent."""

    def note_frozen(self, alpha: Floats) -> None:
        """Sums of this α are sent beside those of the steps."""


def class_sums(state: DualState, z: Floats, alpha: Floats) -> list[float]:
    """Σ l/N and Σ l*/N per class, over the rows that this party counts."""
    counted = state.view.counted_rows
    if not counted.all():
        z, alpha, labels = z[counted], alpha[counted], state.labels[counted]
    else:
        labels = state.labels
    n = state.view.n_samples
    losses = state.loss.value(z, labels).sum(axis=0) / n
    conjugates = state.loss.conjugate(alpha, labels).sum(axis=0) / n
    return [*losses.tolist(), *conjugates.tolist()]


class FrozenParty:
    """A party's answers about a frozen pair."""

    def __init__(self, state: DualState) -> None:
        self._state = state
        view, bounds = state.view, state.bounds
        open_ = feature_cipher(state.cipher, state.settings)
        self._v = Gathering("v", view.n_shared_columns, bounds.v, open_, 1.0 / view.n_samples)
        self._z = Gathering("z", view.n_shared_rows, bounds.z, state.cipher)
        self._alpha: Floats = state.alpha
        self._sum: Floats = state.v
        self._w: Floats = state.v
        self._z_private: Floats = state.v
        self._counted_shared = view.counted_shared_rows
        #: The iteration of the pair in progress; −1: there is none.
        self._frozen = -1
        #: w of the pair frozen last and of the one certified, by iteration.
        self.weights: dict[int, Floats] = {}

    def freeze(self, message: FreezeRequest) -> FreezeReply:
        """Keep α as it was at the freeze (absent parties are told what changed) and sum it."""
        state = self._state
        if self._frozen == message.iteration and message.alpha is None:
            # The same pair again: to keep others company, or because the answer was lost.
            return FreezeReply(v=self._feature_sums(message))
        self._frozen = message.iteration
        self._alpha = state.alpha.copy()
        self._sum = state.v.copy()
        if message.alpha is not None:
            slots = own_slots(message.alpha_slots, "alpha_slots", state.view.n_shared_rows)
            new = state.alpha_wire.take(message.alpha, self._alpha.shape[1], slots)
            state.insist_on_enough(slots, new)
            state.table.accumulate(slots, new - self._alpha[slots], self._sum)
            self._alpha[slots] = new
            state.note_frozen(self._alpha)
        return FreezeReply(v=self._feature_sums(message))

    def _feature_sums(self, message: FreezeRequest) -> bytes | None:
        shared = self._state.view.n_shared_columns
        if not shared:
            return None
        return self._v.put_in(message.iteration, self._sum[:shared], message.v_pads)

    def _insist_on_frozen(self, message: PairProductsRequest | PairLossesRequest) -> None:
        if message.iteration != self._frozen:
            raise malformed("iteration", "is not that of the pair that was frozen")

    def products(self, message: PairProductsRequest) -> PairProductsReply:
        """w of the frozen α, and this party's part of z with it."""
        self._insist_on_frozen(message)
        state, view = self._state, self._state.view
        lam = state.settings.lam
        w = self._sum / (lam * view.n_samples)
        shared = view.n_shared_columns
        if shared:
            w[:shared] = self._v.open(message.v, w.shape[1]) / lam
        self._w = w
        z = state.table.products(None, w)
        self._z_private = z[view.n_shared_rows :]
        mine = w[view.owned]
        squares = np.einsum("ij,ij->j", mine, mine).tolist()
        state.cipher.lasting(message.iteration)
        reply = PairProductsReply(norms=pack_scalars(state.cipher, "norms", *squares))
        if view.n_shared_rows:
            reply.z = self._z.put_in(message.iteration, z[: view.n_shared_rows], message.z_pads)
        return reply

    def losses(self, message: PairLossesRequest) -> PairLossesReply:
        """Losses and conjugates of the rows counted here."""
        self._insist_on_frozen(message)
        state, view = self._state, self._state.view
        z = np.zeros_like(self._alpha)
        if len(self._counted_shared):
            opened = self._z.open(message.z, z.shape[1], self._counted_shared)
            z[self._counted_shared] = opened
        z[view.n_shared_rows :] = self._z_private
        # Of older pairs only the certified one may still be released.
        self.weights = {i: w for i, w in self.weights.items() if i == message.keep}
        self.weights[message.iteration] = self._w
        sums = class_sums(state, z, self._alpha)
        state.cipher.lasting(message.iteration)
        return PairLossesReply(losses=pack_scalars(state.cipher, "losses", *sums))

    def state(self) -> dict[str, NDArray[Any]]:
        """For a checkpoint: a pair in progress is given up when a run is resumed."""
        return {f"weights.{i}": w for i, w in self.weights.items()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.weights = {
            int(name.partition(".")[2]): w for name, w in state.items() if name[:8] == "weights."
        }


Stage = Literal["freeze", "products", "losses"]


class FrozenPair:
    """The coordinator's side of one frozen pair, until everyone has answered for it.

    Parameters
    ----------
    iteration
        α is frozen as it stood after this iteration.
    counted
        Per party, the shared rows whose losses it counts, as its local slots.
    alpha
        The running totals of α, which are copied.
    joined
        Who is asked for a sum: those to be asked, or, where they are too few, all who are present.
    certified
        The last pair certified, which parties must keep for the case that this one fails.
    """

    def __init__(
        self,
        iteration: int,
        counted: Mapping[str, NDArray[np.int32]],
        alpha: LatestValues,
        columns: Layout,
        adder: Adder,
        settings: DualSettings,
        joined: Callable[[list[str], list[str]], list[str]],
        certified: int | None = None,
    ) -> None:
        self._joined = joined
        self.iteration = iteration
        self._certified = certified
        self._adder = adder
        self.stage: Stage = "freeze"
        self._everyone = tuple(counted)
        self._counted = counted
        self.waiting = set(self._everyone)
        self._alpha = alpha.copy()
        clear = settings.coordinator_sees == "papers"
        self._v = IncrementTotals("v", columns, alpha.width, adder, clear=clear)
        self._z = IncrementTotals("z", alpha.layout, alpha.width, adder)
        self._norms: dict[str, PairProductsReply] = {}
        self._losses: dict[str, PairLossesReply] = {}
        self._lam = settings.lam
        self.certificate: Certificate | None = None

    def request(self, present: Iterable[str], seen: Mapping[str, int]) -> Request[Any, Any]:
        """What to ask the parties that are present and still owe an answer.

        ``seen`` is the iteration up to which each party's own α is current.
        """
        there = list(present)
        asked = [p for p in there if p in self.waiting]
        self._adder.advance()
        if self.stage == "losses":
            return Request(PAIR_LOSSES, self._losses_of(asked))
        asked = self._joined(asked, there)
        if self.stage == "freeze":
            return Request(FREEZE, self._freeze(asked, seen))
        return Request(PAIR_PRODUCTS, self._products(asked))

    def _freeze(self, asked: list[str], seen: Mapping[str, int]) -> dict[str, FreezeRequest]:
        messages = {party: FreezeRequest(**self._common()) for party in asked}
        stale = {p: seen[p] for p in asked if seen[p] < self.iteration}
        for party, (slots, alpha) in self._alpha.changes(stale).items():
            messages[party].alpha_slots, messages[party].alpha = slots, alpha
        self._v.invite(messages)
        return messages

    def _products(self, asked: list[str]) -> dict[str, PairProductsRequest]:
        messages = {party: PairProductsRequest(**self._common()) for party in asked}
        for party, block in self._v.blocks(asked).items():
            messages[party].v = block
        self._z.invite(messages)
        return messages

    def _losses_of(self, asked: list[str]) -> dict[str, PairLossesRequest]:
        messages = {party: PairLossesRequest(**self._common()) for party in asked}
        wanted = {p: self._counted[p] for p in asked if len(self._counted[p])}
        for party, block in self._z.pieces(wanted).items():
            messages[party].z = block
        return messages

    def _common(self) -> dict[str, Any]:
        """What every request about the pair says; whoever sends it fills in ``ack``."""
        round_ = self._adder.round
        return {"round": round_, "iteration": self.iteration, "ack": 0, "keep": self._certified}

    def outrun(self, seen: Mapping[str, int]) -> bool:
        """Whether a party that never froze this pair's α has moved past it: the pair is lost."""
        return self.stage == "freeze" and any(seen[p] > self.iteration for p in self.waiting)

    def receive(self, replies: Mapping[str, Any]) -> None:
        """Add the answers; go on to the next stage when all are in."""
        if self.stage == "freeze":
            self._v.add(replies, self.iteration)
        elif self.stage == "products":
            self._z.add(replies, self.iteration)
            # Checked now rather than when the last party has answered.
            add_scalars(replies, "norms", self._alpha.width, ())
            self._norms.update(replies)
        else:
            add_scalars(replies, "losses", 2 * self._alpha.width, ())
            self._losses.update(replies)
        self.waiting -= replies.keys()
        if not self.waiting:
            self._advance()

    def _advance(self) -> None:
        if self.stage == "losses":
            width = self._alpha.width
            norms = add_scalars(self._norms, "norms", width, self._everyone)
            losses = add_scalars(self._losses, "losses", 2 * width, self._everyone)
            if norms is not None and losses is not None:
                self.certificate = Certificate.of_sums(self.iteration, self._lam, norms, losses)
            return
        self.stage = "products" if self.stage == "freeze" else "losses"
        self.waiting = set(self._everyone)
