"""Links between Weft's documents lead somewhere: to files that are there, and headings in them."""

from __future__ import annotations

import re
from functools import cache

import pytest
from pages import DOCS, ROOT

PAGES = [*sorted(ROOT.glob("*.md")), *sorted(DOCS.rglob("*.md"))]
_CODE = re.compile(r"^```.*?^```$|`[^`\n]*`", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_PATH = re.compile(r"`((?:src|tests|docs|benchmarks|fuzz)/[\w./-]+)(?::[\w.]+)?`")
_HEADING = re.compile(r"^#+ +(.*)$", re.MULTILINE)


@cache
def anchors(page):
    """Names by which code hosts link to headings: small letters, hyphens, no other signs."""
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    plain = [re.sub(r"[`*]|\[|\]\([^)]*\)", "", heading) for heading in _HEADING.findall(text)]
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in plain}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_relative_link_of_a_page_resolves(page):
    for link in _LINK.findall(_CODE.sub("", page.read_text())):
        path, _, anchor = link.partition("#")
        if "://" in path or path.startswith("mailto:"):
            continue
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{page.name} links to {path}, which is not there"
        if anchor:
            assert anchor in anchors(target), f"{page.name}: {target.name} has no heading {anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_path_of_the_repository_that_a_page_names_exists(page):
    for path in _PATH.findall(page.read_text()):
        assert (ROOT / path).exists(), f"{page.name} names {path}, which is not there"


def test_every_document_can_be_reached_from_the_readme():
    found, open_ = set(), [ROOT / "README.md"]
    while open_:
        page = open_.pop()
        found.add(page)
        for link in _LINK.findall(_CODE.sub("", page.read_text())):
            target = (page.parent / link.partition("#")[0]).resolve()
            if target.suffix == ".md" and target.exists() and target not in found:
                open_.append(target)
    assert found >= set(PAGES)
