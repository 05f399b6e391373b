"""The oblivious function: the vectors of RFC 9497, and what its proofs refuse."""

from __future__ import annotations

import copy
import pickle
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.crypto.party_key_pairs import Identity
from weft.crypto.primitives import oprf, ristretto
from weft.crypto.primitives.multiscalar import weighted_sum
from weft.crypto.primitives.oprf import OprfKey, blind, finalize, matching_key, unblind, verify
from weft.crypto.primitives.ristretto import ORDER, WIDTH, GroupError, add, multiply, random_scalars
from weft.crypto.secret_bytes import Secret

# RFC 9497, appendix A.1.2: ristretto255-SHA512, VOPRF mode.
SEED = bytes.fromhex("a3" * 32)
KEY_INFO = bytes.fromhex("74657374206b6579")
SK = "e6f73f344b79b379f1a0dd37e07ff62e38d9f71345ce62ae3a9bc60b04ccd909"
PK = "c803e2cc6b05fc15064549b5920659ca4a77b2cca6f04f6b357009335476ad4e"
BLIND = "64d37aed22a27f5191de1c1d69fadb899d8862b58eb4220029e036ec4c1f6706"
SECOND_BLIND = "222a5e897cf59db8145db8d16e597e8facb80ae7d4e26d9881aa6f61d645fc0e"
OUTPUTS = [
    "b58cfbe118e0cb94d79b5fd6a6dafb98764dff49c14e1770b566e42402da1a7d"
    "a4d8527693914139caee5bd03903af43a491351d23b430948dd50cde10d32b3c",
    "8a9a2f3c7f085b65933594309041fc1898d42d0858e59f90814ae90571a6df60"
    "356f4610bf816f27afdd84f47719e480906d27ecd994985890e5f539e7ea74b6",
]
VECTORS = {
    "A.1.2.1": {
        "input": ["00"],
        "blind": [BLIND],
        "blinded": ["863f330cc1a1259ed5a5998a23acfd37fb4351a793a5b3c090b642ddc439b945"],
        "evaluated": ["aa8fa048764d5623868679402ff6108d2521884fa138cd7f9c7669a9a014267e"],
        "proof": "ddef93772692e535d1a53903db24367355cc2cc78de93b3be5a8ffcc6985dd06"
        "6d4346421d17bf5117a2a1ff0fcb2a759f58a539dfbe857a40bce4cf49ec600d",
        "random": "222a5e897cf59db8145db8d16e597e8facb80ae7d4e26d9881aa6f61d645fc0e",
        "output": OUTPUTS[:1],
    },
    "A.1.2.2": {
        "input": ["5a" * 17],
        "blind": [BLIND],
        "blinded": ["cc0b2a350101881d8a4cba4c80241d74fb7dcbfde4a61fde2f91443c2bf9ef0c"],
        "evaluated": ["60a59a57208d48aca71e9e850d22674b611f752bed48b36f7a91b372bd7ad468"],
        "proof": "401a0da6264f8cf45bb2f5264bc31e109155600babb3cd4e5af7d181a2c9dc0a"
        "67154fabf031fd936051dec80b0b6ae29c9503493dde7393b722eafdf5a50b02",
        "random": "222a5e897cf59db8145db8d16e597e8facb80ae7d4e26d9881aa6f61d645fc0e",
        "output": OUTPUTS[1:],
    },
    "A.1.2.3": {
        "input": ["00", "5a" * 17],
        "blind": [BLIND, SECOND_BLIND],
        "blinded": [
            "863f330cc1a1259ed5a5998a23acfd37fb4351a793a5b3c090b642ddc439b945",
            "90a0145ea9da29254c3a56be4fe185465ebb3bf2a1801f7124bbbadac751e654",
        ],
        "evaluated": [
            "aa8fa048764d5623868679402ff6108d2521884fa138cd7f9c7669a9a014267e",
            "cc5ac221950a49ceaa73c8db41b82c20372a4c8d63e5dded2db920b7eee36a2a",
        ],
        "proof": "cc203910175d786927eeb44ea847328047892ddf8590e723c37205cb74600b0a"
        "5ab5337c8eb4ceae0494c2cf89529dcf94572ed267473d567aeed6ab873dee08",
        "random": "419c4f4f5052c53c45f3da494d2b67b220d02118e0857cdbcf037f9ea84bbe0c",
        "output": OUTPUTS,
    },
}


