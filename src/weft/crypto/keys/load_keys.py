"""Loading keys: every file is checked against ``public.json``."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from shlex import quote
from typing import NoReturn

from weft.crypto.keys.key_files import MAGIC, box_file, has_other_runs, identity_file, read_private
from weft.crypto.keys.public_keys_file import (
    PUBLIC,
    KeysError,
    PublicKeys,
    print_of,
    read_public,
    what_is_signed,
)
from weft.crypto.party_key_pairs import SIGNATURE_BYTES, Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, ProtocolError


@dataclass(frozen=True)
class PartyKeys:
    """What one party holds: its own key pairs and the secret of the run."""

    name: str
    identity: Identity
    run: Secret


def load_keys(folder: Path, party: str) -> PartyKeys:
    """One party's keys, checked against ``public.json``.

    Raises
    ------
    KeysError
        Files are missing, damaged or open to others, or do not belong together.
    """
    return _load(folder, party, read_public(folder))


def load_all(folder: Path, parties: Sequence[str]) -> dict[str, PartyKeys]:
    """The keys of several parties that share this machine."""
    public = read_public(folder)
    strangers = [name for name in parties if name not in public.members]
    if strangers:
        _refuse_strangers(folder, strangers, public)
    return {name: _load(folder, name, public) for name in parties}


def check_keys(keys: Mapping[str, PartyKeys] | None, parties: Iterable[str]) -> None:
    """Refuse keys that are not those of all parties; None stands for keys yet to be made."""
    if keys is None:
        return
    missing = [name for name in parties if name not in keys]
    if missing:
        raise ConfigError(
            f"there are no keys of {_some(missing)}; load them with load_all(folder, parties), or "
            "give no keys at all"
        )


def _load(folder: Path, party: str, public: PublicKeys) -> PartyKeys:
    if party not in public.members:
        _refuse_strangers(folder, [party], public)
    identity = own_identity(folder, party, public.members[party])
    return PartyKeys(party, identity, _open_run(folder, party, public, identity))


def _refuse_strangers(folder: Path, strangers: Sequence[str], public: PublicKeys) -> NoReturn:
    raise KeysError(
        f"{folder / PUBLIC} has no keys of {_some(strangers)}, only of {_some(public.members)}; "
        "correct the name, or add the party with 'weft keys new --renew-run'"
    )


def own_identity(folder: Path, party: str, public: PublicIdentity) -> Identity:
    """A party's key pairs, which must be those that everybody knows it by."""
    identity = read_identity(folder, party)
    if identity.public != public:
        raise KeysError(
            f"party {party}: {identity_file(folder, party)} holds other keys than {PUBLIC} says; "
            "copy the right one of both files back"
        )
    return identity


def read_identity(folder: Path, party: str) -> Identity:
    """A party's key pairs, as its file has them."""
    path = identity_file(folder, party)
    try:
        # Kept in a Secret at once: no frame shall hold the bytes under a name.
        content = Secret(read_private(path, party))
    except FileNotFoundError:
        raise KeysError(
            f"party {party}: its private keys {path} are not here; copy them back, or make new "
            "keys in another folder with 'weft keys new'"
        ) from None
    if content.reveal().startswith(MAGIC):
        with suppress(ProtocolError):
            return Identity.from_private(Secret(content.reveal()[len(MAGIC) :]))
    raise KeysError(
        f"party {party}: {path} is damaged or no file of private keys; copy it back from a backup"
    )


def _open_run(folder: Path, party: str, public: PublicKeys, identity: Identity) -> Secret:
    path = box_file(folder, party, public.run)
    try:
        content = read_private(path, party)
    except FileNotFoundError:
        _refuse_missing_box(folder, party, public)
    signature, box = content[:SIGNATURE_BYTES], content[SIGNATURE_BYTES:]
    advice = f"ask party {public.made_by} for that file again, or {_renewal(folder)}"
    try:
        run = identity.open(box)
    except ProtocolError:
        raise KeysError(
            f"party {party}: {path} was sealed to other keys, or is damaged; {advice}"
        ) from None
    # Compared before the signature, which a box of another run cannot have either: the sentence
    # about the run says more.
    if print_of(run) != public.run:
        _refuse_other_run(folder, party, public)
    try:
        recipient = public.members[party]
        maker = public.members[public.made_by]
        maker.verify(what_is_signed(public, recipient, box), signature)
    except ProtocolError:
        raise KeysError(
            f"party {party}: {path} is not signed by party {public.made_by} for the parties in "
            f"{PUBLIC}; {advice}"
        ) from None
    return run


def _refuse_missing_box(folder: Path, party: str, public: PublicKeys) -> NoReturn:
    if has_other_runs(folder, party):
        _refuse_other_run(folder, party, public)
    path = box_file(folder, party, public.run)
    raise KeysError(
        f"party {party}: its run secret {path} is not here; ask party {public.made_by} for that "
        f"file, or {_renewal(folder)}"
    )


def _refuse_other_run(folder: Path, party: str, public: PublicKeys) -> NoReturn:
    path = box_file(folder, party, public.run)
    raise KeysError(
        f"party {party} holds another run secret than the others, who share {public.run}; ask "
        f"party {public.made_by} for {path} again, or {_renewal(folder)}"
    )


def _renewal(folder: Path) -> str:
    return f"make a new one for all with 'weft keys new {quote(str(folder))} --renew-run'"


def _some(names: Collection[str], most: int = 6) -> str:
    shown = ", ".join(islice(names, most))
    return shown if len(names) <= most else f"{shown} and {len(names) - most} more"
