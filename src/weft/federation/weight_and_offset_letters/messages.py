"""Messages by which holders of a weight or an offset tell it to those who have the labels."""

from __future__ import annotations

from typing import Annotated

from weft.array_types import Ints
from weft.protocol.declared_message_fields import Message, Nothing
from weft.protocol.field_visibility import record, sealed
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import Boxes


class Letters(Boxes):
    """Letters from party to party, one after the other."""

    content: Annotated[bytes, sealed("weights and offsets of samples, for who has their labels")]


class TellRequest(Message):
    """Asks a party for letters to label holders of its samples."""


class TellReply(Message):
    readers: Annotated[Ints, record("numbers of the parties that its letters are for", "letters")]
    letters: Letters


class TakeRequest(Message):
    """Brings a party the letters of other holders of its samples."""

    writers: Annotated[Ints, record("numbers of the parties that wrote", "letters")]
    letters: Letters


TELL = Phase("beside.tell", TellRequest, TellReply)
TAKE = Phase("beside.take", TakeRequest, Nothing)
