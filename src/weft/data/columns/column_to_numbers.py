"""One column by its rule: which columns of numbers it becomes, and what they hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.data.columns.bins_and_splines import (
    bin_columns,
    bin_names,
    own_quantiles,
    spline_columns,
    spline_width,
)
from weft.data.columns.column_rules import OTHER, ColumnRule, day_of
from weft.data.columns.date_texts import days_of
from weft.data.columns.raw_column_cells import CategoryCells, Cells, Floats, NumberCells
from weft.errors import DataError

_WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")
_PARTS = {
    "month": [f"{month:02d}" for month in range(1, 13)],
    "weekday": list(_WEEKDAYS),
}


class SettledColumn(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A column's rule with all that was left open filled in, as it is stored.

    Attributes
    ----------
    levels
        Of a category, those that have a column.
    other
        Whether all other levels of a category have a column together.
    knots
        Of bins or a spline.
    """

    name: str
    rule: ColumnRule
    levels: tuple[str, ...] = ()
    other: bool = False
    knots: tuple[float, ...] = ()

    def features(self) -> list[str]:
        """Names of the columns that it becomes."""
        name, rule = self.name, self.rule
        names = [name]
        if rule.kind == "category":
            shown = [*self.levels, *([OTHER] if self.other else [])]
            names = [f"{name}={level}" for level in shown]
        elif rule.kind == "date":
            names = _date_names(name, rule)
        elif isinstance(rule.bins, list):
            names = bin_names(name, self.knots)
        elif rule.bins is not None:
            # Where the party's own numbers are cut is nothing for a name that others read.
            names = [f"{name}.bin{part}" for part in range(1, len(self.knots) + 2)]
        elif rule.spline is not None:
            names = [f"{name}.spline{part}" for part in range(1, spline_width(self.knots) + 1)]
        return [*names, f"{name}.blank"] if rule.indicator else names

    def numbers(self, cells: Cells) -> tuple[Floats, Misfits]:
        """(samples × features) of these cells, and what did not fit; blank cells are NaN."""
        rule, blank = self.rule, cells.blank
        if isinstance(cells, CategoryCells):
            columns, misfits = self._categories(cells)
        elif rule.kind == "date":
            columns, misfits = _date_columns(cells.values, rule), Misfits()
        else:
            columns, misfits = self._numbers(cells.values)
        if rule.indicator:
            columns = np.column_stack([columns, blank.astype(np.float64)])
        return columns, misfits

    def _categories(self, cells: CategoryCells) -> tuple[Floats, Misfits]:
        rule = self.rule
        fill = None if rule.blank is None else str(rule.blank)
        cells = cells.filled(fill)
        place = {level: column for column, level in enumerate(self.levels)}
        width = len(self.levels) + self.other
        of_text = np.full(len(cells.texts) + 1, -1)
        known = np.ones(len(cells.texts) + 1, bool)
        for number, text in enumerate(cells.texts):
            known[number] = text in place or text == rule.reference
            rest = len(self.levels) if self.other and not known[number] else -1
            of_text[number] = place.get(text, rest)
        columns = np.zeros((len(cells), width))
        at = of_text[cells.codes]
        held = np.flatnonzero(at >= 0)
        columns[held, at[held]] = 1.0
        columns[cells.blank] = np.nan
        strange = np.flatnonzero(~known[cells.codes] & ~cells.blank)
        texts = {cells.texts[code] for code in cells.codes[strange].tolist()}
        return columns, Misfits(other=len(strange), levels=tuple(sorted(texts)))

    def _numbers(self, values: Floats) -> tuple[Floats, Misfits]:
        rule = self.rule
        if rule.blank is not None:
            values = np.where(np.isnan(values), float(rule.blank), values)
        if rule.clip is not None:
            values = np.clip(values, *rule.clip)
        outside: NDArray[np.int64] = np.zeros(0, np.int64)
        clipped = 0
        if rule.range is not None and rule.outside != "keep":
            beyond = (values < rule.range[0]) | (values > rule.range[1])
            if rule.outside == "error":
                outside = np.flatnonzero(beyond)
            else:
                clipped = int(beyond.sum())
            # Of numbers that are refused, this one is never used.
            values = np.clip(values, *rule.range)
        if rule.log is not None:
            below = values <= (0.0 if rule.log == "x" else -1.0)
            outside = np.union1d(outside, np.flatnonzero(below))
            values = np.where(below, 1.0, values)
            values = np.log(values) if rule.log == "x" else np.log1p(values)
        return self._bent(values), Misfits(outside=outside, clipped=clipped)

    def _bent(self, values: Floats) -> Floats:
        rule = self.rule
        if rule.bins is not None:
            return bin_columns(values, self.knots)
        if rule.spline is not None:
            return spline_columns(values, self.knots)
        if rule.range is not None:
            low, high = map(rule.logged, rule.range)
            values = (values - low) / (high - low)
        return values[:, None]


