"""The summary of a run: what is proved, what is only estimated, and what it cost."""

from __future__ import annotations

import math
import platform
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

import msgspec
import numpy as np

from weft import __version__
from weft.federation.release.coordinator import Outcome, lost_features
from weft.losses import get_loss
from weft.protocol.metering import Spent
from weft.report.holdings_counts import kind_of
from weft.report.json_safe_and_rounded_values import finite
from weft.report.lambda_path import (
    GAINS,
    Measure,
    choice_sentence,
    has_path,
    path_frame,
    score_measure,
)
from weft.report.metrics_from_score_counts import evaluation_of, headline
from weft.report.sizes_and_holders_of_groups import cohorts_of
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.run_settings import Settings


def summarise(
    trained: Outcome,
    settings: Settings,
    name: str,
    *,
    encryption: Spent | None = None,
    accuracy: dict[str, Any] | None = None,
    majority: float | None = None,
    feature_sets: dict[str, Any] | None = None,
    remarks: Sequence[str] = (),
    command: str = "",
) -> dict[str, Any]:
    """A run as plain values, ready for JSON.

    ``certificate`` is a proof about the released model, or None; ``estimate`` is what the
    coordinator last guessed and proves nothing, or None. ``solver`` is the one that ran, while
    ``settings`` are as they were given. ``path`` has an entry for every λ of a run over several λ
    or folds, else None, and ``choice`` says which of them is released. ``evaluation`` is
    about samples that folds left out, of a classifier, else None. ``exposed`` is a sentence on
    what the run has shown, ``exposure_reached`` whether somebody can work out what it should
    not know from it, and ``exposed_parties`` are those that the sentence names, or None where
    nobody counted. ``phases`` are the meter's counts, and ``cohorts`` say who holds how much,
    without any id. A number that is not finite is None.

    Parameters
    ----------
    encryption
        What the parties spent on it; None: they have told nobody.
    accuracy
        What is known of it from outside: ``where``, ``samples``, ``majority``, ``federated``,
        ``central`` and ``alone``.
    majority
        Share of the samples with the most frequent class, where whoever writes this knows.
    feature_sets
        Who holds which feature of the model, where whoever writes this knows.
    remarks
        Sentences about the run that it does not know itself, such as those of ledgers.
    command
        With which the run was started.
    """
    result, holdings, head = trained.result, trained.holdings, trained.head
    summary: dict[str, Any] = {
        "name": name,
        "stopped": result.stopped,
        "solver": trained.settings.solver,
        "lambda": head.lam,
        **_path(trained, settings),
        "evaluation": _evaluation(trained),
        "iterations": len(result.history),
        "certificate": _certificate(trained),
        "estimate": _estimate(trained),
        "exposed": exposure_sentence(
            trained.exposed,
            trained.settings.coordinator_sees,
            trained.settings.cipher,
            sealed=algorithm_of(trained.settings.solver).shares,
            moments=trained.settings.opens_matrices,
        ),
        "exposure_reached": exposure_reached(
            trained.exposed, trained.settings.coordinator_sees, trained.settings.cipher
        ),
        "exposed_parties": None if trained.exposed is None else list(trained.exposed),
        "cost": _cost(trained),
        "phases": trained.meter.to_dict(),
        "encryption": _encryption(trained, encryption),
        "accuracy": accuracy,
        "majority": majority,
        "federation": {
            "kind": kind_of(holdings),
            "parties": list(holdings.parties),
            "samples": holdings.n_samples,
            "features": _features(trained),
            "left_out": holdings.rows.left_out,
            "rare": holdings.rare,
            "rare_cells": holdings.rare_cells,
            "overlap": holdings.overlap,
            "recipients": head.info["recipients"],
        },
        "cohorts": cohorts_of(holdings),
        "feature_sets": feature_sets,
        "classes": head.classes,
        "settings": msgspec.to_builtins(settings),
        "terms": msgspec.to_builtins(holdings.terms),
        "gone": list(result.gone),
        "notes": list(result.notes),
        "remarks": list(remarks),
        "command": command,
        "weft": __version__,
        "versions": versions(),
    }
    plain: dict[str, Any] = finite(summary)
    return plain


