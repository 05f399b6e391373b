"""Paillier envelopes: exact sums of words, fresh ciphertexts, and only refusals for bad bytes."""

from __future__ import annotations

import pickle

import gmpy2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from phe import paillier as phe

from covering import examples
from weft.crypto.ciphers.paillier_scheme import PaillierSecret, PaillierTotals, _key_digest
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, ProtocolError

BITS = 512
WIDTH = BITS // 4
WORD = st.integers(0, 2**64 - 1)


@pytest.fixture(scope="module")
def secret():
    return PaillierSecret.new(BITS)


def array(*words):
    return np.array(words, np.uint64)


def modulus_of(secret):
    return int.from_bytes(secret.public(), "big")


def primes_of(secret):
    key, half = secret.to_bytes(), BITS // 16
    return int.from_bytes(key[:half], "big"), int.from_bytes(key[half : 2 * half], "big")


@examples(30, deadline=None)
@given(st.lists(WORD, max_size=5))
def test_words_come_back(secret, words):
    sealed = secret.seal(array(*words))
    assert len(sealed) == WIDTH * len(words)
    np.testing.assert_array_equal(secret.open(sealed, len(words)), array(*words))


def test_a_sum_is_what_another_implementation_decrypts(secret, monkeypatch):
    """And no power with a secret exponent takes a time that depends on it."""
    p, q = primes_of(secret)
    judge = phe.PaillierPrivateKey(phe.PaillierPublicKey(p * q), p, q)
    words = array(0, 1, 2**63 + 5, 2**64 - 1)
    totals = PaillierTotals(secret.public(), 4)
    for _ in range(3):
        totals.add(np.arange(4), secret.seal(words))
    sealed = totals.take(np.arange(4))
    apart = [int.from_bytes(sealed[i : i + WIDTH], "big") for i in range(0, len(sealed), WIDTH)]
    assert [judge.raw_decrypt(value) for value in apart] == [3 * int(word) for word in words]
    monkeypatch.setattr(gmpy2, "powmod", None)
    np.testing.assert_array_equal(secret.open(sealed, 4), 3 * words)


def test_keys_of_full_length_seal_and_add():
    secret = PaillierSecret.new()
    words = array(0, 1, 2**64 - 1)
    sealed = secret.seal(words)
    assert len(sealed) == 3 * 512
    totals = PaillierTotals(secret.public(), 3)
    totals.add(np.arange(3), sealed)
    totals.add(np.arange(3), sealed)
    np.testing.assert_array_equal(secret.open(totals.take(np.arange(3)), 3), words + words)


def test_another_party_opens_with_the_key_it_was_handed(secret):
    other = PaillierSecret.from_bytes(Secret(secret.to_bytes()))
    assert other.public() == secret.public()
    np.testing.assert_array_equal(other.open(secret.seal(array(3, 4)), 2), array(3, 4))


def test_the_same_word_is_never_sealed_alike(secret):
    sealed = secret.seal(array(*[7] * 100))
    assert len({sealed[i : i + WIDTH] for i in range(0, len(sealed), WIDTH)}) == 100


def test_what_hides_a_word_is_a_power_of_n(secret):
    # A ciphertext of 0 is r^n mod n²: exactly the elements whose order divides φ(n).
    n = modulus_of(secret)
    p, q = primes_of(secret)
    sealed = secret.seal(array(0))
    residue = int.from_bytes(sealed, "big")
    assert pow(residue, (p - 1) * (q - 1), n * n) == 1
    assert residue not in (0, 1)


@examples(20, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 2), WORD), max_size=20), st.randoms())
def test_totals_are_the_sums_in_any_order(secret, contributions, random):
    expected = [sum(word for slot, word in contributions if slot == s) for s in range(3)]
    sealed = [(np.array([slot]), secret.seal(array(word))) for slot, word in contributions]
    one, other = (PaillierTotals(secret.public(), 3) for _ in range(2))
    for message in sealed:
        one.add(*message)
    random.shuffle(sealed)
    for message in sealed:
        other.add(*message)
    taken = one.take(np.arange(3))
    assert other.take(np.arange(3)) == taken
    assert secret.open(taken, 3).tolist() == [total % 2**64 for total in expected]


