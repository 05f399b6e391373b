"""Networks as a kind of job, which sites and coordinators run beside linear models."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from weft.network.job_kind_interface import FinishedRun, JobKind, OnIteration, WrittenBy
from weft.network.run_results import HISTORY, PRESENCE, SUMMARY
from weft.protocol import Channel
from weft_neural.messages import BUILD, PLAN, SCALE
from weft_neural.settings import RUNS
from weft_neural.submitted_neural_task import NeuralTask

if TYPE_CHECKING:
    from rich.table import Table

    from weft.crypto.randomness_kept_for_restart import Memory
    from weft.network.site_data_keys_and_consent import SiteMember
    from weft.privacy.agreement import Consent
    from weft_neural.config import NeuralConfig
    from weft_neural.party import NeuralParty

#: The server's model, which the coordinator knows.
MODEL = "model.npz"


class NeuralJob(JobKind[NeuralTask, "NeuralConfig"]):
    """Trains networks by HyFEM; the coordinator sees them, and its results are sealed to nobody."""

    task = NeuralTask
    about = "networks"
    command = "weft neural run"
    beginning = "making networks"
    result_files = (SUMMARY, HISTORY, PRESENCE, MODEL)
    setup_phases = (PLAN.name, SCALE.name, BUILD.name)
    allowed_by = "allow_networks"
    # Sizes of networks, which are no secret; no sample is matched.
    exact_bytes = True

    def read_config(self, path: Path, *, deployed: bool = False) -> NeuralConfig:
        from weft_neural.config import read_neural_config

        return read_neural_config(path, deployed=deployed)

    def make_task(self, config: NeuralConfig, parties: tuple[str, ...]) -> NeuralTask:
        return NeuralTask(
            name=config.name,
            parties=parties,
            settings=config.settings,
            missing=config.data.missing,
            terms=config.terms,
            setup=config.network.setup,
            timeout=config.network.timeout,
        )

    def write_results(
        self,
        draft: Path,
        returned: Path,
        config: NeuralConfig,
        *,
        keys: Path | None,
        party: str | None,
        command: str,
    ) -> tuple[dict[str, Any], list[str]]:
        from weft_neural.neural_result_files import ReturnedNeuralResults
        from weft_neural.results_folder import write_neural_files

        results = ReturnedNeuralResults(returned)
        remarks = write_neural_files(
            draft, results.model, results.history, results.summary, config=config.path
        )
        return results.summary, remarks

    def progress_text(self, record: dict[str, Any]) -> str:
        from weft_neural.command_output import round_text
        from weft_neural.history import Round

        return f"{round_text(Round(**record))} · {record['round_trips']} round trips"

    def ending_text(
        self, folder: Path, summary: dict[str, Any], remarks: list[str]
    ) -> list[str | Table]:
        from weft_neural.command_output import ending_text

        return ending_text(folder, summary, remarks)

    def coordinate(
        self, task: NeuralTask, channel: Channel, run: bytes, tell: OnIteration
    ) -> FinishedRun:
        from weft_neural.coordinator import coordinate_neural
        from weft_neural.neural_result_files import write_neural_run_results

        outcome = coordinate_neural(channel, task.settings, run=run, progress=tell)
        return WrittenBy(outcome, outcome.notes, task, write_neural_run_results)

    def check_consent(self, task: NeuralTask, consent: Consent) -> None:
        consent.check_networks(RUNS)
        consent.check_cipher(task.settings.cipher)

    def open_party(
        self, task: NeuralTask, member: SiteMember, consent: Consent, memory: Memory
    ) -> NeuralParty:
        from weft_neural.torch_requirement import require_torch

        require_torch()
        # PyTorch takes seconds to load, so only neural runs load it.
        from weft.crypto.randomness_kept_for_restart import RandomnessLog
        from weft.data.columns.column_agreement import insist_on_plain
        from weft.federation.resume_fingerprint import insist_on_origin
        from weft_neural.numeric_fingerprint import network_digits
        from weft_neural.party import NeuralParty
        from weft_neural.sample_sources import TableSource

        held = member.plain_tiles()
        insist_on_plain(held, member.name, "networks")
        tiles = member.settled(held, task.missing)
        cipher = task.settings.cipher
        insist_on_origin(
            RandomnessLog(memory),
            tiles,
            member.keys,
            cipher,
            consent,
            digits=network_digits("auto"),
        )
        return NeuralParty(
            member.name,
            TableSource(member.name, tiles),
            keys=member.keys,
            consent=consent,
            cipher=cipher,
            memory=memory,
            expected=task.settings,
            private=True,
        )
