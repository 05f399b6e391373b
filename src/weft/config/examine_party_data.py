"""A party's files as its config describes them, with all that is to be said about them."""

from __future__ import annotations

from collections.abc import Container, Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from weft.config.schema import PartySection
from weft.config.strict_reading import closest
from weft.data.blank_cells import find_blanks
from weft.data.file_or_database_address import Source
from weft.data.findings_with_config_fixes import Finding
from weft.data.read_tiles import Examined, examine
from weft.data.reading_options import ReadingOptions
from weft.data.tile import MissingPolicy


class FileColumns(Protocol):
    """What ``[data]`` says for all parties' files."""

    @property
    def id(self) -> str:
        """Column of the ids."""

    @property
    def label(self) -> str | None:
        """Column of the labels."""

    @property
    def missing(self) -> MissingPolicy:
        """What becomes of blank cells."""


def examine_party(
    party: PartySection,
    sources: Sequence[Source],
    data: FileColumns,
    for_all: Container[str] = (),
) -> tuple[Examined, ...]:
    """Look at all files of a party; nothing is raised.

    ``for_all`` are columns that are declared for all parties, and need not be at this one.
    """
    label = data.label if party.label is None else party.label
    examined = []
    for source in sources:
        file = examine(
            source,
            id_column=party.id or data.id,
            label_column=label if isinstance(label, str) else None,
            features=party.features,
            party=party.name,
            options=party,
        )
        # npz and libsvm files bring labels along that the config may not want.
        if label is False and file.tile is not None:
            file = replace(file, tile=replace(file.tile, labels=None))
        if data.missing == "error" and file.tile is not None:
            file = with_findings(file, find_blanks(file.tile, party.name))
        examined.append(file)
    if examined:
        absent = absent_columns(party, examined, party.name, for_all)
        examined[0] = with_findings(examined[0], absent)
    return tuple(examined)


def with_findings(file: Examined, more: Iterable[Finding]) -> Examined:
    """The same file, about which there is more to say."""
    return replace(file, findings=(*file.findings, *more))


def absent_columns(
    options: ReadingOptions,
    examined: Sequence[Examined],
    party: str,
    for_all: Container[str] = (),
) -> list[Finding]:
    """Columns that are renamed, dropped or declared though no file has them."""
    held = [name for file in examined for name in file.header]
    if not held:
        return []
    named = {*held, *map(options.named, held)}
    said = {
        "rename": list(options.rename or ()),
        "drop": list(options.drop or ()),
        "scale": list(options.scale or ()),
        "columns": [name for name in options.columns or () if name not in for_all],
        "interactions": list(
            dict.fromkeys(name for pair in options.interactions or () for name in pair)
        ),
    }
    found = [
        Finding(
            "error",
            f"{key} names the column {name!r}, which is not there{closest(name, named)}",
            "correct the name, or leave it out",
            party=party,
            file=examined[0].file,
            column=name,
        )
        for key, names in said.items()
        for name in names
        if name not in (held if key == "rename" else named)
    ]
    files = [{options.named(name) for name in file.header} for file in examined]
    for left, right in options.interactions or ():
        if {left, right} <= named and not any({left, right} <= names for names in files):
            found.append(
                Finding(
                    "error",
                    f"interactions names {left!r} and {right!r}, which are in no file together",
                    "put both into one file, or leave the pair out",
                    party=party,
                    file=examined[0].file,
                    column=left,
                )
            )
    return found
