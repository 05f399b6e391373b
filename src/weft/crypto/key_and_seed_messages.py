"""Parts of messages about the keys of one run: what a party announces, makes and is given."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol.declared_message_fields import Part
from weft.protocol.field_visibility import keys, record
from weft.protocol.shared_fields import EXCHANGE, NONCE, PUBLIC, SIGNATURE, Boxes, Participants

_SEEDS = "whose seeds it makes, and for whom"


class RunKeys(Part):
    """What a party announces of its keys: enough to seal for it and to share masks with it."""

    public: Annotated[bytes, keys("to know it by")]
    nonce: Annotated[bytes, keys("random bytes that everything secret in the run depends on")]
    exchange: Annotated[bytes, keys("to agree on secrets with it in this run")]
    signature: Annotated[bytes, keys("of what it drew for the run, by its identity")]
    mark: Annotated[str, keys("fingerprint of the run secret")]

    def card(self, party: str) -> bytes:
        """What others must know of a party, in parts of the lengths that they must have."""
        parts = (self.public, self.nonce, self.exchange, self.signature)
        if tuple(map(len, parts)) != (PUBLIC, NONCE, EXCHANGE, SIGNATURE):
            raise ProtocolError(
                f"party {party} announced keys of other lengths than keys have; update it"
            )
        return b"".join(parts)


def signed_content(run: bytes, nonce: bytes, exchange: bytes) -> bytes:
    """What a party signs with its identity: what it drew for a run."""
    return b"weft keys of a run\0" + len(run).to_bytes(4, "big") + run + nonce + exchange


class AxisSeeds(Part):
    """Along one axis: who makes the seeds of a party's cohorts, and to whom it gives its own.

    Attributes
    ----------
    cohort, maker
        Per shared cohort of the party, its number among all, and who makes its seed.
    given, start
        Its cohorts whose seeds it gives away, receiver by receiver, and where each one's begin.
    place
        Where each shared cohort begins among all shared slots; only ciphers that put several
        cohorts in one chunk need it.
    """

    cohort: Annotated[NDArray[np.int64], record("numbers of its cohorts", "cohorts")]
    maker: Annotated[NDArray[np.int32], record(_SEEDS, "cohorts")]
    given: Annotated[NDArray[np.int64], record(_SEEDS, "seeds")]
    start: Annotated[NDArray[np.int64], record(_SEEDS, "receivers + 1")]
    place: Annotated[NDArray[np.int64] | None, record(_SEEDS, "cohorts")] = None


class SeedPlan(Part):
    """Who takes part, and which seeds a party makes for whom.

    Attributes
    ----------
    to
        Numbers of the parties to whom it gives seeds, or the shared key.
    deal
        Whether it makes the key that all parties share.
    """

    participants: Participants
    to: Annotated[NDArray[np.int64], record(_SEEDS, "receivers")]
    rows: AxisSeeds
    columns: AxisSeeds
    deal: Annotated[bool, record(_SEEDS)] = False


class SeedBoxes(Boxes):
    """Boxes with seeds, and who made each."""

    makers: Annotated[NDArray[np.int64], record("who made which box", "boxes")]
