"""A roster counts when all have signed it; a party keeps to it, and to its own policy."""

import copy
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.consortium import (
    Card,
    Limits,
    SignedRoster,
    read_card,
    read_roster,
    write_card,
    write_roster,
)
from weft.consortium.drafting import draft_roster
from weft.consortium.words import charter_words
from weft.crypto.secrets import Identity
from weft.errors import ConfigError, WeftError
from weft.guards.terms import OPEN, Terms

PARTIES = ("north", "east", "south", "west")
IDENTITIES = {name: Identity.new() for name in PARTIES}


def cards(identities=IDENTITIES):
    return [Card.of_public(name, identity.public) for name, identity in identities.items()]


def drafted(terms=OPEN, identities=IDENTITIES, **changes):
    return draft_roster("four hospitals", cards(identities), terms, **changes)


def signed(roster, identities=IDENTITIES):
    for name, identity in identities.items():
        roster = roster.signed_by(name, identity)
    return roster


def everyone(state, parties=PARTIES):
    return dict.fromkeys(parties, state)


# ── signatures ────────────────────────────────────────────────────────────────────────────────


def test_a_roster_counts_when_every_member_has_signed(tmp_path):
    roster = drafted(Terms(min_batch=12), limits=Limits(losses=("hinge",)), rows={"east": 20})
    assert roster.states() == everyone("missing")
    for number, (name, identity) in enumerate(IDENTITIES.items()):
        with pytest.raises(ConfigError, match=r"does not count: .* did not sign it"):
            roster.insist()
        roster = roster.signed_by(name, identity)
        assert list(roster.states().values()).count("signed") == number + 1
    roster.insist()
    write_roster(tmp_path / "roster.json", roster)
    back = read_roster(tmp_path / "roster.json")
    assert back == roster
    back.insist()
    assert back.charter.terms == Terms(min_batch=12)
    assert back.members["east"].most_rows == 20
    assert back.members["east"].identity == IDENTITIES["east"].public


def test_the_layout_of_a_file_does_not_matter_but_its_values_do(tmp_path):
    path = tmp_path / "roster.json"
    write_roster(path, signed(drafted()))
    values = msgspec.json.decode(path.read_bytes())
    values["roster"] = dict(reversed(values["roster"].items()))
    path.write_bytes(msgspec.json.encode(values))
    read_roster(path).insist()


