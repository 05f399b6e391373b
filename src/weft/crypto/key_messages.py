"""Parts of messages about the keys of one run: what a party announces, makes and is given."""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.errors import ProtocolError
from weft.protocol.field_visibility import keys, record
from weft.protocol.message import Part
from weft.protocol.shared_fields import NONCE, PUBLIC, Boxes, Company

_SEEDS = "whose seeds it makes, and for whom"


class RunKeys(Part):
    """What a party announces of its keys: enough to seal for it and to share masks with it."""

    public: Annotated[bytes, keys("to seal for it, and to know it by")]
    nonce: Annotated[bytes, keys("random bytes that its masks depend on")]
    mark: Annotated[str, keys("fingerprint of the run secret")]

    def card(self, party: str) -> bytes:
        """Public keys and nonce of a party, of the lengths that they must have."""
        if len(self.public) != PUBLIC or len(self.nonce) != NONCE:
            raise ProtocolError(
                f"party {party} announced public keys of {len(self.public)} bytes and a nonce of "
                f"{len(self.nonce)}, not {PUBLIC} and {NONCE}; update it"
            )
        return self.public + self.nonce


class AxisSeeds(Part):
    """Along one axis: who makes the seeds of a party's cohorts, and to whom it gives its own.

    Attributes
    ----------
    maker
        Per shared cohort of the party, who makes its seed.
    given, start
        Its cohorts whose seeds it gives away, receiver by receiver, and where each one's begin.
    place
        Where each shared cohort begins among all shared slots; only ciphers that put several
        cohorts in one chunk need it.
    """

    maker: Annotated[NDArray[np.int32], record(_SEEDS, "cohorts")]
    given: Annotated[NDArray[np.int64], record(_SEEDS, "seeds")]
    start: Annotated[NDArray[np.int64], record(_SEEDS, "receivers + 1")]
    place: Annotated[NDArray[np.int64] | None, record(_SEEDS, "cohorts")] = None


class SeedPlan(Company):
    """Which seeds a party makes, for whom, and what the run's pads depend on.

    Attributes
    ----------
    keys
        Cards of the receivers, in the order of ``to``.
    to
        To whom it gives seeds, or the shared key.
    way
        Hashes from its nonce to the root over the nonces of all parties.
    deal
        Whether it makes the key that all parties share.
    """

    keys: Annotated[bytes, keys("of other holders, and their random bytes")]
    to: Annotated[NDArray[np.int64], record(_SEEDS, "receivers")]
    way: Annotated[bytes, keys("hashes of all parties' random bytes")]
    rows: AxisSeeds
    columns: AxisSeeds
    deal: Annotated[bool, record(_SEEDS)] = False


class SeedBoxes(Boxes):
    """Boxes with seeds, and who made each."""

    makers: Annotated[NDArray[np.int64], record("who made which box", "boxes")]
