"""What FedHybrid is told besides the common settings."""

from __future__ import annotations

import math
from typing import Literal

import msgspec

from weft.errors import ConfigError
from weft.solvers.fedhybrid.steps import Auto, Fixed, Pair, Rule, Theory


class FedhybridOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedHybrid: each party takes gradient-type or Newton-type updates, as it can.

    Attributes
    ----------
    newton
        Who takes Newton-type updates: ``all``, ``none``, so many (the first ones), a list of names,
        or ``auto``: whoever needs no more than ``seconds`` for one, by its own measurement.
    seconds
        What ``newton = "auto"`` lets an update cost.
    steps
        ``auto``: from the mean curvature of the parties, backtracked. ``theory``: condition (4.2)
        of the paper, proven and very slow; every party tells the coordinator the bounds m_i, ℓ_i of
        its curvature. ``fixed``: the numbers ``mu``, ``a`` and ``b``.
    mu
        The penalty μ; without it, the rule's own.
    primal
        Factor on the a_i that ``auto`` gives gradient-type parties; that of a Newton-type one is 1,
        cut where it is too long.
    dual
        Factor on every b_i of ``auto``.
    a, b
        Primal and dual step of ``fixed``, for both types, or [gradient-type, Newton-type].
    """

    newton: int | str | list[str] = "all"
    seconds: float = 0.1
    steps: Literal["auto", "theory", "fixed"] = "auto"
    mu: float | None = None
    primal: float = 1.0
    dual: float = 1.0
    a: float | list[float] | None = None
    b: float | list[float] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.newton, str) and self.newton not in ("all", "none", "auto"):
            raise ConfigError(
                f"newton = '{self.newton}'; use 'all', 'none', 'auto', a number, or a list of names"
            )
        if isinstance(self.newton, int) and self.newton < 0:
            raise ConfigError(f"newton is {self.newton}; give the number of parties, at least 0")
        if not self.seconds > 0:
            raise ConfigError(f"seconds is {self.seconds:g}; give a time above 0")
        if self.mu is not None and not 0 < self.mu < math.inf:
            raise ConfigError(f"mu is {self.mu:g}; give a positive number")
        for name, factor in (("primal", self.primal), ("dual", self.dual)):
            if not 0 < factor < math.inf:
                raise ConfigError(f"{name} is {factor:g}; give a positive factor, 1 by default")
        if self.steps != "auto" and (self.primal, self.dual) != (1.0, 1.0):
            raise ConfigError(
                f"primal and dual are factors on steps = 'auto', but steps = '{self.steps}'; leave "
                "them out"
            )
        fixed = self.steps == "fixed"
        given = [number is not None for number in (self.a, self.b)]
        if (not all(given) or self.mu is None) if fixed else any(given):
            raise ConfigError(
                "steps = 'fixed' needs all three of mu, a and b"
                if fixed
                else "a and b belong to steps = 'fixed'; leave them out, or set it"
            )

    def fixed(self) -> Fixed:
        """The steps as they were given."""
        (ga, na), (gb, nb) = _two(self.a), _two(self.b)
        return Fixed(self.mu or math.nan, Pair(ga, gb), Pair(na, nb))


def _two(given: float | list[float] | None) -> tuple[float, float]:
    """A number for gradient-type parties, and one for those of Newton's type."""
    if isinstance(given, list):
        if len(given) != 2:
            raise ConfigError("a list of steps has two numbers: gradient-type, Newton-type")
        return float(given[0]), float(given[1])
    number = math.nan if given is None else float(given)
    return number, number


def facts_of(rule: Rule) -> dict[str, float]:
    """A rule as numbers that travel; fixed steps are in the settings."""
    if isinstance(rule, Auto):
        return {"mu": rule.mu, "upper": rule.upper}
    if isinstance(rule, Theory):
        return {"mu": rule.mu, "upper": rule.upper, "beta": rule.beta}
    return {"mu": rule.mu}


def rule_of(facts: dict[str, float], options: FedhybridOptions, halvings: int) -> Rule:
    """The inverse; steps of ``auto`` are halved as often as the safeguard said."""
    if options.steps == "auto":
        shrunk = 0.5**halvings
        return Auto(facts["mu"], facts["upper"], options.primal * shrunk, options.dual * shrunk)
    if options.steps == "theory":
        return Theory(facts["mu"], facts["upper"], facts["beta"], math.nan)
    return options.fixed()
