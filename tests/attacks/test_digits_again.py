"""Every party's largest row, from digits of the largest of all that are asked for again and again.

Four horizontal parties, breast cancer, careful terms. The largest part of ‖x_i‖² is found digit by
digit, from how many parties reach each one: three questions, for the exponent of the largest. A
coordinator that asks below digits of its own choice, as often as it likes, gets the largest value
of every party, to the last bit.
"""

from __future__ import annotations

import numpy as np
import pytest
from asking_again import NAMES, Again, caught, total
from scene import by_rows, run, table_of

from weft.errors import ProtocolError
from weft.federation.local_federation import Preprocessing
from weft.guards import Terms
from weft.solvers.run_settings import Settings
from weft.sums.maxima_from_digit_sums import LargestParty, keys_of, reached, values_of
from weft.sums.scalar_sums import pack_scalars
from weft.sums.table_scaling_and_certificate_messages import DigitReply

LOWEST, HIGHEST = 1 << 63, (1 << 63) + (0x7FF << 52)
AGAIN = "asks for a digit of the largest value again, or too early"


@pytest.fixture
def again(request) -> Again:
    """Asked for as many digits as an honest coordinator asks for, or for some of them."""
    number = getattr(request, "param", 2)
    return caught(by_rows(table_of("breast_cancer", 160), 4), "cutting-planes", "size", number)


def answer_anything(monkeypatch) -> None:
    """Take out that digits are told once, in order, below those found."""

    def tell(party, message, values):
        flags = reached(keys_of(values()), message.prefix, message.digit)
        return DigitReply(flags=pack_scalars(party._cipher, "flags", *flags.ravel().tolist()))

    monkeypatch.setattr(LargestParty, "tell", tell)


def parties_above(again: Again, key: int) -> int:
    """How many parties have a value at least as large."""
    prefix = np.full(2, key & ~1, np.uint64)
    answers = again.ask(NAMES, digit=15, prefix=prefix)
    return round(total(answers, "flags", NAMES)[0])


def test_the_largest_value_of_every_party(again, monkeypatch, record):
    answer_anything(monkeypatch)
    found = []
    for parties in range(1, 5):
        low, high = LOWEST, HIGHEST
        while high - low > 2:
            middle = ((low + high) // 2) & ~1
            if parties_above(again, middle) >= parties:
                low = middle
            else:
                high = middle
        found.append(values_of(np.array([low], np.uint64))[0])
    largest = [again.parties[name].data.table.squares.max() for name in NAMES]
    error = np.abs(np.array(found) / sorted(largest, reverse=True) - 1).max()
    assert error < 1e-15
    record("39", "unguarded", f"‖x‖² of the longest row of each of 4 parties, error {error:.0e}")


def test_digits_are_told_once(again, record):
    prefix = again.asked[NAMES[0]]["prefix"]
    for digit in (0, 2, 3, 15):
        assert not again.ask(NAMES, digit=digit, prefix=prefix)
    assert all(AGAIN in refusal for refusal in again.refusals)
    record("39", "guarded", "digits asked for again: refused")


@pytest.mark.parametrize("again", [1], indirect=True)
def test_digits_are_told_below_those_before_only(again):
    before = again.asked[NAMES[0]]["prefix"]
    for changed in (before | np.uint64(1 << 50), before ^ np.uint64(1 << 60), before[:1]):
        assert not again.ask(NAMES, digit=2, prefix=changed)
    assert len(again.refusals) == 12
    # What the third request of an honest coordinator says.
    assert len(again.ask(NAMES, digit=2, prefix=before | np.uint64(3 << 56))) == 4


@pytest.mark.parametrize("again", [0], indirect=True)
def test_parties_that_are_asked_for_different_digits_give_noise(again):
    """One of them is asked for the first digit while the others are at the second."""
    late, others = NAMES[0], NAMES[1:]
    prefix = again.asked[late]["prefix"] | np.uint64(8 << 60)
    answers = again.ask(others, digit=1, prefix=prefix)
    again.later -= 100
    answers |= again.ask([late], digit=1, prefix=prefix ^ np.uint64(4 << 60))
    assert np.abs(total(answers, "flags", NAMES)).min() > 2.0**20


STEPS = ("extremes", "sums", "spread", "finish", "size", "norms", "longest", "rows")


@pytest.mark.parametrize("step", STEPS)
def test_every_step_of_scaling_is_taken_once(step):
    """Also the digits of columns' extremes, which their holders read."""

    def around(name, handler):
        def answer(phase, message):
            if phase == f"scale.{step}":
                handler(phase, message)
                if "round" in message:
                    message = {**message, "round": message["round"] + 1}
            return handler(phase, message)

        return answer

    tiles = by_rows(table_of("breast_cancer", 60, scaled=False), 3)
    settings = Settings(lam=0.1, solver="lbfgs", loss="logistic", gap=None, iterations=1)
    scaling = Preprocessing(scaling="standard", unit_rows=True)
    with pytest.raises(ProtocolError, match=r"again, or too early"):
        run(tiles, settings, Terms(), preprocessing=scaling, around=around)
