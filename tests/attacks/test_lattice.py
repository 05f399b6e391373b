"""BFV is malleable and its noise speaks: what naive uses of it give away.

Weft never had these weaknesses. So each is first shown on a model of the naive protocol, made of
the same primitives (:class:`BfvSecret`), and then tried on blocks that Weft's ``bfv`` cipher makes.
The words are real ones: digits, 64 rows of 64 pixels a ciphertext.
"""

from __future__ import annotations

import lattice
import numpy as np
import pytest
from lattice import DEVIATION, polynomials, question, sealed_of
from scene import by_rows, run, table_of

from weft.crypto.ciphers.bfv_by_seal import BfvSecret
from weft.crypto.ciphers.block_format import read_block
from weft.crypto.ciphers.chunk_layout import CHECKS, MODULUS
from weft.crypto.ciphers.cipher_arguments_and_results import Outgoing
from weft.crypto.ciphers.paillier_and_bfv_ciphers import BfvCipher
from weft.crypto.ciphers.seal_context_and_file_layouts import SLOTS
from weft.crypto.pads.pad_streams import Streams
from weft.crypto.secret_bytes import Secret
from weft.data import load
from weft.errors import WeftError
from weft.protocol.shared_fields import PadLinks, SumRequest
from weft.solvers.run_settings import Settings


@pytest.fixture(scope="module")
def key():
    return BfvSecret.new()


@pytest.fixture(scope="module")
def pictures():
    """Words of one ciphertext after the other: pixels in fixed point."""
    pixels = np.asarray(load("digits").block)[: 28 * 64] / 16.0
    return np.rint(pixels * 2**40).astype(np.uint64).reshape(28, SLOTS)


# ── blinding by the coordinator ───────────────────────────────────────────────────────────────


def likelier(sealed: bytes, key, first: np.ndarray, second: np.ndarray) -> int:
    """Which of two contents a blinded ciphertext has, by its noise alone.

    Whoever has the key reads m + r. If m is the first, then r follows, and so does what rounding
    m and r has added to the noise: the rest must look like SEAL's errors.
    """
    words, noise = lattice.opened(*polynomials(sealed), key)
    scores = []
    for guess in (lattice.whole(first), lattice.whole(second)):
        added = lattice.rounding(guess) + lattice.rounding((words - guess) % MODULUS)
        rest = ((noise - added) / MODULUS).astype(np.float64)
        scores.append(-(rest**2).sum() / (2 * DEVIATION**2))
    return int(np.argmax(scores))


@pytest.mark.release
def test_what_a_coordinator_blinds_shows_through_the_noise(key, pictures, record):
    """Naive: the coordinator adds a random plaintext where the receiver shall not read."""
    rng = np.random.default_rng(1)
    mine, right = lattice.key_of(key), 0
    for trial in range(20):
        pair = rng.permutation(len(pictures))[:2]
        truth = int(rng.integers(2))
        c0, c1 = polynomials(key.seal(pictures[pair[truth]][None]))
        blind = rng.integers(0, MODULUS, SLOTS).astype(object)
        blinded = sealed_of((c0 + lattice.scaled(blind)) % lattice.Q, c1)
        # The plaintext itself says nothing at all.
        assert (key.open(blinded, 1)[0] != pictures[pair[truth]]).all(), trial
        right += likelier(blinded, mine, pictures[pair[0]], pictures[pair[1]]) == truth
    assert right >= 19
    record("9", "unguarded", f"{right} of 20 guesses right")


def sender(key: BfvSecret, seed: int) -> BfvCipher:
    """A party of Weft that holds a cohort of 4,096 features, which the attacker does not."""
    cipher = BfvCipher()
    rng = np.random.default_rng(seed)
    seeds = np.frombuffer(rng.bytes(16), np.uint8).reshape(1, 16)
    streams = Streams(Secret(rng.bytes(32)), seeds, np.array([0, SLOTS]))
    cipher.take_key(key)
    cipher.take_streams(streams, streams)
    cipher.take_places(Secret(rng.bytes(32)), np.arange(SLOTS), np.arange(SLOTS))
    return cipher


def block_of(cipher: BfvCipher, round_: int, words: np.ndarray) -> bytes:
    """A contribution of feature sums as it crosses the channel: the ciphertext in it."""
    nothing = np.zeros(1, np.uint64)
    pads = PadLinks(chain=nothing, checks=nothing)
    cipher.begin(SumRequest(round=round_))
    packed = cipher.contribute(Outgoing("v", None, words.astype(np.int64)[:, None], pads))
    return bytes(read_block(packed, "v").body)[8 * CHECKS :]


@pytest.mark.release
def test_what_holders_pad_does_not(key, pictures, record):
    """Weft: holders' pads lie under the ciphertext, so that the noise is that of a random word."""
    rng = np.random.default_rng(2)
    cipher, mine, trials, right = sender(key, 2), lattice.key_of(key), 30, 0
    for trial in range(trials):
        pair = rng.permutation(len(pictures))[:2]
        truth = int(rng.integers(2))
        sealed = block_of(cipher, trial + 1, pictures[pair[truth]])
        right += likelier(sealed, mine, pictures[pair[0]], pictures[pair[1]]) == truth
    # Of a fair coin, less than once in 10^5 further from the middle.
    assert abs(right - trials / 2) <= 11
    record("9", "guarded", f"{right} of {trials}, as a coin")


