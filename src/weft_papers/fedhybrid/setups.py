"""The four set-ups of the FedHybrid paper (section C.1).

What the paper leaves open is chosen here: the regulariser λ (its ρ is nλ, not given); sizes of
synthetic parties are cut at 1,000; "normalise" is standard columns for Boston and rows of norm 1
for mushroom, where every row has 23 ones; and which parties are Newton-type, the first K of a
shuffled order.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from weft.data import Split, Table, load
from weft.data.splits.split_and_cutter import Cutter, Parties, party_names
from weft.errors import ConfigError, DataError
from weft.losses import Loss, get_loss
from weft_papers.data.splits import sorted_response
from weft_papers.data.synthetic import one_sided_logistic, scaled_squares

Folder = str | os.PathLike[str] | None


@dataclass(frozen=True)
class Setup:
    """One of the paper's four problems.

    Attributes
    ----------
    split
        The parties' rows; every party has all columns.
    lam
        λ of P(w) = λ/2 ‖w‖² + mean loss.
    ladder
        Numbers of Newton-type parties that the paper's Figure 2 and 4 compare.
    """

    name: str
    split: Split
    loss: Loss
    lam: float
    ladder: tuple[int, ...]

    @property
    def parties(self) -> list[str]:
        return list(self.split.parties)

    def newton(self, k: int, seed: int = 0) -> list[str]:
        """Who is Newton-type in FedH-K: more and more of one shuffled order."""
        order = np.random.default_rng(seed).permutation(len(self.parties))
        return [self.parties[i] for i in sorted(order[:k].tolist())]


def fedhybrid_setup(name: str, seed: int = 0, data_dir: Folder = None) -> Setup:
    """One of the set-ups.

    Parameters
    ----------
    name : {"synthetic_squares", "boston", "synthetic_logistic", "mushroom"}
        Which one.
    seed : int
        Seed of data and sizes.
    data_dir : path, optional
        Folder with the original files of boston and mushroom, as for `weft.data.load`.
    """
    if name not in SETUPS:
        raise ConfigError(f"FedHybrid has no set-up {name!r}; choose one of {', '.join(SETUPS)}.")
    return SETUPS[name](seed, data_dir)


def _synthetic_squares(seed: int, data_dir: Folder) -> Setup:
    split = scaled_squares(seed=seed)
    return Setup("synthetic_squares", split, get_loss("squared"), 1e-2, (0, 4, 8, 12, 16, 20))


def _boston(seed: int, data_dir: Folder) -> Setup:
    table = load("boston", data_dir)
    block = np.asarray(table.block)
    block = (block - block.mean(axis=0)) / block.std(axis=0)
    features = np.append(table.features, np.array(["constant"], dtype=object))
    constant = replace(table, block=np.hstack([block, np.ones((table.n, 1))]), features=features)
    split = sorted_response(constant, 8, seed)
    return Setup("boston", split, get_loss("squared"), 1e-2, (0, 2, 4, 6, 8))


def _synthetic_logistic(seed: int, data_dir: Folder) -> Setup:
    split = one_sided_logistic(seed=seed)
    return Setup("synthetic_logistic", split, get_loss("logistic"), 1e-2, (0, 4, 8, 12, 16, 20))


def _mushroom(seed: int, data_dir: Folder) -> Setup:
    table = load("mushroom", data_dir)
    block = np.asarray(table.block)
    rows = replace(table, block=block / np.linalg.norm(block, axis=1, keepdims=True))
    split = _one_label_each(rows, 4, 3, seed)
    return Setup("mushroom", split, get_loss("logistic"), 1e-3, (0, 2, 4, 6, 8))


SETUPS: dict[str, Callable[[int, Folder], Setup]] = {
    "synthetic_squares": _synthetic_squares,
    "boston": _boston,
    "synthetic_logistic": _synthetic_logistic,
    "mushroom": _mushroom,
}


def tiny_setup(seed: int = 0) -> Setup:
    """A set-up of seconds, for trying things out: least squares at three parties."""
    split = scaled_squares(3, 4, seed=seed)
    return Setup("tiny", split, get_loss("squared"), 1e-1, (0, 3))


def _one_label_each(table: Table, negative: int, positive: int, seed: int) -> Split:
    """Parties with −1 only, parties with +1 only, and one with both; uniform sizes.

    Of each label the mixed party gets half a share.
    """
    rng = np.random.default_rng(seed)
    held: list[NDArray[np.int64]] = []
    mixed: list[NDArray[np.int64]] = []
    for label, count in ((-1, negative), (1, positive)):
        rows = rng.permutation(np.flatnonzero(table.labels == label))
        shares = np.append(0.1 + rng.random(count), 0.3)
        ends = np.rint(len(rows) * np.cumsum(shares) / shares.sum()).astype(np.int64)
        *own, rest = np.split(rows, ends[:-1])
        held += own
        mixed.append(rest)
    held.append(np.concatenate(mixed))
    if min(len(rows) for rows in held) == 0:
        raise DataError(f"{table.name}: too few samples for {len(held)} parties of one label.")
    cutter = Cutter(table)
    tiles: Parties = {
        name: (cutter.tile(np.sort(rows)),)
        for name, rows in zip(party_names(len(held)), held, strict=True)
    }
    note = f"{negative} parties with -1 only, {positive} with +1 only, one with both"
    return Split(tiles, "mean", note, table.task, table.name)
