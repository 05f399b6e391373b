"""How columns are scaled, which `weft.sums.feature_scaling` does."""

from __future__ import annotations

from typing import Literal, TypeAlias

Rule: TypeAlias = Literal["none", "standard", "minmax", "maxabs"]
