"""Made-up data whose parties differ by construction: FedHybrid's two synthetic set-ups.

They come cut already, as a `Split`, because the parties' differences are what they are about.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data.splits.split_and_cutter import Parties, Split, party_names
from weft.data.tile import Names, Task, Tile
from weft.errors import DataError

#: The log-normal sizes have no upper end: in a draw of twenty, one may outweigh all the others
#: a hundred times. Their random part is cut here.
LARGEST_EXTRA = 950
_MOST_TRIES = 10_000


def party_sizes(parties: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """N_i ~ 50 + lognormal(4, 2), whole and at most 1,000."""
    extra = np.floor(rng.lognormal(4.0, 2.0, parties))
    return 50 + np.minimum(extra, LARGEST_EXTRA).astype(np.int64)


def scaled_squares(
    parties: int = 20, columns: int = 30, noise: float = 0.5, seed: int = 0
) -> Split:
    """Least squares at parties whose rows differ in size (FedHybrid, C.1, set-up 1).

    A_i = η_i Â_i with η_i ~ N(0, 1) and Â_i uniform on (0, 1]; b_i = A_i x + v_i with one
    x ~ N(0, I) for all and v_i ~ N(0, noise²). Sizes as `party_sizes` draws them.

    Parameters
    ----------
    parties, columns : int
        Number of parties n and of columns d.
    noise : float
        Standard deviation of v_i.
    seed : int
        Seed of everything.
    """
    rng = np.random.default_rng(seed)
    sizes = party_sizes(parties, rng)
    truth = rng.normal(size=columns)
    blocks = []
    for size in sizes:
        block = rng.normal() * (1.0 - rng.random((size, columns)))
        blocks.append((block, block @ truth + noise * rng.normal(size=size)))
    note = f"{parties} parties with rows of a size of their own, one linear model and noise {noise}"
    return _split(blocks, "regression", "scaled_squares", note)


def one_sided_logistic(
    negative: int = 11,
    positive: int = 8,
    mixed: int = 1,
    columns: int = 30,
    alpha: float = 0.5,
    beta: float = 0.5,
    seed: int = 0,
) -> Split:
    """Synthetic(α, β) of Li et al. (2018) with two classes, most parties with one of them.

    Party k has a model W_k, b_k ~ N(u_k, 1), u_k ~ N(0, α), and rows x ~ N(v_k, Σ) with
    v_k ~ N(B_k, 1), B_k ~ N(0, β), Σ diagonal, Σ_jj = j^−1.2; y is the class that W_k x + b_k
    favours, −1 or +1. Parties of one class keep only rows of that class (FedHybrid, C.1,
    set-up 3). Since a drawn party often has hardly any row of the class wanted, it is drawn anew
    until at least one row in twenty has it (of either class, for a mixed party).

    Parameters
    ----------
    negative, positive, mixed : int
        Number of parties with only −1, with only +1, and with both.
    columns : int
        Number of columns d.
    alpha, beta : float
        Variances of the parties' models and of the centres of their rows.
    seed : int
        Seed of everything.
    """
    sides = np.repeat([-1, 1, 0], [negative, positive, mixed])
    rng = np.random.default_rng(seed)
    sizes = party_sizes(len(sides), rng)
    blocks = [
        _one_sided(int(size), int(side), columns, alpha, beta, rng)
        for size, side in zip(sizes, sides, strict=True)
    ]
    note = f"{negative} parties with class -1 only, {positive} with +1 only, {mixed} with both"
    return _split(blocks, "classification", "one_sided_logistic", note)


def _one_sided(
    size: int, side: int, columns: int, alpha: float, beta: float, rng: np.random.Generator
) -> tuple[Floats, Floats]:
    """Rows and labels of one party; side 0 means both classes."""
    spread = np.arange(1, columns + 1) ** -0.6
    for _ in range(_MOST_TRIES):
        model = rng.normal(np.sqrt(alpha) * rng.normal(), 1.0, (2, columns + 1))
        centre = rng.normal(np.sqrt(beta) * rng.normal(), 1.0, columns)
        block = centre + spread * rng.normal(size=(20 * size, columns))
        against = model[1] - model[0]
        y = np.where(block @ against[:-1] + against[-1] > 0, 1.0, -1.0)
        if side and (y == side).sum() >= size:
            kept = np.flatnonzero(y == side)[:size]
            return block[kept], y[kept]
        both = min((y == 1).mean(), (y == -1).mean()) >= 0.05
        if side == 0 and both and len(np.unique(y[:size])) == 2:
            return block[:size], y[:size]
    raise DataError("no party drawn has rows of the class wanted; change alpha and beta.")


def _split(blocks: list[tuple[Floats, Floats]], task: Task, name: str, note: str) -> Split:
    """One tile a party, rows numbered through."""
    features = _numbered("x", 0, blocks[0][0].shape[1])
    held: Parties = {}
    start = 0
    for party, (block, y) in zip(party_names(len(blocks)), blocks, strict=True):
        ids = _numbered("", start, len(y))
        labels = y.astype(np.int64) if task == "classification" else y
        held[party] = (Tile(ids, features, np.ascontiguousarray(block), labels, name),)
        start += len(y)
    return Split(held, "mean", note, task, name)


def _numbered(prefix: str, start: int, length: int) -> Names:
    return np.array([f"{prefix}{i}" for i in range(start, start + length)], dtype=object)
