"""A description as a kind of run: sites add up sums over their columns, nothing is trained."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.network.job_kind_interface import FinishedRun, OnIteration, RunKind, WrittenBy
from weft.network.linear_job import check_consent, open_party, told_of_config
from weft.network.record_and_replay_absences import Presence
from weft.network.run_results import PRESENCE, undamaged
from weft.network.submitted_task import DescribeTask, LinearTask
from weft.protocol import Channel

if TYPE_CHECKING:
    from weft.config.read_config import Config
    from weft.crypto.randomness_kept_for_restart import Memory
    from weft.federation.descriptive_statistics_coordinator import Description
    from weft.federation.descriptive_statistics_party import DescribeParty
    from weft.network.site_data_keys_and_consent import SiteMember
    from weft.privacy.agreement import Consent

_FOUND = "description.json"


class DescribeJob(RunKind[DescribeTask]):
    """Tells counts, means and distributions of columns; the submitter reads all of it."""

    task = DescribeTask
    about = "a description"
    beginning = "matching samples"
    result_files = (_FOUND, PRESENCE)

    def coordinate(
        self, task: DescribeTask, channel: Channel, run: bytes, tell: OnIteration
    ) -> FinishedRun:
        from weft.federation.descriptive_statistics_coordinator import describe_study

        found = describe_study(channel, task.preprocessing, task.settings, run, task.name)
        return WrittenBy(found, [], task, _write)

    def check_consent(self, task: DescribeTask, consent: Consent) -> None:
        check_consent(task, consent)

    def open_party(
        self, task: DescribeTask, member: SiteMember, consent: Consent, memory: Memory
    ) -> DescribeParty:
        from weft.federation.descriptive_statistics_party import DescribeParty

        tiles, _ = member.training_tiles(task)
        tells = member.policy is None or member.policy.tell_columns
        return open_party(
            DescribeParty,
            tiles,
            task,
            member,
            consent,
            memory,
            ledger=member.ledger,
            tells_names=tells,
        )


def make_description(config: Config, parties: tuple[str, ...]) -> DescribeTask:
    """The task of a description of what the run of a config would train on."""
    from weft.federation.descriptive_statistics_coordinator import described_as

    told = told_of_config(config)
    return DescribeTask(
        **{**told, "preprocessing": described_as(told["preprocessing"])}, parties=parties
    )


def make_correlation_run(config: Config, parties: tuple[str, ...]) -> LinearTask:
    """The task of a sealed run whose readers get the correlations of what a config describes."""
    from weft.federation.derive_correlation_run import correlation_run

    told = told_of_config(config)
    how, asked = correlation_run(told["preprocessing"], told["settings"])
    return LinearTask(**{**told, "preprocessing": how, "settings": asked}, parties=parties)


def read_description(returned: Path) -> dict[str, Any]:
    """What a description found, as plain values."""
    with undamaged():
        found: dict[str, Any] = json.loads((returned / _FOUND).read_text("utf-8"))
    return found


def _write(folder: Path, found: Description, task: DescribeTask, presence: Presence) -> None:
    (folder / _FOUND).write_text(json.dumps(found.to_dict()), encoding="utf-8")
    presence.save(folder / PRESENCE)
