"""Messages of a check of a study: what is in files, and what a party would refuse."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.matching.party_view import ToldView
from weft.matching.unit_mismatches import UnitTokens
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import numbers, record, texts
from weft.protocol.phase_with_request_and_reply import Phase

Names = NDArray[np.str_]


class FilesReply(Message):
    """What a party found in its files: columns and kinds of findings, no value and no id."""

    notes: Annotated[Names, texts("what it found in its files, without values or ids", "notes")]


class CheckedViewRequest(Message):
    """Tells a party its view of a run that is only looked at, and what the run would be.

    Attributes
    ----------
    classes
        Problems side by side.
    mean_square
        About 1/N Σ ‖x_i‖² of the scaled table, for the forecast.
    """

    view: ToldView
    settings: Annotated[str, texts("settings of the run")]
    classes: Annotated[int, record("how many problems are trained side by side")]
    mean_square: Annotated[float, numbers("mean squared norm of a row, about")]
    scales: Annotated[bool, record("whether columns are scaled")]
    unit_rows: Annotated[bool, record("whether rows are scaled to norm 1")]
    units: Annotated[bool, record("whether units of columns are compared")]
    bias_value: Annotated[float | None, numbers("value of the constant column")] = None


class CheckedViewReply(Message):
    """What the party would refuse, in words that count nothing; none: it would take part."""

    objections: Annotated[Names, texts("what it would refuse, without counts", "objections")]
    units: UnitTokens | None = None


CHECK_FILES = Phase("check.files", Nothing, FilesReply)
CHECK_VIEW = Phase("check.view", CheckedViewRequest, CheckedViewReply)
