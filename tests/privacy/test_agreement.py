"""A roster counts when all have signed it; a party keeps to it, and to its own policy."""

import copy
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from weft.all_messages import declared_phases
from weft.crypto.keys import PartyKeys
from weft.crypto.party_key_pairs import Identity
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation
from weft.federation.local_joint_prediction import predict_scores
from weft.guards.privacy_terms import OPEN, Terms
from weft.privacy.agreement import (
    Card,
    Consent,
    Limits,
    SignedRoster,
    SitePolicy,
    read_card,
    read_roster,
    write_card,
    write_roster,
)
from weft.privacy.agreement.cards_and_roster_drafts import draft_roster
from weft.privacy.agreement.signed_roster import charter_words, limits_words
from weft.protocol import Nothing, phase_named
from weft.protocol.declared_message_fields import declared, flat
from weft.protocol.shared_fields import CARD, PUBLIC, Company, Participants
from weft_neural.messages import BuildRequest

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
    assert back.members["east"].most_rows == back.members["east"].row_limit == 20
    # Nobody may try out all ids for want of an agreement.
    assert back.members["west"].row_limit == 1_000_000
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
    if isinstance(value, float):
        return value / 2
    if place == "format":
        return 2
    if place == "expires":
        return "2099-12-31"
    if isinstance(value, bool):
        return not value
    if isinstance(value, int):
        return value + 1
    if value is None:
        if place == "askers":
            return ["north"]
        return 7 if place.startswith(("most_", "least_")) else "ab" * 32
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
        # Fewer than three contributors would be pairs, which is another term.
        value = 5 if field.name == "min_contributors" else getattr(OPEN, field.name)
        if value != getattr(FULL.charter.terms, field.name):
            opened = msgspec.structs.replace(FULL.charter.terms, **{field.name: value})
            changed = msgspec.structs.replace(FULL.charter, terms=opened)
            assert charter_words(changed) != charter_words(FULL.charter), field.name


# ── what a party refuses ──────────────────────────────────────────────────────────────────────


def keys_of(identities=IDENTITIES):
    run = Secret.random()
    return {name: PartyKeys(name, identity, run) for name, identity in identities.items()}


def federation(tiles, roster=None, *, policies=None, consents=None, keys=None, **options):
    """The patchwork under a roster, which all have signed."""
    agreed = signed(roster or drafted())
    if consents is None:
        consents = {
            name: Consent(name, roster=agreed, policy=(policies or {}).get(name)) for name in tiles
        }
    return Federation(tiles, keys=keys or keys_of(), consents=consents, **options)


def refusal(make, settings):
    """The one sentence with which a run stops."""
    with pytest.raises(WeftError) as stop:
        make().train(settings)
    assert "\n" not in str(stop.value)
    return str(stop.value)


def test_a_run_within_the_roster_trains(patchwork, quick):
    limits = Limits(losses=("hinge",), solvers=("hyfdca",), most_problems=1)
    roster = drafted(limits=limits, rows=dict.fromkeys(PARTIES, 20), model=["west"])
    trained = federation(patchwork(), roster).train(quick(iterations=3))
    assert trained.model.info["recipients"] == ["west"]
    assert any("the model goes to west and to nobody else" in n for n in trained.result.notes)


BEYOND = [
    ({"coordinator_sees": "weights"}, OPEN, {}, "coordinator_sees = 'weights'"),
    ({"coordinator_sees": "papers"}, OPEN, {}, "coordinator_sees = 'papers'"),
    ({"cipher": "plain"}, OPEN, {}, "cipher = 'plain'"),
    ({"norms": "sample"}, OPEN, {}, "the norms of single samples"),
    ({"loss": "squared_hinge"}, None, {"losses": ("hinge",)}, "loss = 'squared_hinge'"),
    ({"solver": "hyfdca"}, None, {"solvers": ("lbfgs",)}, "solver 'hyfdca'"),
    (
        {"solver": "cutting-planes", "when_missing": "hyfdca"},
        None,
        {"solvers": ("cutting-planes",)},
        "solver 'hyfdca'",
    ),
    (
        {"solver": "cutting-planes", "path": (0.5, 0.1), "folds": 2},
        None,
        {"most_problems": 8},
        "9 problems (3 λ × 3)",
    ),
    ({"iterations": 50}, None, {"most_iterations": 49}, "iterations = 50"),
]
STRICT = {
    "coordinator_sees": "nothing",
    "ciphers": ("pad", "bfv"),
    "allow_sample_norms": False,
}


