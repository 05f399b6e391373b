"""``weft federation``: cards, a roster, signatures; and runs that keep to them."""

import errno
import json
import os
import re
import shutil
from types import SimpleNamespace

import msgspec
import pytest

from covering import cover
from weft.crypto.keys import load_all, new_keys, read_public
from weft.errors import ConfigError
from weft.guards.privacy_terms import is_pilot
from weft.network.saved_join_settings import JoinSettings, keep_revocations, roster_pins
from weft.privacy.agreement import read_card, read_roster
from weft.privacy.agreement.cards_and_roster_drafts import read_revocation
from weft.protocol.recording_file import Recording
from weft.storage import atomic_files as storage

pytestmark = pytest.mark.usefixtures("no_pictures")

PARTIES = ["north", "south"]


def sentence(outcome):
    """What a refusal says: one line on stderr, and no traceback."""
    assert outcome.code == 2, outcome.out + outcome.err
    assert outcome.err.startswith("weft: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    return outcome.err


@pytest.fixture
def keys(tmp_path):
    new_keys(tmp_path / "keys", PARTIES)
    return tmp_path / "keys"


@pytest.fixture
def roster(weft, keys, tmp_path):
    """A roster that nobody has signed."""
    outcome = weft("federation", "draft", "roster.json", "--keys", keys, "--name", "two hospitals")
    assert outcome.code == 0, outcome.err
    return tmp_path / "roster.json"


def files_below(folder):
    """All files but the ledgers, which count what was shown before a party refused."""
    return sorted(p for p in folder.rglob("*") if p.is_file() and "ledger" not in p.parts)


def set_privacy(hospitals, text):
    """Give the config a [privacy] section, in the place of any that it has."""
    hospitals.config = re.sub(r"\[privacy\]\n(.+\n)*\n?", "", hospitals.config)
    hospitals.change("[model]", f"[privacy]\n{text}\n\n[model]")


def sign(weft, roster, keys, parties=PARTIES):
    for name in parties:
        outcome = weft("federation", "sign", roster, "--keys", keys, "--party", name, "--yes")
        assert outcome.code == 0, outcome.err
    return outcome


# ── drafting ──────────────────────────────────────────────────────────────────────────────────


def test_sites_that_share_no_machine_agree_on_a_roster_and_a_run_secret(weft, tmp_path):
    sites = {name: tmp_path / name for name in ("north", "south", "west")}
    for name, site in sites.items():
        site.mkdir()
        assert weft("keys", "new", site / "keys", "--party", name).code == 0
        joined = weft(
            "federation", "join", f"{name}.json", "--keys", site / "keys", "--party", name
        )
        assert joined.code == 0, joined.err
        public = read_public(site / "keys").members[name]
        assert public.fingerprint in joined.out
        assert read_card(tmp_path / f"{name}.json").identity == public
    made = weft("federation", "draft", "roster.json", "north.json", "south.json", "west.json")
    assert "3 members, signed by nobody yet" in made.out
    for name, site in sites.items():
        sign(weft, "roster.json", site / "keys", [name])
    assert weft("federation", "verify", "roster.json").code == 0
    # The first member makes the run secret for all; boxes and public.json travel to their sites.
    north = sites["north"] / "keys"
    made = weft("keys", "new", north, "--renew-run", "--roster", "roster.json")
    assert made.code == 0, made.err
    for name in ("south", "west"):
        home = sites[name] / "keys"
        shutil.copy(north / "public.json", home)
        box = f"run-{read_public(north).run}.box"
        shutil.copy(north / name / box, home / name / box)
    for name, site in sites.items():
        assert load_all(site / "keys", [name])[name].run == load_all(north, ["north"])["north"].run
        assert weft("federation", "verify", "roster.json", "--keys", site / "keys").code == 0


def test_a_draft_has_every_term_and_role(weft, keys, hospitals, tmp_path):
    hospitals.change('file = "south.csv"', 'file = "south.csv"\nlabel = false')
    set_privacy(hospitals, "allow_pairs = true\nmin_batch = 3")
    outcome = weft(
        *("federation", "draft", "r.json", "--keys", keys, "--config", hospitals.write()),
        *("--model", "south", "--rows", "north=40", "--min-batch", "5", "--loss", "hinge"),
        *("--solver", "cutting-planes", "--allow-lone-labels"),
    )
    assert outcome.code == 0, outcome.err
    charter = read_roster(tmp_path / "r.json").charter
    assert charter.federation == "two hospitals"
    assert [(m.name, m.roles, m.most_rows) for m in charter.members] == [
        ("north", ("data", "labels"), 40),
        ("south", ("data", "model"), None),
    ]
    assert charter.terms.allow_pairs
    assert charter.terms.allow_lone_labels
    assert charter.terms.min_batch == 5
    assert charter.limits.losses == ("hinge",)
    assert charter.limits.solvers == ("cutting-planes",)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["draft", "r.json"], ["cards", "--keys"]),
        (["draft", "r.json", "card.json", "--keys", "keys"], ["but not both"]),
        (["draft", "r.json", "none.json"], ["there is no membership card none.json"]),
        (["draft", "r.json", "--keys", "nowhere"], ["nowhere/public.json does not exist"]),
        (["draft", "r.json", "--keys", "keys", "--labels", "nord"], ["--labels names 'nord'"]),
        (["draft", "r.json", "--keys", "keys", "--rows", "north"], ["is not NAME=N"]),
        (["draft", "r.json", "--keys", "keys", "--rows", "north=0"], ["most_rows 0"]),
        (["draft", "r.json", "--keys", "keys", "--rows", "nord=5"], ["--rows names 'nord'"]),
        (["draft", "r.json", "--keys", "keys", "--min-batch", "0"], ["min_batch is 0"]),
        (["draft", "r.json", "--keys", "keys", "--coordinator-sees", "all"], ["choose one of"]),
        (["draft", "r.json", "--keys", "keys", "--loss", "hing"], ["losses names 'hing'"]),
        (["draft", "r.json", "--keys", "keys", "--config", "c.toml"], ["no config file"]),
        (["draft", "a/r.json", "--keys", "keys"], ["the folder a does not exist"]),
        (["join", "c.json", "--keys", "keys", "--party", "nord"], ["party nord: its private"]),
        (["join", "c.json", "--keys", "keys"], ["--party", "weft federation join --help"]),
        (["sign", "r.json", "--keys", "keys", "--party", "north"], ["there is no roster r.json"]),
        (["verify", "r.json"], ["there is no roster r.json"]),
        (["show", "keys"], ["keys cannot be read"]),
    ],
)
def test_wrong_arguments_are_one_sentence(weft, keys, tmp_path, arguments, words):
    said = sentence(weft("federation", *arguments))
    for word in words:
        assert word in said
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]


