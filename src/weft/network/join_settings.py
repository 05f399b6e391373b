"""A site's settings for joining, kept in its kit so that they are given only once."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, Protocol

import msgspec

from weft.errors import ConfigError
from weft.network.kits.kit import Kit, packed_json
from weft.network.member_data_and_keys import load_member
from weft.network.site_endpoint import Site
from weft.network.site_run import OpenedParty, PartyRequest, RunParty
from weft.privacy.agreement.roster_files import read_revocation, read_roster
from weft.privacy.agreement.roster_pins import RosterPins
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import Message, Phase
from weft.storage.files import StorageError, write_private

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

log = logging.getLogger("weft.site")

#: Name of the file in a kit's ``local``; it stays on the site.
_SETTINGS = "weft.json"


class JoinSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site's data, keys and policies, by full paths.

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
        The signed roster, and the terms of the site's owner.
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
    """Keep them in the kit, readable by its owner only."""
    path = settings_file(kit)
    write_private(path, packed_json(msgspec.to_builtins(settings)))


def read_settings(kit: Kit) -> JoinSettings | None:
    """The settings of the last join; None if there was none."""
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
def exclusive_use(kit: Kit) -> Iterator[None]:
    """Let one process at a time use a site's files; the lock ends with its process."""
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


def roster_pins(kit: Kit) -> RosterPins:
    """What the site of this kit remembers of rosters."""
    return RosterPins(kit.home / "rosters")


def keep_revocations(settings: JoinSettings, kit: Kit, paths: Sequence[Path]) -> list[Path]:
    """Check revocations by the roster of this site, and heed them from now on.

    Returns those of rosters that do not count here anyway, which are not kept.
    """
    if not paths:
        return []
    if settings.roster is None:
        raise ConfigError(
            "a revocation is checked by the roster that it withdraws, and this site has none; name "
            "it with --roster"
        )
    roster = read_roster(Path(settings.roster))
    pins = roster_pins(kit)
    return [path for path in paths if not pins.take(read_revocation(path), roster)]


def open_site(settings: JoinSettings, kit: Kit) -> Site:
    """Read everything the site needs; the site is then ready to answer.

    Raises
    ------
    WeftError
        Something is missing or wrong.
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
        pins=roster_pins(kit),
    )

    def open_party(request: PartyRequest) -> OpenedParty:
        party = member.open_party(request.plan, request.memory)
        return OpenedParty(ModelSavingParty(party, kit.home / "models" / request.run))

    most_runs = None if member.policy is None else member.policy.most_runs
    return Site(kit.home, open_party, most_runs=most_runs)


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


class SavedModel(Protocol):
    """A model that can be written to a file."""

    def save(self, path: Path) -> None: ...


class SavingParty(RunParty, Protocol):
    """A party of one run whose models are saved on its site.

    Attributes
    ----------
    saved_models
        Names of phases after which it has models: their attributes, and names of their files.
    """

    @property
    def saved_models(self) -> Mapping[str, tuple[tuple[str, str], ...]]: ...

    @property
    def replaying(self) -> Callable[[], AbstractContextManager[None]]: ...


class ModelSavingParty:
    """A party that saves the models it has, in a folder of this run alone.

    Names of runs may be anything, so that no file is named after one: ``x.received`` must not take
    the place of what run ``x`` has received.

    If the disk is full, the party is asked again and saves the models then. A party that is rebuilt
    has saved them before, so a full disk does not stop it.
    """

    def __init__(self, party: SavingParty, folder: Path) -> None:
        self._party, self._folder = party, folder
        self.replaying = party.replaying
        self.close = party.close

    @property
    def exposure(self) -> str:
        """What the run has exposed, in one line; empty: this kind of party does not say."""
        return str(getattr(self._party, "exposure", ""))

    def on(self, phase: Phase[Any, Any], message: Message) -> Message:
        reply = self._party.on(phase, message)
        for name, file in self._party.saved_models.get(phase.name, ()):
            model: SavedModel | None = getattr(self._party, name)
            if model is not None:
                self._keep(model, self._folder / file)
        return reply

    def _keep(self, model: SavedModel, path: Path) -> None:
        try:
            with _writing(path):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                model.save(path)
        except StorageError as error:
            if not path.exists():
                raise
            log.warning("the model in %s is the one from before (%s)", path, error)
        else:
            log.info("the model is in %s", path)
