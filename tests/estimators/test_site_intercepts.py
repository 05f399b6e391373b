"""Sites with intercepts of their own: the fit of a pooled table with a column of ones per site."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from sklearn.linear_model import LogisticRegression, PoissonRegressor

from weft import HybridGLM, Tile
from weft.config.read_config import read_config
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import Terms
from weft.solvers.run_settings import Settings

Floats = NDArray[np.float64]
N, LAM = 240, 0.02
SITES = ("north", "south", "west")
IDS = np.array([f"s{i:03d}" for i in range(N)], object)
#: Which site has a sample, and with it the label.
PLACE = np.arange(N) % 3
ROWS = {site: np.flatnonzero(k == PLACE) for k, site in enumerate(SITES)}


def table(family: str) -> tuple[Floats, Floats]:
    """Three columns, and responses whose mean differs from site to site."""
    rng = np.random.default_rng(3)
    x = rng.normal(size=(N, 3))
    eta = x @ [0.5, -0.3, 0.2] + np.array([0.0, 1.0, -0.8])[PLACE]
    if family == "poisson":
        return x, rng.poisson(np.exp(eta)).astype(float)
    return x, (rng.random(N) < 1 / (1 + np.exp(-eta))).astype(float)


def by_rows(x: Floats, y: Floats) -> dict[str, Tile]:
    return {
        site: Tile.make(IDS[rows], ["a", "b", "c"], x[rows], y[rows]) for site, rows in ROWS.items()
    }


def hybrid(x: Floats, y: Floats) -> dict[str, Tile]:
    """Sites have labels and two columns of their own samples; a registry has the third of all."""
    own = {
        site: Tile.make(IDS[rows], ["a", "b"], x[rows, :2], y[rows]) for site, rows in ROWS.items()
    }
    return {**own, "registry": Tile.make(IDS, ["c"], x[:, 2:])}


def pooled(x: Floats) -> Floats:
    """The table with a column of ones for every site but the first."""
    return np.column_stack([x, PLACE == 1, PLACE == 2]).astype(float)


@pytest.mark.parametrize(("family", "cut"), [("poisson", by_rows), ("binomial", hybrid)])
def test_coefficients_are_those_of_scikit_learn_with_a_column_per_site(
    family: str, cut: Any
) -> None:
    x, y = table(family)
    model = HybridGLM(family, lam=LAM, gap=1e-9, solver="newton-cg", reference_site="north").fit(
        cut(x, y)
    )
    exact: dict[str, Any] = {"tol": 1e-10, "max_iter": 10_000}
    known: Any = (
        PoissonRegressor(alpha=LAM, solver="newton-cholesky", **exact)
        if family == "poisson"
        else LogisticRegression(C=1 / (LAM * N), **exact)
    ).fit(pooled(x), y)
    names = ["a", "b", "c", "site south", "site west"]
    order = [list(model.model_.features).index(name) for name in names]
    assert np.ravel(model.coef_)[order] == pytest.approx(np.ravel(known.coef_), abs=2e-6)
    assert np.ravel(model.intercept_) == pytest.approx(np.ravel(known.intercept_), abs=2e-6)


def information(x: Floats, y: Floats) -> tuple[Floats, Floats]:
    """The Poisson fit without a penalty by Newton's method, and its standard errors."""
    w = np.zeros(x.shape[1])
    for _ in range(50):
        mean = np.exp(x @ w)
        held = x.T @ (mean[:, None] * x)
        w = w + np.linalg.solve(held, x.T @ (y - mean))
    return w, np.sqrt(np.diag(np.linalg.inv(held)))


