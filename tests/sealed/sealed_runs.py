"""Small sealed runs, and the judge from outside."""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.solvers.run_settings import Settings

ROWS, COLUMNS = 90, 7
NAMES = [f"c{j}" for j in range(COLUMNS)]


def table(seed=0, classes=2, rows=ROWS):
    rng = np.random.default_rng(seed)
    block = rng.normal(size=(rows, COLUMNS))
    scores = block @ rng.normal(size=(COLUMNS, max(classes, 1))) + rng.normal(size=(rows, 1))
    if classes == 0:
        return block, scores[:, 0]
    labels = scores.argmax(axis=1) if classes > 2 else (scores[:, 0] > 0).astype(int)
    return block, labels


def tile(block, labels, rows, columns, labelled=True):
    rows, columns = np.arange(len(block))[rows], np.arange(COLUMNS)[columns]
    return Tile.make(
        [f"i{r}" for r in rows],
        [NAMES[c] for c in columns],
        block[np.ix_(rows, columns)],
        labels[rows] if labelled else None,
    )


def cut(block, labels, how):
    """Parties that hold these (rows, columns, labelled)."""
    return {name: [tile(block, labels, *part) for part in parts] for name, parts in how.items()}


ALL = slice(None)
CUTS = {
    "horizontal": {"a": [(slice(0, 40), ALL)], "b": [(slice(40, None), ALL)]},
    "vertical": {"a": [(ALL, slice(0, 3))], "b": [(ALL, slice(3, None), False)]},
    "grid": {
        "a": [(slice(0, 40), slice(0, 4))],
        "b": [(slice(40, None), slice(0, 4))],
        "c": [(slice(0, 40), slice(4, None), False)],
        "d": [(slice(40, None), slice(4, None), False)],
    },
    "overlapping": {
        "a": [(slice(0, 60), slice(0, 5))],
        "b": [(slice(30, None), slice(0, 4), False), (slice(60, None), slice(4, 5))],
        "c": [(ALL, slice(3, None), False)],
    },
}


def held(block, how):
    """The pooled table: cells that nobody holds count as zero."""
    mask = np.zeros(block.shape, bool)
    for parts in how.values():
        for rows, columns, *_ in parts:
            mask[rows, columns] = True
    return block * mask


def optimum(block, labels, lam, loss, free=False, offset=0.0, counts=1.0, weights=False):
    """The least P by scipy on the pooled table, and P itself; or the best ``weights``.

    A free intercept is one more column of ones, the last, that λ does not hold back.
    """
    n = len(labels)
    held_back = np.full(block.shape[1], lam)
    if free:
        block, held_back = np.c_[block, np.ones(n)], np.append(held_back, 0.0)

    def value(w):
        z = block @ w + offset
        if loss == "squared":
            losses, slopes = (z - labels) ** 2 / 2, z - labels
        else:
            losses, slopes = np.logaddexp(0, -labels * z), -labels * expit(-labels * z)
        gradient = block.T @ (counts * slopes) / n + held_back * w
        return (counts * losses).mean() + held_back @ w**2 / 2, gradient

    found = minimize(
        value,
        np.zeros(block.shape[1]),
        jac=True,
        method="L-BFGS-B",
        options={"maxiter": 9000, "ftol": 1e-16, "gtol": 1e-12},
    )
    if weights:
        return found.x
    return found.fun, lambda w: value(w)[0]


def train(tiles, *, lam=1e-2, loss="logistic", record=False, packed=False, free=False, **settings):
    """A run without an intercept, or with a free one."""
    federation = Federation(tiles, Preprocessing(intercept=free), record=record, packed=packed)
    told = Settings(lam=lam, loss=loss, solver="sealed", penalize_intercept=not free, **settings)
    return federation, federation.train(told)


def weights(model):
    order = [list(model.features).index(name) for name in NAMES]
    return model.coef[:, order]
