"""Settings that only HyFDCA reads, as a run's own solver or in the place of another."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError


class HyfdcaSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """HyFDCA's local method, its steps and what it shares of norms.

    Attributes
    ----------
    local
        HyFDCA's local dual method: ``safe``, ``practical`` or ``theory``.
    gamma
        Step γ_t of ``practical`` and ``theory``: a number, ``"1/t"`` or ``"auto"`` (1/t where
        Theorem 4.11 asks for it, else 1).
    norms
        ``sample``: holders of a sample share ‖x_i‖²; ``cohort``: only a bound per cohort;
        ``auto``: the former, which is faster, where the parties' terms allow it.
    """

    local: Literal["safe", "practical", "theory"] = "safe"
    gamma: float | str = "auto"
    norms: Literal["auto", "sample", "cohort"] = "auto"

    def __post_init__(self) -> None:
        if isinstance(self.gamma, str) and self.gamma not in ("auto", "1/t"):
            raise ConfigError(f"gamma = '{self.gamma}'; use a number, '1/t' or 'auto'")
        if not isinstance(self.gamma, str) and not 0 < self.gamma <= 1:
            raise ConfigError(f"gamma is {self.gamma:g}; a step lies above 0 and at most at 1")
        if self.local == "safe" and self.gamma not in ("auto", 1):
            raise ConfigError(
                f"gamma = {self.gamma!r} has no meaning for local = 'safe', which takes full "
                "steps; leave it out, or choose 'practical' or 'theory'"
            )
