"""Small tables with fixed seeds, and what statsmodels 0.15.0 finds on them, pooled.

`python tests/inference/reference_data.py` prints the figures again, where statsmodels is installed.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
from numpy.typing import NDArray
from sklearn.datasets import load_breast_cancer, load_wine

from weft.data import Table

Floats = NDArray[np.float64]
FAMILIES = ("gaussian", "binomial", "poisson", "gamma", "tweedie", "negative-binomial")
SITES = 5


def table_of(x: Floats, y: Floats, names: list[str], *, classes: bool) -> Table:
    ids = np.array([f"s{i:04d}" for i in range(len(y))], object)
    task = "classification" if classes else "regression"
    return Table(ids, np.array(names, object), np.ascontiguousarray(x), y, task)


def cancer() -> Table:
    """The ten mean columns of breast cancer."""
    found = load_breast_cancer()
    names = [str(name) for name in found.feature_names[:10]]
    return table_of(found.data[:, :10], found.target.astype(float), names, classes=True)


def credit(rows: int = 900) -> Table:
    """Like a table of credit: skewed amounts, a few levels, one in five defaults."""
    rng = np.random.default_rng(7)
    limit = np.exp(rng.normal(11.5, 0.8, rows))
    age = rng.integers(21, 70, rows).astype(float)
    late = rng.choice([0.0, 1.0, 2.0], rows, p=[0.6, 0.25, 0.15])
    bill = limit * rng.beta(2, 3, rows)
    score = 0.9 * late - 0.4 * (np.log(limit) - 11.5) + 0.01 * (age - 40) - 2.0
    y = (rng.random(rows) < 1 / (1 + np.exp(-score))).astype(float)
    return table_of(
        np.column_stack([limit, age, late, bill]),
        y,
        ["limit", "age", "late", "bill"],
        classes=True,
    )


def synthetic(family: str, rows: int = 1000) -> tuple[Floats, Floats]:
    """Three columns in units of their own, and responses of a family."""
    rng = np.random.default_rng(len(family))
    x = rng.normal(size=(rows, 3)) * [1.0, 4.0, 0.2] + [3.0, -2.0, 0.0]
    eta = 0.3 * (x[:, 0] - 3.0) - 0.1 * (x[:, 1] + 2.0) + 1.5 * x[:, 2] + 0.4
    mean = np.exp(eta)
    y = {
        "gaussian": lambda: 5.0 + eta + rng.normal(size=rows),
        "binomial": lambda: (rng.random(rows) < 1 / (1 + np.exp(-eta))).astype(float),
        "poisson": lambda: rng.poisson(mean).astype(float),
        "gamma": lambda: rng.gamma(2.0, mean / 2.0),
        "tweedie": lambda: np.where(rng.random(rows) < 0.3, 0.0, rng.gamma(1.5, mean)),
        "negative-binomial": lambda: rng.poisson(rng.gamma(2.0, mean / 2.0)).astype(float),
    }[family]()
    return x, y


def three_classes(rows: int = 900) -> tuple[Floats, NDArray[np.object_]]:
    """Two columns in units of their own, and three classes that overlap."""
    rng = np.random.default_rng(12)
    x = rng.normal(size=(rows, 2)) * [2.0, 30.0] + [1.0, 100.0]
    scores = np.column_stack(
        [np.zeros(rows), 0.4 * x[:, 0] - 0.2, 0.02 * (x[:, 1] - 100.0) - 0.3 * x[:, 0] + 0.3]
    )
    y = (scores + rng.gumbel(size=scores.shape)).argmax(axis=1)
    return x, np.array(["low", "mid", "top"], object)[y]


def wine() -> tuple[Floats, NDArray[np.object_]]:
    """Three columns of wine that do not separate its cultivars."""
    found = load_wine()
    return found.data[:, [2, 3, 4]], np.array([f"k{k}" for k in found.target], object)


def sites_of(ids: NDArray[np.object_]) -> NDArray[np.int64]:
    """Which site has each sample, in turn."""
    return np.array([int(name[1:]) % SITES for name in ids])


def _print_figures() -> None:
    import statsmodels.api as sm

    log = sm.families.links.Log()
    kinds = {
        "gaussian": sm.families.Gaussian(),
        "binomial": sm.families.Binomial(),
        "poisson": sm.families.Poisson(),
        "gamma": sm.families.Gamma(log),
        "tweedie": sm.families.Tweedie(log, var_power=1.5),
        "negative-binomial": sm.families.NegativeBinomial(alpha=0.5),
    }
    exact = {"tol": 1e-14, "maxiter": 300}

    def row(key: str, fit: object) -> None:
        values = {
            "coef": fit.params,  # type: ignore[attr-defined]
            "errors": fit.bse,  # type: ignore[attr-defined]
            "p": fit.pvalues,  # type: ignore[attr-defined]
            "measures": [
                getattr(fit, name, np.nan) for name in ("deviance", "null_deviance", "llf", "aic")
            ],
        }
        print(f"    {key!r}: {{")
        for name, found in values.items():
            print(f"        {name!r}: [{', '.join(f'{value:.9g}' for value in found)}],")
        print("    },")

    for name, made in (("cancer", cancer()), ("credit", credit())):
        whole = sm.add_constant(np.asarray(made.block), prepend=False)
        y = np.asarray(made.labels, float)
        row(name, sm.GLM(y, whole, family=kinds["binomial"]).fit(**exact))
    for name, (x, classes) in (("three classes", three_classes()), ("wine", wine())):
        whole = sm.add_constant(x, prepend=False)
        codes = np.unique(classes.astype(str), return_inverse=True)[1]
        found = sm.MNLogit(codes, whole).fit(method="newton", tol=1e-14, maxiter=100, disp=0)
        told = SimpleNamespace(
            **{key: np.asarray(getattr(found, key)).T.ravel() for key in ("params", "bse")},
            pvalues=np.asarray(found.pvalues).T.ravel(),
            deviance=-2 * found.llf,
            null_deviance=-2 * found.llnull,
            llf=found.llf,
            aic=found.aic,
        )
        row(name, told)
    for family in FAMILIES:
        x, y = synthetic(family)
        whole = sm.add_constant(x, prepend=False)
        model = sm.GLM(y, whole, family=kinds[family])
        row(family, model.fit(**exact))
        sites = np.arange(len(y)) % SITES
        row(f"{family} robust", model.fit(**exact, cov_type="HC0"))
        grouped = {"cov_type": "cluster", "cov_kwds": {"groups": sites}}
        row(f"{family} clustered", model.fit(**exact, **grouped))


if __name__ == "__main__":
    _print_figures()
