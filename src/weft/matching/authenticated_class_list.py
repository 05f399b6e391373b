"""The list of classes that the parties of a run agreed on, as the coordinator passes it on.

It carries a tag under a key of this run, which the coordinator lacks: no party takes another list.
"""

from __future__ import annotations

from hashlib import blake2b
from hmac import compare_digest
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import Part
from weft.protocol.field_visibility import keys, texts

if TYPE_CHECKING:
    # The coordinator carries such lists too, and loads nothing that knows secrets.
    from weft.crypto.secret_bytes import Secret

#: Class values: text, numbers or flags.
Classes = NDArray[Any]
_TAG = 32


class AgreedClasses(Part):
    """The classes of a run, as the party that joined the lists told them."""

    values: Annotated[Classes, texts("class names of all parties", "classes")]
    tag: Annotated[bytes, keys("shows that a party of this run joined the lists")]

    @classmethod
    def of(cls, values: Classes, key: Secret) -> AgreedClasses:
        """Classes that the parties will take whose runs have that key."""
        return cls(values=values, tag=_tag(values, key))

    def taken(self, key: Secret) -> Classes:
        """The classes, if a party of this run made the list."""
        if not compare_digest(_tag(self.values, key), self.tag):
            raise ProtocolError(
                "a list of classes is not the one that the parties of this run agreed on; stop "
                "this run"
            )
        return self.values

    def names(self) -> list[bytes]:
        """What stands for each class where labels are compared: never its place in the list."""
        return [str(value).encode() for value in self.values.tolist()]


def _tag(values: Classes, key: Secret) -> bytes:
    listed = msgspec.msgpack.encode([values.dtype.kind, values.tolist()])
    return blake2b(listed, key=key.reveal(), digest_size=_TAG).digest()
