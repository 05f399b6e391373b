"""Messages of the fast solvers.

A *vector* below is b = Xᵀa/N of a dual vector a; *problems* are the classes, once on all samples
and once per fold that leaves some out.
"""

from __future__ import annotations

from typing import Annotated

from weft.array_types import Flags, Floats, Ints, Slots
from weft.protocol.declared_message_fields import Message, Nothing, Part
from weft.protocol.field_visibility import (
    block,
    clear,
    coefficients,
    numbers,
    record,
    scalars,
)
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import IterationRequest, PadLinks

_WISH = record("what to do in this phase", common=True, alike=True)
_KEPT = record("which vectors to keep", "vectors", alike=True)
_SLOTS = record("which of its slots these are", "slots")
_SPEAKS = record("which of its cohorts it speaks for", "cohorts")
_CROSS = scalars("its part of inner products of vectors")
_LOSSES = scalars("its losses and conjugates")
_ENTRIES = scalars("its part of entries at a free intercept")

_POINT = coefficients("of vectors in a point", "vectors", "problems")
_MIXTURE = coefficients("weights of dual vectors in a mixture", "vectors", "problems")
_AT = coefficients("guessed steps", "steps", "problems")
_MODEL = record("under which number to keep the model")
_BY_ROWS = record("whether holders of rows tell inner products with older vectors", alike=True)


class OrderedRequest(IterationRequest):
    """A request that changes a party's state: worked on once, however often it is asked."""

    serial: Annotated[int, record("how many phases this party was asked", common=True)]


class Fold(Part):
    """Vectors to drop: their part in the point goes into the anchor."""

    coefficients: Annotated[
        Floats, coefficients("what goes into the anchor", "vectors", "problems")
    ]
    keep: Annotated[Ints, _KEPT]


class FallbackAlpha(Part):
    """Which α of HyFDCA is meant: of which fallback, and after which reply of the party."""

    number: Annotated[int, record("which fallback it came from", alike=True)]
    ack: Annotated[int, record("number of its last reply that arrived", common=True)]


# ── features ──────────────────────────────────────────────────────────────────────────────


class SpreadRequest(OrderedRequest, kw_only=True):
    """Brings totals of new vectors; asks for their inner products, and for Z = Xb."""

    by_rows: Annotated[bool, _BY_ROWS]
    products: Annotated[bool, _WISH] = False
    first: Annotated[bool, _WISH] = False
    fold: Fold | None = None
    inherit: FallbackAlpha | None = None
    v: Annotated[bytes | None, block("new vectors b = Xᵀa/N of its features")] = None
    z_pads: PadLinks | None = None


class SpreadReply(Message):
    gram: Annotated[bytes, _CROSS]
    squares: Annotated[bytes | None, scalars("its part of the mean of ‖x_i‖²")] = None
    z: Annotated[bytes | None, block("its part of Z = Xb of new vectors")] = None


class FinishedModel(Part):
    """A model to keep, and the mixture of dual vectors that bounds P* for it."""

    number: Annotated[int, _MODEL]
    mixture: Annotated[Floats, _MIXTURE]


class PointRequest(OrderedRequest, kw_only=True):
    """Asks to form w from its coefficients, and for z = Xw."""

    point: Annotated[Floats, _POINT]
    model: FinishedModel | None = None
    fold: Fold | None = None
    z_pads: PadLinks | None = None


class PointReply(Message):
    norms: Annotated[bytes, scalars("its part of ‖w‖²")]
    intercepts: Annotated[bytes | None, _ENTRIES] = None
    bound: Annotated[bytes | None, scalars("its part of ‖λw(α)‖² of a mixture")] = None
    z: Annotated[bytes | None, block("its part of z of a point")] = None
    w: Annotated[
        Floats | None, clear("weights of features that it answers for", "features", "classes")
    ] = None


SPREAD = Phase("subspace.spread", SpreadRequest, SpreadReply)
POINT = Phase("subspace.point", PointRequest, PointReply)

# ── samples ───────────────────────────────────────────────────────────────────────────────


