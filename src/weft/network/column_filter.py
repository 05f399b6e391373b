"""Reading only the columns that a site's owner offers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from weft.config.reader import closest
from weft.data.readers import read_tile, table_columns
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError
from weft.privacy.agreement import SitePolicy


def read_offered(
    files: Sequence[Path],
    policy: SitePolicy | None,
    *,
    id_column: str,
    label: str | None,
    party: str,
) -> tuple[Tile, ...]:
    """A site's tiles with the columns of its policy; without one, with all columns.

    A column that is not offered is not even read: it may hold text.

    Raises
    ------
    ConfigError
        The policy offers a column that no file has.
    DataError
        A file cannot be used, or has none of the columns.
    """
    columns = None if policy is None else policy.columns
    if columns is None:
        return tuple(
            read_tile(path, id_column=id_column, label_column=label, party=party) for path in files
        )
    held = [_held(path, id_column, label, party) for path in files]
    _check_known(columns, held, party, policy.source if policy else "")
    tiles = []
    for path, names in zip(files, held, strict=True):
        kept = [name for name in names if name in columns]
        if not kept:
            raise DataError(
                f"party {party}: {path.name} has none of the columns that its policy offers; "
                "leave the file out"
            )
        tiles.append(
            read_tile(path, id_column=id_column, label_column=label, features=kept, party=party)
        )
    return tuple(tiles)


def _held(path: Path, id_column: str, label: str | None, party: str) -> list[str]:
    """Names of the feature columns of a file."""
    names = table_columns(path)
    if names is not None:
        return [name for name in names if name not in (id_column, label)]
    # Other formats hold only numbers; reading the file reports what is wrong with it.
    return list(read_tile(path, id_column=id_column, label_column=label, party=party).features)


def _check_known(
    columns: Sequence[str], held: Sequence[Sequence[str]], party: str, source: str
) -> None:
    known = [name for names in held for name in names]
    for name in columns:
        if name not in known:
            raise ConfigError(
                f"party {party}: its policy {source} offers the column '{name}', which none of "
                f"its files has{closest(name, known)}; correct the name, or leave it out"
            )
