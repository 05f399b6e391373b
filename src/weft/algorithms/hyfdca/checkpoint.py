"""Checkpoints of a HyFDCA run: a resumed run goes on with the same bits.

The coordinator asks every party to save its own state under the iteration's number, then
writes its own file, which names that iteration: only a complete set is ever resumed from.
"""

from __future__ import annotations

from pathlib import Path

import msgspec
import numpy as np

from weft.algorithms.base import Record, Result
from weft.algorithms.hyfdca.run import Run
from weft.channels import Message, Reading
from weft.errors import ConfigError
from weft.storage import load_arrays, save_arrays
from weft.sums.certificate import Certificate

NAME = "coordinator.npz"


def save_checkpoint(run: Run, result: Result, folder: Path, spent: Reading) -> None:
    """Save all parties, then the coordinator."""
    messages: dict[str, Message] = {
        p: {"iteration": run.iteration, "ack": run.ack[p]} for p in run.roster.parties
    }
    replies = run.channel.ask("checkpoint", messages)
    replies.stop_on_refusal()
    if replies.missing:
        run.note_missing(replies.missing)
        return
    head = {
        "settings": run.settings.to_json(),
        "iteration": run.iteration,
        "omega": run.omega,
        "seen": run.seen,
        "ack": run.ack,
        "certificate": run.certificate,
        "certified_frozen": run.certified_frozen,
        "best_dual": run.best_dual,
        "norm_estimate": run.norm_estimate,
        "away": sorted(run.away),
        "notes": run.notes,
        "history": result.history,
        "spent": spent,
        "pair": None if run.pair is None else run.pair.head(),
    }
    arrays = {
        "head": np.frombuffer(msgspec.json.encode(head), np.uint8),
        **{f"{t.kind}.totals": t.totals for t in (run.z, run.alpha, run.v)},
        "alpha.stamp": run.alpha.changed.stamp,
    }
    if run.pair is not None:
        arrays.update({f"pair.{name}": value for name, value in run.pair.arrays().items()})
    folder.mkdir(parents=True, exist_ok=True)
    save_arrays(folder / NAME, arrays)
    forget: Message = {"iteration": run.iteration}
    run.channel.ask("checkpoint.forget", dict.fromkeys(run.roster.parties, forget))


def load_checkpoint(run: Run, result: Result, folder: Path) -> Reading:
    """Put coordinator and parties back to where they were; returns what the run had cost."""
    path = folder / NAME
    if not path.exists():
        raise ConfigError(f"there is no checkpoint in {folder}; start without --resume")
    arrays = load_arrays(path)
    try:
        head = msgspec.json.decode(arrays["head"].tobytes())
    except (KeyError, msgspec.DecodeError):
        raise ConfigError(f"{path} is no checkpoint of Weft; start without --resume") from None
    ours = (run.settings.to_json(), list(run.roster.parties))
    if (head["settings"], list(head["seen"])) != ours:
        raise ConfigError(
            f"the checkpoint in {folder} belongs to other settings or parties; use those of the "
            "interrupted run, or start without --resume"
        )
    run.iteration, run.omega = head["iteration"], head["omega"]
    run.seen, run.ack = head["seen"], head["ack"]
    if head["certificate"] is not None:
        run.certificate = msgspec.convert(head["certificate"], Certificate)
    run.certified_frozen = head["certified_frozen"]
    run.best_dual, run.norm_estimate = head["best_dual"], head["norm_estimate"]
    run.away = set(head["away"])
    for note in head["notes"]:
        run.note(note)
    for totals in (run.z, run.alpha, run.v):
        totals.totals = arrays[f"{totals.kind}.totals"]
    run.alpha.changed.restore(arrays["alpha.stamp"], run.iteration)
    if head["pair"] is not None:
        pair = run.freeze()
        pair.restore(head["pair"], {n[5:]: a for n, a in arrays.items() if n.startswith("pair.")})
    result.history = msgspec.convert(head["history"], list[Record])
    messages: dict[str, Message] = {
        p: {"iteration": run.iteration, **run.constants(p)} for p in run.roster.parties
    }
    run.channel.ask("checkpoint.restore", messages).insist("resuming")
    return msgspec.convert(head["spent"], Reading)
