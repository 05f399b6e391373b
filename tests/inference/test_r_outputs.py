"""What R's `glm` and `lm` print of its own data sets, to the last digit that they print.

The tables are R's (`?warpbreaks`, Tippett 1950; `?mtcars`, Henderson and Velleman 1981), and the
figures from published sessions: breaks ~ wool + tension in many introductions to Poisson regression
in R; am ~ disp + hp at statology.org, "How to Interpret glm Output in R"; vs ~ wt + disp at
theanalysisfactor.com, "Generalized Linear Models in R". So small tables are fitted without guards.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from weft import HybridGLM, Tile
from weft.inference.coefficient_summary import Summary

BREAKS = """26 30 54 25 70 52 51 26 67 18 21 29 17 12 18 35 30 36 36 21 24 18 10 43 28 15 26
27 14 29 19 29 31 41 20 44 42 26 19 16 39 28 21 39 29 20 21 24 17 13 15 15 16 28"""
#: By car: disp, hp, wt, vs, am.
CARS = """160 110 2.62 0 1 160 110 2.875 0 1 108 93 2.32 1 1 258 110 3.215 1 0 360 175 3.44 0 0
225 105 3.46 1 0 360 245 3.57 0 0 146.7 62 3.19 1 0 140.8 95 3.15 1 0 167.6 123 3.44 1 0
167.6 123 3.44 1 0 275.8 180 4.07 0 0 275.8 180 3.73 0 0 275.8 180 3.78 0 0 472 205 5.25 0 0
460 215 5.424 0 0 440 230 5.345 0 0 78.7 66 2.2 1 1 75.7 52 1.615 1 1 71.1 65 1.835 1 1
120.1 97 2.465 1 0 318 150 3.52 0 0 304 150 3.435 0 0 350 245 3.84 0 0 400 175 3.845 0 0
79 66 1.935 1 1 120.3 91 2.14 0 1 95.1 113 1.513 1 1 351 264 3.17 0 1 145 175 2.77 0 1
301 335 3.57 0 1 121 109 2.78 1 1"""


def warpbreaks() -> tuple[Any, Any, list[str]]:
    wool, tension = np.repeat([0, 1], 27), np.tile(np.repeat([0, 1, 2], 9), 2)
    x = np.column_stack([wool == 1, tension == 1, tension == 2]).astype(float)
    return x, np.array(BREAKS.split(), float), ["woolB", "tensionM", "tensionH"]


def mtcars(response: int, columns: dict[str, int]) -> tuple[Any, Any, list[str]]:
    cars = np.array(CARS.split(), float).reshape(32, 5)
    return cars[:, list(columns.values())], cars[:, response], list(columns)


#: What R prints: estimate, standard error and Pr(>|z|) of each, the intercept first; then null and
#: residual deviance and AIC.
PRINTED = {
    "warpbreaks": (
        "poisson",
        warpbreaks(),
        """3.69196 0.04541 <2e-16  -0.20599 0.05157 6.49e-05  -0.32132 0.06027 9.73e-08
        -0.51849 0.06396 5.21e-16""",
        "297.37 210.39 493.06",
    ),
    "mtcars, am ~ disp + hp": (
        "binomial",
        mtcars(4, {"disp": 0, "hp": 1}),
        "1.40342 1.36757 0.3048  -0.09518 0.04800 0.0474  0.12170 0.06777 0.0725",
        "43.230 16.713 22.713",
    ),
    "mtcars, vs ~ wt + disp": (
        "binomial",
        mtcars(3, {"wt": 2, "disp": 0}),
        "1.60859 2.43903 0.510  1.62635 1.49068 0.275  -0.03443 0.01536 0.025",
        "43.86 21.40 27.4",
    ),
}


def assert_prints(value: float, printed: str) -> None:
    """A number is what is printed, to its last digit."""
    if printed.startswith("<"):
        assert value < float(printed[1:])
        return
    digits, _, power = printed.partition("e")
    places = len(digits.partition(".")[2])
    unit = 10.0 ** (int(power or 0) - places)
    # R takes standard errors from weights of the iteration before its last: 5e-6 of them here.
    assert value == pytest.approx(float(printed), abs=0.5 * unit + 1e-5 * abs(value))


def fitted(name: str, parties: int, **how: Any) -> Summary:
    family, (x, y, names), *_ = PRINTED[name]
    part = np.arange(len(y)) % parties
    ids = np.array([f"s{i:02d}" for i in range(len(y))])
    tiles = {
        f"p{k}": Tile.make(list(ids[part == k]), names, x[part == k], y[part == k])
        for k in range(parties)
    }
    model = HybridGLM(family, scaling="standard", inference=True, **how)
    return model.fit(tiles).summary()


@pytest.mark.parametrize("name", PRINTED)
def test_coefficients_errors_chances_and_deviances_are_what_r_prints(name: str) -> None:
    summary = fitted(name, 3, lam=0.0, solver="newton-cg", max_iter=10)
    *_, table, measures = PRINTED[name]
    printed = np.array(table.split()).reshape(-1, 3)
    order = ["(intercept)", *PRINTED[name][1][2]]
    for row, column in zip(printed, order, strict=True):
        place = list(summary.names).index(column)
        for value, text in zip((summary.coef, summary.errors, summary.p), row, strict=True):
            assert_prints(float(value[place]), str(text))
    found = summary.measures
    for value, text in zip(
        (found.null_deviance, found.deviance, found.aic), measures.split(), strict=True
    ):
        assert value is not None
        assert_prints(value, text)
