"""One outer iteration of HyFDCA, as the coordinator drives it.

Round trips: ``safe`` with labels at all holders takes two (``weights``, ``step``), ``practical``
and ``theory`` three (then ``dual``); one more when parties return after an absence, one more
for the second sample sum of ``theory`` under partial participation. Where no sample is shared
(horizontal data) everything fits in one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.settings import Settings
from weft.channels import Channel, Cyclic, Failure, Message, Replies, Request, participation_of
from weft.channels.message import array, integer
from weft.crypto import adder_of
from weft.errors import ProtocolError
from weft.matching.roster import Roster
from weft.sums.certificate import Certificate, FrozenPair
from weft.sums.scalars import add_scalars
from weft.sums.totals import Layout, RunningTotals


class Run:
    """What the coordinator keeps between iterations."""

    def __init__(self, channel: Channel, roster: Roster, settings: Settings, classes: int) -> None:
        self.channel = channel
        self.roster = roster
        self.settings = settings
        self.classes = classes
        self.participation = participation_of(settings.participation, roster.parties, settings.seed)
        self.adder = adder_of(settings.cipher)
        self.row_layout = Layout(roster.rows, roster.parties)
        self.column_layout = Layout(roster.columns, roster.parties)
        self.z = RunningTotals("z", self.row_layout, classes, self.adder)
        self.alpha = RunningTotals("alpha", self.row_layout, classes, self.adder)
        self.v = RunningTotals("v", self.column_layout, classes, self.adder)
        self.iteration = 0
        self.omega = 0.0
        #: Iteration up to which each party's α is current.
        self.seen = dict.fromkeys(roster.parties, 0)
        #: Sequence number of the last reply received from each party.
        self.ack = dict.fromkeys(roster.parties, 0)
        self.certificate: Certificate | None = None
        self.certified_frozen = False
        self.best_dual = 0.0
        self.pair: FrozenPair | None = None
        self.norm_estimate = 0.0
        self.silent_rounds = 0
        self.notes: list[str] = []
        self._noted: set[str] = set()
        self.senders = Senders(roster)

    @property
    def certify_every(self) -> int:
        """As set, or once per pass over the data."""
        return self.settings.certify_every or max(1, min(100, math.ceil(1 / self.settings.iic)))

    @property
    def everyone_current(self) -> bool:
        """Whether every party takes part always and none has fallen behind."""
        return self.participation.complete and all(
            seen == self.iteration for seen in self.seen.values()
        )

    @property
    def reached_gap(self) -> bool:
        """Whether the newest certificate meets the target."""
        target = self.settings.gap
        return (
            target is not None and self.certificate is not None and self.certificate.gap <= target
        )

    def gamma(self) -> float:
        gamma = self.settings.gamma
        if gamma == "auto":
            # Theorem 4.11 asks for 1/t where parties with all rows take turns.
            theorem = isinstance(self.participation, Cyclic) and self.roster.vertical
            gamma = "1/t" if theorem and self.settings.local == "theory" else 1.0
        return 1.0 / self.iteration if isinstance(gamma, str) else gamma

    def constants(self, party: str) -> Message:
        """What setting up found out, for one party's local method."""
        if self.settings.local == "safe":
            return {"omega": self.omega}
        if self.settings.local == "practical":
            return {}
        rows = self.roster.rows
        held = int(rows.sizes[rows.cohorts[self.roster.index[party]]].sum())
        special = self.roster.horizontal or self.roster.vertical
        return {"share": 1.0 if special else held / self.roster.n_samples}

    def freeze(self) -> FrozenPair:
        """A new pair: α as it stands now."""
        self.pair = FrozenPair(
            self.iteration,
            self.roster.parties,
            self.alpha,
            self.column_layout,
            self.adder,
            self.settings.lam,
        )
        return self.pair

    def accept(self, pair: FrozenPair) -> None:
        """A frozen pair is complete."""
        if pair.certificate is not None:
            self.certify(pair.certificate, frozen=True)
        self.pair = None

    def certify(self, certificate: Certificate, *, frozen: bool) -> None:
        """Keep a certificate; ``safe`` doubles ω if D fell since the last one."""
        before = self.certificate
        self.certificate, self.certified_frozen = certificate, frozen
        self.best_dual = max(self.best_dual, sum(certificate.dual))
        if self.settings.local == "safe" and before is not None:
            slack = 1e-9 * max(1.0, abs(sum(before.dual)))
            if sum(certificate.dual) < sum(before.dual) - slack:
                self.omega *= 2.0
                self.note(
                    f"D fell between iterations {before.iteration} and {certificate.iteration}: "
                    f"ω doubled to {self.omega:.4g}"
                )

    def acknowledge(self, request: Request) -> None:
        """Tell each party which of its replies arrived last, so that it can take back others."""
        for party, message in request.messages.items():
            message["ack"] = self.ack[party]

    def note(self, text: str) -> None:
        """Log something once."""
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)

    def note_missing(self, missing: Mapping[str, Failure]) -> None:
        for party, failure in missing.items():
            self.note(f"iteration {self.iteration}: {party} {failure.kind} ({failure.reason})")


