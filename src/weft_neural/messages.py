"""Messages of a neural run: the plan, scaling of columns, first weights, rounds."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto.key_and_seed_messages import RunKeys
from weft.matching.authenticated_class_list import AgreedClasses
from weft.protocol.declared_message_fields import Message, Nothing, OnDevice, Part
from weft.protocol.field_visibility import (
    coefficients,
    keys,
    network_weights,
    record,
    scalars,
    texts,
)
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import Attending, Participants, SumRequest

#: Weights of a network: an array, or in the memory of an accelerator.
Weights = NDArray[np.float32] | OnDevice

_EXTRACTORS = network_weights("extractors of its blocks")
_CLASSIFIER = network_weights("its classifier")
_STEP = record("what to do in this phase", common=True)

# ── beginning ─────────────────────────────────────────────────────────────────────────────


class PlanRequest(Message):
    """Tells what is to be trained, and asks what a party has of it."""

    run: Annotated[bytes, keys("random name of the run")]
    settings: Annotated[str, texts("settings of the run")]
    parties: Annotated[int, record("how many take part, and its number")]
    number: Annotated[int, record("how many take part, and its number")]
    classes: AgreedClasses


class PlanReply(Message):
    keys: RunKeys
    held: Annotated[str, texts("which blocks it has, of which shapes")]
    samples: Annotated[int, record("how many samples it trains on")]


class ScaledColumns(Part):
    """All blocks whose columns are scaled, and how many columns each has."""

    blocks: Annotated[NDArray[np.str_], texts("blocks whose columns are scaled", "blocks")]
    widths: Annotated[NDArray[np.int64], record("numbers of their columns", "blocks")]


class ColumnMeans(Part):
    """Means of a party's own columns, and digests of the means of all blocks."""

    mean: Annotated[Floats, coefficients("means of its columns", "columns", alike=False)]
    digests: Annotated[bytes, keys("digests of the means of all blocks")]


class ScaleRequest(SumRequest):
    """Asks for counts and sums of columns (step 0), then for squares about means (step 1)."""

    step: Annotated[int, _STEP]
    columns: ScaledColumns | None = None
    means: ColumnMeans | None = None
    participants: Participants | None = None


class ScaleReply(Message):
    sums: Annotated[bytes, scalars("its counts and sums of columns")]


class ColumnScales(Part):
    """Means and deviations of a party's own columns."""

    mean: Annotated[
        Floats, coefficients("means and deviations of its columns", "columns", alike=False)
    ]
    deviation: Annotated[
        Floats, coefficients("means and deviations of its columns", "columns", alike=False)
    ]


class BuildRequest(Message):
    """Asks for a network; ``scales`` is None where no columns are scaled.

    Who takes part is told here where no columns are scaled, else with the first question there.
    """

    give: Annotated[NDArray[np.str_], texts("blocks whose first weights it gives", "blocks")]
    scales: ColumnScales | None = None
    participants: Participants | None = None


class BuildReply(Message):
    """Sizes of the extractors; ``extractors`` where first weights were asked for."""

    features: Annotated[NDArray[np.int64], record("sizes of its extractors", "blocks")]
    sizes: Annotated[
        NDArray[np.int64], record("sizes of its extractors", "blocks", "weights and statistics")
    ]
    extractors: Annotated[Weights | None, network_weights("first weights of blocks")] = None


PLAN = Phase("neural.plan", PlanRequest, PlanReply)
SCALE = Phase("neural.scale", ScaleRequest, ScaleReply)
BUILD = Phase("neural.build", BuildRequest, BuildReply)

# ── rounds ────────────────────────────────────────────────────────────────────────────────


class TrainRequest(SumRequest):
    """Asks for local steps; without a classifier they begin at the party's own."""

    turn: Annotated[int, _STEP]
    extractors: Annotated[Weights, _EXTRACTORS]
    classifier: Annotated[Weights | None, _CLASSIFIER] = None
    evaluate: Annotated[bool, _STEP] = False
    attending: Attending = None


class TrainReply(Message):
    extractors: Annotated[Weights, _EXTRACTORS]
    classifier: Annotated[Weights, _CLASSIFIER]
    sums: Annotated[bytes, scalars("its loss and accuracies")]


class FinishRequest(Message):
    """Brings a party its copy of the last model."""

    extractors: Annotated[Weights, _EXTRACTORS]
    classifier: Annotated[Weights | None, _CLASSIFIER] = None


TRAIN = Phase("neural.train", TrainRequest, TrainReply)
FINISH = Phase("neural.finish", FinishRequest, Nothing)
