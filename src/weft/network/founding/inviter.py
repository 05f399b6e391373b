"""The inviter's side: a member that proposes a federation and makes kits and run secret."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from secrets import token_bytes

import msgspec
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

from weft.crypto.keys import new_keys
from weft.crypto.keys.key_files import box_file
from weft.crypto.keys.load_keys import read_identity
from weft.crypto.keys.public_keys_file import PUBLIC
from weft.errors import ConfigError
from weft.network.founding.letters import (
    Acceptance,
    Founding,
    Invitation,
    Letter,
    read_letter,
    write_letter,
)
from weft.network.kits.certificates import (
    CertificateError,
    fingerprint,
    name_of,
    read_request,
    requested_key,
)
from weft.network.kits.kit_folder import KEYS, ROSTER, SITE_KIT
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.kits.provisioning import provision
from weft.privacy.agreement import read_roster, write_roster
from weft.privacy.agreement.cards_and_roster_drafts import Card, card_of
from weft.privacy.agreement.signed_roster import Hex, SignedRoster
from weft.storage.atomic_folder import building

#: In a site's folder: the invitation; and, at the inviter's, the authority and the kit of whoever
#: submits runs.
INVITATION = "invitation.json"
AUTHORITY, SUBMITTER = "authority", "submitter"


@dataclass(frozen=True)
class Accepted:
    """All acceptances of an invitation: cards of members, and keys for certificates."""

    cards: dict[str, Card]
    requests: dict[str, RSAPublicKey]

    @property
    def fingerprints(self) -> dict[str, str]:
        """By which each can be compared: a member's keys, else the key of its request."""
        return {
            name: self.cards[name].identity.fingerprint if name in self.cards else fingerprint(key)
            for name, key in self.requests.items()
        }


def begin(folder: Path, invitation: Invitation) -> tuple[Letter, Path]:
    """Make the inviter's folder with its keys, and the invitation; the letter and its file.

    ``invitation`` has no keys of the inviter yet: they are made here.
    """
    name = invitation.inviter.name
    with building(folder) as draft:
        new_keys(draft / KEYS, [name])
        own = card_of(draft / KEYS, name)
        letter = Letter.of(
            "invitation",
            _with_card(invitation, own),
            read_identity(draft / KEYS, name),
        )
        write_letter(draft / INVITATION, letter)
        os.chmod(draft, 0o700)
    return letter, folder / INVITATION


def _with_card(invitation: Invitation, card: Card) -> Invitation:
    return msgspec.structs.replace(invitation, inviter=card, number=Hex(token_bytes(16)))


def read_acceptances(folder: Path, paths: Sequence[Path]) -> Accepted:
    """Check the answers to an invitation: one of everybody, each by its writer's own key."""
    letter = read_letter(folder / INVITATION)
    invitation = letter.read(Invitation)
    cards, requests = {invitation.inviter.name: invitation.inviter}, dict[str, RSAPublicKey]()
    for path in paths:
        found = read_letter(path)
        answer = found.read(Acceptance)
        if answer.invitation != letter.fingerprint:
            raise ConfigError(
                f"{path} answers another invitation; ask '{answer.name}' to answer "
                f"{folder / INVITATION}"
            )
        if answer.name not in (*invitation.invited, COORDINATOR) or answer.name in requests:
            raise ConfigError(
                f"{path} is of '{answer.name}', who is not invited or has answered already; the "
                f"invitation is for {', '.join((*invitation.invited, COORDINATOR))}, once each"
            )
        if (answer.card is None) != (answer.name == COORDINATOR):
            raise ConfigError(f"{path}: members have keys, and the coordinator has none")
        if answer.card is not None:
            if answer.card.name != answer.name:
                raise ConfigError(f"{path} is of '{answer.name}' with the card of another")
            found.insist(answer.card.identity, f"'{answer.name}'")
            cards[answer.name] = answer.card
        requests[answer.name] = _requested(path, answer)
    missing = [n for n in (*invitation.invited, COORDINATOR) if n not in requests]
    if missing:
        raise ConfigError(
            f"there is no acceptance of {', '.join(missing)} yet; collect them all at once"
        )
    return Accepted(cards, requests)


