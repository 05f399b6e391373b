"""What FedAvg, FedProx and linear HyFEM are told besides the common settings."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from weft.errors import ConfigError


class AveragingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedAvg: local steps with rate a/(b + √t) in iteration t, then the mean by feature.

    Attributes
    ----------
    a, b
        The rate's constants; without ``a``, one over the largest curvature of any sample's loss.
    gradient
        ``sample``: ⌈iic · N / parties⌉ steps, each on one sample drawn at random. ``full``: as many
        steps as ``steps`` says, each on the gradient of all of the party's samples, with the
        constant rate ``a`` (by default one over the largest curvature of any party's mean loss).
    steps
        Local steps of ``full``.
    average
        Whether the parties that took part weigh the same in a mean, or by their samples; by default
        as ``weigh`` says of the objective.
    """

    a: float | None = None
    b: float = 1.0
    gradient: Literal["sample", "full"] = "sample"
    steps: int = 1
    average: Literal["equal", "samples"] | None = None

    def __post_init__(self) -> None:
        rate = 1.0 if self.a is None else self.a
        if not (0 < rate < math.inf and 0 <= self.b < math.inf):
            raise ConfigError(
                f"the rate a/(b + √t) has a = {self.a} and b = {self.b:g}; give a above 0 and b of "
                "at least 0"
            )
        if self.steps < 1:
            raise ConfigError(f"steps is {self.steps}; give at least 1 local step")

    @property
    def pull(self) -> float:
        """μ of the term μ/2 ‖w_k − w₀‖² in the local objective."""
        return 0.0


class ProxOptions(AveragingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedProx: the local objective has a term μ/2 ‖w_k − w₀‖² more.

    Attributes
    ----------
    mu
        μ: how strongly local steps are pulled towards the mean that they began with.
    """

    mu: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if not 0 <= self.mu < math.inf:
            raise ConfigError(f"mu is {self.mu:g}; give at least 0")

    @property
    def pull(self) -> float:
        return self.mu


class HyfemOptions(ProxOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Linear HyFEM: features are known, so that matching is the identity.

    Attributes
    ----------
    variant
        ``prox`` keeps the term μ/2 ‖θ_k − P_kθ₀‖² of (8) in the 2024 text, ``avg`` leaves it out
        as (9) of the 2020 text does.
    """

    variant: Literal["prox", "avg"] = "prox"

    @property
    def pull(self) -> float:
        return self.mu if self.variant == "prox" else 0.0
