"""Parties of which only the masks under their scalars matter.

Not a test itself.
"""

from __future__ import annotations

import numpy as np

from weft.crypto.key_and_seed_messages import signed_content
from weft.crypto.pair_secrets import PairSecrets
from weft.crypto.party_key_pairs import ExchangeKey, Identity
from weft.crypto.run_participants import read_participants
from weft.crypto.scalar_masks import Masks
from weft.crypto.secret_bytes import Secret
from weft.guards import OPEN, Terms
from weft.protocol.shared_fields import NONCE, Participants

RUN = b"r" * 16


def masks_of(count: int, terms: Terms = OPEN, labelled: tuple[int, ...] | None = None):
    """Masks of so many parties, that know each other; all have labels unless some are named."""
    keys = [ExchangeKey(Secret.random()) for _ in range(count)]
    cards = [card_of(Identity.new(), bytes([k]) * NONCE, key) for k, key in enumerate(keys)]
    flags = np.isin(np.arange(count), np.arange(count) if labelled is None else labelled)
    listed = read_participants(Participants(keys=b"".join(cards), labelled=flags), RUN)
    secret = Secret.random()
    return [
        Masks(PairSecrets(secret, key, listed, k), listed, k, terms) for k, key in enumerate(keys)
    ]


def card_of(identity: Identity, nonce: bytes, key: ExchangeKey) -> bytes:
    """What a party announces of its keys."""
    signature = identity.sign(signed_content(RUN, nonce, key.public))
    return identity.public.to_bytes() + nonce + key.public + signature
