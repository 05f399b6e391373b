"""The coordinator of every method in rounds: it adds, forwards and counts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import ClassVar

from weft.crypto import Adder
from weft.errors import PartyAway
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Failure, Message, Replies, Request
from weft.protocol.message import integer
from weft.solvers.base import Checkpointing, Coordinator, Record, Result
from weft.solvers.checkpoints import load_checkpoint, save_checkpoint
from weft.solvers.guard_stall import GuardStall
from weft.solvers.rounds.certificate import FrozenPoint
from weft.solvers.rounds.run_state import Phase, RoundsState
from weft.solvers.run_state import MOST_SILENT
from weft.solvers.settings import Settings
from weft.solvers.stopping import Clock, why_stop
from weft.sums.maxima import units_above
from weft.sums.scalar_sums import add_scalars

#: Rounds without training in which the last certificate waits for parties to come by.
CLOSING_ROUNDS = 10_000
#: Scalar sums of a phase by name; None where somebody who was asked did not answer.
Scalars = Mapping[str, list[float] | None]


class RoundCoordinator(Coordinator):
    """Asks the phases of a method, one after the other, and adds up what comes.

    Attributes
    ----------
    phases
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

    phases: ClassVar[tuple[Phase, ...]]
    model_of: ClassVar[tuple[str, ...]] = ("v",)
    windows: ClassVar[tuple[str, ...]] = ("z",)
    everyone: ClassVar[bool] = True
    sizes: ClassVar[int] = 0

    # ── what a method may say ─────────────────────────────────────────────────────────────

    def find(self, run: RoundsState, largest: list[float]) -> dict[str, float]:
        """What every party must know before the first iteration."""
        return {}

    def tell(self, run: RoundsState, phase: Phase, present: list[str]) -> dict[str, Message]:
        """What messages of a phase say besides totals, by party."""
        return {}

    def scalars_of(self, run: RoundsState, phase: Phase) -> tuple[tuple[str, int], ...]:
        """The scalars that a phase asks for now; messages say ``measure`` where there are any."""
        return phase.scalars

    def take(self, run: RoundsState, phase: Phase, scalars: Scalars) -> None:
        """Scalar sums of a phase."""

    def readers(self, run: RoundsState, kind: str, present: list[str]) -> list[str]:
        """Who gets the totals of a sum."""
        return present

    def prepare(self, run: RoundsState, present: list[str]) -> list[str]:
        """What must be done before an iteration; returns who takes part in it."""
        return present

    def settled(self, run: RoundsState) -> bool:
        """Whether nobody owes anything that a checkpoint would not keep."""
        return True

    def set_up(self, run: RoundsState) -> None:
        """Find out, and tell everybody, what the first iteration needs."""
        largest: list[float] = []
        if self.sizes:
            largest = units_above(run.channel, run.adder, "rounds.size", self.sizes).tolist()
        run.found = self.find(run, largest)
        if run.found:
            messages: dict[str, Message] = {p: dict(run.found) for p in run.holdings.parties}
            run.channel.ask("rounds.begin", messages).insist("setting up")

    # ── the run ───────────────────────────────────────────────────────────────────────────

    def run(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        *,
        unit: float,
        label: float,
        classes: int,
        progress: Callable[[Record], None] | None = None,
        checkpointing: Checkpointing | None = None,
        warm: bool = False,
    ) -> Result:
        kinds = {kind: None for phase in self.phases for kind in (*phase.gets, *phase.gives)}
        run = RoundsState(channel, holdings, settings, adder, classes, kinds, self.windows)
        result = Result(notes=run.notes)
        if checkpointing is not None and checkpointing.resume:
            clock = Clock(channel, result, load_checkpoint(run, result, checkpointing.folder))
            result.stopped = _why_stop(run, result.history[-1])
        else:
            clock = Clock(channel, result)
            self.set_up(run)
        floor = GuardStall(holdings.terms.min_batch)
        certified, held = run.certificate, run.held
        while not result.stopped:
            present = self._iterate(run)
            record = clock.record(run.iteration, len(present), run.certificate)
            result.history.append(record)
            if progress is not None:
                progress(record)
            result.stopped = _why_stop(run, record)
            if run.certificate is not None and run.certificate is not certified:
                why = floor.watch(run.iteration, run.held - held, run.certificate.gap)
                result.stopped = result.stopped or why
                certified, held = run.certificate, run.held
            due = checkpointing is not None and run.iteration % checkpointing.every == 0
            if checkpointing is not None and due and self.settled(run):
                save_checkpoint(run, result, checkpointing.folder, clock.spent())
        self._close(run, result)
        last = result.history[-1]
        result.history[-1] = clock.record(run.iteration, last.present, run.certificate)
        result.weights = None if run.weights is None else run.weights.values
        return result

    def _iterate(self, run: RoundsState) -> list[str]:
        """One iteration; returns who took part."""
        run.iteration += 1
        present = self.prepare(run, run.admitted(run.iteration))
        riders = self._riders(run, present)
        for phase in self.phases:
            if not present:
                break
            present = self._ask(run, phase, present, riders)
            riders = []
        if present:
            run.silent_iterations = 0
        if run.point is None and run.iteration % run.certify_every == 0:
            run.freeze(self.model_of)
        return present

    def _ask(
        self, run: RoundsState, phase: Phase, present: list[str], riders: list[Request]
    ) -> list[str]:
        """One phase, with questions about the frozen point in the same envelopes."""
        scalars = self.scalars_of(run, phase)
        messages = self._messages(run, phase, present)
        requests = [*riders, Request(f"rounds.{phase.name}", messages)]
        for request in requests:
            run.acknowledge(request)
        *answers, replies = run.channel.exchange(requests)
        for rider in answers:
            rider.stop_on_refusal()
            run.note_missing(rider.missing)
            if run.point is not None:
                self._measure(run, run.point, rider)
        replies.stop_on_refusal()
        present = self._part_with(run, replies, present)
        for party, reply in replies.answered.items():
            run.take_sequence(party, reply)
            run.held += integer(reply, "held", 0)
        for kind in phase.gives:
            run.sums[kind].add(replies.answered, run.iteration)
        self._note_wishes(run, phase, replies)
        if scalars:
            asked = list(messages)
            self.take(
                run, phase, {n: add_scalars(replies.answered, n, k, asked) for n, k in scalars}
            )
        return present

    def _messages(self, run: RoundsState, phase: Phase, present: list[str]) -> dict[str, Message]:
        measure = bool(self.scalars_of(run, phase))
        messages: dict[str, Message] = run.adder.open(present)
        news = self.tell(run, phase, present)
        for party, message in messages.items():
            message["iteration"] = run.iteration
            message.update(news.get(party, {}))
            if measure:
                message["measure"] = True
        for kind in phase.gets:
            totals, readers = run.sums[kind], self.readers(run, kind, present)
            named = run.want if kind in self.windows else {}
            some = {p: named[p] for p in readers if p in named}
            blocks = totals.blocks([p for p in readers if p not in some])
            for party, block in {**blocks, **totals.pieces(some)}.items():
                messages[party][kind] = block
        for kind in phase.gives:
            run.sums[kind].invite(messages)
        if measure:
            run.adder.mask(messages)
        return messages

    def _note_wishes(self, run: RoundsState, phase: Phase, replies: Replies) -> None:
        """Remember of which samples the parties want totals next."""
        for kind in set(phase.gives).intersection(self.windows):
            for party, reply in replies.answered.items():
                named = reply.get(f"{kind}.slots")
                if named is not None:
                    run.want[party] = run.sums[kind].checked_slots(party, named, run.iteration)

    def _part_with(self, run: RoundsState, replies: Replies, present: list[str]) -> list[str]:
        """Who is left; where too few are, what they answered counts as never received."""
        if not replies.missing:
            return present
        run.note_missing(replies.missing)
        if self.everyone:
            party, failure = next(iter(replies.missing.items()))
            raise PartyAway(
                f"solver '{run.settings.solver}' needs every party, but {party} did not answer "
                f"({failure.reason}); bring it back and go on from the last checkpoint, or use "
                "solver 'hyfdca'"
            )
        left = run.contributors.of([p for p in present if p not in replies.missing])
        for party in set(replies.answered).difference(left):
            del replies.answered[party]
        if not left:
            run.count_silence(*next(iter(replies.missing.items())))
        return left

    # ── the certificate ───────────────────────────────────────────────────────────────────

    def _riders(self, run: RoundsState, present: list[str]) -> list[Request]:
        if run.point is None:
            return []
        request = run.point.request(present)
        return [request] if request.messages else []

    def _measure(self, run: RoundsState, point: FrozenPoint, replies: Replies) -> None:
        point.receive(replies.answered)
        if point.certificate is not None:
            run.accept(point)

    def _close(self, run: RoundsState, result: Result) -> None:
        """End on a certified point: the one that stopped the run, or a last one, waited for."""
        if not run.reached_gap:
            self._wait(run)
        if run.held:
            run.note(
                f"min_batch = {run.holdings.terms.min_batch} held back {run.held} changes of "
                "groups of samples"
            )
        if run.certificate is not None:
            result.certificate = run.certificate
            result.model_iteration = run.certificate.iteration
            if run.certificate.iteration < run.iteration and not run.reached_gap:
                run.note(
                    f"the model released is that of iteration {run.certificate.iteration}, the "
                    "last for which every party answered"
                )

    def _wait(self, run: RoundsState) -> None:
        """Freeze the last point and go on asking whoever is present, without training."""
        point = run.freeze(self.model_of)
        silent = 0
        missing: dict[str, Failure] = {}
        for extra in range(1, CLOSING_ROUNDS + 1):
            request = point.request(run.participation.present(run.iteration + extra))
            if request.messages:
                run.acknowledge(request)
                replies = run.channel.ask(request.phase, request.messages)
                replies.stop_on_refusal()
                run.note_missing(replies.missing)
                missing = replies.missing
                self._measure(run, point, replies)
                silent = 0 if replies.answered else silent + 1
            if point.certificate is not None:
                return
            if silent > MOST_SILENT:
                break
        run.point = None
        who = ", ".join(sorted(missing)[:5])
        run.note(
            f"no certificate for the last iterate: {who or 'some'} did not answer"
            + (
                ""
                if run.certificate
                else "; the model released is not certified, and of weights "
                "as each party saw them last"
            )
        )


def _why_stop(run: RoundsState, record: Record) -> str:
    if run.reached_gap and run.certificate is not None:
        return f"certified gap {run.certificate.gap:.2e} ≤ {run.settings.gap:g}"
    return why_stop(run.settings, run.iteration, record)
