"""How a text file is written: its encoding, the sign between columns, and its header.

All three are found by looking, unless the file's owner says them, and are named in a note.
"""

from __future__ import annotations

import codecs
import csv
import gzip
import io
import lzma
import zipfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

from weft.data.findings_with_config_fixes import Findings
from weft.data.reading_options import ReadingOptions
from weft.errors import DataError

#: Suffixes of text with a header, plain and compressed.
TEXTS = tuple(
    f"{kind}{packing}"
    for kind in (".csv", ".tsv", ".txt")
    for packing in ("", ".gz", ".xz", ".zip")
)
#: What can go wrong while a text file is opened and decoded.
TEXT_FAILURES = (OSError, EOFError, UnicodeError, lzma.LZMAError, zipfile.BadZipFile, csv.Error)
_SEPARATORS = (",", ";", "\t", "|")
_NAMES = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
}
#: What programs for Windows write in western Europe, where they do not write UTF-8.
_WESTERN = "cp1252"
#: Characters and lines that are looked at for the separator.
_SAMPLE, _LINES = 1 << 16, 200


@dataclass(frozen=True)
class TextLayout:
    """How a text file is to be read.

    Attributes
    ----------
    header
        Names of the columns, as the file has them.
    sample
        The first lines below the header, cut into cells.
    """

    encoding: str
    separator: str
    header: list[str]
    sample: list[list[str]]


@contextmanager
def opened(path: Path) -> Iterator[IO[bytes]]:
    """The bytes of a text file, unpacked; of an archive, those of the one file in it."""
    if path.suffix.lower() == ".zip":
        with zipfile.ZipFile(path) as archive:
            members = [info for info in archive.infolist() if not info.is_dir()]
            if len(members) != 1:
                raise DataError(
                    f"{path.name}: the archive holds {len(members)} files and not one; unpack it "
                    "and name the table itself."
                )
            with archive.open(members[0]) as stream:
                yield stream
        return
    openers: dict[str, Callable[..., Any]] = {".gz": gzip.open, ".xz": lzma.open}
    with openers.get(path.suffix.lower(), open)(path, "rb") as stream:
        yield cast("IO[bytes]", stream)


def find_layout(path: Path, options: ReadingOptions, found: Findings) -> TextLayout:
    """Look at a file; what was found and not said goes into a note."""
    encoding = options.encoding or _encoding(path)
    with opened(path) as stream:
        text = io.TextIOWrapper(stream, encoding=encoding, newline="").read(_SAMPLE)
    whole = len(text) < _SAMPLE
    text = text.removeprefix("\ufeff")
    separator = options.separator or _separator(text, whole)
    lines = _cut(text, separator, whole)
    header = lines[0] if lines else []
    if options.encoding is None and encoding == _WESTERN:
        found.add(
            "note",
            "the file is not UTF-8 and was read as Windows-1252; if letters look wrong, name its "
            'encoding, such as encoding = "latin-2"',
        )
    if options.separator is None and separator != ",":
        named = _NAMES[separator]
        found.add("note", f"a {named} parts the columns (separator = {separator!r})")
    return TextLayout(encoding, separator, header, lines[1:])


def _encoding(path: Path) -> str:
    """UTF-8, where all bytes are; UTF-16, where the first ones say so; else western Windows."""
    with opened(path) as stream:
        begin = stream.read(4)
        for mark, name in _MARKS.items():
            if begin.startswith(mark):
                return name
        decoder = codecs.getincrementaldecoder("utf-8")()
        try:
            decoder.decode(begin)
            while chunk := stream.read(1 << 20):
                decoder.decode(chunk)
            decoder.decode(b"", final=True)
        except UnicodeDecodeError:
            return _WESTERN
    return "utf-8"


def _separator(text: str, whole: bool) -> str:
    """The sign that cuts the header, and most lines like the header; a comma if none does."""
    scores: dict[str, tuple[float, int]] = {}
    for separator in _SEPARATORS:
        try:
            lines = _cut(text, separator, whole)
        except csv.Error:
            continue
        if not lines or len(lines[0]) < 2:
            continue
        counts = Counter(len(line) for line in lines)
        scores[separator] = (counts[len(lines[0])] / len(lines), len(lines[0]))
    return max(scores, key=lambda sign: scores[sign], default=",")


def _cut(text: str, separator: str, whole: bool) -> list[list[str]]:
    """The first lines, cut into cells; the last one may be half a line."""
    rows: list[list[str]] = []
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=separator):
        if row:
            rows.append(row)
        if len(rows) > _LINES:
            return rows
    return rows if whole or len(rows) < 2 else rows[:-1]
