"""A coordinator that has the answers of four parties, and goes on asking them as it likes.

Not a test itself.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scene import run

from weft.crypto.ciphers.block_format import HEAD, pad_id_of
from weft.errors import WeftError
from weft.guards import Terms
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.solvers.run_settings import Settings
from weft.sums.scalar_sums import add_scalars

NAMES = ["p1", "p2", "p3", "p4"]


class Done(BaseException):
    """The attack has got as far as it wants to."""


class Again:
    """Stops a run after a request for scalars, and then puts questions of its own.

    Parameters
    ----------
    phase
        Where the scalars travel.
    number
        In which of such requests to stop.
    """

    def __init__(self, phase: str, number: int) -> None:
        self.phase, self.number = phase, number
        self.handlers, self.asked, self.first, self.parties = {}, {}, {}, {}
        self.refusals: list[str] = []
        self.later = 0

    def around(self, name, handler):
        self.handlers[name] = handler
        self.parties[name] = handler.__self__

        def answer(phase, message):
            reply = handler(phase, message)
            if phase == self.phase:
                self.asked[name], self.first[name] = dict(message), reply
                self.number -= name == NAMES[-1]
                if self.number < 0:
                    raise Done
            return reply

        return answer

    def ask(self, names, **changes) -> dict[str, dict]:
        """Put the last question to some parties again, with other fields."""
        answers = {}
        self.later += 100
        for name in names:
            message = {**self.asked[name], **changes}
            message["round"] += self.later
            if "v" in message:
                # The label of the request stands in the last eight bytes of a block's header.
                label = pad_id_of(0, message["round"], 0).to_bytes(8, "little")
                message["v"] = message["v"][: HEAD - 8] + label + message["v"][HEAD:]
            try:
                answers[name] = self.handlers[name](self.phase, message)
            except WeftError as error:
                self.refusals.append(str(error))
        return answers


def total(answers: dict[str, dict], field: str, names) -> np.ndarray:
    """What the coordinator reads of the answers of these parties."""
    count = len(answers[names[0]][field]) // SCALAR_BYTES
    chosen = {name: answers[name] for name in names}
    return np.array(add_scalars(objects(chosen), field, count, names))


def objects(replies: dict[str, dict]) -> dict[str, SimpleNamespace]:
    """Replies with attributes, as code reads them."""
    return {name: SimpleNamespace(**reply) for name, reply in replies.items()}


def caught(tiles, solver: str, phase: str, number: int = 3) -> Again:
    """A run of careful parties, stopped after so many of such requests and one more."""
    again = Again(phase, number)
    how = Settings(
        lam=0.01, solver=solver, gap=None, iterations=999, norms="cohort", certify_every=1
    )
    with pytest.raises(Done):
        run(tiles, how, Terms(min_batch=5), around=again.around)
    return again
