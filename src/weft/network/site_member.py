"""A member of a federation on its own site: data, keys, and what it consents to."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from weft.config.site_policy_file import read_policy
from weft.crypto.keys import PartyKeys, load_keys, read_public
from weft.crypto.randomness_log import Memory, RandomnessLog
from weft.crypto.secrets import PublicIdentity
from weft.data.labels import two_classes
from weft.data.tile import MissingPolicy, Tile, settle_missing
from weft.errors import ConfigError
from weft.federation.party import Party
from weft.federation.resume_fingerprint import insist_on_origin
from weft.guards.terms import OPEN, Terms
from weft.network.column_filter import read_offered
from weft.network.task import LinearTask, NeuralTask, Task
from weft.privacy.agreement import Consent, SignedRoster, SitePolicy, read_roster
from weft.privacy.ledger.account import Ledger
from weft.protocol import Fields
from weft_neural.torch_requirement import require_torch

if TYPE_CHECKING:
    from weft_neural.device import Device
    from weft_neural.party import NeuralParty


@dataclass(frozen=True)
class SiteMember:
    """Everything that a site brings to every run.

    Attributes
    ----------
    members
        Public keys of all members, from its own folder of keys.
    roster, policy
        The terms all signed, and those of its owner.
    device
        Where networks are trained.
    """

    name: str
    tiles: tuple[Tile, ...]
    keys: PartyKeys
    members: Mapping[str, PublicIdentity]
    ledger: Ledger
    roster: SignedRoster | None = None
    policy: SitePolicy | None = None
    device: Device = "auto"

    def open_party(self, told: Fields, memory: Memory) -> Party | NeuralParty:
        """Make the party of a run, or refuse with a reason.

        Parameters
        ----------
        told
            As `Task.told` makes it.
        memory
            The run's random values; empty, or from before a restart.
        """
        task = Task.of_told(told)
        terms = task.terms
        if self.roster is None and self.policy is None:
            # Only the submitter has set terms: add careful defaults.
            terms = Terms().stricter(terms)
        consent = Consent(self.name, terms, roster=self.roster, policy=self.policy)
        if isinstance(task, NeuralTask):
            return self._open_neural(task, consent, memory)
        return self._open_linear(task, consent, memory)

    def _open_linear(self, task: LinearTask, consent: Consent, memory: Memory) -> Party:
        consent.check_limits(task.settings)
        consent.check_cipher(task.settings.cipher)
        consent.check_matching(task.preprocessing.matching)
        tiles = self.tiles
        if task.positive is not None:
            tiles = tuple(two_classes(tile, task.positive) for tile in tiles)
        return Party(
            self.name,
            self._settled(tiles, task.preprocessing.missing),
            keys=self.keys,
            cipher=task.settings.cipher,
            consent=consent,
            ledger=self.ledger,
            members=self.members,
            memory=memory,
        )

    def _open_neural(self, task: NeuralTask, consent: Consent, memory: Memory) -> NeuralParty:
        settings = task.settings
        consent.check_neural()
        consent.check_cipher(settings.cipher)
        require_torch()
        # PyTorch takes seconds to load, so only neural runs load it.
        from weft_neural.numeric_fingerprint import network_digits
        from weft_neural.party import NeuralParty
        from weft_neural.sample_sources import TableSource

        tiles = self._settled(self.tiles, task.missing)
        digits = network_digits(self.device)
        insist_on_origin(
            RandomnessLog(memory), tiles, self.keys, settings.cipher, consent, digits=digits
        )
        return NeuralParty(
            self.name,
            TableSource(self.name, tiles),
            keys=self.keys,
            consent=consent,
            cipher=settings.cipher,
            device=self.device,
            memory=memory,
            expected=settings,
            private=True,
        )

    def _settled(self, tiles: Sequence[Tile], missing: MissingPolicy) -> list[Tile]:
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
) -> SiteMember:
    """Read everything a site brings; mistakes show here, before anything is connected."""
    signed = None if roster is None else read_roster(roster)
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
    return SiteMember(name, tiles, found, read_public(keys).members, ledger, signed, kept)
