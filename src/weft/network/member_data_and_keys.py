"""A member of a federation on its own site: the data that it offers, keys, and its consent."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config.site_policy_file import read_policy
from weft.config.strict_reading import closest
from weft.crypto.identities import PublicIdentity
from weft.crypto.keys import PartyKeys, load_keys, read_public
from weft.crypto.replay_log import Memory
from weft.data.readers import read_tile, table_columns
from weft.data.tile import MissingPolicy, Tile, settle_missing
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
    files: list[Path],
    *,
    id_column: str,
    label: str | None,
    keys: Path,
    ledger: Ledger,
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
    tiles = read_offered(files, own, id_column=id_column, label=label, party=name)
    if not tiles:
        raise ConfigError(f"party {name} has no data; name its file with --data")
    consent = Consent(name, roster=signed, policy=own)
    rows = sum(tile.n for tile in tiles)
    labelled = any(tile.labelled.any() for tile in tiles)
    consent.check_own(found.identity.public, rows, labels=labelled)
    # From here on refusals go to others, so they must not name local files.
    kept = None if own is None else replace(own, source="")
    return SiteMember(name, tiles, found, read_public(keys).members, ledger, signed, kept, pins)


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
