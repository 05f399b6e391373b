"""Imports point one way, and the coordinator's code never loads a reader or a tile."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import weft

ROOT = Path(weft.__file__).parent

#: What each room may import of Weft, besides itself and the errors.
ROOMS = {
    "errors": set(),
    "storage": set(),
    "crypto": set(),
    "losses": set(),
    "channels": {"crypto"},
    "data": {"storage"},
    "matching": {"channels", "crypto"},
    "sums": {"crypto", "channels", "matching", "losses"},
    "algorithms": {"crypto", "channels", "matching", "sums", "losses", "storage"},
}


def room_files(room):
    single = ROOT / f"{room}.py"
    return [single] if single.exists() else sorted((ROOT / room).rglob("*.py"))


def rooms_imported(path):
    """Rooms of Weft that a file names in any import, also inside functions."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path} imports relatively"
            names = [node.module]
            if node.module == "weft":
                names = [f"weft.{alias.name}" for alias in node.names]
        found.update(n.split(".")[1] for n in names if n.startswith("weft."))
    return found


@pytest.mark.parametrize("room", ROOMS)
def test_a_room_imports_only_what_lies_below_it(room):
    files = room_files(room)
    assert files
    for path in files:
        foreign = rooms_imported(path) - ROOMS[room] - {room, "errors"}
        assert not foreign, f"{path.relative_to(ROOT)} imports {sorted(foreign)}"


COORDINATOR = """
import sys
import weft.algorithms.hyfdca.coordinator, weft.algorithms.registry, weft.algorithms.settings
import weft.matching.meet, weft.matching.roster
import weft.sums.totals, weft.sums.certificate, weft.sums.scaling
import weft.channels, weft.crypto
loaded = set(sys.modules)
print(*sorted(m for m in loaded if m.split('.')[0] == 'weft' or m.startswith('pyarrow')))
"""


def test_the_coordinators_code_loads_no_reader_no_tile_and_no_party():
    done = subprocess.run(
        [sys.executable, "-c", COORDINATOR], capture_output=True, text=True, check=True
    )
    loaded = done.stdout.split()
    assert "weft.algorithms.hyfdca.coordinator" in loaded
    forbidden = ("weft.data", "weft.party", "weft.federation", "weft.joint", "weft.model")
    assert not [m for m in loaded if m.startswith(forbidden)]
