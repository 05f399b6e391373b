"""What a results folder holds, for a page: nothing else is needed to write it again."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pandas as pd

from weft.errors import ConfigError
from weft.federation.model import Model, load_model
from weft.privacy.audit.audit_of_a_recording import audit
from weft.protocol.metering import LATENCIES
from weft.protocol.recording_file import MESSAGES, Recording

#: Seconds of a round trip where neither the run nor the reader says.
_LATENCY = LATENCIES[1]


@dataclass(frozen=True)
class Source:
    """A results folder.

    Attributes
    ----------
    history
        The iterations; of a comparison those of all algorithms.
    model
        None: whoever wrote the folder got none.
    audit
        What a recording shows, as plain values; None: there is none.
    """

    summary: dict[str, Any]
    history: pd.DataFrame
    model: Model | None
    config: str | None
    audit: dict[str, Any] | None
    latency: float

    @property
    def is_comparison(self) -> bool:
        return "results" in self.summary

    @property
    def is_networked(self) -> bool:
        """Whether it is of a run over a network, whose coordinator alone knows who holds what."""
        return "cohorts" in self.summary and self.summary["cohorts"] is None

    @property
    def parties(self) -> list[str]:
        """Their names; none in folders of earlier versions' comparisons."""
        if self.is_comparison:
            return list(self.summary.get("party_names", []))
        return list(self.summary["federation"]["parties"])


def read_folder(folder: Path, latency: float | None = None) -> Source:
    """Read the results of ``weft train``, ``weft submit`` or ``weft compare``."""
    summary = read_summary(folder)
    told = summary.get("latency") or summary["settings"].get("latency")
    model, config = folder / "model.npz", folder / "config.toml"
    return Source(
        summary=summary,
        history=_history(folder, "histories" if "results" in summary else "history"),
        model=load_model(model) if model.exists() else None,
        config=config.read_text("utf-8") if config.exists() else None,
        audit=_audit(folder / MESSAGES),
        latency=next(s for s in (latency, told, _LATENCY) if s is not None),
    )


def read_summary(folder: Path) -> dict[str, Any]:
    """How a run or a comparison went, as its folder tells."""
    path = folder / "summary.json"
    advice = "name the results folder of weft train, submit or compare"
    if not path.is_file():
        raise ConfigError(f"{folder} holds no summary.json; {advice}")
    try:
        summary = json.loads(path.read_text("utf-8"))
    except ValueError as error:
        raise ConfigError(f"{path} cannot be read ({error}); {advice}") from None
    if not isinstance(summary, dict) or not {"results", "certificate"} & set(summary):
        raise ConfigError(f"{path} is not of a linear model; {advice}")
    return summary


def _history(folder: Path, name: str) -> pd.DataFrame:
    whole, text = folder / f"{name}.parquet", folder / f"{name}.csv"
    if whole.exists():
        return pd.read_parquet(whole)
    if not text.exists():
        raise ConfigError(f"{folder} holds no {name}.csv, which the report draws; train again")
    if text.stat().st_size < 2:
        # A comparison of baselines alone has no iterations.
        return pd.DataFrame()
    return pd.read_csv(text)


def _audit(path: Path) -> dict[str, Any] | None:
    if not path.exists():
        return None
    recording = Recording(path)
    return audit(recording.head, recording.entries()).to_dict()
