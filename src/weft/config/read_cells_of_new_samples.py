"""New samples to predict for: files whose labels and other columns do not matter."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import msgspec
import numpy as np

from weft.config.read_config import Config
from weft.data.columns.raw_rows_for_prediction import raw_columns_of, reading_of
from weft.data.columns.table_transformation import FileReading
from weft.data.file_or_database_address import Source
from weft.data.read_tables import table_columns
from weft.data.read_tiles import read_tile
from weft.data.reading_options import AS_FOUND, ReadingOptions
from weft.data.tile import Tile
from weft.errors import ConfigError, DataError
from weft.federation.joint_prediction_party import NO_COLUMN
from weft.federation.model import Model
from weft.matching.id_and_name_forms import loose_features, normal_features


@dataclass(frozen=True)
class Samples:
    """New samples, and what became of cells that training did not foresee, a sentence each."""

    tile: Tile
    remarks: list[str]


def insist_on_overlap(config: Config, model: Model) -> None:
    """Refuse a config by which other cells would count than in training."""
    named = config.data.overlap
    if named is not None and named != model.overlap:
        raise ConfigError(
            f"{config.path.name} says overlap = '{named}', but the model was trained with overlap "
            f"= '{model.overlap}'; leave the line out"
        )


def read_samples(
    path: Source,
    model: Model,
    *,
    id_column: str = "id",
    party: str = "",
    options: ReadingOptions = AS_FOUND,
    offered: Collection[str] | None = None,
) -> Samples:
    """The features of the model that columns of a file become; others are not looked at.

    ``offered`` has the columns that may be read; None: all.
    """
    made, wanted, held = model.columns(), None, table_columns(path, options)
    if held is not None:
        columns = raw_columns_of(made, model.features)
        options = _as_in_training(options, made.reading_of(held, columns, party))
        held = table_columns(path, options) or []
        _refuse_other_spellings(held, columns, path, party)
        there = set(held)
        if offered is not None:
            there &= set(offered)
        wanted = [name for name in columns if name in there]
        _insist(bool(wanted), path, party)
        options = reading_of(made, wanted, options)
    tile = read_tile(path, id_column=id_column, features=wanted, party=party, options=options)
    if held is None and offered is not None:
        tile = tile.columns(np.flatnonzero(np.isin(tile.features.astype(str), list(offered))))
    applied = made.apply(tile)
    tile = applied.insist(party)
    known = np.isin(tile.features.astype(str), model.features.astype(str))
    _insist(bool(known.any()), path, party)
    return Samples(tile.columns(np.flatnonzero(known)), applied.remarks())


def _as_in_training(options: ReadingOptions, stored: FileReading) -> ReadingOptions:
    """Options of a file, with what counted in training for all that they do not say."""
    if not stored:
        return options
    return msgspec.structs.replace(
        options,
        rename={**stored.rename, **(options.rename or {})} or None,
        scale={**stored.scale, **(options.scale or {})} or None,
        blanks=[*(options.blanks or ()), *stored.blanks] or None,
    )


def read_joint_samples(config: Config, model: Model) -> dict[str, tuple[Samples, ...]]:
    """New samples of every party of a config, each from its own files."""
    if config.data.dataset is not None:
        raise DataError(
            f"{config.path.name}: joint prediction needs a [[party]] with a file of new samples "
            "for each party, not a data set"
        )
    return {
        party.name: tuple(
            read_samples(
                path,
                model,
                id_column=party.id or config.data.id,
                party=party.name,
                options=config.with_columns(party),
            )
            for path in config.sources_of(party)
        )
        for party in config.parties
    }


def _refuse_other_spellings(
    held: Sequence[str], known: Sequence[str], path: Source, party: str
) -> None:
    """A feature under another spelling would count as its centre, and nobody would know."""
    columns = normal_features(np.array(held, dtype=object))
    features = normal_features(np.array(known, dtype=object))
    there = set(columns.tolist())
    spelt = dict(zip(loose_features(columns).tolist(), columns.tolist(), strict=True))
    for name, form in zip(features.tolist(), loose_features(features).tolist(), strict=True):
        if name not in there and form in spelt and spelt[form] not in features:
            holder = f"party '{party}', " if party else ""
            raise DataError(
                f"{holder}{path.name}: its column {spelt[form]!r} is called {name!r} in the model; "
                "give it that name, in the file or with rename = { … } of a [[party]]",
                harmless=f"calls a column {spelt[form]!r} that is {name!r} in the model; let it "
                "rename the column",
            )


def _insist(found: bool, path: Source, party: str) -> None:
    if not found:
        holder = f"party '{party}', " if party else ""
        raise DataError(
            f"{holder}{path.name}: none of its columns is a feature of the model; check the column "
            "names",
            harmless=NO_COLUMN,
        )
