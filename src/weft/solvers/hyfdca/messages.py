"""HyFDCA's messages."""

from __future__ import annotations

from typing import Annotated

from weft.array_types import Flags, Floats, Slots
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import block, clear, numbers, record, scalars
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import AcknowledgedRequest, Attending, PadLinks, SumRequest
from weft.solvers.setup_result_and_checkpoint_messages import Constants, SequencedReply
from weft.sums.table_scaling_and_certificate_messages import RowNormsReply, RowNormsRequest

_WISH = record("what to do in this phase", common=True, alike=True)
_OWN_WISH = record("what to do in this phase", common=True)
_SLOTS = record("which of its slots these are", "slots")
_SPEAKS = record("which of its cohorts it speaks for", "cohorts")
_STEP = numbers("constants of the step")
_HELD = record("how many changes a guard held back")

# ── setting up ────────────────────────────────────────────────────────────────────────────


class SpreadRequest(SumRequest):
    """Asks for X̃ᵀu of the power iteration; the first one brings the norms, later ones X̃v."""

    first: Annotated[bool, _WISH] = False
    z: Annotated[bytes | None, block("norms, then X̃v, of its samples")] = None
    v_pads: PadLinks | None = None
    attending: Attending = None


class SpreadReply(Message):
    squares: Annotated[bytes, scalars("its part of ‖u‖²")]
    v: Annotated[bytes | None, block("its part of X̃ᵀu (power iteration)")] = None


class GatherRequest(SumRequest):
    """Asks for X̃v of the power iteration, scaled."""

    scale: Annotated[float, _STEP]
    v: Annotated[bytes | None, block("X̃ᵀu of its features")] = None
    z_pads: PadLinks | None = None


class GatherReply(Message):
    z: Annotated[bytes | None, block("its part of X̃v (power iteration)")] = None


class BeginRequest(SumRequest):
    """Tells the constants that setting up found."""

    constants: Constants
    z: Annotated[bytes | None, block("norms of its samples")] = None


NORMS = Phase("hyfdca.norms", RowNormsRequest, RowNormsReply)
SPREAD = Phase("hyfdca.spread", SpreadRequest, SpreadReply)
GATHER = Phase("hyfdca.gather", GatherRequest, GatherReply)
BEGIN = Phase("hyfdca.begin", BeginRequest, Nothing)

# ── an iteration ──────────────────────────────────────────────────────────────────────────


class WeightsRequest(AcknowledgedRequest):
    """Brings v; asks for inner products with the samples drawn."""

    ahead: Annotated[int, _WISH]
    every: Annotated[bool, _WISH] = False
    measure: Annotated[bool, _WISH] = False
    counted: Annotated[bool, _OWN_WISH] = False
    v: Annotated[bytes | None, block("feature sums of its features")] = None
    z_pads: PadLinks | None = None
    attending: Attending = None


class WeightsReply(SequencedReply):
    z: Annotated[bytes | None, block("changes of its inner products")] = None
    z_slots: Annotated[Slots | None, _SLOTS] = None
    want: Annotated[Slots | None, _SLOTS] = None
    norms: Annotated[bytes | None, scalars("its part of ‖w‖²")] = None
    norm_change: Annotated[bytes | None, scalars("change of its part of ‖w‖²")] = None
    w: Annotated[Floats | None, clear("weights it answers for", "features", "classes")] = None


class StepRequest(AcknowledgedRequest):
    """Brings z; asks for new α, or for proposals, and feature sums."""

    gamma: Annotated[float, _STEP]
    omega: Annotated[float | None, _STEP] = None
    active: Annotated[float | None, _STEP] = None
    still: Annotated[bool, _WISH] = False
    measure: Annotated[bool, _WISH] = False
    send: Annotated[Flags | None, _SPEAKS] = None
    z: Annotated[bytes | None, block("inner products of its samples")] = None
    v_pads: PadLinks | None = None
    alpha_pads: PadLinks | None = None
    delta_pads: PadLinks | None = None
    attending: Attending = None


class StepReply(SequencedReply):
    v: Annotated[bytes | None, block("changes of its feature sums")] = None
    alpha: Annotated[bytes | None, block("dual variables that it posts")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None
    delta: Annotated[bytes | None, block("changes of dual variables that it proposes")] = None
    delta_slots: Annotated[Slots | None, _SLOTS] = None
    losses: Annotated[bytes | None, scalars("its losses and conjugates")] = None
    estimate: Annotated[bytes | None, scalars("its loss over the samples drawn")] = None
    held: Annotated[int, _HELD] = 0


class FusedRequest(StepRequest, kw_only=True):
    """Weights and step in one: no sample is shared, so that nobody waits for inner products."""

    ahead: Annotated[int, _WISH]
    every: Annotated[bool, _WISH] = False
    counted: Annotated[bool, _OWN_WISH] = False
    v: Annotated[bytes | None, block("feature sums of its features")] = None


class FusedReply(StepReply):
    norms: Annotated[bytes | None, scalars("its part of ‖w‖²")] = None
    norm_change: Annotated[bytes | None, scalars("change of its part of ‖w‖²")] = None
    w: Annotated[Floats | None, clear("weights it answers for", "features", "classes")] = None


class DualRequest(AcknowledgedRequest):
    """Brings new α, or the sum of what was proposed; asks for feature sums."""

    alpha: Annotated[bytes | None, block("dual variables of its samples")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None
    delta: Annotated[bytes | None, block("changes of dual variables of its samples")] = None
    delta_slots: Annotated[Slots | None, _SLOTS] = None
    send: Annotated[Flags | None, _SPEAKS] = None
    v_pads: PadLinks | None = None
    alpha_pads: PadLinks | None = None


class DualReply(SequencedReply):
    v: Annotated[bytes | None, block("changes of its feature sums")] = None
    alpha: Annotated[bytes | None, block("dual variables that it posts")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None
    held: Annotated[int, _HELD] = 0


class AgainRequest(AcknowledgedRequest):
    """Asks a party to post α in the place of one that fell silent."""

    send: Annotated[Flags, _SPEAKS]
    alpha_pads: PadLinks | None = None


class AgainReply(Message):
    alpha: Annotated[bytes | None, block("dual variables that it posts")] = None
    alpha_slots: Annotated[Slots | None, _SLOTS] = None


WEIGHTS = Phase("hyfdca.weights", WeightsRequest, WeightsReply)
STEP = Phase("hyfdca.step", StepRequest, StepReply)
FUSED = Phase("hyfdca.fused", FusedRequest, FusedReply)
DUAL = Phase("hyfdca.dual", DualRequest, DualReply)
AGAIN = Phase("hyfdca.again", AgainRequest, AgainReply)
