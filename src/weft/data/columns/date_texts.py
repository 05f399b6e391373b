"""Dates as people write them, as days since 1970; which number is the day is never guessed."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

import numpy as np
import pandas as pd
from numpy.typing import NDArray

_SEPARATED = re.compile(r"(\d{1,4})([-/.])(\d{1,2})\2(\d{1,4})(?:[T ](\d{1,2}:\d{2}.*))?")
_EPOCH = np.datetime64("1970-01-01T00:00:00", "us")
_DAY = np.timedelta64(1, "D")


class ReadDates(NamedTuple):
    """Dates of the different texts of a column.

    Attributes
    ----------
    days
        Since 1970, with the time of day as a fraction; NaN: not such a date.
    doubtful
        Texts whose day and month could be either way round, where nothing in the column settles it.
    """

    days: NDArray[np.float64]
    doubtful: list[str]


def read_dates(texts: Sequence[str], format: str | None) -> ReadDates:
    """What texts say as dates: as ``format`` has it, else by looking at all of them."""
    if format is not None:
        return ReadDates(np.array([_by_format(text, format) for text in texts]), [])
    order, doubtful = _day_first(texts)
    return ReadDates(np.array([_by_looking(text, order) for text in texts], float), doubtful)


def days_of(times: NDArray[np.datetime64]) -> NDArray[np.float64]:
    """Days since 1970; NaN where there is no time."""
    blank = np.isnat(times)
    spent = np.where(blank, _EPOCH, times.astype("datetime64[us]")) - _EPOCH
    return np.where(blank, np.nan, spent / _DAY)


def _by_format(text: str, format: str) -> float:
    try:
        return float(days_of(np.array([datetime.strptime(text, format)], "datetime64[us]"))[0])
    except ValueError:
        return np.nan


def _day_first(texts: Sequence[str]) -> tuple[bool, list[str]]:
    """Whether the day stands before the month where the year is last; texts that could be both."""
    first, second, either = 0, 0, []
    for text in texts:
        match = _SEPARATED.fullmatch(text)
        if match is None or len(match[1]) == 4:
            continue
        one, other = int(match[1]), int(match[3])
        if match[2] == "." or one > 12:
            # Points are written between day, month and year, in this order.
            first += 1
        elif other > 12:
            second += 1
        elif one != other:
            either.append(text)
    if first or second:
        return first >= second, []
    return True, either


def _by_looking(text: str, day_first: bool) -> float:
    match = _SEPARATED.fullmatch(text)
    if match is None:
        return np.nan
    one, middle, last, clock = match[1], match[3], match[4], match[5] or ""
    if len(one) == 4:
        year, month, day = one, middle, last
    elif len(last) == 4:
        year, month, day = (last, middle, one) if day_first else (last, one, middle)
    else:
        # Two digits of a year do not say the century.
        return np.nan
    try:
        time = pd.Timestamp(f"{int(year):04d}-{int(month):02d}-{int(day):02d} {clock}".strip())
    except ValueError:
        return np.nan
    if time.tzinfo is not None:
        time = time.tz_convert("UTC").tz_localize(None)
    return float(days_of(np.array([time.to_datetime64()], "datetime64[us]"))[0])