def test_nothing_is_overwritten_by_a_draft_or_a_card(weft, keys, roster):
    before = roster.read_bytes()
    assert "exists already" in sentence(weft("federation", "draft", roster, "--keys", keys))
    said = sentence(weft("federation", "join", roster, "--keys", keys, "--party", "north"))
    assert "exists already" in said
    assert roster.read_bytes() == before


# ── signing and verifying ─────────────────────────────────────────────────────────────────────


def test_a_roster_is_signed_and_verified(weft, keys, roster):
    said = sentence(weft("federation", "verify", roster))
    assert "north, south did not sign it" in said
    first = sign(weft, roster, keys, ["north"])
    assert "Federation 'two hospitals', serial 1, counts until" in first.out
    assert "the coordinator sees nothing of the model" in first.out
    assert "still to sign: south" in first.out
    last = sign(weft, roster, keys, ["south"])
    assert "All members have signed" in last.out
    verified = weft("federation", "verify", roster, "--keys", keys)
    assert (verified.code, verified.err) == (0, "")
    for name, public in read_public(keys).members.items():
        assert f"{name}  " in verified.out
        assert public.fingerprint in verified.out
    values = json.loads(weft("federation", "verify", roster, "--json").out)
    assert values["counts"] is True
    assert values["signatures"] == dict.fromkeys(PARTIES, "signed")
    shown = weft("federation", "show", roster)
    assert shown.code == 0
    assert "- south: signed" in shown.out
    assert json.loads(weft("federation", "show", roster, "--json").out)["roster"]["format"] == 1


