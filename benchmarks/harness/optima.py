"""What a central solver reaches on a pooled table: liblinear for hinge, scipy for logistic.

Optima are kept in WEFT_CACHE, or in the folder for temporary files.
"""

from __future__ import annotations

import json
import os
import tempfile
import warnings
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter
from typing import Any, cast

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from weft.data import Table
from weft.losses import get_loss

Floats = NDArray[np.float64]

#: Passes after which liblinear stops, converged or not: its P is an upper bound on P* either way.
PASSES = 10_000


@dataclass(frozen=True)
class Optimum:
    """What a central solver reached, per class.

    Attributes
    ----------
    primal
        P of its w: P* at most lies as high.
    known
        By what share of P the solver itself proves that it may be above P* (a gradient g and
        λ-strong convexity: ‖g‖²/2λ), −1 where it proves nothing.
    """

    primal: list[float]
    known: float
    how: str
    seconds: float


def with_constant(block: Any) -> Any:
    """The table with the column of the intercept."""
    if isinstance(block, np.ndarray):
        return np.hstack([block, np.ones((len(block), 1))])
    whole = sp.csr_array(sp.hstack([block, sp.csr_array(np.ones((block.shape[0], 1)))]))
    # liblinear takes no others.
    whole.indices, whole.indptr = whole.indices.astype(np.int32), whole.indptr.astype(np.int32)
    return whole


def signs(table: Table, classes: NDArray[Any]) -> Floats:
    """±1 per class, one against the rest; of two classes only the second."""
    wanted = classes[1:] if len(classes) == 2 else classes
    return np.where(np.asarray(table.labels)[:, None] == wanted[None, :], 1.0, -1.0)


def primal(block: Any, labels: Floats, loss: str, lam: float, w: Floats) -> list[float]:
    """P per class of w (columns × classes)."""
    losses = get_loss(loss).value(np.asarray(block @ w), labels).mean(axis=0)
    total: list[float] = (0.5 * lam * np.einsum("ij,ij->j", w, w) + losses).tolist()
    return total


def optimum(
    data: str, loss: str, lam: float, table: Table, classes: NDArray[Any], *, keep: bool = True
) -> Optimum:
    """Of a pooled table of that name, with ``keep`` from the cache where it is there."""
    folder = Path(os.environ.get("WEFT_CACHE") or tempfile.gettempdir())
    held = np.count_nonzero(table.block) if isinstance(table.block, np.ndarray) else table.block.nnz
    name = f"weft-optimum-{data}-{table.n}x{table.m}-{held}-{loss}-{lam:g}.json"
    if keep and (folder / name).is_file():
        return Optimum(**json.loads((folder / name).read_text()))
    print(f"  finding the central optimum of {data}, {loss} …", flush=True)
    began = perf_counter()
    block, labels = with_constant(table.block), signs(table, classes)
    if loss == "hinge":
        w, known, how = by_liblinear(block, labels, lam)
    else:
        w, known, how = by_scipy(block, labels, lam)
    found = Optimum(primal(block, labels, loss, lam, w), known, how, perf_counter() - began)
    if keep:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(json.dumps(asdict(found)) + "\n")
    return found


def by_liblinear(block: Any, labels: Floats, lam: float) -> tuple[Floats, float, str]:
    """LinearSVC, dual coordinate descent: min ½‖w‖² + C Σ hinge with C = 1/(λN)."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.svm import LinearSVC

    columns, short = [], 0
    for y in labels.T:
        model = LinearSVC(
            loss="hinge",
            dual=True,
            C=1.0 / (lam * len(y)),
            fit_intercept=False,
            tol=1e-5,
            max_iter=PASSES,
            random_state=0,
        )
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            model.fit(block, y)
        short += any(issubclass(w.category, ConvergenceWarning) for w in caught)
        columns.append(model.coef_[0])
        print(f"  liblinear: {model.n_iter_} passes", flush=True)
    how = "liblinear, tol 1e-5"
    if short:
        how += f", {short} of {len(labels.T)} stopped after {PASSES:,} passes: P* lies below"
    return np.stack(columns, axis=1), -1.0, how


def by_scipy(block: Any, labels: Floats, lam: float) -> tuple[Floats, float, str]:
    """L-BFGS on all classes at once, from zero, with its distance to P* from the gradient."""
    n, width = labels.shape
    shape = (block.shape[1], width)
    across = block.T if isinstance(block, np.ndarray) else sp.csr_array(block.T)

    def value(flat: Floats) -> tuple[float, Floats]:
        w = flat.reshape(shape)
        margins = labels * np.asarray(block @ w)
        slopes = -labels * expit(-margins) / n
        total = 0.5 * lam * float((w * w).sum()) + float(np.logaddexp(0.0, -margins).sum()) / n
        return total, (lam * w + np.asarray(across @ slopes)).ravel()

    # The gradient's square over 2λ, of all classes, is to be 1e-7 of a P of about 0.1.
    near = np.sqrt(2 * lam * 1e-8)

    def enough(flat: Floats) -> None:
        if np.linalg.norm(value(flat)[1]) < near:
            raise StopIteration

    options = {"maxiter": 1500, "maxfun": 2000, "maxcor": 20, "ftol": 0.0, "gtol": 0.0}
    found: Any = cast("Any", minimize)(
        value,
        np.zeros(block.shape[1] * width),
        jac=True,
        method="L-BFGS-B",
        callback=enough,
        options=options,
    )
    gradient = value(found.x)[1].reshape(shape)
    w = found.x.reshape(shape)
    above = (gradient**2).sum(axis=0) / (2 * lam)
    share = float((above / np.array(primal(block, labels, "logistic", lam, w))).max())
    return w, share, f"scipy's L-BFGS, {found.nit} iterations, P* at most {share:.1g} below"
