"""The kinds of runs that are installed here: Weft's own, and what plug-ins add.

A task from outside names its kind. Only an installed one is looked up, never imported by name; the
site's consent is asked before that kind opens a party.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec

from weft.errors import ProtocolError
from weft.network.descriptive_statistics_job import DescribeJob
from weft.network.job_kind_interface import JobKind, RunKind
from weft.network.linear_job import LinearJob
from weft.network.prediction_job import PredictionJob
from weft.network.study_check_job import CheckJob
from weft.network.submitted_task import Task, TaskMessage
from weft.plugins import Registry, how_to_install
from weft.protocol import Fields
from weft.protocol.declared_message_fields import message_of
from weft.thread_safe_decoding import prepared

if TYPE_CHECKING:
    # The coordinator must load neither tables nor readers.
    from weft.config.base_config_of_all_jobs import FederationConfig

JOB_KINDS: Registry[RunKind[Any]] = Registry(
    "job_kinds",
    {
        "linear": LinearJob(),
        "predict": PredictionJob(),
        "check": CheckJob(),
        "describe": DescribeJob(),
    },
    lambda value: isinstance(value, JobKind),
)


class _Tag(msgspec.Struct):
    """All of a task that must be known before its type is."""

    kind: str


_TAG: msgspec.json.Decoder[_Tag] = msgspec.json.Decoder(prepared(_Tag))


def kind_of_config(config: FederationConfig) -> JobKind[Any, Any]:
    """The kind of run that a config asks for."""
    kind = JOB_KINDS[config.kind]
    assert isinstance(kind, JobKind)
    return kind


def job_kind_of(task: Task) -> RunKind[Any]:
    """The kind of a task."""
    kind = JOB_KINDS.get(str(task.__struct_config__.tag))
    if kind is None or kind.task is not type(task):
        raise TypeError(f"{type(task).__name__} is not a task of an installed job kind")
    return kind


def read_task(text: str) -> Task:
    """Read a task of any kind that is installed; all others are refused."""
    try:
        name = _TAG.decode(text).kind
        kind = JOB_KINDS.get(name)
        if kind is None:
            raise ProtocolError(
                f"a task is of kind '{name}', which is not installed here; use the same version "
                f"of Weft everywhere, and {how_to_install(name)}{JOB_KINDS.left_out()}"
            )
        task: Task = msgspec.json.decode(text, type=prepared(kind.task))
    except msgspec.MsgspecError as error:
        raise ProtocolError(
            f"a task cannot be read ({error}); use the same version of Weft everywhere"
        ) from None
    return task


def told_task(told: Fields) -> Task:
    """The inverse of `Task.told`."""
    return read_task(message_of(TaskMessage, told).task)
