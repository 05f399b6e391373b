"""The results page: the paper's tables with ours beside them, the comparisons, and the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from weft.protocol.metering import LATENCIES
from weft_papers.hyfdca.analysis import MODES, SERIES, Comparison, Findings, Line, Mode, count
from weft_papers.hyfdca.cases import TITLES, Method
from weft_papers.hyfdca.equal_time_rules import RULES, timed_end
from weft_papers.hyfdca.figures import comparison_figures
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.paper import (
    BASELINES,
    LATENCY,
    ROUND_TRIPS,
    WALL_SECONDS,
    WINS,
    Setting,
    data_sets,
)

Rows = Iterable[Sequence[str]]


def to_markdown(findings: Findings, *, command: str, about: Sequence[str], note: str) -> str:
    """The whole page.

    Parameters
    ----------
    command
        What was typed to get it.
    about
        Sentences on the machine and the versions.
    note
        How far the runs go, in a sentence.
    """
    parts = [
        "# HyFDCA's experiments, run anew",
        "",
        "Overman, Blum and Klabjan, *A Primal-Dual Algorithm for Hybrid Federated Learning* "
        "(2022), section 7 of the supplement: HyFDCA against FedAvg and HyFEM on data that is cut "
        "both ways. Written by",
        "",
        f"```\n{command}\n```",
        "",
        *about,
        f"**{note}**",
        "",
        *_words(findings),
        "## Comparisons",
        "",
        *_counts(findings),
        *_parts(findings),
        *_lost(findings),
        *_ends(findings),
        *_time_lengths(findings),
        *_figures(findings),
        "## Table 5: central training",
        "",
        *_central(findings),
        *_candidates(findings),
        *_cost_tables(findings),
    ]
    return "\n".join(parts).rstrip() + "\n"


def _words(findings: Findings) -> list[str]:
    """How these runs agree with the paper's, and where they differ."""
    return [
        "How it was done:",
        "",
        "- Data: MNIST in quadrants with a bias of 10, all ten classes one against the rest; 20 "
        "newsgroups (tf-idf of words and pairs of words, two halves of the groups) **in the place "
        "of News20**, which it is not; Covertype, type 2 against the rest, columns scaled to "
        "[0, 1]. Validation: MNIST's test images, a fifth of the samples elsewhere; the paper does "
        "not say.",
        "- Hyper-parameters: the paper's Tables 2 to 4, whatever comes of them on these data.",
        "- `HyFDCA` is the paper's practical local method, which takes ‖x‖ ≤ 1 for granted; rows "
        "of MNIST here are up to 20 long. `HyFDCA, ‖x‖ ≤ 1` is the same method on the same "
        "problem in other units: cells divided by the longest ‖x‖, λ by its square. `HyFDCA safe` "
        "is Weft's own step rule at the paper's IIC, on the data as they are. `Weft auto` is what "
        "Weft does where everybody takes part: a point in the figures where its curve ends. It is "
        "not run with 500 and 5,000 parties, which one machine would have to be in turn in every "
        "round trip.",
        "- Curves are of replays: the library's parties, draws, products and fixed point without "
        "messages between them, which come to the same bits (a test compares them). What an "
        "iteration costs is measured in the library itself, where HyFDCA is encrypted (`pad`) and "
        "FedAvg and HyFEM send weights in the clear, as in the paper.",
        "- Equal time has three rules, and every table says which. The paper's is 10,800 s of the "
        "slowest client's computing alone (it reports up to 11,605,640 iterations, which leave no "
        "time for latency), with the paper's seconds of Tables 6 to 8, or with ours. Our rule "
        "counts the slowest party's computing and encryption, the coordinator's work, and "
        f"{LATENCY:g} s for every round trip: Weft's HyFDCA takes 3 an iteration, one more where "
        f"parties come back after an absence (`safe` one less); the paper counts {ROUND_TRIPS}. "
        "FedAvg and HyFEM take one.",
        "- P_R is (P − P*)/P*, with liblinear's P*, or the lowest that any run came to (Table 5 "
        "has both). P is evaluated after some 30 iterations on the way to each end, and after 6 in "
        "the last ω of it, ω as in section 7.4 and scaled with the length: what is compared are "
        "means over these. Curves are moving averages over ω, or over as many iterations as hold "
        "three evaluations.",
        "- The series `HyFDCA, ‖x‖ ≤ 1` has HyFDCA's own runs for newsgroups, whose rows have norm "
        "1 anyway.",
        "",
    ]


