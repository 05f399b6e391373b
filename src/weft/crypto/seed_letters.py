"""What the maker of a cohort's seed writes to the other holders.

A letter has, for every cohort that both hold and the writer makes the seed of, the cohort's number
and size, a hash of the list of its holders, and the seed. The reader takes it only for the cohorts
that it was told of itself. Pads follow from all of that: a seed that is used for two cohorts, or
given to other holders, gives other pads.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.key_and_seed_messages import AxisSeeds
from weft.crypto.secret_bytes import Secret

SEED = 16
#: Bytes of what the first party draws for all: the run's key depends on it.
RUN_KEY = 32
_HASH = 16
_ENTRY = struct.Struct(f"<qq{_HASH}s{SEED}s")
_LENGTH = struct.Struct("<q")


class Cohort(NamedTuple):
    """What is known of a cohort besides its seed."""

    number: int
    size: int


class Dealt(NamedTuple):
    """What the first party deals to all others.

    Attributes
    ----------
    run_key
        Random bytes that the run's key depends on.
    shared
        The key of a cipher that all share; empty under others.
    """

    run_key: Secret
    shared: Secret


class AxisLetters:
    """Seeds of one axis, as they are made, written and read.

    Parameters
    ----------
    axis
        Its name.
    cohorts
        The shared cohorts of the party, in its own order.
    makers
        Who makes the seed of each.
    """

    def __init__(self, axis: str, cohorts: list[Cohort], makers: NDArray[np.int32]) -> None:
        self.axis, self.cohorts, self.makers = axis, cohorts, makers
        self.seeds: NDArray[np.uint8] = np.zeros((len(cohorts), SEED), np.uint8)
        self._holders: list[bytes] = [bytes(_HASH)] * len(cohorts)

    def __reduce__(self) -> Any:
        raise TypeError("seeds are not to be pickled")

    def made_by(self, maker: int) -> Ints:
        """Places of the cohorts whose seeds a party makes."""
        return np.flatnonzero(self.makers == maker)

    def make(self, party: int, random: bytes, holders: Mapping[int, list[int]]) -> None:
        """Take random bytes for the seeds that this party makes; who else holds each cohort."""
        mine = self.made_by(party)
        self.seeds[mine] = np.frombuffer(random, np.uint8).reshape(-1, SEED)
        for place in mine.tolist():
            numbers = np.array(sorted({party, *holders.get(place, [])}), np.int64)
            self._holders[place] = blake2b(numbers.tobytes(), digest_size=_HASH).digest()

    def write(self, places: list[int]) -> bytes:
        """What another holder is told of some cohorts."""
        return b"".join(
            _ENTRY.pack(*self.cohorts[p], self._holders[p], self.seeds[p].tobytes()) for p in places
        )

    def read(self, maker: int, content: bytes) -> bytes | None:
        """Take what a maker wrote; returns the rest, None where it wrote of other cohorts."""
        at = 0
        for place in self.made_by(maker).tolist():
            if len(content) < at + _ENTRY.size:
                return None
            number, size, holders, seed = _ENTRY.unpack_from(content, at)
            if (number, size) != self.cohorts[place]:
                return None
            self._holders[place] = holders
            self.seeds[place] = np.frombuffer(seed, np.uint8)
            at += _ENTRY.size
        return content[at:]

    def bound(self, key: Secret) -> NDArray[np.uint8]:
        """Seeds as pads take them: bound to run, axis, cohort and holders."""
        found = np.zeros_like(self.seeds)
        for place, cohort in enumerate(self.cohorts):
            entry = _ENTRY.pack(*cohort, self._holders[place], self.seeds[place].tobytes())
            said = blake2b(entry, key=key.reveal(), digest_size=SEED, person=self.axis.encode())
            found[place] = np.frombuffer(said.digest(), np.uint8)
        return found


def receivers_of(told: AxisSeeds, to: list[int]) -> dict[int, list[int]]:
    """By place of a cohort, the parties that are given its seed."""
    found: dict[int, list[int]] = {}
    for at, receiver in enumerate(to):
        for place in told.given[told.start[at] : told.start[at + 1]].tolist():
            found.setdefault(place, []).append(receiver)
    return found


def write_seeds(dealt: Dealt | None, parts: list[bytes]) -> Secret:
    """A letter to another holder; what the first party deals stands in front."""
    if dealt is None:
        return Secret(b"".join(parts))
    shared = dealt.shared.reveal()
    return Secret(b"".join([dealt.run_key.reveal(), _LENGTH.pack(len(shared)), shared, *parts]))


def read_dealt(letter: Secret) -> tuple[Dealt, Secret] | None:
    """What the first party dealt, and the rest of its letter; None where it is none."""
    content = letter.reveal()
    begin = RUN_KEY + _LENGTH.size
    if len(content) < begin:
        return None
    (length,) = _LENGTH.unpack_from(content, RUN_KEY)
    if not 0 <= length <= len(content) - begin:
        return None
    dealt = Dealt(Secret(content[:RUN_KEY]), Secret(content[begin : begin + length]))
    return dealt, Secret(content[begin + length :])


def read_seeds(maker: int, letter: Secret, axes: list[AxisLetters]) -> bool:
    """Take the seeds of all axes; false where the letter is of other cohorts."""
    rest: bytes | None = letter.reveal()
    for axis in axes:
        rest = None if rest is None else axis.read(maker, rest)
    return rest == b""
