"""Who gets second moments: readers of the model, and nobody else; and what ledgers say of them."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from sealed_runs import CUTS, cut, table

from weft.crypto.keys import ephemeral_keys
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.coordinator import coordinate
from weft.federation.local_federation import Federation
from weft.federation.party import Party
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.encrypted_model_slices import open_slice
from weft.guards import OPEN
from weft.privacy.agreement.limits_and_site_policy import SitePolicy
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import LocalChannel
from weft.solvers.run_settings import Settings

ASKED = Settings(
    lam=0.1, loss="logistic", solver="sealed", gap=0.3, second_moments=("hessian", "gram")
)
HOW = Preprocessing(intercept=False)


@pytest.fixture(scope="module")
def run():
    """Three parties, of which the first two get the model; all messages are kept."""
    block, labels = table()
    tiles = cut(block, labels, CUTS["overlapping"])
    keys = ephemeral_keys(tuple(tiles))
    publics = {name: each.identity.public for name, each in keys.items()}
    readers = {name: publics[name] for name in ("a", "b")}
    parties = {
        name: Party(name, held, keys=keys[name], terms=OPEN, members=publics, readers=readers)
        for name, held in tiles.items()
    }
    channel = LocalChannel(
        {name: party.on for name, party in parties.items()}, record=True, packed=True
    )
    outcome = coordinate(channel, HOW, ASKED)
    return parties, keys, channel, outcome, block


def test_readers_of_the_model_have_the_matrices_and_others_nothing(run):
    parties, _, channel, _, block = run
    for name in ("a", "b"):
        moments = parties[name].second_moments
        order = [int(feature[1:]) for feature in moments.names]
        true = block[:, order].T @ block[:, order]
        assert (np.abs(moments.gram - true) <= moments.gram_error).all()
        assert parties[name].model is not None
    assert parties["c"].second_moments is None
    asked = {(entry.phase, entry.party) for entry in channel.transcript}
    assert ("release.model", "a") in asked
    assert ("release.model", "c") not in asked


def test_letters_open_for_their_reader_alone(run):
    _, keys, _, outcome, _ = run
    assert set(outcome.letters) == {"a", "b"}
    letter, writer = outcome.letters["a"]["c"], keys["c"].identity.public
    assert open_slice(letter, "c", keys["a"].identity, writer, outcome.run).moments is not None
    for name in ("b", "c"):
        with pytest.raises(ProtocolError, match="cannot be opened"):
            open_slice(letter, "c", keys[name].identity, writer, outcome.run)


def test_no_message_holds_a_share_of_a_matrix_in_the_clear(run):
    parties, _, channel, outcome, _ = run
    said = b"\0".join(
        value.tobytes() if isinstance(value, np.ndarray) else value
        for entry in channel.transcript
        for value in {**entry.message, **(entry.reply or {})}.values()
        if isinstance(value, np.ndarray | bytes)
    )
    for party in parties.values():
        shares = party._half.moment_shares(0)
        for words in (shares.gram.words, shares.hessians[0].words):
            assert not any(row.tobytes() in said for row in words[:, :2])
        # It is made of so few samples too, and told to nobody.
        assert not shares.gradients
        assert party._half._gradient[:2].tobytes() not in said
    # The hunt finds what is there.
    assert outcome.letters["a"]["c"] in said


def test_ledgers_refuse_moments_that_differ_by_a_few_samples(tmp_path):
    """The difference of two Gram matrices over all samples but one is that one's row."""
    terms = msgspec.structs.replace(OPEN, min_batch=10, allow_small_changes=False)
    block, labels = table(rows=150)
    ledger = Ledger(tmp_path)

    def train(rows, settings):
        tiles = cut(block[:rows], labels[:rows], CUTS["vertical"])
        return Federation(tiles, HOW, terms=terms, ledger=ledger).train(settings)

    train(149, ASKED)
    (noted,) = ledger.book("a").read().runs
    assert noted.moments == ("hessian", "gram")
    assert noted.exposed == 149
    assert noted.ended is not None
    train(149, ASKED)
    with pytest.raises(WeftError, match="so few of its samples changed"):
        train(150, ASKED)
    # So are models alone.
    with pytest.raises(WeftError, match="so few of its samples changed"):
        train(150, msgspec.structs.replace(ASKED, second_moments=()))


def test_a_policy_that_does_not_allow_them_refuses_before_anybody_is_matched():
    """And a submitter cannot find out how rare columns are by asking for a larger min_batch."""
    strict = SitePolicy(terms=msgspec.structs.replace(OPEN, allow_second_moments=False))
    with pytest.raises(ConfigError) as told:
        Consent("a", OPEN, policy=strict).check_limits(ASKED)
    assert str(told.value).startswith("party a refuses second_moments = ['hessian', 'gram'], ")
    assert str(told.value).endswith("(its own policy policy.toml says so)")
    Consent("a", OPEN, policy=SitePolicy()).check_limits(ASKED)
    asked = msgspec.structs.replace(OPEN, min_batch=50)
    assert Consent("a", OPEN, asked=asked).terms.min_batch == 50
    assert Consent("a", OPEN, asked=asked).own_terms.min_batch == 1
