"""What a party draws or decides in a run, kept so that the same messages lead to the same state.

A party that was killed is made anew and gets the messages of its run once more. Whatever it drew
from the operating system the first time, measured with a clock or wrote into its ledger comes from
its memory then, under the same name and in the same order. Randomness that enters no state, such
as the nonces of letters and sealed boxes, is drawn afresh.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from secrets import token_bytes
from typing import Any

from weft.errors import ConfigError, ProtocolError

#: Named values of one run of one party; they are secrets. A dict forgets them with its process.
Memory = MutableMapping[str, bytes]


class Forgotten(ProtocolError):
    """A memory lacks what its run has drawn: it was lost, or belongs to another run."""


class Draws:
    """Values that are made once in a run, and remembered before they are used.

    Parameters
    ----------
    memory
        Where they are kept; None: a dict.
    """

    def __init__(self, memory: Memory | None = None) -> None:
        self._memory: Memory = {} if memory is None else memory
        self._taken: Counter[str] = Counter()
        self._replaying = False

    def __repr__(self) -> str:
        return f"Draws({len(self._memory)} values)"

    def __reduce__(self) -> Any:
        raise TypeError("draws are not to be pickled: they hold secrets")

    def take(self, name: str, make: Callable[[], bytes]) -> bytes:
        """The next value of this name: as it is remembered, or a new one.

        A value that cannot be made or kept has not been taken: the next call asks for it again.
        """
        key = f"{name} {self._taken[name] + 1}"
        found = self._memory.get(key)
        if found is None:
            if self._replaying:
                raise Forgotten(
                    f"the memory of this run lacks '{key}', which it must have drawn before it was "
                    "interrupted; restore the memory from a backup, or start a new run"
                )
            found = make()
            self._memory[key] = found
        self._taken[name] += 1
        return found

    def random(self, name: str, length: int) -> bytes:
        """Random bytes from the operating system."""
        return self.take(name, lambda: token_bytes(length))

    def first(self, name: str) -> bool:
        """Whether something comes up for the first time, also before an interruption."""
        mark = token_bytes(16)
        return self.take(name, lambda: mark) == mark

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
