"""How a party's files are to be read, where that is not found out by looking at them."""

from __future__ import annotations

from math import isfinite
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from weft.data.columns.column_rules import PLAIN, ColumnRule
from weft.data.columns.table_transformation import FileReading
from weft.errors import ConfigError

_Sign = Annotated[str, Meta(min_length=1, max_length=1)]
#: Signs between groups of three digits.
THOUSANDS = (",", ".", " ", "'", "_")


class ReadingOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a party may say about its files; nothing needs to be said.

    Attributes
    ----------
    separator, decimal, thousands, encoding
        How a text file is written; found by looking where nothing is said.
    sheet
        Of a workbook.
    query
        Of a database: what to ask for.
    blanks
        Texts that stand for a missing cell, besides the usual ones.
    rename
        Column as the file has it to its name in the federation.
    drop
        Columns that are left out, by their names in the federation.
    scale
        Column to a factor that brings it into the federation's unit.
    classes
        Label as the file has it to the label that the federation knows.
    id_width
        Ids of digits are filled up with leading zeros to so many.
    id_prefix
        What ids begin with here, and nowhere else: it is taken off.
    duplicates
        Which of several rows with the same id counts; nothing said: none.
    columns
        Column, by its name in the federation, to what becomes of its cells.
    interactions
        Pairs of columns whose products are columns too.
    storage
        What dense cells are kept as; nothing said: float64. "float32" takes half the memory and
        keeps 24 bits of each.
    """

    separator: Annotated[str, Meta(min_length=1, max_length=1, examples=[";"])] | None = None
    decimal: Literal[".", ","] | None = None
    thousands: _Sign | None = None
    encoding: Annotated[str, Meta(min_length=1, examples=["utf-8"])] | None = None
    sheet: Annotated[str, Meta(min_length=1)] | None = None
    query: Annotated[str, Meta(min_length=1, examples=["select * from patients"])] | None = None
    blanks: list[str] | None = None
    rename: dict[str, str] | None = None
    drop: list[str] | None = None
    scale: dict[str, float] | None = None
    classes: dict[str, str] | None = None
    id_width: Annotated[int, Meta(ge=1, le=64)] | None = None
    id_prefix: Annotated[str, Meta(min_length=1)] | None = None
    duplicates: Literal["first", "last"] | None = None
    columns: dict[str, ColumnRule] | None = None
    interactions: list[tuple[str, str]] | None = None
    storage: Literal["float64", "float32"] | None = None

    def __post_init__(self) -> None:
        if self.thousands is not None and self.thousands not in THOUSANDS:
            raise ConfigError(
                f"has thousands = {self.thousands!r}; choose one of "
                f"{' '.join(map(repr, THOUSANDS))}"
            )
        if self.thousands is not None and self.thousands == self.decimal:
            raise ConfigError("has the same sign as thousands and as decimal; one of them is wrong")
        if self.separator is not None and (self.separator.isalnum() or self.separator in '"\r\n'):
            raise ConfigError(f"has separator = {self.separator!r}, which cannot part columns")
        for column, factor in (self.scale or {}).items():
            if not (isfinite(factor) and factor):
                raise ConfigError(f"scales '{column}' by {factor}; give a number other than 0")
        renamed = list((self.rename or {}).values())
        if len(set(renamed)) < len(renamed):
            twice = next(name for name in renamed if renamed.count(name) > 1)
            raise ConfigError(f"renames two columns to '{twice}'; leave one of them as it is")
        for pair in self.interactions or ():
            if pair[0] == pair[1]:
                raise ConfigError(f"lets '{pair[0]}' interact with itself; name two columns")

    def named(self, column: str) -> str:
        """The name in the federation of a column of the file."""
        return (self.rename or {}).get(column, column)

    def stored(self, party: str) -> FileReading:
        """What of it a model keeps, to read new files of this party alike."""
        return FileReading(
            party=party,
            rename=dict(self.rename or {}),
            scale=dict(self.scale or {}),
            blanks=tuple(self.blanks or ()),
        )

    def rule_of(self, column: str) -> ColumnRule:
        """What becomes of a column, by its name in the federation."""
        return (self.columns or {}).get(column, PLAIN)


AS_FOUND = ReadingOptions()
