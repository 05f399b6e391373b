"""HTML from Python: whatever is not made here is escaped."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any


class Html(str):
    """Text that is HTML already."""

    __slots__ = ()


def el(tag: str, /, *children: object, **attributes: object) -> Html:
    """An element; children that are no `Html` are escaped, and so is every attribute.

    ``cls`` stands for ``class``, and an underscore for a dash. An attribute that is True has no
    value, one that is False or None is left out.
    """
    given = []
    for key, value in attributes.items():
        shown = "class" if key == "cls" else key.rstrip("_").replace("_", "-")
        if value is True:
            given.append(f" {shown}")
        elif value is not None and value is not False:
            given.append(f' {shown}="{escape(str(value))}"')
    opened = f"<{tag}{''.join(given)}>"
    if tag in ("meta", "link", "input", "br"):
        return Html(opened)
    return Html(f"{opened}{join(children)}</{tag}>")


def join(children: Iterable[object]) -> Html:
    """Children one after the other."""
    return Html("".join(c if isinstance(c, Html) else escape(str(c)) for c in children))


def table(
    titles: Sequence[object],
    rows: Iterable[Sequence[object]],
    *,
    caption: str,
    numbers: Sequence[int] = (),
    cls: str = "",
) -> Html:
    """A table with headers; the first cell of a row is its header.

    Parameters
    ----------
    numbers
        Columns to align on the right.
    """

    def side(column: int) -> str | None:
        return "n" if column in numbers else None

    head = [el("th", title, scope="col", cls=side(i)) for i, title in enumerate(titles)]
    body = []
    for row in rows:
        cells = [
            el("td", cell, cls=side(i)) if i else el("th", cell, scope="row")
            for i, cell in enumerate(row)
        ]
        body.append(el("tr", *cells))
    whole = el(
        "table",
        el("caption", caption),
        el("thead", el("tr", *head)),
        el("tbody", *body),
        cls=cls or None,
    )
    return el("div", whole, cls="scroll", tabindex="0", role="region", aria_label=caption)


def facts(pairs: Iterable[tuple[str, object]]) -> Html:
    """Names and values."""
    return el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in pairs))


def items(sentences: Iterable[object], cls: str | None = None) -> Html:
    """A list, without one if there is nothing to list."""
    entries = [el("li", sentence) for sentence in sentences]
    return el("ul", *entries, cls=cls) if entries else Html()


def section(key: str, title: str, *children: object) -> Html:
    """A part of the page with a heading that can be linked to."""
    heading = el("h2", title, id=f"{key}-title")
    return el("section", heading, *children, id=key, aria_labelledby=f"{key}-title")


def embedded(data: Any, key: str) -> Html:
    """Data for scripts, in which nothing can end the element or begin a comment."""
    text = json.dumps(data, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return el("script", Html(text), type="application/json", id=key)
