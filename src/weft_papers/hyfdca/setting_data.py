"""The data of a setting: the tiles, the pooled table to evaluate on, and held-out samples.

The paper does not say how it got its validation samples. MNIST has test images of its own; of the
other two every fifth sample, shuffled by a seed, is held out.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.data import Split, Table, load
from weft.data.named_data_set_files import DataFolder
from weft.data.tile import block_rows
from weft.errors import DataError
from weft.losses import get_loss
from weft_evaluation.reference_optimum import Problem, solve
from weft_papers.data.splits import dealt, quadrants
from weft_papers.hyfdca.paper import Setting, data_sets

#: Of samples that bring no validation set of their own.
_HELD_OUT = 0.2
#: One of the files that each data set needs.
_FILES = {
    "mnist": "mnist/train-images-idx3-ubyte.gz",
    "newsgroups": "newsgroups/20_newsgroups.tar.xz",
    "covtype": "covtype/covtype.csv.xz",
}
#: Value of the constant column of MNIST, in the fourth quadrant.
BIAS = 10.0


@dataclass(frozen=True)
class Samples:
    """Tables to train on and to validate with, MNIST's with the constant column.

    Attributes
    ----------
    norm
        The largest ‖x_i‖ of those trained on.
    """

    train: Table
    validation: Table
    norm: float

    @classmethod
    def of(cls, name: str, seed: int = 0) -> Samples:
        """A data set, from the folder that WEFT_DATA names."""
        if name == "mnist":
            train, validation = load(name), load(name, part="test")
        else:
            options = {}
            if name == "newsgroups" and "WEFT_CACHE" in os.environ:
                options["cache_dir"] = os.environ["WEFT_CACHE"]
            train, validation = _halves(load(name, **options), seed)
        return cls(train, validation, _longest(train, BIAS if name == "mnist" else 0.0))


def _halves(table: Table, seed: int) -> tuple[Table, Table]:
    order = np.random.default_rng(seed).permutation(table.n)
    held = round(_HELD_OUT * table.n)
    return _rows(table, np.sort(order[held:])), _rows(table, np.sort(order[:held]))


def _rows(table: Table, rows: NDArray[np.int64]) -> Table:
    return replace(
        table,
        ids=table.ids[rows],
        block=block_rows(table.block, rows),
        labels=table.labels[rows],
    )


def _longest(table: Table, bias: float) -> float:
    block: Any = table.block
    squares = block.multiply(block).sum(axis=1) if hasattr(block, "tocsr") else (block**2).sum(1)
    return float(np.sqrt(np.max(squares) + bias**2))


def check_data(name: str) -> str:
    """Why a data set cannot be read, in a sentence; empty: its files are there."""
    try:
        DataFolder.of(name, None).file(_FILES[name])
    except DataError as error:
        return str(error)
    return ""


@dataclass(frozen=True)
class SettingData:
    """One setting's tiles, and the pooled problem that runs are evaluated on.

    Attributes
    ----------
    lam
        λ, in the units of the tiles.
    problem
        P on the pooled table, with the features in the order of ``features``.
    """

    split: Split
    lam: float
    features: NDArray[np.object_]
    problem: Problem
    validation: Any
    answers: NDArray[np.int64]

    def accuracy(self, w: Floats) -> float:
        """Of predictions for the samples held out."""
        scores = np.asarray(self.validation @ w)
        chosen = scores.argmax(axis=1) if scores.shape[1] > 1 else (scores[:, 0] > 0).astype(int)
        return float((chosen == self.answers).mean())


@lru_cache(maxsize=1)
def setting_data(
    name: str, setting: Setting, *, unit_rows: bool = False, seed: int = 0
) -> SettingData:
    """Cut a data set as the paper does; the last one is kept.

    Parameters
    ----------
    unit_rows
        Divide all cells by the largest ‖x_i‖, and λ by its square: the same problem in units in
        which no row is longer than 1, as the paper's local method takes for granted.
    """
    samples = _samples(name, seed)
    factor = samples.norm if unit_rows else 1.0
    train = _divided(samples.train, factor)
    if name == "mnist":
        split = quadrants(train, parties=setting.count, bias=BIAS / factor)
    else:
        k, q = setting.parties
        split = dealt(train, k=k, q=q, seed=seed)
    lam = data_sets()[name].lam / factor**2
    bias = BIAS / factor if name == "mnist" else None
    features, x = _with_bias(train, bias)
    _, held = _with_bias(_divided(samples.validation, factor), bias)
    classes, targets = np.unique(samples.train.labels, return_inverse=True)
    signs = _signs(targets, len(classes))
    weights = np.full(len(signs), 1.0 / len(signs))
    problem = Problem(x, signs, weights, get_loss("hinge"), lam)
    answers = np.searchsorted(classes, samples.validation.labels)
    return SettingData(split, lam, features, problem, held, answers)


@lru_cache(maxsize=1)
def _samples(name: str, seed: int) -> Samples:
    return Samples.of(name, seed)


def _divided(table: Table, factor: float) -> Table:
    if factor == 1.0:
        return table
    block: Any = table.block
    return replace(table, block=block / factor)


def _with_bias(table: Table, bias: float | None) -> tuple[NDArray[np.object_], Any]:
    if bias is None:
        return table.features, table.block
    block = np.asarray(table.block)
    named = np.append(table.features, np.array(["bias"], dtype=object))
    return named, np.hstack([block, np.full((table.n, 1), bias)])


def _signs(targets: NDArray[np.int64], classes: int) -> Floats:
    wanted = np.arange(classes) if classes > 2 else np.array([1])
    return np.where(targets[:, None] == wanted, 1.0, -1.0)


def central(name: str, seed: int = 0) -> dict[str, float | str]:
    """Table 5's counterpart: what liblinear comes to on the pooled table, and how well it does."""
    setting = data_sets()[name].settings[0]
    context = setting_data(name, setting, seed=seed)
    found = solve(context.problem)
    return {
        "loss": found.primal,
        "accuracy": context.accuracy(found.w),
        "how": found.how,
        "seconds": found.seconds,
        "classes": float(context.problem.y.shape[1]),
        "samples": float(len(context.answers) + len(context.problem.p)),
    }
