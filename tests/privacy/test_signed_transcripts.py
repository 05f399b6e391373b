"""Parties sign the hash of all that they saw: a recording is that, or it is found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.crypto.identities import Identity
from weft.crypto.keys import ephemeral_keys
from weft.data import SPLITS, load
from weft.federation.local_federation import Federation, Preprocessing
from weft.privacy.audit.recording_audit import audit
from weft.protocol.recording import Head, entries_of
from weft.solvers.settings import Settings

SETTINGS = Settings(lam=0.1, gap=0.1, solver="lbfgs", loss="logistic")
PARTIES = ("p1", "p2", "p3")


@pytest.fixture(scope="module")
def recorded():
    """A run of three parties with keys of their own, message by message."""
    tiles = SPLITS["columns"](load("breast_cancer").rows(np.arange(60)), 3).parties
    keys = ephemeral_keys(PARTIES)
    federation = Federation(tiles, Preprocessing(scaling="standard"), keys=keys, record=True)
    trained = federation.train(SETTINGS)
    identities = {name: found.identity.public for name, found in keys.items()}
    return list(entries_of(trained.channel.transcript)), identities


def audited(entries, identities=None):
    return audit(Head("a run", list(PARTIES), "pad"), entries, identities=identities)


def test_a_recording_is_what_all_parties_signed(recorded):
    entries, identities = recorded
    found = audited(entries, identities)
    assert found.sound
    assert found.signed == dict.fromkeys(PARTIES, "verified")
    assert found.to_dict()["signed"] == found.signed
    # Nobody vouches for keys that come with the messages.
    assert audited(entries).signed == dict.fromkeys(PARTIES, "not vouched for")


def changed(entry):
    """One byte or number of a message is another."""
    message = dict(entry.message)
    for name, value in message.items():
        if isinstance(value, bytes) and len(value) > 40:
            message[name] = value[:-1] + bytes([value[-1] ^ 1])
            return replace(entry, message=message)
    return None


def test_a_message_that_was_changed_left_out_added_or_moved_is_found(recorded):
    entries, identities = recorded
    last = max(n for n, entry in enumerate(entries) if entry.phase == "release")
    spots = [
        n
        for n, entry in enumerate(entries[: last - 6])
        if entry.party == "p2" and entry.phase.startswith("subspace") and changed(entry)
    ]
    assert len(spots) > 4
    at = spots[len(spots) // 2]
    pair = slice(at - at % 2, at - at % 2 + 2)
    two = entries[pair]
    forgeries = {
        "changed": [*entries[:at], changed(entries[at]), *entries[at + 1 :]],
        "left out": [*entries[: pair.start], *entries[pair.stop :]],
        "twice": [*entries[: pair.stop], *two, *entries[pair.stop :]],
    }
    for what, forgery in forgeries.items():
        found = audited(forgery, identities)
        assert found.signed["p2"] == "wrong", what
        assert found.findings["seen"].count == 1, what
        # It was this party's message: what the others signed still holds.
        assert found.signed["p1"] == found.signed["p3"] == "verified", what


def test_a_signature_of_another_key_or_run_is_found(recorded):
    entries, identities = recorded
    others = {**identities, "p3": Identity.new().public}
    found = audited(entries, others)
    assert found.signed == {"p1": "verified", "p2": "verified", "p3": "wrong"}
    assert "signed" in found.findings
    swapped = {**identities, "p1": identities["p2"], "p2": identities["p1"]}
    assert audited(entries, swapped).signed["p1"] == "wrong"


def test_without_a_recording_nobody_hashes_and_nothing_is_signed():
    tiles = SPLITS["columns"](load("breast_cancer").rows(np.arange(60)), 3).parties
    # Also as bytes, in which what is not there is left out.
    federation = Federation(tiles, Preprocessing(scaling="standard"), packed=True)
    federation.train(SETTINGS)
    assert all(party._transcript is None for party in federation.parties.values())
