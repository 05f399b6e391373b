"""SEAL, as far as TenSEAL's bindings show it: a context, and files in memory.

The bindings read and write only files and give no access to coefficients in bulk. SEAL's files are
therefore built and read here, uncompressed, from layouts that SEAL itself wrote.
"""

from __future__ import annotations

import os
from functools import cache
from types import TracebackType
from typing import Any, NamedTuple, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray
from tenseal import sealapi  # type: ignore[import-untyped]

from weft.crypto.ciphers.chunk_layout import MODULUS

Words = NDArray[np.uint64]

SLOTS = 4096

# 106 bits in all, below the 109 that the homomorphic encryption standard allows for 128-bit
# security at ring degree 4,096. Ciphertexts live modulo the product q of the first two; SEAL
# keeps the last for key switching, which is never used here, but its keys include it.
PRIMES = (35184371703809, 35184371884033)
SPECIAL_PRIME = 40961

POLY = 2 * SLOTS  # words of one polynomial: its remainders by both primes
SEED = 64


class Layout(NamedTuple):
    """How SEAL writes one kind of object: a head, words of 64 bits, and a tail.

    Head and tail are taken from a file that SEAL wrote, so that they fit its version. SEAL
    writes its files compressed with zstd and reads them uncompressed too.
    """

    head: bytes
    tail: bytes

    @classmethod
    def of(cls, file: bytes, words: int, tail: int = 0) -> Layout:
        with pa.input_stream(pa.BufferReader(file[16:]), compression="zstd") as stream:
            content = stream.read()
        split = len(content) - tail - 8 * words
        # SEAL's header: magic number, its size, version, compression (0: none), file size.
        header = file[:5] + bytes(3) + (16 + len(content)).to_bytes(8, "little")
        return cls(header + content[:split], content[len(content) - tail :])

    def file(self, words: Words, end: bytes = b"") -> bytes:
        """An uncompressed file; ``end`` takes the place of the last bytes of the tail."""
        tail = self.tail[: len(self.tail) - len(end)] + end
        return b"".join((self.head, words.astype("<u8", copy=False).tobytes(), tail))

    def content(self, file: bytes, words: int) -> bytes:
        """What a compressed file of so many words holds behind SEAL's header."""
        size = len(self.head) - 16 + 8 * words + len(self.tail)
        content: bytes = _zstd().decompress(memoryview(file)[16:], size, asbytes=True)
        return content

    def words_in(self, content: bytes, words: int) -> Words:
        return np.frombuffer(content, "<u8", words, len(self.head) - 16).astype(np.uint64)

    def words(self, file: bytes, words: int) -> Words:
        return self.words_in(self.content(file, words), words)


class Seal(NamedTuple):
    """SEAL's context for our parameters, and how it writes its objects."""

    context: Any
    plain: Layout
    fresh: Layout
    total: Layout
    key: Layout
    array: Layout


@cache
def seal_context() -> Seal:
    parameters = sealapi.EncryptionParameters(sealapi.SCHEME_TYPE.BFV)
    parameters.set_poly_modulus_degree(SLOTS)
    parameters.set_coeff_modulus([sealapi.Modulus(p) for p in (*PRIMES, SPECIAL_PRIME)])
    parameters.set_plain_modulus(MODULUS)
    context = sealapi.SEALContext(parameters, True, sealapi.SEC_LEVEL_TYPE.TC128)
    # Specimens under a key that is thrown away.
    key = sealapi.KeyGenerator(context).secret_key()
    encryptor = sealapi.Encryptor(context, key)
    plain, total = sealapi.Plaintext(SLOTS), sealapi.Ciphertext()
    encryptor.encrypt_symmetric(plain, total)
    array = sealapi.DynArray(2 * POLY - 1)
    array.resize(2 * POLY - 1, True)
    with Scratch() as scratch:

        def layout(specimen: Any, words: int, tail: int = 0) -> Layout:
            specimen.save(scratch.path)
            return Layout.of(scratch.read(), words, tail)

        return Seal(
            context,
            plain=layout(plain, SLOTS),
            # Behind the words: a header, the kind of generator and its seed.
            fresh=layout(encryptor.encrypt_symmetric(plain), POLY, 16 + 1 + SEED),
            total=layout(total, 2 * POLY),
            key=layout(key, POLY + SLOTS),
            array=layout(array, 2 * POLY - 1),
        )


@cache
def _zstd() -> Any:
    return pa.Codec("zstd")


class Scratch:
    """A file in memory without a name: SEAL's bindings take nothing but paths.

    What is written here never touches a disk, no other user can open it, and it is gone when
    closed, also after a crash. A new one for each call keeps threads and forks apart.
    """

    def __init__(self) -> None:
        self._file = os.memfd_create("weft")
        self.path = f"/proc/self/fd/{self._file}"

    def write(self, content: bytes) -> None:
        os.ftruncate(self._file, len(content))
        os.pwrite(self._file, content, 0)

    def read(self) -> bytes:
        return os.pread(self._file, os.fstat(self._file).st_size, 0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._file)


def expand_seed(seed: bytes, scratch: Scratch) -> Words:
    """The polynomial c1 that SEAL draws from a seed."""
    seal, cipher = seal_context(), sealapi.Ciphertext()
    scratch.write(seal.fresh.file(np.zeros(POLY, np.uint64), seed))
    cipher.load(seal.context, scratch.path)
    # Above 128 KiB zstd takes large tables, five times slower: one word less is below that.
    # The array is the ciphertext's own, which is of no use afterwards.
    array = cipher.dyn_array()
    last = array.at(2 * POLY - 1)
    array.resize(2 * POLY - 1, False)
    array.save(scratch.path)
    return np.append(seal.array.words(scratch.read(), 2 * POLY - 1)[POLY:], np.uint64(last))
