"""The fast solvers' round trips, as the coordinator makes them: sums up, coefficients down."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Failure, Message
from weft.protocol.message import integer
from weft.solvers.cohort_speakers import CohortSpeakers
from weft.solvers.settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.loss_table_limits import most_steps
from weft.solvers.subspace.phase_request import Heir, Mixture, PartyMissing, Wanted
from weft.solvers.subspace.row_roles import counted, followed, labelled_rows
from weft.solvers.visible_weights import VisibleWeights
from weft.sums.fixed_point_bounds import Bounds
from weft.sums.posted_totals import PostedTotals
from weft.sums.running_totals import RunningTotals
from weft.sums.scalar_sums import add_scalars
from weft.sums.slot_layout import Layout

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
Fill = Callable[[dict[str, Message]], None]

#: Relative rounding of fixed point within its range.
FIXED_POINT = 2.0**-48
#: The gap that rounding must not spoil where none is asked for.
FINEST = 1e-6
#: What share of gap and loss at zero the rounding of inner products may make up.
_BEARABLE = 1e-4
#: Phases in which label holders get z.
_ROW_PHASES = ("search", "gather", "inherit", "close")
#: Phases that go to everybody, before which vectors can be dropped.
_COLUMN_PHASES = ("spread", "point")
#: Seconds between two questions to a party that does not answer: at first, and at most.
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 2.0


class Exchange:
    """One phase after the other, each until everybody has answered.

    Attributes
    ----------
    by_rows
        Whether inner products of new vectors with older ones are computed by the holders of the
        rows (fewer samples than features) or of the columns.
    """

    def __init__(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        problems: Problems,
        bounds: Bounds,
    ) -> None:
        self.channel, self.holdings, self.settings, self.adder = channel, holdings, settings, adder
        self.bounds = bounds
        self.problems = problems
        self.rows = Layout(holdings.rows, holdings.parties)
        self.columns = Layout(holdings.columns, holdings.parties)
        self.stored = settings.groups == 1
        self.by_rows = self.stored and self._rows_give_products()
        self.seen = (
            VisibleWeights(holdings, problems.classes)
            if settings.coordinator_sees == "weights"
            else None
        )
        self.iteration = 0
        #: 1/N Σ ‖x_i‖², from the first vectors on.
        self.mean_square = -1.0
        #: Coefficients that go into the anchor, and which vectors stay, when all are asked next.
        self.fold: tuple[Floats, Ints] | None = None
        self.notes: list[str] = []
        #: Who goes on while somebody is away, and returns when all are back; None: nobody does.
        self.relief: Callable[[PartyMissing], None] | None = None
        #: What was reached meanwhile, and what is being taken over.
        self.heir: Heir | None = None
        self._inherited: Heir | None = None
        #: Changes of groups of samples that a guard has held back.
        self.held = 0
        #: How many phases each party has been asked; holders without labels miss some.
        self._serial = dict.fromkeys(holdings.parties, 0)
        self._v: RunningTotals | None = None
        self._z: RunningTotals | None = None
        self._z_is = "point"
        self._followers = [p for p in holdings.parties if p in holdings.partly_unlabelled]
        self._labelled = [p for p in holdings.parties if p in holdings.label_parties]
        self._own = labelled_rows(holdings)
        self._told_of = followed(holdings)
        #: Points at which losses may be asked for at once.
        self.most_steps = min(most_steps(n, holdings.terms.min_batch) for n in counted(holdings))
        self._senders = CohortSpeakers(holdings, labelled=True)

    def _rows_give_products(self) -> bool:
        """Whether Zᵀa/N is cheaper than b·b, and exact enough to bound P* by."""
        holdings, bounds, settings = self.holdings, self.bounds, self.settings
        error = bounds.products * FIXED_POINT * bounds.alpha
        error /= settings.smallest_lam * math.sqrt(holdings.n_samples)
        bearable = _BEARABLE * (settings.gap or FINEST) * bounds.at_zero
        return holdings.n_samples < holdings.columns.n_slots and error < bearable

    @property
    def gram(self) -> str:
        return "rows" if self.by_rows else "columns"

    # ── phases ────────────────────────────────────────────────────────────────────────────

    def spread(self, held: int, new: int) -> Floats:
        """Totals of new vectors down; their inner products up, and partial Z on its way.

        ``held`` vectors are there already, after folding. Returns (held + new × new × problems),
        or (new × new × problems) where rows give the rest.
        """
        v, width = self._v, self.problems.width
        assert v is not None
        first = self.mean_square < 0.0
        z = RunningTotals("z", self.rows, new * width, self.adder) if self.stored else None

        def fill(messages: dict[str, Message]) -> None:
            for message in messages.values():
                message["gram"] = self.gram
                if self.stored:
                    message["products"] = True
                if first:
                    message["first"] = True
            if self._inherited is not None:
                self._inherited.name(messages)
            for party, block in v.blocks(messages).items():
                messages[party]["v"] = block

        against = new if self.by_rows else held + new
        wanted = Wanted({"gram": against * new * width}, z)
        if first:
            wanted.scalars["squares"] = 1
        sums = self._complete("spread", self.holdings.parties, fill, wanted)
        self._inherited = None
        if z is not None:
            self._z, self._z_is = z, "vectors"
        if first:
            self.mean_square = sums["squares"][0]
        return np.array(sums["gram"]).reshape(against, new, width)

    def point(self, coefficients: Floats) -> Floats:
        """Let everybody form a point and measure its z; returns ‖w‖² per problem."""
        return self._point({"point": coefficients})["norms"]

    def model(self, coefficients: Floats, mixture: Floats, number: int) -> tuple[Floats, Floats]:
        """The same for a model that is kept; returns ‖w‖², and ‖Σ μ_j b_j‖² of a mixture."""
        message: Message = {"point": coefficients, "weights": mixture, "model": number}
        sums = self._point(message, tells_weights=True)
        return sums["norms"], sums["bound"]

    def _point(self, content: Message, *, tells_weights: bool = False) -> dict[str, Floats]:
        width = self.problems.width
        z = RunningTotals("z", self.rows, width, self.adder)

        def fill(messages: dict[str, Message]) -> None:
            for message in messages.values():
                message.update(content)

        wanted = Wanted({"norms": width}, z)
        if "model" in content:
            wanted.scalars["bound"] = width
        sums = self._complete("point", self.holdings.parties, fill, wanted, tells_weights)
        self._z, self._z_is = z, "point"
        return {field: np.array(values) for field, values in sums.items()}

    def search(
        self,
        coefficients: Floats,
        moved: Floats,
        steps: Floats,
        guesses: Floats,
        mixture: Mixture | None = None,
    ) -> tuple[Floats, Floats, Floats | None]:
        """Losses on the way to a target, and new dual vectors at guessed steps.

        With a mixture, another one that coordinate ascent from there proposes.

        Returns losses (steps × problems), offsets (vectors × problems) and, where rows give
        them, inner products with the vectors held.
        """
        width = self.problems.width

        def fill(messages: dict[str, Message]) -> None:
            for message in messages.values():
                message.update({"moved": moved, "steps": steps, "at": guesses, "gram": self.gram})
                if self.stored:
                    message["point"] = coefficients
                if mixture is not None:
                    message["weights"] = mixture.weights
                    message["curvature"] = mixture.curvature
            self._give_z(messages)

        new = (len(guesses) + (mixture is not None)) * self.settings.groups
        wanted = self._wanted_duals(new, len(coefficients)) if new else Wanted({})
        wanted.scalars["losses"] = len(steps) * width
        sums = self._complete("search", self._labelled, fill, wanted)
        losses = np.array(sums["losses"]).reshape(len(steps), width)
        offsets, cross = self._take_duals(sums, new, len(coefficients))
        return losses, offsets, cross

    def gather(
        self,
        held: int,
        moved: Floats,
        *,
        guesses: Floats | None = None,
        direction: Floats | None = None,
        first: bool = False,
    ) -> tuple[Floats, Floats | None, Floats | None]:
        """A dual vector at some steps, or what the Hessian makes of a direction.

        Returns offsets, inner products with the ``held`` vectors (or None), and, at ``first``,
        how many samples each problem trains on.
        """
        width = self.problems.width
        new = self.settings.groups * (1 if guesses is None else len(guesses))

        def fill(messages: dict[str, Message]) -> None:
            for message in messages.values():
                message.update({"moved": moved, "gram": self.gram})
                if guesses is not None:
                    message["at"] = guesses
                if direction is not None:
                    message["direction"] = direction
                if first:
                    message["first"] = True
            self._give_z(messages)

        wanted = self._wanted_duals(new, held)
        if direction is not None:
            del wanted.scalars["offsets"]
        if first:
            wanted.scalars["sizes"] = width
        sums = self._complete("gather", self._labelled, fill, wanted)
        offsets, cross = self._take_duals(sums, new, held)
        return offsets, cross, np.array(sums["sizes"]) if first else None

    def inherit(self, held: int, moved: Floats, heir: Heir) -> tuple[Floats, Floats | None]:
        """Take α of HyFDCA as a dual vector, whose feature sums are there already.

        Returns its offset, and inner products with the ``held`` vectors (or None).
        """
        wanted = Wanted({"offsets": self.problems.width})
        if self.by_rows:
            wanted.scalars["cross"] = held * self.problems.width

        def fill(messages: dict[str, Message]) -> None:
            heir.name(messages)
            for message in messages.values():
                message.update({"moved": moved, "gram": self.gram})
            self._give_z(messages)

        sums = self._complete("inherit", self._labelled, fill, wanted)
        self._v, self._inherited = heir.v, heir
        return self._take_duals(sums, 1, held)

    def close(self) -> tuple[Floats, Floats | None]:
        """Losses of the point just measured, and scores of the samples that folds left out."""
        problems = self.problems
        wanted = Wanted({"losses": problems.width})
        if problems.folds:
            wanted.scalars["scores"] = 3 * problems.folds
        sums = self._complete("close", self._labelled, self._give_z, wanted)
        scores = np.array(sums["scores"]).reshape(-1, 3) if problems.folds else None
        return np.array(sums["losses"]), scores

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _give_z(self, messages: dict[str, Message]) -> None:
        """z totals that nobody has yet, of the rows whose labels a party has, and of no others."""
        z = self._z
        if z is None:
            return
        for message in messages.values():
            message["of"] = self._z_is
        for party, block in z.blocks([p for p in messages if p not in self._own]).items():
            messages[party]["z"] = block
        some = {p: self._own[p] for p in messages if p in self._own and len(self._own[p])}
        for party, block in z.pieces(some).items():
            messages[party]["z"] = block

    def _wanted_duals(self, new: int, held: int) -> Wanted:
        width = self.problems.width
        wanted = Wanted({"offsets": new * width}, since=self.iteration)
        if self.by_rows:
            wanted.scalars["cross"] = held * new * width
        wanted.total = self._v = RunningTotals("v", self.columns, new * width, self.adder)
        if self._followers:
            duals = new // self.settings.groups * width
            wanted.board = PostedTotals("alpha", self.rows, duals, self.adder)
            senders = self._senders.of(self._labelled)
            wanted.senders = {p: flags & self._told_of[p] for p, flags in senders.items()}
        return wanted

    def _take_duals(
        self, sums: Mapping[str, list[float]], new: int, held: int
    ) -> tuple[Floats, Floats | None]:
        width = self.problems.width
        offsets = np.array(sums.get("offsets", [0.0] * (new * width))).reshape(new, width)
        cross = None
        if "cross" in sums:
            cross = np.array(sums["cross"]).reshape(held, new, width)
        return offsets, cross

    def _complete(
        self,
        phase: str,
        asked: Sequence[str],
        fill: Fill,
        wanted: Wanted,
        tells_weights: bool = False,
    ) -> dict[str, list[float]]:
        """Ask until everybody has answered, then follow up at holders without labels."""
        answers = self._ask_all(phase, asked, fill, wanted)
        if self.seen is not None and tells_weights:
            self.seen.take(answers)
        self.held += sum(integer(answer, "held", 0) for answer in answers.values())
        totals = {}
        for field, count in wanted.scalars.items():
            total = add_scalars(answers, field, count, asked)
            assert total is not None
            totals[field] = total
        if phase in _ROW_PHASES:
            self._z = None
        if phase in _COLUMN_PHASES:
            self.fold = None
        if wanted.board is not None:
            self._follow(wanted)
        return totals

    def _ask_all(
        self, phase: str, asked: Sequence[str], fill: Fill, wanted: Wanted
    ) -> dict[str, Message]:
        context = self.adder.fresh_context()
        for party in asked:
            self._serial[party] += 1
        answers: dict[str, Message] = {}
        began, pause = self.channel.elapsed, _FIRST_PAUSE
        while True:
            waiting = [p for p in asked if p not in answers]
            messages: dict[str, Message] = self.adder.open(waiting)
            round_ = self.adder.round
            for party, message in messages.items():
                message.update({"serial": self._serial[party], "iteration": self.iteration})
                if self.fold is not None and phase in _COLUMN_PHASES:
                    message["fold"], message["keep"] = self.fold
            if wanted.scalars:
                self.adder.mask(messages, context, asked)
            fill(messages)
            if wanted.total is not None:
                wanted.total.invite(messages)
            if wanted.board is not None and wanted.senders is not None:
                for party, message in messages.items():
                    message["send"] = wanted.senders[party]
                wanted.board.invite(messages, {p: wanted.senders[p] for p in messages})
            replies = self.channel.ask(f"span.{phase}", messages)
            replies.stop_on_refusal()
            if wanted.total is not None:
                wanted.total.add(replies.answered, self.iteration)
            if wanted.board is not None:
                wanted.board.post(replies.answered, wanted.since + 1, round_)
            answers.update(replies.answered)
            if not replies.missing:
                return answers
            waited = self.channel.elapsed - began
            if waited + pause > self.settings.patience:
                folded = frozenset(answers if phase in _COLUMN_PHASES else ())
                self._relieve(PartyMissing(replies.missing, waited, phase, folded))
                began, pause = self.channel.elapsed, _FIRST_PAUSE
                continue
            self._note_missing(replies.missing)
            self.channel.pause(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _relieve(self, missing: PartyMissing) -> None:
        """Whoever goes on meanwhile returns when all are there: then the question stands."""
        if self.relief is None:
            raise missing
        self.relief(missing)

    def folds_at(self, party: str, phase: str) -> int:
        """The number of the phase in which a party drops the vectors of ``fold``."""
        return self._serial[party] + (phase not in _COLUMN_PHASES)

    def _follow(self, wanted: Wanted) -> None:
        """Dual vectors down to holders without labels; their feature sums up."""
        board, since = wanted.board, wanted.since
        assert board is not None

        def fill(messages: dict[str, Message]) -> None:
            changes = board.changes(dict.fromkeys(messages, since))
            for party, (slots, block) in changes.items():
                messages[party].update({"alpha.slots": slots, "alpha": block})
            for message in messages.values():
                message["width"] = board.width

        self._ask_all("follow", self._followers, fill, Wanted({}, wanted.total))

    def _note_missing(self, missing: Mapping[str, Failure]) -> None:
        for party, failure in missing.items():
            note = f"iteration {self.iteration}: waiting for {party} ({failure.reason})"
            if note not in self.notes:
                self.notes.append(note)
