"""The model's release: a party neither seals for nobody, nor takes what it cannot check."""

from __future__ import annotations

import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.errors import ProtocolError
from weft.federation.messages import TAKE_MODEL, ModelRequest, ModelSlice, WeightShares
from weft.federation.party import Party
from weft.federation.release.encrypted_model_slices import join_slices
from weft.federation.release.model_header import Head
from weft.federation.release.party import ReleaseParty
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol.shared_fields import Boxes

KEYS = ephemeral_keys(("north", "east"))["north"]


def slice_of(name, shares=None):
    return ModelSlice(
        names=np.array([name]),
        weights=np.ones((1, 1)),
        shift=np.zeros(1),
        factor=np.ones(1),
        constant=np.zeros(1, bool),
        row_factor=1.0,
        missing="error",
        overlap="mean",
        shares=shares,
    )


def test_a_party_that_knows_no_reader_seals_nothing():
    """A release without letters would look as if everything had worked."""
    release = ReleaseParty(Consent.open("north"), Keyring(KEYS, "pad"), KEYS.identity, None, None)
    with pytest.raises(ProtocolError, match="party north does not know who gets the model; give"):
        release.seal(slice_of("age"), None, None)


def shares_of(words, column):
    return WeightShares(words=np.array(words, np.uint64), columns=np.array([column]), bits=2)


def test_a_model_on_shares_is_joined_from_alike_shares_of_all_parties_or_refused():
    """Shares modulo 2^64 of the weights 5/4 and −2, in quarters: −6 + 11 and 2^63 + 2^63 − 8."""
    head = Head(classes=None, loss="squared", loss_parameters={}, lam=0.1, certificate={}, info={})
    north = slice_of("age", shares_of([[2**64 - 6, 2**63]], 0))
    south = slice_of("dose", shares_of([[11, 2**63 - 8]], 1))
    assert join_slices([north, south], head).coef.tolist() == [[1.25, -2.0]]
    for wrong in (None, shares_of([[11]], 0), shares_of([[11, 1], [0, 0]], 1)):
        with pytest.raises(ProtocolError, match="'shares' are not there from every party"):
            join_slices([north, slice_of("dose", wrong)], head)


def test_a_party_that_has_not_trained_takes_no_model(patchwork):
    """It was told no settings and no classes against which to hold the model."""
    party = Party("north", patchwork()["north"], keys=KEYS, cipher="pad")
    request = ModelRequest(head="{}", writers=np.array([], np.str_), boxes=Boxes.of([]))
    with pytest.raises(ProtocolError, match="north has not trained; it takes no model"):
        party.on(TAKE_MODEL, request)
