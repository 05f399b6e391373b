"""Keys on disk: made whole or not at all, checked when loaded, never shown."""

import errno
import json
import os
import shutil
import stat
from base64 import b64encode, urlsafe_b64encode
from contextlib import contextmanager
from pathlib import Path

import pytest

from weft.crypto.keys import (
    KeysError,
    describe_keys,
    load_all,
    load_keys,
    new_keys,
    read_public,
)
from weft.crypto.party_key_pairs import Identity
from weft.crypto.secret_bytes import Secret
from weft.errors import WeftError
from weft.storage import atomic_files as storage

pytestmark = pytest.mark.usefixtures("no_pictures")

PARTIES = ["north", "south", "west"]
WEIRD = ["..", ".", "a/b", "a%2Fb", "public.json", "Sjællands Ü 病院", "x y'\"$(z)", "[red]r[/]"]


@pytest.fixture
def folder(tmp_path):
    """Keys of three parties."""
    new_keys(tmp_path / "keys", PARTIES)
    return tmp_path / "keys"


def box_of(folder, party):
    return folder / party / f"run-{read_public(folder).run}.box"


def contents(folder):
    """Every file below a folder with its bytes, and every folder."""
    return {
        path.relative_to(folder): path.read_bytes() if path.is_file() else None
        for path in Path(folder).rglob("*")
    }


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def refusal(folder, party):
    """The one sentence with which loading stops."""
    with pytest.raises(KeysError) as stop:
        load_keys(folder, party)
    assert "\n" not in str(stop.value)
    return str(stop.value)


def assert_hidden(secrets, *texts):
    """No text holds a secret: raw, as digits, in base64 or as Python writes bytes."""
    for content in secrets:
        written = [content, content.hex().encode(), content.hex().upper().encode()]
        written += [b64encode(content).rstrip(b"="), urlsafe_b64encode(content).rstrip(b"=")]
        written += [repr(content)[2:-1].encode(), repr(list(content))[1:-1].encode()]
        for text in texts:
            raw = text.encode() if isinstance(text, str) else text
            assert not [form for form in written if form in raw]


def secrets_in(folder, parties=PARTIES):
    keys = load_all(folder, parties).values()
    privates = [party.identity.private().reveal() for party in keys]
    halves = [half for private in privates for half in (private[:32], private[32:])]
    return [*halves, *privates, *{party.run.reveal() for party in keys}]


# ── the library ───────────────────────────────────────────────────────────────────────────────


def test_all_parties_load_the_same_run_and_their_own_identities(folder):
    keys = load_all(folder, PARTIES)
    assert list(keys) == PARTIES
    public = read_public(folder)
    assert public.made_by == "north"
    for name, party in keys.items():
        assert party.name == name
        assert party.run == keys["north"].run
        assert party.run.fingerprint("run") == public.run
        assert party.identity.public == public.members[name]
    assert len({party.identity.public for party in keys.values()}) == 3
    assert load_keys(folder, "south").run == keys["south"].run


def test_private_files_are_for_their_owner_and_public_ones_for_all(folder):
    for party in PARTIES:
        assert mode(folder / party) == 0o700
        assert {mode(path) for path in (folder / party).iterdir()} == {0o600}
    umask = os.umask(0)
    os.umask(umask)
    assert mode(folder / "public.json") == 0o666 & ~umask


def test_no_file_but_the_private_one_holds_a_secret(folder):
    secrets = secrets_in(folder)
    public = [path.read_bytes() for path in folder.rglob("*") if path.suffix in (".box", ".json")]
    assert len(public) == 4
    assert_hidden(secrets, *public)
    run = load_keys(folder, "north").run.reveal()
    assert_hidden([run], *(path.read_bytes() for path in folder.rglob("*.key")))


