"""An oblivious pseudo-random function: RFC 9497, ristretto255-SHA512, verifiable mode.

Whoever holds a key computes F(key, input) for others without seeing the input: they send
r · H(input) for a random r, get k · r · H(input) and take r off. A proof shows that one and the
same k, that of the public key, was used throughout. Names are those of the RFC; lists of elements
are byte strings, 32 bytes each. Several keys may be used one after the other, which is the
function of their product.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha512
from hmac import compare_digest
from typing import NoReturn, Self, SupportsIndex

from weft.crypto.party_key_pairs import Identity
from weft.crypto.primitives.multiscalar import weighted_sum
from weft.crypto.primitives.ristretto import (
    ORDER,
    WIDTH,
    GroupError,
    add,
    count_of,
    from_uniform,
    inverses,
    multiply,
    multiply_base,
    random_scalars,
    reduced,
    spread,
    subtract_product,
)
from weft.crypto.secret_bytes import Secret

#: Elements under one proof: the RFC numbers them with two bytes, threads want several proofs.
BATCH = 8192
#: Bytes of a proof.
PROOF = 2 * WIDTH

_CONTEXT = b"OPRFV1-\x01-ristretto255-SHA512"


# ── hashes ────────────────────────────────────────────────────────────────────────────────────


class _Expander:
    """expand_message_xmd of RFC 9380 with SHA-512, to 64 bytes."""

    def __init__(self, name: bytes) -> None:
        tag = name + _CONTEXT
        self._tag = tag + bytes([len(tag)])
        self._end = (64).to_bytes(2, "big") + b"\0" + self._tag
        # A block of zeros comes before every message.
        self._start = sha512(bytes(128))

    def __call__(self, message: bytes) -> bytes:
        state = self._start.copy()
        state.update(message + self._end)
        return sha512(state.digest() + b"\1" + self._tag).digest()


_to_group = _Expander(b"HashToGroup-")
_to_scalar = _Expander(b"HashToScalar-")
_to_key = _Expander(b"DeriveKeyPair")


def _framed(*parts: bytes) -> bytes:
    return b"".join(len(part).to_bytes(2, "big") + part for part in parts)


def hash_to_scalar(message: bytes) -> bytes:
    """HashToScalar."""
    return reduced(_to_scalar(message))


# ── who asks ──────────────────────────────────────────────────────────────────────────────────


def hash_to_group(inputs: Sequence[bytes]) -> bytes:
    """HashToGroup of every input."""

    def work(start: int, end: int) -> bytes:
        return b"".join([from_uniform(_to_group(text)) for text in inputs[start:end]])

    return spread(work, len(inputs))


def blind(inputs: Sequence[bytes], blinds: bytes | None = None) -> tuple[bytes, bytes]:
    """Blind: fresh scalars, and what to send."""
    blinds = random_scalars(len(inputs)) if blinds is None else blinds
    return blinds, multiply(blinds, hash_to_group(inputs)) if inputs else b""


def unblind(evaluated: bytes, blinds: bytes) -> bytes:
    """Take the blinds off; check the proofs first."""
    return multiply(inverses(blinds), evaluated) if evaluated else b""


def finalize(inputs: Sequence[bytes], elements: bytes) -> list[bytes]:
    """Finalize: outputs of 64 bytes, from elements without their blinds."""
    return [
        sha512(_framed(text, elements[at : at + WIDTH]) + b"Finalize").digest()
        for text, at in zip(inputs, range(0, len(elements), WIDTH), strict=True)
    ]


def verify(public: bytes, blinded: bytes, evaluated: bytes, proofs: bytes) -> None:
    """Check that the key of ``public`` was used on all elements.

    Raises
    ------
    GroupError
        It was not, or something is no element at all.
    """
    count = count_of(blinded)
    if len(evaluated) != len(blinded) or len(proofs) != PROOF * -(-count // BATCH):
        raise GroupError(f"there should be {count} evaluated elements and a proof for each batch")

    def work(start: int, end: int) -> bytes:
        at = PROOF * (start // BATCH)
        ends = slice(WIDTH * start, WIDTH * end)
        if not _proven(public, blinded[ends], evaluated[ends], proofs[at : at + PROOF]):
            raise GroupError("a proof does not belong to these elements and this public key")
        return b""

    spread(work, count, BATCH)


def _proven(public: bytes, blinded: bytes, evaluated: bytes, proof: bytes) -> bool:
    """VerifyProof."""
    c, s = proof[:WIDTH], proof[WIDTH:]
    if max(int.from_bytes(c, "little"), int.from_bytes(s, "little")) >= ORDER:
        return False
    weights = _weights(public, blinded, evaluated)
    m, z = weighted_sum(weights, blinded), weighted_sum(weights, evaluated)
    t2 = add(multiply_base(s), multiply(c, public))
    t3 = add(multiply(s, m), multiply(c, z))
    return compare_digest(_challenge(public, m, z, t2, t3), c)


def _weights(public: bytes, blinded: bytes, evaluated: bytes) -> bytes:
    """The scalars of ComputeComposites, one after the other."""
    seed = sha512(_framed(public, b"Seed-" + _CONTEXT)).digest()
    start, width = _framed(seed), WIDTH.to_bytes(2, "big")
    return b"".join(
        [
            hash_to_scalar(
                start
                + (at // WIDTH).to_bytes(2, "big")
                + width
                + blinded[at : at + WIDTH]
                + width
                + evaluated[at : at + WIDTH]
                + b"Composite"
            )
            for at in range(0, len(blinded), WIDTH)
        ]
    )


def _challenge(*elements: bytes) -> bytes:
    return hash_to_scalar(_framed(*elements) + b"Challenge")


# ── who holds the key ─────────────────────────────────────────────────────────────────────────


class OprfKey:
    """A key pair; the scalar stays inside.

    Attributes
    ----------
    public
        The public key, 32 bytes.
    """

    __slots__ = ("_scalar", "public")

    def __init__(self, scalar: Secret) -> None:
        self._scalar = scalar
        self.public = multiply_base(scalar.reveal())

    @classmethod
    def derive(cls, seed: Secret, info: bytes) -> Self:
        """DeriveKeyPair, from 32 secret bytes."""
        start = seed.reveal() + _framed(info)
        for counter in range(256):
            scalar = reduced(_to_key(start + bytes([counter])))
            if any(scalar):
                return cls(Secret(scalar))
        raise AssertionError("256 hashes in a row are zero")

    def evaluate(self, blinded: bytes) -> bytes:
        """BlindEvaluate without its proof.

        Raises
        ------
        GroupError
            Something is no element of the group, or the neutral one.
        """
        return multiply(self._scalar.reveal(), blinded) if blinded else b""

    def prove(self, blinded: bytes, evaluated: bytes, random: bytes | None = None) -> bytes:
        """GenerateProof, a proof per batch; ``random`` is the scalar of the only one, for tests."""

        def work(start: int, end: int) -> bytes:
            ends = slice(WIDTH * start, WIDTH * end)
            return self._prove(blinded[ends], evaluated[ends], random or random_scalars(1))

        return spread(work, count_of(blinded), BATCH)

    def _prove(self, blinded: bytes, evaluated: bytes, r: bytes) -> bytes:
        m = weighted_sum(_weights(self.public, blinded, evaluated), blinded)
        z = multiply(self._scalar.reveal(), m)
        c = _challenge(self.public, m, z, multiply_base(r), multiply(r, m))
        return c + subtract_product(r, c, self._scalar.reveal())

    def __reduce_ex__(self, protocol: SupportsIndex) -> NoReturn:
        raise TypeError("an OprfKey is never pickled or copied; pass it on as it is")

    def __repr__(self) -> str:
        return f"OprfKey({self.public.hex()[:16]}…)"


def matching_key(identity: Identity) -> OprfKey:
    """A party's key for matching, which follows from its identity and needs no file of its own."""
    return OprfKey.derive(identity.private().derive("weft oprf seed"), b"weft matching")
