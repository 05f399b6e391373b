"""Reading Weft's own documents: their code blocks, and where they lie."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"

_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def blocks(page, language):
    """The code blocks of a page in one language, in order."""
    found = _BLOCK.findall((DOCS / page).read_text())
    return [code for kind, code in found if kind == language]


def executed(page):
    """What the Python of a page leaves behind when it is pasted as it stands."""
    namespace = {}
    for number, code in enumerate(blocks(page, "python"), 1):
        run(code, f"{page}, block {number}", namespace)
    return namespace


def run(code, name, namespace):
    """Run code as a page has it, without what this file imports from the future."""
    exec(compile(code, name, "exec", dont_inherit=True), namespace)
