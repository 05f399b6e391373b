"""Reading a config and the files it names."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec

from weft.config.compare_options import check_told
from weft.config.cut_table import cut_table
from weft.config.data_sources import check_deployed, check_sources
from weft.config.federation_config import (
    FederationConfig,
    keys_in,
    name_in,
    participation_in,
    parties_in,
    read_toml,
    roster_in,
    section,
    terms_of,
)
from weft.config.reader import checked, known_keys, naming
from weft.config.schema import (
    DataSection,
    ModelSection,
    NetworkSection,
    SolverSection,
)
from weft.crypto.ciphers.cipher import check_cipher
from weft.data.labels import two_classes
from weft.data.named import load
from weft.data.splits import Split
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.federation.preprocessing import Preprocessing
from weft.matching.holding_map import Overlap
from weft.privacy.ledger.account import Ledger
from weft.protocol.participation import participation_of
from weft.solvers.registry import keep_going, settled
from weft.solvers.settings import Settings


@dataclass(frozen=True)
class Problem:
    """What a config describes, read from its files and ready for a `Federation`."""

    tiles: dict[str, tuple[Tile, ...]]
    preprocessing: Preprocessing
    settings: Settings


@dataclass(frozen=True, kw_only=True)
class Config(FederationConfig):
    """A config of one linear model; `read_config` makes one."""

    data: DataSection
    settings: Settings
    checkpoint_every: int | None
    record: bool
    compare: dict[str, dict[str, Any]] = field(default_factory=dict)
    network: NetworkSection = field(default_factory=NetworkSection)

    def ledger(self, folder: Path | None = None) -> Ledger:
        """Where the parties count the sums that they show: ``folder``, else beside the config."""
        return Ledger(folder or self.path.parent / "ledger", self.name)

    def party_names(self) -> list[str]:
        return [party.name for party in self.parties] or list(self.problem().tiles)

    def problem(self) -> Problem:
        """Read the tiles."""
        data = self.data
        overlap: Overlap | None = None
        if data.dataset is not None:
            split = self._cut()
            tiles, overlap = split.parties, split.overlap
        else:
            tiles = self.read_tiles(data)
        if data.positive is not None:
            tiles = {
                name: tuple(two_classes(tile, data.positive) for tile in held)
                for name, held in tiles.items()
            }
        with naming(self.path.name):
            participation_of(self.settings.participation, list(tiles), self.settings.seed)
        return Problem(tiles, self.preprocessing(overlap), self.settings)

    def preprocessing(self, overlap: Overlap | None = None) -> Preprocessing:
        """How the tables become one problem; ``overlap`` where the config does not say."""
        data = self.data
        return Preprocessing(
            overlap=data.overlap or overlap or "mean",
            intercept=data.intercept,
            intercept_scaling=data.intercept_scaling,
            scaling=data.scaling,
            unit_rows=data.unit_rows,
            missing=data.missing,
            confirm_separate_ids=data.confirm_separate_ids,
            matching=self.terms.matching,
        )

    def _cut(self) -> Split:
        options = dict(self.data.split or {})
        folder = self.data.data_dir
        where = None if folder is None else self.path.parent / folder
        with naming(self.path.name):
            table = load(str(self.data.dataset), data_dir=where)
            return cut_table(table, str(options.pop("name")), options)


def read_config(path: str | Path, *, deployed: bool = False) -> Config:
    """Read and check a config.

    Parameters
    ----------
    deployed
        The parties are on sites of their own: the config names them at most, and no file of theirs.

    Raises
    ------
    ConfigError
        One sentence that names the file, the key or the party.
    """
    path = Path(path)
    where = path.name
    content = read_toml(path)
    if "neural" in content:
        raise ConfigError(
            f"{where}: has a section [neural], which describes networks; use 'weft neural run', or "
            "take it out"
        )
    known_keys(
        content,
        (
            *("name", "data", "model", "solver", "privacy", "keys", "federation", "network"),
            *("compare", "party"),
        ),
        f"{where}: the config",
    )
    data = checked(DataSection, section(content, "data", where), f"{where}: [data]")
    model = checked(ModelSection, section(content, "model", where), f"{where}: [model]")
    told = section(content, "solver", where)
    solver = checked(SolverSection, told, f"{where}: [solver]")
    network = checked(NetworkSection, section(content, "network", where), f"{where}: [network]")
    name = name_in(content, path)
    roster = roster_in(content, path)
    with naming(where):
        terms = terms_of(section(content, "privacy", where), roster, deployed=deployed)
        settings = _settings(model, solver, path.parent)
        if deployed and "when_missing" not in told:
            settings = keep_going(settings)
        compare = check_told(section(content, "compare", where), "[compare.")
    config = Config(
        path=path,
        name=name,
        data=data,
        settings=settings,
        checkpoint_every=solver.checkpoint_every,
        record=solver.record,
        keys=keys_in(content, path),
        roster=roster,
        terms=terms,
        parties=parties_in(content, where),
        compare=compare,
        network=network,
    )
    if deployed:
        check_deployed(config)
    else:
        check_sources(config)
    return config


def _settings(model: ModelSection, solver: SolverSection, folder: Path) -> Settings:
    check_cipher(solver.cipher)
    if solver.checkpoint_every is not None and solver.checkpoint_every < 1:
        raise ConfigError(f"checkpoint_every is {solver.checkpoint_every}; give at least 1")
    values = {
        field.name: getattr(solver, field.name)
        for field in msgspec.structs.fields(solver)
        if field.name not in ("name", "checkpoint_every", "record")
    }
    values["participation"] = participation_in(solver.participation, folder)
    lambdas = _lambdas(model.lam, solver.folds)
    settings = Settings(
        solver=solver.name,
        loss=model.loss,
        weigh=model.weigh,
        lam=lambdas[-1],
        path=tuple(lambdas[:-1]),
        loss_parameters=model.loss_parameters,
        **values,
    )
    settled(settings, saves=solver.checkpoint_every is not None)
    return settings


def _lambdas(given: float | list[float], folds: int) -> list[float]:
    """The values of λ to train; several of them need something that chooses."""
    lambdas = given if isinstance(given, list) else [given]
    if not lambdas:
        raise ConfigError("lambda is an empty list; give a number, or several such as [1e-1, 1e-2]")
    if len(set(lambdas)) > 1 and not folds:
        raise ConfigError(
            f"lambda lists {len(lambdas)} values, but nothing chooses among them; set folds = 5 in "
            "[solver], or give one lambda"
        )
    return lambdas
