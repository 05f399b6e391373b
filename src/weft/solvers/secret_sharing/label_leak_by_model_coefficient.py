"""Whether a party's own columns stand for one row of others, nearly.

A weight follows the rows in which its column is large. Where that is one row, the weight tells its
label. With hardly a penalty it takes up that row's slope, so that a model with the column and one
without it differ by the row, in all columns of others. And who has labels of other samples chooses
weights by these, and so how large the slope of that row is: then one model is enough.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.errors import ConfigError
from weft.fast_small_array_operations import among
from weft.solvers.secret_sharing.coalition_knowledge import ROWS_PER_NUMBER, held_by_others
from weft.solvers.secret_sharing.digit_widths import CELL_BITS
from weft.solvers.secret_sharing.gamma_as_poisson import GAMMA
from weft.solvers.secret_sharing.table_positions import WholeTable

#: Of a combination's squares, what one row may have: its root is about the cosine of what is told.
MOST_OF_ONE = 0.8
#: The most that losses bend, by which a penalty is compared with rows; of others there is no most.
_BENDS = {"logistic": 0.25, "squared": 1.0, GAMMA: 1.0}
#: Below this part of the largest, a singular value is rounding of numbers in 64 bits.
_RANK = 1e-9

_LONE_ROW = (
    "refuses a sealed model with columns of its own of which a combination is that of one sample, "
    "nearly, whose label and cells of others it would tell; cut its largest cells or take their "
    "logarithms, leave such columns out, or agree on allow_exposure = true"
)


def refuse_lone_rows(
    table: WholeTable, party: int, cells: Floats, counted: Flags, *, loss: str, lam: float
) -> None:
    """Refuse columns that say of one row that another party has more than of all others.

    Parameters
    ----------
    cells
        Of this party.
    counted
        Of which of its rows it has labels.
    lam
        The smallest penalty of the run.
    """
    own = table.places[party]
    elsewhere = np.zeros(cells.shape[1])
    others, held = held_by_others(table, party)
    for other in others:
        mine = among(own.columns, other.columns)
        elsewhere[mine] += len(np.setdiff1d(other.rows, own.rows))
    bends = _BENDS.get(loss)
    penalty = 0.0 if bends is None else lam * table.n_rows / bends
    for rows, forced in _rows_of_others(held, counted):
        few = len(rows) < ROWS_PER_NUMBER * (1 + cells.shape[1])
        against = elsewhere + (0.0 if forced else penalty)
        if not (few and forced) and largest_of_one(cells[rows], against) > MOST_OF_ONE:
            raise ConfigError(_LONE_ROW)


def _rows_of_others(held: list[Flags], counted: Flags) -> Iterator[tuple[Ints, bool]]:
    """Rows that another party holds; and those of them without own labels, where others have any,
    by which weights are forced."""
    seen = set()
    for each in held:
        for some, forced in ((each, False), (each & ~counted, bool(counted.any()))):
            name = some.tobytes(), forced
            if some.any() and name not in seen:
                seen.add(name)
                yield np.flatnonzero(some), forced


def largest_of_one(cells: Floats, against: Floats) -> float:
    """The most that one row has of the squares of a combination of columns and a constant.

    Parameters
    ----------
    against
        Per column: squares that there are besides, of a penalty, or of rows of others, whose cells
        are about one.
    """
    far = np.round(cells * 2.0**CELL_BITS) * 2.0**-CELL_BITS
    far -= far.mean(axis=0)
    stacked = np.vstack([far, np.diag(np.sqrt(against))])
    sizes = np.linalg.norm(stacked, axis=0)
    stacked = stacked[:, sizes > 0] / sizes[sizes > 0]
    left, triangle = np.linalg.qr(stacked)
    turned, values, _ = np.linalg.svd(triangle)
    basis = left @ turned[:, values > _RANK * values.max(initial=0.0)]
    parts = (basis[: len(cells)] ** 2).sum(axis=1) + 1.0 / max(len(cells), 1)
    return float(parts.max(initial=0.0))
