"""Metrics in the text format of Prometheus."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from weft.storage.atomic_files import replacing


@dataclass(frozen=True)
class Metric:
    """One metric: its values, by labels.

    Attributes
    ----------
    values
        Pairs of labels and value.
    """

    name: str
    help: str
    values: list[tuple[Mapping[str, str], float]] = field(default_factory=list)
    kind: Literal["gauge", "counter"] = "gauge"

    def lines(self) -> Iterable[str]:
        yield f"# HELP {self.name} {self.help}"
        yield f"# TYPE {self.name} {self.kind}"
        for labels, value in self.values:
            told = ",".join(f'{name}="{_escaped(text)}"' for name, text in labels.items())
            yield f"{self.name}{{{told}}} {value:.10g}" if told else f"{self.name} {value:.10g}"


def single(name: str, help: str, value: float, **labels: str) -> Metric:
    """A metric with one value."""
    return Metric(name, help, [(labels, value)])


def write_metrics(path: Path, metrics: Iterable[Metric]) -> None:
    """Replace the file at once, so that no reader sees half of it.

    Others may read it: whoever collects metrics is another user. Its draft has another ending, by
    which collectors pass it over.
    """
    text = "\n".join(line for metric in metrics if metric.values for line in metric.lines())
    with replacing(path) as draft:
        draft.write_text(text + "\n", encoding="utf-8")
        draft.chmod(0o644)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
