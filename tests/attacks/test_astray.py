"""Blocks that reach a party which does not hold them, by mistake or because the coordinator likes.

Breast cancer, two groups of samples × two of features. r1c1 gets the feature sums of r1c2, whose
columns it does not hold, and tries all keys that it has. Unguarded is a model with one key for all
parties and nothing under it; then the blocks that Weft sends, under ``pad`` and under ``bfv``.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import PAIRS, Diary, by_both, run, table_of

from weft.crypto.ciphers.bfv_by_seal import BfvSecret
from weft.crypto.ciphers.block_format import KIND_CODES, read_block, words_of
from weft.crypto.ciphers.chunk_layout import CHECKS, MODULUS
from weft.crypto.ciphers.seal_context_and_file_layouts import SLOTS
from weft.crypto.fixed_point import FixedPoint
from weft.crypto.secret_bytes import Secret
from weft.errors import WeftError
from weft.solvers.run_settings import Settings

THIEF, HOLDER = "r1c1", "r1c2"
ITERATION = 4


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", 160)


def settings(cipher):
    return Settings(lam=0.01, gap=None, iterations=ITERATION, norms="cohort", cipher=cipher)


def totals(party, phase, message, opened):
    """What the holder itself opens."""
    found = [values[:, 0] for kind, _, values in opened if kind == "v"]
    if phase != "hyfdca.weights" or not found:
        return {}
    return {"v": found[0], "packed": message["v"], "own": party}


def stolen(table, cipher):
    """The last block for the holder, what is in it (as integers), and the thief with its keys."""
    diary, thief = Diary(totals), Diary(totals)
    diaries = {HOLDER: diary, THIEF: thief}
    found = run(by_both(table, 2, 2), settings(cipher), PAIRS, diaries=diaries, encrypted=True)
    half = found.party(HOLDER)._half
    unit = FixedPoint(half.bounds.v, "v").unit
    truth = np.rint(diary.all("v")[-1] / unit).astype(np.int64)
    assert (truth != 0).all()
    return diary.all("packed")[-1], thief.all("packed")[-1], truth, found.party(THIEF)


def test_one_key_for_all_opens_everything(table, record):
    """Naive: BFV, whose key all parties share."""
    _, _, truth, _ = stolen(table, "pad")
    key = BfvSecret.new()
    words = np.zeros((1, SLOTS), np.uint64)
    words[0, : len(truth)] = truth % MODULUS
    block = key.seal(words)
    handed = BfvSecret.from_bytes(Secret(key.to_bytes()))
    opened = handed.open(block, 1)[0, : len(truth)]
    right = int((opened == truth % MODULUS).sum())
    assert right == len(truth) == 15
    record("14", "unguarded", f"{right} of {len(truth)} values")


def test_pads_of_a_cohort_stay_with_its_holders(table, record):
    """Weft: r1c1 has the run's key, but not the cohort's seed, and tries those that it has."""
    packed, _, truth, thief = stolen(table, "pad")
    block = read_block(packed, "v")
    words = words_of(block, "v")[:, 0]
    right = tried = 0
    for streams in set(thief._cipher._streams.values()):
        for cohort in range(streams.cohorts):
            begin, end = streams.start[cohort : cohort + 2]
            zeros = np.zeros((min(len(words), int(end - begin)), 1), np.int64)
            slots = np.arange(begin, begin + len(zeros), dtype=np.int32)
            for label in np.unique(block.carried.pad_ids).tolist():
                pads = streams.hide(KIND_CODES["v"], slots, zeros, label).words
                with np.errstate(over="ignore"):
                    guess = (words[: len(pads)] - pads[:, 0]) * streams._book[cohort, 3]
                right += int((guess.view(np.int64) == truth[: len(pads)]).sum())
                tried += len(pads)
    assert tried >= 2 * len(truth)
    assert right == 0
    record("14", "guarded", f"pad: 0 of {tried} tries")


@pytest.mark.release
def test_a_chunk_of_bfv_holds_pads_under_foreign_slots(table, record):
    """Weft: chunks go whole, so r1c1 opens the others' slots too, and finds pads."""
    packed, own, truth, thief = stolen(table, "bfv")
    right = 0
    for block in (packed, own):
        body = bytes(read_block(block, "v").body)
        labels = int(np.frombuffer(body, np.uint32, 1)[0])
        sealed = body[4 + 8 * labels + 8 * CHECKS :]
        words = thief._cipher._key.open(sealed, 1)[0]
        filled = words[words != 0]
        assert len(filled) == 30
        right += int(np.isin(truth % MODULUS, filled).sum())
    assert right == 0
    record("14", "guarded", f"bfv: 0 of {len(truth)} values in the chunk")


@pytest.mark.parametrize("cipher", ["pad", "bfv"])
def test_a_party_of_weft_that_is_given_a_foreign_block_stops(table, cipher):
    kept: dict[str, bytes] = {}

    def around(name, handler):
        def answer(phase, message):
            if phase == "hyfdca.weights" and message["iteration"] == 2:
                kept[name] = message["v"]
                if name == HOLDER:
                    message = {**message, "v": kept[THIEF]}
            return handler(phase, message)

        return answer

    with pytest.raises(WeftError, match=f"party {HOLDER}: .*block of feature sums"):
        run(by_both(table, 2, 2), settings(cipher), PAIRS, around=around)
