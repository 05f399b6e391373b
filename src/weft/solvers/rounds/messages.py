"""Messages of the methods in rounds: setting up, the steps of an iteration, the frozen point."""

from __future__ import annotations

from typing import Annotated, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats, Slots
from weft.protocol.declared_message_fields import Message, Nothing, declared
from weft.protocol.field_visibility import Form, block, clear, numbers, record, scalars
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import AcknowledgedRequest, PadLinks, SumRequest
from weft.solvers.setup_result_and_checkpoint_messages import Constants, SequencedReply
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

_SLOTS = record("which of its slots these are", "slots")
_HELD = record("how many changes a guard held back")
_TODO = record("what to do in this phase", common=True)
_TODO_ALIKE = record("what to do in this phase", common=True, alike=True)

# ── setting up ────────────────────────────────────────────────────────────────────────────


class SurveyRequest(SumRequest):
    """FedHybrid: asks for bounds on a party's curvature; ``newton`` None: it finds its type."""

    newton: Annotated[bool | None, _TODO] = None


class SurveyReply(Message):
    curvatures: Annotated[bytes, scalars("bounds on its curvature, and its type")]
    bounds: Annotated[Floats | None, clear("bounds on its curvature, by agreement", "bounds")] = (
        None
    )


class BeginRequest(Message):
    constants: Constants


#: The largest of the numbers that a method asks every party for.
SIZE = Phase("rounds.size", DigitRequest, DigitReply)
SURVEY = Phase("rounds.survey", SurveyRequest, SurveyReply)
BEGIN = Phase("rounds.begin", BeginRequest, Nothing)

# ── the steps of an iteration ─────────────────────────────────────────────────────────────


class Model(Protocol):
    """A request with the totals that a model is made of."""

    @property
    def v(self) -> bytes | None: ...

    @property
    def z(self) -> bytes | None: ...


class RoundRequest(AcknowledgedRequest):
    """One step of an iteration: totals for the party, and what its method tells besides.

    Attributes
    ----------
    measure
        Whether scalars are asked for.
    weight, weights
        FedAvg: the party's weight in means, and per shared cohort of features that of all who
        take part. FedDCD: how many take part.
    mode
        DiSCO: which vector is summed.
    halvings
        FedHybrid: how often steps were halved.
    rho
        ADMM: the penalty.
    """

    v: Annotated[bytes | None, block("sums over parties, of its features")] = None
    v_pads: PadLinks | None = None
    z: Annotated[bytes | None, block("sums over parties, of its samples")] = None
    z_pads: PadLinks | None = None
    delta: Annotated[bytes | None, block("changes of dual variables of its samples")] = None
    delta_pads: PadLinks | None = None
    measure: Annotated[bool, _TODO] = False
    weight: Annotated[int | None, record("how much it weighs in a mean")] = None
    weights: Annotated[
        NDArray[np.int64] | None, record("how much all who take part weigh", "cohorts")
    ] = None
    mode: Annotated[int | None, _TODO_ALIKE] = None
    halvings: Annotated[int | None, _TODO_ALIKE] = None
    rho: Annotated[float | None, numbers("constants of the step")] = None


class RoundReply(SequencedReply):
    """A party's parts of sums, at all of its shared slots or at those that it names."""

    v: Annotated[bytes | None, block("its part of sums over features")] = None
    z: Annotated[bytes | None, block("its part of sums over samples")] = None
    z_slots: Annotated[Slots | None, _SLOTS] = None
    delta: Annotated[bytes | None, block("changes of dual variables that it proposes")] = None
    delta_slots: Annotated[Slots | None, _SLOTS] = None
    objective: Annotated[bytes | None, scalars("its part of the objective")] = None
    residual: Annotated[bytes | None, scalars("its part of a residual's norm")] = None
    held: Annotated[int, _HELD] = 0


StepPhase = Phase[RoundRequest, RoundReply]
LOCAL: StepPhase = Phase("rounds.local", RoundRequest, RoundReply)
MERGE: StepPhase = Phase("rounds.merge", RoundRequest, RoundReply)

#: What a step may ask: these phases, sums and scalars.
STEP_PHASES = (LOCAL, MERGE)
KINDS = tuple(f.name for f in declared(RoundReply) if f.meaning and f.meaning.form is Form.BLOCK)
SCALARS = tuple(
    f.name for f in declared(RoundReply) if f.meaning and f.meaning.form is Form.SCALARS
)

# ── the certificate of a frozen point ─────────────────────────────────────────────────────


class PointRequest(AcknowledgedRequest):
    """A question about the point that was frozen after ``iteration``.

    Attributes
    ----------
    last
        The last point whose dual vector's feature sums any party got, with which guards compare;
        −1: none.
    keep
        The point certified last, which may still be released.
    """

    last: Annotated[int, record("which dual vector guards compare with")]
    keep: Annotated[int | None, record("which model to keep")] = None


class PointProductsRequest(PointRequest):
    v: Annotated[bytes | None, block("what the point is made of, of its features")] = None
    z: Annotated[bytes | None, block("what the point is made of, of its samples")] = None
    z_pads: PadLinks | None = None


class PointProductsReply(Message):
    norms: Annotated[bytes, scalars("its part of ‖w‖²")]
    z: Annotated[bytes | None, block("inner products of the point")] = None
    w: Annotated[
        Floats | None, clear("weights of features that it answers for", "features", "classes")
    ] = None


class PointLossesRequest(PointRequest):
    """Asks for losses, and for feature sums of a dual vector.

    ``send``: some holders lack labels, and get the dual vector first; the party posts it for the
    cohorts with a flag.
    """

    z: Annotated[bytes | None, block("inner products of the point")] = None
    send: Annotated[Flags | None, record("what to do in this phase", "cohorts", common=True)] = None
    v_pads: PadLinks | None = None
    alpha_pads: PadLinks | None = None


class PointLossesReply(Message):
    losses: Annotated[bytes, scalars("its losses and conjugates")]
    held: Annotated[int, _HELD] = 0
    v: Annotated[bytes | None, block("its part of a dual vector's feature sums")] = None
    alpha: Annotated[bytes | None, block("dual variables that it posts")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None


class PointSpreadRequest(PointRequest):
    alpha: Annotated[bytes | None, block("a dual vector, of its samples")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None
    v_pads: PadLinks | None = None


class PointSpreadReply(Message):
    v: Annotated[bytes | None, block("its part of a dual vector's feature sums")] = None


class PointNormsRequest(PointRequest):
    v: Annotated[bytes | None, block("feature sums of a dual vector")] = None


class PointNormsReply(Message):
    bound: Annotated[bytes, scalars("its part of ‖λw(α)‖²")]


POINT_PRODUCTS = Phase("measure.products", PointProductsRequest, PointProductsReply)
POINT_LOSSES = Phase("measure.losses", PointLossesRequest, PointLossesReply)
POINT_SPREAD = Phase("measure.spread", PointSpreadRequest, PointSpreadReply)
POINT_NORMS = Phase("measure.norms", PointNormsRequest, PointNormsReply)
