"""A gamma model on shares: a Poisson model whose counts are all one, with log y for offsets.

The loss y e^−z + z − log y − 1 is e^s − s − 1 at s = log y − z, and so that of a count of one at a
score s. Whoever counts a sample knows log y and adds it to its share of the score, as it adds
offsets; training finds v = −w, and readers get −v. Nothing is multiplied, and no sum has a response
in it.

With a free intercept all responses may be divided by the same number, a 64th of the power of two
above them, which all know: then s is no farther from its centre, a third of e², than the smallest
response makes it.
"""

from __future__ import annotations

import math

import numpy as np

from weft.array_types import Floats
from weft.errors import ConfigError
from weft.solvers.secret_sharing.digit_widths import WEIGHT_BITS
from weft.solvers.secret_sharing.exponential_fourier_series import REACHES

GAMMA = "gamma"
#: The centre of scores with a free intercept, as a power of two: small responses are many.
GAMMA_CENTRE = -3
_ROOM = 64.0
#: Parties tell how far scores reach at the start as a power of this, so that their sum tells the
#: farthest, and how many parties it is for: fewer than so many have responses.
_APART = 64.0
_MARGIN = 1.02
_TOO_FAR = (
    "responses of this gamma model range over more powers of ten than sealed training can hold; "
    "leave the smallest out, set penalize_intercept = false, or train with mode = 'sums'"
)


def common_factor(largest: float) -> float:
    """The logarithm of what all responses are divided by; a weight has the digits for it."""
    unit = 2.0**-WEIGHT_BITS
    return unit * round(math.log(largest / _ROOM) / unit)


def told_of_reach(offsets: Floats) -> float:
    """Which series holds for all of a party's scores at the start; zero: it has none."""
    if not len(offsets):
        return 0.0
    most = _MARGIN * float(np.abs(offsets).max())
    return _APART ** (1 + sum(reach < most for reach in REACHES))


def reach_of(told: float) -> float:
    """The reach of the first series that holds for scores of all parties."""
    if told < 1:
        return 0.0
    level = math.floor(math.log(told * (1 + 1e-9), _APART)) - 1
    if level >= len(REACHES):
        raise ConfigError(_TOO_FAR)
    return REACHES[level] / _MARGIN
