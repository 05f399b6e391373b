"""Messages of matching: tokens up, a view and seeds down, letters between key holders."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.key_and_seed_messages import SeedBoxes, SeedPlan
from weft.matching.authenticated_class_list import AgreedClasses
from weft.matching.party_view import ToldView
from weft.matching.unit_mismatches import UnitTokens
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import keys, numbers, record, sealed, texts, tokens
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import Boxes, Everyone

Tokens = NDArray[np.uint64]

_RUN = keys("random name of the run")
_CARD = keys("of other parties, with their numbers of rows")
_HOP = record("which of the key holders this is")
_PART = record("which of its letters to a key holder this is")
_ANSWER = sealed("answer to its blinded ids, with proofs")
_TILES = record("sizes of its tiles", "tiles")


# ── through key holders ───────────────────────────────────────────────────────────────────


class HelloRequest(Message):
    """Begins matching through key holders."""

    run: Annotated[bytes, _RUN]


class HelloReply(Message):
    card: Annotated[bytes, _CARD]


class AskRequest(Message):
    """Asks for a letter to the next key holder; brings the answer of the one before.

    The first of a new part of its ids brings the last answer about the part before.
    """

    hop: Annotated[int, _HOP]
    part: Annotated[int, _PART]
    holder: Annotated[bytes, _CARD]
    box: Annotated[bytes | None, _ANSWER] = None


class AskReply(Message):
    box: Annotated[bytes, sealed("blinded ids, for a key holder")]
    parts: Annotated[int, record("how many letters it has for each key holder")]


class Cards(Boxes):
    """What all parties announced to each other, one after the other."""

    content: Annotated[bytes, _CARD]


class EvaluateRequest(Message):
    """Brings a key holder the letters of all parties, and who wrote them."""

    hop: Annotated[int, _HOP]
    part: Annotated[int, _PART]
    cards: Cards
    boxes: Boxes


class EvaluateReply(Message):
    boxes: Boxes


HELLO = Phase("match.hello", HelloRequest, HelloReply)
ASK = Phase("match.ask", AskRequest, AskReply)
EVALUATE = Phase("match.evaluate", EvaluateRequest, EvaluateReply)

# ── tokens ────────────────────────────────────────────────────────────────────────────────


class TokensRequest(Message):
    """Asks for tokens of all ids, features and labels.

    ``classes`` is None where labels are numbers; ``box`` is there only with key holders;
    ``company`` lists all parties, unless the cipher hides nothing.
    """

    run: Annotated[bytes, _RUN]
    matching: Annotated[str, texts("how ids are matched")]
    company: Everyone | None = None
    classes: AgreedClasses | None = None
    box: Annotated[bytes | None, _ANSWER] = None


class TokensReply(Message):
    """Tokens of all tiles, one after the other."""

    rows: Annotated[Tokens, tokens("keyed hashes of ids")]
    columns: Annotated[Tokens, tokens("keyed hashes of feature names")]
    labelled: Annotated[NDArray[np.bool_], record("which samples have a label", "rows")]
    labels: Annotated[Tokens, tokens("keyed hashes of id with label")]
    bare: Annotated[Tokens, tokens("keyed hashes of ids without what all of its ids begin with")]
    loose: Annotated[Tokens, tokens("keyed hashes of loose forms of ids")]
    loose_rows: Annotated[Ints, record("whose loose forms these are", "entries")]
    similar: Annotated[Tokens, tokens("keyed hashes of loose forms of feature names")]
    row_counts: Annotated[Ints, _TILES]
    column_counts: Annotated[Ints, _TILES]


class ConflictRequest(Message):
    """Asks which rows have labels that another party contradicts."""

    places: Annotated[
        Ints, record("tokens whose labels another contradicts", "rows", "tile and token")
    ]


class SimilarRequest(Message):
    """Asks which columns have names that differ from another party's in their writing only."""

    places: Annotated[
        Ints, record("tokens whose loose form another has too", "columns", "tile and token")
    ]


TOKENS = Phase("match.tokens", TokensRequest, TokensReply)
CONFLICT = Phase("match.conflict", ConflictRequest, Nothing)
SIMILAR = Phase("match.similar", SimilarRequest, Nothing)

# ── view and keys ─────────────────────────────────────────────────────────────────────────


class ViewRequest(Message):
    """Tells a party its view, and which seeds it makes; ``seeds`` is None under cipher plain."""

    view: ToldView
    units: Annotated[bool, record("whether units of columns are compared")] = False
    bias_value: Annotated[float | None, numbers("value of the constant column")] = None
    seeds: SeedPlan | None = None


class ViewReply(Message):
    key: Annotated[int, keys("number of the run's key")]
    seeds: Boxes | None = None
    shared_public: Annotated[bytes | None, keys("public half of the parties' key")] = None
    tags: Annotated[bytes, keys("confirm what it was told of its shared cohorts")] = b""
    samples: Annotated[bytes, keys("confirms of how many samples it counts the losses")] = b""
    units: UnitTokens | None = None


class UnitsRequest(Message):
    """Asks which columns are a power of ten apart from another party's."""

    places: Annotated[Ints, record("whose tokens meet another's in other units", "columns")]


class KeysRequest(Message):
    """Brings a party the seeds that others made, and that they confirm its view.

    ``seeds`` is None, and the others are empty, under cipher plain.
    """

    seeds: SeedBoxes | None = None
    tags: Annotated[bytes, keys("tags of all holders of its shared cohorts, added up")] = b""
    samples: Annotated[bytes, keys("how all parties confirm the number of samples")] = b""


VIEW = Phase("match.view", ViewRequest, ViewReply)
UNITS = Phase("match.units", UnitsRequest, Nothing)
KEYS = Phase("match.keys", KeysRequest, Nothing)
