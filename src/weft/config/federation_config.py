"""What every config of a federation has, whatever it trains: a name, parties, keys and terms."""

from __future__ import annotations

import re
import tomllib
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import msgspec

from weft.config.reader import checked
from weft.config.schema import FederationSection, KeysSection, PartySection
from weft.config.site_policy_file import read_policy
from weft.crypto.keys import PartyKeys, load_all
from weft.data.readers import read_tile
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.guards import OPEN, Terms
from weft.privacy.agreement import Consent, SignedRoster, read_roster


class FileColumns(Protocol):
    """What ``[data]`` says for all parties' files."""

    @property
    def id(self) -> str:
        """Column of the ids."""

    @property
    def label(self) -> str | None:
        """Column of the labels."""


@dataclass(frozen=True, kw_only=True)
class FederationConfig(ABC):
    """A config file whose keys and values are known to make sense.

    Nothing but the config itself and its roster has been read.
    """

    path: Path
    name: str
    keys: Path | None
    roster: SignedRoster | None
    terms: Terms
    parties: tuple[PartySection, ...]

    @property
    def folder_name(self) -> str:
        """The name as a folder: letters, digits, dots, hyphens and underscores."""
        return re.sub(r"[^\w.-]+", "-", self.name).strip("-.") or "federation"

    def files_of(self, party: PartySection) -> list[Path]:
        """A party's files; relative ones are looked for beside the config."""
        names = party.files if party.file is None else [party.file]
        return [self.path.parent / name for name in names or ()]

    @abstractmethod
    def party_names(self) -> list[str]:
        """Who takes part; where a config names nobody, what it cuts or deals is read for that."""

    def load_keys(
        self, parties: Iterable[str], folder: Path | None = None
    ) -> dict[str, PartyKeys] | None:
        """The parties' keys from ``folder``, else from the config's; None: neither is named."""
        chosen = self.keys if folder is None else folder
        return None if chosen is None else load_all(chosen, tuple(parties))

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

    def read_tiles(self, data: FileColumns) -> dict[str, tuple[Tile, ...]]:
        """Every party's tiles, from its files."""
        return {party.name: self._read(party, data) for party in self.parties}

    def _read(self, party: PartySection, data: FileColumns) -> tuple[Tile, ...]:
        label = data.label if party.label is None else party.label
        tiles = []
        for path in self.files_of(party):
            tile = read_tile(
                path,
                id_column=party.id or data.id,
                label_column=label if isinstance(label, str) else None,
                features=party.features,
                party=party.name,
            )
            # npz and libsvm files bring labels along that the config may not want.
            tiles.append(tile if label is not False else replace(tile, labels=None))
        return tuple(tiles)


def read_toml(path: Path) -> dict[str, Any]:
    """The content of a config, not checked yet."""
    if not path.is_file():
        raise ConfigError(
            f"there is no config file {path}; write one with 'weft split', or by hand"
        )
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: is not valid TOML ({error}); correct that line") from None


def name_in(content: Mapping[str, Any], path: Path) -> str:
    """The federation's name; without one, that of the file."""
    name = content.get("name", path.stem)
    if not isinstance(name, str) or not name.strip():
        raise ConfigError(f'{path.name}: name must be text, such as name = "three hospitals"')
    return name


def section(content: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    """A section's keys and values; empty where there is none."""
    value = content.get(name, {})
    if not isinstance(value, dict):
        raise ConfigError(f"{where}: {name} must be a section [{name}] with keys of its own")
    return value


def keys_in(content: Mapping[str, Any], path: Path) -> Path | None:
    """The folder of keys that a config names; a relative one is looked for beside it."""
    if "keys" not in content:
        return None
    where = f"{path.name}: [keys]"
    folder = checked(KeysSection, section(content, "keys", path.name), where).folder
    if not folder:
        raise ConfigError(f'{where} needs folder, such as folder = "keys"')
    return path.parent / folder


def roster_in(content: Mapping[str, Any], path: Path) -> SignedRoster | None:
    """The roster, looked for beside the config."""
    if "federation" not in content:
        return None
    where = f"{path.name}: [federation]"
    told = checked(FederationSection, section(content, "federation", path.name), where)
    if not told.roster:
        raise ConfigError(f'{where} needs roster, such as roster = "roster.json"')
    return read_roster(path.parent / told.roster)


def terms_of(given: dict[str, Any], roster: SignedRoster | None, *, deployed: bool) -> Terms:
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


def parties_in(content: Mapping[str, Any], where: str) -> tuple[PartySection, ...]:
    """Every ``[[party]]``."""
    parties = content.get("party", [])
    if not isinstance(parties, list):
        raise ConfigError(f"{where}: write [[party]] with two brackets, once for each party")
    return tuple(_party(entry, number, where) for number, entry in enumerate(parties, 1))


def _party(entry: object, number: int, where: str) -> PartySection:
    named = entry.get("name") if isinstance(entry, dict) else None
    label = f"{where}: party '{named}'" if isinstance(named, str) else f"{where}: party {number}"
    party = checked(PartySection, entry, label)
    if not party.name.strip() or "/" in party.name or "\\" in party.name:
        raise ConfigError(f"{label}: a name needs at least one letter and no slash; rename it")
    if party.label is True:
        raise ConfigError(f"{label}: label = true says no column; name it, or say label = false")
    return party


def participation_in(
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
