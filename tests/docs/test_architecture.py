"""The map shows every room, draws only imports that there are, and names only what exists."""

from __future__ import annotations

import ast
import re
from functools import cache

from pages import DOCS, ROOT, blocks

from test_import_directions import LAYERS, room_files

PAGE = "architecture.md"
LIBRARY = ROOT / "src" / "weft"
#: Packages beside the library, lowest first: a later one may use earlier ones.
PLUGINS = ("weft_neural", "weft_evaluation", "weft_papers", "weft_examples")
#: Paths that begin so are below the repository, all others below the library.
_TOP = ("src/", "tests/", "docs/", "benchmarks/", "fuzz/")
_IMPORT = re.compile(r"^ *(?:from|import) (?:weft\.(\w+)|(weft_\w+))", re.MULTILINE)
_TICKED = re.compile(r"`([^`\n]+)`")
_PATH = re.compile(r"[\w./-]+(\.py|\.md|\.toml)(:[\w.]+)?|[\w-]+(/[\w-]+)+/?")


def text():
    return (DOCS / PAGE).read_text()


def picture():
    """Rooms from top to bottom, and arrows."""
    (drawn,) = blocks(PAGE, "mermaid")
    lines = [line.strip() for line in drawn.splitlines()]
    assert lines[0] == "flowchart TB"
    known = re.compile(r'subgraph \w+ \["[\w ,-]+"\]|end|\w+|\w+ --> \w+')
    assert not [line for line in lines[1:] if not known.fullmatch(line)]
    assert sum(line.startswith("subgraph") for line in lines) == lines.count("end")
    nodes = [line for line in lines[1:] if re.fullmatch(r"\w+", line) and line != "end"]
    arrows = [tuple(line.split(" --> ")) for line in lines if " --> " in line]
    return nodes, arrows


def test_the_picture_has_every_room_in_the_order_of_its_layers():
    nodes, _ = picture()
    assert nodes == [*reversed(PLUGINS), *reversed(LAYERS)]


@cache
def imports_of(room):
    """Rooms that a room imports, read as text: the import test parses them anyway."""
    files = (ROOT / "src" / room).rglob("*.py") if room in PLUGINS else room_files(room)
    return {a or b for path in files for a, b in _IMPORT.findall(path.read_text())}


def test_every_arrow_of_the_picture_is_an_import():
    nodes, arrows = picture()
    assert len(set(arrows)) == len(arrows)
    for room, used in arrows:
        assert nodes.index(room) < nodes.index(used), f"{room} --> {used} points upwards"
        assert used in imports_of(room), f"{room} does not import {used}"


def test_every_room_has_a_paragraph_in_the_order_of_the_layers():
    section = text().split("## The rooms\n")[1].split("\n## ")[0]
    assert re.findall(r"^### (\w+)$", section, re.MULTILINE) == [*LAYERS, *PLUGINS]
    for paragraph in section.split("\n### ")[1:]:
        assert len(paragraph.splitlines()) > 2, paragraph


def paths():
    """What the page names: files and folders, and perhaps a name in a file."""
    prose = re.sub(r"^```.*?^```$", "", text(), flags=re.MULTILINE | re.DOTALL)
    found = {name for name in _TICKED.findall(prose) if _PATH.fullmatch(name)}
    assert len(found) > 100
    return sorted(found)


@cache
def names_in(path):
    """Functions and classes of a file, and methods as Class.method, inherited ones not."""
    found = set()
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            found.add(node.name)
        if isinstance(node, ast.ClassDef):
            found |= {f"{node.name}.{n.name}" for n in node.body if isinstance(n, ast.FunctionDef)}
    return found


def problem_with(named):
    """What is wrong with something that the page names."""
    path, _, name = named.partition(":")
    if path in ("messages.py", "coordinator.py", "party.py"):
        # Any room's.
        return f"says whose {path} has {name}" if name else None
    place = (ROOT if path.startswith(_TOP) else LIBRARY) / path
    if not place.exists():
        return f"{path} is not there"
    return f"{path} has no {name}" if name and name not in names_in(place) else None


def test_whatever_the_page_names_exists():
    assert [problem for named in paths() if (problem := problem_with(named))] == []
