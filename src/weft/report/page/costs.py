"""What a run cost, phase by phase."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from weft.report.number_format import algorithm_name, count, seconds, size
from weft.report.page.html_elements import Html, el, join, section, table
from weft.report.page.phase_names import activity_of, name_of
from weft.report.page.read_results_folder import Source

#: Bars that can be shown, each of one or two fields of a phase.
METRICS = {
    "bytes": ("bytes", ("bytes_down", "bytes_up")),
    "slowest": ("seconds of the slowest party", ("slowest",)),
    "total": ("seconds of all parties", ("total",)),
    "calls": ("calls", ("calls",)),
}


def costs_section(source: Source) -> Html:
    """Of a run its phases, of a comparison those of each algorithm."""
    if source.is_comparison:
        rows = [row for row in source.summary["results"] if row.get("phases")]
        if not rows:
            return _unknown()
        parts = [
            el(
                "details",
                el("summary", algorithm_name(row)),
                _phases(row["phases"], row["algorithm"]),
            )
            for row in rows
        ]
        told = "Open an algorithm to see what its phases cost."
        return section("costs", "Costs", _choice(), el("p", told, cls="note"), *parts)
    phases = source.summary.get("phases")
    if not phases:
        return _unknown()
    return section(
        "costs",
        "Costs",
        *(el("p", sentence) for sentence in _sentences(source)),
        _choice(),
        _phases(phases, source.summary["name"]),
    )


def _unknown() -> Html:
    told = "This folder does not say what each phase cost; it was written by an older Weft."
    return section("costs", "Costs", el("p", told, cls="note"))


def _choice() -> Html:
    buttons = [
        el("button", title, type="button", data_metric=key, aria_pressed=str(not i).lower())
        for i, (key, (title, _)) in enumerate(METRICS.items())
    ]
    chips = [
        el("span", el("svg", el("rect", width="100%", height="100%", cls=look), cls="chip"), words)
        for look, words in (("f0", "to the parties"), ("f0 t1", "from them"))
    ]
    return el(
        "div",
        el("div", *buttons, cls="choice", role="group", aria_label="Bars show"),
        el("span", *chips, cls="key", id="cost-key"),
        cls="controls",
    )


def _sentences(source: Source) -> list[str]:
    """What the whole cost, and how much of that encryption took."""
    summary = source.summary
    cost, phases = summary["cost"], summary["phases"].values()
    said = [
        f"{count(cost['round_trips'], 'round trip')}, {size(cost['bytes_down'])} to the parties "
        f"and {size(cost['bytes_up'])} from them; {seconds(cost['compute_seconds'])} of computing "
        f"if parties work side by side, {seconds(cost['wall_seconds'])} on the clock of this run."
    ]
    counted = sum(phase["bytes_down"] + phase["bytes_up"] for phase in phases)
    if source.is_networked:
        said.append(
            "Bytes and seconds are rounded: exact ones would tell how much the parties hold."
        )
    elif counted < cost["bytes_down"] + cost["bytes_up"]:
        said.append("The run was interrupted and resumed: phases count from then on.")
    spent = summary["encryption"]
    everybody, coordinator = spent["parties"], spent["coordinator"]
    cipher = summary["settings"]["cipher"]
    if everybody is None:
        said.append(
            f"Encryption ({cipher}) took the coordinator {seconds(coordinator['seconds'])}; what "
            "it took the parties only they know."
        )
    else:
        total = sum(phase["total"] for phase in phases)
        share = f", {everybody['seconds'] / total:.0%} of their computing" if total else ""
        said.append(
            f"Encryption ({cipher}) took all parties together {seconds(everybody['seconds'])}"
            f"{share}, the slowest {seconds(spent['slowest']['seconds'])} and the coordinator "
            f"{seconds(coordinator['seconds'])}: {count(everybody['encrypted'], 'value')} "
            f"encrypted, {everybody['decrypted']:,} opened, {coordinator['added']:,} added, "
            f"{size(everybody['bytes'] + coordinator['bytes'])}."
        )
    return said


def _phases(phases: dict[str, dict[str, Any]], whose: str) -> Html:
    """What a run did, and below, for who wants it, every phase by itself."""
    activities: dict[str, dict[str, Any]] = {}
    for phase, cost in phases.items():
        total = activities.setdefault(activity_of(phase), dict.fromkeys(cost, 0))
        for key, value in cost.items():
            total[key] += value
    every = _table(
        [(el("span", name_of(phase), el("code", phase)), cost) for phase, cost in phases.items()],
        first="phase",
        caption=f"Every phase of {whose}",
    )
    return join(
        [
            _table(list(activities.items()), first="activity", caption=f"Costs of {whose}"),
            el("details", el("summary", f"All {count(len(phases), 'phase')}"), every),
        ]
    )


def _table(lines: Sequence[tuple[object, dict[str, Any]]], *, first: str, caption: str) -> Html:
    """Four columns, so that it fits a telephone: bars stand below the names."""
    most = {
        key: max((sum(cost[f] for f in fields) for _, cost in lines), default=0) or 1
        for key, (_, fields) in METRICS.items()
    }
    rows = [
        [
            join([name, _bar(cost, most)]),
            f"{cost['calls']:,}",
            _two(size(cost["bytes_down"]), size(cost["bytes_up"])),
            _two(seconds(cost["slowest"]), seconds(cost["total"])),
        ]
        for name, cost in lines
    ]
    titles = [
        first,
        "calls",
        _two("to parties", "from them"),
        _two("slowest", "all parties"),
    ]
    return table(titles, rows, caption=caption, numbers=(1, 2, 3), cls="phases")


def _two(one: str, other: str) -> Html:
    """Two figures of one cell, below each other."""
    return el("span", el("span", one), el("span", other, cls="second"), cls="two")


def _bar(cost: dict[str, Any], most: dict[str, float]) -> Html:
    """Widths for every metric; the script shows one, without it bytes stay."""
    widths = {
        key: [round(100 * cost[field] / most[key], 2) for field in fields]
        for key, (_, fields) in METRICS.items()
    }
    down, up = widths["bytes"]
    return el(
        "svg",
        el("rect", width=f"{down}%", height="100%", cls="f0"),
        el("rect", x=f"{down}%", width=f"{up}%", height="100%", cls="f0 t1"),
        cls="bar",
        aria_hidden="true",
        data_widths=json.dumps(widths),
    )
