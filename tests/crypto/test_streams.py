"""Pads: as a slow judge computes them word by word, each different, and hard to tamper with."""

from __future__ import annotations

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covering import examples
from weft.crypto.ciphers.block_format import Carried, pad_id_of
from weft.crypto.ciphers.chunk_layout import MODULUS
from weft.crypto.identities import Secret
from weft.crypto.pads.pad_streams import Streams
from weft.errors import ProtocolError

KEY = bytes(range(100, 132))
SIGN = 1 << 63
WORD = 1 << 64
#: Other work on the same machine must not fail a test.
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


class Slow:
    """The pads once more, with the library's AES, one word at a time."""

    def __init__(self, key, seeds):
        self._aes = Cipher(algorithms.AES(key), modes.ECB()).encryptor()
        self._seeds = seeds

    def block(self, cohort, label, top):
        """AES_K(x ⊕ S) ⊕ S for x = (label, top), as two words."""
        seed = self._seeds[cohort]
        x = label.to_bytes(8, "little") + top.to_bytes(8, "little")
        x = bytes(a ^ b for a, b in zip(x, seed, strict=True))
        y = bytes(a ^ b for a, b in zip(self._aes.update(x), seed, strict=True))
        return int.from_bytes(y[:8], "little"), int.from_bytes(y[8:], "little")

    def pad(self, cohort, label, kind, word):
        return self.block(cohort, label, kind << 56 | word >> 1)[word & 1]

    def factor(self, cohort):
        return self.block(cohort, 0, 255 << 56)[0] | 1

    def residue(self, cohort, label, kind, word):
        low, high = self.block(cohort, label, (kind + 64) << 56 | word)
        return ((low % (1 << 36)) << 64 | high) % MODULUS


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
LABELS = st.integers(1, (1 << 63) - 1)


def make(sizes, seed=0, key=KEY):
    """Streams over cohorts of these sizes, and their judge."""
    seeds = np.random.default_rng(seed).integers(0, 256, (len(sizes), 16), np.uint8)
    start = np.concatenate([[0], np.cumsum(sizes)]).astype(np.int64)
    slow = Slow(key, [row.tobytes() for row in seeds])
    return Streams(Secret(key), seeds, start), slow


def places(sizes):
    """Cohort of every slot, and its place there."""
    return [(c, i) for c, size in enumerate(sizes) for i in range(size)]


def single(labels):
    """One label a slot."""
    lengths = np.ones(len(labels), np.uint32)
    return Carried(lengths, None, np.array(labels, np.uint64))


def show(streams, kind, slots, words, carried, since=0, unit=1.0):
    return streams.show(kind, slots, words, carried, since, unit, "a block")


# ── against the judge ─────────────────────────────────────────────────────────────────────────


@examples(60, **RELAXED)
@given(st.data())
def test_words_are_values_times_the_factor_plus_the_new_pad_less_the_old(data):
    sizes = data.draw(SIZES)
    width, kind = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    streams, slow = make(sizes, data.draw(st.integers(0, 99)))
    label = data.draw(st.integers(1 << 20, (1 << 63) - 1))
    minus = np.array(
        [data.draw(st.one_of(st.just(0), st.integers(1, label - 1))) for _ in sizes], np.uint64
    )
    every = places(sizes)
    chosen = data.draw(st.one_of(st.none(), st.sets(st.integers(0, len(every) - 1), min_size=1)))
    slots = None if chosen is None else np.array(sorted(chosen), np.int32)
    rows = list(range(len(every))) if slots is None else slots.tolist()
    values = np.array(
        data.draw(
            st.lists(
                st.lists(st.integers(-(2**50), 2**50), min_size=width, max_size=width),
                min_size=len(rows),
                max_size=len(rows),
            )
        ),
        np.int64,
    )
    words, status = streams.hide(kind, slots, values, label, minus)
    assert status == 0
    for r, slot in enumerate(rows):
        cohort, place = every[slot]
        for j in range(width):
            word, before = place * width + j, int(minus[cohort])
            expected = int(values[r, j]) * slow.factor(cohort)
            expected += slow.pad(cohort, label, kind, word)
            expected -= slow.pad(cohort, before, kind, word) if before else 0
            assert int(words[r, j]) == expected % WORD


