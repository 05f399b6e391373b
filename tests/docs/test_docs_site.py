"""The site of the documents has every page, without building it."""

from __future__ import annotations

import re
import runpy
from types import SimpleNamespace

import pytest
from pages import DOCS, ROOT

SITE = (ROOT / "mkdocs.yml").read_text("utf-8")


def test_every_page_is_in_the_contents_once():
    listed = re.findall(r": (\S+\.md)$", SITE.partition("\nnav:\n")[2], re.MULTILINE)
    pages = {str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md")}
    # Experiments are reached from their own page.
    pages -= {page for page in pages if page.count("/") > 1}
    assert sorted(listed) == sorted(pages)


@pytest.mark.parametrize(
    ("link", "shown"),
    [
        ("[report](report.md#costs)", "[report](report.md#costs)"),
        ("[README](../../README.md#x)", "README (`README.md`)"),
        ("[src/weft](../../src/weft)", "src/weft"),
        (
            "[above](#here) [out](https://weft.example)",
            "[above](#here) [out](https://weft.example)",
        ),
        ("![picture](../figures/a.png)", "![picture](../figures/a.png)"),
    ],
)
def test_links_out_of_the_documents_become_names(link, shown):
    hook = runpy.run_path(str(DOCS / "links_out_of_docs.py"))["on_page_markdown"]
    page = SimpleNamespace(file=SimpleNamespace(src_uri="extending/loss.md"))
    assert hook(link, page, config=None, files=None) == shown