def test_a_party_needs_its_own_folder_and_the_public_file_only(folder, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(folder / "public.json", site)
    shutil.copytree(folder / "south", site / "south")
    assert load_keys(site, "south").run == load_keys(folder, "north").run


def test_names_that_no_file_may_have(tmp_path):
    folder = tmp_path / "deep" / "keys"
    new_keys(folder, WEIRD)
    assert list(load_all(folder, WEIRD)) == WEIRD
    assert len([path for path in folder.iterdir() if path.is_dir()]) == len(WEIRD)
    assert {path.name for path in tmp_path.iterdir()} == {"deep"}
    assert {path.name for path in folder.parent.iterdir()} == {"keys"}


@pytest.mark.parametrize(
    ("parties", "words"),
    [
        ([], "name at least one"),
        (["a", ""], "'' cannot be"),
        (["a", "  "], "'  ' cannot be"),
        (["a\nb"], r"'a\nb' cannot be"),
        (["a\x00b"], r"'a\x00b' cannot be"),
        (["a\udc80"], r"'a\udc80' cannot be"),
        (["a", "b", "a"], "two parties are called 'a'"),
        (["n" * 300], "cannot be made (File name too long)"),
    ],
)
def test_names_that_no_party_may_have(tmp_path, parties, words):
    with pytest.raises(WeftError) as stop:
        new_keys(tmp_path / "keys", parties)
    assert words in str(stop.value)
    assert not list(tmp_path.iterdir())


def test_renewal_keeps_identities_and_forgets_the_old_secret(folder):
    before = load_all(folder, PARTIES)
    identities = {path: path.read_bytes() for path in folder.rglob("*.key")}
    public = new_keys(folder, PARTIES, renew_run=True)
    after = load_all(folder, PARTIES)
    assert {path: path.read_bytes() for path in folder.rglob("*.key")} == identities
    assert after["north"].run != before["north"].run
    assert {path.name for path in folder.rglob("*.box")} == {f"run-{public.run}.box"}


def test_members_leave_join_and_come_back(folder):
    first = read_public(folder)
    new_keys(folder, ["south", "north", "east"], renew_run=True)
    second = read_public(folder)
    assert list(second.members) == ["south", "north", "east"]
    assert second.made_by == "south"
    assert second.members["north"] == first.members["north"]
    assert not list((folder / "west").glob("*.box"))
    assert "has no keys of west" in refusal(folder, "west")
    new_keys(folder, PARTIES, renew_run=True)
    assert read_public(folder).members == first.members
    load_all(folder, PARTIES)


def test_the_maker_renews_without_the_private_keys_of_others(folder, tmp_path):
    site = tmp_path / "site"
    site.mkdir()
    shutil.copy(folder / "public.json", site)
    shutil.copytree(folder / "north", site / "north")
    new_keys(site, PARTIES, renew_run=True)
    assert not list(site.rglob("south/*.key"))
    for file in ("public.json", box_of(site, "south").relative_to(site)):
        shutil.copy(site / file, folder / file)
    assert load_keys(folder, "south").run == load_keys(site, "north").run
    assert "private keys" in refusal(site, "south")
    with pytest.raises(KeysError, match=r"party south: its private keys .* are not here"):
        new_keys(site, ["south", "north"], renew_run=True)


def test_existing_content_is_not_overwritten(folder, tmp_path):
    before = contents(folder)
    with pytest.raises(KeysError, match="holds keys already; --renew-run"):
        new_keys(folder, PARTIES)
    assert contents(folder) == before
    other = tmp_path / "other"
    other.mkdir()
    (other / "precious.txt").write_text("mine")
    with pytest.raises(KeysError, match="exists and is not empty"):
        new_keys(other, PARTIES)
    with pytest.raises(KeysError, match=r"public\.json does not exist"):
        new_keys(other, PARTIES, renew_run=True)
    assert contents(other) == {Path("precious.txt"): b"mine"}


def test_an_empty_folder_takes_keys(tmp_path):
    new_keys(tmp_path, ["a"])
    assert load_keys(tmp_path, "a").name == "a"


# ── what loading refuses ──────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("wide", [0o644, 0o640, 0o604, 0o620])
@pytest.mark.parametrize("file", ["identity.key", "box"])
def test_a_file_that_others_can_read_is_refused(folder, file, wide):
    path = box_of(folder, "south") if file == "box" else folder / "south" / file
    path.chmod(wide)
    said = refusal(folder, "south")
    assert f"party south: {path} is open to others (mode {wide:04o})" in said
    assert f"chmod 600 {path}" in said
    path.chmod(0o600)
    load_keys(folder, "south")


def test_a_folder_that_others_can_enter_is_refused(folder):
    (folder / "south").chmod(0o755)
    assert f"chmod 700 {folder / 'south'}" in refusal(folder, "south")


def test_a_party_with_another_run_secret_is_told_so(folder):
    old = box_of(folder, "south").read_bytes()
    new_keys(folder, PARTIES, renew_run=True)
    box = box_of(folder, "south")
    box.write_bytes(old)
    said = refusal(folder, "south")
    assert "party south holds another run secret than the others" in said
    assert "ask party north for" in said
    assert "--renew-run" in said
    box.rename(box.with_name("run-0123456789abcdef.box"))
    assert refusal(folder, "south") == said
    assert describe_keys(folder)[1][1].box == "of another run"
    load_keys(folder, "west")
    with pytest.raises(KeysError, match="party south holds another run secret"):
        load_all(folder, PARTIES)


def test_a_box_of_somebody_else_is_told_apart(folder):
    box_of(folder, "south").write_bytes(box_of(folder, "west").read_bytes())
    said = refusal(folder, "south")
    assert "party south" in said
    assert "sealed to other keys" in said


@pytest.mark.parametrize("place", [0, 63, 64, 100, -1])
def test_a_changed_box_is_noticed(folder, place):
    content = bytearray(box_of(folder, "south").read_bytes())
    content[place] ^= 1
    box_of(folder, "south").write_bytes(content)
    said = refusal(folder, "south")
    expected = "not signed by party north" if 0 <= place < 64 else "sealed to other keys"
    assert expected in said


@pytest.mark.parametrize("length", [0, 10, 64, 143])
def test_a_cut_box_is_noticed(folder, length):
    box = box_of(folder, "south")
    box.write_bytes(box.read_bytes()[:length])
    assert "or is damaged" in refusal(folder, "south")


def test_a_box_that_another_member_made_is_noticed(folder):
    # West knows the run secret and can seal it, but cannot sign in north's name.
    west, public = load_keys(folder, "west"), read_public(folder)
    box = public.members["south"].seal(west.run)
    box_of(folder, "south").write_bytes(west.identity.sign(box) + box)
    assert "not signed by party north" in refusal(folder, "south")


def test_an_exchanged_member_is_noticed_by_all_others(folder):
    public = json.loads((folder / "public.json").read_text())
    intruder = Identity.new().public
    public["parties"][2]["signing"] = b64encode(intruder.signing).decode()
    public["parties"][2]["sealing"] = b64encode(intruder.sealing).decode()
    (folder / "public.json").write_text(json.dumps(public))
    assert "not signed by party north for the parties in public.json" in refusal(folder, "north")
    assert "not signed by party north for the parties in public.json" in refusal(folder, "south")
    assert "holds other keys than public.json says" in refusal(folder, "west")


def test_missing_files_are_named(folder):
    (folder / "south" / "identity.key").unlink()
    assert f"party south: its private keys {folder / 'south'}" in refusal(folder, "south")
    box_of(folder, "west").unlink()
    said = refusal(folder, "west")
    assert "party west: its run secret" in said
    assert "ask party north" in said
    shutil.rmtree(folder / "north")
    assert "party north: its private keys" in refusal(folder, "north")


def test_missing_parties_are_named(folder):
    with pytest.raises(KeysError, match=r"no keys of est, ost, only of north, south, west; corr"):
        load_all(folder, ["north", "est", "ost"])
    many = [f"p{number}" for number in range(100)]
    with pytest.raises(KeysError, match=r"no keys of p0, p1, p2, p3, p4, p5 and 94 more"):
        load_all(folder, many)


@pytest.mark.parametrize("content", [b"", b"short", b"weft identity 1\n" + bytes(63), bytes(80)])
def test_a_damaged_private_file_is_named(folder, content):
    (folder / "south" / "identity.key").write_bytes(content)
    assert "identity.key is damaged or no file of private keys" in refusal(folder, "south")


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ('"format": 1', '"format": 2'),
        ('"made_by": "north"', '"made_by": "nord"'),
        ('"name": "south"', '"name": "north"'),
        ('"name": "south"', '"name": "so\\u001bth"'),
        ('"signing": "', '"signing": "AA'),
        ('"run": "', '"run": "../'),
        ("{", ""),
    ],
)
def test_a_damaged_public_file_is_named(folder, old, new):
    path = folder / "public.json"
    assert old in path.read_text()
    path.write_text(path.read_text().replace(old, new, 1))
    assert f"{path} is damaged or of another kind" in refusal(folder, "south")


