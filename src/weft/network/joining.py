"""What a site brings along when it joins, kept in its kit so that it need be named once only."""

from __future__ import annotations

import logging
from pathlib import Path

import msgspec

from weft.channels import Message
from weft.errors import ConfigError
from weft.ledger.account import Ledger
from weft.network.kits.reading import Kit, packed_json
from weft.network.member import load_member
from weft.network.memory import FileMemory
from weft.network.site import Opened, Opening, Site
from weft.party import Party
from weft.storage import replacing

log = logging.getLogger("weft.site")

#: Name of the file in a kit's ``local``; it stays on the site.
_SETTINGS = "weft.json"


class JoinSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Where a site's own things lie, by full paths.

    Attributes
    ----------
    party
        Its name among the parties.
    data
        Its tables.
    id, label
        Columns of sample ids and of labels, if it has any.
    keys
        Folder that ``weft keys`` made.
    roster, policy
        What all signed, and what the site's owner insists on.
    """

    party: str
    data: list[str]
    id: str
    label: str | None = None
    keys: str
    roster: str | None = None
    policy: str | None = None


def settings_file(kit: Kit) -> Path:
    return kit.local / _SETTINGS


def write_settings(kit: Kit, settings: JoinSettings) -> None:
    """Keep them in the kit, for its owner's eyes."""
    path = settings_file(kit)
    with replacing(path) as draft:
        draft.touch(mode=0o600)
        draft.write_bytes(packed_json(msgspec.to_builtins(settings)))


def read_settings(kit: Kit) -> JoinSettings | None:
    """What was kept when this site joined last; None: it never did."""
    path = settings_file(kit)
    try:
        return msgspec.json.decode(path.read_bytes(), type=JoinSettings)
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); delete it, and name data, id and keys again"
        ) from None


def open_site(settings: JoinSettings, kit: Kit) -> Site:
    """Read everything that the site needs, and be ready to answer.

    Raises
    ------
    WeftError
        One sentence about what is missing or wrong.
    """
    member = load_member(
        settings.party,
        [Path(name) for name in settings.data],
        id_column=settings.id,
        label=settings.label,
        keys=Path(settings.keys),
        ledger=Ledger(kit.home / "ledger", kit.federation),
        roster=_path(settings.roster),
        policy=_path(settings.policy),
    )

    def open_run(opening: Opening) -> Opened:
        party = member.open_party(opening.plan, FileMemory(opening.folder / "memory"))
        return Opened(_Keeping(party, kit.home / "models" / f"{opening.run}.npz"))

    most_runs = None if member.policy is None else member.policy.most_runs
    return Site(kit.home, open_run, most_runs=most_runs)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


class _Keeping:
    """A party that keeps the model on its site, where it gets one."""

    def __init__(self, party: Party, path: Path) -> None:
        self._party, self._path = party, path
        self.replaying = party.replaying
        self.close = party.close

    def on(self, phase: str, message: Message) -> Message:
        reply = self._party.on(phase, message)
        if phase == "release.model" and self._party.model is not None:
            self._path.parent.mkdir(mode=0o700, exist_ok=True)
            self._party.model.save(self._path)
            log.info("the model is in %s", self._path)
        return reply
