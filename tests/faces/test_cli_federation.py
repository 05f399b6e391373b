"""``weft federation``: cards, a roster, signatures; and runs that keep to them."""

import errno
import json
import os
import shutil

import pytest

from weft import storage
from weft.consortium import read_card, read_roster
from weft.keys import load_all, new_keys, read_public

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
    outcome = weft("federation", "new", "roster.json", "--keys", keys, "--name", "two hospitals")
    assert outcome.code == 0, outcome.err
    return tmp_path / "roster.json"


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
    made = weft("federation", "new", "roster.json", "north.json", "south.json", "west.json")
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
    hospitals.change("[model]", "[privacy]\nallow_pairs = true\nmin_batch = 3\n\n[model]")
    outcome = weft(
        *("federation", "new", "r.json", "--keys", keys, "--config", hospitals.write()),
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
        (["new", "r.json"], ["cards", "--keys"]),
        (["new", "r.json", "card.json", "--keys", "keys"], ["but not both"]),
        (["new", "r.json", "none.json"], ["there is no membership card none.json"]),
        (["new", "r.json", "--keys", "nowhere"], ["nowhere/public.json does not exist"]),
        (["new", "r.json", "--keys", "keys", "--labels", "nord"], ["--labels names 'nord'"]),
        (["new", "r.json", "--keys", "keys", "--rows", "north"], ["is not NAME=N"]),
        (["new", "r.json", "--keys", "keys", "--rows", "north=0"], ["most_rows 0"]),
        (["new", "r.json", "--keys", "keys", "--rows", "nord=5"], ["--rows names 'nord'"]),
        (["new", "r.json", "--keys", "keys", "--min-batch", "0"], ["min_batch is 0"]),
        (["new", "r.json", "--keys", "keys", "--coordinator-sees", "all"], ["choose one of"]),
        (["new", "r.json", "--keys", "keys", "--loss", "hing"], ["losses names 'hing'"]),
        (["new", "r.json", "--keys", "keys", "--config", "c.toml"], ["no config file"]),
        (["new", "a/r.json", "--keys", "keys"], ["the folder a does not exist"]),
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
    assert "exists already" in sentence(weft("federation", "new", roster, "--keys", keys))
    said = sentence(weft("federation", "join", roster, "--keys", keys, "--party", "north"))
    assert "exists already" in said
    assert roster.read_bytes() == before


# ── signing and verifying ─────────────────────────────────────────────────────────────────────


def test_a_roster_is_signed_and_verified(weft, keys, roster):
    said = sentence(weft("federation", "verify", roster))
    assert "north, south did not sign it" in said
    first = sign(weft, roster, keys, ["north"])
    assert "Federation 'two hospitals' has 2 members" in first.out
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


@pytest.mark.parametrize("command", ["new", "join", "sign"])
def test_a_full_disk_leaves_the_old_file_or_none(
    weft, keys, roster, tmp_path, monkeypatch, command
):
    def full(source, target):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    before = {path: path.read_bytes() for path in tmp_path.glob("*.json")}
    who = ("--keys", keys, "--party", "north")
    arguments = {
        "new": ("new", "new.json", "--keys", keys),
        "join": ("join", "card.json", *who),
        "sign": ("sign", roster, *who, "--yes"),
    }[command]
    with monkeypatch.context() as patch:
        patch.setattr(storage.os, "replace", full)
        assert "cannot be written (No space left" in sentence(weft("federation", *arguments))
    assert {path: path.read_bytes() for path in tmp_path.glob("*.json")} == before
    assert not list(tmp_path.glob(".*"))
