"""The coordinator's settings for serving, kept in its kit so that they are given only once."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import msgspec

from weft.errors import ConfigError
from weft.network.event_lines import LogStyle
from weft.network.kits.kit_folder import Kit, packed_json
from weft.network.run_queue import QueueLimits
from weft.storage.atomic_files import write_private
from weft.thread_safe_decoding import prepared

#: Name of the file in a kit's ``local``, as for a site; it stays at the coordinator.
_SETTINGS = "weft.json"


class ServeSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the operator of a coordinator has chosen.

    Attributes
    ----------
    record
        Whether the messages of every run are kept in its folder, for audits.
    denied
        Parties that no run takes, though their certificates are still valid.
    queue
        How many runs there may be at once, and of one submitter.
    log
        How events are shown on the terminal.
    metrics
        File for metrics, by its full path; empty: none. Not kept: every start names it.
    """

    record: bool = False
    denied: tuple[str, ...] = ()
    queue: QueueLimits = QueueLimits()
    log: LogStyle = "text"
    metrics: str = ""

    def check_parties(self, parties: Iterable[str]) -> None:
        """Refuse a run with a party that is denied."""
        found = [party for party in parties if party in self.denied]
        if found:
            raise ConfigError(
                f"the coordinator takes {', '.join(found)} into no run any more; name the others "
                "in the config, each in a [[party]] of its own"
            )


def write_serve_settings(kit: Kit, settings: ServeSettings) -> None:
    """Keep them in the kit, readable by its owner only."""
    write_private(_file(kit), packed_json(msgspec.to_builtins(settings)))


def read_serve_settings(kit: Kit) -> ServeSettings:
    """The settings of the last time; the defaults where none were given yet."""
    path = _file(kit)
    try:
        return msgspec.json.decode(path.read_bytes(), type=prepared(ServeSettings))
    except FileNotFoundError:
        return ServeSettings()
    except (OSError, msgspec.MsgspecError) as error:
        raise ConfigError(
            f"{path} cannot be read ({error}); delete it, and start weft serve with --record or "
            "--no-record, and --deny for every party that was denied"
        ) from None


def read_log_style(kit: Kit) -> LogStyle:
    """How events are shown; as text where that cannot be read, which must be logged itself."""
    try:
        return read_serve_settings(kit).log
    except ConfigError:
        return "text"


def _file(kit: Kit) -> Path:
    return kit.local / _SETTINGS