# ── comparisons ───────────────────────────────────────────────────────────────────────────────


#: Heads of what is equal.
_EQUAL: dict[Mode, str] = {
    "iterations": "equal iterations",
    "paper": "equal time: computing alone, the paper's seconds",
    "computing": "equal time: computing alone, our seconds",
    "time": "equal time: with encryption and latency, our seconds",
}


def _shown(findings: Findings) -> list[Mode]:
    """What is equal in any comparison that was run, and equal iterations in any case."""
    found = {c.mode for method in SERIES for c in findings.comparisons(method)}
    return [mode for mode in MODES if mode in found or mode == "iterations"]


def _counts(findings: Findings) -> list[str]:
    modes = _shown(findings)
    paper = {"iterations": f"{WINS[0]} of 36", "paper": f"{WINS[1]} of 36"}
    rows = [["HyFDCA, in the paper", *(paper.get(mode, "–") for mode in modes)]]
    for method in SERIES:
        found = list(findings.comparisons(method))
        won = [count(found, mode) for mode in modes]
        rows.append([TITLES[method], *(f"**{ahead} of {total}**" for ahead, total in won)])
    sentence = (
        "Ahead of FedAvg and of HyFEM in relative loss and in validation accuracy at the end: "
        "{few clients, 0.9}, {middle, 0.5} and {many, 0.1} of three data sets, as far as both runs "
        "are there: at equal time, after the part of the 10,800 s that both go to (the first table "
        "below has it), at least a hundredth. Equal is not ahead; a run that diverged is behind, "
        "which decides "
        f"{_by_divergence(findings)} of them for the first of our methods."
    )
    return [sentence, "", *_table(["", *(_EQUAL[mode] for mode in modes)], rows), ""]


def _parts(findings: Findings) -> list[str]:
    """After which part of the paper's time the first of our methods is held against the others."""
    modes = [mode for mode in _shown(findings) if mode != "iterations"]
    if not modes:
        return []
    found: dict[tuple[str, str, str], dict[Mode, str]] = {}
    for c in findings.comparisons(SERIES[0]):
        key = (c.case.paper.title, c.case.setting.label, TITLES[c.against])
        found.setdefault(key, {})[c.mode] = f"{c.share:.2g}"
    rows = [[*key, *(told.get(mode, "–") for mode in modes)] for key, told in found.items()]
    heads = ["data", "setting", "HyFDCA against", *(_EQUAL[mode] for mode in modes)]
    return [
        f"The part of {WALL_SECONDS:,.0f} s that both runs go to (– : less than a hundredth):",
        "",
        *_table(heads, rows),
        "",
    ]


def _by_divergence(findings: Findings) -> int:
    return sum(comparison.theirs is None for comparison in findings.comparisons(SERIES[0]))


def _lost(findings: Findings) -> list[str]:
    """Where ours is not ahead."""
    lines = []
    for method in SERIES:
        behind = [c for c in findings.comparisons(method) if not c.ahead]
        if behind:
            lines += [f"Where {TITLES[method]} is not ahead:", ""]
            lines += [*_table(_LOST, [_behind(comparison) for comparison in behind]), ""]
    return lines


_LOST = ["data", "setting", "against", "equal", "in", "ours", "theirs"]


def _behind(comparison: Comparison) -> list[str]:
    case = comparison.case
    return [
        case.paper.title,
        case.setting.label,
        TITLES[comparison.against],
        comparison.mode,
        comparison.measure,
        *("diverged" if v is None else _number(v) for v in (comparison.ours, comparison.theirs)),
    ]


