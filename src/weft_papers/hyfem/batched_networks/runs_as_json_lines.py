"""Finished runs as lines of JSON: settings, and what was measured round by round."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

Line = dict[str, Any]
#: What a run is known by.
KEY = ("experiment", "kind", "norm", "rate", "mu2", "seed", "rounds")
#: By which a method's rate is chosen: the server where there is one, as Figure 4 shows it.
_JUDGED = {
    "hyfem": "server",
    "fedprox": "server",
    "fedper": "received",
    "central": "own",
    "alone": "own",
}


def key_of(line: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(line[name] for name in KEY)


def read_lines(path: Path) -> list[Line]:
    """All runs in a file; none where there is no file."""
    if not path.exists():
        return []
    return [json.loads(text) for text in path.read_text(encoding="utf-8").splitlines() if text]


def final(line: Mapping[str, Any], who: str) -> float | None:
    """Accuracy of the last round; None where a run broke off or there is no such model."""
    last = line["history"][-1]
    if line["rounds_run"] < line["rounds"] or last[who] is None:
        return None
    return float(last[who]["accuracy"])


def best_rate(
    lines: Iterable[Mapping[str, Any]],
    experiment: str,
    kind: str,
    norm: str,
    changes: Mapping[str, Any],
) -> float | None:
    """Of the runs with seed 0, the rate with the best last accuracy on the test samples."""
    found = {}
    for line in lines:
        same = (line["experiment"], line["kind"], line["seed"]) == (experiment, kind, 0)
        alike = (line["mu2"], line["norm"]) == (changes.get("mu2", 0.1), norm)
        if same and alike:
            found[line["rate"]] = final(line, _JUDGED[kind]) or 0.0
    return max(found, key=lambda rate: found[rate]) if found else None