class Senders:
    """Who keeps the coordinator's α current: the first label holder present, per cohort."""

    def __init__(self, roster: Roster) -> None:
        marked = roster.rows.marked
        self._holder = marked.values
        self._start = marked.start[:-1]
        cohort = np.repeat(np.arange(len(marked)), marked.lengths)
        # Entries in the order of (party, cohort): a party's own cohorts are one slice.
        order = np.lexsort((cohort, self._holder))
        self._rank = np.empty(len(order), np.int64)
        self._rank[order] = np.arange(len(order))
        self._bounds = np.searchsorted(
            self._holder[order], np.arange(len(roster.parties) + 1)
        ).tolist()
        self._slot = {p: i for i, p in enumerate(roster.parties)}
        self._labelled = [
            None
            if len(roster.rows.cohorts[k]) == self._bounds[k + 1] - self._bounds[k]
            else np.isin(
                roster.rows.cohorts[k], cohort[order][self._bounds[k] : self._bounds[k + 1]]
            )
            for k in range(len(roster.parties))
        ]

    def of(self, present: list[str]) -> dict[str, NDArray[np.bool_]]:
        """Per party present, a flag for each of its cohorts."""
        here = np.zeros(len(self._slot), bool)
        here[[self._slot[p] for p in present]] = True
        candidate = np.where(here[self._holder], np.arange(len(self._holder)), len(self._holder))
        first = np.minimum.reduceat(candidate, self._start)
        chosen = np.zeros(len(self._holder) + 1, bool)
        chosen[first] = True
        by_party = np.empty(len(self._holder), bool)
        by_party[self._rank] = chosen[:-1]
        flags = {}
        for party in present:
            k = self._slot[party]
            mine = by_party[self._bounds[k] : self._bounds[k + 1]]
            labelled = self._labelled[k]
            if labelled is not None:
                mine_all = np.zeros(len(labelled), bool)
                mine_all[labelled] = mine
                mine = mine_all
            flags[party] = mine
        return flags