def test_signing_twice_changes_nothing(weft, keys, roster):
    sign(weft, roster, keys)
    before = roster.read_bytes()
    sign(weft, roster, keys)
    assert roster.read_bytes() == before


def test_editing_after_signing_makes_signatures_wrong(weft, keys, roster):
    sign(weft, roster, keys, ["north"])
    text = roster.read_text()
    assert '"allow_pairs": false' in text
    roster.write_text(text.replace('"allow_pairs": false', '"allow_pairs": true'))
    outcome = weft("federation", "verify", roster, "--json")
    assert json.loads(outcome.out)["signatures"] == {"north": "wrong", "south": "missing"}
    said = sentence(outcome)
    assert "south did not sign it, and the signature of north does not belong to" in said
    late = sign(weft, roster, keys, ["south"])
    assert "changed since they signed, to sign again: north" in late.out
    assert weft("federation", "verify", roster).code == 2
    sign(weft, roster, keys, ["north"])
    assert weft("federation", "verify", roster).code == 0


def test_a_member_signs_only_for_its_own_keys(weft, keys, roster, tmp_path):
    new_keys(tmp_path / "others", PARTIES)
    before = roster.read_bytes()
    said = sentence(
        weft("federation", "sign", roster, "--keys", "others", "--party", "north", "--yes")
    )
    assert "lists other keys of 'north' than its own" in said
    said = sentence(weft("federation", "sign", roster, "--keys", keys, "--party", "nord", "--yes"))
    assert "nord" in said
    # Nobody at the terminal has agreed.
    outcome = weft("federation", "sign", roster, "--keys", keys, "--party", "north")
    assert "sign with --yes" in sentence(outcome)
    assert "Every run keeps to this" in outcome.out
    (keys / "north" / "identity.key").chmod(0o644)
    said = sentence(weft("federation", "sign", roster, "--keys", keys, "--party", "north", "--yes"))
    assert "open to others" in said
    assert roster.read_bytes() == before


def test_the_keys_of_a_folder_are_compared(weft, keys, roster, tmp_path):
    sign(weft, roster, keys)
    new_keys(tmp_path / "others", PARTIES)
    said = sentence(weft("federation", "verify", roster, "--keys", "others"))
    assert "other public keys of 'north'" in said
    new_keys(tmp_path / "strange", ["nord"])
    said = sentence(weft("federation", "verify", roster, "--keys", "strange"))
    assert "'nord', who is no member" in said


def test_no_run_secret_for_a_roster_that_does_not_count(weft, keys, roster):
    before = (keys / "public.json").read_bytes()
    sign(weft, roster, keys, ["north"])
    new = ("keys", "new", keys, "--roster", roster)
    assert "south did not sign it" in sentence(weft(*new, "--renew-run"))
    sign(weft, roster, keys, ["south"])
    assert "--renew-run alone" in sentence(weft(*new))
    assert "--renew-run alone" in sentence(weft(*new, "--renew-run", "--party", "north"))
    assert (keys / "public.json").read_bytes() == before
    assert weft(*new, "--renew-run").code == 0


@pytest.mark.parametrize("command", ["draft", "join", "sign"])
def test_a_full_disk_leaves_the_old_file_or_none(
    weft, keys, roster, tmp_path, monkeypatch, command
):
    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    who = ("--keys", keys, "--party", "north")
    arguments = {
        "draft": ("draft", "new.json", "--keys", keys),
        "join": ("join", "card.json", *who),
        "sign": ("sign", roster, *who, "--yes"),
    }[command]
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "replace", full)
        assert "cannot be written (No space left" in sentence(weft("federation", *arguments))
    assert {path: path.read_bytes() for path in tmp_path.glob("*.json")} == before
    assert not list(tmp_path.glob(".*"))


