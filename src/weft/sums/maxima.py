"""Maxima from sums: the largest value over all parties, digit by digit.

A float64 has 64 bits that sort like the number. Four bits at a time, each party says for which
of the fifteen digits it has a value at least that large, given the digits known so far; where
the sum is above zero, somebody has. Sixteen sums give the exact maximum. Whoever opens a sum learns
how many parties reach a digit.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto import Adder, Cipher
from weft.protocol import Channel, Phase
from weft.sums.messages import DigitReply, DigitRequest
from weft.sums.scalar_sums import add_scalars, pack_scalars

Keys = NDArray[np.uint64]
D = TypeVar("D", bound=DigitRequest)

ROUNDS = 16
#: Rounds that give sign and exponent: the value up to a factor of two.
EXPONENT_ROUNDS = 3
_DIGITS = np.arange(1, 16, dtype=np.uint64)
_SIGN = np.uint64(1 << 63)


def keys_of(values: Floats) -> Keys:
    """Integers that sort like the values."""
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    return cast(Keys, np.where(bits & _SIGN, ~bits, bits | _SIGN))


def values_of(keys: Keys) -> Floats:
    """The inverse of :func:`keys_of`."""
    bits = np.where(keys & _SIGN, keys & ~_SIGN, ~keys)
    return cast(Floats, np.ascontiguousarray(bits).view(np.float64))


def reached(keys: Keys, prefix: Keys, round_: int) -> Floats:
    """For each key, 15 flags: does it reach prefix · digit in this round?"""
    shift = np.uint64(60 - 4 * round_)
    candidates = prefix[:, None] | (_DIGITS << shift)
    return (keys[:, None] >= candidates).astype(np.float64)


def extend(prefix: Keys, totals: Floats, round_: int) -> Keys:
    """The prefix with the next digit: the largest one that somebody reached."""
    digit = (totals > 0.5).sum(axis=1).astype(np.uint64)
    return cast(Keys, prefix | (digit << np.uint64(60 - 4 * round_)))


def answer_largest(values: Floats, message: DigitRequest, cipher: Cipher) -> DigitReply:
    """A party's flags for one digit of the largest of all parties' values."""
    flags = reached(keys_of(values), message.prefix, message.digit)
    return DigitReply(flags=pack_scalars(cipher, "flags", *flags.ravel().tolist()))


def ask_largest(
    channel: Channel,
    adder: Adder,
    phase: Phase[D, DigitReply],
    *,
    values: int = 1,
    rounds: int = ROUNDS,
    first: Callable[[dict[str, D]], None] | None = None,
) -> Floats:
    """Coordinator: the largest of all parties' values, or, after fewer rounds, a bound above it.

    ``first`` writes into the first request what the parties need besides the digit asked for.
    """
    prefix = np.zeros(values, np.uint64)
    for digit in range(rounds):
        round_ = adder.advance()
        asked = {
            party: phase.request(round=round_, digit=digit, prefix=prefix)
            for party in channel.parties
        }
        if digit == 0 and first is not None:
            first(asked)
        replies = channel.ask(phase, asked).insist("finding the largest value")
        totals = add_scalars(replies, "flags", 15 * values, asked)
        prefix = extend(prefix, np.array(totals).reshape(values, 15), digit)
    below = np.uint64(2 ** (64 - 4 * rounds) - 1)
    return values_of(prefix | below)


def units_above(
    channel: Channel, adder: Adder, phase: Phase[D, DigitReply], values: int = 1
) -> Floats:
    """Coordinator: powers of two above all parties' values, as common units for them."""
    bound = ask_largest(channel, adder, phase, values=values, rounds=EXPONENT_ROUNDS)
    _, exponent = np.frexp(np.clip(bound, 0.0, 2.0**1022))
    return np.ldexp(1.0, exponent)
