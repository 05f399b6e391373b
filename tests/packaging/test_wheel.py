"""The wheel: all that belongs to Weft is in it, and it works without the tree.

``make wheel`` installs it into an environment of its own, and trains with it.
"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import weft

ROOT = Path(__file__).resolve().parents[2]
#: What Python and Numba leave beside the code.
_LEFT = shutil.ignore_patterns("__pycache__", "*.egg-info")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built as pip does without an environment of its own for building."""
    source, made = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("wheel")
    shutil.copytree(ROOT / "src", source / "src", ignore=_LEFT)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    build = "import sys, setuptools.build_meta as b; b.build_wheel(sys.argv[1])"
    subprocess.run(
        [sys.executable, "-c", build, str(made)], cwd=source, check=True, capture_output=True
    )
    (found,) = made.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def names(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def test_every_file_of_every_package_is_in_the_wheel_and_nothing_else(names):
    files = {
        str(path.relative_to(ROOT / "src"))
        for path in (ROOT / "src").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts and ".egg-info" not in str(path)
    }
    packed = {name for name in names if ".dist-info/" not in name}
    assert packed == files
    assert "weft/py.typed" in packed


def test_the_wheel_names_its_version_licence_commands_and_plug_ins(wheel):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["version"] == weft.__version__
    assert wheel.name == f"weft-{weft.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(wheel) as archive:
        about = f"weft-{weft.__version__}.dist-info"
        told = archive.read(f"{about}/METADATA").decode()
        doors = archive.read(f"{about}/entry_points.txt").decode()
        assert archive.read(f"{about}/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
    assert "License-Expression: Apache-2.0" in told
    for requirement in project["dependencies"]:
        assert f"Requires-Dist: {re.match(r'[a-z0-9-]+', requirement).group()}" in told
    assert "weft = weft.cli:main" in doors
    for plugin in project["entry-points"]["weft.plugins"].values():
        assert plugin in doors


#: Where Weft's files are found, and its command by the wheel's own entry point.
_USE = """
from importlib.metadata import entry_points
from importlib.util import find_spec
print(*(find_spec(name).origin for name in ("weft", "weft.report", "weft_neural")))
(door,) = {d.value: d for d in entry_points(group="console_scripts", name="weft")}.values()
door.load()(["--version"])
"""


def test_the_wheel_works_where_it_is_unpacked(wheel, tmp_path):
    """An installer does little else, and takes seconds; ``make wheel`` has it do so."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    done = subprocess.run(
        [sys.executable, "-c", _USE],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path / "unpacked")},
        check=True,
        capture_output=True,
        text=True,
    )
    places, version = done.stdout.splitlines()
    # Before the tree it was built from, which is there too.
    assert all(place.startswith(str(tmp_path / "unpacked")) for place in places.split())
    assert version == f"weft {weft.__version__}"
