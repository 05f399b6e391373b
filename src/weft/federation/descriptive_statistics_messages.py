"""Messages of a description: what columns are called, and sums over all their holders."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import numbers, record, scalars, texts
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import SumRequest
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

Names = NDArray[np.str_]

#: Sums of a column that come before its counts by interval: of deviations, and of their squares.
SPREADS = 2
#: What is told of a response by site: how many, and the same two sums.
RESPONSE = 3


class NamesRequest(SumRequest):
    """Asks what a party's columns are called.

    Attributes
    ----------
    sizes
        Says which columns are which, to all parties alike.
    """

    sizes: Annotated[
        Ints, record("how many columns each group of them has", "column cohorts", alike=True)
    ]


class NamesReply(Message):
    """Names of a party's columns, in the order of its slots; empty where it tells nothing of one.

    Attributes
    ----------
    origins
        Of the columns that a category or bins became, the column that was declared.
    """

    names: Annotated[Names, texts("names of columns that it describes", "columns")]
    origins: Annotated[Names, texts("of which declared column each is a level", "columns")]
    tells_site: Annotated[bool, record("whether it tells its own outcomes by themselves")]


class CentresRequest(SumRequest):
    """Asks how many cells there are, and for their sums, in units that the digits told."""

    units: Annotated[Floats, numbers("common unit of each column", "columns")]


class CentresReply(Message):
    sums: Annotated[bytes, scalars("cells, blank cells and the sum of cells of each column")]


class SpreadRequest(SumRequest):
    """Tells about where the middle of every column is, from which spreads are measured."""

    centres: Annotated[Floats, numbers("about the mean of each column", "columns")]


class DistributionRequest(SumRequest):
    """Asks for sums of squares, counts by interval and outcomes."""

    units: Annotated[Floats, numbers("unit of each column's spread", "columns")]
    lengths: Annotated[Floats, numbers("on which scale cells are counted", "columns")]


class DistributionReply(Message):
    """Counts are of ``min_batch`` cells of a party and more, or of none."""

    counts: Annotated[bytes, scalars("its part of spreads, and of cells by interval")]
    outcomes: Annotated[bytes, scalars("its samples by outcome, in all and by site")]


DESCRIBE_NAMES = Phase("describe.names", NamesRequest, NamesReply)
DESCRIBE_SIZES = Phase("describe.sizes", DigitRequest, DigitReply)
DESCRIBE_CENTRES = Phase("describe.centres", CentresRequest, CentresReply)
DESCRIBE_MIDDLE = Phase("describe.middle", SpreadRequest, Nothing)
DESCRIBE_SPREADS = Phase("describe.spreads", DigitRequest, DigitReply)
DESCRIBE_COUNTS = Phase("describe.counts", DistributionRequest, DistributionReply)
