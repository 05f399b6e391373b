"""Versions of Weft that take part in one run: one minor number apart, or a sentence before it."""

from __future__ import annotations

import re

import pytest
from test_envelope_bytes import sealed
from toys import MemoryTransport, Place

from weft import __version__
from weft.errors import ProtocolError
from weft.network import journaled_party_of_run, site_answers_envelopes
from weft.network.absent_parties import _why_not
from weft.network.envelope_bytes import Hello, Ping, Pong, Welcome, Work, decode_reply, encode
from weft.network.network_channel import NetworkChannel
from weft.network.versions import OtherVersion, check_version
from weft.protocol import pack
from weft.storage.journal import Journal

PLAN = pack({"about": "a test"})


@pytest.mark.parametrize(
    ("theirs", "fits"),
    [
        ("0.4.0", True), ("0.3.9", True), ("0.5.1", True), ("0.4.2rc1", True), ("0.2.0", False),
        ("0.6.0", False), ("1.4.0", False), ("", False), ("new", False), ("0.4x", True),
    ],
)  # fmt: skip
def test_minor_versions_may_lie_one_apart(theirs, fits):
    if fits:
        check_version(theirs, "the coordinator", "0.4.0")
        return
    with pytest.raises(OtherVersion, match=r"has Weft 0.4.0, but the coordinator has") as told:
        check_version(theirs, "the coordinator", "0.4.0")
    assert "\n" not in str(told.value)


def versioned(place, version, monkeypatch):
    """A site that says of itself that it has another version."""

    def answer(envelope, answer=place.site.answer):
        reply = decode_reply(answer(envelope))
        return encode(Welcome(reply.announcement, version) if type(reply) is Welcome else reply)

    monkeypatch.setattr(place.site, "answer", answer)


def greet(tmp_path, places):
    channel = NetworkChannel(MemoryTransport(places), "run-1", Journal(tmp_path / "journal"))
    try:
        channel.hello({"about": 1}, limit=5.0)
    finally:
        channel.close()
    return channel


def test_a_party_of_another_version_is_named_before_the_run(tmp_path, monkeypatch):
    north, south = (Place(name, tmp_path / name) for name in ("north", "south"))
    versioned(south, "0.99.1", monkeypatch)
    named = rf"refused: south \(has Weft 0.99.1, but the coordinator has '{re.escape(__version__)}'"
    with pytest.raises(ProtocolError, match=named):
        greet(tmp_path, [north, south])
    # Nothing was begun anywhere.
    assert north.site.runs() == []


def test_a_run_remembers_the_versions_of_its_parties(tmp_path, monkeypatch):
    major, minor, _ = __version__.split(".")
    older = f"{major}.{int(minor) - 1}.7"
    north, south = (Place(name, tmp_path / name) for name in ("north", "south"))
    versioned(south, older, monkeypatch)
    first = greet(tmp_path, [north, south])
    assert first.versions == {"north": __version__, "south": older}
    first._journal.close()
    assert greet(tmp_path, [north, south]).versions == first.versions


def test_a_site_refuses_a_coordinator_of_another_version(tmp_path):
    place = Place("north", tmp_path / "north")
    reply = decode_reply(place.site.answer(encode(Hello("run-1", PLAN, "0.99.1"))))
    assert reply.kind == "refused"
    assert reply.reason.startswith(f"has Weft {__version__}, but the coordinator has '0.99.1'")
    assert place.site.runs() == []


def test_a_site_that_was_updated_meanwhile_says_so_instead_of_staying_away(tmp_path, monkeypatch):
    place = Place("north", tmp_path / "north")
    place.site.answer(encode(Hello.of("run-1", PLAN)))
    for module in (journaled_party_of_run, site_answers_envelopes):
        monkeypatch.setattr(
            module, "check_version", lambda theirs, whose: check_version(theirs, whose, "9.0.0")
        )
    place.kill()
    # A ping that said no would leave it away for ever.
    assert decode_reply(place.site.answer(encode(Ping("run-1")))) == Pong(True)
    reply = decode_reply(place.site.answer(encode(Work("run-1", 1, 0, 0, []))))
    assert reply.kind == "refused"
    assert "has Weft 9.0.0, but the coordinator of run run-1 has" in reply.reason


def test_an_answer_of_another_protocol_does_not_leave_a_party_away():
    packed = bytearray(encode(Pong(False, "works")))
    assert _why_not(bytes(packed)) == "works"
    body = bytes(packed[10:])
    assert _why_not(sealed(9, body)) is None
    packed[-1] ^= 1
    assert "damaged" in _why_not(bytes(packed))
