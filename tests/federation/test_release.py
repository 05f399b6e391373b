"""The model's release: a party neither seals for nobody, nor takes what it cannot check."""

from __future__ import annotations

import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_run_keys import Keyring
from weft.errors import ProtocolError
from weft.federation.messages import TAKE_MODEL, ModelRequest, ModelSlice
from weft.federation.party import Party
from weft.federation.release.party import ReleaseParty
from weft.privacy.agreement.consent import Consent
from weft.protocol.shared_fields import Boxes

KEYS = ephemeral_keys(("north", "east"))["north"]


def test_a_party_that_knows_no_reader_seals_nothing():
    """A release without letters would look as if everything had worked."""
    release = ReleaseParty(Consent.open("north"), Keyring(KEYS, "pad"), KEYS.identity, None, None)
    held = ModelSlice(
        names=np.array(["age"]),
        weights=np.ones((1, 1)),
        shift=np.zeros(1),
        factor=np.ones(1),
        constant=np.zeros(1, bool),
        row_factor=1.0,
        missing="error",
        overlap="mean",
    )
    with pytest.raises(ProtocolError, match="party north does not know who gets the model; give"):
        release.seal(held, None, None)


def test_a_party_that_has_not_trained_takes_no_model(patchwork):
    """It was told no settings and no classes against which to hold the model."""
    party = Party("north", patchwork()["north"], keys=KEYS, cipher="pad")
    request = ModelRequest(head="{}", writers=np.array([], np.str_), boxes=Boxes.of([]))
    with pytest.raises(ProtocolError, match="north has not trained; it takes no model"):
        party.on(TAKE_MODEL, request)
