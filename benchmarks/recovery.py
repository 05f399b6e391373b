"""How long a site and a coordinator take to be back, and what is on their disks, as a run goes on.

Two parties and a coordinator train with HyFDCA on a tiny table, each with its journal in a folder;
letters go through memory, and nothing is written through to the disk, so that the run itself takes
minutes. After 1,000, 10,000 and 100,000 exchanges all of them are stopped, as a kill would, and
measured, in seconds of the processor and in a process that has everything loaded:

``site``         from opening its folder to its answer to the last letter once more;
``coordinator``  from opening its journal to the first letter of the resumed run, which then goes on
                 from there;
``disk``         bytes in the folder of each.

They are held against the same without snapshots, after 1,000 and 3,000 exchanges. Bars are for any
point of the run: seconds do not grow with it.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from unittest.mock import patch

import numpy as np

from harness import Report
from weft.crypto.keys import ephemeral_keys
from weft.data.tile import Tile
from weft.federation.coordinator import coordinate
from weft.federation.party import Party
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.network import coordinator_snapshots, site_snapshots
from weft.network.envelope_bytes import Work, decode_envelope
from weft.network.network_channel import NetworkChannel
from weft.network.party_interface import OpenedParty, PartyRequest
from weft.network.site_answers_envelopes import Site
from weft.protocol import Failure
from weft.solvers.run_settings import Settings
from weft.storage.journal import Journal

RUN, SECRET = "recovery", bytes(range(16))
#: After how many exchanges everything is stopped; with replay alone; in a smoke run.
POINTS, REPLAYED, SMOKE = (1_000, 10_000, 100_000), (1_000, 3_000), (100, 200)
#: Seconds to be back, at most, after any number of exchanges.
BAR = 5.0
SETTINGS = Settings(
    solver="hyfdca", loss="logistic", lam=0.1, gap=None, iterations=10**9, certify_every=100
)
HOW = Preprocessing(intercept=True, confirmed=ONE_TABLE)


class StoppedHere(BaseException):
    """Everybody is killed."""


@dataclass(frozen=True)
class Back:
    """What was measured at one point."""

    site: float
    coordinator: float
    site_bytes: int
    coordinator_bytes: int


class Sites:
    """The sites of two parties, and the post, which stops before an exchange."""

    def __init__(self, folder: Path) -> None:
        rng = np.random.default_rng(6)
        cells, ids = rng.normal(size=(24, 4)), [f"n{row:02}" for row in range(24)]
        labels = (cells.sum(axis=1) > 0).astype(int)
        self._tiles = {
            "north": (Tile.make(ids, ["a", "b"], cells[:, :2], labels),),
            "south": (Tile.make(ids, ["c", "d"], cells[:, 2:]),),
        }
        self.folder, self._keys = folder, ephemeral_keys(tuple(self._tiles))
        self._sites: dict[str, Site] = {}
        self._last: dict[str, bytes] = {}
        self.stops_before = 0
        #: When the first letter of a resumed run was sent; None: not yet.
        self.first: float | None = None
        self.open()

    def open(self) -> None:
        self._sites = {name: self._site(name) for name in self._tiles}

    def _site(self, name: str) -> Site:
        def open_party(request: PartyRequest) -> OpenedParty:
            keys = self._keys[name]
            return OpenedParty(
                Party(name, self._tiles[name], keys=keys, terms=OPEN, memory=request.memory)
            )

        return Site(self.folder / name, open_party)

    def close(self) -> None:
        for site in self._sites.values():
            site.close()

    def back(self, name: str) -> float:
        """Seconds of a site from opening its folder to answering the last letter again."""
        began = time.process_time()
        site = self._sites[name] = self._site(name)
        site.answer(self._last[name])
        return time.process_time() - began

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self._tiles)

    @property
    def unanswered(self) -> tuple[str, ...]:
        return ()

    def send(self, envelopes: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        for envelope in envelopes.values():
            content = decode_envelope(envelope)
            if isinstance(content, Work):
                self.first = self.first or time.process_time()
                if content.number >= self.stops_before:
                    raise StoppedHere
        self._last.update(envelopes)
        return {party: self._sites[party].answer(letter) for party, letter in envelopes.items()}


def train_until(sites: Sites, journal: Path, exchanges: int) -> float:
    """Go on with the run, from its journal if there is one; seconds to its first letter."""
    sites.stops_before, sites.first = exchanges, None
    began = time.process_time()
    kept = Journal(journal)
    channel = NetworkChannel(sites, RUN, kept, secret=SECRET)
    try:
        channel.hello({"about": "recovery"})
        coordinate(channel, HOW, SETTINGS, run=SECRET)
    except StoppedHere:
        pass
    finally:
        channel.close()
        kept.close()
    assert sites.first is not None
    return sites.first - began


def measured(folder: Path, points: Sequence[int]) -> Iterator[tuple[int, Back]]:
    """One run, stopped at each point."""
    sites, journal = Sites(folder), folder / "coordinator" / "journal.weft"
    for point in points:
        train_until(sites, journal, point)
        sites.close()
        back = max(sites.back(name) for name in sites.parties)
        # Nothing new is sent: it stops at once.
        coordinator = train_until(sites, journal, point)
        yield point, Back(back, coordinator, size(folder / "north"), size(journal.parent))
    sites.close()


def size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


@contextmanager
def replay_alone() -> Iterator[None]:
    with (
        patch.object(site_snapshots, "_ENVELOPES", 10**12),
        patch.object(site_snapshots, "_SECONDS", 1e12),
        patch.object(coordinator_snapshots, "_EXCHANGES", 10**12),
    ):
        yield


@contextmanager
def soon() -> Iterator[None]:
    """Snapshots in a run of a hundred exchanges."""
    with (
        patch.object(site_snapshots, "_ENVELOPES", 20),
        patch.object(coordinator_snapshots, "_EXCHANGES", 20),
    ):
        yield


@contextmanager
def unsynced() -> Iterator[None]:
    with (
        patch.object(os, "fdatasync", lambda file: None),
        patch.object(os, "fsync", lambda f: None),
    ):
        yield


def main(arguments: Sequence[str] | None = None) -> None:
    report = Report("Back after a kill", "replay alone", arguments)
    points, replayed = (SMOKE, SMOKE[:1]) if report.smoke else (POINTS, REPLAYED)
    anchors: dict[int, Back] = {}
    with ExitStack() as stack:
        stack.enter_context(unsynced())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        with replay_alone():
            anchors.update(measured(folder / "replayed", replayed))
        if report.smoke:
            stack.enter_context(soon())
        for point, back in anchors.items():
            told = f"by replay alone, after {point:,} exchanges"
            report.add(f"site back {told}", back.site, "s")
            report.add(f"coordinator back {told}", back.coordinator, "s")
        for point, back in measured(folder / "saved", points):
            other = anchors.get(point)
            told = f"after {point:,} exchanges"
            rows = (
                ("site back", back.site, "s", BAR, None if other is None else other.site),
                ("coordinator back", back.coordinator, "s", BAR,
                 None if other is None else other.coordinator),
                ("site's disk", back.site_bytes / 1e6, "MB", None,
                 None if other is None else other.site_bytes / 1e6),
                ("coordinator's disk", back.coordinator_bytes / 1e6, "MB", None,
                 None if other is None else other.coordinator_bytes / 1e6),
            )  # fmt: skip
            for name, value, unit, bar, anchor in rows:
                report.add(f"{name} {told}", value, unit, anchor=anchor, bar=bar)
    report.close()


if __name__ == "__main__":
    main()
