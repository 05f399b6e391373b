"""BFV envelopes: exact sums of words, fresh ciphertexts, and nothing but refusals for bad bytes."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tenseal import sealapi

from covering import examples
from weft.crypto.ciphers import bfv_by_seal
from weft.crypto.ciphers import seal_context_and_file_layouts as seal
from weft.crypto.ciphers.bfv_by_seal import MODULUS, MOST_ADDITIONS, SLOTS, BfvSecret, BfvTotals
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError

FRESH_BYTES = 1 + 46080 + 64
TOTAL_BYTES = 1 + 4 + 2 * 46080
FIRST = np.array([0])


@pytest.fixture(scope="module")
def secret():
    return BfvSecret.new()


def random_words(chunks, seed=0):
    rng = np.random.default_rng(seed)
    words = rng.integers(0, MODULUS, (chunks, SLOTS), dtype=np.uint64)
    words[:, 0], words[:, 1], words[:, -1] = 0, MODULUS - 1, MODULUS - 1
    return words


def constant(word):
    return np.full((1, SLOTS), word, np.uint64)


def test_the_primes_are_those_that_the_library_would_choose():
    chosen = [p.value() for p in sealapi.CoeffModulus.Create(SLOTS, [45, 45, 16])]
    assert chosen == [*seal.PRIMES, seal.SPECIAL_PRIME]
    assert sealapi.PlainModulus.Batching(SLOTS, 50).value() == MODULUS
    assert seal.seal_context().context.parameters_set()


def test_the_noise_of_the_most_additions_is_far_below_what_opens_exactly():
    q = seal.PRIMES[0] * seal.PRIMES[1]
    noise = 21.5 * MOST_ADDITIONS
    assert 20 * noise < q / (2 * MODULUS)


@pytest.mark.parametrize("chunks", [0, 1, 3])
def test_words_come_back(secret, chunks):
    words = random_words(chunks)
    sealed = secret.seal(words)
    assert len(sealed) == chunks * FRESH_BYTES
    np.testing.assert_array_equal(secret.open(sealed, chunks), words)


def test_zeros_come_back(secret):
    np.testing.assert_array_equal(secret.open(secret.seal(constant(0)), 1), constant(0))


def test_another_party_opens_with_the_key_it_was_handed(secret):
    words = random_words(1)
    other = BfvSecret.from_bytes(Secret(secret.to_bytes()))
    np.testing.assert_array_equal(other.open(secret.seal(words), 1), words)
    np.testing.assert_array_equal(secret.open(other.seal(words), 1), words)
    assert other.to_bytes() == secret.to_bytes()


def test_another_key_does_not_open(secret):
    words = random_words(1)
    assert (BfvSecret.new().open(secret.seal(words), 1) != words).mean() > 0.99


def test_the_same_words_are_never_sealed_alike(secret):
    words = np.repeat(random_words(1), 2, axis=0)
    sealed = secret.seal(words)
    frames = [sealed[:FRESH_BYTES], sealed[FRESH_BYTES:], secret.seal(words[:1])]
    assert len(set(frames)) == 3
    assert len({frame[-64:] for frame in frames}) == 3


CONTRIBUTION = st.tuples(st.lists(st.integers(0, 2), min_size=1, max_size=3), st.integers(0, 2**32))


@examples(15, deadline=None)
@given(st.lists(CONTRIBUTION, max_size=5), st.randoms(use_true_random=False))
def test_totals_are_the_sums_in_any_order(secret, contributions, random):
    expected = np.zeros((3, SLOTS), object)
    messages = []
    for chunks, seed in contributions:
        words = random_words(len(chunks), seed)
        np.add.at(expected, chunks, words.astype(object))
        messages.append((np.array(chunks), secret.seal(words)))
    one, other = BfvTotals(3), BfvTotals(3)
    for chunks, sealed in messages:
        one.add(chunks, sealed)
    random.shuffle(messages)
    for chunks, sealed in messages:
        other.add(chunks, sealed)
    taken = one.take(np.arange(3))
    assert other.take(np.arange(3)) == taken
    np.testing.assert_array_equal(secret.open(taken, 3), (expected % MODULUS).astype(np.uint64))


def test_sums_stay_exact_up_to_the_most_additions_and_are_refused_beyond(secret):
    words, totals = random_words(1), BfvTotals(1)
    totals.add(FIRST, secret.seal(words))
    while totals.additions[0] < MOST_ADDITIONS:
        totals.add(FIRST, totals.take(FIRST))
    expected = (words.astype(object) * MOST_ADDITIONS % MODULUS).astype(np.uint64)
    taken = totals.take(FIRST)
    np.testing.assert_array_equal(secret.open(taken, 1), expected)
    with pytest.raises(ProtocolError, match="contributions"):
        totals.add(FIRST, secret.seal(words))
    assert totals.take(FIRST) == taken


def test_one_message_cannot_pass_the_most_additions_piece_by_piece(secret):
    totals = BfvTotals(2)
    totals.add(FIRST, secret.seal(constant(1)))
    totals._additions[0] = MOST_ADDITIONS - 1
    with pytest.raises(ProtocolError, match="contributions"):
        totals.add(np.array([1, 0, 0]), secret.seal(random_words(3)))
    assert totals.additions.tolist() == [MOST_ADDITIONS - 1, 0]
    np.testing.assert_array_equal(secret.open(totals.take(FIRST), 1), constant(1))


def test_additions_are_counted_chunk_by_chunk(secret):
    totals = BfvTotals(3)
    totals.add(np.array([2, 0, 2]), secret.seal(random_words(3)))
    totals.add(np.array([0, 1]), totals.take(np.array([2, 1])))
    assert totals.additions.tolist() == [3, 0, 2]


def test_totals_of_nothing_open_to_zeros(secret):
    totals = BfvTotals(3)
    totals.add(np.array([1]), secret.seal(constant(7)))
    taken = totals.take(np.array([0, 1, 2, 1]))
    assert len(taken) == 2 + 2 * TOTAL_BYTES
    opened = secret.open(taken, 4)
    assert opened[:, 5].tolist() == [0, 7, 0, 7]


def test_a_copy_goes_its_own_way(secret):
    totals = BfvTotals(1)
    totals.add(FIRST, secret.seal(constant(1)))
    twin = totals.copy()
    twin.add(FIRST, secret.seal(constant(2)))
    assert secret.open(totals.take(FIRST), 1)[0, 0] == 1
    assert secret.open(twin.take(FIRST), 1)[0, 0] == 3
    assert (totals.additions[0], twin.additions[0]) == (1, 2)


def test_a_checkpoint_restores_every_bit(secret):
    totals, other = BfvTotals(3), BfvTotals(3)
    totals.add(np.array([2, 0, 2]), secret.seal(random_words(3)))
    other.add(FIRST, secret.seal(random_words(1)))
    other.restore(totals.state())
    assert other.take(np.arange(3)) == totals.take(np.arange(3))
    assert other.additions.tolist() == totals.additions.tolist()


def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(secret):
    totals = BfvTotals(2)
    totals.add(FIRST, secret.seal(constant(5)))
    before = totals.take(np.arange(2))
    state = BfvTotals(3).state()
    for wrong in ({}, state, {"sealed": state["sealed"].astype(np.int64)}):
        with pytest.raises(ProtocolError):
            totals.restore(wrong)
    assert totals.take(np.arange(2)) == before


def refused_or_opened(secret, sealed, chunks):
    """Whatever the bytes, both halves refuse or go on; what opens are words."""
    try:
        words = secret.open(sealed, chunks)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            BfvTotals(chunks).add(np.arange(chunks), sealed)
        return None
    assert (words < MODULUS).all()
    BfvTotals(chunks).add(np.arange(chunks), sealed)
    return words


@settings(deadline=None)
@given(st.binary(max_size=300), st.integers(0, 3))
def test_garbage_is_refused(secret, sealed, chunks):
    # Zero bytes are totals of nothing.
    words = refused_or_opened(secret, sealed, chunks)
    assert (words is not None) == (sealed == bytes(chunks))


@examples(20, deadline=None)
@given(st.data())
def test_flipped_bits_are_refused_or_give_other_words(secret, data):
    words, totals = random_words(1), BfvTotals(1)
    sealed = secret.seal(words)
    totals.add(FIRST, sealed)
    damaged = bytearray(data.draw(st.sampled_from([sealed, totals.take(FIRST)])))
    # The first bytes and the seed are the likeliest to confuse a parser.
    place = st.one_of(st.integers(0, 8), st.integers(-64, -1), st.integers(0, len(damaged) - 1))
    flips = data.draw(st.lists(st.tuples(place, st.integers(1, 255)), min_size=1, max_size=3))
    for at, flip in flips:
        damaged[at] ^= flip
    refused_or_opened(secret, bytes(damaged), 1)


@examples(30, deadline=None)
@given(st.data())
def test_shortened_and_lengthened_bytes_are_refused(secret, data):
    totals = BfvTotals(2)
    totals.add(np.array([1, 1]), secret.seal(random_words(2)))
    sealed = data.draw(st.sampled_from([secret.seal(random_words(2)), totals.take(np.arange(2))]))
    end = data.draw(st.integers(0, len(sealed) - 1))
    extra = data.draw(st.binary(min_size=1, max_size=10))
    for wrong in (sealed[:end], sealed + extra):
        assert refused_or_opened(secret, wrong, 2) is None
    for chunks in (0, 1, 3):
        assert refused_or_opened(secret, sealed, chunks) is None


def test_words_of_other_parameters_are_refused(secret):
    all_bits = bytes([bfv_by_seal._FRESH]) + bytes([255]) * (FRESH_BYTES - 1)
    assert refused_or_opened(secret, all_bits, 1) is None


@pytest.mark.parametrize("count", [0, MOST_ADDITIONS + 1, 2**32 - 1])
def test_totals_that_count_impossibly_are_refused(secret, count):
    totals = BfvTotals(1)
    totals.add(FIRST, secret.seal(constant(1)))
    sealed = totals.take(FIRST)
    assert (
        refused_or_opened(secret, sealed[:1] + count.to_bytes(4, "little") + sealed[5:], 1) is None
    )


def test_totals_that_anyone_could_read_are_refused(secret):
    totals = BfvTotals(1)
    totals.add(FIRST, secret.seal(constant(1)))
    half = totals.take(FIRST)[: 5 + 46080]
    assert refused_or_opened(secret, half + bytes(46080), 1) is None


def test_chunks_that_do_not_exist_are_refused(secret):
    totals, sealed = BfvTotals(2), secret.seal(constant(1))
    for chunk in (-1, 2):
        with pytest.raises(ProtocolError, match="numbered"):
            totals.add(np.array([chunk]), sealed)
        with pytest.raises(ProtocolError, match="numbered"):
            totals.take(np.array([chunk]))


@pytest.mark.parametrize(
    "words",
    [constant(MODULUS), constant(1)[0], constant(1)[:, 1:], constant(1).astype(np.int64)],
    ids=["too large", "no chunks", "too few", "signed"],
)
def test_words_that_cannot_be_sealed_are_refused(secret, words):
    with pytest.raises(ProtocolError):
        secret.seal(words)


@examples(30, deadline=None)
@given(st.data())
def test_damaged_keys_are_refused_without_showing_them(secret, data):
    key = secret.to_bytes()
    at, flip = data.draw(st.integers(0, len(key) - 1)), data.draw(st.integers(1, 255))
    flipped = key[:at] + bytes([key[at] ^ flip]) + key[at + 1 :]
    for wrong in (key[:at], key + b"0", flipped, data.draw(st.binary(max_size=100))):
        with pytest.raises(ProtocolError) as refusal:
            BfvSecret.from_bytes(Secret(wrong))
        assert str(refusal.value) == "a secret key is damaged or was made for another cipher"


def test_keys_of_other_parameters_are_refused():
    body = bytes([255]) * bfv_by_seal._KEY
    with pytest.raises(ProtocolError, match="another cipher"):
        BfvSecret.from_bytes(Secret(body + bfv_by_seal._key_digest(body)))


def test_the_secret_is_neither_shown_nor_pickled(secret):
    assert repr(secret) == str(secret) == "BfvSecret(hidden)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)


def test_the_coordinator_holds_no_secret(secret):
    totals = BfvTotals(1)
    totals.add(FIRST, secret.seal(random_words(1)))
    assert {type(held) for held in vars(totals).values()} == {np.ndarray}
    # What it holds is what it sends, and no key opens that but the cohort's.
    assert secret.to_bytes()[:64] not in totals.take(FIRST)
    assert (BfvSecret.new().open(totals.take(FIRST), 1) != random_words(1)).mean() > 0.99