class Iteration:
    """One outer iteration over the parties that take part in it."""

    def __init__(self, run: Run) -> None:
        self.run = run
        self.present: list[str] = []
        self.loss_estimate: float | None = None
        self.gap_estimate: float | None = None
        self._every = self._measure = self._still = False
        self._want: dict[str, NDArray[np.int32]] = {}
        self._norms: dict[str, Message] = {}

    def take(self, *, still: bool = False) -> None:
        """Go through the phases; with ``still`` only certify where the run stands."""
        run = self.run
        self._still = still
        run.iteration += not still
        turn = run.iteration + still
        self.present = list(run.participation.present(turn))
        due = still or (run.iteration - 1) % run.certify_every == 0
        self._every = due and run.participation.complete and self._all_current(turn)
        self._measure = due and not self._every
        riders = self._riders()
        if run.roster.rows.n_shared:
            self._rejoin(riders, turn)
        if run.roster.rows.n_shared == 0:
            self._fused(riders, turn, still)
        else:
            self._weights(riders, turn)
            self._step(still)
            if not still and self._needs_dual():
                self._dual()
            if self._needs_second_sum() and not still:
                self._weights([], turn + 1)
        if still:
            return
        for party in self.present:
            run.seen[party] = run.iteration
        if not run.participation.complete and run.pair is None and due:
            run.freeze()

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def _rejoin(self, riders: list[Request], turn: int) -> None:
        """Parties that were away get the α that changed, and refresh their feature sums."""
        run = self.run
        since = {p: run.seen[p] for p in self.present if run.seen[p] < turn - 1}
        changed = run.alpha.changes(since)
        messages: dict[str, Message] = {
            p: {"alpha.slots": slots, "alpha": alpha}
            for p, (slots, alpha) in changed.items()
            if len(slots)
        }
        if messages:
            replies = self._ask("dual", messages, riders)
            run.v.add(replies.answered, run.iteration)
            riders.clear()

    def _weights(self, riders: list[Request], turn: int) -> None:
        """v totals down, partial inner products up."""
        replies = self._ask("weights", self._weight_messages(turn), riders)
        riders.clear()
        self.run.z.add(replies.answered, self.run.iteration)
        for party, reply in replies.answered.items():
            if "want" in reply:
                self._want[party] = array(reply, "want")
            elif "z.slots" in reply:
                self._want[party] = array(reply, "z.slots")
            else:
                self._want.pop(party, None)
        self._norms = replies.answered

    def _weight_messages(self, turn: int) -> dict[str, Message]:
        run = self.run
        base: Message = {"iteration": turn, "ahead": run.participation.horizon}
        if self._every:
            base["every"] = True
        blocks = run.v.blocks(self.present)
        return {p: {**base, "v": b} if len(b) else dict(base) for p, b in blocks.items()}

    def _step(self, still: bool) -> None:
        """z totals down to those who compute; changes of α, and with ``safe`` sums, up."""
        run = self.run
        base = self._step_message(still)
        movers = [p for p in self.present if self._computes(p)]
        senders = run.senders.of(movers) if run.settings.local == "safe" else {}
        messages = {}
        for party, z in self._totals(movers).items():
            message = dict(base)
            if len(z):
                message["z"] = z
            if party in senders and not senders[party].all():
                message["send"] = senders[party]
            messages[party] = message
        replies = self._ask("step", messages)
        if not still:
            run.v.add(replies.answered, run.iteration)
            run.alpha.add(replies.answered, run.iteration)
            if replies.missing and senders:
                self._ask_again(replies, senders)
        self._finish_certificate(replies)
        self._estimate(replies.answered)

    def _fused(self, riders: list[Request], turn: int, still: bool) -> None:
        """No sample is shared: weights and step in one round trip."""
        run = self.run
        base = self._step_message(still)
        base["fuse"] = True
        messages = {p: {**m, **base} for p, m in self._weight_messages(turn).items()}
        replies = self._ask("weights", messages, riders)
        if not still:
            run.v.add(replies.answered, run.iteration)
        self._norms = replies.answered
        self._finish_certificate(replies)
        self._estimate(replies.answered)

    def _step_message(self, still: bool) -> Message:
        run = self.run
        message: Message = {"gamma": run.gamma() if run.iteration else 1.0}
        if run.settings.local == "safe":
            message["omega"] = run.omega
        if still:
            message["still"] = True
        if self._measure and not still:
            message["measure"] = True
        if isinstance(run.participation, Cyclic) and run.roster.vertical:
            # In turns over all rows, the paper averages over the holders that are active.
            message["active"] = len(self.present)
        return message

    def _dual(self) -> None:
        """α totals down to the holders that did not move them themselves; feature sums up."""
        run = self.run
        since = dict.fromkeys(self._dual_receivers(), run.iteration - 1)
        messages: dict[str, Message] = {
            p: {"alpha.slots": slots, "alpha": alpha}
            for p, (slots, alpha) in run.alpha.changes(since).items()
        }
        if messages:
            replies = self._ask("dual", messages)
            run.v.add(replies.answered, run.iteration)

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _ask(
        self, phase: str, messages: dict[str, Message], riders: list[Request] | None = None
    ) -> Replies:
        """Ask, with certificate riders in the same envelopes; drop who did not answer."""
        run = self.run
        requests = [*(riders or []), Request(f"hyfdca.{phase}", messages)]
        for request in requests:
            run.acknowledge(request)
        *rider_replies, replies = run.channel.exchange(requests)
        for rider in rider_replies:
            rider.stop_on_refusal()
            if run.pair is not None:
                run.pair.receive(rider.answered)
                if run.pair.certificate is not None:
                    run.accept(run.pair)
        replies.stop_on_refusal()
        if replies.missing:
            run.note_missing(replies.missing)
            self.present = [p for p in self.present if p not in replies.missing]
            if not self.present:
                party, failure = next(iter(replies.missing.items()))
                raise ProtocolError(
                    f"no party answered in iteration {run.iteration} ({party}: {failure.reason}); "
                    "check that the parties are running"
                )
        for party, reply in replies.answered.items():
            run.ack[party] = integer(reply, "sequence")
        return replies

    def _riders(self) -> list[Request]:
        pair = self.run.pair
        if pair is None:
            return []
        request = pair.request(self.present, self.run.seen)
        return [request] if request.messages else []

    def _all_current(self, turn: int) -> bool:
        return all(seen == turn - 1 for seen in self.run.seen.values())

    def _totals(self, parties: list[str]) -> dict[str, Any]:
        """z totals that each party asked for; whole blocks are gathered once."""
        z = self.run.z
        whole = [p for p in parties if p not in self._want]
        out: dict[str, Any] = z.blocks(whole)
        some = {p: self._want[p] for p in parties if p in self._want}
        out.update(z.pieces(some))
        return out

    def _computes(self, party: str) -> bool:
        return self.run.roster.labels_everywhere or party in self.run.roster.label_parties

    def _needs_dual(self) -> bool:
        return self.run.settings.local != "safe" or not self.run.roster.labels_everywhere

    def _needs_second_sum(self) -> bool:
        return self.run.settings.local == "theory" and not self.run.participation.complete

    def _dual_receivers(self) -> list[str]:
        if self.run.settings.local != "safe":
            return self.present
        return [p for p in self.present if p in self.run.roster.partly_unlabelled]

    def _ask_again(self, replies: Replies, senders: dict[str, NDArray[np.bool_]]) -> None:
        """The sender of some cohorts fell silent after others had moved: ask another holder."""
        run = self.run
        lost = run.senders.of(list(senders))
        now = run.senders.of(list(replies.answered)) if replies.answered else {}
        messages = {}
        for party, flags in now.items():
            fresh = flags & ~lost[party]
            if fresh.any():
                message: Message = {"send": fresh}
                messages[party] = message
        if messages:
            again = self._ask("again", messages)
            run.alpha.add(again.answered, run.iteration)

    def _finish_certificate(self, replies: Replies) -> None:
        """Losses are in: with everyone's, the pair before this step is certified."""
        run = self.run
        if not self._every or replies.missing or len(self.present) < len(run.roster.parties):
            return
        norms = add_scalars(self._norms, "norms", run.classes)
        losses = add_scalars(replies.answered, "losses", 2 * run.classes)
        at = run.iteration - 1 if not self._still else run.iteration
        certificate = Certificate.of_sums(at, run.settings.lam, norms, losses)
        run.certify(certificate, frozen=False)

    def _estimate(self, replies: Mapping[str, Message]) -> None:
        """Loss of the drawn samples plus the regulariser as last told: not a certificate."""
        if not self._measure:
            return
        run = self.run
        loss, share, change = add_scalars(replies, "estimate", 3)
        run.norm_estimate += change
        if share > 0:
            primal = loss / share + 0.5 * run.settings.lam * run.norm_estimate
            self.loss_estimate = primal
            self.gap_estimate = (primal - run.best_dual) / primal if primal > 0 else 0.0
