"""What each side saw: from a recording where there is one, else from what phases may carry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import weft.all_messages  # noqa: F401  (every phase must be known)
from weft.guards.privacy_terms import HIDING_CIPHERS
from weft.privacy.audit.audit_of_a_recording import CHECKS
from weft.privacy.audit.field_evidence import fields_of
from weft.protocol.field_visibility import Form, Meaning
from weft.protocol.recording_file import Direction
from weft.report.number_format import count, heading, size
from weft.report.page.html_elements import Html, el, items, section, table
from weft.report.page.read_results_folder import Source
from weft.solvers.algorithm_choice import ALGORITHMS

_SEES = {
    "nothing": "It saw no weight of the model and no sum over samples or features; what it could "
    "read are totals of scalars over all who were asked, such as the loss, and what is public.",
    "weights": "By agreement (coordinator_sees = 'weights') it saw the weights of the model.",
    "papers": "By agreement (coordinator_sees = 'papers') it saw every party's feature sums in the "
    "clear, from which rows can be computed: for simulation only.",
}
_ON_SHARES = tuple(name for name, algorithm in ALGORITHMS.items() if algorithm.shares)
_SEALED = (
    "Training was sealed: parties computed on shares, and all that they opened on the way were "
    "uniform words. Nobody saw a score, a slope, a gradient or a weight before the model went to "
    "its readers. The coordinator saw sizes of tables, bounds of their norms, and mean losses and "
    "inner products of gradients with noise. It dealt the masks: together with one party, or by "
    "dealing falsely, it could compute all cells, so that it must do neither."
)
_FREE = (
    "The intercept had no penalty (penalize_intercept = false): the coordinator saw the mean of "
    "all slopes at every step, and so the intercept of the model and the shares of the classes."
)
_MOMENTS = (
    "By agreement (allow_second_moments) whoever gets the model also got matrices over all columns "
    "(second_moments), sealed as the model is: they tell means, spreads and correlations of all "
    "columns over all samples. No file of this run holds them."
)
_COUNTS = (
    "How well the model predicts samples left out was told as counts of their scores, by interval "
    "and class, added up over all label holders: an interval has none of a party's samples, or "
    "min_batch of them and more."
)
_INFERENCE = (
    "By agreement (allow_second_moments) whoever gets the model also got sums over all samples for "
    "its standard errors, the Hessian among them, sealed as the model is: they tell spreads and "
    "correlations of all columns. The files of this run hold standard errors, no matrix."
)
#: Terms, and what it means that one is in force or not.
TERMS_IN_WORDS = {
    "min_batch": "samples of a group that change together between two feature sums, or none does",
    "min_contributors": "parties that a sum must have",
    "allow_pairs": "two parties may add up alone, and so see each other's part",
    "allow_lone_labels": "the only party with labels may show the coordinator its losses",
    "allow_sample_norms": "holders of a sample may learn its length",
    "allow_one_column": "a single foreign column may be given away by a sum",
    "allow_crossed_cells": "a party may compute cells that only others hold",
    "allow_small_changes": "a few samples may come or go between two runs",
    "allow_exposure": "a party may get as many sums about samples as it lacks columns of them, and "
    "sealed models may have many columns for few samples",
    "most_explained": "part of the variance of columns that somebody lacks which all sums about a "
    "sample may explain, by the forecast",
    "allow_networks": "the coordinator may see weights of neural networks",
    "allow_second_moments": "readers of the model may get matrices over all columns besides, for "
    "standard errors and correlations",
    "allow_rare_pairs": "these may tell of columns of two parties that few samples have in common",
    "allow_site_scores": "counts of held-out scores of a single party may be read",
    "allow_site_statistics": "descriptions and moments may tell of columns of one party alone",
    "allow_told_columns": "weights and offsets may be told, cell by cell, to who has the labels",
    "coordinator_sees": "the most that the coordinator may see",
    "ciphers": "ciphers that count as hiding a sum",
    "matching": "how ids are matched at least",
}


def privacy_section(source: Source) -> Html:
    """Sentences, the two tables, and the terms."""
    summary = source.summary
    return section(
        "privacy",
        "Who saw what",
        *(el("p", sentence) for sentence in _sentences(source)),
        *(_recorded(source.audit) if source.audit else _possible(summary)),
        _terms(summary.get("terms")),
    )


def _sentences(source: Source) -> list[str]:
    settings = source.summary["settings"]
    if source.is_comparison:
        return [
            "A comparison pools all tables in one hand, to judge: nothing is hidden from whoever "
            f"runs it. Every algorithm ran under the cipher {settings['cipher']} and the terms "
            "below, so that its cost is that of a real run. No party's ledger counts it."
        ]
    if source.summary.get("solver") in _ON_SHARES:
        said = [_SEALED]
    else:
        said = [_hidden(settings["cipher"], settings["coordinator_sees"])]
    if settings.get("penalize_intercept") is False:
        said.append(_FREE)
    if settings.get("second_moments"):
        said.append(_MOMENTS)
    elif settings.get("inference", "none") != "none":
        said.append(_INFERENCE)
    if source.summary.get("evaluation"):
        said.append(_COUNTS)
    readers = source.summary["federation"].get("recipients")
    if readers:
        said.append(f"By the roster the model goes to {', '.join(readers)} and to nobody else.")
    return said


def _hidden(cipher: str, sees: str) -> str:
    """What the cipher kept from the coordinator, and what it saw by agreement."""
    if cipher == "plain":
        told = (
            "The cipher was plain, which hides nothing: the coordinator could read every number "
            "that parties sent to be added, and so every sum and the weights of the model. That is "
            "for simulation in one process."
        )
        return told if sees == "nothing" else f"{told} {_SEES[sees]}"
    if cipher in HIDING_CIPHERS:
        return (
            f"Every sum travelled under the cipher {cipher}, of which the coordinator has no key: "
            f"it added what it could not read. {_SEES[sees]}"
        )
    told = (
        f"Every sum travelled under the cipher {cipher}, which is not one of Weft's own. As its "
        "author says, it hides what it carries from the coordinator; Weft does not know. "
    )
    return told + (f"If so: {_SEES[sees]}" if sees == "nothing" else _SEES[sees])


# ── without a recording ───────────────────────────────────────────────────────────────────────


def _possible(summary: dict[str, Any]) -> list[Html]:
    """What the phases that the meter counted may carry."""
    phases = summary.get("phases")
    if not phases:
        return []
    settings = summary["settings"]
    cipher = settings["cipher"]
    agreed = settings["coordinator_sees"] != "nothing"
    tables, short = [], list[list[object]]()
    ways: dict[Direction, tuple[str, str]] = {
        "up": ("coordinator", "What the coordinator got from the parties"),
        "down": ("party", "What each party got from the coordinator"),
    }
    for way, (side, caption) in ways.items():
        lines = _lines(way, phases, agreed=agreed)
        short += _forms(side, way, phases, lines, cipher)
        rows = [
            [heading(what), form.title, ", ".join(where), f"{calls:,}", _verdict(form, way, cipher)]
            for (form, what), (where, calls) in lines.items()
        ]
        titles = ["what", "form", "phases", "calls", "verdict"]
        tables.append(table(titles, rows, caption=caption, numbers=(3,)))
    told = el(
        "p",
        "This run was not recorded, so the tables say what the messages of its phases may carry. ",
        el("code", "weft train --record"),
        " keeps every message, and this page then says what each one held.",
        cls="note",
    )
    head = table(
        ["to", "form", "verdict", "kinds", "calls"],
        short,
        caption="What came to each side, and what it could do with it",
        numbers=(3, 4),
    )
    inside = "Every kind of thing that travelled"
    return [head, told, el("details", el("summary", inside), *tables)]


def _forms(
    side: str,
    way: Direction,
    phases: dict[str, dict[str, Any]],
    lines: dict[tuple[Form, str], tuple[list[str], int]],
    cipher: str,
) -> list[list[object]]:
    """One line for every form in which something came to a side."""
    found: dict[Form, tuple[int, set[str]]] = {}
    for (form, _), (where, _) in lines.items():
        kinds, seen = found.get(form, (0, set()))
        found[form] = (kinds + 1, seen | set(where))
    rows: list[list[object]] = []
    for form, (kinds, seen) in found.items():
        calls = sum(phases[phase]["calls"] for phase in seen)
        rows.append([side, form.title, _verdict(form, way, cipher), f"{kinds:,}", f"{calls:,}"])
    return rows


def _lines(
    way: Direction, phases: dict[str, dict[str, Any]], *, agreed: bool
) -> dict[tuple[Form, str], tuple[list[str], int]]:
    """What may have travelled, with its phases and how often those were called."""
    found: dict[tuple[Form, str], tuple[list[str], int]] = {}
    for phase, cost in phases.items():
        for meaning in _distinct(fields_of(way, phase).values()):
            if meaning.form is Form.CLEAR and not agreed:
                continue
            where, calls = found.get((meaning.form, meaning.what), ([], 0))
            found[meaning.form, meaning.what] = ([*where, phase], calls + cost["calls"])
    # What hides comes first: it is what the page is asked for.
    return dict(sorted(found.items(), key=lambda pair: not pair[0][0].hides))


def _distinct(meanings: Any) -> list[Meaning]:
    return list(dict.fromkeys(meanings))


def _verdict(form: Form, way: Direction, cipher: str) -> Html:
    if form in (Form.BLOCK, Form.SCALARS) and way == "up":
        if cipher == "plain":
            return _word("READABLE")
        # Scalars are under Weft's own masks, whatever cipher the blocks are under.
        known = cipher in HIDING_CIPHERS or form is Form.SCALARS
        return _word("hidden" if known else "hidden, as its author says")
    if form is Form.MASKED and way == "down":
        return _word("uniform")
    if form is Form.DEALT and way == "up":
        return _word("dealer's")
    if form.hides:
        return _word("hidden" if way == "up" else "opens its own")
    if form in (Form.CLEAR, Form.WEIGHTS):
        return _word("agreed")
    return _word("public" if way == "up" else "told")


def _word(verdict: str) -> Html:
    return el("span", verdict, cls="loud" if verdict.isupper() else "verdict")


# ── with one ──────────────────────────────────────────────────────────────────────────────────


def _recorded(audit: dict[str, Any]) -> list[Html]:
    """What an audit of the recording found."""
    checks = []
    for name, found in audit["checks"].items():
        well, wrong = CHECKS[name]
        passed = found["passed"]
        told = well if passed else f"{found['count']:,} {wrong}; first: {found['example']}"
        checks.append(el("span", "✓ " if passed else "✗ ", told, cls=None if passed else "loud"))
    opened: list[list[object]] = [
        [name, f"{view['messages']:,}", size(view["bytes"]), _opened(view["opened"])]
        for name, view in list(audit["parties"].items())[:60]
    ]
    if len(audit["parties"]) > len(opened):
        opened.append([f"… and {len(audit['parties']) - len(opened):,} more", "", "", ""])
    head = (
        f"Every one of the {count(audit['messages'], 'message')} was recorded and looked into "
        f"({size(audit['bytes'])})."
    )
    coordinator = table(
        ["what", "form", "phase", "messages", "bytes", "verdict"],
        [_line(line) for line in audit["coordinator"]],
        caption="What the coordinator got from the parties",
        numbers=(3, 4),
    )
    parties = table(
        ["party", "messages", "bytes", "numbers that it could decrypt, each a total"],
        opened,
        caption="What the parties got",
        numbers=(1, 2),
    )
    return [
        el("p", head),
        items(checks, cls="checked"),
        parties,
        el("details", el("summary", "Everything that came to the coordinator"), coordinator),
    ]


def _line(line: dict[str, Any]) -> Sequence[object]:
    return [
        heading(line["what"] or "unknown field"),
        line["form"],
        line["phase"],
        f"{line['messages']:,}",
        size(line["bytes"]),
        _word(line["verdict"]),
    ]


def _opened(opened: dict[str, int]) -> str:
    return ", ".join(f"{number:,} {what}" for what, number in opened.items()) or "none"


def _terms(terms: dict[str, Any] | None) -> Html:
    if not terms:
        return Html()
    # A folder of another version may have terms without words here.
    rows = [
        [el("code", name), _value(value), TERMS_IN_WORDS.get(name, "")]
        for name, value in terms.items()
        if name != "allow_networks"
    ]
    caption = "Terms that the parties kept to"
    return el(
        "details",
        el("summary", caption),
        table(["term", "value", "meaning"], rows, caption=caption),
    )


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "allowed" if value else "refused"
    return ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