def versions() -> dict[str, str]:
    """Of all that decides on the bits of a result."""
    return {"weft": __version__, "python": platform.python_version(), "numpy": np.__version__}


def _features(trained: Outcome) -> int:
    """Features that the model has a weight for."""
    holdings = trained.holdings
    return (
        holdings.n_features
        - (holdings.bias_slot >= 0)
        - lost_features(holdings, trained.result.gone)
    )


def _path(trained: Outcome, settings: Settings) -> dict[str, Any]:
    """The models on the path, and a sentence on the one released."""
    if not has_path(trained.result):
        return {"path": None, "choice": None}
    task = settings.make_loss().task
    frame = path_frame(trained.result, task, settings.scoring)
    rows = frame.astype(object).where(frame.notna(), None).to_dict("records")
    return {"path": rows, "choice": choice_sentence(frame, task, settings.scoring)}


def _evaluation(trained: Outcome) -> dict[str, Any] | None:
    """How well the model predicts samples that folds left out; None: nobody counted."""
    held_out, classes = trained.result.held_out, trained.head.classes
    if held_out is None or classes is None:
        return None
    return evaluation_of(held_out, classes, trained.holdings.parties)


def _certificate(trained: Outcome) -> dict[str, Any] | None:
    certificate = trained.result.certificate
    if certificate is None:
        return None
    return {
        "iteration": certificate.iteration,
        "loss": sum(certificate.primal),
        "dual": sum(certificate.dual),
        "gap": certificate.gap,
        "loss_by_class": list(certificate.primal),
        "dual_by_class": list(certificate.dual),
    }


def _estimate(trained: Outcome) -> dict[str, Any] | None:
    for record in reversed(trained.result.history):
        if record.loss_estimate is not None:
            return {
                "iteration": record.iteration,
                "loss": record.loss_estimate,
                "gap": record.gap_estimate,
            }
    return None


def _cost(trained: Outcome) -> dict[str, Any]:
    """From matching to the last certificate, checkpoints aside."""
    last = trained.result.history[-1]
    return {
        "round_trips": last.round_trips,
        "bytes_down": last.bytes_down,
        "bytes_up": last.bytes_up,
        "compute_seconds": last.compute_seconds,
        "wall_seconds": last.wall_seconds,
    }


def _encryption(trained: Outcome, spent: Spent | None) -> dict[str, Any]:
    """What encryption has cost; the parties' part is None where only a coordinator counted."""
    sides = {"coordinator": trained.adder.cost, "parties": None, "slowest": None}
    if spent is not None:
        sides = {name: getattr(spent, name) for name in sides}
    return {name: None if cost is None else asdict(cost) for name, cost in sides.items()}


def shortfall(summary: dict[str, Any]) -> str | None:
    """A sentence when the gap that was asked for is not certified, else None."""
    target, proof = summary["settings"]["gap"], summary["certificate"]
    if _without_penalty(summary["settings"]):
        # What is proved of its last step is proved; how small slopes were is no gap of its own.
        return None
    short = [row["lambda"] for row in summary["path"] or () if not _gap(row) <= (target or 0)]
    if target is None or (proof is not None and _gap(proof) <= target and not short):
        return None
    where = f" at λ = {', '.join(f'{lam:g}' for lam in short)}" if short else ""
    if "min_batch" in summary["stopped"]:
        kinks = math.isinf(get_loss(summary["settings"]["loss"]).smoothness)
        remedy = (
            "a loss without kinks, such as 'logistic', takes little harm from that guard"
            if kinks
            else "groups of samples with the same holders that are larger, or fewer classes, or a "
            "smaller min_batch, would let it"
        )
        return (
            f"the gap asked for, {target:g}, was not reached{where}, because too few samples of "
            f"the same holders would have changed; {remedy}"
        )
    return (
        f"the gap asked for, {target:g}, was not reached{where}; allow more iterations, raise "
        "lambda, or scale the features (scaling and unit_rows in [data])"
    )


