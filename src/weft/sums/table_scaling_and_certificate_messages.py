"""Messages of what every run needs besides its solver: largest values, scaling, certificates."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Slots
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import block, numbers, record, scalars, texts
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import AcknowledgedRequest, PadIds, PadLinks, SumRequest

# ── the largest value of all parties, digit by digit ──────────────────────────────────────


class DigitRequest(SumRequest):
    """Asks which values of one digit a party's largest values reach."""

    digit: Annotated[int, record("which digit this is", common=True)]
    prefix: Annotated[PadIds, numbers("digits of the largest so far", "values", common=True)]


class DigitReply(Message):
    flags: Annotated[bytes, scalars("which digits of the largest it reaches")]


#: The largest part of ‖x_i‖² and the largest |label|, as powers of two above them.
SIZE = Phase("size", DigitRequest, DigitReply)

# ── masks of a ring that somebody left open ───────────────────────────────────────────────


class MendRequest(SumRequest):
    """Asks for the masks that a silent neighbour left in a sum, to be taken off."""

    v_pads: PadLinks | None = None
    z_pads: PadLinks | None = None
    delta_pads: PadLinks | None = None


class MendReply(Message):
    v: Annotated[bytes | None, block("masks to be taken off feature sums")] = None
    v_slots: Annotated[Slots | None, record("which of its slots these are", "slots")] = None
    z: Annotated[bytes | None, block("masks to be taken off inner products")] = None
    z_slots: Annotated[Slots | None, record("which of its slots these are", "slots")] = None
    delta: Annotated[bytes | None, block("masks to be taken off changes of dual variables")] = None
    delta_slots: Annotated[Slots | None, record("which of its slots these are", "slots")] = None


#: Somebody fell silent, so that the masks of those who answered do not cancel.
MEND = Phase("sums.mend", MendRequest, MendReply)

# ── scaling ───────────────────────────────────────────────────────────────────────────────


class FeatureSumReply(Message):
    v: Annotated[bytes | None, block("its part of sums over the cells of its columns")] = None


class ExtremesRequest(SumRequest):
    """Asks for one digit of the extremes of the columns."""

    digit: Annotated[int, record("which digit this is", common=True)]
    of: Annotated[str, texts("of which values")]
    v: Annotated[bytes | None, block("how many reach each digit of its columns")] = None
    v_pads: PadLinks | None = None


class MomentsRequest(SumRequest):
    """Asks for sums over the cells of the columns, in units that the digits told."""

    v: Annotated[bytes | None, block("how many reach each digit of its columns")] = None
    v_pads: PadLinks | None = None


class FinishScalingRequest(SumRequest):
    rule: Annotated[str, texts("the rule of scaling")]
    v: Annotated[bytes | None, block("means, deviations or extremes of its columns")] = None


class PenaltiesRequest(Message):
    """Which features are held back more or less than others, by name."""

    features: Annotated[NDArray[np.str_], texts("features with a penalty of their own", "features")]
    factors: Annotated[Floats, numbers("how many times λ holds each back", "features")]


class RowNormsRequest(SumRequest):
    """Asks for a party's share of ‖x_i‖² of its samples."""

    unit: Annotated[float, numbers("common unit, a power of two")]
    z_pads: PadLinks | None = None


class RowNormsReply(Message):
    z: Annotated[bytes | None, block("its part of row norms")] = None


class LongestRequest(DigitRequest):
    """Asks for one digit of the largest ‖x_i‖²; the first request brings the norms."""

    z: Annotated[bytes | None, block("norms of samples that it counts")] = None


class ScaleRowsRequest(Message):
    factor: Annotated[float, numbers("factor of all rows")]


EXTREMES = Phase("scale.extremes", ExtremesRequest, FeatureSumReply)
COLUMN_SUMS = Phase("scale.sums", MomentsRequest, FeatureSumReply)
COLUMN_SPREAD = Phase("scale.spread", MomentsRequest, FeatureSumReply)
FINISH_SCALING = Phase("scale.finish", FinishScalingRequest, Nothing)
PENALTIES = Phase("scale.penalties", PenaltiesRequest, Nothing)
ROW_SIZE = Phase("scale.size", DigitRequest, DigitReply)
ROW_NORMS = Phase("scale.norms", RowNormsRequest, RowNormsReply)
LONGEST_ROW = Phase("scale.longest", LongestRequest, DigitReply)
SCALE_ROWS = Phase("scale.rows", ScaleRowsRequest, Nothing)

# ── the certificate of a frozen pair ──────────────────────────────────────────────────────

_KEEP = record("which certified pair to keep", common=True)


class FreezeRequest(AcknowledgedRequest):
    """Asks a party to keep α as it was at the freeze, and for its feature sums."""

    alpha: Annotated[bytes | None, block("dual variables of the frozen pair")] = None
    alpha_slots: Annotated[Slots | None, record("which of its slots these are", "slots")] = None
    keep: Annotated[int | None, _KEEP] = None
    v_pads: PadLinks | None = None


class FreezeReply(Message):
    v: Annotated[bytes | None, block("feature sums of the frozen pair")] = None


class PairProductsRequest(AcknowledgedRequest):
    v: Annotated[bytes | None, block("feature sums of the frozen pair")] = None
    keep: Annotated[int | None, _KEEP] = None
    z_pads: PadLinks | None = None


class PairProductsReply(Message):
    norms: Annotated[bytes, scalars("its part of ‖w‖²")]
    z: Annotated[bytes | None, block("inner products of the frozen pair")] = None


class PairLossesRequest(AcknowledgedRequest):
    z: Annotated[bytes | None, block("inner products of samples that it counts")] = None
    keep: Annotated[int | None, _KEEP] = None


class PairLossesReply(Message):
    losses: Annotated[bytes, scalars("its losses and conjugates")]


FREEZE = Phase("certify.freeze", FreezeRequest, FreezeReply)
PAIR_PRODUCTS = Phase("certify.products", PairProductsRequest, PairProductsReply)
PAIR_LOSSES = Phase("certify.losses", PairLossesRequest, PairLossesReply)
