"""A sign of life of ``weft serve`` and ``weft join``, for other commands of the kit's owner.

Whoever asks whether a process is well must not need it to answer: one that hangs would keep the
asker waiting, and one that is gone says nothing. The process writes a small file again and again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from weft.errors import WeftError
from weft.network.kits.nvflare_settings_of_kit import GONE, Kind
from weft.storage.atomic_files import write_private
from weft.thread_safe_decoding import prepared

#: Name of the file in a kit's folder of what Weft keeps.
_PULSE = "pulse.json"
#: Seconds between two signs of life, and after which a process that gave none does not live.
BEAT, SILENT = 2.0, 15.0


class SeenSite(msgspec.Struct, frozen=True, kw_only=True):
    """What a coordinator knows of a site's connection; times by the clock of its machine.

    Attributes
    ----------
    since
        When it came; of one that is gone, when it went.
    seen
        Its last heartbeat.
    there
        Whether it has a connection. A machine that hangs keeps it, and sends no heartbeats.
    version
        Of its Weft, as it says; empty: it has not said.
    """

    since: float
    seen: float
    there: bool = True
    version: str = ""

    def state(self, now: float) -> Literal["connected", "silent", "gone"]:
        """``connected``, ``silent`` (no heartbeats for long) or ``gone``."""
        if not self.there:
            return "gone"
        return "silent" if now - self.seen > GONE else "connected"


class Pulse(msgspec.Struct, frozen=True, kw_only=True):
    """One sign of life.

    Attributes
    ----------
    kind
        Of the kit.
    weft
        Version of Weft.
    began, beat
        When the process began, and when it wrote this.
    ready
        Whether it serves, or has been connected.
    seen
        At a site: the coordinator's last answer to a heartbeat; 0: none yet.
    sites
        At a coordinator: all sites that were connected since it began, by their names.
    """

    kind: Kind
    weft: str
    began: float
    beat: float
    ready: bool = False
    seen: float = 0.0
    sites: dict[str, SeenSite] = {}

    def alive(self, now: float) -> bool:
        """Whether the process that wrote this lives."""
        return now - self.beat <= SILENT

    def connected(self) -> list[str]:
        """Names of the sites whose heartbeats come."""
        return connected_sites(self.sites, self.beat)

    @property
    def well(self) -> bool:
        """Whether it did its work when it wrote this; a site cannot without a coordinator."""
        return self.ready and (self.kind == "coordinator" or self.beat - self.seen <= GONE)

    @property
    def sentence(self) -> str:
        """How the process was when it wrote this, in a clause."""
        if not self.ready:
            return "starting" if self.kind == "coordinator" else "not connected yet"
        if self.kind == "coordinator":
            names = self.connected()
            return f"serving, {len(names)} connected" + (f": {', '.join(names)}" if names else "")
        if self.well:
            return "connected"
        return f"the coordinator has been silent for {self.beat - self.seen:.0f} s"


def connected_sites(sites: Mapping[str, SeenSite], now: float) -> list[str]:
    """Those whose heartbeats come."""
    return sorted(name for name, site in sites.items() if site.state(now) == "connected")


def write_pulse(home: Path, pulse: Pulse) -> None:
    """Give a sign of life; a full disk is no reason to end a process."""
    with suppress(OSError, WeftError):
        write_private(home / _PULSE, msgspec.json.encode(pulse))


def end_pulse(home: Path) -> None:
    """The process ends in order."""
    with suppress(OSError):
        (home / _PULSE).unlink(missing_ok=True)


def read_pulse(home: Path) -> Pulse | None:
    """The last sign of life; None: there was none, or its process ended in order."""
    try:
        return msgspec.json.decode((home / _PULSE).read_bytes(), type=prepared(Pulse))
    except (OSError, msgspec.MsgspecError):
        return None


def living_pulse(home: Path) -> Pulse | None:
    """The last sign of life of a process that lives now."""
    found = read_pulse(home)
    return found if found is not None and found.alive(time.time()) else None
