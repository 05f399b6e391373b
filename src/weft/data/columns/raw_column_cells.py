"""Cells of declared columns as a file has them, before they become numbers to train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from weft.data.columns.column_rules import ColumnRule

Floats: TypeAlias = NDArray[np.float64]
Pair: TypeAlias = tuple[str, str]


@dataclass(frozen=True, eq=False)
class CategoryCells:
    """A column of texts.

    Attributes
    ----------
    texts
        The different texts.
    codes
        Per row, which of them it is; −1: the cell is blank.
    """

    texts: tuple[str, ...]
    codes: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.codes)

    def rows(self, index: Any) -> CategoryCells:
        """Some of the rows."""
        return CategoryCells(self.texts, self.codes[index])

    @property
    def blank(self) -> NDArray[np.bool_]:
        return self.codes < 0

    def filled(self, text: str | None) -> CategoryCells:
        """The same with a text for blank cells; None: they stay blank."""
        if text is None or not self.blank.any():
            return self
        texts = self.texts if text in self.texts else (*self.texts, text)
        return CategoryCells(texts, np.where(self.blank, texts.index(text), self.codes))

    def counts(self) -> dict[str, int]:
        """How many rows have each text; those that none has are left out."""
        known = np.bincount(self.codes[self.codes >= 0], minlength=len(self.texts))
        return {text: n for text, n in zip(self.texts, known.tolist(), strict=True) if n}


@dataclass(frozen=True, eq=False)
class NumberCells:
    """A column of numbers, or of dates as days since 1970; NaN: the cell is blank."""

    values: Floats

    def __len__(self) -> int:
        return len(self.values)

    def rows(self, index: Any) -> NumberCells:
        """Some of the rows."""
        return NumberCells(self.values[index])

    @property
    def blank(self) -> NDArray[np.bool_]:
        return np.isnan(self.values)


Cells: TypeAlias = CategoryCells | NumberCells


@dataclass(frozen=True, eq=False)
class DeclaredColumns:
    """The columns of a tile that rules are declared for.

    Attributes
    ----------
    cells
        By the column's name in the federation.
    interactions
        Pairs of columns of the tile, plain ones among them, whose products are columns too.
    """

    rules: Mapping[str, ColumnRule]
    cells: Mapping[str, Cells]
    interactions: Sequence[Pair] = field(default=())

    def rows(self, index: Any) -> DeclaredColumns:
        """The same columns of some samples."""
        cells = {name: column.rows(index) for name, column in self.cells.items()}
        return DeclaredColumns(self.rules, cells, self.interactions)
