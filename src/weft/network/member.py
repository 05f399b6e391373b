"""A member of a federation on its own site: its data, its keys, what it consents to."""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass, replace
from pathlib import Path

from weft.channels import Message
from weft.channels.message import text
from weft.config.policies import read_policy
from weft.consortium import Consent, SignedRoster, SitePolicy, read_roster
from weft.crypto.secrets import PublicIdentity
from weft.data.labels import two_classes
from weft.data.tile import Tile, settle_missing
from weft.errors import ConfigError
from weft.guards.terms import OPEN, Terms
from weft.keys import PartyKeys, load_keys, read_public
from weft.ledger.account import Ledger
from weft.network.offering import read_offered
from weft.network.task import Task
from weft.party import Party


@dataclass(frozen=True)
class Member:
    """Everything that a site brings along to every run.

    Attributes
    ----------
    members
        Public keys of all members, from its own folder of keys.
    roster, policy
        What was agreed by all, and what its owner insists on.
    """

    name: str
    tiles: tuple[Tile, ...]
    keys: PartyKeys
    members: Mapping[str, PublicIdentity]
    ledger: Ledger
    roster: SignedRoster | None = None
    policy: SitePolicy | None = None

    def open_party(self, told: Message, memory: MutableMapping[str, bytes]) -> Party:
        """Take part in a run, or refuse with a reason.

        Parameters
        ----------
        told
            As `Task.told` makes it.
        memory
            The run's own, empty or from before a restart.
        """
        task = Task.from_json(text(told, "task"))
        terms = task.terms
        if self.roster is None and self.policy is None:
            # Nobody but the one who submits has said anything: then careful terms count.
            terms = Terms().stricter(terms)
        consent = Consent(self.name, terms, roster=self.roster, policy=self.policy)
        consent.check_limits(task.settings)
        consent.check_cipher(task.settings.cipher)
        consent.check_matching(task.preparation.matching)
        return Party(
            self.name,
            [self._prepared(tile, task) for tile in self.tiles],
            keys=self.keys,
            cipher=task.settings.cipher,
            consent=consent,
            ledger=self.ledger,
            members=self.members,
            memory=memory,
        )

    def _prepared(self, tile: Tile, task: Task) -> Tile:
        if task.positive is not None:
            tile = two_classes(tile, task.positive)
        return settle_missing(tile, task.preparation.missing, self.name)


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
) -> Member:
    """Read all that a site brings; every mistake is found here, before anything is connected."""
    signed = None if roster is None else read_roster(roster)
    # Without a roster nobody but the site says anything: then careful terms count for the rest.
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
    # From here on what it refuses is told to others, whom names of files are no business of.
    kept = None if own is None else replace(own, source="")
    return Member(name, tiles, found, read_public(keys).members, ledger, signed, kept)
