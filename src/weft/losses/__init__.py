"""Losses: value, conjugate, subgradient and dual step of one sample, on whole arrays.

>>> from weft.losses import get_loss
>>> loss = get_loss("smoothed_hinge", g=0.5)
>>> loss.smoothness
2.0
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from difflib import get_close_matches
from types import MappingProxyType

from weft.errors import ConfigError
from weft.losses.base import Loss
from weft.losses.classification import Hinge, Logistic, SmoothedHinge, SquaredHinge
from weft.losses.external_loss_check import check_kind, check_loss
from weft.losses.gamma import Gamma
from weft.losses.log_link import LogLinkLoss
from weft.losses.multinomial import Softmax
from weft.losses.negative_binomial import NegativeBinomial
from weft.losses.poisson import Poisson
from weft.losses.regression import Absolute, EpsilonInsensitive, Huber, Squared
from weft.losses.tweedie import Tweedie

__all__ = [
    "FAMILIES",
    "LOG_LINKED",
    "LOSSES",
    "Absolute",
    "EpsilonInsensitive",
    "Gamma",
    "Hinge",
    "Huber",
    "Logistic",
    "Loss",
    "NegativeBinomial",
    "Poisson",
    "SmoothedHinge",
    "Softmax",
    "Squared",
    "SquaredHinge",
    "Tweedie",
    "get_family",
    "get_loss",
    "register_loss",
]

_LOSSES: dict[str, type[Loss]] = {
    loss.name: loss
    for loss in (
        Hinge,
        SmoothedHinge,
        SquaredHinge,
        Logistic,
        Softmax,
        Squared,
        Absolute,
        EpsilonInsensitive,
        Huber,
        Poisson,
        Gamma,
        Tweedie,
        NegativeBinomial,
    )
}
LOSSES: Mapping[str, type[Loss]] = MappingProxyType(_LOSSES)
#: Distributions of the response in generalised linear models, and the loss of each: half its
#: deviance (of classes, minus the log-likelihood).
FAMILIES: Mapping[str, str] = MappingProxyType(
    {
        "gaussian": "squared",
        "binomial": "logistic",
        "multinomial": "softmax",
        "poisson": "poisson",
        "gamma": "gamma",
        "tweedie": "tweedie",
        "negative-binomial": "negative_binomial",
    }
)
#: Losses of models whose mean is e^z.
LOG_LINKED = frozenset(name for name, loss in _LOSSES.items() if issubclass(loss, LogLinkLoss))
#: Weft's own, which its tests check.
_OWN = frozenset(_LOSSES.values())
#: Losses from outside that were checked, with their parameters.
_CHECKED: set[tuple[type[Loss], tuple[tuple[str, float], ...]]] = set()


def register_loss(kind: type[Loss]) -> type[Loss]:
    """Let configs and settings name a loss of your own; may stand above its class.

    Its formulas are held against each other on a grid first: the certificate of every run rests
    on l and l* belonging together. `get_loss` does so again for other parameters than the defaults.
    Every party must register it before the run, from the same code: what travels is its name and
    its parameters.

    Raises
    ------
    ConfigError
        If the name is taken, or something that is promised does not hold, and where.
    """
    check_kind(kind)
    if kind.name in _LOSSES:
        raise ConfigError(f'there is a loss "{kind.name}" already; choose another name')
    _check_once(kind())
    _LOSSES[kind.name] = kind
    return kind


def get_family(name: str) -> str:
    """The name of a family's loss.

    Raises
    ------
    ConfigError
        If there is no such family.
    """
    if name not in FAMILIES:
        near = get_close_matches(str(name).lower().replace("_", "-"), FAMILIES, n=1, cutoff=0.4)
        closest = f' (the closest is "{near[0]}")' if near else ""
        raise ConfigError(
            f'family "{name}" is not known{closest}; choose one of {", ".join(FAMILIES)}, where '
            "binomial trains more than two classes one against the rest and multinomial all at once"
        )
    return FAMILIES[name]


def get_loss(name: str, **parameters: float) -> Loss:
    """Build a loss from its name, as a federation's config writes it.

    Parameters
    ----------
    name : str
        One of the keys of ``LOSSES``.
    **parameters : float
        The loss's own parameters: ``g`` (smoothed hinge, Huber), ``epsilon``
        (ε-insensitive), ``power`` (Tweedie) or ``dispersion`` (negative binomial); each has a
        default.

    Returns
    -------
    Loss

    Raises
    ------
    ConfigError
        If the name or a parameter is unknown, a parameter is out of range, or a loss from outside
        does not hold what it promises with these parameters.
    """
    if name not in LOSSES:
        raise ConfigError(
            f'loss "{name}" is not known{_closest(str(name), LOSSES)}; '
            f"choose one of {', '.join(LOSSES)}."
        )
    cls = LOSSES[name]
    known = {field.name: None for field in fields(cls) if field.init}
    for parameter in parameters:
        if parameter not in known:
            accepted = f"its parameters are {', '.join(known)}" if known else "it has none"
            raise ConfigError(
                f'loss "{name}" has no parameter "{parameter}"'
                f"{_closest(parameter, known)}; {accepted}."
            )
    loss = cls(**parameters)
    if cls not in _OWN:
        _check_once(loss)
    return loss


def _check_once(loss: Loss) -> None:
    known = (type(loss), tuple(loss.parameters().items()))
    if known not in _CHECKED:
        check_loss(loss)
        _CHECKED.add(known)


def _closest(word: str, known: Mapping[str, object]) -> str:
    # Case and hyphens are the usual slips, and a low cut-off is right: the list follows anyway.
    matches = get_close_matches(word.lower().replace("-", "_"), known, n=1, cutoff=0.4)
    return f' (the closest is "{matches[0]}")' if matches else ""
