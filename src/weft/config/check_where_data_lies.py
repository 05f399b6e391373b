"""Where a config's data comes from: files of this machine, a data set cut here, or other sites."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.data.columns.column_rules import check_study_rules
from weft.errors import ConfigError

if TYPE_CHECKING:
    from weft.config.base_config_of_all_jobs import FederationConfig
    from weft.config.read_config import Config


def check_sources(config: Config) -> None:
    """Refuse a config whose data is not here."""
    where, data = config.path.name, config.data
    if data.dataset is not None:
        if config.parties:
            raise ConfigError(
                f"{where}: [data] dataset and [[party]] exclude each other; keep one of them"
            )
        if not isinstance((data.split or {}).get("name"), str):
            raise ConfigError(
                f'{where}: [data] dataset needs split, such as split = {{name = "grid", k = 3, '
                "q = 3}"
            )
        return
    if data.split is not None:
        raise ConfigError(f"{where}: [data] split cuts a named data set; set dataset too")
    check_files(config)


def check_files(config: FederationConfig) -> None:
    """Refuse parties without names of their own, or whose files are not here."""
    where = config.path.name
    if not config.parties:
        raise ConfigError(
            f"{where}: there are no parties; add a [[party]] with name and file for each"
        )
    _check_names(config)
    for party in config.parties:
        if sum(bool(given) for given in (party.file, party.files, party.source)) != 1:
            raise ConfigError(
                f'{where}: party \'{party.name}\': give either file = "…" or files = ["…", …], or '
                'source = "…" for a database'
            )
        for path in config.sources_of(party):
            if isinstance(path, Path) and not path.is_file():
                raise ConfigError(
                    f"{where}: party '{party.name}' has the file {path}, which does not exist; "
                    "paths are relative to the config"
                )


def _check_names(config: FederationConfig) -> None:
    names = [party.name for party in config.parties]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{config.path.name}: two parties are called '{name}'; rename one")


def check_deployed(config: Config) -> None:
    """Refuse what only each site can say, and what takes all data in one place."""
    data = config.data
    check_left_to_sites(
        config,
        {
            "[data] dataset": data.dataset is not None or data.split is not None,
            "[data] id": data.id != "id",
            "[data] label": data.label is not None,
        },
        columns=True,
    )
    check_study_rules(config.file.columns)
    if config.checkpoint_every is not None:
        raise ConfigError(
            f"{config.path.name}: checkpoint_every is for one process; over a network every "
            "exchange is kept, and 'weft submit --resume' goes on: leave it out"
        )


def check_left_to_sites(
    config: FederationConfig, said: Mapping[str, bool], *, columns: bool = False
) -> None:
    """Refuse what sites say themselves.

    Parameters
    ----------
    said
        What is for one process, besides parties' files, keys and roster; whether it is there.
    columns
        Whether the config may declare columns for all sites.
    """
    where = config.path.name
    _check_names(config)
    for party in config.parties:
        told = [
            field.name
            for field in msgspec.structs.fields(party)
            if field.name != "name" and getattr(party, field.name) is not None
        ]
        if told:
            raise ConfigError(
                f"{where}: party '{party.name}' has {told[0]}, but over a network its own site "
                "says that ('weft join'); leave all but its name out"
            )
    others = {
        "[keys]": config.keys is not None,
        "[federation]": config.roster is not None,
        "[columns]": bool(config.file.columns) and not columns,
    }
    for name, given in {**said, **others}.items():
        if given:
            raise ConfigError(
                f"{where}: {name} is for one process; over a network each site says it itself "
                "('weft join'): leave it out"
            )
