"""A member of a federation on its own site: the data that it offers, keys, and its consent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config.examined_files import absent_columns, with_findings
from weft.config.site_policy_file import read_policy
from weft.config.strict_reading import closest
from weft.crypto.keys import PartyKeys, load_keys, read_public
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.replay_log import Memory
from weft.data.blank_cells import settle_missing
from weft.data.databases import Source
from weft.data.findings import insist
from weft.data.readers import Examined, examine, read_tile
from weft.data.reading_options import AS_FOUND, ReadingOptions
from weft.data.tables import table_columns
from weft.data.tile import MissingPolicy, Tile
from weft.errors import ConfigError, DataError
from weft.guards.terms import OPEN, Terms
from weft.network.installed_job_kinds import job_kind_of, told_task
from weft.privacy.agreement import Consent, SignedRoster, SitePolicy, read_roster
from weft.privacy.agreement.roster_pins import RosterPins
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import Fields

if TYPE_CHECKING:
    from weft.network.site_models import SavingParty


@dataclass(frozen=True)
class SiteMember:
    """Everything that a site brings to every run.

    Attributes
    ----------
    members
        Public keys of all members, from its own folder of keys.
    roster, policy
        The terms all signed, and those of its owner.
    notes
        How its tables were read, a sentence each, for its owner.
    pins
        What it remembers of rosters; a revocation counts for the next run that is asked for.
    """

    name: str
    tiles: tuple[Tile, ...]
    keys: PartyKeys
    members: Mapping[str, PublicIdentity]
    ledger: Ledger
    roster: SignedRoster | None = None
    policy: SitePolicy | None = None
    pins: RosterPins | None = None
    notes: tuple[str, ...] = ()

    def open_party(self, told: Fields, memory: Memory) -> SavingParty:
        """Make the party of a run, or refuse with a reason.

        Parameters
        ----------
        told
            As `Task.told` makes it.
        memory
            The run's random values; empty, or from before a restart.
        """
        task = told_task(told)
        if self.roster is not None and self.pins is not None:
            self.pins.insist(self.roster)
        # Where only the submitter has set terms, careful defaults are the site's own.
        own = Terms() if self.roster is None and self.policy is None else OPEN
        consent = Consent(self.name, own, roster=self.roster, policy=self.policy, asked=task.terms)
        kind = job_kind_of(task)
        consent.check_kind(kind.name, allowed_by=kind.allowed_by)
        kind.check_consent(task, consent)
        return kind.open_party(task, self, consent, memory)

    def settled(self, tiles: Sequence[Tile], missing: MissingPolicy) -> list[Tile]:
        """Tiles without blank cells."""
        return [settle_missing(tile, missing, self.name) for tile in tiles]


def load_member(
    name: str,
    files: list[Source],
    *,
    id_column: str,
    label: str | None,
    keys: Path,
    ledger: Ledger,
    options: ReadingOptions = AS_FOUND,
    roster: Path | None = None,
    policy: Path | None = None,
    pins: RosterPins | None = None,
) -> SiteMember:
    """Read everything a site brings; mistakes show here, before anything is connected."""
    signed = None if roster is None else read_roster(roster)
    if signed is not None and pins is not None:
        pins.admit(signed)
    # Without a roster, careful defaults apply to what the site's policy leaves open.
    base = Terms() if signed is None else OPEN
    own = None if policy is None else read_policy(policy, base)
    found = load_keys(keys, name)
    examined = examine_offered(
        files, own, id_column=id_column, label=label, party=name, options=options
    )
    tiles = offered_tiles(examined)
    if not tiles:
        raise ConfigError(f"party {name} has no data; name its file with --data")
    consent = Consent(name, roster=signed, policy=own)
    rows = sum(tile.n for tile in tiles)
    labelled = any(tile.labelled.any() for tile in tiles)
    consent.check_own(found.identity.public, rows, labels=labelled)
    # From here on refusals go to others, so they must not name local files.
    kept = None if own is None else replace(own, source="")
    notes = tuple(finding.sentence() for file in examined for finding in file.findings)
    return SiteMember(
        name, tiles, found, read_public(keys).members, ledger, signed, kept, pins, notes
    )


def examine_offered(
    files: Sequence[Source],
    policy: SitePolicy | None,
    *,
    id_column: str,
    label: str | None,
    party: str,
    options: ReadingOptions = AS_FOUND,
) -> list[Examined]:
    """A site's files with the columns of its policy; without one, with all columns.

    A column that is not offered is not even read: it may hold text.

    Raises
    ------
    ConfigError
        The policy offers a column that no file has.
    DataError
        A file cannot be opened, or has none of the columns.
    """
    columns = None if policy is None else policy.columns
    kept: list[list[str] | None] = [None] * len(files)
    if columns is not None:
        held = [_held(path, id_column, label, party, options) for path in files]
        _check_known(columns, held, party, policy.source if policy else "")
        kept = [[name for name in names if name in columns] for names in held]
        for path, names in zip(files, kept, strict=True):
            if not names:
                raise DataError(
                    f"party {party}: {path.name} has none of the columns that its policy offers; "
                    "leave the file out"
                )
    examined = [
        examine(
            path,
            id_column=id_column,
            label_column=label,
            features=names,
            party=party,
            options=options,
        )
        for path, names in zip(files, kept, strict=True)
    ]
    if examined:
        examined[0] = with_findings(examined[0], absent_columns(options, examined, party))
    return examined


def offered_tiles(examined: Sequence[Examined]) -> tuple[Tile, ...]:
    """The tiles of files in which nothing is wrong; else an error with all that is."""
    insist(finding for file in examined for finding in file.findings)
    return tuple(file.tile for file in examined if file.tile is not None)


def _held(
    path: Source, id_column: str, label: str | None, party: str, options: ReadingOptions
) -> list[str]:
    """Names of the feature columns of a file."""
    names = table_columns(path, options)
    if names is not None:
        return [name for name in names if name not in (id_column, label)]
    # Other formats hold only numbers; reading the file reports what is wrong with it.
    tile = read_tile(path, id_column=id_column, label_column=label, party=party, options=options)
    return list(tile.features)


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
