"""A coefficient table as people read it: text and LaTeX."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from weft.inference.coefficient_summary import Summary

#: Part of a ratio below which an interval is told in digits of its own, and the most of these.
_NARROW, _MOST_DECIMALS = 0.01, 15
_KINDS = {
    "model": "by the model",
    "robust": "robust (sandwich)",
    "clustered": "robust, clustered by site",
}


def as_text(summary: Summary) -> str:
    """A table in plain text, and the measures under it."""
    rows = [_titles(summary), *(_row(summary, at) for at in range(len(summary.names)))]
    widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
    lines = [
        "  ".join(
            cell.ljust(width) if k == 0 else cell.rjust(width)
            for k, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]
    parties = "1 party" if summary.sites == 1 else f"{summary.sites} parties"
    head = (
        f"{summary.family} model, {summary.samples:,} samples, {parties}, λ = {summary.lam:g}; "
        f"standard errors {_KINDS[summary.kind]}"
    )
    if summary.reference is not None:
        head += f"; each class against '{summary.reference}'"
    return "\n".join(
        [head, "", lines[0], "─" * max(map(len, lines)), *lines[1:], "", *_notes(summary)]
    )


def _titles(summary: Summary) -> list[str]:
    percent = f"{100 * summary.level:g} %"
    titles = ["", "coefficient", "std. error", summary.statistic_name, "p", f"{percent} interval"]
    if summary.ratio_name is not None:
        titles += [summary.ratio_name, f"{percent} interval"]
    return [*titles, "certified ±", "VIF"]


def _row(summary: Summary, at: int, number: Callable[[float], str] | None = None) -> list[str]:
    say = number or figure
    low, high = float(summary.low[at]), float(summary.high[at])
    cells = [
        str(summary.names[at]),
        say(float(summary.coef[at])),
        say(float(summary.errors[at])),
        f"{summary.statistics[at]:.3f}",
        chance(float(summary.p[at])),
        f"{say(low)} … {say(high)}",
    ]
    if summary.ratio_name is not None:
        with np.errstate(over="ignore"):
            ratios = (float(np.exp(value)) for value in (summary.coef[at], low, high))
            here, below, above = ratio_figures(*ratios)
        cells += [here, f"{below} … {above}"]
    inflation, distance = float(summary.inflation[at]), float(summary.distance[at])
    cells.append("none" if not np.isfinite(distance) else f"{distance:.1e}")
    cells.append("" if np.isnan(inflation) else f"{inflation:.2f}")
    return cells


def figure(value: float) -> str:
    """Five digits, without a tail of noughts or an exponent where none is needed."""
    return f"{value:.5g}" if np.isfinite(value) else "–"


def ratio_figures(here: float, low: float, high: float) -> tuple[str, str, str]:
    """A ratio with its interval, in as many digits as tell its ends apart.

    By one unit of a column in tiny units, such as one dollar of a limit, hardly anything changes.
    """
    width = high - low
    if not 0.0 < width < _NARROW * here or here > 1.0 / _NARROW:
        return figure(here), figure(low), figure(high)
    decimals = min(_MOST_DECIMALS, 1 - math.floor(math.log10(width)))
    return f"{here:.{decimals}f}", f"{low:.{decimals}f}", f"{high:.{decimals}f}"


def chance(value: float) -> str:
    """A p-value, of which very small ones are as good as nothing."""
    return "< 1e-16" if value < 1e-16 else f"{value:.4g}"


def measure_lines(summary: Summary) -> list[tuple[str, str]]:
    """Names and values of all measures that are known."""
    found = summary.measures
    told: list[tuple[str, float | None]] = [
        ("deviance", found.deviance),
        ("null deviance", found.null_deviance),
        ("R²" if summary.family == "gaussian" else "deviance explained", found.explained),
        ("pseudo-R² (McFadden)", found.pseudo_r2),
        ("dispersion", found.dispersion),
        ("log-likelihood", found.log_likelihood),
        ("AIC", found.aic),
        ("BIC", found.bic),
    ]
    return [(name, f"{value:.6g}") for name, value in told if value is not None]


def _notes(summary: Summary) -> list[str]:
    lines = ["; ".join(f"{name} {value}" for name, value in measure_lines(summary))]
    if np.isfinite(summary.distance).all():
        share = float((summary.distance / summary.errors).max())
        lines.append(
            "certified ±: the estimate of the pooled table is proved to be no farther, "
            f"{share:.1e} standard errors at most"
        )
    else:
        lines.append(
            "certified ±: for some estimates nothing is proved yet; train to a smaller gap"
        )
        if summary.last_step is not None:
            lines.append(
                "one more step from the model moves no estimate by more than "
                f"{summary.last_step:.1e} standard errors"
            )
    lost = len(summary.names) - summary.measures.coefficients
    if lost > 0.01:
        lines.append(
            f"λ holds coefficients back, by {lost:.2g} of {len(summary.names)} in all: standard "
            "errors are those of held-back estimates, and intervals are about what these estimate"
        )
    return lines


# ── LaTeX ─────────────────────────────────────────────────────────────────────────────────────

_SIGNS = str.maketrans(
    {
        **{sign: f"\\{sign}" for sign in "&%$#_{}"},
        "~": r"\textasciitilde{}",
        "^": r"\textasciicircum{}",
        "\\": r"\textbackslash{}",
        "…": r"\ldots{}",
        "λ": r"$\lambda$",
        "²": r"$^2$",
        "−": "$-$",
        "<": "$<$",
        "±": r"$\pm$",
        "–": "--",
    }
)


def as_latex(summary: Summary) -> str:
    """A table for the package booktabs."""
    rows = [_row(summary, at) for at in range(len(summary.names))]
    titles = _titles(summary)
    lines = [
        f"\\begin{{tabular}}{{l{'r' * (len(titles) - 1)}}}",
        "\\toprule",
        " & ".join(title.translate(_SIGNS) for title in titles) + " \\\\",
        "\\midrule",
        *(" & ".join(cell.translate(_SIGNS) for cell in row) + " \\\\" for row in rows),
        "\\bottomrule",
        "\\end{tabular}",
    ]
    told = "; ".join(f"{name} {value}" for name, value in measure_lines(summary))
    return "\n".join([*lines, "", f"% {told}", ""])