def _requested(path: Path, answer: Acceptance) -> RSAPublicKey:
    try:
        request = read_request(answer.request.encode())
        key = requested_key(request)
    except CertificateError as error:
        raise ConfigError(f"{path}: {error}; ask its sender for it again") from None
    if name_of(request) != answer.name:
        raise ConfigError(f"{path} is of '{answer.name}' with the request of another")
    return key


def found(folder: Path, accepted: Accepted) -> tuple[SignedRoster, list[Path]]:
    """Make roster, run secret and kits, and a founding letter for everybody else.

    All of it or nothing; the roster is signed by the inviter alone so far.
    """
    letter = read_letter(folder / INVITATION)
    invitation = letter.read(Invitation)
    own = invitation.inviter.name
    identity = read_identity(folder / KEYS, own)
    roster = invitation.roster(accepted.cards).signed_by(own, identity)
    for made in (folder / ROSTER, folder / AUTHORITY, folder / SITE_KIT, folder / SUBMITTER):
        if os.path.lexists(made):
            raise ConfigError(
                f"{made} is there already: this federation was founded; collect signatures now, or "
                "begin anew in another folder"
            )
    members = {name: card.identity for name, card in accepted.cards.items()}
    kits = folder / AUTHORITY
    try:
        provision(invitation.plan, kits, accepted.requests)
        public = new_keys(
            folder / KEYS,
            list(invitation.members),
            renew_run=True,
            known={name: members[name] for name in invitation.members},
        )
        os.rename(kits / own, folder / SITE_KIT)
        os.rename(kits / invitation.submitter, folder / SUBMITTER)
        letters = []
        for name in (*invitation.invited, COORDINATOR):
            told = Founding(
                invitation=letter.fingerprint,
                name=name,
                kit=Hex((kits / f"{name}.zip").read_bytes()),
            )
            if name != COORDINATOR:
                told = _for_member(told, folder, roster, public.run)
            path = folder / f"{name}.founding.json"
            path.unlink(missing_ok=True)
            write_letter(path, Letter.of("founding", told, identity))
            letters.append(path)
        write_roster(folder / ROSTER, roster, new=True)
    except BaseException:
        for made in (kits, folder / SITE_KIT, folder / SUBMITTER):
            shutil.rmtree(made, ignore_errors=True)
        raise
    return roster, letters


def _for_member(told: Founding, folder: Path, roster: SignedRoster, run: str) -> Founding:
    return msgspec.structs.replace(
        told,
        roster=dict(roster.content),
        signatures={name: Hex(found) for name, found in roster.signatures.items()},
        public=(folder / KEYS / PUBLIC).read_text("utf-8"),
        box=Hex(box_file(folder / KEYS, told.name, run).read_bytes()),
    )


def add_signatures(folder: Path, paths: Sequence[Path]) -> SignedRoster:
    """Put the signatures of rosters that came back under the inviter's own copy."""
    roster = read_roster(folder / ROSTER)
    signatures: Mapping[str, bytes] = dict(roster.signatures)
    for path in paths:
        back = read_roster(path)
        if back.content != roster.content:
            raise ConfigError(
                f"{path} is another roster ({back.fingerprint}) than the one that was sent "
                f"({roster.fingerprint}); do not use it, and ask its sender what happened"
            )
        wrong = [name for name, state in back.states().items() if state == "wrong"]
        if wrong:
            raise ConfigError(f"{path} has a wrong signature of {', '.join(wrong)}; ask again")
        signatures = {**signatures, **back.signatures}
    signed = SignedRoster(roster.content, signatures)
    write_roster(folder / ROSTER, signed)
    return signed
