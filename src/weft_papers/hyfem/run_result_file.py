"""The JSON file of one run of an experiment, with its history round by round."""

from __future__ import annotations

import platform
from collections.abc import Mapping
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import msgspec

from weft.errors import ConfigError
from weft_papers.hyfem.setups import Plan


class RunFile(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """A run.

    Attributes
    ----------
    plan
        What was to be run.
    finished
        Whether all its rounds are there.
    parties, common
        Of the scene: who takes part, and blocks that all have.
    rounds_of_text
        Rounds of the experiment's config, of which a trial takes fewer.
    seconds
        Of training, data not counted.
    history
        One entry a round; see `weft_neural.history.Round`.
    """

    plan: Plan
    finished: bool
    parties: list[str]
    common: list[str]
    rounds_of_text: int
    device: str
    versions: dict[str, str]
    seconds: float
    history: list[dict[str, Any]]
    notes: list[str] = []

    @property
    def last(self) -> dict[str, Any]:
        """The last round in which accuracies were measured."""
        measured = [row for row in self.history if row["local_accuracy"] is not None]
        return measured[-1] if measured else self.history[-1]

    @property
    def rounds(self) -> int:
        return len(self.history)

    @property
    def shortened(self) -> bool:
        """Whether it took fewer rounds than its config has."""
        return self.rounds < self.rounds_of_text


def run_path(out: Path, plan: Plan) -> Path:
    """Where a run's file lies."""
    return out / plan.experiment / "runs" / f"{plan.run}.json"


def check_same(path: Path, found: Plan, wanted: Plan) -> None:
    """A run that is there already must be the one that is wanted."""
    old, new = (msgspec.to_builtins(plan) for plan in (found, wanted))
    difference = _difference(old, new)
    if difference is not None:
        raise ConfigError(
            f"{path} holds a run with {difference}; name another folder with --out, or delete the "
            "file to run it anew"
        )


def _difference(old: Mapping[str, Any], new: Mapping[str, Any]) -> str | None:
    """The first thing in which two plans differ, in words."""
    for name in dict.fromkeys([*old, *new]):
        if name == "label":
            continue
        a, b = old.get(name), new.get(name)
        if a == b:
            continue
        if isinstance(a, dict) and isinstance(b, dict):
            return _difference(a, b)
        return f"{name} = {a} instead of {b}"
    return None


def versions() -> dict[str, str]:
    """Of what decides about the last digits."""
    found = {"python": platform.python_version()}
    for name in ("weft", "numpy", "scipy", "torch"):
        try:
            found[name] = version(name)
        except PackageNotFoundError:
            found[name] = "not installed as a package"
    return found
