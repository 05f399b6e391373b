"""How declared columns become columns of numbers: made once, stored, and applied again.

Training and prediction both go through :meth:`Transformation.apply`, so that the same cells become
the same bits in both.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import msgspec
import numpy as np

from weft.data.columns.column_rules import OTHER, ColumnRule
from weft.data.columns.column_to_numbers import Misfits, SettledColumn
from weft.data.columns.raw_column_cells import Floats, Pair
from weft.errors import DataError
from weft.thread_safe_decoding import prepared

if TYPE_CHECKING:
    from weft.data.tile import Tile

#: Version 1 did not have readings.
VERSION, _WITHOUT_READINGS = 2, 1
#: Levels that a sentence names.
_NAMED = 3


class FileReading(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How a party's file becomes columns in the federation's names and units.

    Attributes
    ----------
    party
        Whose file it is.
    rename, scale, blanks
        As in `weft.data.reading_options.ReadingOptions`.
    """

    party: str = ""
    rename: dict[str, str] = {}
    scale: dict[str, float] = {}
    blanks: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.rename or self.scale or self.blanks)

    def fit(self, header: Iterable[str], features: Collection[str]) -> int:
        """How many of the wanted columns a file with this header has."""
        return len({self.rename.get(name, name) for name in header} & set(features))

    def of_columns(self, header: Iterable[str], features: Collection[str]) -> FileReading:
        """What of it is about the columns of a file that are wanted, whoever's file it is."""
        names = {name: self.rename.get(name, name) for name in header}
        wanted = {raw: name for raw, name in names.items() if name in features}
        return FileReading(
            rename={raw: name for raw, name in wanted.items() if raw != name},
            scale={n: self.scale[n] for n in sorted(wanted.values()) if n in self.scale},
            blanks=tuple(sorted(self.blanks)) if wanted else (),
        )


class Transformation(msgspec.Struct, frozen=True, kw_only=True):
    """What a party's declared columns become.

    Attributes
    ----------
    version
        Of these rules: another version of Weft that means something else by them has another.
    interactions
        Pairs of columns whose products are columns too.
    readings
        How the parties' files were read, where one of them says anything about that; then of all.
    """

    columns: tuple[SettledColumn, ...] = ()
    interactions: tuple[Pair, ...] = ()
    readings: tuple[FileReading, ...] = ()
    version: int = VERSION

    def __bool__(self) -> bool:
        return self.declares or any(self.readings)

    @property
    def declares(self) -> bool:
        """Whether columns become something else than their numbers."""
        return bool(self.columns or self.interactions)

    @property
    def rules(self) -> dict[str, ColumnRule]:
        """By column."""
        return {column.name: column.rule for column in self.columns}

    def to_json(self) -> str:
        """Plain text, empty where nothing is declared; numbers survive the round trip exactly."""
        return msgspec.json.encode(self).decode() if self else ""

    @classmethod
    def from_json(cls, text: str) -> Transformation:
        """What `to_json` gave."""
        try:
            version = msgspec.json.decode(text).get("version")
            if version not in (_WITHOUT_READINGS, VERSION):
                raise DataError(
                    f"the columns are transformed by version {version} of the rules, this Weft has "
                    f"{VERSION}; install the Weft that wrote it"
                )
            return msgspec.json.decode(text, type=prepared(cls))
        except (AttributeError, msgspec.MsgspecError) as error:
            raise DataError(f"the stored transformation cannot be read ({error})") from None

    def apply(self, tile: Tile) -> Applied:
        """A tile whose declared columns are numbers, and what of its cells did not fit."""
        declared = tile.declared
        if declared is None:
            return Applied(tile, {}, {})
        own = {c.name: c for c in self.columns if c.name in declared.cells}
        blocks, misfits = {}, {}
        for name, cells in declared.cells.items():
            column = own.get(name)
            if column is None:
                raise DataError(
                    f"{tile.source or 'the tile'}: nothing is known about column '{name}', which "
                    "is declared; train with it, or leave it out"
                )
            blocks[name], misfits[name] = column.numbers(cells)
        names = {name: own[name].features() for name in blocks}
        origins: dict[str, tuple[str, ...]] = {
            feature: (name,) for name, part in names.items() for feature in part
        }
        for left, right in declared.interactions:
            both = f"{left}*{right}"
            names[both], blocks[both] = _products(
                _part(tile, names, blocks, left), _part(tile, names, blocks, right)
            )
            origins |= dict.fromkeys(names[both], (left, right))
        if tile.is_sparse:
            raise DataError(
                f"{tile.source or 'the tile'}: columns of a sparse table cannot be declared; keep "
                "them in a table of their own"
            )
        features = [*tile.features.tolist(), *(f for part in names.values() for f in part)]
        _check_names(features, tile)
        # Of all digits, also beside float32: a study's rule may make any number of cells, and what
        # is left of it after rounding could be one sample's.
        block = np.hstack([np.asarray(tile.block), *blocks.values()])
        whole = replace(
            tile,
            features=np.array(features, dtype=object),
            block=np.ascontiguousarray(block),
            declared=None,
        )
        return Applied(whole, misfits, origins)

    @classmethod
    def joined(cls, parts: Iterable[Transformation]) -> Transformation:
        """Those of several parties, which agree where they hold the same columns."""
        columns: dict[str, SettledColumn] = {}
        pairs: dict[Pair, None] = {}
        readings: dict[str, FileReading] = {}
        for part in parts:
            for column in part.columns:
                columns.setdefault(column.name, column)
            pairs.update(dict.fromkeys(part.interactions))
            readings.update({reading.party: reading for reading in part.readings})
        return cls(
            columns=tuple(columns.values()),
            interactions=tuple(pairs),
            readings=tuple(readings.values()),
        )

    def reading_of(
        self, header: Sequence[str], features: Collection[str], party: str = ""
    ) -> FileReading:
        """How a file with these columns is read as files were for training.

        Parameters
        ----------
        features
            Columns that are wanted, by their names in the federation.
        party
            Whose file it is; empty: of the party whose columns it has most of.

        Raises
        ------
        DataError
            Parties read such a file in different ways.
        """
        known = [one for one in self.readings if not party or one.party == party]
        found = [(one.party, one.of_columns(header, features)) for one in known]
        fits = [one.fit(header, features) for one in known]
        best = [one for one, count in zip(found, fits, strict=True) if count == max(fits)]
        if not best:
            return FileReading()
        for other, reading in best[1:]:
            if reading != best[0][1]:
                raise DataError(
                    f"parties {best[0][0]} and {other} read columns of such a file in different "
                    "ways (rename, scale or blanks); say whose file it is with --party"
                )
        return best[0][1]


