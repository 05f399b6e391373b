"""Keyed sums beside what is opened: which changes they tell, and how surely."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from sealed_runs import CUTS, cut, table, train

from weft.crypto.pads.pads_all_parties_know import CHUNK, SUMS, keyed_sums
from weft.crypto.primitives.seeded_words import seeded_words
from weft.errors import ProtocolError
from weft.solvers.secret_sharing.messages import POINT, SCORES, PointRequest, ScoresRequest


def words(number, *shape):
    return seeded_words(b"k" * 32, str(number), *shape)


@pytest.mark.parametrize("count", [1, 1023, 1025, CHUNK, 2 * CHUNK + 7])
def test_sums_are_those_of_shifted_keys(count):
    keys, told = words(1, CHUNK + SUMS - 1), words(2, count)
    expected = [
        [(keys[s : s + len(part)] * part).sum() for s in range(SUMS)]
        for part in (told[at : at + CHUNK] for at in range(0, count, CHUNK))
    ]
    assert np.array_equal(keyed_sums(told, keys), np.array(expected))


@pytest.mark.parametrize("places", [[0], [5, 6], [0, 1, 2, 3, 9, 40]])
def test_a_change_of_highest_bits_is_told_by_each_sum_in_half_of_all_cases(places):
    """Over 2,000 keys all 16 sums are fair coins, and any two of them independent."""
    change = np.zeros(64, np.uint64)
    change[places] = 1 << 63
    drawn = words(3, 2000, 64 + SUMS - 1)
    told = np.array([keyed_sums(change, keys)[0] for keys in drawn]) >> np.uint64(63)
    assert np.abs(told.mean(axis=0) - 0.5).max() < 5 * 0.5 / np.sqrt(len(drawn))
    together = np.corrcoef(told.astype(float).T) - np.eye(SUMS)
    assert np.abs(together).max() < 5 / np.sqrt(len(drawn))


@pytest.mark.parametrize(("bits", "count", "sums"), [(1, 6, 4), (2, 3, 2), (3, 2, 2)])
def test_no_sums_of_a_change_are_likelier_than_others(bits, count, sums):
    """All changes under all keys, in small rings: sums are uniform among multiples of 2^t."""
    ring = 1 << bits
    keys = np.array(list(product(range(ring), repeat=count + sums - 1)))
    for change in product(range(ring), repeat=count):
        if not any(change):
            continue
        odd = min(entry & -entry for entry in change if entry)
        found = [keys[:, s : s + count] @ change % ring for s in range(sums)]
        times = np.unique(np.stack(found, axis=1), axis=0, return_counts=True)[1]
        assert len(times) == (ring // odd) ** sums
        assert len(set(times.tolist())) == 1


def test_a_coordinator_that_was_caught_has_no_second_guess():
    """A change of one highest bit passes once in 2^16: with a guess for each point, it would."""
    block, labels = table()
    federation, _ = train(cut(block, labels, CUTS["vertical"]), gap=0.5)
    halves = [party._half for party in federation.parties.values()]
    problems, numbers = np.zeros(1, np.int64), [half._serial for half in halves]
    factors = np.zeros((len(halves[0]._vectors), 1), np.int64)
    assert len(set(numbers)) == 1

    def ask(half, phase, request, **fields):
        serial = half._serial + 1
        message = request(round=10**6 + serial, serial=serial, **fields)
        return half.phases()[phase.name].handle(message)

    def point(half):
        masks = np.zeros(block.shape[1], np.uint64) if half._last else None
        told = {"problems": problems, "point": factors, "masks": masks}
        return ask(half, POINT, PointRequest, **told).point

    total = sum(point(half) for half in halves)
    total[0] ^= np.uint64(1 << 63)
    for guess, half in enumerate(halves):
        guessed = total.copy()
        guessed[-SUMS] ^= np.uint64(guess << 63)
        with pytest.raises(ProtocolError, match="changed on its way"):
            ask(half, SCORES, ScoresRequest, point=guessed)
        with pytest.raises(ProtocolError, match="over here"):
            point(half)