def strict(changes):
    """Terms that forbid what the settings ask for, and nothing else."""
    (asked,) = changes
    name = {"cipher": "ciphers", "norms": "allow_sample_norms"}.get(asked, asked)
    return msgspec.structs.replace(OPEN, **{name: STRICT[name]})


@pytest.mark.parametrize(("changes", "terms", "limits", "words"), BEYOND)
def test_a_party_refuses_a_run_beyond_the_roster(patchwork, quick, changes, terms, limits, words):
    agreed = OPEN if terms is None else strict(changes)
    roster = drafted(agreed, limits=Limits(**limits))
    said = refusal(lambda: federation(patchwork(), roster), quick(**changes))
    assert said.startswith("party north refuses ")
    assert words in said
    assert "(the roster of 'four hospitals' says so)" in said


@pytest.mark.parametrize(("changes", "terms", "limits", "words"), BEYOND)
def test_a_party_refuses_a_run_beyond_its_own_policy(
    patchwork, quick, changes, terms, limits, words
):
    own = OPEN if terms is None else strict(changes)
    policy = SitePolicy(own, Limits(**limits), source="south.toml")
    said = refusal(lambda: federation(patchwork(), policies={"south": policy}), quick(**changes))
    assert said.startswith("party south refuses ")
    assert words in said
    assert "(its own policy south.toml says so)" in said


def test_a_policy_that_allows_more_than_the_roster_changes_nothing(patchwork, quick):
    roster = signed(drafted(Terms(), limits=Limits(losses=("hinge",))))
    lax = SitePolicy(OPEN, Limits(losses=("hinge", "squared_hinge")))
    plain, widened = (Consent("north", roster=roster, policy=p) for p in (None, lax))
    assert widened.terms == plain.terms == Terms()
    policies = dict.fromkeys(PARTIES, lax)
    tiles = patchwork()
    allowed = drafted(limits=Limits(losses=("hinge",)))
    settings = quick(loss="squared_hinge")
    said = refusal(lambda: federation(tiles, allowed, policies=policies), settings)
    assert "loss = 'squared_hinge'" in said
    assert "the roster of" in said


def test_the_stricter_of_roster_policy_and_config_holds_for_each_term():
    roster = signed(
        drafted(msgspec.structs.replace(OPEN, min_batch=7, min_contributors=3, allow_pairs=False))
    )
    policy = SitePolicy(msgspec.structs.replace(OPEN, min_batch=5, coordinator_sees="nothing"))
    consent = Consent("north", Terms(min_batch=2), roster=roster, policy=policy)
    assert consent.terms.min_batch == 7
    assert not consent.terms.allow_pairs
    assert consent.terms.coordinator_sees == "nothing"
    assert Consent.open("north").terms == OPEN
    assert Consent("north", Terms()).terms == Terms()


def test_the_stricter_of_two_documents_binds(patchwork, quick):
    # Two are enough for the roster, but not for the policy.
    two = msgspec.structs.replace(OPEN, min_contributors=2)
    three = msgspec.structs.replace(OPEN, min_contributors=3, allow_pairs=False)
    policies = {"east": SitePolicy(three)}
    said = refusal(lambda: federation(patchwork(), drafted(two), policies=policies), quick())
    assert said.startswith("party east refuses sums over")


def test_one_document_may_not_undo_the_other_for_lone_labels(patchwork, quick):
    """One allows a lone party by a flag, the other by its count."""
    flag = msgspec.structs.replace(OPEN, min_contributors=3)
    count = msgspec.structs.replace(OPEN, allow_lone_labels=False)
    held = patchwork(unlabelled=("east",))
    tiles = {name: held[name] for name in ("north", "east")}
    policies = {"north": SitePolicy(count)}
    for loss in ("hinge", "squared"):
        made = lambda: federation(tiles, drafted(flag), policies=policies)  # noqa: E731
        said = refusal(made, quick(loss=loss))
        assert said.startswith("party north refuses to tell the coordinator its losses")
    federation(tiles, drafted(flag)).train(quick(iterations=2))