@dataclass(frozen=True)
class Applied:
    """A tile of numbers.

    Attributes
    ----------
    misfits
        Per declared column, what did not fit.
    origins
        The columns that each new one was made of.
    """

    tile: Tile
    misfits: Mapping[str, Misfits]
    origins: Mapping[str, tuple[str, ...]]

    def insist(self, party: str = "") -> Tile:
        """The tile, unless a number has no place in its column's rule."""
        for name, found in self.misfits.items():
            if len(found.outside):
                who = ", ".join(p for p in (f"party {party!r}" if party else "", _where(self)) if p)
                raise DataError(
                    f"{who}: column '{name}' has {len(found.outside)} number(s) outside of what is "
                    "declared for it; correct them, or widen range, or set outside or clip",
                    told="a party has numbers outside of what is declared for their column; its "
                    "log names it",
                )
        return self.tile

    def remarks(self) -> list[str]:
        """What was done with cells that did not fit, a sentence each, for their owner."""
        said = []
        for name, found in self.misfits.items():
            if found.clipped:
                said.append(
                    f"column '{name}': {found.clipped} number(s) outside of its range count as its "
                    "ends"
                )
            if found.other:
                kinds = ", ".join(repr(level) for level in found.levels[:_NAMED])
                more = ", …" if len(found.levels) > _NAMED else ""
                has = any(str(f) == f"{name}={OTHER}" for f in self.tile.features.tolist())
                meant = f"'{OTHER}'" if has else "none of its levels"
                said.append(
                    f"column '{name}': {found.other} cell(s) of {len(found.levels)} level(s) "
                    f"without a column of their own ({kinds}{more}) count as {meant}"
                )
        return said


def _where(applied: Applied) -> str:
    return applied.tile.source or "the tile"


def _part(
    tile: Tile, names: Mapping[str, list[str]], blocks: Mapping[str, Floats], column: str
) -> tuple[list[str], Floats]:
    """Names and numbers of what a column became; of a plain one, it itself."""
    if column in names:
        return names[column], blocks[column]
    (place,) = np.flatnonzero(tile.features == column).tolist()
    return [column], np.asarray(tile.block)[:, [place]].astype(np.float64)


def _products(
    left: tuple[list[str], Floats], right: tuple[list[str], Floats]
) -> tuple[list[str], Floats]:
    """All products of a feature of one column with one of the other."""
    names = [f"{a}*{b}" for a in left[0] for b in right[0]]
    products = left[1][:, :, None] * right[1][:, None, :]
    return names, products.reshape(len(products), len(names))


def _check_names(features: Sequence[str], tile: Tile) -> None:
    seen: set[Any] = set()
    for name in features:
        if name in seen:
            raise DataError(
                f"{tile.source or 'the tile'}: a declared column becomes one called '{name}', "
                "which is there already; rename one of them"
            )
        seen.add(name)
