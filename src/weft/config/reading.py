"""Reading a config and the files it names."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from weft.algorithms.registry import algorithm_of, resolve
from weft.algorithms.settings import Settings
from weft.channels.participation import participation_of
from weft.config.checking import checked, known_keys, naming
from weft.config.comparing import check_told
from weft.config.cutting import cut_table
from weft.config.policies import read_policy
from weft.config.sections import (
    DataSection,
    FederationSection,
    KeysSection,
    ModelSection,
    NetworkSection,
    PartySection,
    SolverSection,
)
from weft.config.solvers import going_on, settled
from weft.config.sources import check_deployed, check_sources
from weft.consortium import Consent, SignedRoster, read_roster
from weft.crypto.cipher import check_cipher
from weft.data.labels import two_classes
from weft.data.named import load
from weft.data.readers import read_tile
from weft.data.splits import Split
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.guards import OPEN, Terms
from weft.keys import PartyKeys, load_all
from weft.ledger.account import Ledger
from weft.matching.roster import Overlap
from weft.preparation import Preparation


@dataclass(frozen=True)
class Problem:
    """What a config describes, read from its files and ready for a `Federation`."""

    tiles: dict[str, tuple[Tile, ...]]
    preparation: Preparation
    settings: Settings


@dataclass(frozen=True)
class Config:
    """A config file whose keys and values are known to make sense.

    `read_config` makes one; nothing but the config itself and its roster has been read then.
    """

    path: Path
    name: str
    data: DataSection
    settings: Settings
    checkpoint_every: int | None
    record: bool
    keys: Path | None
    roster: SignedRoster | None
    terms: Terms
    parties: tuple[PartySection, ...]
    compare: dict[str, dict[str, Any]] = field(default_factory=dict)
    network: NetworkSection = field(default_factory=NetworkSection)

    @property
    def folder_name(self) -> str:
        """The name as a folder: letters, digits, dots, hyphens and underscores."""
        return re.sub(r"[^\w.-]+", "-", self.name).strip("-.") or "federation"

    def files_of(self, party: PartySection) -> list[Path]:
        """A party's files; relative ones are looked for beside the config."""
        names = party.files if party.file is None else [party.file]
        return [self.path.parent / name for name in names or ()]

    def load_keys(
        self, parties: Iterable[str], folder: Path | None = None
    ) -> dict[str, PartyKeys] | None:
        """The parties' keys from ``folder``, else from the config's; None: neither is named."""
        chosen = self.keys if folder is None else folder
        return None if chosen is None else load_all(chosen, tuple(parties))

    def ledger(self, folder: Path | None = None) -> Ledger:
        """Where the parties count the sums that they show: ``folder``, else beside the config."""
        return Ledger(folder or self.path.parent / "ledger", self.name)

    def load_consents(self, parties: Iterable[str]) -> dict[str, Consent]:
        """What each party takes part in, by the roster, its own policy and ``[privacy]``."""
        policies = {
            party.name: read_policy(self.path.parent / party.policy)
            for party in self.parties
            if party.policy is not None
        }
        return {
            name: Consent(name, self.terms, roster=self.roster, policy=policies.get(name))
            for name in parties
        }

    def problem(self) -> Problem:
        """Read the tiles."""
        data = self.data
        overlap: Overlap | None = None
        if data.dataset is not None:
            split = self._cut()
            tiles, overlap = split.parties, split.overlap
        else:
            tiles = {party.name: self._read(party) for party in self.parties}
        if data.positive is not None:
            tiles = {
                name: tuple(two_classes(tile, data.positive) for tile in held)
                for name, held in tiles.items()
            }
        with naming(self.path.name):
            participation_of(self.settings.participation, list(tiles), self.settings.seed)
        return Problem(tiles, self.preparation(overlap), self.settings)

    def preparation(self, overlap: Overlap | None = None) -> Preparation:
        """How the tables become one problem; ``overlap`` where the config does not say."""
        data = self.data
        return Preparation(
            overlap=data.overlap or overlap or "mean",
            intercept=data.intercept,
            intercept_scaling=data.intercept_scaling,
            scaling=data.scaling,
            unit_rows=data.unit_rows,
            missing=data.missing,
            confirm_separate_ids=data.confirm_separate_ids,
            matching=self.terms.matching,
        )

    def _read(self, party: PartySection) -> tuple[Tile, ...]:
        label = self.data.label if party.label is None else party.label
        tiles = []
        for path in self.files_of(party):
            tile = read_tile(
                path,
                id_column=party.id or self.data.id,
                label_column=label if isinstance(label, str) else None,
                features=party.features,
                party=party.name,
            )
            # npz and libsvm files bring labels along that the config may not want.
            tiles.append(tile if label is not False else replace(tile, labels=None))
        return tuple(tiles)

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
    if not path.is_file():
        raise ConfigError(
            f"there is no config file {path}; write one with 'weft split', or by hand"
        )
    where = path.name
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{where}: is not valid TOML ({error}); correct that line") from None
    known_keys(
        content,
        (
            *("name", "data", "model", "solver", "privacy", "keys", "federation", "network"),
            *("compare", "party"),
        ),
        f"{where}: the config",
    )
    data = checked(DataSection, _table(content, "data", where), f"{where}: [data]")
    model = checked(ModelSection, _table(content, "model", where), f"{where}: [model]")
    told = _table(content, "solver", where)
    solver = checked(SolverSection, told, f"{where}: [solver]")
    network = checked(NetworkSection, _table(content, "network", where), f"{where}: [network]")
    name = content.get("name", path.stem)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f'{where}: name must be text, such as name = "three hospitals"')
    roster = _roster(content, path)
    with naming(where):
        terms = _terms(_table(content, "privacy", where), roster, deployed)
        settings = _settings(model, solver, path.parent)
        if deployed and "when_missing" not in _table(content, "solver", where):
            settings = _going_on(settings)
        if deployed and "when_missing" not in told:
            settings = going_on(settings)
        compare = check_told(_table(content, "compare", where), "[compare.")
    parties = content.get("party", [])
    if not isinstance(parties, list):
        raise ConfigError(f"{where}: write [[party]] with two brackets, once for each party")
    config = Config(
        path=path,
        name=name,
        data=data,
        settings=settings,
        checkpoint_every=solver.checkpoint_every,
        record=solver.record,
        keys=_keys(content, path),
        roster=roster,
        terms=terms,
        parties=tuple(_party(entry, number, where) for number, entry in enumerate(parties, 1)),
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
    values["participation"] = _participation(solver.participation, folder)
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


def _going_on(settings: Settings) -> Settings:
    """Over a network, whoever is away may come back: the others go on until then."""
    chosen, _ = resolve(settings)
    if "when_missing" not in algorithm_of(chosen.solver).reads:
        return settings
    return msgspec.structs.replace(settings, when_missing="hyfdca")


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


def _keys(content: Mapping[str, Any], path: Path) -> Path | None:
    """The folder of keys that a config names; a relative one is looked for beside it."""
    if "keys" not in content:
        return None
    where = f"{path.name}: [keys]"
    folder = checked(KeysSection, _table(content, "keys", path.name), where).folder
    if not folder:
        raise ConfigError(f'{where} needs folder, such as folder = "keys"')
    return path.parent / folder


def _roster(content: Mapping[str, Any], path: Path) -> SignedRoster | None:
    """The roster, looked for beside the config."""
    if "federation" not in content:
        return None
    where = f"{path.name}: [federation]"
    section = checked(FederationSection, _table(content, "federation", path.name), where)
    if not section.roster:
        raise ConfigError(f'{where} needs roster, such as roster = "roster.json"')
    return read_roster(path.parent / section.roster)


def _terms(given: dict[str, Any], roster: SignedRoster | None, deployed: bool) -> Terms:
    """Those of ``[privacy]``; with a roster, what it says counts for all that is not given.

    Over a network the sites say the rest, and ids are matched by OPRF where nothing is said.
    """
    if deployed:
        return checked(
            Terms, {**msgspec.to_builtins(OPEN), "matching": "oprf", **given}, "[privacy]"
        )
    if roster is None:
        return checked(Terms, given, "[privacy]")
    own = checked(Terms, {**msgspec.to_builtins(OPEN), **given}, "[privacy]")
    return roster.charter.terms.stricter(own)


def _participation(
    rule: str | float | dict[str, Any], folder: Path
) -> str | float | dict[str, Any]:
    """The rule with the trace read from its file: a JSON list of lists of party names."""
    if not (isinstance(rule, dict) and isinstance(rule.get("trace"), str)):
        return rule
    path = folder / rule["trace"]
    try:
        trace = msgspec.json.decode(path.read_bytes(), type=list[list[str]])
    except OSError:
        raise ConfigError(f"participation names the trace {path}, which cannot be read") from None
    except msgspec.MsgspecError as error:
        raise ConfigError(
            f"the trace {path} must be a JSON list with a list of party names per iteration "
            f"({error})"
        ) from None
    return {"trace": trace}


def _party(entry: object, number: int, where: str) -> PartySection:
    named = entry.get("name") if isinstance(entry, dict) else None
    label = f"{where}: party '{named}'" if isinstance(named, str) else f"{where}: party {number}"
    party = checked(PartySection, entry, label)
    if not party.name.strip() or "/" in party.name or "\\" in party.name:
        raise ConfigError(f"{label}: a name needs at least one letter and no slash; rename it")
    if party.label is True:
        raise ConfigError(f"{label}: label = true says no column; name it, or say label = false")
    return party


def _table(content: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    value = content.get(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {name} must be a section [{name}] with keys of its own")
    return value
