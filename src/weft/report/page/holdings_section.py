"""The picture of who holds what: groups of samples down, groups of features across."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from weft.report.number_format import count, names
from weft.report.page.html_elements import Html, el, section, table
from weft.report.page.read_results_folder import Source
from weft.report.sizes_and_holders_of_groups import LISTED, read_numbers, spelled

#: Groups that are drawn along an axis.
MOST_DRAWN = 160
#: Parties that the picture gives a colour each; of more it shows how many hold a cell.
MOST_NAMED = 24


def tiles_of(source: Source) -> dict[str, Any] | None:
    """What the picture needs, as plain values; None where the folder does not say it."""
    cohorts = source.summary.get("cohorts")
    if not cohorts or not cohorts["rows"] or not cohorts["columns"]:
        return None
    rows, more_rows = _drawn(cohorts["rows"], cohorts["more_rows"])
    columns, more_columns = _drawn(cohorts["columns"], cohorts["more_columns"])
    return {
        "parties": source.parties,
        "tileParty": cohorts["tile_party"],
        "rows": rows,
        "columns": columns,
        "moreRows": more_rows,
        "moreColumns": more_columns,
    }


def _drawn(
    groups: Sequence[dict[str, Any]], more: dict[str, int] | None
) -> tuple[list[dict[str, Any]], dict[str, int] | None]:
    """The largest groups in their order, and what is left."""
    largest = sorted(range(len(groups)), key=lambda at: -groups[at]["size"])[:MOST_DRAWN]
    kept = set(largest)
    left = [group for at, group in enumerate(groups) if at not in kept]
    rest = {
        "groups": len(left) + (more["groups"] if more else 0),
        "size": sum(group["size"] for group in left) + (more["size"] if more else 0),
    }
    return [groups[at] for at in sorted(kept)], rest if rest["groups"] else None


def party_of_tile(cohorts: dict[str, Any], tile: int) -> int:
    """The number of the party that a tile belongs to."""
    owners = cohorts["tile_party"]
    return tile if owners is None else int(owners[tile])


def holders(cohorts: dict[str, Any], group: dict[str, Any]) -> list[int]:
    """Numbers of the parties that hold a group."""
    return sorted({party_of_tile(cohorts, tile) for tile in read_numbers(group["tiles"])})


def feature_groups(source: Source) -> tuple[list[str], list[int]] | None:
    """Who holds each feature of the model: distinct sets of holders, and one for each feature.

    The summary says so where all tables were in one hand. Else a model still lists its features
    party by party, each with those that it answers for: of those that several hold, the first of
    them. Which of its features it shares with whom is then known if that is the same for all. None:
    the folder does not say.
    """
    cohorts, model = source.summary.get("cohorts"), source.model
    told = source.summary.get("feature_sets")
    if model is None or source.summary.get("gone"):
        return None
    if told:
        runs = [run.split("*") for run in told["runs"].split()]
        places = [int(place) for place, size in runs for _ in range(int(size))]
        return told["sets"], places
    if not cohorts or cohorts["more_columns"]:
        return None
    answered: dict[int, dict[str, int]] = {}
    for group in cohorts["columns"]:
        parties = holders(cohorts, group)
        alike = answered.setdefault(parties[0], {})
        alike[spelled(parties)] = alike.get(spelled(parties), 0) + group["size"]
    if any(len(alike) > 1 for alike in answered.values()):
        return None
    found = [pair for _, alike in sorted(answered.items()) for pair in alike.items()]
    places = [at for at, (_, size) in enumerate(found) for _ in range(size)]
    return ([told for told, _ in found], places) if len(places) == len(model.features) else None


def tiles_section(source: Source, drawn: dict[str, Any] | None) -> Html:
    """The picture's place, and the same as a table."""
    if drawn is None:
        told = (
            "Who holds which part of the table is known to the coordinator only: sizes of groups "
            "would tell how many samples others have in common."
            if source.is_networked
            else "This folder does not say who holds which part; it was written by an older Weft."
        )
        return section("tiles", "Who holds what", el("p", told, cls="note"))
    cohorts, parties = source.summary["cohorts"], source.parties
    sizes = (
        f"{count(_groups(cohorts, 'rows'), 'group')} of samples with the same holders, from top to "
        f"bottom; {count(_groups(cohorts, 'columns'), 'group')} of features, from left to right. "
        "Heights and widths follow sizes."
        + (" Stripes: several hold it; grey: nobody does." if len(parties) <= MOST_NAMED else "")
    )
    find = el(
        "div",
        el("label", "Find a party", for_="find-party"),
        el("input", id="find-party", type="search", autocomplete="off", spellcheck="false"),
        cls="find",
    )
    return section(
        "tiles",
        "Who holds what",
        el("p", sizes),
        find if len(parties) > 1 else "",
        el("div", id="party-legend", cls="legend", role="group", aria_label="Parties to point out"),
        el("div", id="picture", cls="picture"),
        el("p", id="picture-told", cls="told", role="status", aria_live="polite"),
        el(
            "details", el("summary", "The same as a table"), _listed(cohorts.get("totals"), parties)
        ),
    )


def _groups(cohorts: dict[str, Any], axis: str) -> int:
    more = cohorts[f"more_{axis}"]
    return len(cohorts[axis]) + (more["groups"] if more else 0)


def _listed(totals: dict[str, Any] | None, parties: Sequence[str]) -> Html:
    """What each party brings, and with whom it shares samples."""
    if totals is None:
        told = "This folder does not say how much each party has; it was written by an older Weft."
        return el("p", told, cls="note")
    rows: list[list[object]] = []
    for party, name in enumerate(parties[:LISTED]):
        others = [parties[other] for other in read_numbers(totals["shares"][party])]
        counted = [f"{totals[key][party]:,}" for key in ("samples", "features", "labels")]
        rows.append([name, *counted, names(others, 4) or "nobody"])
    if len(parties) > LISTED:
        rows.append([f"… and {len(parties) - LISTED:,} more", "", "", "", ""])
    return table(
        ["party", "samples", "features", "labels", "shares samples with"],
        rows,
        caption="What each party brings",
        numbers=(1, 2, 3),
    )
