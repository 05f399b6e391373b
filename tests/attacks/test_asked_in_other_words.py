"""A question is asked once, in its place, in the same words to all; totals are of one request.

Whoever could ask again with a word changed, close a model that nobody measured, or let a set of
pads stand for nothing, would have honest parties open totals of its choice, and read samples.
"""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from scene import by_rows, run, table_of
from test_lone_contributions import FAST, SLOW, after_a_run, attack

from weft.crypto.ciphers.block_format import SIGN
from weft.errors import ProtocolError, WeftError
from weft.guards import Terms
from weft.protocol.message_bytes import question_digest
from weft.solvers.hyfdca.messages import FusedRequest, StepRequest
from weft.solvers.subspace.messages import SearchRequest
from weft.sums.table_scaling_and_certificate_messages import (
    PAIR_LOSSES,
    PAIR_PRODUCTS,
    PairLossesRequest,
    PairProductsRequest,
)

LATER = count(100)


class Done(BaseException):
    """The run has gone far enough."""


def besides(phase, ask):
    """A run in which p1 is asked something more when it has answered a phase for the first time."""

    def around(name, handler):
        def answer(asked, message):
            reply = handler(asked, message)
            if name == "p1" and asked == phase:
                ask(handler, message)
                raise Done
            return reply

        return answer

    with pytest.raises(Done):
        run(by_rows(table_of("breast_cancer", 120), 3), FAST, Terms(), around=around)


def numbers(message, more):
    return {
        "round": message["round"] + next(LATER),
        "iteration": message["iteration"],
        "serial": message["serial"] + more,
    }


def test_a_phase_is_asked_again_in_the_same_words_only():
    def again(handler, message):
        for change in ({"later": True}, {"at": np.ones((1, 1))}):
            with pytest.raises(ProtocolError, match="asked again in other words"):
                handler("subspace.gather", {**message, **numbers(message, 0), **change})

    besides("subspace.gather", again)


@pytest.mark.parametrize("phase", ["subspace.gather", "subspace.spread"])
def test_no_model_is_closed_that_was_not_measured(phase):
    def close(handler, message):
        with pytest.raises(ProtocolError, match="was not measured last"):
            handler("subspace.close", numbers(message, 1))

    besides(phase, close)


def test_nothing_is_answered_after_the_last_model():
    def keep(handler, message):
        asked = numbers(message, 0)
        del asked["serial"]
        handler("subspace.keep", {**asked, "model": 0, "point": np.zeros((2, 1))})
        with pytest.raises(ProtocolError, match="answers no more"):
            handler("subspace.spread", {**message, **numbers(message, 0)})

    besides("subspace.spread", keep)


@pytest.mark.parametrize(
    ("kind", "field", "values"),
    [
        (SearchRequest, "of", (None, "point")),
        (SearchRequest, "later", (False, True)),
        (StepRequest, "still", (False, True)),
        (FusedRequest, "every", (False, True)),
    ],
)
def test_what_decides_about_an_answer_is_in_the_question(kind, field, values):
    def asked(value):
        common = {"round": 1, "iteration": 1}
        if kind is SearchRequest:
            steps, none = np.ones((1, 2, 1)), np.zeros((0, 1))
            more = {"moved": np.ones((2, 1)), "by_rows": False, "steps": steps, "at": none}
            message = kind(**common, serial=1, **more)
        elif kind is FusedRequest:
            message = kind(**common, ack=0, gamma=1.0, ahead=1)
        else:
            message = kind(**common, ack=0, gamma=1.0)
        setattr(message, field, value)
        return question_digest(message)

    one, other = map(asked, values)
    assert one != other


def test_a_set_of_pads_that_stands_for_nothing_is_no_sum_to_go_on_from():
    def nothing(name, message):
        if message["iteration"] > 2:
            a = message["v_pads.chain"][0]
            message["v_pads.chain"] = np.full(1, SIGN)
            message["v_pads.chain_sets"] = np.array([2, a, a | SIGN], np.uint64)
        return message

    with pytest.raises(WeftError, match="does not go on from the sum"):
        attack(nothing, SLOW, "hyfdca.fused")


def test_only_the_pair_that_was_frozen_is_answered_for():
    told, rounds = after_a_run()
    party = told.parties["p3"]
    for phase, kind in ((PAIR_PRODUCTS, PairProductsRequest), (PAIR_LOSSES, PairLossesRequest)):
        with pytest.raises(ProtocolError, match="not that of the pair that was frozen"):
            party.on(phase, kind(round=next(rounds), iteration=77, ack=0))
