"""Scores on their way through the coordinator to whoever has the keys of the party that asked.

They are a letter of that party to itself (`weft.crypto.authenticated_party_letters`): the
coordinator can neither read it nor put other scores in its place.
"""

from __future__ import annotations

import numpy as np

from weft.crypto.authenticated_party_letters import LetterError, read_letter, write_letter
from weft.crypto.party_key_pairs import Identity
from weft.errors import ProtocolError
from weft.federation.messages import JointScores
from weft.federation.model import Model
from weft.federation.prediction_table import Predictions
from weft.protocol.declared_message_fields import fields_of, malformed, message_of
from weft.protocol.message_bytes import pack, unpack


def seal_scores(found: Predictions, asker: Identity, run: bytes) -> bytes:
    """Ids and scores, which only the party that asked can open."""
    content = pack(fields_of(JointScores(ids=found.ids.astype(str), scores=found.scores)))
    return write_letter(asker, asker.public, _place(found.model, run), content)


def open_scores(letter: bytes, asker: Identity, model: Model, run: bytes) -> Predictions:
    """The inverse of :func:`seal_scores`, for the same model and run."""
    try:
        content = read_letter(asker, asker.public, _place(model, run), letter)
    except LetterError:
        raise ProtocolError(
            "the scores cannot be opened: they were changed on their way, or are for other keys, "
            "another model or another run; ask for them again"
        ) from None
    told = message_of(JointScores, unpack(content.reveal()))
    if told.scores.shape != (len(told.ids), len(model.coef)) or np.isnan(told.scores).any():
        raise malformed("scores", "are not those of the samples")
    return Predictions(model, told.ids.astype(object), told.scores)


def _place(model: Model, run: bytes) -> bytes:
    return b"weft joint scores " + model.fingerprint + run
