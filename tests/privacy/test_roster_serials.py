"""Rosters are numbered, run out and can be withdrawn; a site remembers what it has seen."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta

import msgspec
import pytest

from weft.crypto.identities import Identity
from weft.errors import ConfigError, WeftError
from weft.guards.terms import Terms
from weft.privacy.agreement import Card, Consent, read_roster, write_roster
from weft.privacy.agreement.roster_files import draft_roster, read_revocation, write_revocation
from weft.privacy.agreement.roster_pins import RosterPins
from weft.privacy.agreement.roster_revocation import Revocation
from weft.privacy.agreement.signed_roster import Hex, charter_words

IDENTITIES = {name: Identity.new() for name in ("north", "south", "west")}
TODAY = datetime.now(UTC).date()


def signed(serial=1, expires=None, federation="clinics", **terms):
    cards = [Card.of_public(name, identity.public) for name, identity in IDENTITIES.items()]
    roster = draft_roster(federation, cards, Terms(**terms), serial=serial, expires=expires)
    for name, identity in IDENTITIES.items():
        roster = roster.signed_by(name, identity)
    return roster


@pytest.fixture
def pins(tmp_path):
    return RosterPins(tmp_path / "rosters")


def test_a_roster_that_has_run_out_does_not_count():
    Consent("north", roster=signed(expires=TODAY))
    with pytest.raises(ConfigError, match=r"ran out on .*; draft one with a higher serial"):
        Consent("north", roster=signed(expires=TODAY - timedelta(days=1)))
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
    older, roster, newer = signed(1), signed(2), signed(3)
    made = Revocation.of(roster, "south", IDENTITIES["south"])
    write_revocation(tmp_path / "r.json", made)
    pins.admit(older)
    pins.take(read_revocation(tmp_path / "r.json"))
    for roster_ in (older, roster):
        with pytest.raises(ConfigError, match="'south' has revoked the roster of 'clinics'"):
            pins.insist(roster_)
    pins.admit(newer)
    # The same again changes nothing.
    pins.take(made)
    pins.insist(newer)


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
        pins.take(revocation)
    pins.admit(roster)
    for by, identity in (("south", IDENTITIES["west"]), ("east", IDENTITIES["south"])):
        with pytest.raises(ConfigError, match="only a member can revoke it"):
            Revocation.of(roster, by, identity)


def test_damaged_memories_are_told_without_a_path_to_others(pins, tmp_path):
    pins.admit(signed(2))
    path = pins.take(Revocation.of(signed(1), "south", IDENTITIES["south"]))
    path.write_text("{")
    with pytest.raises(ConfigError) as stop:
        pins.insist(signed(2))
    assert str(tmp_path) in str(stop.value)
    assert str(tmp_path) not in stop.value.told
    (tmp_path / "rosters" / "pinned.json").write_text("[")
    with pytest.raises(WeftError, match="does not say which rosters this site has seen"):
        pins.admit(signed(2))