def test_sums_stay_exact_over_many_additions(secret):
    first, totals = np.array([0]), PaillierTotals(secret.public(), 1)
    totals.add(first, secret.seal(array(2**64 - 3)))
    for _ in range(100):
        totals.add(first, totals.take(first))
    totals.add(first, secret.seal(array(5)))
    assert secret.open(totals.take(first), 1).tolist() == [((2**64 - 3) * 2**100 + 5) % 2**64]


def test_a_slot_may_occur_more_than_once(secret):
    totals = PaillierTotals(secret.public(), 2)
    totals.add(np.array([1, 1, 0]), secret.seal(array(1, 2, 4)))
    assert secret.open(totals.take(np.array([1, 0, 1])), 3).tolist() == [3, 4, 3]


def test_totals_of_nothing_open_to_zero(secret):
    totals = PaillierTotals(secret.public(), 4)
    assert secret.open(totals.take(np.arange(4)), 4).tolist() == [0] * 4


def test_a_copy_goes_its_own_way(secret):
    first, totals = np.array([0]), PaillierTotals(secret.public(), 1)
    totals.add(first, secret.seal(array(1)))
    twin = totals.copy()
    twin.add(first, secret.seal(array(2)))
    assert secret.open(totals.take(first) + twin.take(first), 2).tolist() == [1, 3]


def test_a_checkpoint_restores_every_bit(secret):
    totals, other = PaillierTotals(secret.public(), 3), PaillierTotals(secret.public(), 3)
    totals.add(np.array([2, 0]), secret.seal(array(8, 9)))
    other.restore(totals.state())
    assert other.take(np.arange(3)) == totals.take(np.arange(3))


def test_a_checkpoint_that_does_not_fit_is_refused_and_changes_nothing(secret):
    totals = PaillierTotals(secret.public(), 2)
    totals.add(np.array([0]), secret.seal(array(5)))
    before = totals.take(np.arange(2))
    state = PaillierTotals(secret.public(), 3).state()
    for wrong in ({}, state, {"sealed": state["sealed"].astype(np.int64)}):
        with pytest.raises(ProtocolError):
            totals.restore(wrong)
    assert totals.take(np.arange(2)) == before


def refused_or_opened(secret, sealed, count):
    """Whatever the bytes, both halves refuse or go on."""
    totals = PaillierTotals(secret.public(), count)
    try:
        words = secret.open(sealed, count)
    except ProtocolError:
        with pytest.raises(ProtocolError):
            totals.add(np.arange(count), sealed)
        return None
    totals.add(np.arange(count), sealed)
    return words


@settings(deadline=None)
@given(st.binary(max_size=3 * WIDTH), st.integers(0, 2))
def test_garbage_of_another_length_is_refused(secret, sealed, count):
    words = refused_or_opened(secret, sealed, count)
    assert words is None or len(sealed) == count * WIDTH


@settings(deadline=None)
@given(st.binary(min_size=WIDTH, max_size=WIDTH))
def test_garbage_of_the_right_length_is_refused_or_opens_to_some_word(secret, sealed):
    in_range = 0 < int.from_bytes(sealed, "big") < modulus_of(secret) ** 2
    assert (refused_or_opened(secret, sealed, 1) is not None) == in_range


@settings(deadline=None)
@given(st.integers(0, 2 * WIDTH - 1), st.integers(1, 255))
def test_damaged_bytes_are_refused_or_give_other_words(secret, at, flip):
    sealed = secret.seal(array(1, 2))
    flipped = sealed[:at] + bytes([sealed[at] ^ flip]) + sealed[at + 1 :]
    words = refused_or_opened(secret, flipped, 2)
    assert words is None or words.tolist() != [1, 2]
    assert refused_or_opened(secret, sealed[:at], 2) is None
    assert refused_or_opened(secret, sealed + flipped[:1], 2) is None


