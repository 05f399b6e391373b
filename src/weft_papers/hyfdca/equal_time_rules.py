"""What counts as equal time: seconds of an iteration, by the paper's rule and by ours.

The paper says 10,800 s "of computation as if computed in parallel" and reports up to 11,605,640
iterations: the slowest client's computing alone, without latency, which at 0.2575 s a round trip
would allow 41,941. Its own text beside Figure 5 speaks of latency and encryption. So there are
three rules, and every table and figure says which is meant.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Literal

from weft_papers.hyfdca.cases import Case, Target
from weft_papers.hyfdca.evaluation_points import End, window_of
from weft_papers.hyfdca.measure_iteration_cost import Costs

Rule = Literal["paper", "computing", "time"]
#: By name, in words.
RULES: dict[Rule, str] = {
    "paper": "the paper's rule: computing alone, the paper's seconds",
    "computing": "the paper's rule: computing alone, our seconds",
    "time": "our rule: computing, encryption, coordinator and latency",
}


def seconds_each(case: Case, rule: Rule, costs: Costs | None) -> float | None:
    """Seconds of an iteration; None: not measured, or not in the paper."""
    if rule == "paper":
        computing, _, fedavg, hyfem = case.setting.seconds
        known = {"fedavg": fedavg, "hyfem": hyfem, "auto": math.nan}.get(case.method, computing)
        return None if math.isnan(known) else known
    if costs is None:
        return None
    return costs.compute if rule == "computing" else costs.seconds()


def timed_end(case: Case, target: Target, rule: Rule, costs: Costs | None) -> End | None:
    """How many iterations fit, and the window that they are averaged over at the end."""
    each = seconds_each(case, rule, costs)
    if not target.seconds or each is None:
        return None
    last = math.floor(target.seconds / each)
    return End(last, window_of(last)) if last else None


def ends_of(case: Case, target: Target, costs: Costs | None) -> Iterator[End]:
    """All that a run is wanted for, but for ends that are further than any run goes."""
    yield End(target.iterations, target.window)
    for rule in RULES:
        end = timed_end(case, target, rule, costs)
        if end is not None and end.iterations <= target.most:
            yield end
