"""The live page: the report's style, a script that draws what it is told, nothing from outside."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from weft import __version__
from weft.network.console.shared_view_records import UNDER_WAY, FederationView
from weft.network.run_status_line import wait_text
from weft.report.json_safe_and_rounded_values import finite
from weft.report.page.html_elements import Html, el, embedded, join, section
from weft.report.page.html_file import asset, digest

#: Where the page asks how things stand, beside its own address.
STATE = "state.json"
#: Runs that are over and shown: a coordinator has them for years.
_MOST_OVER = 50
_PARTS = (
    ("runs", "Runs"),
    ("sites", "Sites"),
    ("exposure", "Exposure"),
    ("machine", "This machine"),
)


def page_of(view: FederationView) -> str:
    """The HTML of the page, with what it shows first."""
    style, script = _style(), _script()
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        # Browsers ask for a picture otherwise, which there is none of.
        el("link", rel="icon", href="data:,"),
        el("title", f"{view.federation} · Weft"),
        el("style", style),
    )
    top = el(
        "header",
        el("p", "Weft · live", cls="kind"),
        el("h1", view.federation),
        el("p", "", id="headline", cls="lead", role="status"),
        el("p", "", id="freshness", cls="note"),
    )
    contents = el(
        "nav",
        *(el("a", title, href=f"#{key}") for key, title in _PARTS),
        aria_label="Contents",
    )
    parts = [section(key, title, el("div", id=f"{key}-body")) for key, title in _PARTS]
    silent = "This page needs JavaScript; weft status says the same in the terminal."
    foot = f"Shown by Weft {__version__} on this machine only. Nothing can be changed from here."
    body = el(
        "body",
        el("main", top, contents, el("noscript", el("p", silent)), *parts),
        el("footer", foot),
        embedded(state_of(view), "data"),
        el("script", script),
    )
    return join([Html("<!doctype html>\n"), el("html", head, body, lang="en"), "\n"])


def state_of(view: FederationView) -> dict[str, Any]:
    """What the page's script is told: of runs that are over, the last ones."""
    over = [run for run in view.runs if run.state not in UNDER_WAY]
    going = [run for run in view.runs if run.state in UNDER_WAY]
    shown = msgspec.structs.replace(view, runs=[*going, *over[:_MOST_OVER]])
    plain: dict[str, Any] = finite(msgspec.to_builtins(shown))
    plain["earlier"] = len(over[_MOST_OVER:])
    for run in plain["runs"]:
        run["waits"] = wait_text(run["wait"]) if run["wait"] else ""
    return plain


@cache
def content_policy() -> str:
    """Nothing from outside; inside only this style, this script, and questions to this server."""
    return (
        f"default-src 'none'; style-src '{digest(_style())}'; script-src '{digest(_script())}'; "
        "img-src data:; connect-src 'self'; base-uri 'none'; form-action 'none'; "
        "frame-ancestors 'none'"
    )


@cache
def _style() -> Html:
    return Html(asset("page.css") + _own("console.css"))


@cache
def _script() -> Html:
    return Html("\n".join((asset("drawing.js"), _own("gap_chart.js"), _own("console.js"))))


def _own(name: str) -> str:
    return files("weft.network.console").joinpath(name).read_text("utf-8")
