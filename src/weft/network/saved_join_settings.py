"""A site's settings for joining, kept in its kit so that they are given only once."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from time import monotonic, sleep
from typing import TYPE_CHECKING

import msgspec

from weft.errors import ConfigError
from weft.network.event_lines import LogStyle
from weft.network.kits.kit_folder import Kit, packed_json
from weft.storage.atomic_files import StorageError, write_private
from weft.thread_safe_decoding import prepared

if TYPE_CHECKING:
    # A site that waits for runs loads nothing that only a run needs.
    from weft.privacy.agreement.newest_seen_rosters import RosterPins

try:
    import fcntl
except ImportError:  # pragma: no cover - Windows has none.
    fcntl = None  # type: ignore[assignment]

#: Name of the file in a kit's ``local``; it stays on the site.
_SETTINGS = "weft.json"
#: Seconds that the processes of one that was killed get to end, and between two looks.
_ENDING, _LOOK = 10.0, 0.05


class JoinSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A site's data, keys and policies, by full paths.

    Attributes
    ----------
    party
        Its name among the parties.
    data
        Its tables: files, or addresses of databases, which hold no credentials.
    id, label
        Columns of sample ids and of labels, if it has any.
    keys
        Folder that ``weft keys`` made.
    roster, policy
        The signed roster, and the terms of the site's owner.
    reading
        A file that says how the tables are to be read.
    new
        Tables of new samples, for joint predictions.
    log
        How events are shown on the terminal.
    """

    party: str
    data: list[str]
    id: str
    label: str | None = None
    keys: str
    roster: str | None = None
    policy: str | None = None
    reading: str | None = None
    new: list[str] = []
    log: LogStyle = "text"


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
        return msgspec.json.decode(path.read_bytes(), type=prepared(JoinSettings))
    except FileNotFoundError:
        return None
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); delete it, and name data, id and keys again"
        ) from None


@contextmanager
def exclusive_use(kit: Kit) -> Iterator[None]:
    """Let one process at a time use a site's files; the lock ends with it and what it forked."""
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
        until = monotonic() + _ENDING
        while not _lock(handle):
            if monotonic() > until:
                raise ConfigError(
                    f"weft join runs with {kit.path} already; end that one first (Ctrl-C, or "
                    "SIGTERM)"
                )
            sleep(_LOOK)
        yield
    finally:
        os.close(handle)


def _lock(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def roster_pins(kit: Kit) -> RosterPins:
    """What the site of this kit remembers of rosters."""
    from weft.privacy.agreement.newest_seen_rosters import RosterPins

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
    from weft.privacy.agreement.cards_and_roster_drafts import read_revocation, read_roster

    roster = read_roster(Path(settings.roster))
    pins = roster_pins(kit)
    return [path for path in paths if not pins.take(read_revocation(path), roster)]


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Say what to do where a file cannot be written."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"{path} cannot be written ({error.strerror or error}); check the folder's permissions "
            "and free space"
        ) from None
