"""What this package adds to Weft: ``weft neural``, a kind of job, and its messages."""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

from weft.plugins import Command, Plugin

if TYPE_CHECKING:
    from weft_neural.neural_job_kind import NeuralJob


def _commands() -> dict[str, Command]:
    from weft_neural.commands import neural

    return {"neural": Command(neural)}


def _job_kinds() -> dict[str, NeuralJob]:
    from weft_neural.neural_job_kind import NeuralJob

    return {"neural": NeuralJob()}


def _messages() -> dict[str, ModuleType]:
    import weft_neural.messages

    return {weft_neural.messages.__name__: weft_neural.messages}


PLUGIN = Plugin(commands=_commands, job_kinds=_job_kinds, messages=_messages)
