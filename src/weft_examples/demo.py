"""The demo: nine parties that each hold a third of the rows and a third of the columns.

They learn to tell even from odd digits. The same problem, pooled, goes to liblinear, and each
party also tries alone with what it has.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from time import perf_counter
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto.ciphers.block_format import check_cipher
from weft.data import SPLITS, Split, Table, load
from weft.data.tile import Tile
from weft.federation.local_federation import Federation, Trained
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards import Terms
from weft.losses import get_loss
from weft.report.sizes_and_holders_of_groups import feature_sets
from weft.solvers.algorithm_choice import settled
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record

NAME = "digits, even against odd"


@dataclass(frozen=True)
class Size:
    """How much the demo does: slow ciphers and solvers get less to do.

    Attributes
    ----------
    lam, gap
        Regulariser, and the certified gap at which training stops.
    samples, pixels
        How many images to train on and which pixels of them; None: all.
    groups
        Groups of rows and of columns; every party holds one of each.
    min_batch
        As in `Terms`; a few rows need a small one.
    """

    lam: float = 3e-4
    gap: float = 1e-3
    samples: int | None = None
    pixels: tuple[int, ...] | None = None
    groups: int = 3
    min_batch: int = 10


#: Paillier takes milliseconds for every single value.
_MIDDLE = tuple(8 * row + column for row in (1, 3, 4, 6) for column in (2, 3, 4, 5))
SIZES = {
    # The papers' algorithm takes thousands of iterations at a small λ.
    "hyfdca": Size(lam=1e-2, gap=2e-3),
    "paillier": Size(lam=1e-2, gap=1e-2, samples=60, pixels=_MIDDLE, groups=2, min_batch=2),
}


@dataclass(frozen=True)
class Figures:
    """What the demo measured.

    Attributes
    ----------
    loss, loss_liblinear, relative_difference
        P(w) of both models on the pooled table, and (federated − liblinear) / liblinear.
    certified_gap, certified_at
        The federation's own proof, made without pooling anything, and its iteration.
    accuracy, accuracy_central, accuracy_best_party, best_party, accuracy_majority
        On the samples held out: federated, liblinear on the pooled table, the party that does best
        alone with its own rows and columns, and naming the most frequent class every time.
    round_trips, bytes, seconds
        What the federation cost, from matching to the certificate; seconds of wall clock.
    encryption_seconds, encryption_bytes
        Of these, spent on encryption: by all parties and the coordinator together, and the
        bytes of everything that travelled encrypted.
    slowest_party_encryption_seconds
        The same for the party that spent the most.
    values_encrypted
        How many values the parties encrypted.
    min_batch
        Samples that change together in every sum that others see, or none does.
    remarks
        What the run had to say, such as what guards cost.
    """

    parties: int
    samples: int
    features: int
    test_samples: int
    cipher: str
    solver: str
    loss: float
    loss_liblinear: float
    relative_difference: float
    certified_gap: float
    certified_at: int
    accuracy: float
    accuracy_central: float
    accuracy_best_party: float
    accuracy_majority: float
    best_party: str
    round_trips: int
    bytes: int
    seconds: float
    encryption_seconds: float
    encryption_bytes: int
    slowest_party_encryption_seconds: float
    values_encrypted: int
    min_batch: int
    remarks: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)

    def explanation(self) -> str:
        """What the figures mean, for a first-time reader."""
        part = "third" if self.parties == 9 else "half"
        return (
            f"{self.parties} parties each hold a {part} of {self.samples} images and a {part} of "
            f"their {self.features} pixels. Without showing each other a pixel they found a "
            f"classifier whose loss is within {abs(self.relative_difference):.1e} of what "
            "liblinear finds with everything in one place. They did not need liblinear to know: "
            "the duality gap, computed from their sums alone, proves that no linear model has a "
            f"loss more than {self.certified_gap:.2%} lower."
        )


@dataclass(frozen=True)
class Demo:
    """The demo's figures, the run behind them, and what every party reaches alone."""

    figures: Figures
    trained: Trained
    settings: Settings
    alone: dict[str, float]
    tiles: Mapping[str, Sequence[Tile]]

    def accuracy(self) -> dict[str, Any]:
        """Of all three, as a report tells it."""
        return {
            "where": f"{self.figures.test_samples} images held out",
            "samples": self.figures.test_samples,
            "majority": self.figures.accuracy_majority,
            "federated": self.figures.accuracy,
            "central": self.figures.accuracy_central,
            "alone": self.alone,
        }

    def feature_sets(self) -> dict[str, Any] | None:
        """Who holds which feature of the model, as a report tells it."""
        return feature_sets(self.tiles, self.trained.holdings.parties, self.trained.model)


