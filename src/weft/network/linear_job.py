"""Linear models as a kind of job."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from weft.network.job_kind_interface import FinishedRun, JobKind, OnIteration, WrittenBy
from weft.network.run_results import FILES, ReturnedResults, write_run_results
from weft.network.submitted_task import LinearTask, TrainingTask
from weft.protocol import Channel

if TYPE_CHECKING:
    from rich.table import Table

    from weft.config.read_config import Config
    from weft.crypto.randomness_kept_for_restart import Memory
    from weft.data.tile import Tile
    from weft.federation.party import Party
    from weft.federation.release.reader_opens_release import Released
    from weft.network.site_data_keys_and_consent import SiteMember
    from weft.privacy.agreement import Consent
    from weft.solvers.run_settings import Settings

P = TypeVar("P", bound="Party")


class LinearJob(JobKind[LinearTask, "Config"]):
    """Trains a linear model, which is sealed to its readers."""

    task = LinearTask
    about = "a linear model"
    command = "weft train"
    beginning = "matching samples"
    result_files = FILES

    def read_config(self, path: Path, *, deployed: bool = False) -> Config:
        from weft.config.read_config import read_config

        return read_config(path, deployed=deployed)

    def make_task(self, config: Config, parties: tuple[str, ...]) -> LinearTask:
        return LinearTask(**told_of_config(config), parties=parties)

    def write_results(
        self,
        draft: Path,
        returned: Path,
        config: Config,
        *,
        keys: Path | None,
        party: str | None,
        command: str,
    ) -> tuple[dict[str, Any], list[str]]:
        from weft.report.results_folder import write_files

        results = ReturnedResults(returned)
        results.summary["command"] = command
        model, inference, remarks = None, None, []
        if keys is None or party is None:
            remarks.append(
                f"the model is sealed to {', '.join(results.readers)}, who have it on their sites; "
                "--keys and --party bring it here too"
            )
        else:
            # Matrices that came with it stay in this process, which writes none down.
            opened = _open(results, keys, party, config.settings)
            model, inference = opened.model, opened.inference
        remarks += write_files(
            draft,
            model,
            results.history,
            results.path,
            results.summary,
            config.settings,
            config.path,
            inference=inference,
        )
        return results.summary, remarks

    def progress_text(self, record: dict[str, Any]) -> str:
        from weft.report.progress_and_ending_text import progress_text
        from weft.solvers.solver_interfaces_and_results import Record

        return progress_text(Record(**record))

    def shortcomings(self, summary: dict[str, Any]) -> list[str]:
        from weft.report.summary import shortfall

        gone, missed = summary["gone"], shortfall(summary)
        found = [] if missed is None else [missed]
        if gone and summary["certificate"] is None:
            found.append(f"the model is not certified without {', '.join(gone)}, who stayed away")
        return found

    def ending_text(
        self, folder: Path, summary: dict[str, Any], remarks: list[str]
    ) -> list[str | Table]:
        from weft.report.progress_and_ending_text import ending_text

        return [*ending_text(folder, summary, remarks, "History, summary and report.html")]

    def coordinate(
        self, task: LinearTask, channel: Channel, run: bytes, tell: OnIteration
    ) -> FinishedRun:
        from weft.federation.coordinator import coordinate

        outcome = coordinate(channel, task.preprocessing, task.settings, run=run, progress=tell)
        return WrittenBy(outcome, outcome.result.notes, task, write_run_results)

    def check_consent(self, task: LinearTask, consent: Consent) -> None:
        check_consent(task, consent)

    def open_party(
        self, task: LinearTask, member: SiteMember, consent: Consent, memory: Memory
    ) -> Party:
        from weft.federation.party import Party

        tiles, _ = member.training_tiles(task)
        reading = member.options.stored(member.name)
        return open_party(
            Party, tiles, task, member, consent, memory, ledger=member.ledger, reading=reading
        )


def told_of_config(config: Config) -> dict[str, Any]:
    """What a task about training has of a config, besides the parties."""
    from weft.data.columns.column_rules import encode_rules

    positive = config.data.positive
    return {
        "name": config.name,
        "settings": config.settings,
        "preprocessing": config.preprocessing(),
        "terms": config.terms,
        "columns": encode_rules(config.file.columns),
        "positive": None if positive is None else tuple(positive),
        "setup": config.network.setup,
        "timeout": config.network.timeout,
    }


def check_consent(task: TrainingTask, consent: Consent) -> None:
    """Refuse a task about training that goes beyond what a site agreed to."""
    consent.check_limits(task.settings)
    consent.check_cipher(task.settings.cipher)
    consent.check_matching(task.preprocessing.matching)


def open_party(
    kind: type[P],
    tiles: list[Tile],
    task: TrainingTask,
    member: SiteMember,
    consent: Consent,
    memory: Memory,
    **more: Any,
) -> P:
    """A site's party of a run about training; ``more`` is what its kind takes besides."""
    party = kind(
        member.name,
        tiles,
        keys=member.keys,
        cipher=task.settings.cipher,
        consent=consent,
        members=member.members,
        memory=memory,
        missing=task.preprocessing.missing,
        sample_columns=task.preprocessing.sample_columns,
        **more,
    )
    if task.settings.make_loss().task == "regression":
        # Labels that are no numbers are refused before any token is sent.
        party.data.encode_labels(None)
    return party


def _open(results: ReturnedResults, keys: Path, party: str, settings: Settings) -> Released:
    """Open what was sealed to a party."""
    from weft.crypto.keys import load_keys, read_public
    from weft.errors import ConfigError, ProtocolError
    from weft.federation.release.model_header import Head
    from weft.federation.release.reader_opens_release import open_release

    sealed = results.sealed
    if party not in sealed.by_reader:
        raise ConfigError(
            f"the model was not sealed to {party}, but to {', '.join(results.readers)}; they have "
            "it on their sites"
        )
    identity, members = load_keys(keys, party).identity, read_public(keys).members
    for writer in sealed.by_reader[party]:
        if writer not in members:
            raise ProtocolError(
                f"a part of the model comes from '{writer}', whose keys are not in this folder of "
                "keys; find out who takes part in this run"
            )
    return open_release(
        sealed.by_reader[party],
        Head.from_json(sealed.head),
        settings,
        reader=identity,
        writers=members,
        run=sealed.run,
        overlapping=sealed.overlapping,
    )
