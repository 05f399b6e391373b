"""Reading a config of a linear model, and the files it names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, ClassVar, Protocol, get_args, runtime_checkable

import msgspec

from weft.config.base_config_of_all_jobs import (
    FederationConfig,
    participation_in,
    read_content,
    roster_of,
    terms_of,
    tiles_of,
)
from weft.config.check_where_data_lies import check_deployed, check_sources
from weft.config.compare_overrides import check_told
from weft.config.schema import DataSection, LinearFile
from weft.config.spelling_and_unit_mismatches import find_mismatches
from weft.config.strict_reading import checked, naming
from weft.config.write_split_federation import cut_table
from weft.crypto.ciphers.block_format import check_cipher
from weft.data.findings_with_config_fixes import Finding
from weft.data.named_data_sets import load
from weft.data.splits import Split
from weft.data.tile import Tile, two_classes
from weft.errors import ConfigError
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing, TableSettings
from weft.inference.standard_error_requirements import wanted_inference
from weft.matching.overlap_rule import Overlap
from weft.plugins import Registry, how_to_install
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.algorithm_choice import keep_going, settled
from weft.solvers.participation import participation_of
from weft.solvers.run_settings import Mode, Settings
from weft.solvers.solver_settings import SolverSettings

#: The key of ``[privacy]`` that is no term: whether sums are shown, or all is on shares.
_MODE = "mode"


@runtime_checkable
class ConfigKind(Protocol):
    """What a job kind of a plug-in says of its configs.

    `weft.network.job_kind_interface.JobKind` has all that it says.

    Attributes
    ----------
    about
        What its section describes: "networks".
    command
        What trains it in one process: "weft neural run".
    """

    about: str
    command: str

    def read_config(self, path: Path, *, deployed: bool = False) -> FederationConfig:
        """Read and check a config, as :func:`read_config` does."""


#: What a config can ask for besides a linear model, by the section that does.
OTHER_KINDS: Registry[ConfigKind] = Registry(
    "job_kinds", {}, lambda value: isinstance(value, ConfigKind)
)


@dataclass(frozen=True)
class Problem:
    """What a config describes, read from its files and ready for a `Federation`.

    ``notes`` say what was found in the files and is no reason to stop.
    """

    tiles: dict[str, tuple[Tile, ...]]
    preprocessing: Preprocessing
    settings: Settings
    notes: tuple[Finding, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Config(FederationConfig):
    """A config of one linear model; `read_config` makes one."""

    kind: ClassVar[str] = "linear"
    file: LinearFile
    settings: Settings

    @property
    def data(self) -> DataSection:
        return self.file.data

    @property
    def checkpoint_every(self) -> int | None:
        return self.file.solver.checkpoint_every

    @property
    def record(self) -> bool:
        return self.file.solver.record

    @property
    def compare(self) -> dict[str, dict[str, Any]]:
        return self.file.compare

    def ledger(self, folder: Path | None = None) -> Ledger:
        """Where the parties count the sums that they show: ``folder``, else beside the config."""
        return Ledger(folder or self.path.parent / "ledger", self.name)

    def party_names(self) -> list[str]:
        return [party.name for party in self.parties] or list(self.problem().tiles)

    def problem(self) -> Problem:
        """Read the tiles."""
        data = self.data
        overlap: Overlap | None = None
        notes: tuple[Finding, ...] = ()
        if data.dataset is not None:
            split = self._cut()
            tiles, overlap = split.parties, split.overlap
        else:
            examined = self.examine(data)
            doubts = find_mismatches(
                self.parties,
                examined,
                confirmed=data.confirmed,
                classes=self.settings.make_loss().task != "regression" and data.positive is None,
            )
            tiles = tiles_of(examined, doubts)
            notes = tuple(one for files in examined.values() for f in files for one in f.findings)
        if data.positive is not None:
            tiles = {
                name: tuple(two_classes(tile, data.positive) for tile in held)
                for name, held in tiles.items()
            }
        with naming(self.path.name):
            participation_of(self.settings.participation, list(tiles), self.settings.seed)
        how = self.preprocessing(overlap)
        if data.dataset is not None:
            how = msgspec.structs.replace(how, confirmed=ONE_TABLE)
        return Problem(tiles, how, self.settings, notes)

    def preprocessing(self, overlap: Overlap | None = None) -> Preprocessing:
        """How the tables become one problem; ``overlap`` where the config does not say."""
        data = self.data
        return Preprocessing(
            overlap=data.overlap or overlap or "mean",
            intercept=data.intercept,
            matching=self.terms.matching,
            **{name: getattr(data, name) for name in TableSettings.__struct_fields__},
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
    content = read_content(path)
    with naming(path.name):
        _refuse_other_kinds(content)
        file = checked(LinearFile, content, "the config")
        settings = _settings(file, path.parent)
        if deployed and "when_missing" not in content.get("solver", {}):
            settings = keep_going(settings)
        check_told(file.compare, "[compare.")
    roster = roster_of(file, path)
    with naming(path.name):
        told = {name: value for name, value in file.privacy.items() if name != _MODE}
        terms = terms_of(told, roster, deployed=deployed)
    config = Config(path=path, file=file, roster=roster, terms=terms, settings=settings)
    if deployed:
        check_deployed(config)
    else:
        check_sources(config)
    return config


def read_any_config(path: Path, *, deployed: bool = False) -> FederationConfig:
    """A config of the job kind that has a section in it, else of a linear model."""
    for section in _foreign(read_content(path)):
        if section in OTHER_KINDS:
            return OTHER_KINDS[section].read_config(path, deployed=deployed)
    return read_config(path, deployed=deployed)


def _foreign(content: Mapping[str, Any]) -> list[str]:
    """Sections that a config of a linear model does not have."""
    known = {field.encode_name for field in msgspec.structs.fields(LinearFile)}
    return [name for name, held in content.items() if name not in known and isinstance(held, dict)]


def _refuse_other_kinds(content: Mapping[str, Any]) -> None:
    for section in _foreign(content):
        kind = OTHER_KINDS.get(section)
        if kind is not None:
            raise ConfigError(
                f"has a section [{section}], which describes {kind.about}; use '{kind.command}', "
                "or take it out"
            )
        if not get_close_matches(section, LinearFile.__struct_fields__):
            raise ConfigError(
                f"has a section [{section}], which nothing here reads; "
                f"{how_to_install(section)}, or take it out{OTHER_KINDS.left_out()}"
            )


def _settings(file: LinearFile, folder: Path) -> Settings:
    model, solver = file.model, file.solver
    check_cipher(solver.cipher)
    chooses = bool(solver.folds) or file.evaluation.held_out is not None
    lambdas = _lambdas(model.lam, chooses=chooses)
    told = {name: getattr(solver, name) for name in SolverSettings.__struct_fields__}
    told["participation"] = participation_in(solver.participation, folder)
    settings = Settings(
        **told,
        solver=solver.name,
        loss=model.named_loss,
        weigh=model.weigh,
        loss_parameters=model.loss_parameters,
        lam=lambdas[-1],
        path=tuple(lambdas[:-1]),
        mode=_mode(file),
        noise=file.noise,
        sum_noise=file.sum_noise,
        evaluation=file.evaluation,
        penalty_factors=model.penalty_factors,
        class_weight=model.class_weight,
        penalize_intercept=model.penalizes_intercept,
        second_moments=model.second_moments,
        inference=wanted_inference(model.inference),
    )
    settled(settings, saves=solver.checkpoint_every is not None)
    return settings


def _mode(file: LinearFile) -> Mode:
    mode = file.privacy.get(_MODE, "sums")
    if mode not in get_args(Mode):
        raise ConfigError(f"[privacy] mode is {mode!r}; choose one of {', '.join(get_args(Mode))}")
    chosen: Mode = mode
    return chosen


def _lambdas(given: float | list[float], *, chooses: bool) -> list[float]:
    """The values of λ to train; several of them need something that chooses."""
    lambdas = given if isinstance(given, list) else [given]
    if len(set(lambdas)) > 1 and not chooses:
        raise ConfigError(
            f"lambda lists {len(lambdas)} values, but nothing chooses among them; set folds = 5 in "
            "[solver], or give one lambda"
        )
    return lambdas
