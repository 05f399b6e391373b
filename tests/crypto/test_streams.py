"""Pads: as a slow judge computes them word by word, each different, and hard to tamper with."""

from __future__ import annotations

from unittest.mock import patch

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from covering import examples
from weft.crypto.ciphers.block_format import Carried, pad_id_of
from weft.crypto.ciphers.chunk_layout import MODULUS
from weft.crypto.pads import pad_streams
from weft.crypto.pads.cohort_mask_neighbours import MaskRing
from weft.crypto.pads.pad_streams import Streams
from weft.crypto.primitives.prime_field import PRIME, add_modulo, from_halves, multiply
from weft.crypto.secret_bytes import Secret
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

    def block(self, cohort, label, top, other=0):
        """AES_K(x ⊕ S) ⊕ S for x = (label, top), as two words; ``other`` secrets lie in S."""
        seed = (int.from_bytes(self._seeds[cohort], "little") ^ other).to_bytes(16, "little")
        x = label.to_bytes(8, "little") + top.to_bytes(8, "little")
        x = bytes(a ^ b for a, b in zip(x, seed, strict=True))
        y = bytes(a ^ b for a, b in zip(self._aes.update(x), seed, strict=True))
        return int.from_bytes(y[:8], "little"), int.from_bytes(y[8:], "little")

    def pad(self, cohort, label, kind, width, place, entry, seed=0):
        """A number of a slot's pad: words first, then that of the tag."""
        number = place * (width // 2 + 1) + entry // 2
        return self.block(cohort, label, kind << 56 | width << 40 | number, seed)[entry % 2]

    def tag(self, cohort, kind, place, values, signed):
        """A tag, with pads of signed ids under it."""
        total = sum(
            self.block(cohort, 0, 254 << 56 | j)[0] * int(v) for j, v in enumerate(values.tolist())
        )
        for label, sign in signed:
            total += sign * self.pad(cohort, label, kind, len(values), place, len(values))
        return total % PRIME

    def factor(self, cohort):
        return self.block(cohort, 0, 255 << 56)[0] | 1

    def residue(self, cohort, label, kind, word, other=0):
        low, high = self.block(cohort, label, (kind + 64) << 56 | word, other)
        return ((low % (1 << 36)) << 64 | high) % MODULUS


SIZES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
LABELS = st.integers(1, (1 << 63) - 1)


def in_pieces(data):
    """Let few blocks go to the cipher at a time, so that cohorts are cut wherever it may be."""
    return patch.object(pad_streams, "_AT_ONCE", data.draw(st.sampled_from([1, 4, 8192])))


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


def show(streams, kind, slots, hidden, carried, since=0, until=2**63 - 1, **how):
    return streams.show(kind, slots, *hidden[:2], carried, (since, until), "a block", **how)


#: The largest sum of 2^16 products of a number below the prime and one within ±2^50.
_MOST = 2**66 * PRIME


# ── against the judge ─────────────────────────────────────────────────────────────────────────


@given(st.integers(0, PRIME - 1), st.integers(0, PRIME - 1), st.integers(-_MOST, _MOST))
def test_arithmetic_is_that_of_the_prime(a, b, value):
    assert int(multiply(np.uint64(a), np.uint64(b))) == a * b % PRIME
    halves = np.int64(value >> 64), np.uint64(value & (2**64 - 1))
    assert int(from_halves(*halves)) == value % PRIME
    total = np.array([a], np.uint64)
    add_modulo(total, np.array([0, 0]), np.array([b, 2**64 - 1], np.uint64))
    assert int(total[0]) == (a + b + 2**64 - 1) % PRIME


def rings_of(data, cohorts):
    """Neighbours with made-up secrets; some have none."""
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    return [
        MaskRing(
            data.draw(st.integers(1, 1 << 62)),
            random.integers(0, 2**63, (2, cohorts, 2)).astype(np.uint64),
            random.integers(-1, 2, (2, cohorts)).astype(np.int8),
        )
        for _ in range(data.draw(st.integers(0, 2)))
    ]


def masks_of(slow, rings, cohort, kind, width, place, entry):
    """The sum of a party's masks at one number of a slot."""
    total = 0
    for ring in rings:
        for side in range(2):
            low, high = ring.seeds[side, cohort].tolist()
            mask = slow.pad(cohort, ring.context, kind + 16, width, place, entry, high << 64 | low)
            total += int(ring.signs[side, cohort]) * mask
    return total


@examples(60, **RELAXED)
@given(st.data())
def test_words_and_tags_are_those_of_the_judge(data):
    """Values times the factor, or weighed; plus the new pad, less the old, plus masks."""
    sizes = data.draw(SIZES)
    width, kind = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    streams, slow = make(sizes, data.draw(st.integers(0, 99)))
    label = data.draw(st.integers(1 << 20, (1 << 63) - 1))
    minus = np.array(
        [data.draw(st.one_of(st.just(0), st.integers(1, label - 1))) for _ in sizes], np.uint64
    )
    every = places(sizes)
    tails = np.array([data.draw(st.sampled_from([0, 5, 6])) for _ in every], np.uint64)
    chosen = data.draw(st.one_of(st.none(), st.sets(st.integers(0, len(every) - 1), min_size=1)))
    slots = None if chosen is None else np.array(sorted(chosen), np.int32)
    rows = list(range(len(every))) if slots is None else slots.tolist()
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = random.integers(-(2**50), 2**50, (len(rows), width))
    rings = rings_of(data, len(sizes))
    with in_pieces(data):
        hidden = streams.hide(kind, slots, values, label, minus, tails, tails, rings)
    assert hidden.status == 0
    for r, slot in enumerate(rows):
        cohort, place = every[slot]
        before = int(minus[cohort]) or int(tails[slot])
        under = [(label, 1)] + ([(before, -1)] if before else [])
        for j in range(width):
            expected = int(values[r, j]) * slow.factor(cohort)
            for pad_id, sign in under:
                expected += sign * slow.pad(cohort, pad_id, kind, width, place, j)
            expected += masks_of(slow, rings, cohort, kind, width, place, j)
            assert int(hidden.words[r, j]) == expected % WORD
        expected = slow.tag(cohort, kind, place, values[r], under)
        expected += masks_of(slow, rings, cohort, kind, width, place, width)
        assert int(hidden.tags[r]) == expected % PRIME


def chain_of(data):
    """A record that silent parties leave in a chain: signed pad ids."""
    record = {}
    for request in range(data.draw(st.integers(1, 4))):
        old, before = dict(record), None
        for party in range(data.draw(st.integers(1, 4))):
            pad_id = pad_id_of(0, request + 1, party)
            if data.draw(st.booleans()):
                record[pad_id] = record.get(pad_id, 0) + 1
                if before is None:
                    record = {n: s - old.get(n, 0) for n, s in record.items()}
                else:
                    record[before] = record.get(before, 0) - 1
            before = pad_id
        record = {n: s for n, s in record.items() if s}
    return sorted(record.items())


def total_of(slow, every, kind, values, records):
    """Words and tags of totals with such records, by the judge."""
    words, tags = np.zeros(values.shape, np.uint64), np.zeros(len(every), np.uint64)
    width = values.shape[1]
    for slot, (cohort, place) in enumerate(every):
        for j in range(width):
            total = int(values[slot, j]) * slow.factor(cohort)
            for pad_id, sign in records[slot]:
                total += sign * slow.pad(cohort, pad_id, kind, width, place, j)
            words[slot, j] = total % WORD
        tags[slot] = slow.tag(cohort, kind, place, values[slot], records[slot])
    carried = Carried(
        np.ones(len(every), np.uint32),
        np.array([len(record) for record in records], np.uint32),
        np.array([n | SIGN if s < 0 else n for record in records for n, s in record], np.uint64),
    )
    return (words, tags), carried


@examples(60, **RELAXED)
@given(st.data())
def test_totals_open_whatever_records_silent_parties_leave(data):
    sizes = data.draw(SIZES)
    width, kind = data.draw(st.integers(1, 3)), data.draw(st.integers(1, 4))
    streams, slow = make(sizes, data.draw(st.integers(0, 99)))
    every = places(sizes)
    # Rows of a cohort have one record where nobody was silent at some of them alone.
    of_cohorts = [chain_of(data) for _ in sizes]
    alone = data.draw(st.sets(st.integers(0, len(every) - 1)))
    records = [chain_of(data) if r in alone else of_cohorts[c] for r, (c, _) in enumerate(every)]
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    values = random.integers(-(2**49) + 1, 2**49, (len(every), width))
    hidden, carried = total_of(slow, every, kind, values, records)
    with in_pieces(data):
        np.testing.assert_array_equal(show(streams, kind, None, hidden, carried), values)
    changed = values.copy()
    changed[random.integers(len(every)), random.integers(width)] += 1
    other, _ = total_of(slow, every, kind, changed, records)
    with pytest.raises(ProtocolError, match="fails its check"):
        show(streams, kind, None, (other[0], hidden[1]), carried)


def pad(request, party=0):
    return pad_id_of(0, request, party)


@pytest.mark.parametrize(
    "record",
    [
        [(pad(3), -1)],
        [(pad(3), 1), (pad(2), 1), (pad(1), -1)],
        [(pad(3), 1), (pad(2), -1), (pad(1), 1)],
        [(pad(3), 1), (pad(2), 1)],
        [(pad(3), 1), (pad(2), -1)],
        [(pad(3), 1), (pad(3, 1), 1)],
        [(pad(3), 1), (pad(3), 1)],
        [(pad(3), 1), (pad(3), 1), (pad(3), -1)],
    ],
)
def test_no_sum_of_totals_of_several_requests_is_a_total(record):
    """A coordinator can add and subtract totals, and their records: no chain leaves such ones."""
    streams, slow = make([1])
    values = np.array([[5]])
    hidden, carried = total_of(slow, places([1]), 1, values, [record])
    # It may hold this party's contribution.
    with pytest.raises(ProtocolError, match="was sent before, or leaves something out"):
        show(streams, 1, None, hidden, carried, since=pad(1))


def test_what_is_not_chained_is_of_one_request():
    streams, slow = make([1])
    values = np.array([[5]])
    several = total_of(slow, places([1]), 4, values, [[(pad(3), 1), (pad(3, 4), 1)]])
    assert show(streams, 4, None, *several, since=pad(1), chained=False) == 5
    for record in ([(pad(3), 1), (pad(2), 1)], [(pad(3), 1), (pad(3, 4), -1)]):
        forged = total_of(slow, places([1]), 4, values, [record])
        with pytest.raises(ProtocolError, match="was sent before"):
            show(streams, 4, None, *forged, since=pad(1), chained=False)


@examples(20, **RELAXED)
@given(SIZES, st.integers(1, 3), st.data())
def test_residues_of_masks_are_those_of_the_judge(sizes, width, data):
    streams, slow = make(sizes)
    for ring in rings_of(data, len(sizes)):
        found = streams.mask_residues(2, width, ring)
        for slot, (cohort, place) in enumerate(places(sizes)):
            for j in range(width):
                total = 0
                for side in range(2):
                    low, high = ring.seeds[side, cohort].tolist()
                    mask = slow.residue(
                        cohort, ring.context, 2 - 16, place * width + j, high << 64 | low
                    )
                    total += int(ring.signs[side, cohort]) * mask
                assert int(found[slot, j]) == total % MODULUS


@examples(40, **RELAXED)
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


@examples(40, **RELAXED)
@given(SIZES, st.integers(1, 3), st.data())
def test_any_subset_of_slots_opens_alone(sizes, width, data):
    streams, _ = make(sizes)
    n = sum(sizes)
    values = np.arange(n * width, dtype=np.int64).reshape(n, width) - 7
    words, tags, _ = streams.hide(1, None, values, 9 << 20)
    chosen = sorted(data.draw(st.sets(st.integers(0, n - 1), min_size=1)))
    slots = np.array(chosen, np.int32)
    some = words[slots], tags[slots]
    opened = show(streams, 1, slots, some, single([9 << 20] * len(slots)))
    np.testing.assert_array_equal(opened, values[slots])
    part = streams.hide(1, slots, values[slots], 9 << 20)
    np.testing.assert_array_equal(part.words, some[0])
    np.testing.assert_array_equal(part.tags, some[1])


@examples(20, **RELAXED)
@given(SIZES, LABELS)
def test_sums_of_words_and_tags_are_those_of_sums(sizes, label):
    streams, _ = make(sizes)
    one, other = np.random.default_rng(1).integers(-(2**40), 2**40, (2, sum(sizes), 2))
    words, tags, _ = streams.hide(1, None, one, label)
    # The second one puts nothing on: its pad is taken off again, as a chain does.
    more, less = streams.hide(1, None, other, label), streams.hide(1, None, other * 0, label)
    every = np.arange(len(tags))
    add_modulo(tags, every, (more.tags + np.uint64(PRIME) - less.tags) % np.uint64(PRIME))
    total, labels = (words + more.words - less.words, tags), single([label] * len(tags))
    np.testing.assert_array_equal(show(streams, 1, None, total, labels), one + other)
    with pytest.raises(ProtocolError, match="fails its check"):
        show(streams, 2, None, total, labels)
    with pytest.raises(ProtocolError, match="fails its check"):
        show(streams, 1, None, (words, tags), labels)


def test_no_change_of_value_and_tag_passes_that_is_not_the_factors():
    """The change that fits a change of 1 is the factor itself: 61 bits that nobody knows."""
    streams, slow = make([1] * 64)
    words, tags, _ = streams.hide(1, None, np.zeros((64, 1), np.int64), 1 << 20)
    factors = np.array([slow.block(c, 0, 254 << 56)[0] % PRIME for c in range(64)], np.uint64)
    assert len(np.unique(factors)) == 64
    assert int(factors.max()) > 1 << 60
    words += np.array([[slow.factor(c)] for c in range(64)], np.uint64)
    labels, right = single([1 << 20] * 64), (tags + factors) % np.uint64(PRIME)
    assert (show(streams, 1, None, (words, right), labels) == 1).all()
    for bit in range(61):
        off = (right + (np.uint64(1) << np.uint64(bit))) % np.uint64(PRIME)
        with pytest.raises(ProtocolError, match="fails its check"):
            show(streams, 1, None, (words, off), labels)


@pytest.mark.parametrize("newer", [1 << 40, (1 << 40) + (1 << 20), (1 << 63) - 1])
def test_nothing_is_hidden_under_a_chain_that_points_forwards(newer):
    streams, _ = make([2, 3])
    values = np.ones((5, 1), np.int64)
    minus, tails = np.array([0, newer], np.uint64), np.array([0, 0, 0, 0, newer], np.uint64)
    assert streams.hide(1, None, values, 1 << 40, minus).status == 2
    assert streams.hide(1, None, values, 1 << 40, minus * 0, tails, tails).status == 2


def test_nothing_is_hidden_that_leaves_out_what_this_party_put_in():
    streams, _ = make([2, 3])
    values, none = np.ones((5, 1), np.int64), np.zeros(2, np.uint64)
    tails = np.array([0, 0, 0, 0, 3 << 20], np.uint64)
    own = tails + np.uint64(1) * (tails > 0)
    assert streams.hide(1, None, values, 1 << 40, none, tails, tails).status == 0
    assert streams.hide(1, None, values, 1 << 40, none, tails, own).status == 3


# ── different and uniform ─────────────────────────────────────────────────────────────────────


def pads_of(streams, kind, label, width=2):
    """Pads alone: what hides zeros."""
    zeros = np.zeros((len(streams.cohort_of), width), np.int64)
    return streams.hide(kind, None, zeros, label).words


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


def test_a_change_of_a_word_is_small_once_in_sixteen_thousand_and_then_the_tag_fails():
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
    words, tags, _ = streams.hide(1, None, np.zeros((cohorts, 1), np.int64), 1 << 20)
    for i in (*np.flatnonzero(passes), *np.flatnonzero(~passes)[:: tries // 200]):
        slot = cohort[i : i + 1].astype(np.int32)
        with np.errstate(over="ignore"):
            word = words[slot] + changes[i]
        with pytest.raises(ProtocolError, match="fails its check"):
            show(streams, 1, slot, (word, tags[slot]), single([1 << 20]))


def test_changes_of_the_bits_from_the_fiftieth_on_never_pass():
    cohorts = 64
    streams, _ = make([1] * cohorts)
    values = np.random.default_rng(2).integers(-(2**49) + 1, 2**49, (cohorts, 1))
    words, tags, _ = streams.hide(4, None, values, 1 << 20)
    for bits in (*range(1, 40), 1 << 13, (1 << 14) - 1):
        with np.errstate(over="ignore"):
            changed = words + (np.uint64(bits) << np.uint64(50))
        for slot in range(cohorts):
            chosen = np.array([slot], np.int32)
            with pytest.raises(ProtocolError, match="fails its check"):
                show(streams, 4, chosen, (changed[chosen], tags[chosen]), single([1 << 20]))


@pytest.mark.parametrize("value", [2**49, -(2**49), 2**62, -(2**63)])
def test_values_beyond_the_range_never_open(value):
    streams, _ = make([1])
    hidden = streams.hide(1, None, np.array([[value]]), 1 << 20)
    with pytest.raises(ProtocolError, match="fails its check: "):
        show(streams, 1, None, hidden, single([1 << 20]))


@examples(60, **RELAXED)
@given(st.data())
def test_labels_that_do_not_cover_the_slots_are_refused(data):
    """Whatever the runs: too many or too few slots, and labels that are not there."""
    streams, _ = make([2, 3])
    hidden = streams.hide(1, None, np.zeros((5, 1), np.int64), 1 << 20)
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
        opened = show(streams, 1, None, hidden, carried)
    except ProtocolError:
        return
    assert sum(lengths) == 5
    assert (opened == 0).all()


@pytest.mark.parametrize("labels", [[], [1 << 20], [1 << 20] * 3])
def test_labels_of_another_number_of_cohorts_are_refused(labels):
    streams, _ = make([2, 3])
    hidden = streams.hide(1, None, np.zeros((5, 1), np.int64), 1 << 20)
    carried = Carried(None, None, np.array(labels, np.uint64))
    with pytest.raises(ProtocolError, match="other cohorts"):
        show(streams, 1, None, hidden, carried)


def test_totals_older_than_ones_own_contribution_are_refused():
    streams, _ = make([2, 3])
    hidden = streams.hide(1, None, np.zeros((5, 1), np.int64), 7 << 20)
    carried = Carried(None, None, np.full(2, 7 << 20, np.uint64))
    show(streams, 1, None, hidden, carried, since=7 << 20)
    show(streams, 1, None, hidden, carried, until=8 << 20)
    with pytest.raises(ProtocolError, match="older than this party's own"):
        show(streams, 1, None, hidden, carried, until=7 << 20)
    with pytest.raises(ProtocolError, match="older than this party's own contribution"):
        show(streams, 1, None, hidden, carried, since=(7 << 20) + 1)
