"""Pads under words that all parties may read, and the coordinator that adds them may not.

Every party adds its words to those of the others, modulo 2^64, under a pad that all parties know.
The coordinator adds and hands out totals; parties take the pads of all off again. Beside every
chunk of words go keyed sums of them, under pads too: words that were changed on the way do not
match them, but for one chance in 2^16 for a change of the highest bit alone.
"""

from __future__ import annotations

from typing import Any

import numba
import numpy as np

from weft.crypto.primitives.seeded_words import Words, seeded_words
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError
from weft.numba_options import OUTER

#: Words that share keyed sums, and how many sums there are.
CHUNK, SUMS = 1 << 14, 16
#: Words that are summed at once, so that they stay in the cache.
_PIECE = 1 << 10


class OpeningPads:
    """The pads of one party and, as all know them, of the others.

    Parameters
    ----------
    secret
        What all parties share in this run, and the coordinator lacks.
    party, parties
        Its number, and how many there are.
    lasting
        What all parties share in every run, and the coordinator lacks.
    """

    def __init__(self, secret: Secret, party: int, parties: int, lasting: Secret) -> None:
        self._seed = secret.derive("weft openings")
        self._lasting = lasting.derive("weft lasting words")
        self._party, self._parties = party, parties
        self._keys = seeded_words(self._seed.reveal(), "keyed sums", CHUNK + SUMS - 1)

    def __reduce__(self) -> Any:
        raise TypeError("pads are not to be pickled: they come from a secret")

    def common_word(self, label: str) -> int:
        """A random number that all parties know, and the coordinator does not."""
        return int(self.common_words(label, 1)[0])

    def common_words(self, label: str, count: int) -> Words:
        """Random words that all parties know, and the coordinator does not."""
        return seeded_words(self._seed.reveal(), f"common {label}", count)

    def lasting_words(self, label: str, count: int) -> Words:
        """The same, which are alike in all runs of these parties."""
        return seeded_words(self._lasting.reveal(), label, count)

    def put_on(self, words: Words, label: str) -> Words:
        """Words of this party with their keyed sums, under its pad; ``label`` comes once."""
        flat = np.ascontiguousarray(words).reshape(-1)
        padded = self._pad(label, self._party, flat.size)
        padded[: flat.size] += flat
        padded[flat.size :] += keyed_sums(flat, self._keys).reshape(-1)
        return padded

    def take_off(self, total: Words, count: int, label: str) -> Words:
        """The sum of all parties' words, ``count`` of them."""
        pad = self._stream(label, self._parties - 1, count)
        return self._checked(np.subtract(self._sized(total, count), pad, out=pad), count)

    def read(self, padded: Words, count: int, label: str, party: int) -> Words:
        """The words of one party."""
        pad = self._pad(label, party, count)
        return self._checked(np.subtract(self._sized(padded, count), pad, out=pad), count)

    @staticmethod
    def size(count: int) -> int:
        """Words that travel for so many: their keyed sums come behind them."""
        return count + SUMS * -(-count // CHUNK)

    def _pad(self, label: str, party: int, count: int) -> Words:
        """Its stream less that of the party before it: uniform, and independent of all others.

        Pads of all parties add up to the last stream, so that one is drawn to take them off.
        """
        pad = self._stream(label, party, count)
        if party:
            pad -= self._stream(label, party - 1, count)
        return pad

    def _stream(self, label: str, party: int, count: int) -> Words:
        return seeded_words(self._seed.reveal(), f"pad {party} {label}", self.size(count))

    def _sized(self, total: Words, count: int) -> Words:
        if total.shape != (self.size(count),):
            raise ProtocolError("an opening does not have as many words as it should")
        return total

    def _checked(self, opened: Words, count: int) -> Words:
        if not np.array_equal(keyed_sums(opened[:count], self._keys).reshape(-1), opened[count:]):
            raise ProtocolError("an opening was changed on its way; stop this run")
        return opened[:count]


@numba.njit(**OUTER)
def keyed_sums(words: Any, keys: Any) -> Any:
    """Per chunk, Σ_i κ_{i+s} · word_i modulo 2^64 for every s below SUMS.

    Keys that are shifted catch a change as surely as keys of their own for every sum. Say it is 2^t
    times one whose last odd entry is the i-th. Modulo 2 the sums of that one, without 2^t, are
    κ_i, κ_{i+1}, … each with some keys before it: all 2^SUMS cases are equally likely. A linear map
    onto all of them is one onto all residues modulo 2^(64−t), too, so that no sums are likelier
    than others. This is of the first change: whoever has got one past by chance knows keys of the
    next word, too, but for one. So a party that finds a change answers no more in that run.
    """
    count = words.shape[0]
    out = np.zeros(((count + CHUNK - 1) // CHUNK, SUMS), np.uint64)
    for begin in range(0, count, _PIECE):
        some, first = words[begin : min(begin + _PIECE, count)], begin % CHUNK
        for s in range(0, SUMS, 4):
            # Four at once, each in registers.
            k0, k1, k2, k3 = (
                keys[first + s :],
                keys[first + s + 1 :],
                keys[first + s + 2 :],
                keys[first + s + 3 :],
            )
            a, b, c, d = np.uint64(0), np.uint64(0), np.uint64(0), np.uint64(0)
            for i in range(len(some)):
                a += k0[i] * some[i]
                b += k1[i] * some[i]
                c += k2[i] * some[i]
                d += k3[i] * some[i]
            sums = out[begin // CHUNK, s : s + 4]
            sums[0] += a
            sums[1] += b
            sums[2] += c
            sums[3] += d
    return out