class MoveRequest(OrderedRequest, kw_only=True):
    """Brings z and the step that was chosen last.

    ``of`` says what z belongs to: ``vectors`` that came last, a ``point``, or None where none
    comes.
    """

    moved: Annotated[
        Floats, coefficients("shares of point, target and points beside", "shares", "problems")
    ]
    by_rows: Annotated[bool, _BY_ROWS]
    of: Annotated[str | None, record("what z belongs to: vectors, or a point", alike=True)] = None
    z: Annotated[bytes | None, block("Z of new vectors, or z of a point, of its samples")] = None


class DualsRequest(MoveRequest):
    """One that asks for new dual vectors, and for its part of their vectors.

    ``send`` names the cohorts whose dual vectors others need, who have no labels; None: none. With
    ``later``, its part of the vectors is told when everyone is asked for that (`FollowRequest`).
    With ``rounding``, slopes and second moments are those of a loss without its kink.
    """

    send: Annotated[Flags | None, _SPEAKS] = None
    later: Annotated[bool, record("whether vectors are told later", alike=True)] = False
    rounding: Annotated[
        Floats | None, coefficients("over which width kinks are rounded off", "problems")
    ] = None
    v_pads: PadLinks | None = None
    alpha_pads: PadLinks | None = None


class InheritReply(Message):
    offsets: Annotated[bytes, scalars("its conjugates of α of HyFDCA")]
    cross: Annotated[bytes | None, _CROSS] = None