def _without_penalty(settings: dict[str, Any]) -> bool:
    factors = (settings.get("penalty_factors") or {}).values()
    return bool(settings.get("without_penalty")) or 0.0 in factors


def _gap(proof: dict[str, Any]) -> float:
    """The gap of a certificate; one that is not finite is None in a summary."""
    return math.inf if proof["gap"] is None else float(proof["gap"])


def figure(value: float | None, form: str = ".6g") -> str:
    """A number of a summary in digits; None: it is not finite."""
    return "not finite" if value is None else format(value, form)


def certificate_sentence(summary: dict[str, Any]) -> str:
    """What is known about the model's loss, without a word more."""
    proof = summary["certificate"]
    if proof is not None and _gap(proof) >= 1:
        return (
            f"loss {figure(proof['loss'])}, measured at iteration {proof['iteration']}; nothing is "
            "proved yet of how far central training could lower it"
        )
    if proof is not None:
        return (
            f"loss {figure(proof['loss'])}, certified at iteration {proof['iteration']}: central "
            f"training on the pooled table could lower it by at most {percent(proof['gap'])}"
        )
    guess = summary["estimate"]
    if guess is not None:
        return (
            f"loss about {figure(guess['loss'])}: an estimate of iteration {guess['iteration']}, "
            "not certified, because not every party answered for the last model"
        )
    return "the loss is not known, because not every party answered for the last model"


def exposure_sentence(
    exposed: Sequence[str] | None,
    coordinator_sees: str,
    cipher: str,
    *,
    sealed: bool,
    moments: bool = False,
) -> str:
    """What a whole run has exposed, for everybody: no size and no holder of a group is in it.

    Parameters
    ----------
    exposed
        Parties that showed another as many sums about samples as it lacks columns; None: nobody
        counted.
    sealed
        Whether it was trained on shares.
    moments
        Whether matrices over all columns were opened to readers of the model.
    """
    if sealed and exposed == ():
        model = "the model"
        if moments:
            model += " with second moments of all columns, to who gets it"
        return f"sizes, scalars of the whole run and {model}: sealed, no sum over a sample is open"
    if exposed is None:
        told = "sums in the clear, which nobody counted"
    elif exposed:
        told = (
            f"{', '.join(exposed)} showed another party as many sums about samples as it lacks "
            "columns, which it can work out but for the mixing"
        )
    else:
        told = "no party showed another as many sums about a sample as that one lacks columns"
    shown = {
        "weights": "; the coordinator saw the weights of the model",
        "papers": "; the coordinator saw every party's feature sums, from which rows follow",
    }
    told += shown.get(coordinator_sees, "")
    if moments:
        told += "; who gets the model also got second moments of all columns, over all samples"
    if cipher == "plain":
        told += "; the cipher was plain, so that the coordinator could read every sum"
    return told


def exposure_reached(exposed: Sequence[str] | None, coordinator_sees: str, cipher: str) -> bool:
    """Whether somebody can work out rows or weights that are not its own, or nobody counted."""
    return exposed is None or bool(exposed) or coordinator_sees != "nothing" or cipher == "plain"


def percent(share: float) -> str:
    """A share in percent, with a digit that is not zero however small it is."""
    return f"{share:.2%}" if share >= 1e-4 or share <= 0 else f"{100 * share:.1g}%"


