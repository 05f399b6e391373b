"""Rosters are numbered, run out and can be withdrawn; a site remembers what it has seen."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime

import msgspec
import pytest

from weft.crypto.party_key_pairs import Identity
from weft.errors import ConfigError, WeftError
from weft.guards.privacy_terms import Terms
from weft.privacy.agreement import Card, Consent, read_roster, write_roster
from weft.privacy.agreement.cards_and_roster_drafts import (
    draft_roster,
    read_revocation,
    write_revocation,
)
from weft.privacy.agreement.newest_seen_rosters import RosterPins
from weft.privacy.agreement.roster_revocation import Revocation
from weft.privacy.agreement.signed_roster import Hex, charter_words

IDENTITIES = {name: Identity.new() for name in ("north", "south", "west")}


def signed(serial=1, expires=None, federation="clinics", names=tuple(IDENTITIES), **terms):
    cards = [Card.of_public(name, IDENTITIES[name].public) for name in names]
    roster = draft_roster(federation, cards, Terms(**terms), serial=serial, expires=expires)
    for name in names:
        roster = roster.signed_by(name, IDENTITIES[name])
    return roster


def revoked_by(name, roster, **changes):
    """A member's revocation; also of a roster that was never drafted."""
    made = msgspec.structs.replace(Revocation.of(roster, name, IDENTITIES[name]), **changes)
    signature = Hex(IDENTITIES[name].sign(made._signed()))
    return msgspec.structs.replace(made, signature=signature)


@pytest.fixture
def pins(tmp_path):
    return RosterPins(tmp_path / "rosters")


class LastMinute(datetime):
    """A clock that stands still: else the day could end in the middle of a test."""

    @classmethod
    def now(cls, tz=None):
        assert tz is UTC
        return cls(2031, 5, 1, 23, 59, tzinfo=tz)


def test_a_roster_that_has_run_out_does_not_count(monkeypatch):
    monkeypatch.setattr("weft.privacy.agreement.signed_roster.datetime", LastMinute)
    Consent("north", roster=signed(expires=date(2031, 5, 1)))
    with pytest.raises(ConfigError, match=r"ran out on .*; draft one with a higher serial"):
        Consent("north", roster=signed(expires=date(2031, 4, 30)))
    # Who signed it, when it still counted, can be shown all the same.
    signed(expires=date(2020, 1, 1)).insist_on_signatures()


def test_serial_and_last_day_are_signed_and_shown(tmp_path):
    roster = signed(3, date(2099, 5, 1))
    assert "serial 3, counts until 2099-05-01" in charter_words(roster.charter)[0]
    write_roster(tmp_path / "roster.json", roster)
    assert read_roster(tmp_path / "roster.json").charter == roster.charter
    for key, value in (("serial", 4), ("expires", "2199-05-01"), ("expires", None)):
        changed = json.loads((tmp_path / "roster.json").read_text())
        changed["roster"][key] = value
        (tmp_path / "changed.json").write_text(json.dumps(changed))
        with pytest.raises(ConfigError, match="does not belong to this content"):
            read_roster(tmp_path / "changed.json").insist()


def test_a_site_refuses_an_older_roster_than_it_has_seen(pins):
    """All members signed that one too; without the pin it would count again."""
    older, newer = signed(1, allow_pairs=True), signed(2)
    older.insist()
    pins.admit(older)
    pins.admit(newer)
    with pytest.raises(ConfigError, match="has serial 1, but this site has seen 2"):
        pins.admit(older)
    pins.admit(newer)
    with pytest.raises(ConfigError, match="two rosters of 'clinics' with serial 2"):
        pins.admit(signed(2, allow_pairs=True))
    # Another federation counts by itself.
    pins.admit(signed(1, federation="others"))


def test_a_roster_that_does_not_count_is_not_pinned(pins):
    unsigned = draft_roster(
        "clinics", [Card.of_public("north", IDENTITIES["north"].public)], Terms(), serial=9
    )
    with pytest.raises(ConfigError, match="did not sign it"):
        pins.admit(unsigned)
    pins.admit(signed(1))


def test_any_member_can_withdraw_a_roster_and_all_before_it(pins, tmp_path):
    # Also those before it of which that member was none.
    older, roster, newer = signed(1, names=("north", "west")), signed(2), signed(3)
    made = Revocation.of(roster, "south", IDENTITIES["south"])
    write_revocation(tmp_path / "r.json", made)
    pins.admit(older)
    pins.take(read_revocation(tmp_path / "r.json"), roster)
    for roster_ in (older, roster):
        for refuse in (pins.insist, pins.admit):
            with pytest.raises(ConfigError, match="'south' has revoked the roster of 'clinics'"):
                refuse(roster_)
    pins.admit(newer)
    # The same again changes nothing, nor does one of a roster that does not count anyway.
    assert not pins.take(made, newer)
    assert not pins.take(Revocation.of(older, "west", IDENTITIES["west"]), newer)
    pins.insist(newer)
    pins.take(revoked_by("west", newer), newer)
    with pytest.raises(ConfigError, match=r"'west' has revoked .* with serial 3 and all before it"):
        pins.insist(newer)