def test_a_member_with_a_weak_key_is_named(folder):
    public = json.loads((folder / "public.json").read_text())
    public["parties"][1]["sealing"] = b64encode(bytes(32)).decode()
    (folder / "public.json").write_text(json.dumps(public))
    before = contents(folder)
    with pytest.raises(KeysError, match="party south: a public sealing key"):
        new_keys(folder, PARTIES, renew_run=True)
    assert contents(folder) == before


# ── nothing half-written ──────────────────────────────────────────────────────────────────────


def failing_at(monkeypatch, call, error):
    """Let the given file be the one that cannot take its place."""
    replace, calls = os.replace, []

    def failing(source, target):
        calls.append(target)
        if len(calls) == call:
            raise error
        replace(source, target)

    monkeypatch.setattr(storage.os, "replace", failing)


FULL = OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupted"])
@pytest.mark.parametrize("call", range(1, 8))
def test_a_full_disk_or_an_interruption_leaves_no_new_folder(tmp_path, monkeypatch, call, error):
    failing_at(monkeypatch, call, error)
    with pytest.raises((WeftError, KeyboardInterrupt)):
        new_keys(tmp_path / "a" / "keys", PARTIES)
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [FULL, KeyboardInterrupt()], ids=["full", "interrupted"])
@pytest.mark.parametrize("call", range(1, 7))
def test_a_full_disk_or_an_interruption_keeps_the_old_run(folder, monkeypatch, call, error):
    before = contents(folder)
    with monkeypatch.context() as patch:
        failing_at(patch, call, error)
        with pytest.raises((WeftError, KeyboardInterrupt)):
            new_keys(folder, [*PARTIES, "east"], renew_run=True)
    assert contents(folder) == before
    load_all(folder, PARTIES)


