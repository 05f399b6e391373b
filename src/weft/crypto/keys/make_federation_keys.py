"""Making keys: all of a federation's, or none."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from weft.crypto.keys.key_files import (
    box_file,
    forget_other_runs,
    identity_file,
    undone_on_failure,
    write,
    write_identity,
    write_public,
)
from weft.crypto.keys.load_keys import PartyKeys, own_identity, read_identity
from weft.crypto.keys.public_keys_file import (
    PUBLIC,
    KeysError,
    PublicKeys,
    check_names,
    print_of,
    read_public,
    what_is_signed,
)
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError


def new_keys(
    folder: Path,
    parties: Sequence[str],
    *,
    renew_run: bool = False,
    known: Mapping[str, PublicIdentity] | None = None,
) -> PublicKeys:
    """Make identities and a run secret in a folder, all of it or nothing.

    The first party makes the run secret, signs it and seals it to every party.

    Parameters
    ----------
    folder
        New or empty, unless ``renew_run``.
    parties
        The members' names.
    renew_run
        The folder holds keys already: keep its identities, make those of new members, and
        replace the run secret, for a new run or because a member left. Private keys may be
        elsewhere, except those of the first party, which signs.
    known
        With ``renew_run``: the members' identities, in the place of those that the folder lists.
    """
    check_names(parties)
    if known is None:
        known = read_public(folder).members if renew_run else _nobody_yet(folder)
    own = {name: _kept_or_new(folder, name) for name in parties if name not in known}
    members = {name: known[name] if name in known else own[name].public for name in parties}
    maker = parties[0]
    signer = own[maker] if maker in own else own_identity(folder, maker, members[maker])
    run = Secret.random()
    public = PublicKeys(members, print_of(run), maker)
    with undone_on_failure() as made:
        for name, identity in own.items():
            write_identity(identity_file(folder, name), identity, made)
        for name, recipient in members.items():
            box = _sealed_to(name, recipient, run)
            signature = signer.sign(what_is_signed(public, recipient, box))
            write(box_file(folder, name, public.run), signature + box, made)
        write_public(folder / PUBLIC, public, made)
    forget_other_runs(folder, public.run)
    return public


def ephemeral_keys(parties: Sequence[str]) -> dict[str, PartyKeys]:
    """Fresh keys that live in this process only, for simulations."""
    run = Secret.random()
    return {name: PartyKeys(name, Identity.new(), run) for name in parties}


def _nobody_yet(folder: Path) -> dict[str, PublicIdentity]:
    """The members that an empty folder knows; any other folder is not overwritten."""
    if os.path.exists(folder / PUBLIC):
        raise KeysError(
            f"{folder} holds keys already; --renew-run keeps their identities and makes a new run "
            "secret, or name another folder"
        )
    try:
        if any(folder.iterdir()):
            raise KeysError(f"{folder} exists and is not empty; name another folder for the keys")
    except FileNotFoundError:
        return {}
    except OSError as error:
        raise KeysError(
            f"{folder} cannot hold keys ({error.strerror or error}); name another folder"
        ) from None
    return {}


def _kept_or_new(folder: Path, party: str) -> Identity:
    # A member that comes back finds the identity that it left with.
    if os.path.exists(identity_file(folder, party)):
        return read_identity(folder, party)
    return Identity.new()


def _sealed_to(party: str, public: PublicIdentity, run: Secret) -> bytes:
    try:
        return public.seal(run)
    except ProtocolError as error:
        raise KeysError(f"party {party}: {error}") from None
