"""What a site remembers of rosters: the highest serial that it has seen, and revocations."""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.errors import ConfigError
from weft.privacy.agreement.roster_files import read_revocation, write_revocation
from weft.privacy.agreement.roster_revocation import Revocation
from weft.privacy.agreement.signed_roster import SignedRoster
from weft.storage.files import StorageError, write_private

_PINNED, _REVOKED = "pinned.json", "revoked"


class _Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The newest roster of a federation: its serial and fingerprint."""

    serial: int
    fingerprint: str


class RosterPins:
    """A site's memory of rosters; without it, an older one that all once signed would count again.

    Parameters
    ----------
    folder
        Where it is kept, for the site's owner only.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def admit(self, roster: SignedRoster) -> None:
        """Refuse a roster that is older than another, or revoked; remember one that is newer."""
        charter = roster.charter
        pins = self._pins()
        known = pins.get(charter.federation)
        if known is not None and charter.serial < known.serial:
            raise ConfigError(
                f"the roster of '{charter.federation}' has serial {charter.serial}, but this site "
                f"has seen {known.serial}; use the newest that all members signed"
            )
        if (
            known is not None
            and charter.serial == known.serial
            and roster.fingerprint != known.fingerprint
        ):
            raise ConfigError(
                f"there are two rosters of '{charter.federation}' with serial {charter.serial}, of "
                f"which this site saw {known.fingerprint} first; draft one with a higher serial, "
                "and have all members sign it"
            )
        self.insist(roster)
        if known is None or charter.serial > known.serial:
            pins[charter.federation] = _Pin(charter.serial, roster.fingerprint)
            self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_private(self._folder / _PINNED, msgspec.json.encode(pins), durable=True)

    def insist(self, roster: SignedRoster) -> None:
        """Refuse a roster that has run out or was revoked, by what lies in the folder now."""
        roster.insist()
        for found in self._revocations():
            if found.revokes(roster):
                raise ConfigError(
                    f"'{found.by}' has revoked the roster of '{found.federation}' with serial "
                    f"{found.serial}; draft one with a higher serial, and have all members sign it"
                )

    def take(self, revocation: Revocation) -> Path:
        """Keep a revocation; whether it counts depends on the roster that it is held against."""
        folder = self._folder / _REVOKED
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"{bytes(revocation.signature[:16]).hex()}.json"
        if not path.exists():
            write_revocation(path, revocation)
        return path

    def _revocations(self) -> list[Revocation]:
        try:
            found = sorted((self._folder / _REVOKED).glob("*.json"))
            return [read_revocation(path) for path in found]
        except ConfigError as error:
            # Where files lie is not for others.
            told = "cannot read a revocation that it keeps; its own log says which"
            raise ConfigError(str(error), told=told) from None

    def _pins(self) -> dict[str, _Pin]:
        path = self._folder / _PINNED
        try:
            return msgspec.json.decode(path.read_bytes(), type=dict[str, _Pin])
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(
                f"{path} does not say which rosters this site has seen ({error}); put it back from "
                "a backup, or delete it if it never had a newer one"
            ) from None