# ── the command line ──────────────────────────────────────────────────────────────────────────


def sentence(outcome):
    """The sentence of a command that stopped as it should."""
    assert outcome.code == 2
    assert outcome.out == ""
    assert outcome.err.startswith("weft: ")
    assert outcome.err.count("\n") == 1
    assert "Traceback" not in outcome.err
    return outcome.err


def test_keys_are_made_and_shown(weft, tmp_path):
    made = weft("keys", "new", "keys", "--party", "north", "--party", "south")
    assert made.code == 0, made.err
    assert "2 parties in keys; party north made the run secret" in made.out
    shown = weft("keys", "show", "keys")
    assert shown.code == 0, shown.err
    public = read_public(tmp_path / "keys")
    for name, party in public.members.items():
        assert f"{name}  " in shown.out
        assert party.fingerprint in shown.out
    assert f"Run secret {public.run}, made by party north" in shown.out
    assert shown.out.count("all right") == 2


def test_keys_are_one_json_object_on_request(weft, folder):
    shown = weft("keys", "show", folder, "--json")
    assert (shown.code, shown.err) == (0, "")
    values = json.loads(shown.out)
    public = read_public(folder)
    assert values["run"] == public.run
    assert values["made_by"] == "north"
    assert values["parties"] == {n: p.fingerprint for n, p in public.members.items()}
    assert values["private_keys"] == values["run_secrets"] == dict.fromkeys(PARTIES, "owner only")
    assert values["remedies"] == []
    made = weft("keys", "new", folder, "--renew-run", "--json")
    assert (made.code, made.err) == (0, "")
    renewed = json.loads(made.out)
    assert renewed["parties"] == values["parties"]
    assert renewed["run"] != values["run"]


def test_show_says_what_is_wrong_with_files(weft, folder):
    (folder / "north" / "identity.key").chmod(0o644)
    (folder / "south").chmod(0o755)
    shutil.rmtree(folder / "west")
    shown = weft("keys", "show", folder, "--json")
    values = json.loads(shown.out)
    assert values["private_keys"] == {
        "north": "open to others",
        "south": "owner only",
        "west": "not here",
    }
    assert values["run_secrets"]["west"] == "not here"
    remedies = [f"chmod 600 {folder / 'north' / 'identity.key'}", f"chmod 700 {folder / 'south'}"]
    assert values["remedies"] == remedies
    said = " ".join(weft("keys", "show", folder).out.split())
    for words in ("private keys open to", "folder open to", "private keys not", *remedies):
        assert words in said


def test_names_come_from_a_config(weft, hospitals, tmp_path):
    outcome = weft("keys", "new", "keys", "--config", hospitals.write(), "--json")
    assert outcome.code == 0, outcome.err
    assert list(read_public(tmp_path / "keys").members) == ["north", "south"]


def test_names_come_from_a_config_that_cuts_a_data_set(weft, tmp_path):
    (tmp_path / "c.toml").write_text(
        '[data]\ndataset = "breast_cancer"\nsplit = {name = "grid", k = 2, q = 2}\n'
    )
    assert weft("keys", "new", "keys", "--config", "c.toml").code == 0
    assert len(read_public(tmp_path / "keys").members) == 4


