"""The page of a description: a picture of every column, levels, and outcomes by site."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft import __version__
from weft.report.descriptive_statistics_text import level_rows, number, quantile_text, remarks
from weft.report.number_format import capital, count, names
from weft.report.page.html_elements import Html, el, facts, items, join, section, table
from weft.report.page.html_file import document

#: Size of a picture in its own units, and the room for words below.
_WIDE, _HIGH, _BELOW = 320, 110, 18
_SHARES = {"0.05": "5 %", "0.25": "25 %", "0.5": "median", "0.75": "75 %", "0.95": "95 %"}
#: Colours of the page.
_COLOURS = 8


def description_page(told: dict[str, Any]) -> str:
    """The HTML of a page, which loads nothing and needs no script."""
    parts = {
        "outcome": ("Outcome", _outcome(told["outcome"])),
        "columns": ("Columns", _columns(told["columns"])),
        "levels": ("Categories", _levels(told)),
        "correlations": ("Correlations", _correlations(told)),
        "notes": ("What is left out", items(capital(said) for said in remarks(told))),
    }
    shown = {key: (title, part) for key, (title, part) in parts.items() if part}
    contents = el(
        "nav",
        *(el("a", title, href=f"#{key}") for key, (title, _) in shown.items()),
        id="contents",
        aria_label="Contents",
    )
    main = el(
        "main",
        _head(told),
        contents,
        *(section(key, title, part) for key, (title, part) in shown.items()),
        el("a", "Contents", href="#contents", cls="up"),
    )
    return document(told["name"], main, version=__version__)


def _head(told: dict[str, Any]) -> Html:
    columns = len(told["columns"]) + len(told["categories"])
    lead = (
        f"{count(columns, 'column')} of {names(told['parties'])}, described over all their "
        "holders. Nobody sent a cell: parties added sums and counts up under masks."
    )
    figures = [
        ("parties", f"{len(told['parties'])}"),
        ("samples", f"{told['samples']:,}"),
        ("columns", f"{columns:,}"),
        ("samples in a group, at least", f"{told['min_batch']}"),
    ]
    return el(
        "header",
        el("p", "Weft · description", cls="kind"),
        el("h1", told["name"]),
        el("p", lead, cls="lead"),
        facts(figures),
    )


def _columns(columns: Sequence[dict[str, Any]]) -> Html:
    return el("div", *(_card(column) for column in columns), cls="cards") if columns else Html()


def _card(column: dict[str, Any]) -> Html:
    """One column: its picture, and its figures."""
    missing = f", {column['missing']:,} blank" if column["missing"] else ""
    told = f"{column['cells']:,} cells{missing} · {names(column['holders'], 3)}"
    figures = [("mean", number(column["mean"])), ("SD", number(column["sd"]))]
    figures += [
        (title, quantile_text(column["quantiles"].get(share), exact=True))
        for share, title in _SHARES.items()
    ]
    return el(
        "figure",
        el("figcaption", el("strong", column["name"]), " ", el("span", told)),
        _histogram(column),
        el("dl", *(el("div", el("dt", name), el("dd", value)) for name, value in figures)),
        cls="card",
    )


def _histogram(column: dict[str, Any]) -> Html:
    """Bars of equal width, the middle half of all cells, and the median."""
    found = column["histogram"]
    if not found or not found["counts"]:
        return Html()
    edges, counts = found["edges"], found["counts"]
    low, span = edges[0], (edges[-1] - edges[0]) or 1.0
    # The last bar may be narrower: heights are counts per width.
    heights = [held / (b - a) for held, a, b in zip(counts, edges, edges[1:], strict=False)]
    top = max(heights) or 1.0

    def across(value: float) -> float:
        return float(_WIDE * (value - low) / span)

    bars = [
        el(
            "rect",
            x=f"{across(a):.1f}",
            y=f"{_HIGH * (1 - height / top):.1f}",
            width=f"{max(across(b) - across(a) - 0.6, 0.6):.1f}",
            height=f"{_HIGH * height / top:.1f}",
        )
        for height, a, b in zip(heights, edges, edges[1:], strict=False)
    ]
    middle = [column["quantiles"].get(share) for share in ("0.25", "0.5", "0.75")]
    marks = [
        el("line", x1=f"{across(q['value']):.1f}", x2=f"{across(q['value']):.1f}", y1=0, y2=_HIGH,
           cls="middle" if place == 1 else "quarter")
        for place, q in enumerate(middle) if q is not None and q["value"] is not None
    ]  # fmt: skip
    begin = f"{'≤ ' if found.get('below') else ''}{number(edges[0])}"
    end = f"{number(edges[-1])}{' ≤' if found.get('above') else ''}"
    said = f"{column['name']}: histogram from {begin} to {end}"
    return el(
        "svg",
        *bars,
        el("line", x1=0, x2=_WIDE, y1=_HIGH, y2=_HIGH, cls="floor"),
        *marks,
        el("text", begin, x=0, y=_HIGH + 14),
        el("text", end, x=_WIDE, y=_HIGH + 14, cls="end"),
        viewBox=f"0 0 {_WIDE} {_HIGH + _BELOW}",
        role="img",
        aria_label=said,
        cls="histogram",
    )


def _levels(told: dict[str, Any]) -> Html:
    rows = [
        [name, held, share, _bar(float(share.rstrip("%")) / 100 if share != "–" else 0.0)]
        for name, held, share in level_rows(told)
    ]
    if not rows:
        return Html()
    titles = ("level", "samples", "share", "")
    return table(titles, rows, caption="Samples by level", numbers=(1, 2))


def _bar(share: float) -> Html:
    part = el("rect", x=0, y="18%", width=f"{100 * share:.1f}%", height="64%", cls="f0")
    return el("svg", part, cls="bar", aria_hidden="true")


def _outcome(outcome: dict[str, Any]) -> Html:
    if "response" in outcome:
        response = _columns([outcome["response"]]) if outcome["response"]["cells"] else Html()
        rows = [
            [site, f"{one['cells']:,}", number(one["mean"]), number(one["sd"])]
            for site, one in outcome["sites"].items()
        ]
        titles = ("site", "samples", "mean", "SD")
        by_site = table(titles, rows, caption="The response by site", numbers=(1, 2, 3))
        return join([response, by_site if rows else ""])
    classes = list(outcome["classes"])
    everyone = [("all", outcome), *outcome["sites"].items()]
    rows = [
        [
            where,
            *(f"{one['classes'][name]:,}" for name in classes),
            f"{one['unsaid']:,}",
            _stack(one),
        ]
        for where, one in everyone
    ]
    named = ["site", *classes, "not told", ""]
    return table(
        named,
        rows,
        caption="Samples by outcome; where a class is of few, some are not told",
        numbers=range(1, len(named) - 1),
        cls="bars",
    )


def _stack(one: dict[str, Any]) -> Html:
    """Classes one after the other, as shares."""
    held = [*one["classes"].values(), one["unsaid"]]
    total, at, parts = sum(held) or 1, 0.0, []
    for place, number_ in enumerate(held):
        share = 100 * number_ / total
        look = "nobody" if place == len(held) - 1 else f"f{place % _COLOURS}"
        parts.append(
            el("rect", x=f"{at:.2f}%", y=0, width=f"{share:.2f}%", height="100%", cls=look)
        )
        at += share
    return el("svg", *parts, cls="bar", aria_hidden="true")


def _correlations(told: dict[str, Any]) -> Html:
    found = told.get("correlations")
    if not found:
        return Html()
    features, matrix = found["columns"], found["matrix"]
    size, cell = len(features), 14
    cells = [
        el("rect", el("title", f"{features[a]} and {features[b]}: {value:.2f}"), x=b * cell,
           y=a * cell, width=cell, height=cell, fill_opacity=f"{abs(value):.2f}",
           cls="f0" if value >= 0 else "f1")
        for a, row in enumerate(matrix) for b, value in enumerate(row)
    ]  # fmt: skip
    picture = el(
        "svg",
        *cells,
        viewBox=f"0 0 {size * cell} {size * cell}",
        role="img",
        aria_label="correlations of all columns",
        cls="correlations",
    )
    pairs = sorted(
        ((matrix[a][b], features[a], features[b]) for a in range(size) for b in range(a)),
        key=lambda pair: -abs(pair[0]),
    )[:20]
    rows = [[f"{one} and {other}", f"{value:.2f}"] for value, one, other in pairs]
    strongest = table(("columns", "correlation"), rows, caption="The strongest", numbers=(1,))
    said = (
        "Blue columns rise together, orange ones against each other. Rows and columns are, in this "
        f"order: {', '.join(features)}."
    )
    return join([picture, el("p", said, cls="note"), strongest])
