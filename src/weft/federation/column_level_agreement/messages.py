"""Messages about declared columns, before samples and features are matched."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import record, tokens
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import Boxes, Everyone

Tokens = NDArray[np.uint64]

_NAMES = tokens("keyed hashes of column names")


class ColumnsRequest(Message):
    """Asks a party for its columns; ``company`` lists all, unless the cipher hides nothing."""

    company: Everyone | None = None


class ColumnsReply(Message):
    """A party's columns with what is declared about them, all as tokens.

    Attributes
    ----------
    names, rules
        Of every column, declared or not; two holders say the same about a column exactly when
        their tokens of its rule agree.
    left, right
        Pairs of columns whose products are columns too.
    open
        Categories whose levels are to be agreed on.
    levels
        The levels of these, for other holders of the column alone.
    """

    names: Annotated[Tokens, _NAMES]
    rules: Annotated[Tokens, tokens("keyed hashes of what is declared about a column")]
    left: Annotated[Tokens, tokens("keyed hashes of columns that are multiplied")]
    right: Annotated[Tokens, tokens("keyed hashes of columns that are multiplied")]
    open: Annotated[Tokens, tokens("keyed hashes of names of categories")]
    levels: Boxes


class DifferentRequest(Message):
    """Asks which columns another holder declares otherwise."""

    places: Annotated[Ints, record("tokens that another holder contradicts", "columns")]


class JoinLevelsRequest(Message):
    """Brings the lists of all holders of some categories, mixed; asks one of them to join them."""

    names: Annotated[Tokens, _NAMES]
    counts: Annotated[Ints, record("how many parties hold each", "categories")]
    lists: Boxes
    confirmed: Annotated[bool, record("whether levels in two writings are meant to differ")]


class JoinLevelsReply(Message):
    """The levels of each category, for its holders alone."""

    levels: Boxes


class TakeLevelsRequest(Message):
    """Brings a party the levels of the categories that it holds."""

    names: Annotated[Tokens, _NAMES]
    levels: Boxes


LIST_COLUMNS = Phase("columns.list", ColumnsRequest, ColumnsReply)
DIFFERENT = Phase("columns.differ", DifferentRequest, Nothing)
JOIN_LEVELS = Phase("columns.join", JoinLevelsRequest, JoinLevelsReply)
TAKE_LEVELS = Phase("columns.take", TakeLevelsRequest, Nothing)