# ── crafted ciphertexts ───────────────────────────────────────────────────────────────────────


def test_a_crafted_ciphertext_decrypts_to_the_key(key, pictures, record):
    """Naive: a party opens what comes and tells the result, as under "weights"."""
    told = key.open(question(), 1)[0]
    stolen = lattice.key_in(told)
    assert set(np.unique(stolen).tolist()) == {-1, 0, 1}
    read = 0
    for words in pictures[:5]:
        # From now on the coordinator opens everybody's contributions by itself.
        found, _ = lattice.opened(*polynomials(key.seal(words[None])), stolen)
        read += int((found == lattice.whole(words)).all())
    assert read == 5
    record("10", "unguarded", f"the key, {SLOTS} of {SLOTS} coefficients; {read} of 5 blocks read")


class Forger:
    """A coordinator that puts a crafted ciphertext into a total, and waits for the answer."""

    def __init__(self, chunk: bytes) -> None:
        self.chunk = chunk
        self.answers: list[dict] = []
        self.forged = 0

    def around(self, name, handler):
        def answer(phase, message):
            if phase == "hyfdca.fused" and name == "p1" and message["iteration"] == 3:
                message = {**message, "v": self._crafted(message["v"])}
                self.forged += 1
                self.answers.append(handler(phase, message))
            return handler(phase, message)

        return answer

    def _crafted(self, packed: bytes) -> bytes:
        body = bytes(read_block(packed, "v").body)
        labels = int(np.frombuffer(body, np.uint32, 1)[0])
        # Labels and check words of the true total stay as they are.
        return packed[: len(packed) - len(body)] + body[: 4 + 8 * labels + 8 * CHECKS] + self.chunk


def crafted_chunks() -> dict[str, bytes]:
    zeros, one = np.zeros(SLOTS, object), np.zeros(SLOTS, object)
    one[7] = 1 + lattice.Q // MODULUS
    c0 = zeros.copy()
    c0[0] = lattice.Q // 2
    return {
        "the key": question(),
        "one coefficient against a threshold": sealed_of(c0, one),
        "nothing encrypted": sealed_of(c0, zeros),
    }


@pytest.mark.parametrize("name", crafted_chunks())
def test_weft_refuses_crafted_ciphertexts_and_says_nothing(name, record):
    """Three parties, the coordinator may see w: the one that opens a total would tell it."""
    forger = Forger(crafted_chunks()[name])
    how = Settings(
        lam=0.01, cipher="bfv", coordinator_sees="weights", gap=None, iterations=5, norms="cohort"
    )
    with pytest.raises(WeftError, match=r"party p1: .* (fails its check|cannot be opened)"):
        run(by_rows(table_of("breast_cancer", 90), 3), how, around=forger.around)
    assert forger.forged == 1
    assert forger.answers == []
    if name == "the key":
        record("10", "guarded", f"refused, nothing told ({len(crafted_chunks())} kinds)")


# ── encryptions of zero ───────────────────────────────────────────────────────────────────────


def apart(one: bytes, other: bytes) -> np.ndarray:
    """m − m' of two ciphertexts that share an encryption of zero: without any key."""
    (c0, _), (d0, _) = polynomials(one), polynomials(other)
    return lattice.unscaled((c0 - d0) % lattice.Q)


def test_an_encryption_of_zero_used_twice_gives_differences_away(key, pictures, record):
    """Naive: zeros are encrypted ahead of time, and one of them serves two contributions."""
    z0, z1 = polynomials(key.seal(np.zeros((1, SLOTS), np.uint64)))
    one, other = (
        sealed_of((z0 + lattice.scaled(lattice.whole(words))) % lattice.Q, z1)
        for words in pictures[:2]
    )
    truth = (lattice.whole(pictures[0]) - lattice.whole(pictures[1])) % MODULUS
    right = int((apart(one, other) == truth).sum())
    assert right == SLOTS
    record("11", "unguarded", f"{right} of {SLOTS} differences")


def test_weft_encrypts_afresh(key, pictures, record):
    """Every chunk of a run has a seed of its own, and differences of c0 say nothing."""
    cipher = sender(key, 3)
    blocks = [block_of(cipher, k + 1, words) for k, words in enumerate(pictures[:6])]
    seeds = {block[-64:] for block in blocks}
    assert len(seeds) == len(blocks)
    right = 0
    for k in range(5):
        truth = (lattice.whole(pictures[k]) - lattice.whole(pictures[k + 1])) % MODULUS
        right += int((apart(blocks[k], blocks[k + 1]) == truth).sum())
    assert right == 0
    record("11", "guarded", f"0 of {5 * SLOTS}; no seed twice")
