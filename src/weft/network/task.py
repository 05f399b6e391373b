"""A task: what whoever submits a run asks the parties and the coordinator for."""

from __future__ import annotations

import json
import re
from typing import Self

import msgspec

from weft.algorithms.registry import resolve
from weft.algorithms.settings import Settings
from weft.channels import Message
from weft.errors import ConfigError, ProtocolError
from weft.guards.terms import OPEN, Terms
from weft.preparation import Preparation

#: A run's name, which is also a folder's on every site.
_RUN = r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}"


class Task(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a run is to do, with nothing in it that is a secret or names a file.

    Attributes
    ----------
    name
        Of the run, for people.
    parties
        Who takes part, in the order that counts everywhere.
    terms
        What whoever submits it insists on, besides the parties' own terms.
    positive
        Labels that count as 1, all others count as −1; None: labels as they are.
    setup, timeout
        Seconds that a party may take to match and scale, and for any other phase.
    """

    name: str
    parties: tuple[str, ...]
    settings: Settings
    preparation: Preparation
    terms: Terms = OPEN
    positive: tuple[str | float, ...] | None = None
    setup: float = 600.0
    timeout: float = 60.0

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Self:
        try:
            return msgspec.convert(json.loads(text), cls)
        except (ValueError, msgspec.MsgspecError) as error:
            raise ProtocolError(
                f"a task cannot be read ({error}); use the same version of Weft everywhere"
            ) from None

    def told(self) -> Message:
        """What a party is told before it decides whether it takes part."""
        settings, _ = resolve(self.settings)
        told = msgspec.structs.replace(self, settings=settings)
        return {"task": told.to_json()}


def check_run(run: str) -> str:
    """Refuse what cannot be the name of a run."""
    if re.fullmatch(_RUN, run) is None:
        raise ConfigError(f"'{run}' cannot be the name of a run; weft status lists them")
    return run