def to_markdown(summary: dict[str, Any]) -> str:
    """The summary for people."""
    federation, cost, settings = summary["federation"], summary["cost"], summary["settings"]
    cut = federation["kind"]
    rows = [
        ("parties", f"{len(federation['parties'])} ({cut})" if cut != "one party" else "1"),
        ("samples × features", f"{federation['samples']} × {federation['features']}"),
        ("samples left out (no label)", str(federation["left_out"])),
        # Known where all is in one hand.
        *(
            (f"{what} left out (too rare)", str(federation[key]))
            for what, key in (("samples", "rare"), ("cells", "rare_cells"))
            if federation.get(key)
        ),
        ("loss, λ", f"{settings['loss']}, {summary['lambda']:g}"),
        ("solver", summary["solver"]),
        ("cipher", settings["cipher"]),
        ("iterations", str(summary["iterations"])),
        ("stopped by", summary["stopped"]),
        ("round trips", str(cost["round_trips"])),
        ("bytes to parties / from parties", f"{cost['bytes_down']:,} / {cost['bytes_up']:,}"),
        ("seconds (slowest parties' computing)", f"{cost['compute_seconds']:.2f}"),
        ("seconds (wall clock)", f"{cost['wall_seconds']:.2f}"),
    ]
    lines = [f"# {summary['name']}", "", f"{_capital(certificate_sentence(summary))}.", ""]
    lines += [f"Exposed: {summary['exposed']}.", ""]
    lines += _coefficients(summary.get("inference"))
    lines += ["| | |", "|---|---|", *(f"| {key} | {value} |" for key, value in rows), ""]
    if summary["evaluation"] is not None:
        lines += [f"{_capital(headline(summary['evaluation']))}.", ""]
    if summary["path"] is not None:
        lines += [f"{summary['choice']}.", "", *_path_table(summary), ""]
    notes = [*filter(None, [shortfall(summary)]), *summary["notes"]]
    if notes:
        lines += ["Notes:", "", *(f"- {note}" for note in notes), ""]
    lines += [
        "A certificate is a duality gap of the released weights: it bounds the distance to the "
        "optimum of the pooled problem whatever happened during the run. An estimate uses sums "
        "of absent parties as they last sent them; it is shown, never used to stop.",
        "",
    ]
    return "\n".join(lines)


def _coefficients(found: dict[str, Any] | None) -> list[str]:
    """A line for every coefficient, with its interval; or why there are none."""
    if not found:
        return []
    if found.get("why_not"):
        return [f"{_capital(found['why_not'])}.", ""]
    ratio = found["ratio"]
    titles = ["", "coefficient", "standard error", "p", f"{100 * found['level']:g} % interval"]
    lines = [f"| {' | '.join([*titles, *([ratio] if ratio else [])])} |"]
    lines.append("|---" * (len(titles) + bool(ratio)) + "|")
    for row in found["rows"]:
        cells = [row["name"], figure(row["coefficient"]), figure(row["standard_error"])]
        cells += [figure(row["p"]), f"{figure(row['low'])} … {figure(row['high'])}"]
        lines.append(f"| {' | '.join([*cells, *([figure(row['ratio'])] if ratio else [])])} |")
    return [*lines, ""]


def path_measure(summary: dict[str, Any]) -> Measure:
    """What the scores of a summary's folds are."""
    scores = [row["mean_score"] for row in summary["path"]]
    scoring = summary["settings"].get("scoring")
    return score_measure(scores, regression=summary["classes"] is None, scoring=scoring)


def _path_table(summary: dict[str, Any]) -> list[str]:
    """A line for every λ, the released one in bold."""
    path: list[dict[str, Any]] = summary["path"]
    scored = "mean_score" in path[0]
    measure = path_measure(summary) if scored else ""
    titles = ["λ", *([f"{measure}, left out"] if scored else []), "loss", "gap", "round trips"]
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for row in path:
        cells = [f"{row['lambda']:g}"]
        if scored:
            cells.append(_spread(row, measure not in GAINS))
        cells += [figure(row["loss"]), figure(row["gap"], ".2e"), str(row["round_trips"])]
        if row["chosen"]:
            cells = [f"**{cell}**" for cell in cells]
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _spread(row: dict[str, Any], error: bool) -> str:
    """A mean score, and its spread over folds where these are known.

    A λ at which a party stayed away has none.
    """
    if row["mean_score"] is None:
        return "–"
    score = -row["mean_score"] if error else row["mean_score"]
    spread = row.get("std_score")
    return f"{score:.4g}" if spread is None else f"{score:.4g} ± {spread:.2g}"


def _capital(sentence: str) -> str:
    return sentence[0].upper() + sentence[1:]
