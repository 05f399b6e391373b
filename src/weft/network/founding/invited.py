"""The side of those who are invited: keys of one's own, an acceptance, and a signature."""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from weft.crypto.keys import new_keys
from weft.crypto.keys.key_files import box_file
from weft.crypto.keys.load_keys import load_keys, read_identity
from weft.crypto.keys.public_keys_file import PUBLIC, read_public
from weft.errors import ConfigError
from weft.network.founding.inviter import INVITATION
from weft.network.founding.letters import (
    Acceptance,
    Founding,
    Invitation,
    Letter,
    read_letter,
    write_letter,
)
from weft.network.kits.certificate_requests import make_request
from weft.network.kits.certificates import fingerprint, pem
from weft.network.kits.complete_kit_with_own_key import install
from weft.network.kits.kit_folder import KEYS, ROSTER, SITE_KIT, Kit
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.privacy.agreement import write_roster
from weft.privacy.agreement.cards_and_roster_drafts import Card, card_of
from weft.privacy.agreement.signed_roster import SignedRoster
from weft.storage.atomic_files import write_private
from weft.storage.atomic_folder import building

_REQUEST = "request"


def read_invitation(path: Path) -> tuple[Letter, Invitation]:
    """An invitation that its inviter has signed; whose keys these are, a telephone tells."""
    letter = read_letter(path)
    invitation = letter.read(Invitation)
    letter.insist(invitation.inviter.identity, f"'{invitation.inviter.name}'")
    # Names and host must do for kits before anybody makes keys.
    _ = invitation.plan
    return letter, invitation


def accept(path: Path, name: str, folder: Path) -> tuple[Path, str]:
    """Make keys and a request in a new folder, and the acceptance beside it.

    Parameters
    ----------
    name
        Of the members that are invited, or ``coordinator``, which gets no keys but for its kit.

    Returns
    -------
    path, fingerprint
        The file to send, and the digits by which its keys can be compared.
    """
    letter, invitation = read_invitation(path)
    if name not in (*invitation.invited, COORDINATOR):
        raise ConfigError(
            f"the invitation is for {', '.join((*invitation.invited, COORDINATOR))}, not for "
            f"'{name}'; correct the name"
        )
    answer = folder.parent / f"{name}.acceptance.json"
    if os.path.lexists(answer):
        raise ConfigError(f"{answer} exists already; move it away, or delete it first")
    with building(folder) as draft:
        request = make_request(name, draft / _REQUEST)
        card = identity = None
        if name != COORDINATOR:
            new_keys(draft / KEYS, [name])
            card, identity = card_of(draft / KEYS, name), read_identity(draft / KEYS, name)
        write_letter(draft / INVITATION, letter)
        os.chmod(draft, 0o700)
        told = Acceptance(
            invitation=letter.fingerprint,
            name=name,
            card=card,
            request=pem(request).decode(),
        )
        write_letter(answer, Letter.of("acceptance", told, identity))
    return answer, fingerprint(request) if card is None else card.identity.fingerprint


def read_founding(path: Path, folder: Path) -> tuple[Founding, SignedRoster | None]:
    """A founding letter for the owner of a folder, and the roster to sign; None: the coordinator's.

    Refused where it is not the inviter's, or proposes anything else than the invitation that was
    accepted, or lists other keys of this member than its own.
    """
    invited, invitation = read_invitation(folder / INVITATION)
    letter = read_letter(path)
    letter.insist(invitation.inviter.identity, f"'{invitation.inviter.name}', who invited")
    told = letter.read(Founding)
    if told.invitation != invited.fingerprint:
        raise ConfigError(f"{path} follows another invitation than the one that {folder} accepted")
    if (folder / SITE_KIT).exists():
        raise ConfigError(f"{folder} has its kit already: this letter was taken before")
    if not (folder / _REQUEST / f"{told.name}.key").is_file():
        raise ConfigError(f"{path} is for '{told.name}', whose keys are not in {folder}")
    if told.name == COORDINATOR:
        return told, None
    if told.roster is None or told.public is None or told.box is None:
        raise ConfigError(f"{path} lacks the roster; ask its sender for it again")
    roster = SignedRoster(told.roster, told.signatures)
    cards = {
        name: Card(
            format=1,
            name=name,
            signing=member.signing,
            sealing=member.sealing,
            matching_key=member.matching_key,
        )
        for name, member in roster.members.items()
    }
    own = card_of(folder / KEYS, told.name)
    if cards.get(told.name) is None or cards[told.name].identity != own.identity:
        raise ConfigError(f"{path} lists other keys of '{told.name}' than its own; do not sign it")
    if cards.get(invitation.inviter.name, own).identity != invitation.inviter.identity:
        raise ConfigError(f"{path} lists other keys of '{invitation.inviter.name}' than it signed")
    if set(cards) != set(invitation.members) or (
        invitation.roster(cards).content != roster.content
    ):
        raise ConfigError(
            f"{path} proposes another roster than the invitation that was accepted; do not sign "
            f"it, and ask '{invitation.inviter.name}' what changed"
        )
    return told, roster


def sign(told: Founding, roster: SignedRoster | None, folder: Path) -> tuple[Kit, Path | None]:
    """Install the kit and the run secret, and sign; the kit, and the signed roster to send back."""
    back = None
    if roster is not None:
        signed = roster.signed_by(told.name, read_identity(folder / KEYS, told.name))
        _take_run_secret(told, folder / KEYS)
        back = folder.parent / f"{told.name}.signature.json"
        write_roster(folder / ROSTER, signed)
        write_roster(back, signed)
    with tempfile.TemporaryDirectory() as scratch:
        archive = Path(scratch) / f"{told.name}.zip"
        archive.write_bytes(told.kit)
        kit = install(archive, folder / _REQUEST, folder / SITE_KIT)
    # The kit has the key now.
    shutil.rmtree(folder / _REQUEST)
    return kit, back


def _take_run_secret(told: Founding, keys: Path) -> None:
    """Put the federation's public keys and the sealed secret where the site's keys are."""
    before = (keys / PUBLIC).read_bytes()
    write_private(keys / PUBLIC, (told.public or "").encode())
    try:
        write_private(box_file(keys, told.name, read_public(keys).run), bytes(told.box or b""))
        # Opens the box: whether its maker signed it, and for these members.
        load_keys(keys, told.name)
    except BaseException:
        write_private(keys / PUBLIC, before)
        raise
