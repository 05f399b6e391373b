"""What a party began a run with: who takes the run up again must bring the same.

Another cell, or looser terms, would make other sums under pads that were used before, and the
difference of the two would show.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b

import numpy as np

from weft import __version__
from weft.consortium.consent import Consent
from weft.crypto.keyring import Keys
from weft.crypto.memory import Draws
from weft.data.digest import add_tile
from weft.data.tile import Tile
from weft.model import Model


def insist_on_origin(
    draws: Draws,
    tiles: Sequence[Tile],
    keys: Keys,
    cipher: str,
    consent: Consent,
    start: Model | None,
) -> None:
    """Refuse to take up a run with anything else than it began with."""
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
        policy and (policy.limits, policy.allow_exposure),
        roster and roster.fingerprint,
    )
    known = (keys.identity.public.to_bytes(), keys.run.fingerprint("origin"))
    digest.update(repr((__version__, cipher, rules, known)).encode())
    draws.insist(
        "origin",
        digest.digest(),
        f"party {consent.name} was interrupted in this run, and is now to take it up with other "
        "samples, cells, labels, keys or terms, or with another version of Weft, than it began; "
        "start it as it was, or begin a new run",
    )
