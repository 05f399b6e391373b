"""The sections of a config file and their defaults."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from weft.data.tile import MissingPolicy
from weft.errors import ConfigError
from weft.matching.holding_map import Overlap
from weft.sums.scaling import Rule


class DataSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[data]``: how tables become one problem, and defaults for every party's file.

    ``dataset`` and ``split`` cut a named data set here instead of reading ``[[party]]`` files;
    ``positive`` lists the labels that count as 1, all others count as -1.
    """

    id: str = "id"
    label: str | None = None
    overlap: Overlap | None = None
    scaling: Rule = "none"
    unit_rows: bool = False
    missing: MissingPolicy = "error"
    intercept: bool = True
    intercept_scaling: float = 1.0
    confirm_separate_ids: bool = False
    dataset: str | None = None
    split: dict[str, Any] | None = None
    data_dir: str | None = None
    positive: list[str | float] | None = None


class ModelSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[model]``: the problem P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw).

    With ``weigh = "parties"`` the mean is over parties of their mean loss.

    Of a list of ``lambda`` all are trained, and the folds choose one.
    """

    loss: str = "hinge"
    weigh: Literal["samples", "parties"] = "samples"
    lam: float | list[float] = msgspec.field(name="lambda", default=1e-3)
    loss_parameters: dict[str, float] = {}


class SolverSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[solver]``: the algorithm and when it stops; see `Settings`.

    ``[solver.options]`` is what only the named algorithm reads; ``weft algorithms`` lists it.
    """

    name: str = "auto"
    options: dict[str, Any] = {}
    local: Literal["safe", "practical", "theory"] = "safe"
    iic: float = 1.0
    gamma: float | str = "auto"
    norms: Literal["auto", "sample", "cohort"] = "auto"
    gap: float | None = 1e-3
    iterations: int | None = 10_000
    seconds: float | None = None
    round_trips: int | None = None
    certify_every: int | None = None
    participation: str | float | dict[str, Any] = "everyone"
    cipher: str = "pad"
    coordinator_sees: Literal["nothing", "weights", "papers"] = "nothing"
    folds: int = 0
    groups: int = 1
    patience: float = 60.0
    when_missing: Literal["stop", "hyfdca"] = "stop"
    seed: int = 0
    checkpoint_every: int | None = None
    record: bool = False


class KeysSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[keys]``: where the parties' keys are, for all parties that share this machine."""

    folder: str | None = None


class FederationSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[federation]``: the roster that all members have signed."""

    roster: str | None = None


class NetworkSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[network]``: seconds a party has for setting a run up, and for any other phase."""

    setup: float = 600.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        if not (self.setup > 0 and self.timeout > 0):
            raise ConfigError("setup and timeout are seconds above 0")


class PartySection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[[party]]``: a party's name and files; ``label = false``: it gives no labels.

    ``policy`` names a file with what this party insists on, whatever the others agreed.
    """

    name: str
    file: str | None = None
    files: list[str] | None = None
    id: str | None = None
    label: str | bool | None = None
    features: list[str] | None = None
    policy: str | None = None
