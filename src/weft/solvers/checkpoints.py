"""Checkpoints: a resumed run goes on with the same bits.

The coordinator asks every party to save its own state under the iteration's number, then
writes its own file, which names that iteration: only a complete set is ever resumed from.
"""

from __future__ import annotations

from base64 import b64decode
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft.protocol import Reading
from weft.solvers.coordinator_attendance_and_certificate import RunState
from weft.solvers.setup_result_and_checkpoint_messages import (
    FORGET,
    RESTORE,
    SAVE,
    ForgetRequest,
    RestoreRequest,
    SaveRequest,
)
from weft.solvers.solver_interfaces_and_results import Record, Result
from weft.storage.atomic_files import load_arrays, replacing, save_arrays
from weft.sums.gap_certificate import Certificate
from weft.thread_safe_decoding import prepared

NAME = "coordinator.npz"
EPOCH = "epoch.txt"


def save_checkpoint(run: RunState, result: Result, folder: Path, spent: Reading) -> None:
    """Save all parties, then the coordinator."""
    messages = {
        p: SaveRequest(iteration=run.iteration, ack=run.ack[p]) for p in run.holdings.parties
    }
    replies = run.channel.ask(SAVE, messages)
    replies.stop_on_refusal()
    if replies.missing:
        run.note_missing(replies.missing)
        return
    head = {
        "settings": run.settings.to_json(),
        "iteration": run.iteration,
        "ack": run.ack,
        "certificate": run.certificate,
        "away": sorted(run.away),
        "held": run.held,
        "notes": run.notes,
        "history": result.history,
        "spent": spent,
        "key": run.adder.key,
        "public": run.adder.public,
        "own": run.head(),
    }
    arrays: dict[str, NDArray[Any]] = {"head": np.frombuffer(msgspec.json.encode(head), np.uint8)}
    arrays.update(run.totals())
    folder.mkdir(parents=True, exist_ok=True)
    save_arrays(folder / NAME, arrays)
    _save_epoch(folder, run.adder.epoch)
    forget = ForgetRequest(iteration=run.iteration)
    run.channel.ask(FORGET, dict.fromkeys(run.holdings.parties, forget))


def load_checkpoint(run: RunState, result: Result, folder: Path) -> Reading:
    """Put coordinator and parties back to where they were; returns what the run had cost."""
    path = folder / NAME
    if not path.exists():
        raise ConfigError(f"there is no checkpoint in {folder}; start without --resume")
    arrays = load_arrays(path)
    try:
        head = msgspec.json.decode(arrays["head"].tobytes())
    except (KeyError, msgspec.DecodeError):
        raise ConfigError(f"{path} is no checkpoint of Weft; start without --resume") from None
    ours = (run.settings.to_json(), list(run.holdings.parties))
    if (head["settings"], list(head["ack"])) != ours:
        raise ConfigError(
            f"the checkpoint in {folder} belongs to other settings or parties; use those of the "
            "interrupted run, or start without --resume"
        )
    run.iteration, run.ack, run.held = head["iteration"], head["ack"], head["held"]
    if head["certificate"] is not None:
        run.certificate = msgspec.convert(head["certificate"], prepared(Certificate))
    run.away = set(head["away"])
    for note in head["notes"]:
        run.note(note)
    public = b64decode(head["public"])
    run.adder.public = public
    run.take_totals(arrays)
    run.take_head(head["own"])
    result.history = msgspec.convert(head["history"], prepared(list[Record]))
    adder = run.adder
    adder.epoch, adder.key, adder.public = _next_epoch(folder), head["key"], public
    round_ = adder.advance()
    messages = {
        party: RestoreRequest(
            round=round_,
            iteration=run.iteration,
            epoch=adder.epoch,
            constants=run.constants(party),
        )
        for party in run.holdings.parties
    }
    run.channel.ask(RESTORE, messages).insist("resuming")
    return msgspec.convert(head["spent"], prepared(Reading))


def _next_epoch(folder: Path) -> int:
    """One above the last epoch, written down before anybody uses it."""
    path = folder / EPOCH
    try:
        # A run that was cut off in its first checkpoint is in its first epoch.
        epoch = int(path.read_text()) + 1 if path.exists() else 1
    except (OSError, ValueError):
        raise ConfigError(
            f"{path} does not say which epoch of the run was the last; start without --resume"
        ) from None
    _save_epoch(folder, epoch)
    return epoch


def _save_epoch(folder: Path, epoch: int) -> None:
    with replacing(folder / EPOCH) as draft:
        draft.touch(mode=0o600)
        draft.write_text(f"{epoch}\n")
