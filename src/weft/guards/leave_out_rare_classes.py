"""``min_batch`` for classes: what the first vector of a run shows must be a sum over enough.

Every solver begins at w = 0, where all samples of a class weigh the same. So whoever sees the first
feature sums, and the sums of the columns themselves (from scaling, or from the classes together),
has the sum over every class of others' samples: of a class with one sample, that sample's row. A
class that fewer than ``min_batch`` samples of a group have is therefore left out there, scaling
included.
"""

from __future__ import annotations

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.guards.distinct_pairs_with_counts import number_pairs


def in_rare_class(group: Ints, target: Floats, least: int) -> Flags:
    """Samples whose class fewer than ``least`` samples of their group have.

    Parameters
    ----------
    group
        The group of every sample, −1 for those that nobody else sees a sum of.
    target
        The number of every sample's class; NaN where it is not known.
    """
    judged = (group >= 0) & ~np.isnan(target)
    kind, counts = number_pairs(group[judged], target[judged].astype(np.int64))
    rare: Flags = np.zeros(len(group), bool)
    rare[judged] = (counts < least)[kind]
    return rare
