"""The page on founding can be typed as it stands, and its letters cannot be exchanged."""

from __future__ import annotations

import json
import re
import shlex
import shutil

import pytest
from pages import DOCS

from weft.cli import main
from weft.crypto.keys import load_keys
from weft.crypto.party_key_pairs import Identity
from weft.errors import ConfigError
from weft.network.founding.invited import read_founding
from weft.network.founding.inviter import read_acceptances
from weft.network.founding.letters import Letter, compared
from weft.network.kits.kit_folder import Kit
from weft.privacy.agreement import read_roster

_BLOCK = re.compile(r"^```(sh|mail)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_POST = re.compile(r"(\w+) → ([\w, ]+): (\S+)(?: as (\S+))?")
MEMBERS = ("north", "south", "west")


def post(world, line):
    writer, readers, file, name = _POST.fullmatch(line).groups()
    for reader in readers.split(", "):
        target = world / reader / (name or file.rpartition("/")[2])
        shutil.copyfile(world / writer / file, target)


@pytest.fixture(scope="module")
def founded(tmp_path_factory):
    """Everything on the page is typed and posted; also how many commands that were."""
    world, typed = tmp_path_factory.mktemp("world"), 0
    for machine in (*MEMBERS, "coordinator"):
        (world / machine).mkdir()
    with pytest.MonkeyPatch.context() as patch:
        for kind, body in _BLOCK.findall((DOCS / "founding.md").read_text()):
            for line in body.splitlines():
                if kind == "mail":
                    post(world, line)
                    continue
                machine, _, command = line.partition("$ ")
                patch.chdir(world / machine)
                with pytest.raises(SystemExit) as stop:
                    main(shlex.split(command)[1:])
                assert not stop.value.code, line
                typed += 1
    return world, typed


def test_nine_commands_leave_a_folder_with_keys_kit_and_signed_roster(founded):
    world, typed = founded
    assert typed == 9
    secrets = set()
    for name in MEMBERS:
        folder = world / name / name
        roster = read_roster(folder / "roster.json")
        roster.insist()
        assert set(roster.members) == set(MEMBERS)
        # Without them no ids are matched over a network.
        assert roster.charter.having("matching") == ("south", "west")
        keys = load_keys(folder / "keys", name)
        assert keys.identity.public == roster.members[name].identity
        secrets.add(keys.run.reveal())
        assert Kit.open(folder, "site").name == name
        assert not (folder / "request").exists()
    # One run secret, which all can open.
    assert len(secrets) == 1
    assert Kit.open(world / "coordinator" / "coordinator", "coordinator").host == "localhost"
    assert Kit.open(world / "north" / "north" / "submitter").kind == "submitter"
    assert not (world / "coordinator" / "coordinator" / "keys").exists()


def test_who_comes_later_gets_a_kit_of_the_same_authority(founded, tmp_path):
    """As docs/federation-life.md says: the inviter writes the file that letters did without."""
    world, _ = founded
    shutil.copytree(world / "north" / "north" / "authority", tmp_path / "authority")
    lines = ['name = "three clinics"', 'host = "localhost"', "port = 8002"]
    for kind, name in [*(("site", name) for name in (*MEMBERS, "east")), ("submitter", "a@b.org")]:
        lines += [f"[[{kind}]]", f'name = "{name}"', 'organisation = "clinic"']
    (tmp_path / "federation.toml").write_text("\n".join(lines))
    with pytest.raises(SystemExit) as stop:
        main(["federation", "add", str(tmp_path / "federation.toml"), "east", "--out",
              str(tmp_path / "authority")])  # fmt: skip
    assert not stop.value.code
    east = Kit.open(tmp_path / "authority" / "east", "site")
    assert east.fingerprint == Kit.open(world / "north" / "north", "site").fingerprint


def rewritten(path, writer, **changes):
    """A letter with another content, signed by whoever rewrote it."""
    found = json.loads(path.read_text())
    found["content"].update(changes)
    changed = Letter(found["kind"], found["content"], None)
    found["signature"] = writer.sign(changed.signed_bytes).hex()
    path.write_text(json.dumps(found))


@pytest.fixture
def before(founded, tmp_path):
    """South's machine and north's letters, as they were before anybody signed."""
    world, _ = founded
    copy = tmp_path / "world"
    shutil.copytree(world, copy)
    folder = copy / "south" / "south"
    shutil.rmtree(folder / "kit")
    (folder / "request").mkdir()
    (folder / "request" / "south.key").write_text("")
    return copy


def test_a_founding_letter_of_somebody_else_is_refused(before):
    path = before / "south" / "south.founding.json"
    read_founding(path, before / "south" / "south")
    rewritten(path, Identity.new())
    with pytest.raises(ConfigError, match="was not signed by 'north', who invited"):
        read_founding(path, before / "south" / "south")


def test_a_roster_that_the_invitation_did_not_propose_is_refused(before):
    path = before / "south" / "south.founding.json"
    north = load_keys(before / "north" / "north" / "keys", "north").identity
    roster = json.loads(path.read_text())["content"]["roster"]
    roster["terms"]["allow_exposure"] = True
    rewritten(path, north, roster=roster, signatures={})
    with pytest.raises(ConfigError, match="proposes another roster than the invitation"):
        read_founding(path, before / "south" / "south")


def test_other_keys_of_the_signer_are_refused(before):
    path = before / "south" / "south.founding.json"
    north = load_keys(before / "north" / "north" / "keys", "north").identity
    roster = json.loads(path.read_text())["content"]["roster"]
    roster["members"][1]["signing"] = Identity.new().public.signing.hex()
    rewritten(path, north, roster=roster, signatures={})
    with pytest.raises(ConfigError, match="other keys of 'south' than its own"):
        read_founding(path, before / "south" / "south")


def test_acceptances_must_be_of_everybody_and_of_this_invitation(before):
    north = before / "north"
    answers = [north / f"{name}.acceptance.json" for name in ("south", "west", "coordinator")]
    with pytest.raises(ConfigError, match="no acceptance of coordinator yet"):
        read_acceptances(north / "north", answers[:2])
    content = json.loads(answers[0].read_text())
    # Signed by other keys than those on the card.
    rewritten(answers[0], Identity.new())
    with pytest.raises(ConfigError, match="was not signed by 'south'"):
        read_acceptances(north / "north", answers)
    content["content"]["invitation"] = "0" * 32
    answers[0].write_text(json.dumps(content))
    with pytest.raises(ConfigError, match="answers another invitation"):
        read_acceptances(north / "north", answers)


def test_a_fingerprint_that_nobody_has_stops_everything():
    found = {"north": "e113 5f47", "south": "dab8 9924"}
    assert compared(found, ["E113 5F47"]) == ["north"]
    with pytest.raises(ConfigError, match="somebody may have exchanged keys"):
        compared(found, ["e113 5f48"])
