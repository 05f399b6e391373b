"""A check of a study as a kind of run: sites are matched and tell counts, nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.network.job_kind_interface import FinishedRun, OnIteration, RunKind, WrittenBy
from weft.network.linear_job import check_consent, open_party, told_of_config
from weft.network.record_and_replay_absences import Presence
from weft.network.run_results import PRESENCE, undamaged
from weft.network.submitted_task import CheckTask
from weft.protocol import Channel

if TYPE_CHECKING:
    from weft.config.read_config import Config
    from weft.crypto.randomness_kept_for_restart import Memory
    from weft.federation.study_check_coordinator import StudyCheck
    from weft.federation.study_check_party import CheckParty
    from weft.network.site_data_keys_and_consent import SiteMember
    from weft.privacy.agreement import Consent

_FOUND = "check.json"


class CheckJob(RunKind[CheckTask]):
    """Says who holds what and what a run would show; the submitter gets counts alone."""

    task = CheckTask
    about = "a check"
    beginning = "matching samples"
    result_files = (_FOUND, PRESENCE)

    def coordinate(
        self, task: CheckTask, channel: Channel, run: bytes, tell: OnIteration
    ) -> FinishedRun:
        from weft.federation.study_check_coordinator import check_study

        found = check_study(channel, task.preprocessing, task.settings, run, task.name)
        return WrittenBy(found, [], task, _write)

    def check_consent(self, task: CheckTask, consent: Consent) -> None:
        check_consent(task, consent)

    def open_party(
        self, task: CheckTask, member: SiteMember, consent: Consent, memory: Memory
    ) -> CheckParty:
        from weft.data.tile import TWO_CLASSES
        from weft.federation.study_check_party import CheckParty

        tiles, notes = member.training_tiles(task)
        if member.policy is not None and not member.policy.tell_columns:
            # They name columns.
            notes = []
        return open_party(
            CheckParty,
            tiles,
            task,
            member,
            consent,
            memory,
            earlier=member.ledger,
            notes=notes,
            listed=() if task.positive is None else TWO_CLASSES,
        )


def make_check(config: Config, parties: tuple[str, ...]) -> CheckTask:
    """The task of a check of the run that a config describes."""
    return CheckTask(**told_of_config(config), parties=parties)


def read_check(returned: Path) -> dict[str, Any]:
    """What a check found, as plain values."""
    with undamaged():
        found: dict[str, Any] = json.loads((returned / _FOUND).read_text("utf-8"))
    return found


def _write(folder: Path, found: StudyCheck, task: CheckTask, presence: Presence) -> None:
    (folder / _FOUND).write_text(json.dumps(found.to_dict()), encoding="utf-8")
    presence.save(folder / PRESENCE)
