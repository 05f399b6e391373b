"""What inference is for, and what it takes: families, enough samples, enough sites."""

from __future__ import annotations

from typing import Literal, get_args

from weft.errors import ConfigError

#: How standard errors are made: from the model's own distribution, or from squared residuals, of
#: samples or of sites.
Kind = Literal["model", "robust", "clustered"]
#: What a run is told.
Wanted = Literal["none", "model", "robust", "clustered"]

#: What a family is called, by its loss.
FAMILY_NAMES = {
    "squared": "gaussian",
    "logistic": "binomial",
    "softmax": "multinomial",
    "poisson": "poisson",
    "gamma": "gamma",
    "tweedie": "tweedie",
    "negative_binomial": "negative-binomial",
}
#: Losses whose curvature does not depend on the response: observed and expected are one matrix.
CANONICAL = ("squared", "logistic", "softmax", "poisson")
#: Losses of families whose variance follows from the mean alone.
FIXED_DISPERSION = ("logistic", "softmax", "poisson", "negative_binomial")
#: Samples that there must be for every coefficient.
SAMPLES_PER_COEFFICIENT = 10
#: Sites below which sums by site say little of how sites differ, and much of single ones.
FEWEST_SITES = 5


def wanted_inference(value: bool | str) -> Wanted:
    """What a user asks for: true is by the model."""
    if isinstance(value, bool):
        return "model" if value else "none"
    for known in get_args(Wanted):
        if value == known:
            found: Wanted = known
            return found
    raise ConfigError(f"inference is {value!r}; choose true, 'robust' or 'clustered'")


def refuse_few_samples(samples: int, columns: int) -> None:
    """Refuse standard errors of more coefficients than samples can carry."""
    if samples < SAMPLES_PER_COEFFICIENT * columns:
        raise ConfigError(
            f"inference needs {SAMPLES_PER_COEFFICIENT} samples for every coefficient, but there "
            f"are {samples} samples for {columns} (the intercept is one); bring more samples or "
            "fewer columns, or leave inference out"
        )


def refuse_few_sites(kind: Wanted, sites: int) -> None:
    """Refuse to cluster by few sites."""
    if kind == "clustered" and sites < FEWEST_SITES:
        raise ConfigError(
            f"inference = 'clustered' needs {FEWEST_SITES} sites, but there are {sites}: fewer say "
            "little of how sites differ, and much of single ones; use 'robust'"
        )