def test_values_that_share_a_factor_with_the_modulus_open_to_some_word(secret):
    p, _ = primes_of(secret)
    for value in (p, p**2, modulus_of(secret)):
        assert refused_or_opened(secret, value.to_bytes(WIDTH, "big"), 1) is not None


def test_slots_that_do_not_exist_are_refused(secret):
    totals = PaillierTotals(secret.public(), 2)
    for slot in (-1, 2):
        with pytest.raises(ProtocolError, match="numbered"):
            totals.add(np.array([slot]), secret.seal(array(1)))
        with pytest.raises(ProtocolError, match="numbered"):
            totals.take(np.array([slot]))


def test_a_refused_message_changes_no_total(secret):
    totals = PaillierTotals(secret.public(), 2)
    with pytest.raises(ProtocolError, match="fit the public key"):
        totals.add(np.arange(2), secret.seal(array(1)) + bytes(WIDTH))
    assert secret.open(totals.take(np.arange(2)), 2).tolist() == [0, 0]


@pytest.mark.parametrize("words", [array(1).astype(np.int64), array(1)[np.newaxis]])
def test_words_that_cannot_be_sealed_are_refused(secret, words):
    with pytest.raises(ProtocolError):
        secret.seal(words)


@pytest.mark.parametrize("bits", [0, 496, 513, 2**20])
def test_keys_of_odd_lengths_are_not_made(bits):
    with pytest.raises(ConfigError, match="512 to 8192"):
        PaillierSecret.new(bits)


@settings(deadline=None)
@given(st.data())
def test_damaged_keys_are_refused_without_showing_them(secret, data):
    key = secret.to_bytes()
    at, bit = data.draw(st.integers(0, len(key) - 1)), data.draw(st.integers(0, 7))
    flipped = key[:at] + bytes([key[at] ^ 1 << bit]) + key[at + 1 :]
    garbage = data.draw(st.binary(max_size=2 * len(key)))
    for wrong in (key[:at], key + b"0", flipped, garbage):
        with pytest.raises(ProtocolError) as refusal:
            PaillierSecret.from_bytes(Secret(wrong))
        assert str(refusal.value) == "a secret key is damaged or was made for another cipher"


def test_keys_that_are_not_two_primes_are_refused(secret):
    p, q = (prime.to_bytes(BITS // 16, "big") for prime in primes_of(secret))
    even = q[:-1] + b"\x00"
    for body in (p + p, p + even, even + q, p + bytes(len(q)), bytes(len(p + q))):
        with pytest.raises(ProtocolError, match="secret key"):
            PaillierSecret.from_bytes(Secret(body + _key_digest(body)))


@settings(deadline=None)
@given(st.binary(max_size=2 * BITS))
def test_damaged_public_keys_are_refused(public):
    n = int.from_bytes(public, "big")
    if len(public) >= BITS // 8 and n.bit_length() == 8 * len(public) and n % 2:
        return
    with pytest.raises(ProtocolError, match="public key"):
        PaillierTotals(public, 1)


def test_keys_too_long_to_compute_with_are_refused():
    with pytest.raises(ProtocolError, match="secret key"):
        PaillierSecret.from_bytes(Secret(bytes([255]) * 10**6))
    with pytest.raises(ProtocolError, match="public key"):
        PaillierTotals(bytes([255]) * 10**6, 1)


def test_the_secret_is_neither_shown_nor_pickled(secret):
    assert repr(secret) == str(secret) == "PaillierSecret(hidden)"
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(secret)


def test_the_coordinator_holds_no_secret(secret):
    totals = PaillierTotals(secret.public(), 1)
    totals.add(np.array([0]), secret.seal(array(1)))
    held = vars(totals)
    assert set(held) == {"_n2", "_width", "_totals"}
    assert gmpy2.isqrt(held["_n2"]) == modulus_of(secret)