def run_demo(
    cipher: str = "pad",
    progress: Callable[[Record], None] | None = None,
    *,
    solver: str = "auto",
) -> Demo:
    """Train the parties, liblinear, and every party alone."""
    check_cipher(cipher)
    size = SIZES.get(cipher) or SIZES.get(solver) or Size()
    # On shares a loss has no kink.
    named = "logistic" if solver == "sealed" else "hinge"
    settings = Settings(loss=named, lam=size.lam, gap=size.gap, cipher=cipher, solver=solver)
    settled(settings)
    train, test = _parts(_even_against_odd(), size)
    split = SPLITS["grid"](train, k=size.groups, q=size.groups)
    _compile(train, settings)
    start = perf_counter()
    # No constant column: liblinear then minimises the same function without further ado.
    # The table is public, so that parties may get as many sums as they lack columns.
    terms = Terms(
        min_batch=size.min_batch,
        allow_pairs=size.groups < 3,
        allow_exposure=True,
        ciphers=(cipher,),
    )
    federation = Federation(split.parties, Preprocessing(unit_rows=True), terms=terms)
    trained = federation.train(settings, progress=progress)
    seconds = perf_counter() - start

    factor = trained.model.scaling[1]
    x = train.block * factor
    central = _liblinear(x, train.labels, size.lam, named, intercept=False)
    loss = _loss(x, train.labels, trained.model.coef[0] / factor, size.lam, named)
    best = _loss(x, train.labels, central.coef_[0], size.lam, named)
    certificate = trained.result.certificate
    if certificate is None:
        raise AssertionError("everyone takes part, so the last model is certified")
    alone = _alone(split, test, float(factor[0]), size.lam, named)
    best_accuracy, best_party = max((accuracy, name) for name, accuracy in alone.items())
    cost = trained.meter.read()
    figures = Figures(
        parties=len(split.parties),
        samples=train.n,
        features=train.m,
        test_samples=test.n,
        cipher=cipher,
        solver=trained.settings.solver,
        loss=loss,
        loss_liblinear=best,
        relative_difference=(loss - best) / best,
        certified_gap=certificate.gap,
        certified_at=certificate.iteration,
        accuracy=float((trained.model.predict(test.block) == test.labels).mean()),
        accuracy_central=float(central.score(test.block * factor, test.labels)),
        accuracy_best_party=best_accuracy,
        accuracy_majority=_majority(train, test),
        best_party=best_party,
        round_trips=cost.round_trips,
        bytes=cost.bytes_down + cost.bytes_up,
        seconds=seconds,
        encryption_seconds=trained.encryption.seconds,
        encryption_bytes=trained.encryption.bytes,
        slowest_party_encryption_seconds=trained.encryption.slowest.seconds,
        values_encrypted=trained.encryption.parties.encrypted,
        min_batch=terms.min_batch,
        remarks=tuple(trained.result.notes),
    )
    return Demo(figures, trained, settings, alone, split.parties)


def _compile(table: Table, settings: Settings) -> None:
    """A few rows first: on a fresh machine, the compiled loops are made now and not timed."""
    few = SPLITS["grid"](table.rows(np.arange(16)), k=2, q=2)
    # Paillier's own loops are not compiled, and slow.
    cipher = "pad" if settings.cipher == "paillier" else settings.cipher
    settings = msgspec.structs.replace(settings, lam=0.1, gap=1e-3, iterations=4, cipher=cipher)
    terms = Terms(min_batch=2, allow_pairs=True, ciphers=(cipher,))
    Federation(few.parties, Preprocessing(unit_rows=True), terms=terms).train(settings)


def _even_against_odd() -> Table:
    table = load("digits")
    return replace(table, labels=np.where(table.labels % 2 == 0, 1, -1))


def _parts(table: Table, size: Size) -> tuple[Table, Table]:
    """Three quarters to train on, or fewer, and one quarter to test on."""
    if size.pixels is not None:
        pixels = list(size.pixels)
        table = replace(
            table,
            block=np.ascontiguousarray(table.block[:, pixels]),
            features=table.features[pixels],
        )
    order = np.random.default_rng(0).permutation(table.n)
    held_out = table.n // 4
    kept = order[held_out:][: size.samples]
    return table.rows(np.sort(kept)), table.rows(np.sort(order[:held_out]))


def _majority(train: Table, test: Table) -> float:
    """Accuracy of the class that most samples trained on have."""
    classes, counts = np.unique(train.labels, return_counts=True)
    return float((test.labels == classes[counts.argmax()]).mean())


def _liblinear(x: Any, y: NDArray[Any], lam: float, loss: str, *, intercept: bool) -> Any:
    """The same problem for liblinear: its C multiplies a sum of losses, so C = 1/(λN)."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if loss == "logistic":
        return LogisticRegression(
            C=1 / (lam * len(y)),
            fit_intercept=intercept,
            solver="liblinear",
            tol=1e-8,
            max_iter=10_000,
        ).fit(x, y)
    svm = LinearSVC(
        loss="hinge",
        C=1 / (lam * len(y)),
        fit_intercept=intercept,
        tol=1e-6,
        max_iter=100_000,
        random_state=0,
    )
    return svm.fit(x, y)


def _loss(x: Any, y: NDArray[Any], w: Floats, lam: float, loss: str) -> float:
    losses = get_loss(loss).value(x @ w, y.astype(np.float64))
    return float(lam / 2 * (w @ w) + losses.mean())


def _alone(split: Split, test: Table, factor: float, lam: float, loss: str) -> dict[str, float]:
    """Accuracy that each party reaches with its own tile alone.

    Parties alone get a constant column, which helps them more than it helps the federation.
    """
    place = {feature: column for column, feature in enumerate(test.features.tolist())}
    found = {}
    for name, tile in split.tiles():
        alone = _liblinear(tile.block * factor, np.asarray(tile.labels), lam, loss, intercept=True)
        mine = np.asarray(test.block)[:, [place[feature] for feature in tile.features.tolist()]]
        found[name] = float(alone.score(mine * factor, test.labels))
    return found
