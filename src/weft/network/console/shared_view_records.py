"""A federation as it stands, for people: what every kit's owner may see of it.

Nothing in it is about single samples or columns, and there is no path of a machine.
"""

from __future__ import annotations

from typing import Literal, Protocol

import msgspec

from weft.network.current_wait import Wait
from weft.network.kits.nvflare_settings_of_kit import Kind
from weft.network.nvflare_processes.kit_health import Symptom
from weft.network.run_progress_file import GapPoint

#: ``silent``: it has a connection, but sends no heartbeats; ``away``: it has no connection.
SiteState = Literal["connected", "silent", "gone", "away", "unknown"]


class SiteRow(msgspec.Struct, frozen=True, kw_only=True):
    """A site.

    Attributes
    ----------
    since
        When its state began; 0: that is not known here.
    seen
        Its last heartbeat; 0: not known.
    version
        Of its Weft; empty: not known.
    denied
        Whether the coordinator takes it into no run any more.
    """

    name: str
    state: SiteState
    since: float = 0.0
    seen: float = 0.0
    version: str = ""
    denied: bool = False


class RunRow(msgspec.Struct, frozen=True, kw_only=True):
    """A run.

    Attributes
    ----------
    sentence
        Why it failed or stands still.
    place
        In the queue, from 1 on; None: it does not wait there.
    progress
        Where it stands, in one line.
    versions
        Of Weft: the coordinator's and the parties'.
    wait
        For whom it waits now.
    parties, away
        All who take part, and why some do not answer.
    curve, asked
        Certified gaps over time, and the one that was asked for.
    exposed, reached
        A sentence on what it has shown, once it is over, and whether somebody can work out what it
        should not know.
    """

    run: str
    state: str
    sentence: str = ""
    submitted: str = ""
    submitter: str = ""
    place: int | None = None
    progress: str = ""
    versions: dict[str, str] = {}
    wait: Wait | None = None
    parties: list[str] = []
    away: dict[str, str] = {}
    curve: list[GapPoint] = []
    asked: float | None = None
    exposed: str = ""
    reached: bool | None = None


class ExposureRow(msgspec.Struct, frozen=True, kw_only=True):
    """What a party has spent.

    Attributes
    ----------
    runs, reached
        Runs that are counted, and those in which it showed another party as many sums about samples
        as that one lacks columns.
    epsilon, delta
        Of released models with noise, added up.
    rho, share
        Of feature sums with noise, and of the sums about a sample that make its columns known; None
        where only the party's own ledger knows.
    """

    party: str
    runs: int
    reached: int | None = None
    epsilon: float = 0.0
    delta: float = 0.0
    rho: float | None = None
    share: float | None = None


class FederationView(msgspec.Struct, frozen=True, kw_only=True):
    """All of it at one moment.

    Attributes
    ----------
    kind, owner
        Of the kit that it was seen with.
    now
        When, by the clock of this machine.
    state, sentence
        How the process or the connection of the kit is.
    symptoms
        What is found of the kit and its machine.
    exposure, exposure_from
        What parties have spent, and where that is known from.
    """

    kind: Kind
    owner: str
    federation: str
    weft: str
    now: float
    state: Literal["good", "bad"]
    sentence: str
    symptoms: list[Symptom] = []
    sites: list[SiteRow] = []
    runs: list[RunRow] = []
    exposure: list[ExposureRow] = []
    exposure_from: str = ""


class Viewpoint(Protocol):
    """From where a federation is looked at."""

    def look(self) -> FederationView:
        """How it stands now.

        Raises
        ------
        WeftError
            It cannot be seen; a sentence says why.
        """

    def close(self) -> None:
        """Nobody looks any more."""


#: States of runs that are not over.
UNDER_WAY = ("starting", "running", "interrupted", "waiting")


def newest_first(runs: list[RunRow]) -> list[RunRow]:
    """Runs that go on, then the queue, then those that are over; each as it was given."""

    def rank(row: RunRow) -> tuple[int, int]:
        if row.state in ("starting", "running", "interrupted"):
            return 0, 0
        return (1, row.place) if row.place is not None else (2, 0)

    return sorted(runs, key=rank)


def parties_elsewhere(sites: list[SiteRow], runs: list[RunRow], state: SiteState) -> list[SiteRow]:
    """Parties of runs that are not among the sites."""
    known = {site.name for site in sites}
    named = {party for row in runs for party in row.parties}
    return [SiteRow(name=name, state=state) for name in sorted(named - known)]
