"""What vertical FedSGD and FedBCD are told besides the common settings."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError


class FedsgdOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedSGD: one gradient step on every party's columns between two exchanges.

    Attributes
    ----------
    batch
        Samples of an iteration, the same at all parties; None: all of them.
    rate
        How far a step goes; ``auto``: one over a bound on the curvature of what is minimised.
    decay
        ``sqrt``: the rate of iteration t is rate/√t. ``auto``: that for minibatches and for losses
        with kinks, where steps of the same length end beside the optimum.
    """

    batch: int | None = None
    rate: float | Literal["auto"] = "auto"
    decay: Literal["auto", "none", "sqrt"] = "auto"

    def __post_init__(self) -> None:
        if self.batch is not None and self.batch < 1:
            raise ConfigError(f"batch is {self.batch}; give at least 1 sample, or leave it out")
        if self.rate != "auto" and not self.rate > 0:
            raise ConfigError(f"rate is {self.rate:g}; give a number above 0, or 'auto'")

    @property
    def steps(self) -> int:
        """Steps between two exchanges."""
        return 1

    @property
    def pull(self) -> float:
        """μ of the term μ/2 ‖w_k − w_k⁰‖², w_k⁰ being the columns as of the last exchange."""
        return 0.0


class FedbcdOptions(FedsgdOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedBCD-p: several steps between two exchanges, all parties at the same time.

    Attributes
    ----------
    local_steps
        The paper's Q.
    mu
        Above 0 this is FedPBCD-p, whose local objective has a term μ/2 ‖w_k − w_k⁰‖² more.
    """

    local_steps: int = 5
    mu: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.local_steps < 1:
            raise ConfigError(f"local_steps is {self.local_steps}; give at least 1")
        if not self.mu >= 0:
            raise ConfigError(f"mu is {self.mu:g}; give at least 0")

    @property
    def steps(self) -> int:
        return self.local_steps

    @property
    def pull(self) -> float:
        return self.mu