def test_a_party_believes_that_it_is_alone_unless_a_roster_lists_others(patchwork, quick):
    tiles = {"west": patchwork()["west"]}
    keys = keys_of({"west": IDENTITIES["west"]})
    Federation(tiles, keys=keys, terms=Terms()).train(quick(iterations=2, norms="cohort"))
    consents = {"west": Consent("west", roster=signed(drafted(Terms())))}
    for loss in ("hinge", "squared"):
        made = lambda: Federation(tiles, keys=keys, consents=consents)  # noqa: E731
        said = refusal(made, quick(loss=loss))
        assert said.startswith("party west refuses to tell the coordinator its losses")
        assert said.endswith("(the roster of 'four hospitals' says so)")


def test_a_roster_that_does_not_count_binds_nobody():
    roster = drafted().signed_by("north", IDENTITIES["north"])
    with pytest.raises(ConfigError, match="east, south, west did not sign it"):
        Consent("north", roster=roster)
    with pytest.raises(ConfigError, match="party nord is no member of 'four hospitals'"):
        Consent("nord", roster=signed(drafted()))


def test_a_party_brings_no_more_than_the_roster_lets_it(patchwork, quick):
    tiles = patchwork()
    said = refusal(lambda: federation(tiles, drafted(labels=["north", "east", "west"])), quick())
    assert said.startswith("party south refuses to bring labels: the roster of 'four hospitals'")
    quiet = patchwork(unlabelled=("south",))
    federation(quiet, drafted(labels=["north", "east", "west"])).train(quick(iterations=2))
    said = refusal(lambda: federation(tiles, drafted(rows={"west": 11})), quick())
    assert said.startswith("party west refuses to match 12 rows: the roster of")
    assert "allows it 11" in said
    content = copy.deepcopy(drafted().content)
    content["members"][1]["roles"] = ["model"]
    said = refusal(lambda: federation(tiles, SignedRoster(content, {})), quick())
    assert said.startswith("party east refuses to bring data")
    said = refusal(lambda: federation(tiles, keys=keys_of({n: Identity.new() for n in PARTIES})),
                   quick())  # fmt: skip
    assert "party north takes part with other keys" in said
    assert "--keys" in said


@pytest.mark.parametrize("cipher", ["pad", "bfv"])
def test_a_stranger_in_a_run_is_noticed_by_its_keys(patchwork, quick, cipher):
    """The coordinator brings a party of its own, under a name of its choice."""
    tiles = patchwork()
    three = {name: IDENTITIES[name] for name in ("north", "east", "south")}
    agreed = signed(drafted(identities=three), three)
    consents = {name: Consent(name, roster=agreed) for name in three}
    consents["west"] = Consent.open("west")
    said = refusal(lambda: federation(tiles, consents=consents), quick(cipher=cipher, iterations=2))
    assert "a party whose public keys the roster does not list" in said
    assert not said.startswith("party west")


def test_keys_that_the_coordinator_exchanges_are_noticed():
    consent = Consent("north", roster=signed(drafted()))
    publics = {name: identity.public.to_bytes() for name, identity in IDENTITIES.items()}
    own = Identity.new().public.to_bytes()
    nonce = bytes(CARD - PUBLIC)
    west = publics["west"]
    altered = west[:-1] + bytes([west[-1] ^ 1])
    consent.check_company(naming(publics["east"] + nonce + west + nonce))
    consent.check_company(naming(b""))
    consent.check_company(Nothing())
    for keys in (
        publics["east"] + nonce + own + nonce,
        own + nonce,
        publics["east"] + nonce + altered + nonce,
    ):
        with pytest.raises(WeftError, match="the roster does not list"):
            consent.check_company(naming(keys))
    for keys in (publics["east"][:40], publics["east"] + publics["west"]):
        with pytest.raises(WeftError, match=f"does not hold {CARD} bytes for every party"):
            consent.check_company(naming(keys))
    with pytest.raises(WeftError, match="the same party twice"):
        consent.check_company(naming((publics["east"] + nonce) * 2))
    Consent.open("north").check_company(naming(own + nonce))


