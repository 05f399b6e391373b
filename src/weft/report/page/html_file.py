"""The page as a whole, which loads nothing: style, script and data stand in the file itself."""

from __future__ import annotations

import base64
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

from weft.report.json_safe_and_rounded_values import finite
from weft.report.page.accuracy import accuracy_section
from weft.report.page.coefficients import coefficients_section
from weft.report.page.costs import costs_section
from weft.report.page.evaluation_section import evaluation_section
from weft.report.page.gap_and_loss_curves import curves_of, curves_section
from weft.report.page.holdings_section import tiles_of, tiles_section
from weft.report.page.html_elements import Html, el, embedded, join
from weft.report.page.largest_model_weights import weights_of, weights_section
from weft.report.page.overview import overview
from weft.report.page.privacy import privacy_section
from weft.report.page.read_results_folder import Source, read_folder
from weft.report.page.rerun_instructions import rerun_section
from weft.storage.atomic_files import replacing

#: Name of the file in a results folder.
PAGE = "report.html"
_SCRIPTS = ("drawing.js", "chart.js", "picture.js", "weights.js", "page.js")
_PARTS = (
    ("coefficients", "Coefficients"),
    ("evaluation", "Prediction"),
    ("accuracy", "Accuracy"),
    ("tiles", "Who holds what"),
    ("convergence", "Convergence"),
    ("costs", "Costs"),
    ("weights", "Weights"),
    ("privacy", "Who saw what"),
    ("rerun", "Run it again"),
)


def write_page(folder: Path, path: Path, *, latency: float | None = None) -> None:
    """Write the report of a results folder, from the files in it, whole or not at all.

    Parameters
    ----------
    latency
        Seconds of a round trip that the page begins with; None: those of the run's settings.
    """
    source = read_folder(folder, latency)
    with replacing(path) as draft:
        if source.model is not None:
            # As the model file itself, whose weights it tells.
            draft.touch(mode=0o600)
        draft.write_text(page_of(source), encoding="utf-8")


def add_page(folder: Path) -> str | None:
    """Write the report into a new results folder; a sentence where that fails, else None.

    A run may have taken days: whatever is wrong with its page must not cost it its model.
    """
    try:
        write_page(folder, folder / PAGE)
    except Exception as error:
        return (
            f"no {PAGE}: it could not be written ({type(error).__name__}: {error}); everything "
            "else is there, and weft report tries again"
        )
    return None


def page_of(source: Source) -> str:
    """The HTML of a page."""
    tiles, curves = tiles_of(source), curves_of(source)
    weights = None if source.is_comparison else weights_of(source)
    parts = {
        "coefficients": coefficients_section(source),
        "tiles": tiles_section(source, tiles),
        "convergence": curves_section(source, curves),
        "costs": costs_section(source),
        "evaluation": evaluation_section(source),
        "accuracy": accuracy_section(source),
        "weights": Html() if source.is_comparison else weights_section(source, weights),
        "privacy": privacy_section(source),
        "rerun": rerun_section(source),
    }
    shown = [(key, title) for key, title in _PARTS if parts[key]]
    contents = el(
        "nav",
        *(el("a", title, href=f"#{key}") for key, title in shown),
        id="contents",
        aria_label="Contents",
    )
    silent = "The pictures need JavaScript; all tables are here without it."
    return document(
        source.summary["name"],
        el("main", overview(source), contents, el("noscript", el("p", silent)),
           *(parts[key] for key, _ in shown), el("a", "Contents", href="#contents", cls="up")),
        version=source.summary["weft"],
        data={"tiles": tiles, "curves": curves, "weights": weights},
    )  # fmt: skip


def document(title: str, main: Html, *, version: str, data: dict[str, Any] | None = None) -> str:
    """A whole file around the main part of a page; without data it needs no script."""
    style, scripts = asset("page.css"), list[Html]()
    script = Html()
    if data is not None:
        script = Html("\n".join(asset(name) for name in _SCRIPTS))
        scripts = [embedded(finite(data), "data"), el("script", script)]
    body = el(
        "body",
        main,
        el("footer", f"Written by Weft {version}. This file loads nothing from anywhere."),
        *scripts,
    )
    head = el(
        "head",
        el("meta", charset="utf-8"),
        el("meta", http_equiv="Content-Security-Policy", content=_policy(style, script)),
        el("meta", name="viewport", content="width=device-width, initial-scale=1"),
        el("meta", name="color-scheme", content="light dark"),
        el("meta", name="referrer", content="no-referrer"),
        el("title", f"{title} · Weft"),
        el("style", style),
    )
    return join([Html("<!doctype html>\n"), el("html", head, body, lang="en"), "\n"])


def _policy(style: str, script: str) -> str:
    """Nothing from outside, and inside only this style and this script."""
    return (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )


def digest(text: str) -> str:
    """By which a policy allows this style or script, and no other."""
    return f"sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}"


@cache
def asset(name: str) -> Html:
    """A style or a script of pages."""
    return Html(files("weft.report.page").joinpath(name).read_text("utf-8"))
