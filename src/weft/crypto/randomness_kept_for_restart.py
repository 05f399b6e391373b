"""What a party draws or decides in a run, kept so that the same messages lead to the same state.

A party that was killed is made anew and gets the messages of its run once more. Whatever it drew
from the operating system the first time, measured with a clock or wrote into its ledger comes from
its memory then. Randomness that enters no state, such as the nonces of letters and sealed boxes, is
drawn afresh.

Values belong to what the party had heard when they were made, by a hash of all its messages: where
a message is taken back, because it could not be answered, what was made in the course of it is
never taken for what another message asks for.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import blake2b
from secrets import token_bytes
from typing import Any, Protocol

from weft.errors import ConfigError, ProtocolError

_END = "end"
#: Bytes of the hash of all that was heard, which ends the names of values, and its digits.
_HASH, _HEX = 16, {*"0123456789abcdef"}


def is_of_messages(key: str) -> bool:
    """Whether a value was made in the course of messages: nobody asks for it without them."""
    *_, last = key.rpartition(" ")
    return len(last) == 2 * _HASH and not {*last} - _HEX


class Memory(Protocol):
    """Named secret values of one run of one party; a dict forgets them with its process."""

    def get(self, name: str, /) -> bytes | None: ...

    def __setitem__(self, name: str, value: bytes, /) -> None: ...

    def __contains__(self, name: object, /) -> bool: ...

    def __len__(self) -> int: ...


class Forgotten(ProtocolError):
    """A memory lacks what its run has drawn: it was lost, or belongs to another run."""


class RandomnessLog:
    """Values that are made once in a run, and remembered before they are used.

    Parameters
    ----------
    memory
        Where they are kept; None: a dict.

    Attributes
    ----------
    lasting
        Whether anybody may come back to these values, so that messages must be told.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self.lasting = memory is not None
        self._memory: Memory = {} if memory is None else memory
        self._taken: Counter[str] = Counter()
        self._heard = b""
        self._replaying = False

    def __repr__(self) -> str:
        return f"Draws({len(self._memory)} values)"

    def __reduce__(self) -> Any:
        raise TypeError("draws are not to be pickled: they hold secrets")

    def hear(self, phase: str, packed: bytes) -> None:
        """A message has come, on which all depends that is made from now on."""
        if self._memory.get(_END) == self._heard:
            raise ProtocolError("this run has been closed here; start a new run")
        said = phase.encode() + b"\0" + packed
        self._heard = blake2b(self._heard + said, digest_size=_HASH).digest()

    def finish(self) -> bool:
        """The run is over, after which no message is heard; whether it was not so before."""
        new = _END not in self._memory
        if new:
            self._memory[_END] = self._heard
        return new

    def take(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The next value of this name: as it is remembered, or a new one.

        A value that cannot be made or kept has not been taken: the next call asks for it again.
        """
        key = f"{name} {self._taken[name] + 1} {self._heard.hex()}".rstrip()
        found = self._memory.get(key)
        if found is None:
            if self._replaying:
                raise Forgotten(
                    f"the memory of this run lacks '{name}', which was drawn before the party was "
                    "interrupted; start a new run"
                )
            found = make()
            self._memory[key] = found
        self._taken[name] += 1
        return found

    def random(self, name: str, length: int) -> bytes:
        """Random bytes from the operating system."""
        return self.take(name, lambda: token_bytes(length))

    def insist(self, name: str, value: bytes, otherwise: str) -> None:
        """Refuse, in the words ``otherwise``, to go on with another value than the run began."""
        if self.take(name, lambda: value) != value:
            raise ConfigError(otherwise)

    @contextmanager
    def replaying(self) -> Iterator[None]:
        """Take up to where the run was: nothing is made, everything must be remembered."""
        self._replaying = True
        try:
            yield
        finally:
            self._replaying = False
