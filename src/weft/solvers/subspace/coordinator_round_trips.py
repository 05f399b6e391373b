"""The fast solvers' round trips, as the coordinator makes them: sums up, coefficients down."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext

import numpy as np

from weft.array_types import Floats
from weft.solvers.held_out_score_counts import HeldOutLayout, HeldOutSums
from weft.solvers.subspace.ask_until_answered import (
    FallbackResult,
    PhaseSums,
)
from weft.solvers.subspace.coordinator_state_between_round_trips import ExchangeState, total_of
from weft.solvers.subspace.messages import (
    CLOSE,
    EVALUATE,
    GATHER,
    INHERIT,
    POINT,
    SEARCH,
    SPREAD,
    Ascent,
    CloseRequest,
    EvaluateRequest,
    FinishedModel,
    GatherRequest,
    InheritRequest,
    PointReply,
    PointRequest,
    SearchReply,
    SearchRequest,
    SpreadRequest,
)
from weft.sums.coordinator_totals import IncrementTotals


class Exchange(ExchangeState):
    """The phases of the fast solvers, each with the sums that it brings."""

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
        z = IncrementTotals("z", self.rows, new * width, self.adder) if self.stored else None

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

        # The first brings the mean of ‖x_i‖², which the run is set up with.
        with self.channel.with_everyone() if first else nullcontext():
            answers = self._ask_all(SPREAD, everyone, build, PhaseSums(z))
        against = new if self.by_rows else held + new
        gram = self._of_problems(answers, "gram", against, new)
        if first:
            self.mean_square = float(total_of(answers, "squares", 1)[0])
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
        z = IncrementTotals("z", self.rows, self.problems.width, self.adder)

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
        beside: Floats | None = None,
        moments: bool = False,
    ) -> tuple[Floats, Floats, Floats | None]:
        """Losses on the way to a target, and new dual vectors at guessed steps.

        With ``ascent``, others that coordinate ascent from a mixture proposes, and before them
        some at the target times what ``stretched`` says, and at points ``beside`` the way there.
        With ``moments``, second moments of the vectors held at the first guess, which are kept
        here.

        Returns losses (steps × problems), offsets (vectors × problems) and, where rows give
        them, inner products with the vectors held.
        """
        held, width = len(coefficients), self.problems.width
        further = sum(len(points) for points in (stretched, beside) if points is not None)
        new = len(guesses) + further + (0 if ascent is None else ascent.count)
        new *= self.settings.groups
        sums = self._sums_of_duals(new) if new else PhaseSums()

        def build(asked: Sequence[str], round_: int) -> dict[str, SearchRequest]:
            return {
                party: SearchRequest(
                    **common,
                    send=sums.speakers.get(party),
                    later=sums.posted is not None,
                    rounding=self.rounding,
                    steps=steps,
                    at=guesses,
                    point=coefficients if self.stored else None,
                    ascent=ascent,
                    stretched=stretched,
                    beside=beside,
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
                    rounding=self.rounding,
                    at=guesses,
                    direction=direction,
                    first=first,
                    keeps=first and self.keeps,
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
        return losses, total_of(answers, "scores", told * problems.folds).reshape(-1, told)

    def evaluate(self, model: int) -> HeldOutSums:
        """Counts of held-out scores of a finished model."""

        def build(asked: Sequence[str], round_: int) -> dict[str, EvaluateRequest]:
            return {
                party: EvaluateRequest(**self._head(party, round_), model=model) for party in asked
            }

        wanted, parties = self.settings.evaluation, len(self.holdings.parties)
        layout = HeldOutLayout.of(wanted, self.problems.classes, parties)
        answers = self._ask_all(EVALUATE, self._labelled, build, PhaseSums())
        totals = total_of(answers, "counts", layout.size)
        return HeldOutSums.read(layout, totals, wanted, self.settings.make_loss())


def _symmetric(answers: Mapping[str, SearchReply], held: int, width: int) -> Floats:
    """Totals of second moments, of which each pair came once: (held × held × problems)."""
    above = np.triu_indices(held)
    pairs = total_of(answers, "moments", len(above[0]) * width).reshape(-1, width)
    out = np.empty((held, held, width))
    out[above] = pairs
    out.transpose(1, 0, 2)[above] = pairs
    return out
