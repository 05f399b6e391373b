"""The fast solvers' round trips, as the coordinator makes them: sums up, coefficients down."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from weft.array_types import Floats
from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Message
from weft.protocol.message_bytes import question_digest
from weft.solvers.coordinator_visible_weights import VisibleWeights
from weft.solvers.held_out_sums import HeldOutLayout, HeldOutSums
from weft.solvers.participation import CohortSpeakers
from weft.solvers.settings import Settings
from weft.solvers.subspace.ask_until_answered import (
    Build,
    FallbackResult,
    Ordered,
    PhaseSums,
    RepeatedAsking,
)
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.loss_table_limit import most_directions, most_steps
from weft.solvers.subspace.messages import (
    CLOSE,
    EVALUATE,
    FOLLOW,
    GATHER,
    INHERIT,
    POINT,
    SEARCH,
    SPREAD,
    Ascent,
    CloseRequest,
    DualsReply,
    EvaluateRequest,
    FinishedModel,
    FollowRequest,
    GatherRequest,
    InheritReply,
    InheritRequest,
    PointReply,
    PointRequest,
    SearchReply,
    SearchRequest,
    SpreadRequest,
)
from weft.solvers.subspace.product_rounding import rows_give_products
from weft.solvers.subspace.rows_by_label_holder import counted, followed, labelled_rows
from weft.sums.fixed_point_bounds import Bounds
from weft.sums.posted_values import LatestValues
from weft.sums.running_totals import RunningTotals
from weft.sums.scalar_sums import add_scalars
from weft.sums.shared_slot_layout import Layout


class Exchange(RepeatedAsking):
    """The phases of the fast solvers, each with the sums that it brings.

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
        self._v: RunningTotals | None = None
        self._z: RunningTotals | None = None
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
        self.most_directions = min(most_directions(n, holdings.terms.min_batch) for n in samples)
        #: Those that the last search brought (vectors × vectors × problems), if any.
        self.moments: Floats | None = None
        self._speakers = CohortSpeakers(holdings, labelled=True)
        #: A hash of what holders of labels were asked last.
        self._question = b""

    @property
    def steepest(self) -> float:
        """The largest curvature of the mean loss, or about that where l'' has no bound."""
        bounds = self.bounds
        bend = self.settings.make_loss().curvature_below(bounds.label, bounds.label)
        return bounds.weight * bend * self.mean_square

    # ── phases for the holders of columns: everyone ───────────────────────────────────────

    def spread(self, held: int, new: int) -> tuple[Floats, Floats]:
        """Totals of new vectors down; their inner products up, and partial Z on its way.

        ``held`` vectors are there already, after folding. Returns (held + new × new × problems),
        or (new × new × problems) where rows give the rest; and the new vectors' entries at a free
        intercept (new × problems).
        """
        v, width, everyone = self._v, self.problems.width, self.holdings.parties
        assert v is not None
        first, inherited = self.mean_square < 0.0, self._inherited
        z = RunningTotals("z", self.rows, new * width, self.adder) if self.stored else None

        def build(asked: Sequence[str], round_: int) -> dict[str, SpreadRequest]:
            blocks = v.blocks(asked)
            return {
                party: SpreadRequest(
                    **self._head(party, round_),
                    fold=self.fold,
                    by_rows=self.by_rows,
                    products=self.stored,
                    first=first,
                    inherit=None if inherited is None else inherited.named(party),
                    v=blocks.get(party),
                )
                for party in asked
            }

        answers = self._ask_all(SPREAD, everyone, build, PhaseSums(z))
        against = new if self.by_rows else held + new
        gram = self._of_problems(answers, "gram", against, new)
        if first:
            self.mean_square = float(_total(answers, "squares", 1)[0])
        self._inherited = None
        if z is not None:
            self._z, self._z_of = z, "vectors"
        return gram, self._under_way

    def point(self, coefficients: Floats) -> tuple[Floats, Floats]:
        """Let everyone form a point and measure its z.

        Returns, per problem, ‖w‖² of what λ holds back and the entry at a free intercept.
        """
        answers = self._measure(coefficients)
        return self._of_problems(answers, "norms"), self._entries(answers, 1)[0]

    def model(self, coefficients: Floats, mixture: Floats, number: int) -> tuple[Floats, Floats]:
        """The same for a model that is kept; returns ‖w‖², and ‖Σ μ_j b_j‖² of a mixture."""
        answers = self._measure(coefficients, FinishedModel(number=number, mixture=mixture))
        if self.seen is not None:
            self.seen.take({party: answer.w for party, answer in answers.items()})
        return self._of_problems(answers, "norms"), self._of_problems(answers, "bound")

    def _measure(
        self, coefficients: Floats, model: FinishedModel | None = None
    ) -> dict[str, PointReply]:
        """Let everyone form a point; its z is then on its way."""
        z = RunningTotals("z", self.rows, self.problems.width, self.adder)

        def build(asked: Sequence[str], round_: int) -> dict[str, PointRequest]:
            return {
                party: PointRequest(
                    **self._head(party, round_),
                    fold=self.fold,
                    point=coefficients,
                    model=model,
                )
                for party in asked
            }

        answers = self._ask_all(POINT, self.holdings.parties, build, PhaseSums(z))
        self._z, self._z_of = z, "point"
        return answers

    # ── phases for the holders of labels ──────────────────────────────────────────────────

    def search(
        self,
        coefficients: Floats,
        moved: Floats,
        steps: Floats,
        guesses: Floats,
        ascent: Ascent | None = None,
        stretched: Floats | None = None,
        moments: bool = False,
    ) -> tuple[Floats, Floats, Floats | None]:
        """Losses on the way to a target, and new dual vectors at guessed steps.

        With ``ascent``, another one that coordinate ascent from a mixture proposes, and before it
        some at the target times what ``stretched`` says. With
        ``moments``, second moments of the vectors held at the first guess, which are kept here.

        Returns losses (steps × problems), offsets (vectors × problems) and, where rows give
        them, inner products with the vectors held.
        """
        held, width = len(coefficients), self.problems.width
        new = len(guesses) + (0 if stretched is None else len(stretched)) + (ascent is not None)
        new *= self.settings.groups
        sums = self._sums_of_duals(new) if new else PhaseSums()

        def build(asked: Sequence[str], round_: int) -> dict[str, SearchRequest]:
            return {
                party: SearchRequest(
                    **common,
                    send=sums.speakers.get(party),
                    later=sums.posted is not None,
                    steps=steps,
                    at=guesses,
                    point=coefficients if self.stored else None,
                    ascent=ascent,
                    stretched=stretched,
                    moments=moments,
                )
                for party, common in self._dual_heads(asked, round_, moved).items()
            }

        answers = self._ask_all(SEARCH, self._labelled, self._noted(build), sums)
        self._z = None
        self.held += sum(answer.held for answer in answers.values())
        losses = self._of_problems(answers, "losses", len(steps))
        self.moments = _symmetric(answers, held, width) if moments else None
        offsets = np.zeros((0, width))
        cross = None
        if new:
            offsets, cross = self._offsets(answers, new), self._cross(answers, held, new)
            self._under_way = self._entries(answers, new)
        self._follow(sums)
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
        sums = self._sums_of_duals(new)

        def build(asked: Sequence[str], round_: int) -> dict[str, GatherRequest]:
            return {
                party: GatherRequest(
                    **common,
                    send=sums.speakers.get(party),
                    later=sums.posted is not None,
                    at=guesses,
                    direction=direction,
                    first=first,
                )
                for party, common in self._dual_heads(asked, round_, moved).items()
            }

        # A vector from the Hessian bounds nothing: it has no offset.
        hessian = direction is not None
        answers = self._ask_all(GATHER, self._labelled, self._noted(build), sums)
        self._z = None
        self.held += sum(answer.held for answer in answers.values())
        offsets = np.zeros((new, width)) if hessian else self._offsets(answers, new)
        cross = self._cross(answers, held, new)
        self._under_way = self._entries(answers, new)
        sizes = self._of_problems(answers, "sizes") if first else None
        self._follow(sums)
        return offsets, cross, sizes

    def inherit(
        self, held: int, moved: Floats, reached: FallbackResult
    ) -> tuple[Floats, Floats | None]:
        """Take α of HyFDCA as a dual vector, whose feature sums are there already.

        Returns its offset, and inner products with the ``held`` vectors (or None).
        """

        def build(asked: Sequence[str], round_: int) -> dict[str, InheritRequest]:
            return {
                party: InheritRequest(
                    **common,
                    inherit=reached.named(party),
                )
                for party, common in self._dual_heads(asked, round_, moved).items()
            }

        answers = self._ask_all(INHERIT, self._labelled, build, PhaseSums())
        self._z = None
        self._v, self._inherited = reached.v, reached
        # HyFDCA stands in only where the intercept is held back.
        self._under_way = np.zeros((1, self.problems.width))
        return self._offsets(answers, 1), self._cross(answers, held, 1)

    def close(self) -> tuple[Floats, Floats | None]:
        """Losses of the point just measured, and scores of the samples that folds left out."""
        problems = self.problems

        def build(asked: Sequence[str], round_: int) -> dict[str, CloseRequest]:
            _, z = self._z_for(asked)
            return {
                party: CloseRequest(
                    **self._head(party, round_),
                    z=z.get(party),
                )
                for party in asked
            }

        answers = self._ask_all(CLOSE, self._labelled, build, PhaseSums())
        self._z = None
        losses = self._of_problems(answers, "losses")
        if not problems.folds:
            return losses, None
        told = 5 if self.settings.scoring == "auc" else 3
        return losses, _total(answers, "scores", told * problems.folds).reshape(-1, told)

    def evaluate(self, model: int) -> HeldOutSums:
        """Counts of held-out scores of a finished model."""

        def build(asked: Sequence[str], round_: int) -> dict[str, EvaluateRequest]:
            return {
                party: EvaluateRequest(**self._head(party, round_), model=model) for party in asked
            }

        wanted, parties = self.settings.evaluation, len(self.holdings.parties)
        layout = HeldOutLayout.of(wanted, self.problems.classes, parties)
        answers = self._ask_all(EVALUATE, self._labelled, build, PhaseSums())
        totals = _total(answers, "counts", layout.size)
        return HeldOutSums.read(layout, totals, wanted, self.settings.make_loss())

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
        self._v = RunningTotals("v", self.columns, new * width, self.adder)
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
        return _total(answers, "intercepts", count * width).reshape(count, width)

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
        return self.problems.spread(_total(answers, field, math.prod(told)).reshape(told))

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


def _symmetric(answers: Mapping[str, SearchReply], held: int, width: int) -> Floats:
    """Totals of second moments, of which each pair came once: (held × held × problems)."""
    above = np.triu_indices(held)
    pairs = _total(answers, "moments", len(above[0]) * width).reshape(-1, width)
    out = np.empty((held, held, width))
    out[above] = pairs
    out.transpose(1, 0, 2)[above] = pairs
    return out


def _total(answers: Mapping[str, Message], field: str, count: int) -> Floats:
    """The sum of a field with ``count`` scalars over everyone who was asked."""
    total = add_scalars(answers, field, count, answers)
    assert total is not None
    return np.array(total)
