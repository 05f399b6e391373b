"""What ADMM is told besides the common settings."""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError


class AdmmOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Block-splitting ADMM.

    Attributes
    ----------
    rho
        The penalty ρ. ``auto`` begins at √(λ/N) and balances the two residuals, for the first 500
        iterations, so that ρ is constant in the end.
    """

    rho: float | Literal["auto"] = "auto"

    def __post_init__(self) -> None:
        if self.rho != "auto" and not self.rho > 0:
            raise ConfigError(f"rho is {self.rho:g}; give a number above 0, or 'auto'")
