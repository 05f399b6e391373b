"""How columns are scaled, which `weft.sums.scaling_coordinator` does."""

from __future__ import annotations

from typing import Literal, TypeAlias

Rule: TypeAlias = Literal["none", "standard", "minmax", "maxabs"]
