"""A kind of job: what its tasks say, and what site, coordinator and submitter do with them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from weft.network.network_channel import SETUP_PHASES
from weft.network.record_and_replay_absences import Presence
from weft.network.run_progress import IterationRecord
from weft.network.submitted_task import Task
from weft.protocol import Channel

if TYPE_CHECKING:
    # The coordinator must load neither tables nor secrets.
    from rich.table import Table

    from weft.config.base_config_of_all_jobs import FederationConfig
    from weft.crypto.party_key_pairs import PublicIdentity
    from weft.crypto.randomness_kept_for_restart import Memory
    from weft.network.model_saving_party import SavingParty
    from weft.network.site_data_keys_and_consent import SiteMember
    from weft.privacy.agreement import Consent

OnIteration = Callable[[IterationRecord], None]
T = TypeVar("T", bound=Task)
C = TypeVar("C", bound="FederationConfig")


class FinishedRun(Protocol):
    """A run that has ended, with its results."""

    @property
    def notes(self) -> list[str]:
        """Sentences about it; more may be appended."""

    def write(self, folder: Path, presence: Presence) -> None:
        """Write everything the coordinator knows of it into an existing folder."""


class RunKind(ABC, Generic[T]):
    """How one kind of task is run by coordinator and sites; methods import what they need.

    Attributes
    ----------
    task
        The type of its tasks; the tag is the name of the kind.
    about
        What its runs are about, for sentences.
    beginning
        What is done before the first iteration, for the line that follows a run.
    result_files
        Every file that may leave the coordinator.
    setup_phases
        What the phases that work on whole tables begin with: they get the long timeout.
    allowed_by
        A term that allows this kind, as ``allow_networks`` does; without one, ``kinds`` of a site's
        roster and policy must name it.
    exact_bytes
        Whether a submitter may know exact counts of bytes. They are sums of sizes of the parties'
        tables in runs that match samples.
    """

    task: type[T]
    about: str
    beginning: str
    result_files: tuple[str, ...]
    setup_phases: tuple[str, ...] = SETUP_PHASES
    allowed_by: str = ""
    exact_bytes: bool = False

    @property
    def name(self) -> str:
        return str(self.task.__struct_config__.tag)

    def progress_text(self, record: dict[str, Any]) -> str:
        """Where a run stands, from the fields of its last record; here: no run has iterations."""
        return self.about

    # ── coordinator ───────────────────────────────────────────────────────────────────────

    @abstractmethod
    def coordinate(self, task: T, channel: Channel, run: bytes, tell: OnIteration) -> FinishedRun:
        """Run it to its end.

        Parameters
        ----------
        run
            Sixteen random bytes that name the run, the same after every restart.
        tell
            Called after every iteration.
        """

    # ── site ──────────────────────────────────────────────────────────────────────────────

    @abstractmethod
    def check_consent(self, task: T, consent: Consent) -> None:
        """Refuse a task that goes beyond what the site agreed to; nothing is opened before."""

    def check_author(self, task: T, run: str, identities: Mapping[str, PublicIdentity]) -> None:
        """Refuse a task that must come from a party and does not; here: anybody may hand one in.

        ``identities`` are the parties' public keys, as the site knows them.
        """

    @abstractmethod
    def open_party(
        self, task: T, member: SiteMember, consent: Consent, memory: Memory
    ) -> SavingParty:
        """Make a site's party of a run, or refuse with a reason."""


class JobKind(RunKind[T], Generic[T, C]):
    """A kind of run that a config asks for, and whose results make a folder.

    Attributes
    ----------
    about, command
        What its configs describe, and what trains it in one process, for sentences.
    """

    command: str

    @abstractmethod
    def progress_text(self, record: dict[str, Any]) -> str:
        """Where a run stands, from the fields of its last record."""

    @abstractmethod
    def read_config(self, path: Path, *, deployed: bool = False) -> C:
        """Read and check a config; ``deployed``: its parties are on sites of their own."""

    @abstractmethod
    def make_task(self, config: C, parties: tuple[str, ...]) -> T:
        """The task of a config, for these parties."""

    @abstractmethod
    def write_results(
        self,
        draft: Path,
        returned: Path,
        config: C,
        *,
        keys: Path | None,
        party: str | None,
        command: str,
    ) -> tuple[dict[str, Any], list[str]]:
        """Fill a new results folder from the coordinator's files.

        Parameters
        ----------
        keys, party
            Whose keys open a sealed model; None leaves it out.
        command
            The command line that asked for the run.

        Returns
        -------
        summary, remarks
            The summary as plain values, and sentences about what could not be written.
        """

    def shortcomings(self, summary: dict[str, Any]) -> list[str]:
        """What a run that is over was asked for and did not reach, a sentence each."""
        return []

    @abstractmethod
    def ending_text(
        self, folder: Path, summary: dict[str, Any], remarks: list[str]
    ) -> list[str | Table]:
        """How a run ended, and what its results folder holds."""


class WrittenBy:
    """A finished run whose results a function writes."""

    def __init__(
        self,
        outcome: Any,
        notes: list[str],
        task: Task,
        write: Callable[[Path, Any, Any, Presence], None],
    ) -> None:
        self._outcome, self._task, self._write = outcome, task, write
        self.notes = notes

    def write(self, folder: Path, presence: Presence) -> None:
        self._write(folder, self._outcome, self._task, presence)
