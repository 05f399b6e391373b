"""Every promise of the threat model has a test, and every test it names exists."""

from __future__ import annotations

import re

import pytest
from pages import DOCS, ROOT

PAGE = (DOCS / "threat-model.md").read_text(encoding="utf-8")
#: A test is named by a link to its file, with its name as the text.
LINK = re.compile(r"\[`(\w+)`\]\(\.\./(tests/[\w/]+\.py)\)")


def section(title):
    """The text below a heading, up to the next of its level."""
    return PAGE.split(f"\n## {title}\n")[1].split("\n## ")[0]


def rows_of(title):
    """Rows of the table below a heading."""
    lines = [line for line in section(title).splitlines() if line.startswith("| ")]
    return lines[1:]


@pytest.mark.parametrize("row", rows_of("Promises"))
def test_every_promise_names_a_test(row):
    assert LINK.search(row), "no test holds this promise: it leaves the page, or gets one"


@pytest.mark.parametrize("row", rows_of("Leaks, guards, and their price"))
def test_every_guard_names_a_test(row):
    assert "](../tests/" in row, "no test holds this guard: it leaves the page, or gets one"


def test_every_test_that_is_named_exists():
    named = sorted(set(LINK.findall(PAGE)))
    assert [
        (name, path)
        for name, path in named
        if f"\ndef {name}(" not in (ROOT / path).read_text(encoding="utf-8")
    ] == []


def test_there_are_promises_and_guards_to_look_at():
    assert len(rows_of("Promises")) >= 20
    assert len(rows_of("Leaks, guards, and their price")) >= 15