def test_standard_errors_in_sums_with_guards_on_are_those_of_a_pooled_fit() -> None:
    x, y = table("poisson")
    how = Preprocessing(intercept=True, scaling="standard", reference_site="south")
    # Products with the column of a site are sums over its samples alone.
    terms = Terms(min_batch=5, allow_second_moments=True, allow_site_statistics=True)
    held = {site: (tile,) for site, tile in by_rows(x, y).items()}
    found = (
        Federation(held, how, terms=terms)
        .train(
            Settings(
                lam=1e-7,
                loss="poisson",
                penalize_intercept=False,
                inference="model",
                solver="newton-cg",
                iterations=9,
            )
        )
        .inference
    )
    assert found is not None
    assert found.summary is not None, found.why_not
    whole = np.column_stack([x, PLACE == 0, PLACE == 2, np.ones(N)]).astype(float)
    coef, errors = information(whole, y)
    names = ["a", "b", "c", "site north", "site west", "(intercept)"]
    order = [list(found.summary.names).index(name) for name in names]
    assert (np.abs(found.summary.coef[order] - coef) / errors).max() < 1e-4
    np.testing.assert_allclose(found.summary.errors[order], errors, rtol=1e-4)


def doubly_labelled(x: Floats, y: Floats) -> dict[str, Tile]:
    """The last site has the first sample of the first one, and its label, too."""
    tiles = by_rows(x, y)
    rows = np.append(np.flatnonzero(PLACE == 2), 0)
    return {**tiles, "west": Tile.make(IDS[rows], ["a", "b", "c"], x[rows], y[rows])}


@pytest.mark.parametrize(
    ("site", "cut", "words"),
    [
        ("nroth", by_rows, "reference_site is 'nroth', but the parties are north, south, west"),
        ("registry", hybrid, "party registry is the reference_site, but has no labels"),
        ("north", doubly_labelled, "labels of samples that another party has labels of too"),
        (
            "north",
            lambda x, y: {
                **by_rows(x, y),
                "south": Tile.make(
                    IDS[PLACE == 1], ["a", "b", "site south"], x[PLACE == 1], y[PLACE == 1]
                ),
            },
            "party south, its tile has a column 'site south'",
        ),
    ],
)
def test_what_is_of_no_site_or_of_two_is_refused(site: str, cut: Any, words: str) -> None:
    x, y = table("poisson")
    with pytest.raises(WeftError, match=words):
        HybridGLM("poisson", lam=LAM, reference_site=site).fit(cut(x, y))


def test_nobody_else_gets_the_sums_of_a_site_while_training() -> None:
    """The column is its site's alone, so that no other party has a slot for it."""
    x, y = table("poisson")
    how = Preprocessing(intercept=True, reference_site="north")
    held = {site: (tile,) for site, tile in by_rows(x, y).items()}
    federation = Federation(held, how)
    federation.train(
        Settings(lam=LAM, loss="poisson", penalize_intercept=False, solver="lbfgs", iterations=3)
    )
    for name, party in federation.parties.items():
        names = party.data.feature_names(np.arange(party.view.n_columns))
        wanted = {"site south", "site west"} & {f"site {name}"}
        assert {one for one in names if one.startswith("site ")} == wanted


def test_a_config_names_the_reference(tmp_path: Path) -> None:
    x, y = table("poisson")
    parties = ""
    for site, tile in by_rows(x, y).items():
        rows = zip(tile.ids, np.asarray(tile.block).tolist(), np.asarray(tile.labels), strict=True)
        lines = [f"{i},{','.join(map(str, cells))},{label}" for i, cells, label in rows]
        (tmp_path / f"{site}.csv").write_text("id,a,b,c,y\n" + "\n".join(lines) + "\n")
        parties += f'[[party]]\nname = "{site}"\nfile = "{site}.csv"\n'
    path = tmp_path / "federation.toml"
    path.write_text(
        '[data]\nlabel = "y"\nreference_site = "west"\nconfirmed = ["units"]\n'
        f'[model]\nfamily = "poisson"\nlambda = {LAM}\n{parties}'
    )
    problem = read_config(path).problem()
    model = Federation(problem.tiles, problem.preprocessing).train(problem.settings).model
    assert {"site north", "site south"} <= set(model.features)
