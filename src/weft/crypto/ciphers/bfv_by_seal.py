"""Sums of 50-bit words under BFV, a lattice scheme: 4,096 words in one ciphertext.

SEAL, through TenSEAL's ``sealapi``, makes keys, encrypts, decrypts and expands seeds. Its
bindings read and write only files (:mod:`weft.crypto.ciphers.seal_context_and_file_layouts`); this
module keeps its own wire format, and nothing that arrives from outside reaches SEAL before every
word of it is checked.

A word is a coefficient of the plaintext polynomial, not a batched slot: only sums are needed,
and both add word by word modulo t.

Why sums are exact
------------------
A fresh ciphertext (c0, c1) of m satisfies c0 + c1·s = q·m/t + v (mod q) in each coefficient,
where v is the encryption error plus the rounding of q·m/t. SEAL draws errors from a centred
binomial distribution on [−21, 21] (a Gaussian cut at 19.2 where it is built so), and rounds to
the nearest integer, hence |v| ≤ 21.5. There is no other term: symmetric encryption neither
multiplies by a public key nor switches the modulus. The sum of n ciphertexts satisfies

    Σ c0 + s·Σ c1 = q·(Σ m)/t + Σ v (mod q),   |Σ v| ≤ 21.5·n,

and replacing Σ m by its remainder modulo t changes the right side by a multiple of q, that is,
not at all. Rounding t/q times this returns Σ m mod t while 21.5·n < q/(2t). Here q/(2t) is
5.5·10^11 and n ≤ 2^30 gives 2.4·10^10; the factor of 23 between them absorbs the inexactness
of SEAL's own rounding, which is below 2^-50 of q/t.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn

import numba
import numpy as np
from numpy.typing import NDArray
from tenseal import sealapi  # type: ignore[import-untyped]

from weft.crypto.ciphers.chunk_layout import MODULUS
from weft.crypto.ciphers.seal_context_and_file_layouts import (
    POLY,
    PRIMES,
    SEED,
    SLOTS,
    SPECIAL_PRIME,
    Scratch,
    expand_seed,
    seal_context,
)
from weft.errors import ProtocolError
from weft.numba_options import OUTER

if TYPE_CHECKING:
    # The coordinator, which adds with this module, loads nothing that can hold a secret.
    from weft.crypto.secret_bytes import Secret

Words = NDArray[np.uint64]

#: No total may hold more fresh ciphertexts than this (see the proof above).
MOST_ADDITIONS = 2**30

_BITS = 45
_PACKED = POLY * _BITS // 8

# A frame is a kind, for totals the number of additions, and the packed words.
_EMPTY, _FRESH, _TOTAL = 0, 1, 2
_COUNT = 4
_BODY = {_EMPTY: 0, _FRESH: _PACKED + SEED, _TOTAL: _COUNT + 2 * _PACKED}

_DIGEST = 16
_KEY = _PACKED + 2 * SLOTS


class BfvSecret:
    """The key that all parties of one cohort hold: seals words and opens totals."""

    def __init__(self, key: Any) -> None:
        seal = seal_context()
        self._key = key
        self._encryptor = sealapi.Encryptor(seal.context, key)
        self._decryptor = sealapi.Decryptor(seal.context, key)

    @classmethod
    def new(cls) -> BfvSecret:
        return cls(sealapi.KeyGenerator(seal_context().context).secret_key())

    @classmethod
    def from_bytes(cls, secret: Secret) -> BfvSecret:
        """The key that ``to_bytes`` wrote."""
        # No frame that raises has a part of the key among its local variables.
        key = _key_of(secret)
        if key is None:
            raise ProtocolError("a secret key is damaged or was made for another cipher")
        return cls(key)

    def to_bytes(self) -> bytes:
        """The key itself: only for parties of the same cohort, over a private channel."""
        with Scratch() as scratch:
            self._key.save(scratch.path)
            words = seal_context().key.words(scratch.read(), POLY + SLOTS)
        body = _pack(words[:POLY]).tobytes() + words[POLY:].astype("<u2").tobytes()
        return body + _key_digest(body)

    def seal(self, words: Words) -> bytes:
        """Encrypt words of shape (chunks, 4096), each below the modulus, freshly.

        SEAL draws c1 from a seed; the 64 bytes of the seed travel in its place.
        """
        if words.ndim != 2 or words.shape[1] != SLOTS or words.dtype != np.uint64:
            raise ProtocolError(f"words to seal must be 64-bit, unsigned and {SLOTS} to a chunk")
        if (words >= MODULUS).any():
            raise ProtocolError(f"a word to seal is not below the modulus {MODULUS}")
        seal, plain, parts = seal_context(), sealapi.Plaintext(), []
        with Scratch() as scratch:
            for chunk in words:
                scratch.write(seal.plain.file(chunk))
                plain.load(seal.context, scratch.path)
                self._encryptor.encrypt_symmetric(plain).save(scratch.path)
                content = seal.fresh.content(scratch.read(), POLY)
                c0 = seal.fresh.words_in(content, POLY)
                parts += [bytes([_FRESH]), _pack(c0).tobytes(), content[-SEED:]]
        return b"".join(parts)

    def open(self, sealed: bytes, chunks: int) -> Words:
        """Decrypt frames that ``seal`` or ``BfvTotals.take`` wrote."""
        words = np.zeros((chunks, SLOTS), np.uint64)
        seal, plain, cipher = seal_context(), sealapi.Plaintext(), sealapi.Ciphertext()
        with Scratch() as scratch:
            for chunk, frame in zip(words, _split(sealed, chunks), strict=True):
                if frame.kind == _EMPTY:
                    continue
                layout = seal.fresh if frame.kind == _FRESH else seal.total
                scratch.write(layout.file(frame.words, frame.seed))
                cipher.load(seal.context, scratch.path)
                self._decryptor.decrypt(cipher, plain)
                plain.save(scratch.path)
                # SEAL drops the zeros of the highest powers.
                count = plain.coeff_count()
                chunk[:count] = seal.plain.words(scratch.read(), count)
        return words

    def __repr__(self) -> str:
        return "BfvSecret(hidden)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a secret key is not pickled; use to_bytes where it may travel")


def _key_of(secret: Secret) -> Any:
    """SEAL's key, or None for one that is none."""
    content = secret.reveal()
    body, digest = content[:_KEY], content[_KEY:]
    # Nearly every string of the right length would pass for a key, and a damaged key gives wrong
    # sums in silence: hence the digest.
    if len(body) != _KEY or digest != _key_digest(body):
        return None
    words, special = _unpack(body[:_PACKED]), np.frombuffer(body[_PACKED:], "<u2")
    if not _reduced(words) or (special >= SPECIAL_PRIME).any():
        return None
    seal, key = seal_context(), sealapi.SecretKey()
    with Scratch() as scratch:
        scratch.write(seal.key.file(np.append(words, special.astype(np.uint64))))
        key.load(seal.context, scratch.path)
    return key


