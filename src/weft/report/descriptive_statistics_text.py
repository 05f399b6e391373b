"""A description in words and rows, for the screen and for its page."""

from __future__ import annotations

from typing import Any

from weft.report.number_format import count, names


def number(value: float | None) -> str:
    """A figure of a column."""
    return "–" if value is None else f"{value:.4g}"


def quantile_text(found: dict[str, Any] | None, *, exact: bool = False) -> str:
    """A quantile; beyond the last edge only on which side of it."""
    if found is None:
        return "–"
    if found["value"] is None:
        if found["low"] is not None:
            return f"≥ {number(found['low'])}"
        return f"< {number(found['high'])}" if found["high"] is not None else "–"
    bound = f" ± {found['bound']:.2g}" if exact else ""
    return f"{number(found['value'])}{bound}"


def number_rows(told: dict[str, Any]) -> list[list[str]]:
    """Columns of numbers, and a response."""
    columns = list(told["columns"])
    if "response" in told["outcome"]:
        columns.append(told["outcome"]["response"])
    return [
        [
            column["name"],
            f"{column['cells']:,}",
            f"{column['missing']:,}",
            number(column["mean"]),
            number(column["sd"]),
            quantile_text(column["quantiles"].get("0.5")),
        ]
        for column in columns
    ]


def level_rows(told: dict[str, Any]) -> list[list[str]]:
    """Levels of categories, and those that few have together."""
    rows = []
    for category in told["categories"]:
        rows += [
            [f"{category['name']} = {level}", *_share(held, category["cells"])]
            for level, held in category["levels"].items()
        ]
        if category["other"]:
            rows.append(
                [f"{category['name']}: any other", *_share(category["other"], category["cells"])]
            )
    return rows


def outcome_rows(told: dict[str, Any]) -> list[list[str]]:
    """Classes in all and by site."""
    outcome = told["outcome"]
    if "response" in outcome:
        return []
    rows = _classes("all", outcome)
    for site, found in outcome["sites"].items():
        rows += _classes(site, found)
    return rows


def _classes(where: str, found: dict[str, Any]) -> list[list[str]]:
    samples = sum(found["classes"].values()) + found["unsaid"]
    rows = [
        [f"{where}: {name}", *_share(held, samples)]
        for name, held in found["classes"].items()
        if held
    ]
    if found["unsaid"]:
        rows.append([f"{where}: not told, some are few", *_share(found["unsaid"], samples)])
    return rows


def _share(held: int, of: int) -> tuple[str, str]:
    return f"{held:,}", f"{held / of:.1%}" if of else "–"


def remarks(told: dict[str, Any]) -> list[str]:
    """What the figures leave out."""
    least = told["min_batch"]
    said = []
    if least > 1:
        said.append(
            f"the samples are those that a run would train on: groups of fewer than {least}, and "
            "samples of classes that fewer of their group have, are left out unsaid"
        )
        said.append(
            f"every count is made of {least} samples of a party at least, or none: if fewer cells "
            "of a column are blank at a party, they count as its median, if fewer are known, as "
            "blank; levels and values that fewer have count with others; cells far out count as "
            "less far"
        )
    said.append(
        "quantiles are in the middle of the interval that they lie in; the page and --json say how "
        "far off each can be"
    )
    for one in told["untold"]:
        said.append(
            f"{count(one['columns'], 'column')} of {names(one['holders'])} are not described: so "
            "few hold them, and allow_site_statistics is not agreed on"
        )
    outcome = told["outcome"]
    kept = set(told["parties"]) - set(outcome["sites"])
    if kept:
        said.append(
            "outcomes by site are told by those with labels whose terms have allow_site_statistics"
        )
    if "correlation_run" in told:
        said.append(
            "correlations of all columns are at the sites that get the model of run "
            f"{told['correlation_run']}: correlations.csv, beside it"
        )
    return said
