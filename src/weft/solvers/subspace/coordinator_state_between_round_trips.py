"""What the coordinator of the fast solvers keeps between round trips, and what is under way."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.array_types import Floats
from weft.crypto import Adder
from weft.matching.counted_and_labelled_rows import counted, followed, labelled_rows
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Message
from weft.protocol.message_bytes import question_digest
from weft.solvers.coordinator_visible_weights import VisibleWeights
from weft.solvers.participation import CohortSpeakers
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.ask_until_answered import (
    Build,
    FallbackResult,
    Ordered,
    PhaseSums,
    RepeatedAsking,
)
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.loss_points_and_directions_limit import (
    most_directions,
    most_steps,
    weighing,
)
from weft.solvers.subspace.messages import (
    FOLLOW,
    DualsReply,
    FollowRequest,
    InheritReply,
    PointReply,
)
from weft.solvers.subspace.rounding_allowed_by_gap import rows_give_products
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.largest_possible_sums import Bounds
from weft.sums.latest_slot_values_and_proposals import LatestValues
from weft.sums.scalar_sums import add_scalars
from weft.sums.shared_slots_by_party import Layout


class ExchangeState(RepeatedAsking):
    """What the coordinator keeps between round trips, and what several of them have in common.

    Attributes
    ----------
    by_rows
        Whether inner products of new vectors with older ones are computed by the holders of the
        rows (fewer samples than features) or of the columns.
    stored
        Whether the holders of rows keep Z of all vectors.
    mean_square
        1/N Σ ‖x_i‖², from the first vectors on; below zero before.
    free
        Whether λ does not hold the intercept back.
    keeps
        Whether parties keep dual vectors, since mixtures of them will be asked for.
    alike
        Whether no sample has a weight or an offset of its own.
    held
        Changes of groups of samples that a guard has held back.
    fallback_result
        What was reached while a party was away, and is yet to be taken over.
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
        super().__init__(channel, holdings, settings, adder)
        self.bounds = bounds
        self.problems = problems
        self.rows = Layout(holdings.rows, holdings.parties)
        self.columns = Layout(holdings.columns, holdings.parties)
        self.stored = settings.groups == 1
        self.free = settings.frees_intercept(holdings.bias_slot >= 0)
        self.keeps = False
        self.alike = True
        #: The longest noise that any vector may have.
        self.noise = 0.0
        # By rows, products would be of one vector with noise and one without.
        quiet = settings.sum_noise is None
        self.by_rows = self.stored and quiet and rows_give_products(holdings, settings, bounds)
        self.seen = (
            VisibleWeights(holdings, problems.classes)
            if settings.coordinator_sees == "weights"
            else None
        )
        self.mean_square = -1.0
        #: Entries of the vectors under way at a free intercept.
        self._under_way: Floats = np.zeros((0, problems.width))
        self.held = 0
        self.fallback_result: FallbackResult | None = None
        #: The one whose α is being taken over.
        self._inherited: FallbackResult | None = None
        #: Totals of new vectors, and of their Z or of z of a point, on their way to the parties.
        self._v: IncrementTotals | None = None
        self._z: IncrementTotals | None = None
        self._z_of = "point"
        self._followers = [p for p in holdings.parties if p in holdings.partly_unlabelled]
        self._labelled = [p for p in holdings.parties if p in holdings.label_parties]
        self._own = labelled_rows(holdings)
        self._told_of = followed(holdings)
        # Who has left out how many samples, nobody knows here: each may have been all of them.
        samples = [max(n - holdings.rare, min(n, 1)) for n in counted(holdings)]
        #: Points at which losses may be asked for at once.
        self.most_steps = min(most_steps(n, holdings.terms.min_batch) for n in samples)
        #: Vectors of which second moments may be asked for.
        least = holdings.terms.min_batch
        self.most_directions = min(most_directions(weighing(settings, n), least) for n in samples)
        #: Widths over which kinks are rounded off (problems); None: slopes are those of the loss.
        self.rounding: Floats | None = None
        #: Those that the last search brought (vectors × vectors × problems), if any.
        self.moments: Floats | None = None
        self._speakers = CohortSpeakers(holdings, labelled=True)
        #: A hash of what holders of labels were asked last.
        self._question = b""

    @property
    def steepest(self) -> float:
        """The largest curvature of the mean loss, or about that where l'' has no bound."""
        bounds = self.bounds
        loss = self.settings.make_loss()
        if self.rounding is not None:
            bend = float(loss.sharpest(self.rounding).max())
        else:
            bend = loss.curvature_below(bounds.label, bounds.label)
        return bounds.weight * bend * self.mean_square

    # ── parts of phases ───────────────────────────────────────────────────────────────────

    def _z_for(self, asked: Sequence[str]) -> tuple[str | None, Mapping[str, bytes]]:
        """z totals that are under way: what they are of, and those of rows with a label."""
        z = self._z
        if z is None:
            return None, {}
        whole = z.blocks([party for party in asked if party not in self._own])
        some = {p: self._own[p] for p in asked if p in self._own and len(self._own[p])}
        return self._z_of, {**whole, **z.pieces(some)}

    def _head(self, party: str, round_: int) -> dict[str, Any]:
        """What every request says: which one it is."""
        return {"round": round_, "iteration": self.iteration, "serial": self._serial[party]}

    def _dual_heads(
        self, asked: Sequence[str], round_: int, moved: Floats
    ) -> dict[str, dict[str, Any]]:
        """What every request for dual vectors says: where to make them, and from which z."""
        of, z = self._z_for(asked)
        here = {"moved": moved, "by_rows": self.by_rows, "of": of}
        return {p: {**self._head(p, round_), **here, "z": z.get(p)} for p in asked}

    def _sums_of_duals(self, new: int) -> PhaseSums:
        """The sums of new dual vectors: their vectors, and they themselves for some."""
        width = self.problems.width
        self._v = IncrementTotals("v", self.columns, new * width, self.adder)
        sums = PhaseSums(self._v, since=self.iteration)
        if self._followers:
            # Everyone tells its part at once, when all have the dual vectors.
            sums.total = None
            duals = new // self.settings.groups * width
            sums.posted = LatestValues("alpha", self.rows, duals, self.adder)
            speakers = self._speakers.of(self._labelled)
            sums.speakers = {p: flags & self._told_of[p] for p, flags in speakers.items()}
        return sums

    def _entries(self, answers: Mapping[str, DualsReply | PointReply], count: int) -> Floats:
        """Entries at a free intercept (count × problems); zero where there is none."""
        width = self.problems.width
        if not self.free:
            return np.zeros((count, width))
        return total_of(answers, "intercepts", count * width).reshape(count, width)

    def _offsets(self, answers: Mapping[str, DualsReply | InheritReply], new: int) -> Floats:
        return self._of_problems(answers, "offsets", new)

    def _cross(
        self, answers: Mapping[str, DualsReply | InheritReply], held: int, new: int
    ) -> Floats | None:
        """Inner products with the vectors held, where rows give them."""
        if not self.by_rows:
            return None
        return self._of_problems(answers, "cross", held, new)

    def _of_problems(self, answers: Mapping[str, Message], field: str, *shape: int) -> Floats:
        """Totals of a field with a number of every problem, for all columns of it (last)."""
        told = (*shape, self.problems.count)
        return self.problems.spread(total_of(answers, field, math.prod(told)).reshape(told))

    def _noted(self, build: Build[Ordered]) -> Build[Ordered]:
        """The same messages, of which it is noted what they ask alike."""

        def noted(asked: Sequence[str], round_: int) -> dict[str, Ordered]:
            messages = build(asked, round_)
            self._question = question_digest(next(iter(messages.values())))
            return messages

        return noted

    def _follow(self, sums: PhaseSums) -> None:
        """Dual vectors down to holders without labels; everyone's feature sums up."""
        posted = sums.posted
        if posted is None:
            return
        since = dict.fromkeys(self._followers, sums.since)

        def build(asked: Sequence[str], round_: int) -> dict[str, FollowRequest]:
            messages = {
                party: FollowRequest(
                    **self._head(party, round_),
                    width=posted.width,
                    question=self._question,
                )
                for party in asked
            }
            for party, (slots, block) in posted.changes(since).items():
                messages[party].alpha_slots, messages[party].alpha = slots, block
            return messages

        self._ask_all(FOLLOW, self.holdings.parties, build, PhaseSums(self._v))


def total_of(answers: Mapping[str, Message], field: str, count: int) -> Floats:
    """The sum of a field with ``count`` scalars over everyone who was asked."""
    total = add_scalars(answers, field, count, answers)
    assert total is not None
    return np.array(total)