@dataclass(frozen=True)
class Misfits:
    """Cells that the rule of a column did not foresee.

    Attributes
    ----------
    outside
        Rows whose numbers have no place: outside of the range, or without a logarithm.
    clipped
        How many were set to the ends of the range, as declared.
    other
        How many cells have a level that has no column of its own.
    levels
        Those levels.
    """

    outside: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    clipped: int = 0
    other: int = 0
    levels: tuple[str, ...] = ()


def settled_column(
    name: str,
    rule: ColumnRule,
    held: Sequence[Cells],
    levels: Sequence[str] | None = None,
    *,
    other: bool = False,
) -> SettledColumn:
    """Fill in what a rule leaves to the party's own cells, or to what was agreed on.

    Parameters
    ----------
    held
        The party's cells of this column, per tile.
    levels, other
        What the holders of an open category agreed on.
    """
    if rule.kind == "category":
        chosen = (rule.levels if levels is None else levels) or ()
        shown = tuple(level for level in chosen if level not in (rule.reference, OTHER))
        return SettledColumn(name=name, rule=rule, levels=shown, other=other or OTHER in chosen)
    knots: Sequence[float] = ()
    if rule.bins is not None or rule.spline is not None:
        knots = _knots(name, rule, held)
    return SettledColumn(name=name, rule=rule, knots=tuple(knots))


def _knots(name: str, rule: ColumnRule, held: Sequence[Cells]) -> list[float]:
    told = rule.bins if rule.bins is not None else rule.spline
    bins = rule.bins is not None
    if isinstance(told, list):
        return told if bins else [rule.logged(knot) for knot in told]
    plain = SettledColumn(name=name, rule=msgspec.structs.replace(rule, bins=None, spline=None))
    parts = [plain._numbers(c.values)[0][:, 0] for c in held if isinstance(c, NumberCells)]
    values = np.concatenate(parts) if parts else np.zeros(0)
    knots = own_quantiles(values, int(told or 0), inner=bins)
    if len(knots) < (1 if bins else 2):
        raise DataError(
            f"column '{name}' has too few different numbers for {'bins' if bins else 'spline'} = "
            f"{told}; use it as it is, or declare a list of numbers"
        )
    return knots


# ── dates ─────────────────────────────────────────────────────────────────────────────────────


def _date_names(name: str, rule: ColumnRule) -> list[str]:
    names = [name] if rule.since is not None else []
    for part in rule.parts or ():
        if part == "year":
            names.append(f"{name}.year")
        else:
            names += [f"{name}.{part}={value}" for value in _PARTS[part]]
    return names


def _date_columns(days: Floats, rule: ColumnRule) -> Floats:
    if rule.blank is not None:
        days = np.where(np.isnan(days), _day_number(str(rule.blank)), days)
    blank = np.isnan(days)
    columns = []
    if rule.since is not None:
        columns.append((days - _day_number(rule.since))[:, None])
    whole = np.floor(np.where(blank, 0.0, days)).astype("datetime64[D]")
    for part in rule.parts or ():
        if part == "year":
            year = whole.astype("datetime64[Y]").astype(np.int64) + 1970
            columns.append(year.astype(np.float64)[:, None])
        elif part == "month":
            month = whole.astype("datetime64[M]").astype(np.int64) % 12
            columns.append((month[:, None] == np.arange(12)).astype(np.float64))
        else:
            # 1 January 1970 was a Thursday.
            weekday = (whole.astype(np.int64) + 3) % 7
            columns.append((weekday[:, None] == np.arange(7)).astype(np.float64))
    found: Floats = np.hstack(columns)
    found[blank] = np.nan
    return found


def _day_number(text: str) -> float:
    return float(days_of(np.array([day_of(text, "since")], "datetime64[us]"))[0])