# ── runs ──────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture
def agreed(weft, hospitals, keys, tmp_path):
    """The hospitals with keys and a signed roster, soon content with a model."""
    hospitals.change("gap = 1e-2", "gap = 5e-1")
    hospitals.change(
        '[[party]]\nname = "north"',
        '[keys]\nfolder = "../keys"\n\n[federation]\nroster = "roster.json"\n\n'
        '[[party]]\nname = "north"',
    )

    def make(*options):
        roster = hospitals.folder / "roster.json"
        outcome = weft(
            *("federation", "draft", roster, "--keys", keys, "--name", "two hospitals"),
            *("--allow-pairs", "--allow-exposure", "--min-batch", "2", *options),
        )
        assert outcome.code == 0, outcome.err
        sign(weft, roster, keys)
        return hospitals.write()

    return make


def test_a_run_keeps_to_a_signed_roster(weft, agreed, tmp_path):
    config = agreed("--model", "south", "--rows", "north=40", "--allow-second-moments")
    terms = json.loads((config.parent / "roster.json").read_text())["roster"]["terms"]
    assert terms["allow_second_moments"]
    assert not terms["allow_rare_pairs"]
    checked = weft("check", config)
    assert checked.code == 0, checked.err
    outcome = weft("train", config, "--out", "results")
    assert outcome.code == 0, outcome.err
    assert "by the roster the model goes to south and to nobody else" in outcome.out
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert summary["federation"]["recipients"] == ["south"]
    said = sentence(weft("predict", "results/model.npz", "--joint", config))
    assert "party north refuses to use the model: the roster of 'two hospitals'" in said


def test_joint_prediction_by_those_who_have_the_model(weft, agreed):
    config = agreed()
    assert weft("train", config, "--out", "results").code == 0
    predicted = weft("predict", "results/model.npz", "--joint", config)
    assert predicted.code == 0, predicted.err
    assert predicted.out.count("\n") == 41


def test_ids_are_matched_through_the_key_holders_of_the_roster(weft, agreed, tmp_path):
    # South alone, which is not the first party, holds a key.
    outcome = weft("train", agreed("--matching", "south"), "--record", "--out", "results")
    assert outcome.code == 0, outcome.err
    asked = [
        entry.party
        for entry in Recording(tmp_path / "results" / "messages.weft").entries()
        if entry.phase == "match.evaluate" and entry.direction == "down"
    ]
    assert asked == ["south"]


#: Options of a roster, what a config says instead, and what a party says of it.
BEYOND = [
    ((), "iterations = 500", 'iterations = 500\ncoordinator_sees = "weights"', "'weights'"),
    ((), "iterations = 500", 'iterations = 500\ncipher = "plain"', "cipher = 'plain'"),
    (("--loss", "logistic"), "gap", "gap", "loss = 'hinge'"),
    (("--solver", "hyfdca"), "gap", "gap", "solver 'cutting-planes'"),
    (("--rows", "north=39"), "gap", "gap", "to match 40 rows"),
    (("--labels", "south"), "gap", "gap", "to bring labels"),
]


# Parties consent by the same code in either command: with every change, each stops one of them.
@cover(
    ("command", "options", "old", "new", "words"),
    [(command, *beyond) for command in ("train", "check") for beyond in BEYOND],
)
def test_a_party_stops_a_run_beyond_the_roster(
    weft, agreed, hospitals, tmp_path, command, options, old, new, words
):
    hospitals.change(old, new)
    config = agreed(*options)
    before = files_below(tmp_path)
    said = sentence(weft(command, config))
    assert "party north refuses " in said
    assert words in said
    assert "the roster of 'two hospitals'" in said
    assert files_below(tmp_path) == before


