"""The head of a page: what was trained on what, and what is known of it."""

from __future__ import annotations

from typing import Any

from weft.guards.privacy_terms import is_pilot
from weft.losses import get_loss
from weft.report.number_format import algorithm_name, capital, count, power, seconds, size
from weft.report.page.evaluation_section import evaluation_facts
from weft.report.page.html_elements import Html, el, facts, items, table
from weft.report.page.read_results_folder import Source
from weft.report.summary import certificate_sentence, figure, percent, shortfall


def overview(source: Source) -> Html:
    """Name, the sentence that matters most, and the figures."""
    return _comparison(source.summary) if source.is_comparison else _run(source.summary)


def exposure_box(summary: dict[str, Any]) -> Html:
    """What the run has shown, before anything else; in amber where somebody saw too much."""
    if not summary.get("exposed"):
        # Runs of an older Weft do not say it.
        return Html()
    reached = is_exposed(summary)
    words = {True: "Exposed", False: "Not exposed", None: "What was shown"}[reached]
    look = {True: "exposure reached", False: "exposure safe", None: "exposure"}[reached]
    # No capital letter: it may begin with the name of a party.
    told = el("p", el("strong", f"{words}:"), f" {summary['exposed']}.")
    # What ledgers say of this run together with earlier ones.
    return el(
        "div", told, *(el("p", capital(said)) for said in summary.get("remarks", ())), cls=look
    )


def _pilot_box(terms: dict[str, Any]) -> Html:
    """A mark on runs in which no guard held anything back, by agreement."""
    if not is_pilot(terms):
        return Html()
    told = (
        " guards were off, by the terms of all parties: for data that every one of them may see. "
        "What sums showed of samples was not limited."
    )
    return el("div", el("p", el("strong", "Pilot:"), told), cls="exposure reached")


def is_exposed(summary: dict[str, Any]) -> bool | None:
    """Whether somebody saw too much, in this run or with earlier ones; None: it does not say."""
    return True if summary.get("remarks") else summary.get("exposure_reached")


def _run(summary: dict[str, Any]) -> Html:
    federation, cost = summary["federation"], summary["cost"]
    proof, known = summary["certificate"], summary.get("evaluation")
    shown: list[tuple[str, object]] = []
    if proof is not None:
        proved = proof["gap"] is not None and proof["gap"] < 1
        shown.append(("certified gap", percent(proof["gap"]) if proved else "none yet"))
        shown.append(("loss", figure(proof["loss"])))
    shown += [
        ("iterations", f"{summary['iterations']:,}"),
        ("round trips", f"{cost['round_trips']:,}"),
        ("travelled", size(cost["bytes_down"] + cost["bytes_up"])),
        ("wall clock", seconds(cost["wall_seconds"])),
    ]
    trained = (
        f"{capital(_model(summary['settings'], summary['lambda'], summary['classes']))} Trained "
        f"by {summary['solver']} on {count(federation['samples'], 'sample')} × "
        f"{count(federation['features'], 'feature')} "
        f"{_cut(len(federation['parties']), federation['kind'])}."
    )
    notes = [*filter(None, [summary.get("choice"), shortfall(summary)]), *summary["notes"]]
    return el(
        "header",
        el("p", "Weft · report of a run", cls="kind"),
        el("h1", summary["name"]),
        exposure_box(summary),
        _pilot_box(summary.get("terms") or {}),
        facts(evaluation_facts(known)) if known else "",
        el("p", capital(certificate_sentence(summary)), cls="lead"),
        el("p", trained),
        *_how_it_went(summary, facts(shown), items(capital(note) for note in notes)),
    )


def _how_it_went(summary: dict[str, Any], shown: Html, notes: Html) -> list[Html]:
    """The optimiser's figures; below what statisticians look for, where there is that."""
    stopped = el("p", capital(f"stopped by: {summary['stopped']}"), cls="note")
    if not summary.get("inference"):
        return [shown, stopped, notes]
    return [el("details", el("summary", "How it was trained"), shown, stopped, notes)]