def joined(texts):
    return b"".join(bytes.fromhex(text) for text in texts)


def test_the_key_pair_is_that_of_the_rfc():
    key = OprfKey.derive(Secret(SEED), KEY_INFO)
    assert key._scalar == Secret(bytes.fromhex(SK))
    assert key.public.hex() == PK


@pytest.mark.parametrize("name", VECTORS)
def test_vectors_of_the_rfc(name):
    vector = VECTORS[name]
    inputs = [bytes.fromhex(text) for text in vector["input"]]
    key = OprfKey(Secret(bytes.fromhex(SK)))
    blinds, blinded = blind(inputs, joined(vector["blind"]))
    assert blinded == joined(vector["blinded"])
    evaluated = key.evaluate(blinded)
    assert evaluated == joined(vector["evaluated"])
    proof = key.prove(blinded, evaluated, bytes.fromhex(vector["random"]))
    assert proof.hex() == vector["proof"]
    verify(key.public, blinded, evaluated, proof)
    outputs = finalize(inputs, unblind(evaluated, blinds))
    assert [output.hex() for output in outputs] == vector["output"]


# ── proofs ────────────────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def answered():
    """A key, a request over more than a batch would hold, and its answer."""
    key = matching_key(Identity.new())
    inputs = [f"id {i}".encode() for i in range(40)]
    blinds, blinded = blind(inputs)
    evaluated = key.evaluate(blinded)
    return key, inputs, blinds, blinded, evaluated


@pytest.fixture
def small_batches(monkeypatch):
    monkeypatch.setattr(oprf, "BATCH", 16)


def test_every_batch_has_its_proof(answered, small_batches):
    key, _, _, blinded, evaluated = answered
    proofs = key.prove(blinded, evaluated)
    assert len(proofs) == 3 * oprf.PROOF
    verify(key.public, blinded, evaluated, proofs)
    swapped = proofs[64:128] + proofs[:64] + proofs[128:]
    with pytest.raises(GroupError, match="proof does not belong"):
        verify(key.public, blinded, evaluated, swapped)
    with pytest.raises(GroupError, match="a proof for each batch"):
        verify(key.public, blinded, evaluated, proofs[:-64])


def test_one_element_under_another_key_is_noticed(answered, small_batches):
    key, _, _, blinded, evaluated = answered
    other = matching_key(Identity.new()).evaluate(blinded[-WIDTH:])
    mixed = evaluated[:-WIDTH] + other
    with pytest.raises(GroupError, match="proof does not belong"):
        verify(key.public, blinded, mixed, key.prove(blinded, mixed))


def test_another_public_key_is_noticed(answered):
    key, _, _, blinded, evaluated = answered
    other = matching_key(Identity.new())
    with pytest.raises(GroupError, match="proof does not belong"):
        verify(other.public, blinded, evaluated, key.prove(blinded, evaluated))


def test_two_elements_that_change_places_are_noticed(answered):
    key, _, _, blinded, evaluated = answered
    swapped = evaluated[32:64] + evaluated[:32] + evaluated[64:]
    with pytest.raises(GroupError, match="proof does not belong"):
        verify(key.public, blinded, swapped, key.prove(blinded, evaluated))


def test_a_proof_with_a_number_too_large_is_refused(answered):
    """s and s + order are the same scalar; only one of them is a proof."""
    key, _, _, blinded, evaluated = answered
    proof = key.prove(blinded, evaluated)
    large = (int.from_bytes(proof[32:], "little") + ORDER).to_bytes(32, "little")
    with pytest.raises(GroupError, match="proof does not belong"):
        verify(key.public, blinded, evaluated, proof[:32] + large)