class DualsReply(Message):
    offsets: Annotated[bytes | None, scalars("its conjugates of new dual vectors")] = None
    cross: Annotated[bytes | None, _CROSS] = None
    intercepts: Annotated[bytes | None, _ENTRIES] = None
    v: Annotated[bytes | None, block("its part of new vectors b = Xᵀa/N")] = None
    alpha: Annotated[bytes | None, block("dual vectors that it posts")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None
    held: Annotated[int, record("how many changes a guard held back")] = 0


class Ascent(Part):
    """Asks for a step of coordinate ascent from α, a mixture of dual vectors.

    With ``basis``, also for passes over all samples of a cohort, which overlap as far as the newest
    vectors can tell: it holds combinations of these that are orthonormal. Of a smooth loss both
    vectors are of passes, the second with more room for other cohorts.
    """

    weights: Annotated[Floats, _MIXTURE]
    curvature: Annotated[Floats, coefficients("how long the step is", "problems")]
    basis: Annotated[
        Floats | None,
        coefficients("of the newest vectors in a basis", "vectors", "directions", "problems"),
    ] = None

    @property
    def count(self) -> int:
        """Of dual vectors that it asks for."""
        return 1 + (self.basis is not None)


class SearchRequest(DualsRequest, kw_only=True):
    """Asks for losses on the way to a target, and for dual vectors at guessed steps.

    Without ``point`` the target is the point whose z comes along. ``stretched`` asks for further
    dual vectors, at multiples of the target, ``beside`` for some at other points, to which
    ``steps`` may lead as well. With
    ``moments``, also for second moments of the Z of all vectors, weighed by l'' at the first
    guessed step.
    """

    steps: Annotated[
        Floats,
        coefficients("shares of point, target and points beside", "steps", "shares", "problems"),
    ]
    at: Annotated[Floats, _AT]
    point: Annotated[Floats | None, _POINT] = None
    ascent: Ascent | None = None
    stretched: Annotated[
        Floats | None, coefficients("of the target at further dual vectors", "vectors", "problems")
    ] = None
    beside: Annotated[
        Floats | None, coefficients("of vectors in other points", "points", "vectors", "problems")
    ] = None
    moments: Annotated[bool, _WISH] = False


class SearchReply(DualsReply, kw_only=True):
    losses: Annotated[bytes, scalars("its losses along the way")]
    moments: Annotated[bytes | None, scalars("its part of second moments of Z of vectors")] = None


class GatherRequest(DualsRequest):
    """Asks for dual vectors at some steps, or for what the Hessian makes of a direction.

    The first of a run says with ``keeps`` that mixtures of dual vectors will be asked for.
    """

    at: Annotated[Floats | None, _AT] = None
    direction: Annotated[
        Floats | None, coefficients("of vectors in a direction", "vectors", "problems")
    ] = None
    first: Annotated[bool, _WISH] = False
    keeps: Annotated[bool, record("whether dual vectors are kept for mixtures", alike=True)] = False


class GatherReply(DualsReply):
    sizes: Annotated[bytes | None, scalars("how many samples it trains on")] = None


class FollowRequest(OrderedRequest):
    """Asks everyone for its part of vectors; brings dual vectors of samples without labels.

    ``question`` is a hash of what holders of labels were asked, which they compare with their own.
    """

    width: Annotated[int, _WISH]
    question: Annotated[bytes, record("hash of what holders of labels were asked", alike=True)]
    alpha: Annotated[bytes | None, block("dual vectors of its samples")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None
    v_pads: PadLinks | None = None


class FollowReply(Message):
    v: Annotated[bytes | None, block("its part of new vectors b = Xᵀa/N")] = None


class CloseRequest(OrderedRequest):
    """Brings z of a finished model; asks for its losses."""

    z: Annotated[bytes | None, block("z of a point, of its samples")] = None


class CloseReply(Message):
    losses: Annotated[bytes, _LOSSES]
    scores: Annotated[bytes | None, scalars("its losses and hits on samples left out")] = None


class EvaluateRequest(OrderedRequest, kw_only=True):
    """Asks, once in a run, for counts of the scores of samples that folds left out."""

    model: Annotated[int, record("which finished model is judged", alike=True)]


class EvaluateReply(Message):
    counts: Annotated[
        bytes,
        scalars(
            "how many of its samples left out have scores in which interval, by class and group"
        ),
    ]


SEARCH = Phase("subspace.search", SearchRequest, SearchReply)
GATHER = Phase("subspace.gather", GatherRequest, GatherReply)
FOLLOW = Phase("subspace.follow", FollowRequest, FollowReply)
CLOSE = Phase("subspace.close", CloseRequest, CloseReply)
EVALUATE = Phase("subspace.evaluate", EvaluateRequest, EvaluateReply)

# ── when a party is away ──────────────────────────────────────────────────────────────────


class KeepRequest(IterationRequest):
    """Asks to form w as it stands and to keep it: the run stops here."""

    point: Annotated[Floats, _POINT]
    model: Annotated[int, _MODEL]
    fold: Fold | None = None


class Dropped(Part):
    """Vectors that are dropped now, in the phase that was not completed.

    A party that has dropped vectors as often as ``number`` says has dropped these.
    """

    number: Annotated[int, record("how often vectors were dropped", alike=True)]
    keep: Annotated[Ints, _KEPT]


class FallbackRequest(IterationRequest):
    """Asks to begin HyFDCA at a mixture of dual vectors, without the party that is away.

    ``rows`` and ``columns`` are the cohorts whose totals this party puts into the new sums.
    """

    number: Annotated[int, record("which fallback of the run this is", alike=True)]
    lam: Annotated[float, numbers("λ")]
    weights: Annotated[Floats, _MIXTURE]
    point: Annotated[Floats, _POINT]
    rows: Annotated[Flags, _SPEAKS]
    columns: Annotated[Flags, _SPEAKS]
    dropped: Dropped | None = None
    v_pads: PadLinks | None = None
    z_pads: PadLinks | None = None


class FallbackReply(Message):
    v: Annotated[bytes | None, block("feature sums of cohorts that it speaks for")] = None
    z: Annotated[bytes | None, block("inner products of cohorts that it speaks for")] = None


class InheritRequest(MoveRequest, kw_only=True):
    """Asks to take α of HyFDCA as one more dual vector, now that everyone is back."""

    inherit: FallbackAlpha


KEEP = Phase("subspace.keep", KeepRequest, Nothing)
FALLBACK = Phase("subspace.fallback", FallbackRequest, FallbackReply)
HERE = Phase("subspace.here", Nothing, Nothing)
INHERIT = Phase("subspace.inherit", InheritRequest, InheritReply)
