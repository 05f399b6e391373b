"""The results page: the paper's tables with ours beside them, the comparisons, and the figures."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from weft.protocol.metering import LATENCIES
from weft_papers.hyfdca.analysis import MODES, SERIES, Comparison, Findings, count
from weft_papers.hyfdca.cases import TITLES, Method
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
        *_lost(findings),
        *_ends(findings),
        *_figures(findings),
        "## Table 5: central training",
        "",
        *_central(findings),
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
        "- HyFDCA is encrypted (`pad`) and what that takes is measured; FedAvg and HyFEM send "
        "weights in the clear, as in the paper. Modelled seconds of an iteration: the slowest "
        "party's computing and encryption, the coordinator's work, and "
        f"{LATENCY:g} s for every round trip. Weft's HyFDCA takes 3 round trips an iteration, one "
        "more where parties come back after an absence (`safe` one less); the paper counts "
        f"{ROUND_TRIPS}. FedAvg and HyFEM take one.",
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


def _counts(findings: Findings) -> list[str]:
    rows = [["HyFDCA, in the paper", *(f"{won} of 36" for won in WINS), f"{sum(WINS)} of 72"]]
    for method in SERIES:
        found = list(findings.comparisons(method))
        won = [count(found, mode) for mode in MODES]
        all_, of = (sum(values) for values in zip(*won, strict=True))
        cells = [f"{ahead} of {total}" for ahead, total in won]
        rows.append([TITLES[method], *cells, f"**{all_} of {of}**"])
    sentence = (
        "Ahead of FedAvg and of HyFEM in relative loss and in validation accuracy at the end: "
        "{few clients, 0.9}, {middle, 0.5} and {many, 0.1} of three data sets. Equal is not ahead; "
        f"a run that diverged is behind, which decides {_by_divergence(findings)} of them for the "
        "first of our methods."
    )
    heads = ["", "equal iterations", "equal modelled time", "both"]
    return [sentence, "", *_table(heads, rows), ""]


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
    """Where every run ended, in both experiments."""
    rows = []
    for case in findings.plan.cases():
        if not findings.plan.compared(case):
            continue
        cells = [case.paper.title, case.setting.label, TITLES[case.method]]
        for mode in MODES:
            line = findings.line(case, mode)
            length = "" if line is None or not len(line.iterations) else int(line.iterations[-1])
            if line is not None and line.diverged:
                cells += [f"{length:,} and diverged" if length else "diverged", "–", "–"]
            elif line is None or line.end is None:
                cells += ["–", "–", "–"]
            else:
                cells += [f"{length:,}", _number(line.end["loss"]), _percent(line.end["accuracy"])]
        rows.append(cells)
    heads = ["data", "parties, fraction", "method"]
    for name in ("iterations", "time"):
        heads += [f"equal {name}: iterations", "P_R", "accuracy"]
    return ["## Where the runs end", "", *_table(heads, rows), ""]


def _figures(findings: Findings) -> list[str]:
    lines = ["## Figures", ""]
    names = ["figure-3-loss", "figure-3-accuracy", "figure-4", "figure-5-loss", "figure-5-accuracy"]
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
                    rows.append([paper.title, setting.label, TITLES[method], *_modelled(costs)])
    heads = ["data", "parties, fraction", "method"]
    heads += [f"at {latency:g} s" for latency in LATENCIES]
    heads.append(f"iterations in {WALL_SECONDS:,.0f} s at {LATENCY:g} s")
    return [
        "## Modelled seconds of an iteration, by the latency of a round trip",
        "",
        *_table(heads, rows),
        "",
    ]


def _modelled(costs: Costs) -> list[str]:
    each = [costs.seconds(latency) for latency in LATENCIES]
    return [*map(_number, each), f"{WALL_SECONDS / costs.seconds():,.0f}"]


def _table(heads: Sequence[str], rows: Rows) -> list[str]:
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return lines + ["| " + " | ".join(row) + " |" for row in rows]


def _number(value: float) -> str:
    if not math.isfinite(value):
        return "–" if math.isnan(value) else "∞"
    return f"{value:.3g}" if 1e-4 <= abs(value) < 1e4 or value == 0 else f"{value:.1e}"


def _percent(value: float) -> str:
    return "–" if math.isnan(value) else f"{value:.1%}"
