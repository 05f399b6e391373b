"""What noise in the released model costs in accuracy, for several ε; all tables are in one hand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
import numpy as np

from weft.array_types import Floats
from weft.data.columns.column_agreement import settled_together
from weft.data.pooled_table import pool
from weft.data.splits import Split
from weft.data.tile import Tile, block_columns, block_rows
from weft.errors import ConfigError
from weft.federation.local_federation import Federation, Trained
from weft.federation.model import Model
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.noised_weights import NoiseSize
from weft.report.plot_style import BLUE, GREY, INK, new_figure, not_drawn, polish
from weft.solvers.run_settings import Settings
from weft_evaluation.pooled_table_in_training_units import hold_out

#: So large an ε that the noise is below the last digits of a certificate.
_HARDLY_ANY = 1e12


@dataclass(frozen=True)
class NoisePoint:
    """Accuracies at one ε over many draws of the noise: their mean, and 5 % and 95 % of them."""

    epsilon: float
    sigma: float
    accuracy: float
    low: float
    high: float


@dataclass(frozen=True)
class NoiseCurve:
    """The price of noise.

    Attributes
    ----------
    without
        Accuracy of the same model without noise.
    tested
        On how many samples that were held out.
    """

    points: tuple[NoisePoint, ...]
    without: float
    tested: int
    delta: float


def noise_curve(
    tiles: Mapping[str, Sequence[Tile]],
    preprocessing: Preprocessing,
    settings: Settings,
    epsilons: Sequence[float],
    *,
    draws: int,
    test_share: float,
) -> NoiseCurve:
    """Train once, and measure models with many draws of noise on samples that were held out.

    Parameters
    ----------
    settings
        With noise, whose δ and row_norm count; its ε does not.
    """
    noise = settings.noise
    if noise is None:
        raise ConfigError("the config has no [noise]; say epsilon, delta and row_norm there")
    settled = settled_together(tiles, dict.fromkeys(tiles, 1), preprocessing.missing)
    train, test = hold_out(settled, test_share, settings.seed)
    hardly = msgspec.structs.replace(noise, epsilon=_HARDLY_ANY)
    quiet = msgspec.structs.replace(settings, noise=hardly)
    trained = Federation(train, preprocessing).train(quiet)
    rows, labels = _test_table(test, preprocessing, trained.model)
    rng = np.random.default_rng(settings.seed)
    points = []
    for epsilon in sorted(epsilons):
        asked = msgspec.structs.replace(noise, epsilon=epsilon)
        sigma = _size(trained, msgspec.structs.replace(settings, noise=asked), preprocessing).sigma
        bias = preprocessing.intercept_scaling if preprocessing.intercept else 0.0
        found = [
            _accuracy(_noisy(trained.model, sigma, bias, rng), rows, labels) for _ in range(draws)
        ]
        low, high = np.quantile(found, [0.05, 0.95]).tolist()
        points.append(NoisePoint(epsilon, sigma, float(np.mean(found)), low, high))
    without = _accuracy(trained.model, rows, labels)
    return NoiseCurve(tuple(points), without, len(labels), noise.delta)


def _size(trained: Trained, settings: Settings, preprocessing: Preprocessing) -> NoiseSize:
    holdings = trained.holdings
    return NoiseSize.of(
        settings,
        samples=holdings.n_samples,
        classes=len(trained.model.coef),
        holders=int(holdings.rows.holders.lengths.max()),
        bias=preprocessing.intercept_scaling if preprocessing.intercept else None,
    )


def _test_table(
    test: Mapping[str, Sequence[Tile]], preprocessing: Preprocessing, model: Model
) -> tuple[Floats, np.ndarray]:
    """Held-out rows with the columns of the model, and their labels."""
    held = {name: tuple(tile for tile in tiles if tile.n) for name, tiles in test.items()}
    table = pool(Split(held, preprocessing.overlap, ""))
    place = {name: column for column, name in enumerate(table.features.tolist())}
    columns = np.array([place[name] for name in model.features.tolist()], dtype=int)
    known = np.flatnonzero([label is not None and label == label for label in table.labels])
    block = block_columns(block_rows(table.block, known), columns)
    dense = block if isinstance(block, np.ndarray) else block.toarray()
    return dense, np.asarray(table.labels)[known]


def _noisy(model: Model, sigma: float, bias: float, rng: np.random.Generator) -> Model:
    """The model as it would have been released: with noise in every weight, the constant's too."""
    coef = model.coef + sigma * rng.standard_normal(model.coef.shape)
    intercept = model.intercept + sigma * bias * rng.standard_normal(model.intercept.shape)
    return replace(model, coef=coef, intercept=intercept)


def _accuracy(model: Model, rows: Floats, labels: np.ndarray) -> float:
    found = model.predict(rows)
    # A pooled table may have whole numbers as floats.
    return float((found == labels.astype(found.dtype)).mean())


def plot_noise(curve: NoiseCurve, path: Path, *, title: str) -> str | None:
    """Accuracy against ε; a sentence where it could not be drawn."""
    figure = new_figure(6.0, 3.6)
    if figure is None:
        return not_drawn("noise")
    axis = figure.add_subplot()
    epsilons = [point.epsilon for point in curve.points]
    low, high = [p.low for p in curve.points], [p.high for p in curve.points]
    axis.fill_between(epsilons, low, high, color=BLUE, alpha=0.15, linewidth=0)
    axis.plot(epsilons, [p.accuracy for p in curve.points], "o-", color=BLUE, label="with noise")
    axis.axhline(curve.without, color=GREY, linestyle="--", label="without noise")
    axis.set_xscale("log")
    axis.set_xlabel(f"ε (δ = {curve.delta:g})", color=INK)
    axis.set_ylabel(f"accuracy on {curve.tested} samples", color=INK)
    axis.set_title(title, color=INK)
    axis.legend(frameon=False)
    polish(axis)
    figure.savefig(path)
    return None