def test_with_a_newer_roster_a_revoked_one_does_not_count_whether_it_was_seen_or_not(pins):
    pins.admit(signed(2))
    pins.take(revoked_by("south", signed(2)), signed(3))
    with pytest.raises(ConfigError, match="has serial 2, but this site has seen 3"):
        pins.insist(signed(2))
    pins.insist(signed(3))


def test_an_altered_copy_does_not_keep_the_true_revocation_out(pins, tmp_path):
    """It begins with the same bytes of a signature, and arrives first."""
    roster = signed(5)
    true = revoked_by("south", roster)
    other_end = Hex(bytes(true.signature[:-1]) + bytes([true.signature[-1] ^ 1]))
    for change in ({"serial": 6}, {"signature": other_end}, {"fingerprint": "x"}):
        with pytest.raises(ConfigError, match="is not signed by a member"):
            pins.take(msgspec.structs.replace(true, **change), roster)
    # With a lower serial it would withdraw what does not count here: nothing is kept of it.
    assert not pins.take(msgspec.structs.replace(true, serial=1), roster)
    pins.admit(roster)
    assert not (tmp_path / "rosters" / "revoked").exists()
    assert pins.take(true, roster)
    with pytest.raises(ConfigError, match="'south' has revoked"):
        pins.insist(roster)
    kept = list((tmp_path / "rosters" / "revoked").glob("*.json"))
    assert [read_revocation(path) for path in kept] == [true]


def test_nobody_can_withdraw_rosters_that_are_not_drafted_yet(pins):
    roster = signed(5)
    pins.admit(roster)
    for serial in (6, 10**9):
        with pytest.raises(ConfigError, match="is not signed by a member of the roster"):
            pins.take(revoked_by("south", roster, serial=serial), roster)
    pins.admit(signed(6))
    # Nor with a roster that not all have signed.
    cards = [Card.of_public(name, IDENTITIES[name].public) for name in ("north", "south")]
    alone = draft_roster("clinics", cards, Terms(), serial=99)
    alone = alone.signed_by("south", IDENTITIES["south"])
    with pytest.raises(ConfigError, match="north did not sign it"):
        pins.take(revoked_by("south", alone), alone)
    pins.admit(signed(7))


@pytest.mark.parametrize("name", ["clinics ", " Clinics", "CLINICS", "\uff43linics"])
def test_a_name_written_otherwise_is_no_other_federation(pins, name):
    pins.admit(signed(9))
    with pytest.raises(ConfigError, match="has serial 1, but this site has seen 9"):
        pins.admit(signed(1, federation=name))
    pins.take(revoked_by("south", signed(9)), signed(9))
    with pytest.raises(ConfigError, match="'south' has revoked"):
        pins.admit(signed(9, federation=name))
    pins.admit(signed(10, federation=name))


def forged(roster):
    stranger = Identity.new()
    good = Revocation.of(roster, "south", IDENTITIES["south"])
    change = msgspec.structs.replace
    yield "another serial", change(good, serial=99)
    yield "another member", change(good, by="west")
    yield "a stranger's", change(good, signature=Hex(stranger.sign(good._signed())))
    yield "another federation", change(good, federation="others")
    yield "no signature", change(good, signature=Hex(b"0" * 64))


def test_nobody_can_withdraw_a_roster_in_anothers_name(pins):
    roster = signed(2)
    for what, revocation in forged(roster):
        assert not revocation.revokes(roster), what
        with pytest.raises(ConfigError, match="is not signed by a member"):
            pins.take(revocation, roster)
    pins.admit(roster)
    for by, identity in (("south", IDENTITIES["west"]), ("east", IDENTITIES["south"])):
        with pytest.raises(ConfigError, match="only a member can revoke it"):
            Revocation.of(roster, by, identity)


def test_damaged_memories_are_told_without_a_path_to_others(pins, tmp_path):
    pins.admit(signed(2))
    (tmp_path / "rosters" / "pinned.json").write_text("[")
    for refuse in (pins.insist, pins.admit):
        with pytest.raises(
            WeftError, match="does not say which rosters this site has seen"
        ) as stop:
            refuse(signed(2))
        assert str(tmp_path) in str(stop.value)
        assert str(tmp_path) not in stop.value.told
