"""Whether a loss from outside keeps its promises, before any run believes it.

The certificate rests on l and l* belonging together: a wrong conjugate would certify models that
nobody has. So a loss is put on a grid of points and labels when it is registered, and again with
every set of parameters that somebody asks for, the first time. Near zero all is checked; far away,
where tables that nobody scaled or a wild step may lead, what certificates rest on.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import MISSING, fields, is_dataclass
from inspect import isabstract

import numpy as np

from weft.errors import ConfigError
from weft.losses.base import DOMAIN_TOLERANCE, Array, Flags, Loss

_NAME = re.compile(r"[a-z][a-z0-9_]*")
#: Points between which kinks lie wherever a loss has them: steps of no round number.
_Z = np.linspace(-6.1, 6.3, 63)[:, None]
_LABELS = {
    "classification": np.array([-1.0, 1.0]),
    "regression": np.array([-2.5, -1.0, 0.0, 0.7, 3.0]),
}
#: As far as labels go, and z: in steps that grow, and beyond where a careless exp overflows.
_FAR = 1e3
_AWAY = np.geomspace(0.11, _FAR, 41)[:, None]
_FAR_Z = np.concatenate([-_AWAY[::-1], _AWAY])
_FAR_LABELS = {**_LABELS, "regression": np.array([-_FAR, -31.0, 0.3, 31.0, _FAR])}
#: Slopes up to which conjugates are checked, where slopes have no bound: those of a squared loss.
_SLOPE, _FAR_SLOPE = 8.0, 2 * _FAR
_CURVATURES = (0.03, 1.0, 40.0)
#: Rounding of a few operations on numbers of the grid's size.
_CLOSE = 1e-9
_STEP = 1e-6


def check_kind(kind: type[Loss]) -> None:
    """Refuse what is no complete class of losses, or cannot be made from its name alone."""
    if not (isinstance(kind, type) and issubclass(kind, Loss)):
        raise ConfigError(f"{kind!r} is no loss; register a subclass of weft.losses.Loss")
    lacking = [name for name in ("name", "task", "lipschitz") if not hasattr(kind, name)]
    if isabstract(kind) or lacking:
        missing = ", ".join((*lacking, *sorted(kind.__abstractmethods__)))
        raise ConfigError(f"loss {kind.__name__} lacks {missing}; write what is missing")
    if kind.joint:
        raise ConfigError(
            f'loss "{kind.name}" is of all classes at once, but what is checked is a loss of one '
            "score; leave joint out"
        )
    if not _NAME.fullmatch(str(kind.name)):
        raise ConfigError(f'"{kind.name}" is no name for a loss; use small letters, digits and _')
    if not is_dataclass(kind) or any(
        field.init and field.default is MISSING for field in fields(kind)
    ):
        raise ConfigError(
            f'loss "{kind.name}" must be a frozen dataclass whose parameters have defaults; put '
            "@dataclass(frozen=True) above it and give each parameter one"
        )


def check_loss(loss: Loss) -> None:
    """Hold value, slope, conjugate, curvature and dual step of a loss against each other."""
    _check_constants(loss)
    z, y = _grid(_Z, _labels(loss, _LABELS))
    # A formula may well overflow where its outcome is a number all the same.
    with np.errstate(all="ignore"):
        u = _check_convex(loss, z, y, _SLOPE)
        _check_curvature(loss, z, y)
        for q in _CURVATURES:
            _check_step(loss, z, y, u, q)
        _check_convex(loss, *_grid(_FAR_Z, _labels(loss, _FAR_LABELS)), _FAR_SLOPE)


def _labels(loss: Loss, known: Mapping[str, Array]) -> Array:
    """Those of some labels that the loss takes."""
    every = known[loss.task]
    return every[[not loss.refused_labels(y) for y in every[:, None]]]


def _grid(z: Array, y: Array) -> tuple[Array, Array]:
    """Every point with every label."""
    return z + 0.0 * y, 0.0 * z + y


def _check_convex(loss: Loss, z: Array, y: Array, slope: float) -> Array:
    """Hold value, slope and conjugate against each other; returns u(z)."""
    value, u = loss.value(z, y), loss.u(z, y)
    for what, array in (("value", value), ("u", u)):
        if array.shape != z.shape:
            raise _wrong(loss, f"{what}(z, y) must give a number for every z and y")
        _hold(loss, np.isfinite(array), z, y, f"|{what}(z, y)| < ∞", what)
    _hold(loss, value >= 0, z, y, "l(z) ≥ 0", "value")
    # Every point's tangent against every other point: that is convexity, too.
    down: Array = u[None] * (z[None] - z[:, None])
    slack = _CLOSE * (1 + value[None] + np.abs(down))
    above: Flags = np.all(value[:, None] >= value[None] + down - slack, axis=1)
    _hold(loss, above, z, y, "l(z') ≥ l(z) − u(z)(z' − z)", "value or u")
    _hold(loss, np.abs(u) <= loss.lipschitz + _CLOSE, z, y, "|u(z)| ≤ lipschitz", "lipschitz")
    falls = -np.diff(u, axis=0)
    slack = _CLOSE * (1 + np.abs(u[1:]))
    _hold(loss, falls >= -slack, z[1:], y[1:], "u(z') ≥ u(z) for z' < z", "u")
    allowed = loss.smoothness * np.diff(z, axis=0) + slack
    steady = "|u(z) − u(z')| ≤ smoothness |z − z'|"
    _hold(loss, falls <= allowed, z[1:], y[1:], steady, "smoothness")
    _check_conjugate(loss, z, y, value, u, slope)
    return u


def _check_constants(loss: Loss) -> None:
    if loss.task not in _LABELS:
        raise _wrong(loss, f'task is "{loss.task}", not "classification" or "regression"')
    if not (loss.lipschitz > 0 and loss.smoothness > 0):
        raise _wrong(loss, "lipschitz and smoothness must be above zero")
    if math.isinf(loss.lipschitz) and math.isinf(loss.curvature_below(1.0, 1.0)):
        raise _wrong(
            loss,
            "neither its slope nor its curvature is bounded, nor its curvature where the slope is; "
            "give curvature_below(slope, label)",
        )


def _check_conjugate(loss: Loss, z: Array, y: Array, value: Array, u: Array, slope: float) -> None:
    inside = np.abs(loss.project(u, y) - u) <= DOMAIN_TOLERANCE
    _hold(loss, inside, z, y, "u(z) lies in the domain of l*", "project")
    largest = min(loss.lipschitz, slope)
    for share in np.linspace(-1.0, 1.0, 21).tolist():
        a = loss.project(np.full_like(z, share * largest), y)
        young = loss.conjugate(a, y) + value + a * z
        holds = young >= -_CLOSE * (1 + value + np.abs(a * z))
        _hold(loss, holds, z, y, "l(z) + l*(−a) ≥ −az", "conjugate_inside or project")
    exact = np.abs(loss.conjugate(u, y) + value + u * z) <= _CLOSE * (1 + np.abs(u * z) + value)
    _hold(loss, exact, z, y, "l(z) + l*(−u(z)) = −u(z) z", "conjugate_inside")


def _check_curvature(loss: Loss, z: Array, y: Array) -> None:
    found = loss.curvature(z, y)
    if not loss.smooth:
        return
    # Where l' has a kink, the curvature of either side will do.
    sides = [(loss.u(z, y) - loss.u(z + s * _STEP, y)) / (s * _STEP) for s in (-1.0, 1.0)]
    slack = 1e-4 * min(loss.smoothness, float(1.0 + np.abs(found).max()))
    fits = (found >= np.minimum(*sides) - slack) & (found <= np.maximum(*sides) + slack)
    _hold(loss, fits, z, y, "curvature(z) = l''(z)", "curvature")


def _check_step(loss: Loss, z: Array, y: Array, alpha: Array, q: float) -> None:
    # α belongs to another z than the one asked about, as in a run.
    here = z[::-1]

    def objective(a: Array) -> Array:
        delta = a - alpha
        return -loss.conjugate(a, y) - here * delta - 0.5 * q * delta * delta

    new = loss.dual_step(alpha, here, y, q)
    inside = np.abs(loss.project(new, y) - new) <= DOMAIN_TOLERANCE
    _hold(loss, inside, here, y, "dual_step stays in the domain of l*", "dual_step")
    best = objective(new)
    slack = _CLOSE * (1 + np.abs(best))
    for move in (-1.0, -1e-2, -1e-4, 1e-4, 1e-2, 1.0):
        other = objective(loss.project(new + move, y))
        what = f"dual_step is the best there is, at q = {q:g}"
        _hold(loss, best >= other - slack, here, y, what, "dual_step")


def _hold(loss: Loss, holds: Flags, z: Array, y: Array, what: str, where: str) -> None:
    """Refuse a loss of which something does not hold, and say at which point."""
    if holds.all():
        return
    row, column = np.argwhere(~holds)[0]
    at = f"at z = {z[row, column]:.4g}, y = {y[row, column]:.4g}"
    raise _wrong(loss, f"{what} does not hold {at}; correct {where}")


def _wrong(loss: Loss, what: str) -> ConfigError:
    return ConfigError(f'loss "{loss.name}" cannot be used: {what}')
