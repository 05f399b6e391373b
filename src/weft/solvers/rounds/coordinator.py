"""The coordinator of every method in rounds: it adds, forwards and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, ClassVar

from weft.crypto import Adder
from weft.errors import PartyAway
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Replies, Request
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import BEGIN, SIZE, BeginRequest, RoundReply, RoundRequest
from weft.solvers.run_loop import (
    IteratedCoordinator,
    Turn,
    wait_for_certificate,
)
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.solvers.solver_interfaces_and_results import Result
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.scalar_sums import add_scalars

#: Scalar sums of a step by name; None where somebody who was asked did not answer.
Scalars = Mapping[str, list[float] | None]


class RoundCoordinator(IteratedCoordinator[RoundsState]):
    """Asks the steps of a method, one after the other, and adds up what comes.

    Attributes
    ----------
    steps
        What an iteration asks.
    model_of
        The sums that the model is made of.
    windows
        Sums over samples of which parties may name some, the same at all holders.
    everyone
        Whether nobody may be missing.
    sizes
        How many values setting up finds the largest of, each as a power of two above it.
    """

    steps: ClassVar[tuple[Step, ...]]
    model_of: ClassVar[tuple[str, ...]] = ("v",)
    windows: ClassVar[tuple[str, ...]] = ("z",)
    everyone: ClassVar[bool] = True
    sizes: ClassVar[int] = 0

    # ── what a method may say ─────────────────────────────────────────────────────────────

    def find(self, run: RoundsState, largest: list[float]) -> Constants:
        """What every party must know before the first iteration."""
        return Constants()

    def tell(self, run: RoundsState, step: Step, messages: Mapping[str, RoundRequest]) -> None:
        """Write into the messages of a step what they say besides totals."""

    def scalars_of(self, run: RoundsState, step: Step) -> tuple[tuple[str, int], ...]:
        """The scalars that a step asks for now; messages say ``measure`` where there are any."""
        return step.scalars

    def take(self, run: RoundsState, step: Step, scalars: Scalars) -> None:
        """Scalar sums of a step."""

    def readers(self, run: RoundsState, kind: str, present: list[str]) -> list[str]:
        """Who gets the totals of a sum."""
        return present

    def prepare(self, run: RoundsState, present: list[str]) -> list[str]:
        """What must be done before an iteration; returns who takes part in it."""
        return present

    def set_up(self, run: RoundsState, unit: float) -> None:
        """Find out, and tell everybody, what the first iteration needs."""
        largest: list[float] = []
        if self.sizes:
            largest = units_above(run.channel, run.adder, SIZE, self.sizes).tolist()
        run.found = self.find(run, largest)
        if run.found != Constants():
            self.begin(run)

    def begin(self, run: RoundsState) -> None:
        """Tell every party what setting up found."""
        request = BeginRequest(constants=run.found)
        run.channel.ask(BEGIN, dict.fromkeys(run.holdings.parties, request)).insist("setting up")

    # ── an iteration ──────────────────────────────────────────────────────────────────────

    def new_run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        classes: int,
    ) -> RoundsState:
        kinds = {kind: None for step in self.steps for kind in (*step.gets, *step.gives)}
        return RoundsState(channel, holdings, settings, adder, classes, kinds, self.windows)

    def iterate(self, run: RoundsState) -> Turn:
        run.iteration += 1
        present = self.prepare(run, run.admitted(run.iteration))
        riders = self._riders(run, present)
        for step in self.steps:
            if not present:
                break
            present = self.ask(run, step, present, riders)
            riders = []
        if present:
            run.silent_iterations = 0
        if run.point is None and run.iteration % run.certify_every == 0:
            run.freeze(self.model_of)
        return Turn(len(present))

    def ask(
        self,
        run: RoundsState,
        step: Step,
        present: list[str],
        riders: list[Request[Any, Any]],
    ) -> list[str]:
        """One step, with questions about the frozen point; returns who is left."""
        # Sums of scalars go over all parties, or are not asked for.
        complete = len(present) == len(run.holdings.parties)
        scalars = self.scalars_of(run, step) if complete else ()
        messages = self._messages(run, step, present, measure=bool(scalars))
        replies = run.ask(step.phase, messages, riders, run.take_measured, self._insist_on_all(run))
        present = self._part_with(run, replies, present)
        for party, reply in replies.answered.items():
            run.take_sequence(party, reply.sequence)
            run.held += reply.held
        for kind in step.gives:
            run.sums[kind].add(replies.answered, run.iteration)
        self._note_wishes(run, step, replies)
        if scalars:
            asked = list(messages)
            sums = {n: add_scalars(replies.answered, n, k, asked) for n, k in scalars}
            self.take(run, step, sums)
        return present

    def _messages(
        self, run: RoundsState, step: Step, present: list[str], *, measure: bool
    ) -> dict[str, RoundRequest]:
        round_, iteration = run.adder.advance(), run.iteration
        messages = {
            party: RoundRequest(round=round_, iteration=iteration, ack=0, measure=measure)
            for party in present
        }
        self.tell(run, step, messages)
        for kind in step.gets:
            totals, readers = run.sums[kind], self.readers(run, kind, present)
            named = run.want if kind in self.windows else {}
            some = {p: named[p] for p in readers if p in named}
            blocks = totals.blocks([p for p in readers if p not in some])
            for party, block in {**blocks, **totals.pieces(some)}.items():
                setattr(messages[party], kind, block)
        for kind in step.gives:
            run.sums[kind].invite(messages)
        return messages

    def _note_wishes(self, run: RoundsState, step: Step, replies: Replies[RoundReply]) -> None:
        """Remember of which samples the parties want totals next."""
        for kind in set(step.gives).intersection(self.windows):
            named = {
                party: reply.z_slots if kind == "z" else reply.delta_slots
                for party, reply in replies.answered.items()
            }
            some = {party: slots for party, slots in named.items() if slots is not None}
            run.want.update(run.sums[kind].checked_slots(some, run.iteration))

    def _insist_on_all(self, run: RoundsState) -> Callable[[Replies[RoundReply]], None]:
        """What stops where somebody is missing, if nobody may be."""

        def insist(replies: Replies[RoundReply]) -> None:
            for party, failure in replies.missing.items():
                if self.everyone:
                    raise PartyAway(
                        f"solver '{run.settings.solver}' needs every party, but {party} did not "
                        f"answer ({failure.reason}); bring it back and go on from the last "
                        "checkpoint, or use solver 'hyfdca'"
                    )

        return insist

    def _part_with(
        self, run: RoundsState, replies: Replies[RoundReply], present: list[str]
    ) -> list[str]:
        """Who is left to go on."""
        if not replies.missing:
            return present
        left = run.part_with(replies, present)
        if not left:
            run.count_silence(*next(iter(replies.missing.items())))
        return left

    # ── the certificate ───────────────────────────────────────────────────────────────────

    def _riders(self, run: RoundsState, present: list[str]) -> list[Request[Any, Any]]:
        if run.point is None:
            return []
        request = run.point.request(present)
        return [request] if request.messages else []

    def close(self, run: RoundsState, result: Result) -> None:
        """End on a certified point: the one that stopped the run, or a last one, waited for."""
        if not run.reached_gap:
            self._wait(run)
        if run.certificate is not None:
            result.certificate = run.certificate
            result.model_iteration = run.certificate.iteration
            if run.certificate.iteration < run.iteration and not run.reached_gap:
                run.note(
                    f"the model released is that of iteration {run.certificate.iteration}, the "
                    "last for which every party answered"
                )

    def _wait(self, run: RoundsState) -> None:
        """Freeze the last point, and wait until everyone has answered for it."""
        point = run.freeze(self.model_of)
        if wait_for_certificate(run, point, point.request, run.take_measured):
            return
        run.point = None
        if run.certificate is None:
            run.note(
                "the model released is not certified, and of weights as each party saw them last"
            )
