"""What a statistician reads first on the page: ratios with intervals, ROC curve, calibration."""

from __future__ import annotations

import re
import sys

import numpy as np
import pytest
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.report.results_folder import write_results
from weft.solvers.run_settings import Settings

ROWS, NAMES = 240, ["dose", "age"]


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(5)
    x = rng.normal(size=(ROWS, 2)) * [1.0, 4.0]
    return x, (rng.random(ROWS) < expit(x @ [1.0, -0.2])).astype(int)


@pytest.fixture(scope="module")
def page(table, tmp_path_factory):
    x, y = table
    ids = np.array([f"s{n}" for n in range(ROWS)])
    tiles = {f"site{k}": [Tile.make(ids[k::3], NAMES, x[k::3], y[k::3])] for k in range(3)}
    how = Preprocessing(intercept=True, scaling="standard")
    asked = {"penalize_intercept": False, "inference": "model", "folds": 2, "iterations": 12}
    settings = Settings(loss="logistic", lam=1e-7, solver="newton-cg", gap=1e-6, **asked)
    trained = Federation(tiles, how, terms=OPEN).train(settings)
    folder = tmp_path_factory.mktemp("run")
    with pytest.MonkeyPatch.context() as patch:
        # As where matplotlib is not installed: drawing takes most of the time.
        patch.setitem(sys.modules, "matplotlib.figure", None)
        write_results(folder, trained, settings, name="odds")
    return (folder / "report.html").read_text("utf-8")


def test_ratios_are_a_forest_plot_of_the_pooled_fit(table, page):
    pooled = LogisticRegression(C=np.inf, tol=1e-10).fit(*table)
    grid = page[page.index('class="forest"') :].partition("</table>")[0]
    for name, weight in zip(NAMES, pooled.coef_[0], strict=True):
        row = next(each for each in grid.split("<tr") if name in each)
        ratio, low, high = map(float, re.search(r"([\d.]+) \(([\d.]+) – ([\d.]+)\)", row).groups())
        assert ratio == pytest.approx(np.exp(weight), rel=2e-3)
        assert low < ratio < high
        # The estimate lies in its interval, on the side of the line that its ratio is of.
        ends = [
            float(x) for x in re.search(r'x1="([\d.]+)%" x2="([\d.]+)%" y1="50%"', row).groups()
        ]
        at = float(re.search(r'cx="([\d.]+)%"', row).group(1))
        assert ends[0] < at < ends[1]
        assert (at > 50) == (weight > 0)


def test_they_come_before_the_numbers_of_the_optimiser(page):
    parts = ['class="forest"', "ROC curve", "Calibration", 'id="convergence"', 'id="costs"']
    places = [page.index(part) for part in parts]
    assert places == sorted(places)
