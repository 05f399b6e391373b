"""Ledgers that forget: runs over other samples, made up until an earlier run is out of memory.

Who has the labels chooses the samples of runs. The first has all of a party's; the others have some
of one half of them, ten more each time, which no guard objects to; the last has all but one sample
of the other half. That sample is the difference of the first run and the last, and the ledger must
still know the first (`test_two_runs` has what the difference shows).
"""

from __future__ import annotations

import numpy as np
import pytest

from weft.privacy.ledger.earlier_samples import Memory

EVERYBODY = np.arange(1, 601, dtype=np.uint64)
LEAST, SAMPLE = 10, 7


def after(others: int) -> Memory:
    """A ledger after a run over everybody, and so many over the last ones."""
    memory = Memory.new()
    memory.remember(EVERYBODY, np.ones(len(EVERYBODY), np.int32), "first")
    for number in range(1, others + 1):
        some = EVERYBODY[200 : 200 + LEAST * number]
        places = np.ones(len(some), np.int32)
        assert memory.set_apart(some, places, LEAST) is None
        memory.remember(some, places, f"run {number}")
    return memory


@pytest.mark.parametrize("others", [0, 8, 20, 31])
def test_runs_over_other_samples_do_not_make_a_ledger_forget(others: int) -> None:
    fewer = np.delete(EVERYBODY, SAMPLE)
    found = after(others).set_apart(fewer, np.ones(len(fewer), np.int32), LEAST)
    assert found is not None
    assert found[0] == "first"
    assert found[2].tolist() == [EVERYBODY[SAMPLE]]


def test_a_ledger_that_is_full_forgets_the_oldest_as_is_admitted() -> None:
    fewer = np.delete(EVERYBODY, SAMPLE)
    assert after(32).set_apart(fewer, np.ones(len(fewer), np.int32), LEAST) is None
