"""A task: the description of a run that a submitter hands in, for parties and coordinator."""

from __future__ import annotations

import re
from typing import Annotated

import msgspec

from weft.errors import ConfigError
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.terms import OPEN, Terms
from weft.protocol import Fields, Message, fields_of
from weft.protocol.field_visibility import texts
from weft.solvers.algorithm_choice import resolve
from weft.solvers.settings import Settings

#: A run's name, which is also a folder's on every site.
_RUN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class TaskMessage(Message):
    """What a party is told before it decides whether it takes part."""

    task: Annotated[str, texts("what the run is to do")]


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What a run is to do, with nothing in it that is a secret or names a file.

    A job kind (`weft.network.job_kind.JobKind`) has a subclass whose ``tag`` is the kind's name.

    Attributes
    ----------
    name
        Of the run, for people.
    parties
        Who takes part, in the order that counts everywhere.
    terms
        The submitter's terms, in addition to the parties' own.
    setup, timeout
        Seconds that a party may take to match and scale, and for any other phase.
    """

    name: str
    parties: tuple[str, ...]
    terms: Terms = OPEN
    setup: float = 600.0
    timeout: float = 60.0

    @property
    def patience(self) -> float:
        """Seconds to wait for a party without which nothing goes on."""
        raise NotImplementedError

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def told(self) -> Fields:
        """What a party is told before it decides whether it takes part."""
        return fields_of(TaskMessage(task=self.to_json()))


class LinearTask(Task, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="linear"):
    """A run that trains a linear model.

    Attributes
    ----------
    positive
        Labels that count as 1, all others count as −1; None: labels as they are.
    """

    settings: Settings
    preprocessing: Preprocessing
    positive: tuple[str | float, ...] | None = None

    @property
    def patience(self) -> float:
        return self.settings.patience

    def told(self) -> Fields:
        settings, _ = resolve(self.settings)
        told = msgspec.structs.replace(self, settings=settings)
        return fields_of(TaskMessage(task=told.to_json()))


def check_run(run: str) -> str:
    """Refuse what cannot be the name of a run."""
    if re.fullmatch(_RUN, run) is None:
        raise ConfigError(f"'{run}' cannot be the name of a run; weft status lists them")
    return run