def _model(settings: dict[str, Any], lam: float, classes: list[Any] | None) -> str:
    task = "a regression" if classes is None else f"a classifier for {len(classes)} classes"
    if classes is not None and len(classes) == 2:
        task = f"a classifier, {classes[1]} against {classes[0]}"
    return f"{task}, with the loss {settings['loss']} and λ = {lam:g}"


def _cut(parties: int, kind: str) -> str:
    """Who holds the table, in words."""
    how = {
        "horizontal": " that each hold some of the samples",
        "vertical": " that each hold some of the features",
        "hybrid": " that each hold some samples and some features",
    }
    return "of one party" if parties == 1 else f"of {parties:,} parties{how.get(kind, '')}"


# ── comparisons ───────────────────────────────────────────────────────────────────────────────


def _comparison(summary: dict[str, Any]) -> Html:
    settings, rows = summary["settings"], summary["results"]
    ran = [row for row in rows if row["kind"] == "federated" and row["distance"] is not None]
    lead = f"The optimum of the pooled table is {summary['optimum']:.6g}, by {summary['judged_by']}"
    if ran:
        lead += (
            f"; {ran[0]['algorithm']} comes nearest to it, {power(ran[0]['distance'])} above, in "
            f"{count(ran[0]['round_trips'], 'round trip')}"
        )
    tested = summary["test_samples"]
    what = (
        f"Loss {settings['loss']}, λ = {settings['lam']:g}, cipher {settings['cipher']}; "
        f"{count(summary['samples'], 'sample')} × {count(summary['features'], 'feature')} "
        f"{_cut(summary['parties'], summary.get('kind', ''))}"
        + (f"; {count(tested, 'sample')} held out." if tested else ".")
    )
    failed = [f"{r['algorithm']} failed: {r['failure']}" for r in rows if r["failure"]]
    left = [f"{name}: {why}" for name, why in summary["left_out"].items()]
    aside = el("details", el("summary", f"{len(left)} algorithms do not fit"), items(left))
    return el(
        "header",
        el("p", "Weft · report of a comparison", cls="kind"),
        el("h1", summary["name"]),
        el("p", capital(lead), cls="lead"),
        el("p", what),
        el("p", summary["noise"]) if summary.get("noise") else "",
        _results(summary),
        items(failed),
        aside if left else "",
    )


def _results(summary: dict[str, Any]) -> Html:
    task = get_loss(summary["settings"]["loss"], **summary["settings"]["loss_parameters"]).task
    key, title = ("r2", "R²") if task == "regression" else ("accuracy", "accuracy")
    latencies = list(summary["results"][0]["modelled_seconds"])
    rows = []
    for row in summary["results"]:
        scores = row["test"] or row["train"] or {}
        score = scores.get(key)
        shown = "–" if score is None else f"{score:.1%}" if key == "accuracy" else f"{score:.4g}"
        rows.append(
            [
                algorithm_name(row),
                "failed" if row["loss"] is None else f"{row['loss']:.5g}",
                power(row["distance"]),
                power(row["gap"]),
                f"≈ {shown}" if row.get("within_noise") else shown,
                f"{row['iterations']:,}" if row["iterations"] else "–",
                f"{row['round_trips']:,}" if row["round_trips"] else "–",
                size(row["bytes"]) if row["bytes"] else "–",
                *(f"{row['modelled_seconds'][latency]:.3g}" for latency in latencies),
            ]
        )
    titles = ["algorithm", "loss P", "above P*", "gap", title, "iterations", "round trips", "bytes"]
    titles += [f"s at {latency}" for latency in latencies]
    return table(
        titles,
        rows,
        caption="All algorithms, the nearest to the optimum first",
        numbers=range(1, len(titles)),
    )
