"""Joint prediction in one process: samples cut over several parties get their scores."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto.keys import PartyKeys, check_keys, ephemeral_keys
from weft.data.tile import Tile
from weft.federation.joint_prediction_coordinator import sum_scores
from weft.federation.joint_prediction_party import Asker, JointParty
from weft.federation.model import Model
from weft.guards.privacy_terms import Matching
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import LocalChannel, Sink


def predict_scores(
    model: Model,
    tiles: Mapping[str, Sequence[Tile]],
    *,
    cipher: str = "pad",
    matching: Matching = "hmac",
    keys: Mapping[str, PartyKeys] | None = None,
    record: Sink | None = None,
    ledger: Ledger | None = None,
    consents: Mapping[str, Consent] | None = None,
    asker: str | None = None,
) -> tuple[NDArray[np.object_], Floats]:
    """Scores of samples whose features lie at several parties.

    A feature that nobody holds for a sample counts as its centre (zero without scaling).

    Parameters
    ----------
    tiles
        Party name to the tiles of new samples it holds.
    matching
        Whether tokens of ids come from the run secret alone, or also through key holders.
    keys
        The parties' keys, from files; None: made for this prediction.
    record
        Takes every message, to see what each side sees.
    ledger
        Where the parties keep count of the sums that they open and show; None: nowhere.
    consents
        What each party takes part in; None: anything.
    asker
        The party that alone reads scores, of its own samples; None: every holder does.

    Returns
    -------
    ids, scores
        Every sample of which somebody reads scores, once, in order of first appearance and as first
        written; scores are (samples × classes).
    """
    check_keys(keys, tiles)
    own = keys or ephemeral_keys(tuple(tiles))
    asking = None
    if asker is not None and asker in tiles:
        asking = Asker(asker, list(tiles).index(asker), own[asker].identity.public)
    readers = tuple(tiles) if asker is None else (asker,)
    parties = {}
    for name, held in tiles.items():
        consent = (consents or {}).get(name) or Consent.open(name)
        parties[name] = JointParty(
            name, held, model, own[name], cipher, ledger, consent, asker=asking
        )
        consent.check_readers(readers)
    channel = LocalChannel(
        {name: party.on for name, party in parties.items()}, record=record or False
    )
    try:
        sum_scores(
            channel,
            model=model.fingerprint,
            width=len(model.coef),
            cipher=cipher,
            overlap=model.overlap,
            matching=matching,
            asker=asker,
        )
    finally:
        for party in parties.values():
            party.close()
    return _put_together(parties.values(), len(model.coef))


def _put_together(parties: Iterable[JointParty], width: int) -> tuple[NDArray[np.object_], Floats]:
    """What all parties read, every sample once."""
    found: dict[str, tuple[str, Floats]] = {}
    for party in parties:
        read = party.predictions
        if read is not None:
            for sample, written, score in zip(
                party.compared_ids(), read.ids, read.scores, strict=True
            ):
                found.setdefault(sample, (written, score))
    ids = np.array([written for written, _ in found.values()], dtype=object)
    scores = np.array([score for _, score in found.values()])
    return ids, scores.reshape(len(ids), width)
