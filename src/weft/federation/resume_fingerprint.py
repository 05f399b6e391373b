"""What a party began a run with: who takes the run up again must bring the same.

Another cell, or looser terms, would make other sums under pads that were used before, and the
difference of the two would show. Even other last digits would bring the party to another state
than the one that the coordinator reckons with.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from hashlib import blake2b

import numpy as np
from scipy.linalg import cho_factor, cho_solve

from weft import __version__
from weft.crypto.party_key_agreement import Keys
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.data.tile import Tile
from weft.data.tile_digest import add_tile
from weft.federation.model import Model
from weft.privacy.agreement.party_consent_checks import Consent

#: Large enough for BLAS to use all its threads.
_SIZE = 256


def insist_on_origin(
    draws: RandomnessLog,
    tiles: Sequence[Tile],
    keys: Keys,
    cipher: str,
    consent: Consent,
    start: Model | None = None,
    *,
    digits: bytes = b"",
) -> None:
    """Refuse to take up a run with anything else than it began with.

    Parameters
    ----------
    digits
        What else last digits depend on, besides this process's linear algebra.
    """
    digest = blake2b(digest_size=32, person=b"weft origin")
    for tile in tiles:
        add_tile(digest.update, tile)
        # Labels may be text of any kind; where there are none, they may hold anything.
        labels = [] if tile.labels is None else tile.labels[tile.labelled].tolist()
        digest.update(repr((tile.labelled.tobytes(), labels)).encode())
    if start is not None:
        digest.update("\x00".join(start.features.tolist()).encode())
        for part in (start.coef, start.intercept, *start.scaling):
            digest.update(np.ascontiguousarray(part).tobytes())
    policy, roster = consent.policy, consent.roster
    rules = (
        consent.terms,
        policy and policy.limits,
        roster and roster.fingerprint,
    )
    known = (keys.identity.public.to_bytes(), keys.run.fingerprint("origin"))
    digest.update(repr((__version__, cipher, rules, known)).encode() + last_digits() + digits)
    draws.insist(
        "origin",
        digest.digest(),
        f"party {consent.name} was interrupted in this run, and is now to take it up with other "
        "samples, cells, labels, keys or terms, or where last digits come out differently (another "
        "version of Weft or of a library, another processor or number of threads); start it as it "
        "was, or begin a new run",
    )


@cache
def last_digits() -> bytes:
    """A hash of what products, factors and functions come to in this process.

    Processors, versions of libraries and numbers of threads add up in different orders.
    """
    cells = np.sin(np.arange(_SIZE**2, dtype=np.float64)).reshape(_SIZE, _SIZE)
    factor = cho_factor(cells.T @ cells + np.eye(_SIZE))
    return blake2b(cho_solve(factor, np.exp(cells)).tobytes(), digest_size=16).digest()
