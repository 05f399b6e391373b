"""Bonds: only the coordinator of the federation is answered, only the right party is believed."""

from __future__ import annotations

import pytest
from cryptography import x509

from weft.network.certificate_signatures import Credential
from weft.network.kits.certificates import Authority, new_key
from weft.network.secure_session import _MOST_SESSIONS, SecureSite, SecureTransport
from weft.protocol import Failure

HOST = "coordinator.example"


class Echo:
    """A site that says what it was told, and remembers it."""

    def __init__(self):
        self.told = []

    def answer(self, content):
        self.told.append(content)
        return b"heard " + content


class Wire:
    """A post to sites in this process; ``spoil`` may change what goes down or comes up."""

    def __init__(self, sites):
        self.sites = dict(sites)
        self.parties = tuple(sites)
        self.spoil = lambda direction, party, content: content
        self.envelopes = []

    def send(self, envelopes, timeout):
        replies = {}
        for party, envelope in envelopes.items():
            self.envelopes.append((party, envelope))
            if party not in self.sites:
                replies[party] = Failure("failed", "is not connected")
                continue
            reply = self.sites[party].answer(self.spoil("down", party, envelope))
            replies[party] = self.spoil("up", party, reply)
        return replies


def credential(authority: Authority, name: str, **options: str) -> Credential:
    key = new_key()
    certificate = authority.issue(key.public_key(), name, "org", **options)
    return Credential(certificate, key, authority.certificate)


@pytest.fixture(scope="module")
def federation():
    authority = Authority.new("a federation")
    return {
        "authority": authority,
        "coordinator": credential(authority, HOST, host=HOST),
        "north": credential(authority, "north"),
        "south": credential(authority, "south"),
    }


@pytest.fixture
def wire(federation):
    sites = {}
    for name in ("north", "south"):
        sites[name] = SecureSite(Echo(), federation[name], name, HOST)
    return Wire(sites)


def echo_of(wire, name):
    return wire.sites[name]._site


def test_letters_arrive_and_nothing_of_them_is_seen_on_the_way(federation, wire):
    transport = SecureTransport(wire, federation["coordinator"])
    for word in (b"a secret word", b"another one", b""):
        found = transport.send({"north": word, "south": word + b"!"}, 5.0)
        assert found == {"north": b"heard " + word, "south": b"heard " + word + b"!"}
    seen = b"".join(envelope for _, envelope in wire.envelopes)
    assert b"secret word" not in seen
    # Two meetings, then one letter each time.
    assert len(wire.envelopes) == 2 + 6


def test_nobody_else_is_answered(federation, wire):
    """Not another party, not a submitter, not the coordinator of another federation."""
    other = Authority.new("a federation")
    posers = [
        federation["south"],
        credential(federation["authority"], "boss@example.org", role="project_admin"),
        credential(other, HOST, host=HOST),
    ]
    # A stolen certificate without its key.
    real = federation["coordinator"]
    posers.append(Credential(real.certificate, new_key(), real.authority))
    for poser in posers:
        reply = SecureTransport(wire, poser).send({"north": b"end all runs"}, 5.0)["north"]
        assert isinstance(reply, Failure)
        assert "does not accept this coordinator" in reply.reason
    assert echo_of(wire, "north").told == []


def test_a_site_whose_kit_names_another_host_answers_nobody(federation, wire):
    """Its connection may end anywhere; letters are bound to the coordinator of that name."""
    wire.sites["north"] = SecureSite(Echo(), federation["north"], "north", "elsewhere.example")
    for poser in ("coordinator", "south"):
        reply = SecureTransport(wire, federation[poser]).send({"north": b"hello"}, 5.0)["north"]
        assert "does not accept this coordinator" in reply.reason
    assert echo_of(wire, "north").told == []


def test_what_is_sent_without_a_bond_is_not_worked_on(federation, wire):
    site = wire.sites["north"]
    for envelope in (b"", b"L", b"L" + bytes(64), b"M", b"Mnonsense", b"plain words", bytes(100)):
        assert site.answer(envelope) == b"?"
    assert echo_of(wire, "north").told == []


def test_another_party_is_not_taken_for_the_one_that_was_asked(federation, wire):
    wire.sites["north"] = SecureSite(Echo(), federation["south"], "north", HOST)
    reply = SecureTransport(wire, federation["coordinator"]).send({"north": b"hello"}, 5.0)["north"]
    assert reply == Failure("failed", "shows the certificate of 'south', not of 'north'")


def test_a_letter_counts_once(federation, wire):
    transport = SecureTransport(wire, federation["coordinator"])
    transport.send({"north": b"once"}, 5.0)
    envelope = wire.envelopes[-1][1]
    assert wire.sites["north"].answer(envelope) == b"?"
    assert echo_of(wire, "north").told == [b"once"]


@pytest.mark.parametrize("direction", ["down", "up"])
def test_what_was_changed_on_the_way_is_found_out(federation, wire, direction):
    transport = SecureTransport(wire, federation["coordinator"])
    transport.send({"north": b"first"}, 5.0)
    spoiled = []

    def spoil(way, party, content):
        if way != direction or spoiled:
            return content
        spoiled.append(content)
        return content[:-1] + bytes([content[-1] ^ 1])

    wire.spoil = spoil
    reply = transport.send({"north": b"second"}, 5.0)["north"]
    if direction == "down":
        # The site takes it for nothing of the coordinator's, who meets it anew.
        assert reply == b"heard second"
    else:
        # No message: whoever asked asks again.
        assert reply == b""
        assert transport.send({"north": b"second"}, 5.0)["north"] == b"heard second"


def test_a_site_that_was_started_again_is_met_anew(federation, wire):
    transport = SecureTransport(wire, federation["coordinator"])
    assert transport.send({"north": b"one"}, 5.0)["north"] == b"heard one"
    wire.sites["north"] = SecureSite(Echo(), federation["north"], "north", HOST)
    assert transport.send({"north": b"two"}, 5.0)["north"] == b"heard two"
    assert echo_of(wire, "north").told == [b"two"]


def test_a_long_run_keeps_its_bond_though_many_short_ones_come_and_go(federation, wire):
    long = SecureTransport(wire, federation["coordinator"])
    for _ in range(2 * _MOST_SESSIONS):
        assert long.send({"north": b"long"}, 5.0)["north"] == b"heard long"
        SecureTransport(wire, federation["coordinator"]).send({"north": b"short"}, 5.0)
    shaken = [envelope for _, envelope in wire.envelopes if envelope.startswith(b"M")]
    assert len(shaken) == 1 + 2 * _MOST_SESSIONS


def test_who_is_away_costs_nothing_but_its_failure(federation, wire):
    del wire.sites["south"]
    transport = SecureTransport(wire, federation["coordinator"])
    found = transport.send({"north": b"x", "south": b"x"}, 5.0)
    assert found == {"north": b"heard x", "south": Failure("failed", "is not connected")}


def test_an_expired_certificate_is_not_believed(federation, wire, monkeypatch):
    moment = federation["coordinator"].certificate.not_valid_after_utc

    class Later:
        @staticmethod
        def now(_):
            return moment.replace(year=moment.year + 1)

    monkeypatch.setattr("weft.network.certificate_signatures.datetime", Later)
    reply = SecureTransport(wire, federation["coordinator"]).send({"north": b"x"}, 5.0)["north"]
    assert isinstance(reply, Failure)
    assert isinstance(federation["north"].certificate, x509.Certificate)
