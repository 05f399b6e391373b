"""A task: the description of a run that a submitter hands in, for parties and coordinator."""

from __future__ import annotations

import re
from typing import Annotated, Protocol

import msgspec

from weft.errors import ConfigError
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN, Matching, Terms
from weft.matching.overlap_rule import Overlap
from weft.protocol import Fields, Message, fields_of
from weft.protocol.field_visibility import texts
from weft.protocol.recording_file import Head
from weft.solvers.algorithm_choice import resolve
from weft.solvers.run_settings import Settings

#: A run's name, which is also a folder's on every site.
_RUN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class TaskMessage(Message):
    """What a party is told before it decides whether it takes part."""

    task: Annotated[str, texts("what the run is to do")]


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, tag_field="kind"):
    """What a run is to do, with nothing in it that is a secret or names a file.

    A job kind (`weft.network.job_kind_interface.JobKind`) has a subclass whose ``tag`` is the
    kind's name.

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

    def recording_head(self) -> Head:
        """What the recording of the run says of it, for audits; here: its blocks bear pads."""
        return Head(self.name, list(self.parties), "pad")

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    def told(self) -> Fields:
        """What a party is told before it decides whether it takes part."""
        return fields_of(TaskMessage(task=self.to_json()))


class RunSettings(Protocol):
    """What a task needs to know of the settings of a run, whatever else they say."""

    @property
    def patience(self) -> float: ...

    @property
    def cipher(self) -> str: ...

    @property
    def coordinator_sees(self) -> str: ...


class TaskWithSettings(Task, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A task whose settings say how long it waits, and what its messages bear.

    Attributes
    ----------
    settings
        Of a type that a subclass names.
    """

    settings: RunSettings

    @property
    def patience(self) -> float:
        return self.settings.patience

    def recording_head(self) -> Head:
        settings = self.settings
        return Head(self.name, list(self.parties), settings.cipher, settings.coordinator_sees)


class TrainingTask(TaskWithSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A run about training a linear model.

    Attributes
    ----------
    positive
        Labels that count as 1, all others count as −1; None: labels as they are.
    columns
        What becomes of columns at all parties that have them, as JSON: rules by name, which a
        coordinator need not read. What a party says itself comes first. Empty: nothing.
    """

    settings: Settings
    preprocessing: Preprocessing
    columns: str = ""
    positive: tuple[str | float, ...] | None = None

    def told(self) -> Fields:
        settings, _ = resolve(self.settings)
        told = msgspec.structs.replace(self, settings=settings)
        return fields_of(TaskMessage(task=told.to_json()))


class LinearTask(TrainingTask, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="linear"):
    """A run that trains a linear model."""


class CheckTask(TrainingTask, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="check"):
    """A check of what such a run would meet and show."""


class DescribeTask(
    TrainingTask, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="describe"
):
    """A description of the columns that such a run would train on."""


class PredictTask(Task, frozen=True, kw_only=True, forbid_unknown_fields=True, tag="predict"):
    """A joint prediction: scores of new samples, which one party alone reads.

    Attributes
    ----------
    asker
        The party that asks, of whose samples scores are computed.
    model, width
        Fingerprint of the model, which every party has, as hex digits; how many scores it gives.
    cipher, matching
        As in training.
    overlap
        What counts for a cell that several parties hold; the model says it, and parties refuse
        another.
    signature
        Of the party that asks, under all of this and the name of the run, as hex digits.
    """

    asker: str
    model: str
    width: int
    overlap: Overlap
    signature: str
    cipher: str = "pad"
    matching: Matching = "oprf"

    @property
    def patience(self) -> float:
        return self.timeout

    def recording_head(self) -> Head:
        return Head(self.name, list(self.parties), self.cipher)


def check_run(run: str) -> str:
    """Refuse what cannot be the name of a run."""
    if re.fullmatch(_RUN, run) is None:
        raise ConfigError(f"'{run}' cannot be the name of a run; weft status lists them")
    return run
