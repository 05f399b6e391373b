"""Training for an experiment: HyFEM, or one of what it is compared with, on a scene."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from time import perf_counter
from typing import Any

import torch

from weft.errors import ConfigError
from weft_neural.baselines import train_alone, train_central, train_fedprox
from weft_neural.cuda_device_and_vectors import Device, device_of
from weft_neural.history import Round
from weft_neural.local_federation import NeuralFederation, NeuralTrained
from weft_neural.server_model_accuracy import ServerJudge
from weft_neural.settings import NeuralSettings
from weft_papers.hyfem.run_result_file import RunFile, run_path, versions
from weft_papers.hyfem.scenes import Scene
from weft_papers.hyfem.setups import Plan, Setup
from weft_papers.run_files import write_file

#: Called after every round, with the seconds that the run will take yet.
Progress = Callable[[Plan, Round, float], None]

#: Seconds between two writings of a run that goes on.
_KEEP_EVERY = 20.0


def train_run(
    setup: Setup,
    plan: Plan,
    scene: Scene,
    out: Path,
    *,
    device: Device = "auto",
    progress: Progress | None = None,
) -> RunFile:
    """Run one plan, and keep its file up to date while it goes on."""
    path = run_path(out, plan)
    settings = plan.settings(tuple(scene.blocks))
    run = RunFile(
        plan=plan,
        finished=False,
        parties=list(scene.parties),
        common=list(scene.common_blocks()),
        rounds_of_text=setup.rounds,
        device=device_name(device),
        versions=versions(),
        seconds=0.0,
        history=[],
    )
    began = kept = perf_counter()

    def follow(found: Round) -> None:
        nonlocal kept
        run.history.append({**asdict(found), "rows": list(found.rows)})
        now = perf_counter()
        run.seconds = now - began
        if now - kept > _KEEP_EVERY:
            write_file(path, run)
            kept = now
        if progress is not None:
            left = run.seconds / found.turn * (settings.rounds - found.turn)
            progress(plan, found, left)

    trained = _train(plan, scene, settings, device, follow)
    run.finished, run.seconds, run.notes = True, perf_counter() - began, trained.notes
    write_file(path, run)
    return run


def _train(
    plan: Plan,
    scene: Scene,
    settings: NeuralSettings,
    device: Device,
    progress: Callable[[Round], None],
) -> NeuralTrained:
    shared: dict[str, Any] = {
        # All of them, so that a party has an output for classes that it never saw.
        "classes": range(len(scene.class_names)),
        "device": device,
        "progress": progress,
    }
    if plan.kind == "central":
        return train_central(scene.pool(), settings, **shared)
    if plan.kind == "alone":
        if plan.party is None:
            raise ConfigError(f"run {plan.run} does not say who trains alone")
        return train_alone(plan.party, scene.source(plan.party), settings, **shared)
    sources = scene.sources()
    judge = ServerJudge(*scene.tested(None), device=device)
    if plan.kind == "fedprox":
        return train_fedprox(sources, scene.common_blocks(), settings, judge=judge, **shared)
    del shared["device"]
    return NeuralFederation(sources, device=device).train(settings, judge=judge, **shared)


def device_name(device: Device) -> str:
    """Where a run computes, in words."""
    chosen = device_of(device)
    return torch.cuda.get_device_name(chosen) if chosen.type == "cuda" else "cpu"
