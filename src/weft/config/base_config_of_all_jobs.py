"""What every config of a federation has, whatever it trains: a name, parties, keys and terms."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import msgspec

from weft.config.examine_party_data import FileColumns, examine_party, with_findings
from weft.config.schema import FederationFile, NetworkSection, PartySection
from weft.config.site_policy_file import read_policy
from weft.config.strict_reading import checked, closest, read_toml
from weft.crypto.keys import PartyKeys, load_all
from weft.data.columns.table_transformation import FileReading
from weft.data.file_or_database_address import Source, source_of
from weft.data.findings_with_config_fixes import Finding, insist
from weft.data.read_tiles import Examined
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.guards import OPEN, Terms
from weft.privacy.agreement import Consent, SignedRoster, read_roster


@dataclass(frozen=True, kw_only=True)
class FederationConfig(ABC):
    """A config file whose keys and values are known to make sense.

    Nothing but the config itself and its roster has been read.

    Attributes
    ----------
    kind
        What it trains: ``linear``, or the name of a job kind that a plug-in adds.
    file
        Its sections as they are written.
    terms
        What the parties insist on, by ``[privacy]`` and the roster.
    """

    kind: ClassVar[str]
    path: Path
    file: FederationFile
    roster: SignedRoster | None
    terms: Terms

    @property
    def name(self) -> str:
        """The federation's name; without one, that of the file."""
        return self.file.name or self.path.stem

    @property
    def folder_name(self) -> str:
        """The name as a folder: letters, digits, dots, hyphens and underscores."""
        return re.sub(r"[^\w.-]+", "-", self.name).strip("-.") or "federation"

    @property
    def parties(self) -> tuple[PartySection, ...]:
        return self.file.party

    @property
    def network(self) -> NetworkSection:
        return self.file.network

    @property
    def keys(self) -> Path | None:
        """The folder of keys; a relative one is looked for beside the config."""
        return None if self.file.keys is None else self.path.parent / self.file.keys.folder

    def sources_of(self, party: PartySection) -> list[Source]:
        """A party's files, or its database; relative paths are looked for beside the config."""
        names = [name for name in (party.file, party.source) if name is not None]
        return [source_of(name, self.path.parent) for name in names or party.files or ()]

    @abstractmethod
    def party_names(self) -> list[str]:
        """Who takes part; where a config names no parties, what it cuts or deals is read."""

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

    def examine(self, data: FileColumns) -> dict[str, tuple[Examined, ...]]:
        """Every party's files, with all that was found in them."""
        found = {
            party.name: examine_party(
                self.with_columns(party), self.sources_of(party), data, self.file.columns
            )
            for party in self.parties
        }
        for name, files in found.items():
            absent = self._declared_for_nobody(found)
            if files and absent:
                found[name] = (with_findings(files[0], absent), *files[1:])
                break
        return found

    def _declared_for_nobody(self, examined: Mapping[str, Sequence[Examined]]) -> list[Finding]:
        """Columns of ``[columns.NAME]`` that no party has."""
        named = {party.name: party.named for party in self.parties}
        held = {
            named[party](name)
            for party, files in examined.items()
            for file in files
            for name in file.header
        }
        return [
            Finding(
                "error",
                f"[columns.{name}] is about a column that no party has{closest(name, held)}",
                "correct the name, or leave it out",
                column=name,
            )
            for name in self.file.columns
            if name not in held
        ]

    def readings(self) -> dict[str, FileReading]:
        """How each party's files are read, for a model to keep."""
        return {party.name: party.stored(party.name) for party in self.parties}

    def with_columns(self, party: PartySection) -> PartySection:
        """A party with what is declared about columns for all parties."""
        declared = {**self.file.columns, **(party.columns or {})}
        return msgspec.structs.replace(party, columns=declared or None)

    def read_tiles(self, data: FileColumns) -> dict[str, tuple[Tile, ...]]:
        """Every party's tiles, from its files.

        Raises
        ------
        FoundProblems
            With all problems of all files.
        """
        return tiles_of(self.examine(data))


def tiles_of(
    examined: Mapping[str, Sequence[Examined]], doubts: Sequence[Finding] = ()
) -> dict[str, tuple[Tile, ...]]:
    """The tiles of files in which nothing is wrong; ``doubts`` are about several parties."""
    found = [finding for files in examined.values() for file in files for finding in file.findings]
    insist([*found, *doubts])
    return {
        party: tuple(file.tile for file in files if file.tile is not None)
        for party, files in examined.items()
    }


def read_content(path: Path) -> dict[str, Any]:
    """The content of a config, not checked yet."""
    return read_toml(
        path, f"there is no config file {path}; write one with 'weft split', or by hand"
    )


def roster_of(file: FederationFile, path: Path) -> SignedRoster | None:
    """The roster, looked for beside the config."""
    return None if file.federation is None else read_roster(path.parent / file.federation.roster)


def terms_of(given: Mapping[str, Any], roster: SignedRoster | None, *, deployed: bool) -> Terms:
    """Those of ``[privacy]``; with a roster, what it says counts for all that is not given.

    Over a network the sites say the rest, and ids are matched by OPRF where nothing is said.
    """
    if deployed:
        return terms_from(given, msgspec.structs.replace(OPEN, matching="oprf"))
    if roster is None:
        return terms_from(given, Terms())
    return roster.charter.terms.stricter(terms_from(given, OPEN))


def terms_from(given: Mapping[str, Any], base: Terms) -> Terms:
    """``[privacy]``, with what counts for the terms that it leaves out."""
    return checked(Terms, {**msgspec.to_builtins(base), **given}, "[privacy]")


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
