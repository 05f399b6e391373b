"""Names for the arrays that occur everywhere, by what they hold."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]
#: Yes or no, mostly one per row or cohort.
Flags = NDArray[np.bool_]
#: Positions of samples or features among those of a party.
Slots = NDArray[np.int32]
