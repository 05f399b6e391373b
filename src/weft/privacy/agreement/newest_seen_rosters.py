"""What a site remembers of rosters: the highest serial it has seen, and the least that counts."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import blake2b
from pathlib import Path

import msgspec
import numpy as np

from weft.errors import ConfigError
from weft.matching.id_and_name_forms import normal_ids
from weft.privacy.agreement.cards_and_roster_drafts import write_revocation
from weft.privacy.agreement.roster_revocation import Revocation
from weft.privacy.agreement.signed_roster import SignedRoster, to_hex
from weft.storage.atomic_files import StorageError, locked, write_private
from weft.thread_safe_decoding import prepared

_PINNED, _REVOKED = "pinned.json", "revoked"


class _Pin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is known of a federation's rosters.

    Attributes
    ----------
    serial, fingerprint
        The newest that all its members have signed.
    least
        The least serial that still counts: all below were revoked.
    revoked_by
        The member whose revocation says so.
    """

    serial: int
    fingerprint: str
    least: int = 1
    revoked_by: str = ""


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
        """Refuse a roster that does not count here; remember one that is newer."""
        with self._changing() as pins:
            key = _key(roster)
            known = pins.get(key)
            _refuse(roster, known)
            if known is None:
                pins[key] = _Pin(roster.charter.serial, roster.fingerprint)
            else:
                pins[key] = _newest(known, roster)

    def insist(self, roster: SignedRoster) -> None:
        """Refuse a roster that has run out, is older or was revoked, by what is known now."""
        _refuse(roster, self._pins().get(_key(roster)))

    def take(self, revocation: Revocation, roster: SignedRoster) -> bool:
        """Heed a revocation from now on, once it is checked by a roster that all have signed.

        Returns whether it is heeded: one of a roster that does not count here anyway is not.

        Parameters
        ----------
        roster
            The one that is revoked; or a newer one, before which that one does not count anyway.
        """
        roster.insist_on_signatures()
        if not revocation.revokes(roster):
            self._pass_over(revocation, roster)
            return False
        serial = roster.charter.serial
        with self._changing() as pins:
            known = pins.get(_key(roster)) or _Pin(serial, roster.fingerprint)
            _refuse_older(roster, known)
            if known.least <= serial:
                pins[_key(roster)] = msgspec.structs.replace(
                    _newest(known, roster), least=serial + 1, revoked_by=revocation.by
                )
        self._keep(revocation)
        return True

    def _pass_over(self, revocation: Revocation, roster: SignedRoster) -> None:
        """Leave out a revocation of a roster that does not count here anyway; refuse others."""
        if _normal(revocation.federation) == _key(roster):
            known = self._pins().get(_key(roster))
            if known is not None and revocation.serial < max(known.serial, known.least):
                return
            if revocation.serial < roster.charter.serial:
                self.admit(roster)
                return
        # Else a member could revoke rosters that nobody has drafted yet, and anyone in its name.
        raise ConfigError(
            f"the revocation of serial {revocation.serial} of '{revocation.federation}' by "
            f"'{revocation.by}' is not signed by a member of the roster that this site has, or "
            "names another one; ask that member for it again, and give the roster with --roster"
        )

    def _keep(self, revocation: Revocation) -> None:
        """Keep the file too, to show why the roster is refused."""
        folder = self._folder / _REVOKED
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        whole = msgspec.json.encode(revocation, enc_hook=to_hex)
        path = folder / f"{blake2b(whole, digest_size=16).hexdigest()}.json"
        if not path.exists():
            write_revocation(path, revocation)

    @contextmanager
    def _changing(self) -> Iterator[dict[str, _Pin]]:
        """The pins, to be changed by one process at a time; kept unless the block fails."""
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / _PINNED
        with locked(path):
            pins = self._pins()
            before = dict(pins)
            yield pins
            if pins != before:
                write_private(path, msgspec.json.encode(pins), durable=True)

    def _pins(self) -> dict[str, _Pin]:
        path = self._folder / _PINNED
        try:
            return msgspec.json.decode(path.read_bytes(), type=prepared(dict[str, _Pin]))
        except FileNotFoundError:
            return {}
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(
                f"{path} does not say which rosters this site has seen ({error}); put it back from "
                "a backup, or delete it if it never had a newer one",
                # Where files lie is not for others.
                told="cannot read which rosters it has seen; its own log says why",
            ) from None


def _normal(federation: str) -> str:
    """A federation's name, so that other blanks, case or width do not make it another one."""
    return str(normal_ids(np.array([federation], dtype=object))[0])


def _key(roster: SignedRoster) -> str:
    return _normal(roster.charter.federation)


def _newest(known: _Pin, roster: SignedRoster) -> _Pin:
    if roster.charter.serial <= known.serial:
        return known
    return msgspec.structs.replace(
        known, serial=roster.charter.serial, fingerprint=roster.fingerprint
    )


def _refuse(roster: SignedRoster, known: _Pin | None) -> None:
    """Refuse a roster that not all have signed, or that has run out, is older or was revoked."""
    roster.insist()
    if known is None:
        return
    charter = roster.charter
    if charter.serial < known.least:
        raise ConfigError(
            f"'{known.revoked_by}' has revoked the roster of '{charter.federation}' with serial "
            f"{known.least - 1} and all before it; draft one with a higher serial, and have all "
            "members sign it"
        )
    _refuse_older(roster, known)


def _refuse_older(roster: SignedRoster, known: _Pin) -> None:
    """Refuse a roster in whose place this site has seen another."""
    charter = roster.charter
    if charter.serial < known.serial:
        raise ConfigError(
            f"the roster of '{charter.federation}' has serial {charter.serial}, but this site "
            f"has seen {known.serial}; use the newest that all members signed"
        )
    if charter.serial == known.serial and roster.fingerprint != known.fingerprint:
        raise ConfigError(
            f"there are two rosters of '{charter.federation}' with serial {charter.serial}, of "
            f"which this site saw {known.fingerprint} first; draft one with a higher serial, "
            "and have all members sign it"
        )
