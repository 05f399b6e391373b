"""What the network's demo shows in the end: its model against two others, and figures."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from weft.errors import ProtocolError
from weft.federation.local_federation import Trained
from weft.federation.model import Model
from weft_examples.network_demo_data import Example


@dataclass(frozen=True)
class SealedFigures:
    """What the sealed leg showed.

    Attributes
    ----------
    equal
        Whether the model is that of one process which drew the same, to the last bit.
    seconds
        From its submission to its end.
    """

    equal: bool
    gradients: int
    round_trips: int
    certified_gap: float
    seconds: float
    notes: tuple[str, ...]


@dataclass(frozen=True)
class Figures:
    """What the demo showed.

    Attributes
    ----------
    equal
        Whether the model is that of the run in one process, to the last bit.
    looks, processes, listening, connections
        How often the sockets of all processes were looked at, and how many there were at most: all
        of them on the loopback.
    exchanges, missed
        Of the run, and how many of them the killed party missed.
    away_iterations
        Iterations that HyFDCA did without it.
    loss, loss_central, certified_gap
        On the samples of all parties; the central one is liblinear's on the pooled table.
    accuracy, accuracy_central
        On held-out samples.
    sealed
        Of the run on shares.
    seconds
        Of the whole demo; of the run, from its submission to its end; of the run in one process.
    """

    data: str
    parties: int
    samples: int
    features: int
    test_samples: int
    equal: bool
    looks: int
    processes: int
    listening: int
    connections: int
    exchanges: int
    missed: int
    away_iterations: int
    iterations: int
    round_trips: int
    bytes: int
    loss: float
    loss_central: float
    relative_difference: float
    certified_gap: float
    accuracy: float
    accuracy_central: float
    seconds: dict[str, float]
    notes: tuple[str, ...]
    sealed: SealedFigures

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        return asdict(self)


def same(one: Model, other: Model) -> bool:
    """Whether two models are equal to the last bit of every number."""
    pairs = (
        (one.coef, other.coef),
        (one.intercept, other.intercept),
        (one.scaling[0], other.scaling[0]),
        (one.scaling[1], other.scaling[1]),
    )
    return one.features.tolist() == other.features.tolist() and all(
        a.shape == b.shape and a.tobytes() == b.tobytes() for a, b in pairs
    )


def figures_of(example: Example, model: Model, repeated: Trained, **more: Any) -> Figures:
    """Hold the model against central training; ``more`` are the figures that the run gave."""
    train, test = example.train, example.test
    names = np.asarray(train.features)
    shift, factor = model.scaling
    x = (model.aligned(names, np.asarray(train.block)) - shift) * factor
    held_out = model.aligned(names, np.asarray(test.block))
    if model.classes is None or repeated.result.certificate is None:
        raise ProtocolError("the model is not a certified classifier; look into its summary")
    y = np.where(train.labels == model.classes[1], 1.0, -1.0)
    central = _liblinear(x, y, model.lam)
    own = np.append(model.coef[0] / factor, model.intercept[0] + model.coef[0] @ shift)
    loss = _loss(x, y, own, model.lam)
    best = _loss(x, y, np.append(central.coef_[0], central.intercept_[0]), model.lam)
    truth = np.where(test.labels == model.classes[1], 1.0, -1.0)
    cost = repeated.meter.read()
    return Figures(
        data=example.source,
        parties=len(example.tiles),
        samples=train.n,
        features=train.m,
        test_samples=test.n,
        iterations=len(repeated.result.history),
        round_trips=cost.round_trips,
        bytes=cost.bytes_down + cost.bytes_up,
        loss=loss,
        loss_central=best,
        relative_difference=(loss - best) / best,
        certified_gap=repeated.result.certificate.gap,
        accuracy=float((model.predict(held_out) == test.labels).mean()),
        accuracy_central=float((central.predict((held_out - shift) * factor) == truth).mean()),
        notes=tuple(repeated.result.notes),
        **more,
    )


def _liblinear(x: Any, y: Any, lam: float) -> Any:
    """The same problem for liblinear, which regularises its intercept too: C = 1/(λN)."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(
        solver="liblinear", C=1 / (lam * len(y)), tol=1e-10, max_iter=10_000, random_state=0
    ).fit(x, y)


def _loss(x: Any, y: Any, w: Any, lam: float) -> float:
    margins = y * (x @ w[:-1] + w[-1])
    return float(lam / 2 * (w @ w) + np.logaddexp(0.0, -margins).mean())
