"""A first config for files: ids and labels by names and values, and mends for what is wrong."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.compute

from weft.config.read_config import Config
from weft.config.schema import DataSection, LinearFile, ModelSection, PartySection
from weft.config.spelling_and_unit_mismatches import find_mismatches
from weft.data.findings_with_config_fixes import (
    Finding,
    Findings,
    by_severity,
    merged_settings,
    toml_line,
)
from weft.data.read_tables import is_table, names_in_federation, open_table, read_table, reading
from weft.data.read_tiles import Examined
from weft.data.reading_options import AS_FOUND
from weft.errors import ConfigError
from weft.guards import Terms
from weft.solvers.run_settings import Settings

_ID_NAMES = re.compile(
    r"(.*[_ .-])?(id|nr|no|number|key|code|uuid|patient|customer)", re.IGNORECASE
)
_LABEL_NAMES = re.compile(
    r"(label|target|outcome|class|y|response|diagnosis|default|died|result)", re.IGNORECASE
)
#: More different numbers than these are a response, fewer are classes.
_MOST_CLASSES = 10
#: A number with digits after the point that are not all zeros.
_MEASURED = r"^[+-]?[\d  '.,]*[.,]\d*[1-9]\d*([eE][+-]?\d+)?\s*%?$"
#: So many cells that all differ are hardly an accident of numbers with few values.
_MANY = 20


@dataclass(frozen=True)
class Column:
    """What a column looks like.

    Attributes
    ----------
    filled, unique
        Whether no cell is blank, and no two are the same.
    names_rows
        Whether its cells name rows, as far as they show: there are many, no two that are filled are
        the same, and none is a number with digits after the point, as measurements have.
    """

    name: str
    filled: bool
    unique: bool
    names_rows: bool


@dataclass(frozen=True)
class Draft:
    """A config for some files, and what is to be said about it.

    Attributes
    ----------
    text
        The config.
    findings
        All that was found in the files; the config mends what a line can mend.
    """

    text: str
    findings: list[Finding]


def columns_of(path: Path) -> list[Column]:
    """Look at the columns of a table."""
    if not is_table(path):
        raise ConfigError(
            f"{path.name}: configs are drafted from tables with a header; write this one by hand"
        )
    if not path.is_file():
        raise ConfigError(f"there is no file {path}; check the path")
    with reading(path):
        table = open_table(path, AS_FOUND, Findings(file=path.name))
        names = names_in_federation(table.header, AS_FOUND, path.name)
        raw = read_table(table, names, list(names), list(names), Findings()).columns
        return [_column(name, raw[name]) for name in names]


def _column(name: str, cells: pa.ChunkedArray) -> Column:
    texts = pyarrow.compute.utf8_trim_whitespace(cells.cast(pa.string())).fill_null("")
    cells_filled = texts.filter(pyarrow.compute.not_equal(texts, ""))
    apart = len(pyarrow.compute.unique(cells_filled)) == len(cells_filled)
    filled = len(cells_filled) == len(texts)
    measured = pyarrow.compute.match_substring_regex(cells_filled, _MEASURED)
    names_rows = apart and len(cells_filled) >= _MANY and not pyarrow.compute.any(measured).as_py()
    return Column(name, filled, apart and filled and len(texts) > 0, names_rows)


def guess_id(files: Mapping[str, Sequence[Column]]) -> str | None:
    """A column of all files with a name for ids; rather one with another value in every row."""
    common = set.intersection(*({column.name for column in held} for held in files.values()))
    named = [name for name in common if _ID_NAMES.fullmatch(name)]
    apart = {
        name: all(
            column.unique and column.filled
            for held in files.values()
            for column in held
            if column.name == name
        )
        for name in named
    }
    order = [column.name for column in next(iter(files.values()))]
    return min(named, key=lambda name: (not apart[name], order.index(name)), default=None)


def guess_label(files: Mapping[str, Sequence[Column]]) -> str | None:
    """A column with a name for labels, at any party."""
    names = [column.name for held in files.values() for column in held]
    return next((name for name in names if _LABEL_NAMES.fullmatch(name)), None)


def draft_config(
    out: Path,
    files: Mapping[str, Path],
    columns: Mapping[str, Sequence[Column]],
    id_column: str,
    label: str | None,
) -> Draft:
    """A config that ``weft check`` takes, as far as lines of a config can mend the files.

    Parameters
    ----------
    out
        Where it will lie; nothing is written.
    files, columns
        By party.
    """
    parties = tuple(
        PartySection(
            name=name,
            file=os.path.relpath(path, out.parent),
            label=False if label is not None and not _has(columns[name], label) else None,
        )
        for name, path in files.items()
    )
    config = _config(out, parties, id_column, label)
    examined = config.examine(config.data)
    regression = _regression(examined)
    doubts = find_mismatches(parties, examined, confirmed=(), classes=not regression)
    findings = by_severity(
        [*(one for held in examined.values() for file in held for one in file.findings), *doubts]
    )
    return Draft(_text(config, findings, regression=regression), findings)


def _has(columns: Sequence[Column], name: str) -> bool:
    return any(column.name == name for column in columns)


def _config(
    out: Path, parties: tuple[PartySection, ...], id_column: str, label: str | None
) -> Config:
    data = DataSection(id=id_column, label=label, scaling="standard", unit_rows=True)
    file = LinearFile(data=data, model=ModelSection(), party=parties)
    return Config(path=out, file=file, roster=None, terms=Terms(), settings=Settings(lam=1e-2))


def _regression(examined: Mapping[str, Sequence[Examined]]) -> bool:
    """Whether labels are numbers of which there are too many to be classes."""
    different: set[float] = set()
    for held in examined.values():
        for file in held:
            if file.tile is not None and file.tile.labels is not None:
                labels = file.tile.labels[file.tile.labelled]
                if labels.dtype.kind not in "biuf":
                    return False
                different |= set(np.unique(labels.astype(np.float64)).tolist())
    return len(different) > _MOST_CLASSES


def _text(config: Config, findings: Sequence[Finding], *, regression: bool) -> str:
    mends = merged_settings(findings)
    data = config.data
    lines = [toml_line("name", config.path.parent.resolve().name or "federation"), "", "[data]"]
    lines.append(toml_line("id", data.id))
    if data.label is not None:
        lines.append(toml_line("label", data.label))
    lines += [toml_line("scaling", "standard"), "unit_rows = true", *mends.get("[data]", ())]
    loss = "squared" if regression else "logistic"
    lines += ["", "[model]", toml_line("loss", loss), "lambda = 1e-2"]
    lines += ["", "[solver]", "gap = 1e-2"]
    for party in config.parties:
        lines += ["", "[[party]]", toml_line("name", party.name), toml_line("file", party.file)]
        if party.label is False:
            lines.append("label = false")
        own = [one for one in findings if one.party == party.name and not one.for_all]
        for line in mends.get(f"[[party]] {party.name}", ()):
            key = line.partition(" = ")[0]
            lines += [f"# {one.what}" for one in own if one.setting and one.setting[0] == key]
            lines.append(line)
    return "\n".join(lines) + "\n"


def party_names(files: Sequence[Path]) -> dict[str, Path]:
    """Names of parties from those of their files."""
    names: dict[str, Path] = {}
    for path in files:
        stem = path.name.partition(".")[0] or path.name
        name, number = stem, 2
        while name in names:
            name, number = f"{stem}-{number}", number + 1
        names[name] = path
    return names
