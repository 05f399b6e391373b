"""How far a share of right predictions may be off by chance."""

from __future__ import annotations

import math

#: Of the normal distribution, for intervals that hold the truth in 95 of 100 cases.
_Z = 1.959963984540054


def wilson_interval(share: float, samples: int) -> tuple[float, float]:
    """Ends of Wilson's 95 % interval for a share that was found on so many samples."""
    middle = share + _Z**2 / (2 * samples)
    reach = _Z * math.sqrt(share * (1 - share) / samples + (_Z / (2 * samples)) ** 2)
    whole = 1 + _Z**2 / samples
    return max(0.0, (middle - reach) / whole), min(1.0, (middle + reach) / whole)


def with_interval(share: float, samples: int | None) -> str:
    """An accuracy in percent, with its interval where it is known how many samples it is of."""
    if not samples:
        return f"{share:.1%}"
    low, high = wilson_interval(share, samples)
    return f"{share:.1%} ({100 * low:.1f}–{100 * high:.1f})"


def could_be_equal(one: tuple[float, int], other: tuple[float, int]) -> bool:
    """Whether two shares, each with its number of samples, differ by no more than chance makes.

    For shares of which nobody knows on which samples they were right: where they are known,
    comparing sample by sample tells more.
    """
    spread = math.sqrt(sum(share * (1 - share) / samples for share, samples in (one, other)))
    return abs(one[0] - other[0]) <= _Z * spread