def _ends(findings: Findings) -> list[str]:
    """Where every run ended, in every experiment."""
    lines = []
    for mode in _shown(findings):
        rows = []
        for case in findings.plan.cases():
            line = findings.line(case, mode)
            if not findings.plan.compared(case) or (mode != "iterations" and not _is_there(line)):
                continue
            cells = [case.paper.title, case.setting.label, TITLES[case.method]]
            rows.append([*cells, *_end(line)])
        if not rows:
            continue
        heads = ["data", "parties, fraction", "method", "iterations", "P_R", "accuracy"]
        lines += [f"## Where the runs end: {_EQUAL[mode]}", "", *_table(heads, rows), ""]
    return lines


def _is_there(line: Line | None) -> bool:
    return line is not None and (line.end is not None or bool(line.diverged))


def _end(line: Line | None) -> list[str]:
    if line is None or not _is_there(line):
        return ["–", "–", "–"]
    length = int(line.iterations[-1]) if len(line.iterations) else 0
    if line.end is None:
        return [f"{length:,} and diverged" if length else "diverged", "–", "–"]
    return [f"{length:,}", _number(line.end["loss"]), _percent(line.end["accuracy"])]


def _time_lengths(findings: Findings) -> list[str]:
    """How many iterations equal time is, by each rule, and which of the runs go there."""
    rows = []
    for case in findings.plan.cases():
        if not findings.plan.compared(case) or case.method == "auto":
            continue
        cells = [case.paper.title, case.setting.label, TITLES[case.method]]
        target = findings.plan.target(case)._replace(seconds=WALL_SECONDS)
        for rule in RULES:
            end = timed_end(case, target, rule, findings.costs(case))
            cells.append("–" if end is None else f"{end.iterations:,}")
        length = findings.length(case)
        rows.append([*cells, "–" if length is None else f"{length:,}"])
    heads = ["data", "parties, fraction", "method", *RULES.values(), "iterations run here"]
    return [
        f"## What equal time would take: iterations in {WALL_SECONDS:,.0f} s",
        "",
        "– : not measured here.",
        "",
        *_table(heads, rows),
        "",
    ]


def _figures(findings: Findings) -> list[str]:
    lines = ["## Figures", ""]
    names = [name for mode in MODES for name, _ in comparison_figures(findings, mode)]
    names.append("figure-4")
    numbers = {"mnist": 6, "newsgroups": 7, "covtype": 8}
    names += [f"figure-{numbers[data]}" for data in findings.plan.data]
    for name in names:
        lines += [f"![{name.replace('-', ' ')}]({name}.png)", ""]
    return lines


# ── tables ────────────────────────────────────────────────────────────────────────────────────


def _central(findings: Findings) -> list[str]:
    rows = []
    for data in findings.plan.data:
        paper, found = data_sets()[data], findings.central(data)
        if not found:
            continue
        loss, classes = float(found["loss"]), int(found["classes"])
        told = _number(loss)
        if classes > 1:
            told = f"{told} over {classes} classes, {_number(loss / classes)} each"
        name = paper.title if paper.paper is None else f"{paper.title} (for {paper.paper})"
        rows.append(
            [
                name,
                told,
                _number(findings.optimum(data)),
                _percent(float(found["accuracy"])),
                str(found["how"]),
                f"{paper.loss:g} after {paper.central_iterations:,} iterations",
            ]
        )
    return [
        *_table(["data", "P", "lowest P of all runs", "accuracy", "by", "the paper's"], rows),
        "",
    ]