@examples(60, **RELAXED)
@given(st.data())
def test_totals_open_whatever_labels_they_carry(data):
    """Runs of slots with none, one or several signed labels, made by the judge."""
    sizes = data.draw(SIZES)
    width, kind = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    streams, slow = make(sizes, data.draw(st.integers(0, 99)))
    every = places(sizes)
    lists = [
        data.draw(st.lists(st.tuples(LABELS, st.booleans()), max_size=3)) for _ in range(len(every))
    ]
    values = data.draw(
        st.lists(
            st.integers(-(2**49) + 1, 2**49 - 1),
            min_size=len(every) * width,
            max_size=len(every) * width,
        )
    )
    values = np.array(values, np.int64).reshape(-1, width)
    words = np.zeros(values.shape, np.uint64)
    for slot, (cohort, place) in enumerate(every):
        for j in range(width):
            total = int(values[slot, j]) * slow.factor(cohort)
            for label, off in lists[slot]:
                pad = slow.pad(cohort, label, kind, place * width + j)
                total += -pad if off else pad
            words[slot, j] = total % WORD
    carried = Carried(
        np.ones(len(every), np.uint32),
        np.array([len(labels) for labels in lists], np.uint32),
        np.array([n | SIGN if off else n for labels in lists for n, off in labels], np.uint64),
    )
    opened = show(streams, kind, None, words, carried, unit=0.5)
    np.testing.assert_array_equal(opened, values * 0.5)


@settings(max_examples=40, **RELAXED)
@given(SIZES, st.integers(1, 4), LABELS, LABELS)
def test_residues_are_those_of_the_judge(sizes, width, label, other):
    streams, slow = make(sizes)
    every = places(sizes)
    labels = np.array([[label] * len(every), [other | SIGN] * len(every)], np.uint64)
    found = streams.residues(2, width, labels)
    for slot, (cohort, place) in enumerate(every):
        for j in range(width):
            word = place * width + j
            expected = slow.residue(cohort, label, 2, word) - slow.residue(cohort, other, 2, word)
            assert int(found[slot, j]) == expected % MODULUS


@settings(max_examples=40, **RELAXED)
@given(SIZES, st.integers(1, 3), st.data())
def test_any_subset_of_slots_opens_alone(sizes, width, data):
    streams, _ = make(sizes)
    n = sum(sizes)
    values = np.arange(n * width, dtype=np.int64).reshape(n, width) - 7
    words, _ = streams.hide(1, None, values, 9 << 20)
    chosen = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    slots = np.array(chosen, np.int32)
    opened = show(streams, 1, slots, words[slots], single([9 << 20] * len(slots)))
    np.testing.assert_array_equal(opened, values[slots])
    part, _ = streams.hide(1, slots, values[slots], 9 << 20)
    np.testing.assert_array_equal(part, words[slots])


@settings(max_examples=40, **RELAXED)
@given(SIZES, st.data())
def test_tails_are_taken_off_where_a_party_leads(sizes, data):
    """Where the cohort's label is zero, every slot has its own."""
    streams, slow = make(sizes)
    every = places(sizes)
    label = 1 << 40
    minus = np.array([data.draw(st.sampled_from([0, 5 << 20])) for _ in sizes], np.uint64)
    tails = np.array([data.draw(st.integers(0, 9)) << 20 for _ in every], np.uint64)
    values = np.ones((len(every), 1), np.int64)
    words, status = streams.hide(3, None, values, label, minus, tails)
    assert status == 0
    for slot, (cohort, place) in enumerate(every):
        before = int(minus[cohort]) or int(tails[slot])
        expected = slow.factor(cohort) + slow.pad(cohort, label, 3, place)
        expected -= slow.pad(cohort, before, 3, place) if before else 0
        assert int(words[slot, 0]) == expected % WORD


@pytest.mark.parametrize("newer", [1 << 40, (1 << 40) + 1, (1 << 63) - 1])
def test_nothing_is_hidden_under_a_chain_that_points_forwards(newer):
    streams, _ = make([2, 3])
    values = np.ones((5, 1), np.int64)
    minus, tails = np.array([0, newer], np.uint64), np.array([0, 0, 0, 0, newer], np.uint64)
    assert streams.hide(1, None, values, 1 << 40, minus)[1] == 2
    assert streams.hide(1, None, values, 1 << 40, minus * 0, tails)[1] == 2


