"""Maxima from sums: the largest value over all parties, digit by digit.

A float64 has 64 bits that sort like the number. Four bits at a time, each party says for which
of the fifteen digits it has a value at least that large, given the digits known so far; where
the sum is above zero, somebody has. Sixteen sums give the exact maximum. Whoever opens a sum learns
how many parties reach a digit.

Digits below other digits than those found, or asked for again and again, would give the values of
single parties. So a party tells every digit once, in their order, each below one digit more.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto import Adder, Cipher
from weft.errors import ProtocolError
from weft.protocol import Channel, Phase
from weft.protocol.message_bytes import question_digest
from weft.sums.scalar_sums import add_scalars, pack_scalars
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

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


class LargestParty:
    """A party's half: digits of the largest of all parties' values, each told once in a run.

    Parameters
    ----------
    rounds
        How many digits it tells: those that give the exponent, or all of them.
    """

    def __init__(self, cipher: Cipher, rounds: int = EXPONENT_ROUNDS) -> None:
        self._cipher = cipher
        self._rounds = rounds
        self._told = 0
        self._asked = b""
        self._keys: Keys = np.zeros(0, np.uint64)
        self._prefix: Keys = self._keys

    @property
    def done(self) -> bool:
        """Whether it has told all digits."""
        return self._told == self._rounds

    def tell(self, message: DigitRequest, values: Callable[[], Floats]) -> DigitReply:
        """Flags for the next digit; ``values`` are looked at once, for the first one."""
        if self._told == 0:
            self._keys = keys_of(values())
            self._prefix = np.zeros_like(self._keys)
        digit = message.digit
        if digit != self._told or self.done or not self._follows(message.prefix):
            raise ProtocolError(
                "a request asks for a digit of the largest value again, or too early"
            )
        self._told, self._prefix = digit + 1, message.prefix.copy()
        # Masks of parties that were asked for different digits, or below others, do not cancel.
        self._asked = question_digest(message, self._asked)
        self._cipher.lasting(digit, self._asked)
        flags = reached(self._keys, self._prefix, digit)
        return DigitReply(flags=pack_scalars(self._cipher, "flags", *flags.ravel().tolist()))

    def _follows(self, prefix: Keys) -> bool:
        """Whether digits so far are those of before, and one more."""
        if prefix.shape != self._keys.shape:
            return False
        digit = 15 << (64 - 4 * self._told) if self._told else 0
        return not ((prefix ^ self._prefix) & ~np.uint64(digit)).any()

    def insist_on_unit(self, unit: float) -> None:
        """Refuse a unit that is not above the one value that the digits told of.

        The last digit nobody was told: units that differ in it pass.
        """
        last = np.arange(16, dtype=np.uint64) << np.uint64(64 - 4 * self._rounds)
        if not self.done or unit not in unit_above(self._prefix | last):
            raise ProtocolError("a request names a unit that does not follow from what was found")


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
    return unit_above(
        keys_of(ask_largest(channel, adder, phase, values=values, rounds=EXPONENT_ROUNDS))
    )


def unit_above(prefix: Keys) -> Floats:
    """The power of two above all values whose first digits are these."""
    bound = values_of(prefix | np.uint64(2 ** (64 - 4 * EXPONENT_ROUNDS) - 1))
    _, exponent = np.frexp(np.clip(bound, 0.0, 2.0**1022))
    return np.ldexp(1.0, exponent)
