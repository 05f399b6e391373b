"""The demo: nine parties that each hold a third of the rows and a third of the columns.

They learn to tell even from odd digits. The same problem, pooled, goes to liblinear, and each
party also tries alone with what it has.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.base import Record
from weft.algorithms.settings import Settings
from weft.data import SPLITS, Split, Table, load
from weft.federation import Federation, Preparation, Trained
from weft.losses import get_loss

Floats = NDArray[np.float64]

LAMBDA = 1e-2
GAP = 2e-3
NAME = "digits, even against odd"


@dataclass(frozen=True)
class Figures:
    """What the demo measured.

    Attributes
    ----------
    loss, loss_liblinear, relative_difference
        P(w) of both models on the pooled table, and (federated − liblinear) / liblinear.
    certified_gap, certified_at
        The federation's own proof, made without pooling anything, and its iteration.
    accuracy, accuracy_central, accuracy_best_party, best_party
        On the samples held out: federated, liblinear on the pooled table, and the party that
        does best alone with its own rows and columns.
    round_trips, bytes, seconds
        What the federation cost, from matching to the certificate; seconds of wall clock.
    """

    parties: int
    samples: int
    features: int
    test_samples: int
    cipher: str
    loss: float
    loss_liblinear: float
    relative_difference: float
    certified_gap: float
    certified_at: int
    accuracy: float
    accuracy_central: float
    accuracy_best_party: float
    best_party: str
    round_trips: int
    bytes: int
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def explanation(self) -> str:
        """What the figures say, for somebody who sees them for the first time."""
        return (
            f"{self.parties} parties each hold a third of {self.samples} images and a third of "
            f"their {self.features} pixels. Without showing each other a pixel they found a "
            f"classifier whose loss is within {abs(self.relative_difference):.1e} of what "
            "liblinear finds with everything in one place. They did not need liblinear to know: "
            "the duality gap, computed from their sums alone, proves that no linear model has a "
            f"loss more than {self.certified_gap:.2%} lower."
        )


@dataclass(frozen=True)
class Demo:
    """The demo's figures and the run behind them."""

    figures: Figures
    trained: Trained
    settings: Settings


def run_demo(cipher: str = "plain", progress: Callable[[Record], None] | None = None) -> Demo:
    """Train the nine parties, liblinear, and every party alone."""
    train, test = _parts(_even_against_odd())
    split = SPLITS["grid"](train, k=3, q=3)
    settings = Settings(loss="hinge", lam=LAMBDA, gap=GAP, cipher=cipher)
    start = perf_counter()
    # No constant column: liblinear then minimises the same function without further ado.
    federation = Federation(split.parties, Preparation(unit_rows=True))
    trained = federation.train(settings, progress=progress)
    seconds = perf_counter() - start

    factor = trained.model.scaling[1]
    x = train.block * factor
    central = _liblinear(x, train.labels, intercept=False)
    loss = _loss(x, train.labels, trained.model.coef[0] / factor)
    best = _loss(x, train.labels, central.coef_[0])
    certificate = trained.result.certificate
    if certificate is None:
        raise AssertionError("everyone takes part, so the last model is certified")
    best_party, best_accuracy = _best_alone(split, test, float(factor[0]))
    cost = trained.meter.read()
    figures = Figures(
        parties=len(split.parties),
        samples=train.n,
        features=train.m,
        test_samples=test.n,
        cipher=cipher,
        loss=loss,
        loss_liblinear=best,
        relative_difference=(loss - best) / best,
        certified_gap=certificate.gap,
        certified_at=certificate.iteration,
        accuracy=float((trained.model.predict(test.block) == test.labels).mean()),
        accuracy_central=float(central.score(test.block * factor, test.labels)),
        accuracy_best_party=best_accuracy,
        best_party=best_party,
        round_trips=cost.round_trips,
        bytes=cost.bytes_down + cost.bytes_up,
        seconds=seconds,
    )
    return Demo(figures, trained, settings)


def _even_against_odd() -> Table:
    table = load("digits")
    return replace(table, labels=np.where(table.labels % 2 == 0, 1, -1))


def _parts(table: Table) -> tuple[Table, Table]:
    """Three quarters to train on, one quarter to test on."""
    order = np.random.default_rng(0).permutation(table.n)
    held_out = table.n // 4
    return table.rows(np.sort(order[held_out:])), table.rows(np.sort(order[:held_out]))


def _liblinear(x: Any, y: NDArray[Any], *, intercept: bool) -> Any:
    """The same problem for liblinear: its C multiplies a sum of losses, so C = 1/(λN)."""
    from sklearn.svm import LinearSVC

    svm = LinearSVC(
        loss="hinge",
        C=1 / (LAMBDA * len(y)),
        fit_intercept=intercept,
        tol=1e-6,
        max_iter=100_000,
        random_state=0,
    )
    return svm.fit(x, y)


def _loss(x: Any, y: NDArray[Any], w: Floats) -> float:
    losses = get_loss("hinge").value(x @ w, y.astype(np.float64))
    return float(LAMBDA / 2 * (w @ w) + losses.mean())


def _best_alone(split: Split, test: Table, factor: float) -> tuple[str, float]:
    """Name and accuracy of the party that does best with its own tile alone.

    Parties alone get a constant column, which helps them more than it helps the federation.
    """
    place = {feature: column for column, feature in enumerate(test.features.tolist())}
    found = []
    for name, tile in split.tiles():
        alone = _liblinear(tile.block * factor, np.asarray(tile.labels), intercept=True)
        mine = np.asarray(test.block)[:, [place[feature] for feature in tile.features.tolist()]]
        found.append((float(alone.score(mine * factor, test.labels)), name))
    accuracy, name = max(found)
    return name, accuracy
