"""A party's files as its config describes them, with all that is to be said about them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Protocol

from weft.config.schema import PartySection
from weft.config.strict_reading import closest
from weft.data.blank_cells import find_blanks
from weft.data.databases import Source
from weft.data.findings import Finding
from weft.data.readers import Examined, examine
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
    party: PartySection, sources: Sequence[Source], data: FileColumns
) -> tuple[Examined, ...]:
    """Look at all files of a party; nothing is raised."""
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
        examined[0] = with_findings(examined[0], absent_columns(party, examined, party.name))
    return tuple(examined)


def with_findings(file: Examined, more: Iterable[Finding]) -> Examined:
    """The same file, about which there is more to say."""
    return replace(file, findings=(*file.findings, *more))


def absent_columns(
    options: ReadingOptions, examined: Sequence[Examined], party: str
) -> list[Finding]:
    """Columns that are renamed or dropped though no file has them."""
    held = [name for file in examined for name in file.header]
    if not held:
        return []
    named = {*held, *map(options.named, held)}
    said = {
        "rename": list(options.rename or ()),
        "drop": list(options.drop or ()),
        "scale": list(options.scale or ()),
    }
    return [
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