def _candidates(findings: Findings) -> list[str]:
    """P* of other readings of the problems, beside the paper's."""
    rows = []
    for data in findings.plan.data:
        paper = data_sets()[data]
        for told, found in findings.candidates(data).items():
            loss, accuracy = float(found["loss"]), float(found["accuracy"])
            cells = [paper.title, told, f"{loss:.4g}", _percent(accuracy), str(found["how"])]
            rows.append([*cells, f"{paper.loss:g}"])
    if not rows:
        return []
    heads = ["data", "otherwise as above, but", "P*, a class", "accuracy", "by", "the paper's"]
    return [
        "What P* is on other readings of the problems "
        "(`python -m weft_papers.hyfdca.optima_of_other_readings docs/results/hyfdca`):",
        "",
        *_table(heads, rows),
        "",
    ]


def _cost_tables(findings: Findings) -> list[str]:
    lines: list[str] = []
    for number, data in zip((6, 7, 8), ("mnist", "newsgroups", "covtype"), strict=True):
        if data not in findings.plan.data:
            continue
        paper = data_sets()[data]
        name = paper.title if paper.paper is None else f"{paper.title} (for {paper.paper})"
        lines += [f"## Table {number}: seconds an iteration, {name}", ""]
        lines += ["The paper's seconds in brackets; – : not run here, or not in the paper.", ""]
        rows = [
            _cost_row(findings, data, place, setting)
            for place, setting in enumerate(paper.settings)
        ]
        lines += [*_table(_COST_HEADS, rows), ""]
    return [*lines, *_at_latencies(findings)]


_COST_HEADS = [
    "parties, fraction",
    "HyFDCA computing",
    "HyFDCA encryption",
    "HyFDCA coordinator",
    "HyFDCA round trips",
    "FedAvg computing",
    "HyFEM computing",
]


def _cost_row(findings: Findings, data: str, number: int, setting: Setting) -> list[str]:
    ours = findings.costs(findings.case(data, number, "hyfdca"))
    computing, encryption, *others = setting.seconds
    cells = [setting.label, _beside(None if ours is None else ours.compute, computing)]
    cells.append(_beside(None if ours is None else ours.encryption, encryption))
    cells.append("–" if ours is None else _number(ours.coordinator))
    cells.append("–" if ours is None else f"{ours.round_trips:.2f} ({ROUND_TRIPS})")
    for method, paper in zip(BASELINES, others, strict=True):
        costs = findings.costs(findings.case(data, number, method))
        cells.append(_beside(None if costs is None else costs.compute, paper))
    return cells


def _beside(ours: float | None, paper: float) -> str:
    told = "–" if ours is None else _number(ours)
    return f"{told} ({'–' if math.isnan(paper) else f'{paper:g}'})"


def _at_latencies(findings: Findings) -> list[str]:
    """Modelled seconds of an iteration, of the settings that are compared."""
    methods: tuple[Method, ...] = ("hyfdca", "safe", "fedavg", "hyfem")
    rows = []
    for data in findings.plan.data:
        paper = data_sets()[data]
        for setting in paper.compared:
            for method in methods:
                case = findings.case(data, paper.settings.index(setting), method)
                costs = findings.costs(case)
                if costs is not None:
                    told = [*_modelled(costs), _paper_modelled(setting, method)]
                    rows.append([paper.title, setting.label, TITLES[method], *told])
    heads = ["data", "parties, fraction", "method"]
    heads += [f"at {latency:g} s" for latency in LATENCIES]
    heads.append(f"the paper's at {LATENCY:g} s")
    return [
        "## Modelled seconds of an iteration, by the latency of a round trip",
        "",
        *_table(heads, rows),
        "",
    ]


def _modelled(costs: Costs) -> list[str]:
    return [_number(costs.seconds(latency)) for latency in LATENCIES]


def _paper_modelled(setting: Setting, method: Method) -> str:
    """The paper's computing, Paillier's operations as it counts them, and its round trips."""
    computing, encryption, fedavg, hyfem = setting.seconds
    if method == "safe":
        return "–"
    other = {"fedavg": fedavg, "hyfem": hyfem}.get(method)
    if other is not None:
        return _number(other + LATENCY)
    return _number(computing + encryption + ROUND_TRIPS * LATENCY)


def _table(heads: Sequence[str], rows: Rows) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞"
    return f"{value:.3g}" if 1e-4 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"
