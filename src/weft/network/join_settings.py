"""What a site brings along when it joins, kept in its kit so that it need be named once only."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from weft.errors import ConfigError
from weft.federation.messages import TAKE_MODEL
from weft.federation.model import Model
from weft.federation.party import Party
from weft.network.kits.open_kit import Kit, packed_json
from weft.network.site import Opened, Opening, Site
from weft.network.site_member import load_member
from weft.neural.messages import FINISH
from weft.privacy.ledger.account import Ledger
from weft.protocol import Message, Phase
from weft.storage.files import StorageError, write_private

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from weft.neural.model import NeuralModel
    from weft.neural.party import NeuralParty

log = logging.getLogger("weft.site")

#: After which phases a party has which models, and how the files end that keep them.
_KEPT = {
    TAKE_MODEL.name: (("model", ".npz"),),
    FINISH.name: (("own", ".npz"), ("received", ".received.npz")),
}
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
    write_private(path, packed_json(msgspec.to_builtins(settings)))


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


@contextmanager
def sole_use(kit: Kit) -> Iterator[None]:
    """Let one process at a time work with what a site keeps; the lock goes with its process."""
    if fcntl is None:  # pragma: no cover - Windows has none.
        yield
        return
    path = kit.home / ".site.lock"
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(
            f"{path} cannot be opened ({error.strerror or error}); check its owner and permissions"
        ) from None
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise ConfigError(
            f"weft join runs with {kit.path} already; end that one first (Ctrl-C, or SIGTERM)"
        ) from None
    finally:
        os.close(handle)


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
        party = member.open_party(opening.plan, opening.memory)
        return Opened(_Keeping(party, kit.home / "models" / f"{opening.run}.npz"))

    most_runs = None if member.policy is None else member.policy.most_runs
    return Site(kit.home, open_run, most_runs=most_runs)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)


@contextmanager
def _writing(path: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}); check the folder's permissions "
            "and free space"
        ) from None


class _Keeping:
    """A party that keeps the model on its site, where it gets one.

    Of a neural run it keeps its own network too, and its copy of the server's beside it.

    Where the disk is full, the party is asked once more, and keeps the models then. One that is
    brought back has kept them before: then a full disk is no obstacle.
    """

    def __init__(self, party: Party | NeuralParty, path: Path) -> None:
        self._party, self._path = party, path
        self.replaying = party.replaying
        self.close = party.close

    def on(self, phase: Phase[Any, Any], message: Message) -> Message:
        reply = self._party.on(phase, message)
        for name, suffix in _KEPT.get(phase.name, ()):
            model: Model | NeuralModel | None = getattr(self._party, name)
            if model is not None:
                self._keep(model, self._path.with_suffix(suffix))
        return reply

    def _keep(self, model: Model | NeuralModel, path: Path) -> None:
        try:
            with _writing(path):
                path.parent.mkdir(mode=0o700, exist_ok=True)
                model.save(path)
        except StorageError as error:
            if not path.exists():
                raise
            log.warning("the model in %s is the one from before (%s)", path, error)
        else:
            log.info("the model is in %s", path)