def places(value, path=()):
    """The path of every value inside plain values."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list | tuple):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))
        yield (*path, "more")
    else:
        yield path


FULL = signed(
    drafted(
        Terms(),
        limits=Limits(losses=("hinge", "logistic"), solvers=("lbfgs",), most_problems=9),
        labels=["north", "east"],
        model=["north", "west"],
        rows={"north": 100},
    )
)
PLAIN = FULL.content


def other(value, place):
    """Another value of the same kind."""
    if place == "format":
        return 2
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        return 7 if place in ("most_rows", "most_problems") else "ab" * 32
    if isinstance(value, str) and len(value) == 64:
        return Identity.new().public.signing.hex()
    return {
        "nothing": "weights",
        "hmac": "oprf",
        "hinge": "squared",
        "logistic": "squared",
        "lbfgs": "hyfdca",
        "pad": "plain",
        "bfv": "plain",
        "paillier": "plain",
        "data": "model",
        "labels": "matching",
        "model": "matching",
    }.get(value, f"{value} ")


def test_every_value_is_looked_at():
    # What the next test changes: every term, every limit and every field of every member.
    found = set(places(PLAIN))
    for name in ("min_batch", "allow_pairs", "coordinator_sees", "matching"):
        assert ("terms", name) in found
    assert len([path for path in found if path[0] == "members"]) >= 4 * 6


@pytest.mark.parametrize("path", list(places(PLAIN)), ids=lambda path: ".".join(map(str, path)))
def test_no_value_can_be_changed_after_signing(path):
    content = copy.deepcopy(PLAIN)
    *to, last = path
    inside = content
    for key in to:
        inside = inside[key]
    if last == "more":
        if len(inside) > 1:
            inside.pop()
        else:
            inside.append(inside[0])
    else:
        inside[last] = other(inside[last], last)
    assert content != PLAIN
    left = {member["name"] for member in content["members"]}
    kept = {name: value for name, value in FULL.signatures.items() if name in left}
    try:
        changed = SignedRoster(content, kept)
    except (WeftError, msgspec.MsgspecError):
        # These make no roster at all, signed or not.
        assert {"format", "roles", "matching", "matching_key"} & set(path)
        return
    assert "signed" not in changed.states().values()
    with pytest.raises(ConfigError, match="does not belong to this content and key"):
        changed.insist()


@given(st.integers(0, 63), st.integers(1, 255), st.sampled_from(PARTIES))
def test_no_bit_of_a_signature_can_be_changed(place, bits, name):
    signature = bytearray(FULL.signatures[name])
    signature[place] ^= bits
    changed = replace(FULL, signatures={**FULL.signatures, name: bytes(signature)})
    assert changed.states() == {**everyone("signed"), name: "wrong"}


def test_members_in_another_order_are_another_roster():
    content = copy.deepcopy(PLAIN)
    content["members"].reverse()
    assert set(SignedRoster(content, FULL.signatures).states().values()) == {"wrong"}


def test_a_value_that_the_file_leaves_out_is_not_filled_in_under_a_signature():
    content = copy.deepcopy(PLAIN)
    del content["terms"]["min_batch"]
    changed = SignedRoster(content, FULL.signatures)
    assert changed.charter == FULL.charter
    assert set(changed.states().values()) == {"wrong"}


def test_a_signature_of_another_roster_or_another_member_is_wrong():
    roster = drafted()
    elsewhere = signed(draft_roster("another federation", cards(), OPEN))
    assert replace(roster, signatures=elsewhere.signatures).states() == everyone("wrong")
    whole = signed(roster)
    swapped = {**whole.signatures, "north": whole.signatures["east"]}
    assert replace(whole, signatures=swapped).states() == {**everyone("signed"), "north": "wrong"}
    # The same bytes signed for another purpose.
    bare = roster.signed_bytes.partition(b"\n")[2]
    forged = {**whole.signatures, "north": IDENTITIES["north"].sign(bare)}
    assert replace(whole, signatures=forged).states()["north"] == "wrong"


def test_nobody_signs_with_other_keys_or_for_a_stranger():
    with pytest.raises(ConfigError, match="lists other keys of 'north' than its own"):
        drafted().signed_by("north", Identity.new())
    with pytest.raises(ConfigError, match="'nord' is no member of 'four hospitals'"):
        drafted().signed_by("nord", IDENTITIES["north"])
    with pytest.raises(ConfigError, match="a signature of 'nord', who is no member"):
        replace(FULL, signatures={"nord": FULL.signatures["north"]})
    with pytest.raises(ConfigError, match="not 64 bytes"):
        replace(FULL, signatures={"north": b""})


def test_a_key_of_small_order_signs_nothing():
    # Under such a key a signature of zeros would hold for anything, if it were accepted.
    content = copy.deepcopy(PLAIN)
    content["members"][0]["signing"] = bytes([1, *bytes(31)]).hex()
    weak = bytes([1, *bytes(63)])
    assert SignedRoster(content, {"north": weak}).states()["north"] == "wrong"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda c: c.pop("federation"), "missing required field `federation`"),
        (lambda c: c.update(format=2), "format"),
        (lambda c: c.update(formt=1), "unknown field `formt`"),
        (lambda c: c["terms"].update(min_bach=3), "unknown field `min_bach`"),
        (lambda c: c["terms"].update(min_batch=0), "min_batch is 0"),
        (lambda c: c["terms"].update(min_batch=2.0), "Expected `int`"),
        (lambda c: c["limits"].update(losses=["hing"]), "losses names 'hing'"),
        (lambda c: c["limits"].update(solvers=[]), "solvers is empty"),
        (lambda c: c["limits"].update(most_problems=0), "most_problems is 0"),
        (lambda c: c.update(members=[]), "no parties"),
        (lambda c: c["members"][1].update(name="north"), "two parties are called 'north'"),
        (lambda c: c["members"][1].update(name="a\nb"), "cannot be a party's name"),
        (lambda c: c.update(federation=" "), "cannot be a federation's name"),
        (
            lambda c: c["members"][1].update(signing=c["members"][0]["signing"]),
            "'north' and 'east' have the same public key",
        ),
        (
            lambda c: c["members"][1].update(sealing=c["members"][0]["signing"]),
            "'north' and 'east' have the same public key",
        ),
        (lambda c: c["members"][0].update(signing="ab"), "two public keys of 32 bytes"),
        (lambda c: c["members"][0].update(signing="AB" * 32), "hex digits in lower case"),
        (lambda c: c["members"][0].update(signing="ab " * 32), "hex digits in lower case"),
        (lambda c: c["members"][0].update(signing=5), "hex digits in lower case"),
        (lambda c: c["members"][0].update(roles=[]), "needs roles"),
        (lambda c: c["members"][0].update(roles=["data", "data"]), "each once"),
        (lambda c: c["members"][0].update(roles=["chief"]), "chief"),
        (lambda c: c["members"][0].update(roles=["labels"]), "labels without data"),
        (lambda c: c["members"][0].update(most_rows=0), "most_rows 0"),
        (lambda c: c["members"][0].update(matching_key="ab" * 32), "or neither"),
        (lambda c: c["members"][0].update(roles=["data", "matching"]), "or neither"),
        (
            lambda c: c["members"][0].update(roles=["matching"], matching_key="ab"),
            "a matching_key of 32 bytes",
        ),
        (lambda c: c["terms"].update(matching="oprf"), "members that hold a matching key"),
        (lambda c: [m.update(roles=["data", "model"]) for m in c["members"]], "bring labels"),
        (lambda c: [m.update(roles=["data", "labels"]) for m in c["members"]], "get the model"),
    ],
)
def test_what_is_no_roster_is_told_in_one_sentence(tmp_path, change, words):
    content = copy.deepcopy(PLAIN)
    change(content)
    path = tmp_path / "roster.json"
    path.write_bytes(msgspec.json.encode({"roster": content, "signatures": {}}))
    with pytest.raises(ConfigError) as stop:
        read_roster(path)
    said = str(stop.value)
    assert words in said
    assert f"{path} is damaged or no roster" in said
    assert "\n" not in said


@pytest.mark.parametrize(
    "content", [b"", b"[]", b"{", b"\xff", b'{"roster": {}}', b"[" * 100_000, b'"\\ud800"']
)
def test_what_is_no_file_of_a_roster_is_told_in_one_sentence(tmp_path, content):
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(ConfigError, match="is damaged or no roster"):
        read_roster(path)
    with pytest.raises(ConfigError, match="is damaged or no membership card"):
        read_card(path)


def test_files_that_are_not_there_or_in_the_way(tmp_path):
    with pytest.raises(ConfigError, match="there is no roster"):
        read_roster(tmp_path / "none.json")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_roster(tmp_path)
    path = tmp_path / "card.json"
    write_card(path, cards()[0])
    assert read_card(path) == cards()[0]
    with pytest.raises(ConfigError, match="exists already"):
        write_card(path, cards()[1])
    with pytest.raises(ConfigError, match="exists already"):
        write_roster(path, FULL, new=True)
    assert read_card(path) == cards()[0]


def test_a_roster_in_words_says_all_that_it_holds():
    said = "\n".join(charter_words(FULL.charter))
    for word in ("four hospitals", *PARTIES, "at most 100 rows", "hinge, logistic", "lbfgs", "9"):
        assert word in said
    for identity in IDENTITIES.values():
        assert identity.public.fingerprint in said
    # Each term that is changed changes the words, also one that is added to the terms later.
    for field in msgspec.structs.fields(Terms):
        if getattr(OPEN, field.name) != getattr(FULL.charter.terms, field.name):
            opened = msgspec.structs.replace(
                FULL.charter.terms, **{field.name: getattr(OPEN, field.name)}
            )
            changed = msgspec.structs.replace(FULL.charter, terms=opened)
            assert charter_words(changed) != charter_words(FULL.charter), field.name
