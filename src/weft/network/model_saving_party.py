"""A party of a site that saves the models it gets."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

from weft.network.party_interface import RunParty
from weft.network.saved_join_settings import writing
from weft.network.site_snapshots import Snapshots
from weft.protocol import Message, Phase
from weft.storage.atomic_files import StorageError

log = logging.getLogger("weft.site")


class SavedModel(Protocol):
    """A model that can be written to a file."""

    def save(self, path: Path) -> None: ...


class SavingParty(RunParty, Protocol):
    """A party of one run whose models are saved on its site.

    Attributes
    ----------
    saved_models
        Names of phases after which it has models: their attributes, and names of their files.
    """

    @property
    def saved_models(self) -> Mapping[str, tuple[tuple[str, str], ...]]: ...

    @property
    def replaying(self) -> Callable[[], AbstractContextManager[None]]: ...


class ModelSavingParty:
    """A party that saves the models it has, in a folder of this run alone.

    Names of runs may be anything, so that no file is named after one: ``x.received`` must not take
    the place of what run ``x`` has received.

    If the disk is full, the party is asked again and saves the models then. A party that is rebuilt
    has saved them before, so a full disk does not stop it.
    """

    def __init__(self, party: SavingParty, folder: Path) -> None:
        self._party, self._folder = party, folder
        self.replaying = party.replaying
        self.close = party.close

    @property
    def remarks(self) -> tuple[str, ...]:
        """What became of cells that no rule foresaw, a sentence each, for its owner."""
        return tuple(getattr(self._party, "remarks", ()))

    @property
    def snapshots(self) -> Snapshots | None:
        """Saves what the party becomes; None: this kind of party cannot, or not yet."""
        found: Snapshots | None = getattr(self._party, "snapshots", None)
        return found

    @property
    def exposure(self) -> str:
        """What the run has exposed, in one line; empty: this kind of party does not say."""
        return str(getattr(self._party, "exposure", ""))

    def settle(self, replies: Sequence[bytes] | None) -> None:
        """Pass on how the last envelope ended, to a party that signs for it."""
        settle = getattr(self._party, "settle", None)
        if settle is not None:
            settle(replies)

    def on(self, phase: Phase[Any, Any], message: Message) -> Message:
        reply = self._party.on(phase, message)
        for name, file in self._party.saved_models.get(phase.name, ()):
            model: SavedModel | None = getattr(self._party, name)
            if model is not None:
                self._keep(model, self._folder / file)
        return reply

    def _keep(self, model: SavedModel, path: Path) -> None:
        try:
            with writing(path):
                path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                model.save(path)
        except StorageError as error:
            if not path.exists():
                raise
            run = self._folder.name
            log.warning("run %s: the model in %s is the one from before (%s)", run, path, error)
        else:
            log.info("run %s: the model is in %s", self._folder.name, path)