# ── different and uniform ─────────────────────────────────────────────────────────────────────


def pads_of(streams, kind, label, width=2):
    """Pads alone: what hides zeros."""
    zeros = np.zeros((len(streams.cohort_of), width), np.int64)
    return streams.hide(kind, None, zeros, label)[0]


def test_labels_kinds_cohorts_slots_and_keys_all_give_other_pads():
    found = [
        pads_of(make([3, 1, 2], seed, key)[0], kind, pad_id_of(epoch, round_, party)).ravel()
        for key in (KEY, bytes(32))
        for seed in (0, 1)
        for kind in (1, 2, 3, 4)
        for epoch in (0, 1)
        for round_ in (1, 2)
        for party in (0, 1)
    ]
    words = np.concatenate(found)
    assert len(np.unique(words)) == len(words) == 2 * 2 * 4 * 8 * 12


def test_pads_of_words_and_of_residues_have_nothing_in_common():
    """They come from other blocks: no kind of one is a kind of the other."""
    _, slow = make([4])
    words = {slow.block(0, 7 << 20, kind << 56 | i) for kind in (1, 2, 3, 4) for i in range(8)}
    wide = {
        slow.block(0, 7 << 20, (kind + 64) << 56 | i) for kind in (1, 2, 3, 4) for i in range(8)
    }
    factor = {slow.block(0, 0, 255 << 56)}
    assert len(words | wide | factor) == len(words) + len(wide) + 1 == 65


def chi_squared(counts):
    expected = counts.sum() / len(counts)
    return float(((counts - expected) ** 2 / expected).sum())


def test_pads_are_uniform_bytes():
    streams, _ = make([1 << 15])
    words = pads_of(streams, 2, 3 << 20, 2)
    drawn = words.view(np.uint8).ravel()
    # 255 degrees of freedom: 255 ± 22.6.
    assert 140 < chi_squared(np.bincount(drawn, minlength=256)) < 380
    pairs = drawn[:-1].astype(int) // 16 * 16 + drawn[1:] // 16
    assert 140 < chi_squared(np.bincount(pairs, minlength=256)) < 380
    bits = np.unpackbits(drawn).mean()
    assert abs(bits - 0.5) < 0.002
    # No word of a pad says anything of its neighbour, or of the same word under the next label.
    other = pads_of(streams, 2, 4 << 20, 2)
    for a, b in ((words[:, 0], words[:, 1]), (words[:-1, 0], words[1:, 0]), (words, other)):
        same = np.unpackbits((a ^ b).view(np.uint8)).mean()
        assert abs(same - 0.5) < 0.002


def test_residues_are_uniform_below_the_modulus():
    streams, _ = make([1 << 14])
    found = streams.residues(1, 2, np.full((1, 1 << 14), 5 << 20, np.uint64)).ravel()
    assert int(found.max()) < MODULUS
    bins = (found.astype(np.float64) / MODULUS * 256).astype(int)
    assert 140 < chi_squared(np.bincount(bins, minlength=256)) < 380