#: From RFC 9496, appendix A.2: bytes that are no element.
NO_ELEMENTS = {
    "not below p": "00ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
    "p itself": "edffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "negative": "0100000000000000000000000000000000000000000000000000000000000000",
    "no square": "26948d35ca62e643e26a83177332e6b6afeb9d08e4268b650f1f5bbd8d81d371",
    "negative xy": "3eb858e78f5a7254d8c9731174a94f76755fd3941c0ac93735c07ba14579630e",
    "y is zero": "ecffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff7f",
    "neutral": "00" * 32,
}


@pytest.mark.parametrize("name", NO_ELEMENTS)
def test_what_is_no_element_is_refused_everywhere(answered, name):
    key, _, _, blinded, evaluated = answered
    wrong = bytes.fromhex(NO_ELEMENTS[name])
    with pytest.raises(GroupError, match="not valid"):
        key.evaluate(blinded + wrong)
    with pytest.raises(GroupError, match="not valid"):
        weighted_sum(random_scalars(2), blinded[:WIDTH] + wrong)
    with pytest.raises(GroupError, match="not valid"):
        verify(key.public, blinded, wrong + evaluated[WIDTH:], bytes(oprf.PROOF))


def test_a_list_that_ends_within_an_element_is_refused(answered):
    key, _, _, blinded, _ = answered
    with pytest.raises(GroupError, match="no multiple of 32"):
        key.evaluate(blinded[:-1])


# ── the group ─────────────────────────────────────────────────────────────────────────────────


@examples(25, deadline=None)
@given(st.integers(1, 70), st.integers(0, 2**32))
def test_weighted_sums_are_those_of_libsodium(n, seed):
    random = Random(seed)
    elements = b"".join(ristretto.from_uniform(random.randbytes(64)) for _ in range(n))
    # Small and large weights, and some that are equal.
    chosen = [random.choice([1, 2, ORDER - 1, random.randrange(1, ORDER)]) for _ in range(n)]
    weights = b"".join(w.to_bytes(32, "little") for w in chosen)
    products = multiply(weights, elements)
    total = products[:WIDTH]
    for at in range(WIDTH, len(products), WIDTH):
        total = add(total, products[at : at + WIDTH])
    assert weighted_sum(weights, elements) == total


def test_long_lists_are_spread_over_threads_in_their_order(monkeypatch):
    monkeypatch.setattr(ristretto, "_FEW", 4)
    monkeypatch.setattr(ristretto, "_PIECE", 3)
    monkeypatch.setattr(ristretto, "threads", lambda: 3)
    inputs = [f"id {i}".encode() for i in range(11)]
    blinds, blinded = blind(inputs)
    for i in range(11):
        alone = blind(inputs[i : i + 1], blinds[32 * i : 32 * i + 32])[1]
        assert blinded[32 * i : 32 * i + 32] == alone
    assert unblind(blinded, blinds) == oprf.hash_to_group(inputs)


def test_keys_one_after_the_other_work_in_either_order():
    inputs = [b"a", b"b"]
    one, two = (matching_key(Identity.new()) for _ in range(2))
    found = []
    for first, second in ((one, two), (two, one)):
        blinds, blinded = blind(inputs)
        found.append(finalize(inputs, unblind(second.evaluate(first.evaluate(blinded)), blinds)))
    assert found[0] == found[1]
    assert found[0][0] != found[0][1]


def test_blinds_hide_equal_inputs():
    _, blinded = blind([b"a", b"a"])
    assert blinded[:32] != blinded[32:]


# ── keys ──────────────────────────────────────────────────────────────────────────────────────


def test_a_matching_key_follows_from_the_identity_and_does_not_show_itself():
    identity = Identity.new()
    key = matching_key(identity)
    again = matching_key(Identity.from_private(identity.private()))
    assert key.public == again.public
    assert key.public != matching_key(Identity.new()).public
    assert key._scalar.reveal().hex() not in repr(key)
    for way in (pickle.dumps, copy.deepcopy):
        with pytest.raises(TypeError, match="never pickled"):
            way(key)