def test_a_policy_is_stricter_than_the_roster_or_changes_nothing(weft, agreed, hospitals):
    hospitals.change('file = "south.csv"', 'file = "south.csv"\npolicy = "south.toml"')
    policy = hospitals.folder / "south.toml"
    config = agreed("--solver", "cutting-planes")
    policy.write_text('losses = ["logistic"]\n')
    said = sentence(weft("train", config))
    assert "party south refuses loss = 'hinge'" in said
    assert "(its own policy south.toml says so)" in said
    policy.write_text("allow_pairs = false\nmin_contributors = 3\n")
    said = sentence(weft("train", config))
    assert "party south refuses sums over 40 samples that it shares with one other party" in said
    assert "south.toml" in said
    # What the policy leaves open stays as the roster has it.
    policy.write_text('solvers = ["cutting-planes", "hyfdca"]\nmost_problems = 5\n')
    outcome = weft("train", config, "--out", "results")
    assert outcome.code == 0, outcome.err
    hospitals.change("[solver]", '[solver]\nname = "hyfdca"')
    hospitals.write()
    said = sentence(weft("train", config))
    assert "refuses solver 'hyfdca'" in said
    assert "the roster of 'two hospitals'" in said


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "min_bach = 3",
            "south.toml: the policy has no key 'min_bach' (did you mean 'min_batch'?)",
        ),
        ("min_batch = 0", "south.toml: min_batch is 0"),
        ('min_batch = "3"', "min_batch: expected a whole number"),
        ('coordinator_sees = "all"', "coordinator_sees = 'all' is unknown"),
        ('losses = ["hing"]', "losses names 'hing'"),
        ("allow_exposure = 1", "allow_exposure: expected true or false"),
        ("min_batch = ", "is not valid TOML"),
        (None, "there is no policy"),
    ],
)
def test_a_policy_that_cannot_be_read_is_one_sentence(weft, agreed, hospitals, text, words):
    hospitals.change('file = "south.csv"', 'file = "south.csv"\npolicy = "south.toml"')
    config = agreed()
    if text is not None:
        (hospitals.folder / "south.toml").write_text(text)
    assert words in sentence(weft("train", config))


def test_privacy_in_a_config_cannot_widen_a_roster(weft, agreed, hospitals):
    set_privacy(hospitals, "allow_pairs = true\nmin_batch = 1")
    config = agreed("--min-contributors", "2")
    roster = hospitals.folder / "roster.json"
    assert weft("train", config, "--out", "results").code == 0
    # Signed again without pairs.
    roster.unlink()
    keys = hospitals.folder.parent / "keys"
    assert weft("federation", "draft", roster, "--keys", keys, "--name", "two hospitals").code == 0
    sign(weft, roster, keys)
    assert "the roster of 'two hospitals' says so" in sentence(weft("train", config))


#: What becomes of a roster or of keys, and what is said then.
SPOILT = [
    (lambda f: (f / "roster.json").unlink(), "there is no roster"),
    (lambda f: (f / "roster.json").write_text("{"), "is damaged or no roster"),
    (
        lambda f: (f / "roster.json").write_text(
            (f / "roster.json").read_text().replace('"min_batch": 2', '"min_batch": 1')
        ),
        "the signature of north, south does not belong to this content and key",
    ),
    (
        lambda f: (shutil.rmtree(f.parent / "keys"), new_keys(f.parent / "keys", PARTIES)),
        "party north takes part with other keys",
    ),
]


@cover(
    ("command", "spoil", "words"),
    [(command, *spoilt) for command in ("train", "check") for spoilt in SPOILT],
)
def test_a_roster_that_does_not_count_stops_a_run(
    weft, agreed, hospitals, tmp_path, command, spoil, words
):
    config = agreed()
    spoil(hospitals.folder)
    before = files_below(tmp_path)
    assert words in sentence(weft(command, config))
    assert files_below(tmp_path) == before


def test_a_run_without_the_keys_of_the_roster_is_refused(weft, agreed, hospitals):
    hospitals.change('[keys]\nfolder = "../keys"\n\n', "")
    said = sentence(weft("train", agreed()))
    assert "name the folder of its keys with --keys" in said


@pytest.mark.parametrize(
    ("section", "words"),
    [
        ("[federation]", "[federation] needs roster"),
        ("[federation]\nroster = 3", "[federation] roster: expected text"),
        ('[federation]\nrooster = "r"', "did you mean 'roster'?"),
    ],
)
def test_a_section_without_a_roster_is_one_sentence(weft, hospitals, section, words):
    hospitals.change('[[party]]\nname = "north"', f'{section}\n\n[[party]]\nname = "north"')
    assert words in sentence(weft("train", hospitals.write()))