def test_factors_are_odd_secret_and_different():
    _, slow = make([1] * 500)
    factors = [slow.factor(c) for c in range(500)]
    assert all(f % 2 for f in factors)
    assert len(set(factors)) == 500
    high = np.array([f >> 56 for f in factors])
    assert chi_squared(np.bincount(high // 16, minlength=16)) < 50


# ── changes ───────────────────────────────────────────────────────────────────────────────────


def test_one_changed_word_in_sixteen_thousand_passes():
    """A change d of a word becomes d / factor of the value: 14 bits must be right by chance."""
    cohorts = 256
    streams, slow = make([1] * cohorts)
    inverse = np.array([pow(slow.factor(c), -1, WORD) for c in range(cohorts)], np.uint64)
    random = np.random.default_rng(1)
    tries = 1 << 20
    changes = random.integers(1, WORD, tries, np.uint64, endpoint=False)
    # Half of them flip one bit below the fiftieth: the changes that are easiest to make.
    changes[::2] = np.uint64(1) << random.integers(0, 50, tries // 2).astype(np.uint64)
    cohort = np.arange(tries) % cohorts
    with np.errstate(over="ignore"):
        values = (changes * inverse[cohort]).view(np.int64)
    passes = np.abs(values) < 1 << 49
    # Binomial with mean 64; single bits repeat over cohorts, which widens it a little.
    assert 16 <= passes.sum() <= 160
    words, _ = streams.hide(1, None, np.zeros((cohorts, 1), np.int64), 1 << 20)

    def taken(i):
        slot = np.array([cohort[i]], np.int32)
        with np.errstate(over="ignore"):
            word = words[slot] + changes[i]
        try:
            return show(streams, 1, slot, word, single([1 << 20]))[0, 0]
        except ProtocolError:
            return None

    for i in np.flatnonzero(passes).tolist():
        assert taken(i) == float(values[i])
    for i in np.flatnonzero(~passes)[:: tries // 1000].tolist():
        assert taken(i) is None


def test_changes_of_the_bits_from_the_fiftieth_on_never_pass():
    cohorts = 64
    streams, _ = make([1] * cohorts)
    values = np.random.default_rng(2).integers(-(2**49) + 1, 2**49, (cohorts, 1))
    words, _ = streams.hide(4, None, values, 1 << 20)
    for bits in (*range(1, 40), 1 << 13, (1 << 14) - 1):
        with np.errstate(over="ignore"):
            changed = words + (np.uint64(bits) << np.uint64(50))
        for slot in range(cohorts):
            chosen = np.array([slot], np.int32)
            with pytest.raises(ProtocolError, match="fails its check"):
                show(streams, 4, chosen, changed[chosen], single([1 << 20]))


@pytest.mark.parametrize("value", [2**49, -(2**49), 2**62, -(2**63)])
def test_values_beyond_the_range_never_open(value):
    streams, _ = make([1])
    words, _ = streams.hide(1, None, np.array([[value]]), 1 << 20)
    with pytest.raises(ProtocolError, match="fails its check: "):
        show(streams, 1, None, words, single([1 << 20]))


@examples(60, **RELAXED)
@given(st.data())
def test_labels_that_do_not_cover_the_slots_are_refused(data):
    """Whatever the runs: too many or too few slots, and labels that are not there."""
    streams, _ = make([2, 3])
    words, _ = streams.hide(1, None, np.zeros((5, 1), np.int64), 1 << 20)
    runs = data.draw(st.integers(0, 5))
    lengths = data.draw(st.lists(st.integers(0, 2**32 - 1), min_size=runs, max_size=runs))
    counts = data.draw(
        st.one_of(st.none(), st.lists(st.integers(0, 2**32 - 1), min_size=runs, max_size=runs))
    )
    known = data.draw(st.integers(0, 6))
    carried = Carried(
        np.array(lengths, np.uint32),
        None if counts is None else np.array(counts, np.uint32),
        np.full(known, 1 << 20, np.uint64),
    )
    try:
        opened = show(streams, 1, None, words, carried)
    except ProtocolError:
        return
    assert sum(lengths) == 5
    assert (opened == 0).all()


@pytest.mark.parametrize("labels", [[], [1 << 20], [1 << 20] * 3])
def test_labels_of_another_number_of_cohorts_are_refused(labels):
    streams, _ = make([2, 3])
    words, _ = streams.hide(1, None, np.zeros((5, 1), np.int64), 1 << 20)
    carried = Carried(None, None, np.array(labels, np.uint64))
    with pytest.raises(ProtocolError, match="other cohorts"):
        show(streams, 1, None, words, carried)


def test_totals_older_than_ones_own_contribution_are_refused():
    streams, _ = make([2, 3])
    words, _ = streams.hide(1, None, np.zeros((5, 1), np.int64), 7 << 20)
    carried = Carried(None, None, np.full(2, 7 << 20, np.uint64))
    show(streams, 1, None, words, carried, since=7 << 20)
    with pytest.raises(ProtocolError, match="older than this party's own contribution"):
        show(streams, 1, None, words, carried, since=(7 << 20) + 1)
