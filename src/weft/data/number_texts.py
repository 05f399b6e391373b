"""Numbers as people write them: decimal commas, thousands, percent signs, words for true and false.

What a sign means is settled for a whole file: "1,234" is 1234 in a file that also has "0.5", and
1.234 in one that has "0,5". Where nothing settles it, nobody guesses: the owner is asked.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute
from numpy.typing import NDArray

#: Texts that stand for a missing cell.
BLANKS = [
    *("", "NA", "N/A", "#N/A", "NaN", "nan", "NULL", "null", "None"),
    *("na", "n/a", "none", "-", "–", ".", "?", "NAN", "<NA>", "NaT"),
    *("#DIV/0!", "#VALUE!", "#REF!", "#NAME?", "#NUM!", "#NULL!"),
]
_YES = (
    *("true", "yes", "y", "t", "on", "ja", "j", "wahr", "oui", "vrai"),
    *("si", "sí", "verdadero", "sim"),
)
_NO = ("false", "no", "n", "f", "off", "nein", "falsch", "non", "faux", "falso", "não", "nao")
TRUTH = {**dict.fromkeys(_YES, 1.0), **dict.fromkeys(_NO, 0.0)}
_DATE = re.compile(
    r"\d{4}[-/.]\d{1,2}[-/.]\d{1,2}([T ]\d{1,2}:\d{2}.*)?|\d{1,2}[-/.]\d{1,2}[-/.](\d{4}|\d{2})"
)
#: Between groups of three digits in any file: blanks of any width, apostrophes, underscores.
_GROUPING = " \u00a0\u2009\u202f'’_"
_SIGN = r"[+\-−]?"

#: What the texts of a column are.
Kind: TypeAlias = Literal["numbers", "percent", "truth", "dates", "text"]


class Signs(NamedTuple):
    """What stands before the fraction, and between groups of three digits besides blanks."""

    decimal: str = "."
    thousands: str = ""


class Usage(NamedTuple):
    """How commas and points are used in the numbers of a file.

    Attributes
    ----------
    decimal, thousands
        None: nothing in the file settles it.
    doubtful
        Texts that could be either, such as "1,234".
    """

    decimal: str | None
    thousands: str
    doubtful: list[str]


@dataclass(frozen=True)
class ReadNumbers:
    """The numbers of a column.

    Attributes
    ----------
    values
        NaN where a cell is blank, or no number.
    bad
        Rows whose cells are neither.
    """

    kind: Kind
    values: NDArray[np.float64]
    bad: NDArray[np.int64]


def find_usage(texts: Iterable[str]) -> Usage:
    """Look at all texts of a file that are numbers for some meaning of comma and point."""
    settled = {",": 0, ".": 0}
    groups = {",": False, ".": False}
    doubtful: dict[str, dict[str, None]] = {",": {}, ".": {}}
    for text in texts:
        body = text.strip().rstrip("%").rstrip()
        for decimal, other in ((",", "."), (".", ",")):
            if body in doubtful[decimal] or not _shape(decimal, other).fullmatch(body):
                continue
            if other in body and (body.count(other) > 1 or decimal in body):
                settled[decimal] += 1
                groups[other] = True
            elif decimal in body:
                if _shape(other, decimal).fullmatch(body):
                    doubtful[decimal][body] = None
                else:
                    settled[decimal] += 1
    if settled[","] > settled["."]:
        return Usage(",", "." if groups["."] or doubtful["."] else "", [])
    if settled["."] or not doubtful[","]:
        return Usage(".", "," if groups[","] or doubtful[","] else "", [])
    return Usage(None, "", list(doubtful[","]))


def _shape(decimal: str, thousands: str) -> re.Pattern[str]:
    key = (decimal, thousands)
    if key not in _SHAPES:
        point = re.escape(decimal)
        sign = f"[{re.escape(_GROUPING + thousands)}]"
        grouped = rf"[1-9]\d{{0,2}}(?:({sign})\d{{3}})(?:\1\d{{3}})*"
        _SHAPES[key] = re.compile(
            rf"{_SIGN}(?:(?:{grouped}|\d+)(?:{point}\d*)?|{point}\d+)(?:[eE][+\-]?\d+)?"
        )
    return _SHAPES[key]


_SHAPES: dict[tuple[str, str], re.Pattern[str]] = {}
_INFINITE = re.compile(rf"{_SIGN}inf(inity)?", re.IGNORECASE)


def number(text: str, signs: Signs) -> float | None:
    """What a text says as a number, percent signs taken off; None: it is none."""
    body = text.strip()
    if body.endswith("%"):
        body = body[:-1].rstrip()
    if not _shape(*signs).fullmatch(body):
        return float(body.replace("−", "-")) if _INFINITE.fullmatch(body) else None
    for sign in (*_GROUPING, signs.thousands):
        body = body.replace(sign, "") if sign else body
    return float(body.replace(signs.decimal, ".").replace("−", "-"))


def plain_numbers(
    trimmed: pa.ChunkedArray, decimal: str, blanks: Sequence[str]
) -> NDArray[np.float64] | None:
    """Texts as numbers, fast, if they hold nothing but digits, signs and the decimal sign."""
    blank = pyarrow.compute.is_in(trimmed, value_set=pa.array([*BLANKS, *blanks], pa.string()))
    texts = pyarrow.compute.if_else(blank, pa.scalar(None, pa.string()), trimmed)
    if decimal != ".":
        if pyarrow.compute.any(pyarrow.compute.match_substring(texts, ".")).as_py():
            return None
        texts = pyarrow.compute.replace_substring(texts, decimal, ".")
    try:
        return np.array(texts.cast(pa.float64()).to_numpy())
    except pa.ArrowInvalid:
        return None


def read_numbers(column: pa.ChunkedArray, signs: Signs, blanks: Sequence[str]) -> ReadNumbers:
    """The numbers of a column of texts; nulls are blank."""
    trimmed = pyarrow.compute.utf8_trim_whitespace(column.cast(pa.string()))
    plain = plain_numbers(trimmed, signs.decimal, blanks)
    if plain is not None:
        return ReadNumbers("numbers", plain, np.zeros(0, np.int64))
    codes, different = pd.factorize(np.asarray(trimmed.to_numpy(zero_copy_only=False), object))
    texts: list[str] = different.tolist()
    skipped = {*BLANKS, *blanks}
    given = [text for text in texts if text not in skipped]
    if given and all(text.casefold() in TRUTH for text in given):
        return _spread(
            "truth", codes, [TRUTH.get(text.casefold()) for text in texts], skipped, texts
        )
    found = [None if text in skipped else number(text, signs) for text in texts]
    percent = [text.endswith("%") for text in given]
    kind: Kind = "numbers"
    if any(percent) and all(percent):
        kind, found = "percent", [None if one is None else one / 100 for one in found]
    elif any(percent):
        # Some with the sign and some without: what the others are meant to be is a guess.
        found = [
            None if text.endswith("%") else one for one, text in zip(found, texts, strict=True)
        ]
    read = _spread(kind, codes, found, skipped, texts)
    if not len(read.bad):
        return read
    if all(_DATE.fullmatch(text) for text in given):
        return ReadNumbers("dates", read.values, read.bad)
    return ReadNumbers("text", read.values, read.bad)


def _spread(
    kind: Kind,
    codes: NDArray[np.int64],
    found: Sequence[float | None],
    skipped: set[str],
    texts: Sequence[str],
) -> ReadNumbers:
    """From the different texts of a column to its rows; code -1 is a null."""
    values = np.array([np.nan if one is None else one for one in found] + [np.nan])
    bad = [one is None and text not in skipped for one, text in zip(found, texts, strict=True)]
    return ReadNumbers(kind, values[codes], np.flatnonzero(np.array([*bad, False])[codes]))
