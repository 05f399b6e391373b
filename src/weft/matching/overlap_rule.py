"""How a cell that several parties hold counts."""

from __future__ import annotations

from typing import Literal, TypeAlias

Overlap: TypeAlias = Literal["mean", "first", "sum"]