def naming(keys):
    """A request that names parties by their keys."""
    told = Participants(keys=keys, labelled=np.ones(len(keys) // CARD, bool))
    return BuildRequest(give=np.array([], str), participants=told)


def test_all_keys_of_others_in_requests_are_looked_at():
    """Wherever a request of any phase names other parties by their keys."""
    parts = {}
    for phase in declared_phases().values():
        if phase.request.__module__.startswith(("weft.", "weft_neural.")):
            parts |= {(phase.name, n): f for n, f in flat(phase.request) if f.name == "keys"}
    named = {"company.keys", "participants.keys", "seeds.participants.keys"}
    assert {name for _, name in parts} == named
    for phase, name in parts:
        owner = phase_named(phase).request
        for part in name.split(".")[:-1]:
            owner = {f.name: f.kind for f in declared(owner)}[part]
        assert issubclass(owner, Company), (phase, name)


def test_joint_prediction_refuses_what_sums_over_samples_would_show(patchwork, quick):
    tiles = patchwork()
    model = Federation(tiles).train(quick(iterations=2)).model
    consents = {name: Consent(name, Terms()) for name in tiles}
    with pytest.raises(WeftError, match=r"refuses sums over \d+ samples that it shares with one"):
        predict_scores(model, tiles, consents=consents)
    allowed = {name: Consent(name, Terms(allow_pairs=True)) for name in tiles}
    with pytest.raises(WeftError, match="another holder lacks a single column"):
        predict_scores(model, tiles, consents=allowed)


def test_joint_prediction_keeps_to_the_roster_too(patchwork, quick):
    tiles = patchwork()
    model = Federation(tiles).train(quick(iterations=2)).model

    def scores(roster, cipher="pad", keys=None, policy=None):
        consents = {n: Consent(n, roster=signed(roster), policy=policy) for n in tiles}
        return predict_scores(
            model, tiles, cipher=cipher, keys=keys or keys_of(), consents=consents
        )

    ids, found = scores(drafted())
    plain_ids, plain = predict_scores(model, tiles)
    assert ids.tolist() == plain_ids.tolist()
    assert (found == plain).all()
    with pytest.raises(WeftError, match="party north refuses to use the model"):
        scores(drafted(model=["east"]))
    with pytest.raises(WeftError, match="party west refuses to match 12 rows"):
        scores(drafted(rows={"west": 5}))
    with pytest.raises(WeftError, match="party north refuses cipher = 'plain'"):
        scores(drafted(Terms(min_contributors=1, allow_pairs=True)), cipher="plain")
    with pytest.raises(WeftError, match=r"refuses cipher = 'plain'.*its own policy"):
        scores(drafted(), cipher="plain", policy=SitePolicy(Terms()))
    with pytest.raises(WeftError, match="takes part with other keys"):
        scores(drafted(), keys=keys_of({n: Identity.new() for n in PARTIES}))


def test_every_party_needs_its_consent(patchwork):
    with pytest.raises(ConfigError, match="what party north consents to"):
        Federation(patchwork(), consents={"east": Consent.open("east")})


def test_every_limit_is_shown_to_those_who_sign():
    limits = Limits(
        losses=("hinge",),
        solvers=("hyfdca",),
        most_problems=3,
        most_iterations=300,
        most_epsilon=1.0,
        most_delta=1e-6,
        most_rho=0.5,
        askers=("north",),
        least_asked=10,
        most_asked=100,
        most_scores=1000,
    )
    assert len(list(limits_words(limits))) == len(msgspec.structs.fields(limits))
    assert all(getattr(limits, field.name) is not None for field in msgspec.structs.fields(limits))


@pytest.mark.parametrize("pairs", [False, True])
def test_columns_are_scaled_only_if_all_documents_together_allow_it(pairs):
    """A run allows three parties by its flag, the policy by its count: both together do not."""
    asked = msgspec.structs.replace(OPEN, allow_pairs=True, min_contributors=5)
    own = msgspec.structs.replace(OPEN, allow_pairs=pairs, min_contributors=3)
    view = SimpleNamespace(column_cohort=np.array([0]), column_sharers=np.array([3]), bias_slot=-1)
    consent = Consent("north", asked, policy=SitePolicy(own, Limits()))
    if pairs:
        consent.check_scaling(view)
        return
    with pytest.raises(ConfigError, match="to scale 1 features that it shares with too few"):
        consent.check_scaling(view)
