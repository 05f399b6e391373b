"""For the site of the documents: links to files of the repository become the files' names.

Pages link to code, tests and the README by paths that lead out of ``docs``, which a site does not
have.
"""

from __future__ import annotations

import posixpath
import re
from typing import Any

_LINK = re.compile(r"(?<!!)\[([^\]]*)\]\(([^)\s]+)\)")


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Called for every page before it is turned into HTML."""
    folder = posixpath.dirname(page.file.src_uri)

    def without(link: re.Match[str]) -> str:
        text, target = link.groups()
        if "://" in target or target.startswith("#"):
            return link[0]
        path = posixpath.normpath(posixpath.join(folder, target.partition("#")[0]))
        if not path.startswith("../"):
            return link[0]
        name = path.removeprefix("../")
        return text if name in text else f"{text} (`{name}`)"

    return _LINK.sub(without, markdown)