def test_weird_names_go_through_the_command_line(weft, tmp_path):
    named = [word for name in WEIRD for word in ("--party", name)]
    assert weft("keys", "new", "keys", *named).code == 0
    assert list(load_all(tmp_path / "keys", WEIRD)) == WEIRD
    assert list(json.loads(weft("keys", "show", "keys", "--json").out)["parties"]) == WEIRD
    assert "[red]r[/]" in weft("keys", "show", "keys").out


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["new", "keys"], ["--party NAME", "--config"]),
        (["new", "keys", "--party", "a", "--party", "a"], ["two parties are called 'a'"]),
        (["new", "keys", "--party", ""], ["cannot be a party's name"]),
        (["new", "keys", "--party", "a", "--config", "c.toml"], ["keep one of them"]),
        (["new", "keys", "--config", "c.toml"], ["no config file c.toml"]),
        (["new", "keys", "--renew-run"], ["keys/public.json does not exist"]),
        (["new", "keys", "--renew-run", "--party", "a"], ["keys/public.json does not exist"]),
        (["new", "/proc/weft/crypto/keys", "--party", "a"], ["/proc/weft", "cannot be made"]),
        (["new", "/dev/null", "--party", "a"], ["/dev/null cannot hold keys (Not a directory)"]),
        (["new", "/dev/null/keys", "--party", "a"], ["cannot hold keys (Not a directory)"]),
        (["new"], ["folder", "weft keys new --help"]),
        (["show", "keys"], ["keys/public.json does not exist", "weft keys new"]),
        (["shwo", "keys"], ["shwo"]),
    ],
)
def test_wrong_arguments_are_one_sentence(weft, tmp_path, arguments, words):
    said = sentence(weft("keys", *arguments))
    for word in words:
        assert word in said
    assert not list(tmp_path.iterdir())


def test_keys_that_are_there_are_not_overwritten(weft, folder):
    before = contents(folder)
    said = sentence(weft("keys", "new", folder, "--party", "north"))
    assert f"{folder} holds keys already; --renew-run" in said
    assert contents(folder) == before


@contextmanager
def files_of_at_most(size):
    """Let the system refuse longer files, as a full disk does."""
    resource = pytest.importorskip("resource")
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize("size", [0, 40, 100, 200])
def test_a_full_disk_is_one_sentence_and_leaves_nothing(weft, folder, tmp_path, size):
    # Private keys have 80 bytes, boxes 144 and public.json more: each of them fails once.
    before = contents(tmp_path)
    named = [word for name in [*PARTIES, "east"] for word in ("--party", name)]
    for arguments in (["fresh", *named], [folder, "--renew-run", *named]):
        with files_of_at_most(size):
            outcome = weft("keys", "new", *arguments)
        assert "cannot be written" in sentence(outcome)
        assert contents(tmp_path) == before


def test_a_folder_without_permission_is_one_sentence(weft, tmp_path):
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o500)
    if os.access(closed, os.W_OK):
        pytest.skip("this user may write everywhere")
    assert "cannot be made" in sentence(weft("keys", "new", closed / "keys", "--party", "a"))
    assert not list(closed.iterdir())
    closed.chmod(0o000)
    for arguments in (["new", closed, "--party", "a"], ["show", closed], ["show", closed / "k"]):
        assert "closed" in sentence(weft("keys", *arguments))
    with pytest.raises(KeysError, match="cannot hold keys"):
        new_keys(closed, ["a"])
    closed.chmod(0o700)


def test_no_command_prints_a_secret(weft, folder):
    secrets = secrets_in(folder)
    printed = []
    for arguments in (
        ["show", folder],
        ["show", folder, "--json"],
        ["new", folder, "--party", "north"],
        ["new", folder, "--renew-run"],
        ["new", folder, "--renew-run", "--json"],
    ):
        outcome = weft("keys", *arguments)
        printed += [outcome.out, outcome.err]
        secrets += secrets_in(folder)
    (folder / "north" / "identity.key").chmod(0o644)
    outcome = weft("keys", "new", folder, "--renew-run")
    assert "chmod 600" in sentence(outcome)
    assert_hidden(secrets, *printed, outcome.err, (folder / "public.json").read_bytes())


def test_the_search_for_secrets_would_find_one():
    secret = Secret.random()
    for text in (secret.reveal().hex(), repr(secret.reveal()), b"x" + secret.reveal()):
        with pytest.raises(AssertionError):
            assert_hidden([secret.reveal()], text)


@pytest.mark.parametrize("command", ["new", "show"])
def test_both_commands_teach_with_an_example(weft, command):
    outcome = weft("keys", command, "--help")
    assert outcome.code == 0
    assert f"Example: weft keys {command}" in outcome.out