class BfvTotals:
    """The coordinator's half: running totals of sealed chunks that it cannot read.

    Parameters
    ----------
    chunks
        How many totals of 4,096 words to keep. Each takes 128 KiB once something was added.
    """

    def __init__(self, chunks: int) -> None:
        self._additions = np.zeros(chunks, np.int64)
        self._words = np.zeros((chunks, 2 * POLY), np.uint64)

    @property
    def additions(self) -> NDArray[np.int64]:
        """How many fresh ciphertexts each total holds."""
        return self._additions.copy()

    def add(self, chunks: NDArray[np.int64], sealed: bytes) -> None:
        """Add sealed chunk i to total ``chunks[i]``; a refusal changes nothing."""
        self._check(chunks)
        # Split twice: all is checked before the first total changes, and never all unpacked.
        counts = [frame.additions for frame in _split(sealed, len(chunks))]
        additions = self._additions.copy()
        np.add.at(additions, chunks, np.array(counts, np.int64))
        if (additions > MOST_ADDITIONS).any():
            raise ProtocolError(
                f"a total would hold more than {MOST_ADDITIONS} contributions, "
                "beyond which it could not be opened exactly"
            )
        with Scratch() as scratch:
            for chunk, frame in zip(chunks, _split(sealed, len(chunks)), strict=True):
                total = self._words[chunk]
                _add(total, frame.words)
                if frame.kind == _FRESH:
                    _add(total[POLY:], expand_seed(frame.seed, scratch))
        self._additions = additions

    def take(self, chunks: NDArray[np.int64]) -> bytes:
        """Some totals, framed as ``BfvSecret.open`` expects them."""
        self._check(chunks)
        parts = []
        for chunk in chunks:
            additions = int(self._additions[chunk])
            if additions == 0:
                parts.append(bytes([_EMPTY]))
            else:
                head = bytes([_TOTAL]) + additions.to_bytes(_COUNT, "little")
                parts += [head, _pack(self._words[chunk]).tobytes()]
        return b"".join(parts)

    def copy(self) -> BfvTotals:
        twin = BfvTotals(0)
        twin._additions = self._additions.copy()
        twin._words = self._words.copy()
        return twin

    def state(self) -> dict[str, NDArray[Any]]:
        """All totals as arrays for a checkpoint."""
        sealed = self.take(np.arange(len(self._additions)))
        return {"sealed": np.frombuffer(sealed, np.uint8).copy()}

    def restore(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take up the totals of a checkpoint; a refusal changes nothing."""
        sealed = state.get("sealed")
        if not isinstance(sealed, np.ndarray) or sealed.dtype != np.uint8:
            raise ProtocolError("a checkpoint holds no sealed totals")
        fresh = BfvTotals(len(self._additions))
        fresh.add(np.arange(len(self._additions)), sealed.tobytes())
        self._additions, self._words = fresh._additions, fresh._words

    def _check(self, chunks: NDArray[np.int64]) -> None:
        if chunks.ndim != 1 or ((chunks < 0) | (chunks >= len(self._additions))).any():
            raise ProtocolError(f"chunks must be numbered from 0 to {len(self._additions) - 1}")


class _Frame(NamedTuple):
    """One sealed chunk whose words have been checked."""

    kind: int
    additions: int
    words: Words  # of c0 if fresh, of c0 and c1 if a total
    seed: bytes = b""


def _split(sealed: bytes, chunks: int) -> Iterator[_Frame]:
    """Cut a byte string into ``chunks`` frames, all of which SEAL can load."""
    start = 0
    for _ in range(chunks):
        kind = sealed[start] if start < len(sealed) else None
        if kind is None or kind not in _BODY:
            raise ProtocolError("sealed words end early or hold an unknown kind of chunk")
        end = start + 1 + _BODY[kind]
        if end > len(sealed):
            raise ProtocolError("sealed words end in the middle of a chunk")
        yield _frame(kind, sealed[start + 1 : end])
        start = end
    if start != len(sealed):
        raise ProtocolError(f"sealed words go on after the last of {chunks} chunks")


def _frame(kind: int, body: bytes) -> _Frame:
    if kind == _EMPTY:
        return _Frame(kind, 0, np.empty(0, np.uint64))
    if kind == _FRESH:
        return _Frame(kind, 1, _checked(body[:_PACKED]), body[_PACKED:])
    additions, words = int.from_bytes(body[:_COUNT], "little"), _checked(body[_COUNT:])
    if not 1 <= additions <= MOST_ADDITIONS:
        raise ProtocolError("a sealed total counts an impossible number of contributions")
    # With c1 = 0 the secret plays no part: anyone could read c0.
    if not words[POLY:].any():
        raise ProtocolError("a sealed total is not encrypted")
    return _Frame(kind, additions, words)


def _checked(packed: bytes) -> Words:
    words = _unpack(packed)
    if not _reduced(words):
        raise ProtocolError("a sealed chunk does not fit the parameters of the cipher")
    return words


def _key_digest(body: bytes) -> bytes:
    return hashlib.blake2b(body, digest_size=_DIGEST, person=b"weft bfv key").digest()


def _pack(words: Words) -> Words:
    """Words of 45 bits, whose number is a multiple of 64, without gaps."""
    packed = np.empty(len(words) * _BITS // 64, np.uint64)
    _pack_into(words, packed)
    return packed


def _unpack(packed: bytes) -> Words:
    words = np.empty(len(packed) * 8 // _BITS, np.uint64)
    _unpack_into(np.frombuffer(packed, "<u8"), words)
    return words


def _reduced(words: Words) -> bool:
    """Whether every word of some polynomials is a remainder by its prime."""
    primes = np.array(PRIMES, np.uint64)[:, np.newaxis]
    return bool((words.reshape(-1, 2, SLOTS) < primes).all())


@numba.njit(**OUTER)
def _pack_into(words: Any, packed: Any) -> None:
    gathered, filled, k = np.uint64(0), 0, 0
    for i in range(words.shape[0]):
        word = words[i]
        gathered |= word << np.uint64(filled)
        filled += _BITS
        if filled >= 64:
            packed[k] = gathered
            k += 1
            filled -= 64
            gathered = word >> np.uint64(_BITS - filled)


@numba.njit(**OUTER)
def _unpack_into(packed: Any, words: Any) -> None:
    mask = (np.uint64(1) << np.uint64(_BITS)) - np.uint64(1)
    for i in range(words.shape[0]):
        k, skipped = divmod(i * _BITS, 64)
        word = packed[k] >> np.uint64(skipped)
        if skipped + _BITS > 64:
            word |= packed[k + 1] << np.uint64(64 - skipped)
        words[i] = word & mask


@numba.njit(**OUTER)
def _add(total: Any, words: Any) -> None:
    for i in range(words.shape[0]):
        prime = np.uint64(PRIMES[(i // SLOTS) % 2])
        word = total[i] + words[i]
        total[i] = word - prime if word >= prime else word
