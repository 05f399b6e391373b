"""The coefficient table as a forest plot: ratios with their intervals, row by row."""

from __future__ import annotations

import math
from typing import Any

from weft.inference.coefficient_table_text import ratio_figures
from weft.report.number_format import capital
from weft.report.page.html_elements import Html, el, facts, join, section, table
from weft.report.page.read_results_folder import Source

#: Rows that are shown at once; a file beside the page has all.
_MOST = 60
#: Part of the picture that is left free on either side.
_MARGIN = 0.04
_KINDS = {
    "model": "Standard errors follow from the model's own distribution.",
    "robust": "Standard errors are robust: from squared residuals, whatever the distribution.",
    "clustered": "Standard errors are robust and clustered: samples of a site may go together.",
}


def coefficients_section(source: Source) -> Html:
    """Coefficients or ratios with intervals; nothing where the run made none."""
    found = source.summary.get("inference")
    if not found:
        return Html()
    if found.get("why_not"):
        told = capital(f"the run was asked for standard errors, but {found['why_not']}")
        return section("coefficients", "Coefficients", el("p", told))
    ratio, level = found["ratio"], f"{100 * found['level']:g} %"
    # The largest effect first, by how sure it is; the intercept compares nothing.
    rows = [row for row in found["rows"] if not row["name"].endswith("(intercept)")]
    rows.sort(key=lambda row: -abs(row[found["statistic"]] or 0.0))
    shown = rows[:_MOST]
    scale = _Scale(shown, ratio is not None)
    lines = [_line(row, scale, ratio is not None) for row in shown]
    axis = join([el("small", "← less · ", scale.middle, " · more →"), scale.axis()])
    name = ratio or "coefficient"
    grid = table(
        ["column", axis, f"{name} ({level} interval)", "p"],
        lines,
        caption=f"{capital(name)[:-1]} by column, for one unit of it, the surest first",
        numbers=(2, 3),
        cls="forest",
    )
    words = [_words(ratio), _KINDS[found["kind"]]]
    if found.get("reference") is not None:
        words.append(f"Odds are those of each class against '{found['reference']}'.")
    if len(rows) > len(shown):
        words.append(f"{len(rows) - len(shown)} more columns are in coefficients.csv.")
    return section(
        "coefficients",
        "Coefficients",
        el("p", " ".join(words)),
        grid,
        facts(_measures(found)),
        el("p", _certified(found), cls="note"),
        el(
            "p",
            "All figures are in coefficients.csv, and for papers in coefficients.tex.",
            cls="note",
        ),
    )


def _words(ratio: str | None) -> str:
    if ratio is None:
        return "By how much the response changes with one unit of a column, all others the same."
    what = {"odds ratio": "odds are", "rate ratio": "rate is"}.get(ratio, "mean is")
    return f"By what the {what} multiplied for one more unit of a column, all others the same."


def _measures(found: dict[str, Any]) -> list[tuple[str, object]]:
    named = (
        ("deviance", "deviance"),
        ("null_deviance", "null deviance"),
        ("explained", "deviance explained"),
        ("pseudo_r2", "pseudo-R² (McFadden)"),
        ("dispersion", "dispersion"),
        ("aic", "AIC"),
        ("bic", "BIC"),
    )
    known = found["measures"]
    return [(name, f"{known[key]:.5g}") for key, name in named if known.get(key) is not None]


def _certified(found: dict[str, Any]) -> str:
    """How far the pooled estimate can be, in standard errors."""
    shares = []
    for row in found["rows"]:
        if row["certified_high"] is None:
            return (
                "For some coefficients nothing is proved yet of how far the estimate of the pooled "
                "table is; train to a smaller gap."
            )
        shares.append((row["certified_high"] - row["high"]) / row["standard_error"])
    return (
        "The estimates of the pooled table are proved to be no farther than "
        f"{max(shares):.1e} standard errors from these."
    )


class _Scale:
    """Where values lie in a picture; ratios by their logarithm, so that 2 and ½ are as far."""

    def __init__(self, rows: list[dict[str, Any]], ratio: bool) -> None:
        ends = [row[key] for row in rows for key in ("low", "high") if row[key] is not None]
        reach = max((abs(end) for end in ends), default=1.0) or 1.0
        #: One column with a wide interval must not press all others together.
        usual = sorted(abs(end) for end in ends)
        self._most = min(reach, 4.0 * usual[int(0.75 * (len(usual) - 1))]) if usual else 1.0
        self._ratio = ratio
        self.middle = "1" if ratio else "0"

    def place(self, value: float) -> float:
        """Between 0 and 1, at the edge where it is beyond."""
        part = 0.5 + 0.5 * (1.0 - 2.0 * _MARGIN) * value / self._most
        return min(max(part, 0.0), 1.0)

    def at(self, value: float) -> str:
        return f"{100 * self.place(value):.2f}%"

    def axis(self) -> Html:
        """The values at a quarter of the way to either side."""
        marks = []
        for share in (-1.0, -0.5, 0.0, 0.5, 1.0):
            value = share * self._most
            shown = math.exp(min(value, 700.0)) if self._ratio else value
            side = {-1.0: "tick", 1.0: "tick end"}.get(share, "tick mid")
            marks.append(el("text", f"{shown:.3g}", x=self.at(value), y="90%", cls=side))
        return el("svg", *marks, cls="bar axis", aria_hidden="true")


def _line(row: dict[str, Any], scale: _Scale, ratio: bool) -> list[object]:
    low, high, here = row["low"], row["high"], row["coefficient"]
    keys = ("ratio", "ratio_low", "ratio_high") if ratio else ("coefficient", "low", "high")
    value, below, above = (row[key] for key in keys)
    told = tuple(_figure(each) for each in (value, below, above))
    if ratio and None not in (value, below, above):
        told = ratio_figures(value, below, above)
    figures = f"{told[0]} ({told[1]} – {told[2]})"
    p = row["p"]
    return [
        row["name"],
        _picture(scale, low, here, high),
        figures,
        "–" if p is None else "< 0.0001" if p < 1e-4 else f"{p:.4f}",
    ]


def _picture(scale: _Scale, low: float, here: float, high: float) -> Html:
    """An interval with its estimate, and a line where nothing changes."""
    clear = "k1" if low > 0 or high < 0 else "kgrey"
    parts = [
        el("line", x1="50%", x2="50%", y1="0", y2="100%", cls="majority"),
        el(
            "line", x1=scale.at(low), x2=scale.at(high), y1="50%", y2="50%", cls=f"interval {clear}"
        ),
    ]
    for end in (low, high):
        # Without a cap: it goes on beyond the picture.
        if 0.0 < scale.place(end) < 1.0:
            x = scale.at(end)
            parts.append(el("line", x1=x, x2=x, y1="25%", y2="75%", cls=f"interval {clear}"))
    parts.append(el("circle", cx=scale.at(here), cy="50%", r="4", cls="f0"))
    return el("svg", *parts, cls="bar", aria_hidden="true")


def _figure(value: float | None) -> str:
    return "∞" if value is None else f"{value:.4g}"
