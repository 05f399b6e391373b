"""What a party declares about a column: how its cells become numbers to train on."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import date
from itertools import pairwise
from math import isfinite, log, log1p
from typing import Annotated, Literal, TypeAlias

import msgspec
from msgspec import Meta

from weft.errors import ConfigError
from weft.thread_safe_decoding import prepared

Kind: TypeAlias = Literal["number", "category", "date"]
DatePart: TypeAlias = Literal["year", "month", "weekday"]
Limits: TypeAlias = tuple[float, float]
#: Parts of the column's own values that have the same size, or where curves bend.
_Count = Annotated[int, Meta(ge=2, le=50)]
_Knots: TypeAlias = Annotated[list[float], Meta(min_length=1, max_length=50)] | _Count

#: Which keys go with which kind; all others are for any.
_OF_KIND: dict[Kind, tuple[str, ...]] = {
    "number": ("clip", "log", "range", "outside", "bins", "spline"),
    "category": ("levels", "reference", "map"),
    "date": ("since", "parts", "format"),
}


class ColumnRule(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True
):
    """What becomes of a column; nothing said: its numbers are used as they are.

    Attributes
    ----------
    kind
        What its cells are.
    blank
        What stands for a blank cell: a number, a level, or a date.
    indicator
        Whether one more column says where cells were blank.
    clip
        Lowest and highest number; others become these.
    log
        Take the logarithm, of x or of 1 + x.
    range
        Which numbers become 0 and 1; all between them lie between.
    outside
        What becomes of numbers outside of the range.
    bins
        One column for each part: where parts begin, or into how many of equal size the party's own
        numbers are cut.
    spline
        A smooth curve of third degree: where its pieces meet, or at how many places between the
        party's own numbers.
    levels
        All levels of a category that get a column, and ``(other)`` if the rest of them shall have
        one together; nothing said: the parties that hold the column agree on them.
    reference
        The level that gets no column: others are compared with it.
    map
        Level as this party's file has it to the level that the federation knows.
    since
        The day from which days are counted.
    parts
        Parts of dates that get columns of their own.
    format
        How this party's file writes dates, as in ``%d.%m.%Y``; nothing said: year first, or what
        all dates of the file fit.
    """

    kind: Kind = "number"
    blank: float | str | None = None
    indicator: bool = False
    clip: Limits | None = None
    log: Literal["x", "1+x"] | None = None
    range: Limits | None = None
    outside: Literal["error", "clip", "keep"] = "error"
    bins: _Knots | None = None
    spline: _Knots | None = None
    levels: Annotated[list[str], Meta(min_length=1)] | None = None
    reference: Annotated[str, Meta(min_length=1)] | None = None
    map: dict[str, str] | None = None
    since: str | None = None
    parts: Annotated[list[DatePart], Meta(min_length=1)] | None = None
    format: Annotated[str, Meta(min_length=1)] | None = None

    def __post_init__(self) -> None:
        self._check_keys()
        if self.indicator and self.blank is None:
            raise ConfigError(
                "has indicator = true, which needs blank: what stands for a blank cell"
            )
        if self.kind == "number":
            self._check_number()
        elif self.kind == "category":
            self._check_category()
        else:
            self._check_date()

    def _check_keys(self) -> None:
        for field in msgspec.structs.fields(self):
            kinds = [kind for kind, names in _OF_KIND.items() if field.name in names]
            if kinds and self.kind not in kinds and getattr(self, field.name) != field.default:
                raise ConfigError(
                    f"has {field.name}, which is for kind = '{kinds[0]}'; leave it out, or set the "
                    "kind"
                )

    def _check_number(self) -> None:
        if isinstance(self.blank, str):
            raise ConfigError(f"has blank = '{self.blank}'; give a number for a column of numbers")
        if self.blank is not None and not isfinite(self.blank):
            raise ConfigError(f"has blank = {self.blank}; give a number")
        for key in ("clip", "range"):
            limits = getattr(self, key)
            if limits is not None and not (
                isfinite(limits[0]) and isfinite(limits[1]) and limits[0] < limits[1]
            ):
                raise ConfigError(f"has {key} = {list(limits)}; give a lower and a higher number")
        for key in ("bins", "spline"):
            knots = getattr(self, key)
            if isinstance(knots, list) and not (
                all(map(isfinite, knots)) and all(a < b for a, b in pairwise(knots))
            ):
                raise ConfigError(f"has {key} = {knots}; give rising numbers")
        if isinstance(self.spline, list) and len(self.spline) < 2:
            raise ConfigError(f"has spline = {self.spline}; give at least two numbers")
        if sum(given is not None for given in (self.range, self.bins, self.spline)) > 1:
            raise ConfigError("has two of range, bins and spline; keep one of them")
        if self.outside != "error" and self.range is None:
            raise ConfigError("has outside, but no range that numbers could be outside of")
        self._check_log()

    def _check_log(self) -> None:
        if self.log is None:
            return
        if self.bins is not None:
            raise ConfigError("has log and bins; bins are cut in the column's own unit: drop log")
        least = 0.0 if self.log == "x" else -1.0
        for key in ("clip", "range"):
            limits = getattr(self, key)
            if limits is not None and limits[0] <= least:
                raise ConfigError(
                    f"has {key} = {list(limits)}, but log = '{self.log}' needs numbers above "
                    f"{least:g}; raise its first number, or take log = '1+x'"
                )
        if self.blank is not None and float(self.blank) <= least and self.clip is None:
            raise ConfigError(f"has blank = {self.blank}, of which log = '{self.log}' is not there")
        for key in ("range", "spline"):
            given = getattr(self, key)
            if isinstance(given, list | tuple) and not self._rises_in_logs(given, least):
                raise ConfigError(
                    f"has {key} = {list(given)}, whose logarithms do not rise; give numbers above "
                    f"{least:g} that lie further apart"
                )

    def _rises_in_logs(self, given: Sequence[float], least: float) -> bool:
        return given[0] > least and all(a < b for a, b in pairwise(map(self.logged, given)))

    def _check_category(self) -> None:
        if self.blank is not None and (not isinstance(self.blank, str) or not self.blank.strip()):
            raise ConfigError(f"has blank = {self.blank!r}; give a level, as text in quotes")
        if self.levels is not None:
            if len(set(self.levels)) < len(self.levels) or any(not v.strip() for v in self.levels):
                raise ConfigError("lists a level twice, or an empty one; take it out")
            if self.reference is not None and self.reference not in self.levels:
                raise ConfigError(f"has reference = '{self.reference}', which is not in levels")

    def _check_date(self) -> None:
        if self.since is None and self.parts is None:
            raise ConfigError(
                'needs since = "2020-01-01", to count days, or parts = ["year", "month", '
                '"weekday"], or both'
            )
        if self.parts is not None and len(set(self.parts)) < len(self.parts):
            raise ConfigError("lists a part twice; take it out")
        for key in ("since", "blank"):
            value = getattr(self, key)
            if value is not None:
                day_of(value, key)

    @property
    def open(self) -> bool:
        """Whether the levels are for the holders of the column to agree on."""
        return self.kind == "category" and self.levels is None

    def logged(self, value: float) -> float:
        """A number as the rest of the rule sees it."""
        if self.log is None:
            return value
        return log(value) if self.log == "x" else log1p(value)


#: The level that stands for rare ones, and for those that training never saw.
OTHER = "(other)"
PLAIN = ColumnRule()


def day_of(text: object, key: str) -> date:
    """A day that a config names."""
    try:
        return date.fromisoformat(str(text))
    except ValueError:
        raise ConfigError(
            f'has {key} = {text!r}; write a day with its year first, such as "2020-01-31"'
        ) from None


def encode_rules(rules: Mapping[str, ColumnRule]) -> str:
    """Rules by column as text; empty for none."""
    return msgspec.json.encode(rules).decode() if rules else ""


def decode_rules(text: str) -> dict[str, ColumnRule]:
    """The inverse of :func:`encode_rules`, for a text from another machine."""
    try:
        rules = msgspec.json.decode(text, type=prepared(dict[str, ColumnRule])) if text else {}
    except (msgspec.MsgspecError, ConfigError) as error:
        raise ConfigError(f"the study declares columns in an unknown way ({error})") from None
    check_study_rules(rules)
    return rules


def check_study_rules(rules: Mapping[str, ColumnRule]) -> None:
    """Refuse rules for sites whose answers would depend on cells, in a way that the rule steers.

    Whoever hands in a study could otherwise ask again and again with other numbers, and find out
    cells from which of them a site refuses, or how many columns it has.
    """
    for name, rule in rules.items():
        wrong = _steered_answer(rule)
        if wrong:
            raise ConfigError(f"the study's [columns.{name}] {wrong}")


def _steered_answer(rule: ColumnRule) -> str:
    """What of a rule is for a site alone to say, and what to do; empty: nothing."""
    for key in ("map", "format"):
        if getattr(rule, key) is not None:
            return (
                f"has {key}, which is about one site's file; let that site declare the column in "
                "the file that 'weft join --reading' names"
            )
    for key in ("bins", "spline"):
        if isinstance(getattr(rule, key), int):
            return (
                f"has {key} = {getattr(rule, key)}, which each site would cut by its own numbers; "
                "list the numbers to cut at"
            )
    if rule.range is not None and rule.outside == "error":
        return (
            "has range, and no site may be asked whether it has numbers outside; set outside = "
            '"clip" or outside = "keep"'
        )
    if rule.log is not None and rule.clip is None and rule.outside != "clip":
        return (
            "has log, and no site may be asked whether it has numbers without a logarithm; set "
            f"clip with a first number above {0 if rule.log == 'x' else -1}"
        )
    return ""


def common_part(rule: ColumnRule) -> ColumnRule:
    """What all holders of a column must declare alike: all but how their own files write it."""
    levels = None if rule.levels is None else sorted(rule.levels)
    return msgspec.structs.replace(rule, map=None, format=None, levels=levels)


def rule_bytes(rule: ColumnRule) -> bytes:
    """The same bytes for rules that say the same."""
    return msgspec.json.encode(common_part(rule), order="sorted")
