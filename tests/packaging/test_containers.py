"""The image and the compose file name only what is there, and give containers what they need.

No container is built here: that takes a base image, and a program that builds.
"""

import re
import runpy
import shlex
import sys
from contextlib import redirect_stdout
from io import StringIO
from pathlib import Path

import pytest
import typer
import yaml

from weft.cli import _app
from weft.config.read_config import read_config
from weft.crypto.keys import load_all
from weft.data.read_tiles import read_tile
from weft.federation.local_federation import Federation
from weft.privacy.agreement import Consent, read_roster

ROOT = Path(__file__).resolve().parents[2]
PACKAGING = ROOT / "packaging"


def instructions():
    """Of the Containerfile, with lines that go on joined: name and the rest."""
    text = re.sub(r"\\\n", " ", (PACKAGING / "Containerfile").read_text())
    lines = [line for line in text.splitlines() if line.strip() and not line.startswith("#")]
    return [tuple(line.split(maxsplit=1)) for line in lines]


def arguments(name):
    return [rest for instruction, rest in instructions() if instruction == name]


@pytest.fixture(scope="module")
def compose():
    return yaml.safe_load((PACKAGING / "compose.yaml").read_text())


@pytest.fixture(scope="module")
def demo(tmp_path_factory):
    """What the script makes that compose.yaml mounts."""
    folder = tmp_path_factory.mktemp("containers") / "demo"
    program = str(PACKAGING / "demo_federation.py")
    # In this process, which has loaded already what another would load for seconds.
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(StringIO()):
        patch.setattr(sys, "argv", [program, str(folder)])
        runpy.run_path(program, run_name="__main__")
    return folder


def test_the_image_copies_files_of_this_tree_and_pins_what_it_installs():
    copied = [rest.split() for rest in arguments("COPY") if not rest.startswith("--from")]
    for *sources, _ in copied:
        assert all((ROOT / source).exists() for source in sources)
    assert any("-c /source/constraints.txt" in rest for rest in arguments("RUN"))


def test_the_image_runs_as_nobody_in_particular_and_declares_what_it_writes():
    (user,) = arguments("USER")
    assert user.split(":")[0].isdigit()
    assert user != "0:0"
    (volumes,) = arguments("VOLUME")
    made = next(rest for rest in arguments("RUN") if rest.startswith("mkdir"))
    for volume in yaml.safe_load(volumes):
        assert f" {volume}" in made
    settings = dict(pair.split("=", 1) for rest in arguments("ENV") for pair in shlex.split(rest))
    # Beside the code Numba could not write what it compiles, and would refuse to work.
    assert settings["NUMBA_CACHE_DIR"] in yaml.safe_load(volumes)
    assert settings["HOME"] == settings["MPLCONFIGDIR"] == "/tmp"


def test_every_container_is_as_narrow_as_can_be(compose):
    (user,) = arguments("USER")
    for service in compose["services"].values():
        assert service["read_only"] is True
        assert service["user"] == user
        assert service["cap_drop"] == ["ALL"]
        assert service["security_opt"] == ["no-new-privileges:true"]
        assert "privileged" not in service
    opened = {name: one.get("ports") for name, one in compose["services"].items()}
    (exposed,) = arguments("EXPOSE")
    # Sites open no port.
    assert opened == {
        **dict.fromkeys(opened),
        "coordinator": [f"127.0.0.1:{exposed}:{exposed}"],
    }


def test_containers_mount_what_the_script_makes(compose, demo):
    for service in compose["services"].values():
        for mount in service["volumes"]:
            source, target, *how = mount.split(":")
            if source.startswith("./demo/"):
                assert (demo / source.removeprefix("./demo/")).is_dir()
                assert how == ([] if target == "/kit" else ["ro"])
            else:
                assert source in compose["volumes"]


def test_no_container_gets_the_secrets_of_another(compose, demo):
    for name in ("north", "south", "west"):
        own = {path.parent.name for path in (demo / "sites" / name).rglob("identity.key")}
        assert own == {name}
    mounts = [mount for one in compose["services"].values() for mount in one["volumes"]]
    assert not any(mount.startswith("./demo/keys") for mount in mounts)


def test_commands_and_their_options_exist_and_name_files_that_are_mounted(compose, demo):
    known = typer.main.get_command(_app).commands
    for name, service in compose["services"].items():
        check = service["healthcheck"]["test"]
        for command, *rest in (service["command"], check[2:]):
            options = {flag for one in known[command].params for flag in one.opts}
            assert {word for word in rest if word.startswith("--")} <= options
        mounts = dict(reversed(one.split(":")[:2]) for one in service["volumes"])
        for word in service["command"]:
            if word.startswith("/"):
                folder = next(
                    each for each in mounts if word == each or word.startswith(each + "/")
                )
                inside = mounts[folder].removeprefix("./demo/") + word.removeprefix(folder)
                assert (demo / inside).exists(), (name, word)


def test_the_coordinator_of_the_demo_has_the_name_and_port_of_the_file(compose, demo):
    told = (demo / "kits" / "north" / "startup" / "fed_client.json").read_text()
    (exposed,) = arguments("EXPOSE")
    assert "coordinator" in compose["services"]
    assert f'"coordinator:{exposed}"' in told


def test_the_run_of_the_demo_is_certified_under_the_terms_of_its_roster(demo):
    parties = {
        name: [
            read_tile(demo / "tables" / f"{name}-1.parquet", id_column="id", label_column="label")
        ]
        for name in ("north", "south", "west")
    }
    config = read_config(demo / "containers.toml", deployed=True)
    signed = read_roster(demo / "roster.json")
    consents = {name: Consent(name, config.terms, roster=signed) for name in parties}
    keys = load_all(demo / "keys", tuple(parties))
    federation = Federation(parties, config.preprocessing(), keys=keys, consents=consents)
    assert federation.train(config.settings).result.certificate.gap <= config.settings.gap
