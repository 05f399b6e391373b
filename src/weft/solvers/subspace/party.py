"""The fast solvers, a party's half: it holds vectors, the coordinator thinks in coefficients.

A dual vector a (a number per sample) has three images: b = Xᵀa/N at the holders of the columns,
Z = Xb at the holders of the rows, and o = −1/N Σ l*(−a_i), a scalar. Each gives a bound that holds
everywhere, R(w) ≥ o − b·w, and w, gradients and directions are all combinations of b's. So the
solvers need three phases, and none of them ever sees a vector:

``spread``  totals of new b ↓, inner products of the b's and partial Z ↑
``search``  totals of Z, coefficients of a target ↓, losses along the way there ↑, and the partial
            b of dual vectors at guessed steps
``gather``  a step, or a direction ↓, the partial b of the dual vector there ↑

``follow`` brings dual vectors to holders of samples without labels. ``point`` and ``close`` form w
and measure it afresh, and ``evaluate`` counts scores of held-out samples. A phase that is asked
twice, because the reply was lost, is answered twice but changes things once.

``hand`` begins HyFDCA beside all this, when another party is away; ``inherit`` takes α that it has
reached as one more dual vector, when all are back.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.protocol import Answer, Nothing, Phase, answer, answers
from weft.protocol.message_bytes import question_after, question_digest, told_alike
from weft.protocol.phase_with_request_and_reply import R
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.messages import (
    CLOSE,
    EVALUATE,
    FALLBACK,
    FOLLOW,
    GATHER,
    HERE,
    INHERIT,
    KEEP,
    POINT,
    SEARCH,
    SPREAD,
    FallbackReply,
    FallbackRequest,
    Fold,
    FollowRequest,
    InheritRequest,
    KeepRequest,
    OrderedRequest,
    PointRequest,
    SpreadRequest,
)
from weft.solvers.subspace.party_feature_vectors_and_models import FeatureSide
from weft.solvers.subspace.party_hyfdca_while_one_is_away import (
    FallbackParty,
    Fallbacks,
    renumbered,
)
from weft.solvers.subspace.party_sample_values import Rows
from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide
from weft.solvers.subspace.vectors_kept_by_party import Wires, check_kept, padded, sized
from weft.sums.party_contribution import Wire

Ordered = TypeVar("Ordered", bound=OrderedRequest)
#: Phases that every party goes through; the others that are asked for scalars are for labels.
_FOR_ALL: tuple[Phase[Any, Any], ...] = (SPREAD, POINT)


class SubspaceParty:
    """A party of every solver that works in a subspace of dual vectors."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        self._context = context
        self.settings = settings
        joint = settings.make_loss().joint
        problems = self.problems = Problems(context.labels.shape[1], settings.folds, joint)
        self._wires = Wires.of(context)
        self.rows = Rows(context, settings, problems)
        self.features = FeatureSide(context, settings, problems, self._wires)
        self.samples = SampleSide(
            context, settings, problems, self.rows, self.features, self._wires
        )
        self.fallbacks = Fallbacks()
        #: How many phases this party has gone through, which one last, and how often each.
        self._serial = 0
        self._last = ""
        self._turns: Counter[str] = Counter()
        #: What everyone was asked so far, and what all were asked who have labels.
        self._asked_all = self._asked_labelled = b""
        #: What they were asked last, and what this party was asked in the last phase.
        self._question = self._alike = b""
        #: Whether a phase ended halfway, and whether the run has ended where it stood.
        self._broken = self._kept = False
        #: How often vectors were dropped, and fallbacks whose α was taken over.
        self._folds, self._inherited = 0, set[int]()
        self._answers: dict[str, Answer] = {}

    def weights(self, model: int | None) -> Floats:
        """w of a finished model on all samples; None: as HyFDCA left it."""
        if model is None and self.fallbacks.newest is not None:
            return self.fallbacks.newest.half.w
        return self.features.models[model or 0][:, : self.problems.classes]

    def closed_scores(self, model: int | None) -> Floats | None:
        """z of a finished model on rows with a label here, without offsets; None: nobody measured.

        A model that a run ended with in the middle was never measured by itself.
        """
        return self.samples.closed.get(model or 0)

    def phases(self) -> dict[str, Answer]:
        """What this half answers; HyFDCA's phases come and go while a party is away."""
        features, samples = self.features, self.samples
        self._answers |= answers(
            self._once(SPREAD, self._take_vectors, features.tell_vectors),
            self._once(POINT, self._take_point, features.tell_point),
            self._once(SEARCH, samples.take_search, samples.tell_search),
            self._once(GATHER, samples.take_gather, samples.tell_gather),
            self._once(FOLLOW, samples.take_duals, samples.tell_followed),
            self._once(INHERIT, self._take_inherited, samples.tell_alpha),
            self._once(CLOSE, samples.take_close, samples.tell_close),
            self._once(EVALUATE, samples.take_evaluate, samples.tell_evaluate),
            answer(KEEP, self._keep),
            answer(FALLBACK, self._fall_back),
            answer(HERE, lambda message: message),
        )
        return self._answers

    def _once(
        self,
        phase: Phase[Ordered, R],
        take: Callable[[Ordered], None],
        tell: Callable[[Ordered], R],
    ) -> Answer:
        """A phase whose first half changes this party's state: it must not be done twice.

        A question that is asked again must be the same: its scalars are under the same masks, which
        hide one answer only. All parties that a phase concerns go through it equally often.
        """

        def handle(message: Ordered) -> R:
            serial = message.serial
            if self._kept:
                raise ProtocolError("this party has formed its last model, and answers no more")
            if self._broken:
                raise ProtocolError(
                    f"this party broke down in the middle of phase {self._serial + 1} and cannot "
                    "go on; start the run again"
                )
            if serial == self._serial + 1:
                self._broken = True
                take(message)
                self._serial, self._last, self._broken = serial, phase.name, False
                self._note_asked(phase, told_alike(message))
            elif (serial, phase.name) != (self._serial, self._last):
                raise ProtocolError(
                    f"phase {serial} of this run comes after phase {self._serial}: this party "
                    "missed something, or has lost its memory; start the run again"
                )
            elif question_digest(message) != self._alike:
                raise ProtocolError(f"phase {serial} of this run is asked again in other words")
            asked = self._asked_all if phase in _FOR_ALL else self._asked_labelled
            if isinstance(message, FollowRequest):
                asked = self._followed(message)
            self._context.cipher.lasting(self._turns[phase.name], asked)
            return tell(message)

        return answer(phase, handle)

    def _note_asked(self, phase: Phase[Any, Any], alike: bytes) -> None:
        """Masks depend on all that was asked so far: what scalars are told of follows from it."""
        self._turns[phase.name] += 1
        self._alike = question_after(b"", alike)
        if phase is FOLLOW:
            # It asks nothing new.
            return
        self._question = self._alike
        if phase in _FOR_ALL:
            self._asked_all = question_after(self._asked_all, alike)
        self._asked_labelled = question_after(self._asked_labelled, alike)

    def _followed(self, message: FollowRequest) -> bytes:
        """What the vectors are of that everyone tells now: all must have been asked the same."""
        if self.rows.labelled.any() and message.question != self._question:
            raise ProtocolError("a message asks for vectors of another question than came before")
        return self._asked_all + message.question

    # ── phases that concern features and samples ──────────────────────────────────────────

    def _drop(self, fold: Fold | None) -> None:
        """Drop vectors that are not needed any more."""
        if fold is None:
            return
        vectors = self.features.vectors
        sized(fold.coefficients, "fold.coefficients", len(vectors), self.problems.width)
        check_kept(fold.keep, "fold.keep", len(vectors))
        self._folds += 1
        vectors.fold(fold.coefficients, fold.keep)
        self.rows.fold(fold.coefficients, fold.keep)

    def _take_vectors(self, message: SpreadRequest) -> None:
        """Complete new vectors with the others' parts."""
        self._drop(message.fold)
        wire: Wire = self._wires.vectors
        if message.inherit is not None:
            half = self.fallbacks.settled(message.inherit).half
            self.samples.duals, self.samples.partial = half.alpha.copy(), half.v
            wire = half.v_sum
            self._end_fallbacks(message.inherit.number)
            self.samples.under_way = True
        # Whoever completed them twice would choose among totals.
        if not self.samples.under_way:
            raise ProtocolError("a message comes too early: no vector is under way")
        self.samples.under_way = False
        self.features.complete(self.samples.partial, message, wire)
        self.samples.finish_duals()

    def _take_point(self, message: PointRequest) -> None:
        self._drop(message.fold)
        self.samples.pass_over_duals()
        self.features.take_point(message)

    # ── when a party is away ──────────────────────────────────────────────────────────────

    def _keep(self, message: KeepRequest) -> Nothing:
        """Form w as it stands: the run stops here."""
        if self._kept:
            raise ProtocolError("this party has formed its last model, and answers no more")
        self._kept = True
        self._drop(message.fold)
        self.features.keep(message)
        return Nothing()

    def _fall_back(self, message: FallbackRequest) -> FallbackReply:
        """Let HyFDCA go on from a mixture of dual vectors; all that is here stays as it is."""
        if not self.settings.hands_over:
            raise ProtocolError("a message wants to go on without a party, which was not agreed on")
        if self._kept:
            raise ProtocolError("this party has formed its last model, and answers no more")
        if self._broken:
            raise ProtocolError(
                "this party broke down in the middle of a phase and cannot go on; start the run "
                "again"
            )
        newest = self.fallbacks.newest
        # Whose first reply was lost begins anew.
        if newest is not None and newest.has_put_in(message):
            return newest.join(message)
        fallback = FallbackParty(self._context, self.settings, message)
        if self.samples.guard is not None:
            fallback.half.earlier = self.samples.guard.batches
        vectors = self.features.vectors
        point, weights = renumbered(message, self._folds, len(vectors), self.problems.width)
        reply = fallback.begin(
            self.rows.mixtures.mixed(weights),
            vectors.combine(padded(point, len(vectors))),
            self.rows.combined(point),
            message,
        )
        self.fallbacks.add(fallback, inherits=not self.problems.folds)
        self._answers |= fallback.half.phases()
        return reply

    def _take_inherited(self, message: InheritRequest) -> None:
        """α of HyFDCA becomes a dual vector."""
        fallback = self.fallbacks.settled(message.inherit)
        if fallback.number in self._inherited:
            raise ProtocolError("a message wants α of HyFDCA that was taken over")
        self._inherited.add(fallback.number)
        self._asked_labelled += fallback.asked
        self.samples.take_alpha(message, fallback.half.alpha)

    def _end_fallbacks(self, number: int) -> None:
        """Nothing of these fallbacks is asked any more."""
        newest = self.fallbacks.newest
        self.fallbacks.forget(number)
        if newest is not None and self.fallbacks.newest is None:
            for phase in newest.half.phases():
                self._answers.pop(phase, None)

    # ── checkpoints, of which there are none ──────────────────────────────────────────────

    def settle(self, ack: int) -> None:
        """Nothing is ever taken back: phases are asked again until they are answered."""

    def state(self) -> dict[str, NDArray[Any]]:
        raise ProtocolError(f"solver '{self.settings.solver}' keeps no checkpoints")

    def restore(self, state: Mapping[str, NDArray[Any]], constants: Constants) -> None:
        raise ProtocolError(f"solver '{self.settings.solver}' keeps no checkpoints")
