"""Numbers of the envelopes that a party has worked on, of which early ones are only counted."""

from __future__ import annotations

from bisect import bisect_left, bisect_right


class EnvelopeNumbers:
    """Rising numbers.

    Parameters
    ----------
    dropped
        How many came before those that are listed.
    numbers
        Those that are listed.
    """

    def __init__(self, dropped: int = 0, numbers: list[int] | None = None) -> None:
        self.dropped = dropped
        self.listed: list[int] = numbers or []

    def __len__(self) -> int:
        return self.dropped + len(self.listed)

    @property
    def last(self) -> int:
        return self.listed[-1] if self.listed else 0

    def add(self, number: int) -> None:
        self.listed.append(number)

    def take_back(self) -> None:
        self.listed.pop()

    def count_up_to(self, number: int) -> int:
        """How many are not above a number."""
        return self.dropped + bisect_right(self.listed, number)

    def __contains__(self, number: int) -> bool:
        at = bisect_left(self.listed, number)
        return at < len(self.listed) and self.listed[at] == number

    def before(self, number: int) -> int:
        """The last one below a number; zero: there is none."""
        at = bisect_left(self.listed, number)
        return self.listed[at - 1] if at else 0

    def between(self, last: int, number: int | None = None) -> list[int]:
        """Those above ``last`` and below ``number``."""
        end = None if number is None else bisect_left(self.listed, number)
        return self.listed[bisect_right(self.listed, last) : end]

    def shortened(self, heard: int) -> EnvelopeNumbers:
        """The same, but those below ``heard`` are only counted; the last stays listed."""
        at = min(bisect_left(self.listed, heard), max(0, len(self.listed) - 1))
        return EnvelopeNumbers(self.dropped + at, self.listed[at:])