def test_a_party_that_is_no_member_is_refused(weft, agreed, hospitals):
    config = agreed()
    text = config.read_text().replace('name = "south"', 'name = "sud"')
    config.write_text(text.replace('[keys]\nfolder = "../keys"\n', ""))
    said = sentence(weft("train", config))
    assert "party sud is no member of 'two hospitals'" in said


def test_a_matching_key_goes_from_the_card_into_the_roster(weft, keys, tmp_path):
    for name in PARTIES:
        joined = weft("federation", "join", f"{name}.json", "--keys", keys, "--party", name)
        assert joined.code == 0, joined.err
    new = ("federation", "draft", "r.json", "north.json", "south.json", "--matching")
    assert weft(*new, "north").code == 0
    found = read_roster(tmp_path / "r.json")
    assert found.charter.terms.matching == "oprf"
    assert found.members["north"].matching_key == read_card(tmp_path / "north.json").matching_key
    assert found.members["south"].matching_key is None
    sign(weft, "r.json", keys)
    # Another's key in its place would let another answer in its name.
    text = (tmp_path / "r.json").read_text()
    other = read_card(tmp_path / "south.json").matching_key.hex()
    (tmp_path / "r.json").write_text(text.replace(found.members["north"].matching_key.hex(), other))
    said = sentence(
        weft("federation", "sign", "r.json", "--keys", keys, "--party", "north", "--yes")
    )
    assert "another matching key of 'north' than its own" in said
    # A folder's public file has none, but the private keys give it.
    (tmp_path / "r.json").unlink()
    assert weft("federation", "draft", "r.json", "--keys", keys, "--matching", "south").code == 0
    assert read_roster(tmp_path / "r.json").members["south"].matching_key.hex() == other


def test_a_member_revokes_a_roster_and_sites_are_told_how(weft, keys, tmp_path):
    draft = ["federation", "draft", "r.json", "--keys", keys, "--serial", "4"]
    assert weft(*draft, "--expires", "tomorrow").code == 2
    assert weft(*draft, "--expires", "2099-01-31").code == 0
    shown = weft("federation", "show", "r.json").out
    assert "serial 4, counts until 2099-01-31, has 2 members" in shown
    sign(weft, tmp_path / "r.json", keys)
    revoke = ["federation", "revoke", "r.json", "gone.json", "--keys", keys, "--party"]
    assert "its private keys" in sentence(weft(*revoke, "nobody"))
    outcome = weft(*revoke, "south")
    assert outcome.code == 0
    assert "weft join KIT --revoked gone.json" in outcome.out
    roster = read_roster(tmp_path / "r.json")
    assert read_revocation(tmp_path / "gone.json").revokes(roster)
    assert "exists already" in sentence(weft(*revoke, "south"))
    # weft join --revoked checks it by the site's roster.
    kit = SimpleNamespace(home=tmp_path / "kit")
    site = JoinSettings(party="north", data=["d.csv"], id="id", keys=keys)
    with pytest.raises(ConfigError, match="name it with --roster"):
        keep_revocations(site, kit, [tmp_path / "gone.json"])
    site = msgspec.structs.replace(site, roster=str(tmp_path / "r.json"))
    assert keep_revocations(site, kit, [tmp_path / "gone.json"]) == []
    with pytest.raises(ConfigError, match="'south' has revoked"):
        roster_pins(kit).admit(roster)


@pytest.mark.parametrize(("more", "marked"), [((), False), (("--pilot",), True)])
def test_a_pilot_is_one_in_the_terms_that_everybody_is_invited_to(weft, tmp_path, more, marked):
    outcome = weft(
        *("federation", "invite", "north", "south", "west", "--name", "try", "--host", "localhost"),
        *("--submitter", "anna@north.example", *more),
    )
    assert outcome.code == 0, outcome.err
    found = [text for path in tmp_path.rglob("*.json") if '"terms"' in (text := path.read_text())]
    (letter,) = found
    assert is_pilot(terms_in(json.loads(letter))) == marked


def terms_in(letter):
    """The terms, however deep they lie."""
    if isinstance(letter, dict):
        if "terms" in letter:
            return letter["terms"]
        letter = list(letter.values())
    if isinstance(letter, list):
        return next((terms for part in letter if (terms := terms_in(part)) is not None), None)
    return None
