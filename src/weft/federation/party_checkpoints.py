"""A party's own checkpoints: files that only it reads, and the epochs that it has used."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, ProtocolError
from weft.storage.atomic_files import StorageError, load_arrays, replacing, save_arrays

Arrays = dict[str, NDArray[Any]]


class PartyCheckpoints:
    """Where one party keeps its state, under the numbers of iterations.

    Parameters
    ----------
    party
        Its name.
    folder
        None: it keeps nothing, and refuses to.
    """

    def __init__(self, party: str, folder: Path | None) -> None:
        self._party, self._folder = party, folder
        #: Iterations of its checkpoints; None: not looked up yet.
        self._known: set[int] | None = None

    def _file(self, iteration: int) -> Path:
        if self._folder is None:
            raise ConfigError(f"party {self._party} has no folder for checkpoints")
        # A name may hold what a file name may not.
        stem = self._party.replace("%", "%25").replace("/", "%2F")
        return self._folder / f"{stem}.{iteration}.npz"

    def put(self, iteration: int, state: Arrays, keys: Arrays, content: NDArray[np.uint8]) -> None:
        """Write a checkpoint; ``content`` is a hash of all that the party trains on."""
        path = self._file(iteration)
        path.parent.mkdir(parents=True, exist_ok=True)
        kept = {f"keys.{name}": value for name, value in keys.items()}
        save_arrays(path, {**state, **kept, "content": content})
        if self._known is not None:
            self._known.add(iteration)

    def take(self, iteration: int, content: NDArray[np.uint8]) -> tuple[Arrays, Arrays]:
        """State and keys of a checkpoint, which must be of the same content."""
        path = self._file(iteration)
        try:
            state = load_arrays(path)
        except StorageError as error:
            raise StorageError(f"there is no checkpoint {path.name} to use: {error}") from None
        if not np.array_equal(state.pop("content", np.zeros(0)), content):
            raise ConfigError(
                "its samples, cells, labels or their scaling are not those of the checkpoint; "
                "restore them, or start without --resume"
            )
        keys = {name[5:]: state.pop(name) for name in list(state) if name.startswith("keys.")}
        return state, keys

    def raise_epoch(self, key: int, epoch: int) -> None:
        """Write down the epoch before anything is encrypted in it; it must be new to the key."""
        path = self._file(0).with_suffix(".epoch")
        last = 0
        if path.exists():
            try:
                used, last = map(int, path.read_text().split())
            except ValueError:
                raise StorageError(f"{path} is damaged; start without --resume") from None
            # Another run, with keys of its own, has left its file here.
            last = last if used == key else 0
        if epoch <= last:
            raise ProtocolError(
                f"epoch {epoch} of this run was used before (the last was {last}); resume from "
                "the newest checkpoint, or start anew"
            )
        with replacing(path) as draft:
            draft.touch(mode=0o600)
            draft.write_text(f"{key} {epoch}\n")

    def forget_before(self, iteration: int) -> None:
        """Delete older checkpoints: a newer set is complete."""
        if self._known is None:
            # Once, for what a killed run has left: thousands of parties may share a folder.
            self._known = self._found()
        for older in self._known - {iteration}:
            self._file(older).unlink(missing_ok=True)
        self._known &= {iteration}

    def _found(self) -> set[int]:
        """Iterations of this party's checkpoints that are in the folder."""
        last = self._file(0)
        begin = last.name.removesuffix("0.npz")
        names = (name for name in os.listdir(last.parent) if name.startswith(begin))
        numbers = (name[len(begin) :].removesuffix(".npz") for name in names)
        return {int(number) for number in numbers if number.isdigit()}
