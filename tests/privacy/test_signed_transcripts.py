"""Parties sign the hash of all that they saw: a recording is that, or it is found out."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_key_pairs import Identity
from weft.data import SPLITS, load
from weft.federation.local_federation import Federation, Preprocessing
from weft.privacy.audit.audit_of_a_recording import audit
from weft.privacy.audit.recording_against_signed_hashes import SignatureAudit
from weft.protocol.message_bytes import pack
from weft.protocol.recording_file import Entry, Head, entries_of
from weft.protocol.signed_transcript_hash import Transcript, reply_hash, signed_bytes
from weft.solvers.run_settings import Settings

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


def exchange(entries, phase, party="p2"):
    """Where a party's first exchange of a phase is: the request, and after it the reply."""
    at = next(n for n, entry in enumerate(entries) if entry.party == party and entry.phase == phase)
    assert entries[at + 1].direction == "up"
    return at


def uncovered(entries):
    """Made-up messages where the hash that p2 signs does not go, and what the last state is."""
    opening, release = exchange(entries, "announce"), exchange(entries, "release")
    made_up = exchange(entries, "subspace.search")
    two = entries[made_up : made_up + 2]
    opened = [replace(entries[opening], message={"run": b"other"}), entries[opening + 1]]
    failed = [two[0], replace(two[1], failure="absent: it said nothing")]
    yield "a run in front", [*opened, *two, *entries]
    yield "messages in front", [*two, *entries]
    yield "behind the model", [*entries, *two]
    yield "a request only", [*entries[:release], two[0], *entries[release:]]
    yield "a last request", [*entries, two[0]]
    yield "a failure with a reply", [*entries[:release], *failed, *entries[release:]]
    yield (
        "a reply to another",
        [
            *entries[:opening],
            replace(entries[opening], phase="classes"),
            *entries[opening + 1 :],
        ],
    )


def test_messages_that_no_signature_covers_are_found(recorded):
    entries, identities = recorded
    for what, forgery in uncovered(entries):
        found = audited(forgery, identities)
        assert found.signed["p2"] in ("in part", "wrong"), what
        assert not found.sound, what
        assert found.findings["covered"].count >= 1, what
        assert found.signed["p1"] == found.signed["p3"] == "verified", what
        # Nor is it said without keys that all was signed.
        assert audited(forgery).signed["p2"] in ("in part", "wrong"), what


def test_with_keys_a_party_that_did_not_sign_is_found(recorded):
    entries, identities = recorded
    release = exchange(entries, "release")
    bare = dict(entries[release + 1].message)
    del bare["transcript"], bare["signature"]
    unsigned = {
        "no release": [*entries[:release], *entries[release + 2 :]],
        "no signature": [
            *entries[: release + 1],
            replace(entries[release + 1], message=bare),
            *entries[release + 2 :],
        ],
        "no messages": [entry for entry in entries if entry.party != "p2"],
    }
    for what, forgery in unsigned.items():
        found = audited(forgery, identities)
        assert found.findings["covered"].count == 1, what
        assert "no signature of p2" in found.findings["covered"].example, what
    keyless = {name: identities[name] for name in ("p1", "p3")}
    assert "no signature of p2" in audited(entries, keyless).findings["covered"].example
    assert "covered" not in audited(unsigned["no release"]).findings


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


#: Phase, request, reply of a party over a network, and hashes that its site tells afterwards.
LETTERS = [
    ("announce", {"run": b"r" * 16}, {"x": 1}, []),
    # The coordinator did not get it, and went on.
    ("step", {"x": 2}, {"x": 3}, None),
    # The party was made anew, and sealed its letter anew.
    ("step", {"x": 4}, {"sealed": b"new"}, [reply_hash(pack({"sealed": b"first"}))]),
]


def of_letters(identity, *, asked=2, sent=b"first"):
    """What a coordinator records of them, with its own word for two things."""
    seen = Transcript()
    seen.settle([])
    for phase, request, reply, sent_hashes in LETTERS:
        seen.add(phase, request, reply)
        seen.settle(sent_hashes)
    release = {"transcript": seen.digest(), "unheard": seen.unheard}
    release["signature"] = identity.sign(signed_bytes(b"r" * 16, "p1", seen.digest()))
    crossed = [
        ("announce", {"run": b"r" * 16}, {"x": 1}, ""),
        # The first of them never arrived there.
        ("step", {"x": 9}, {}, "late: no reply in time"),
        ("step", {"x": asked}, {}, "late: no reply in time"),
        ("step", {"x": 4}, {"sealed": sent}, ""),
        ("release", {}, release, ""),
    ]
    for number, (phase, request, reply, failure) in enumerate(crossed):
        yield Entry(2 * number, phase, "p1", "down", request)
        yield Entry(2 * number + 1, phase, "p1", "up", reply, failure)


@pytest.mark.parametrize(
    ("lie", "state"),
    [({}, "verified"), ({"asked": 7}, "wrong"), ({"sent": b"new"}, "wrong")],
)
def test_what_was_sent_and_requests_without_a_reply_are_signed_for(lie, state):
    identity = Identity.new()
    notary = SignatureAudit({"p1": identity.public})
    found = [check for entry in of_letters(identity, **lie) for check, _ in notary.see(entry)]
    assert notary.states == {"p1": state}
    assert found == ([] if state == "verified" else ["seen"])
