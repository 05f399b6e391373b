"""Standard errors of multinomial models are those of statsmodels' MNLogit on the pooled table."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from reference_data import Floats, table_of, three_classes, wine
from scipy import stats
from scipy.special import softmax
from statsmodels_figures import FIGURES
from test_inference import GUARDED, by_site, fitted

from weft import HybridGLM
from weft.data import SPLITS, Table
from weft.errors import ConfigError
from weft.guards.privacy_terms import OPEN
from weft.inference.coefficient_summary import Summary
from weft.inference.party_sums_for_multinomial_standard_errors import (
    class_statistics,
    class_sums_in,
)
from weft.losses import Softmax

NAMES = ["a", "b", "c"]


def made(x: Floats, y: Any, names: list[str] | None = None) -> Table:
    return table_of(x, y, names or NAMES[: x.shape[1]], classes=True)


def trained(tiles: Any, **settings: Any) -> Any:
    return fitted(tiles, "softmax", **{"iterations": 12, **settings})


def in_order(summary: Summary, table: Table, classes: list[str]) -> list[int]:
    """Where each of statsmodels' coefficients is: class by class, the intercept last."""
    columns = [*map(str, table.features), "(intercept)"]
    return [
        list(summary.names).index(f"{name}: {column}") for name in classes for column in columns
    ]


def assert_same(summary: Summary, table: Table, classes: list[str], known: dict[str, Any]) -> None:
    order = in_order(summary, table, classes)
    coef, errors, p = (np.array(known[name]) for name in ("coef", "errors", "p"))
    assert (np.abs(summary.coef[order] - coef) / errors).max() < 1e-4
    np.testing.assert_allclose(summary.errors[order], errors, rtol=1e-4)
    np.testing.assert_allclose(summary.p[order], p, rtol=1e-4)
    reach = stats.norm.ppf(0.975) * errors
    np.testing.assert_allclose((summary.high - summary.coef)[order], reach, rtol=1e-4)
    found = summary.measures
    told = found.deviance, found.null_deviance, found.log_likelihood, found.aic
    assert told == pytest.approx(known["measures"], rel=1e-5)
    assert found.pseudo_r2 == pytest.approx(1 - known["measures"][0] / known["measures"][1])
    assert found.bic == pytest.approx(
        known["measures"][0] + len(coef) * np.log(len(table.ids)), rel=1e-5
    )
    assert (np.abs(summary.coef[order] - coef) <= summary.distance[order] + 2e-5 * errors).all()


def test_three_classes_under_guards_are_those_of_statsmodels() -> None:
    table = made(*three_classes())
    found = trained(by_site(table), terms=GUARDED)
    summary = found.inference.summary
    assert summary is not None, found.inference.why_not
    assert summary.reference == "low"
    assert_same(summary, table, ["mid", "top"], FIGURES["three classes"])
    text = str(summary)
    assert text.startswith("multinomial model, 900 samples, 5 parties")
    assert "each class against 'low'" in text
    assert "odds ratio" in text
    frame = summary.to_frame()
    assert frame.loc["mid: a", "ratio"] == pytest.approx(np.exp(frame.loc["mid: a", "coefficient"]))
    smaller = Table(
        table.ids,
        table.features[:1],
        np.asarray(table.block)[:, :1].copy(),
        table.labels,
        table.task,
    )
    test = summary.likelihood_ratio_test(trained(by_site(smaller, 3)).inference.summary)
    assert test.degrees == 2
    wald = summary.wald_test(["mid: b", "top: b"])
    # Both test the same; at 900 samples they are near each other.
    assert wald.statistic == pytest.approx(test.statistic, rel=0.2)


@pytest.mark.release
def test_without_a_penalty_the_model_is_that_of_statsmodels() -> None:
    table = made(*wine())
    found = trained(by_site(table), terms=OPEN, lam=0.0, iterations=30)
    summary = found.inference.summary
    assert summary is not None, found.inference.why_not
    assert_same(summary, table, ["k1", "k2"], FIGURES["wine"])
    weights = np.column_stack([found.model.coef, found.model.intercept])
    # Weights of all classes add up to zero: no other choice changes a probability.
    assert np.abs(weights.sum(axis=0)).max() < 1e-9 * np.abs(weights).max()
    order = [list(found.model.features).index(name) for name in table.features] + [-1]
    told = (weights[1:] - weights[0])[:, order].ravel()
    errors = np.array(FIGURES["wine"]["errors"])
    assert (np.abs(told - np.array(FIGURES["wine"]["coef"])) / errors).max() < 1e-4
    assert found.model.lam == 0.0


def ridge(x: Floats, y: Any, lam: float, weight: Floats) -> tuple[Floats, Floats]:
    """The penalised optimum by Newton's method on the weights of all classes, of standard columns
    and free intercepts, and standard errors of differences to the first class."""
    spread, classes = x.std(axis=0), np.unique(y)
    z = np.column_stack([(x - x.mean(axis=0)) / spread, np.ones(len(x))])
    mine, count = (y[:, None] == classes).astype(float), len(classes)
    held = np.kron(np.eye(count), np.diag(np.append(np.full(x.shape[1], len(x) * lam), 0.0)))
    w = np.zeros(count * z.shape[1])
    for _ in range(40):
        p = softmax(z @ w.reshape(count, -1).T, axis=1)
        slope = ((weight[:, None] * (p - mine)).T @ z).ravel() + held @ w
        bend = np.zeros((count, z.shape[1]) * 2)
        for k in range(count):
            for m in range(count):
                share = weight * p[:, k] * ((k == m) - p[:, m])
                bend[k, :, m] = z.T @ (share[:, None] * z)
        inner = bend.reshape(len(w), len(w))
        back = np.linalg.pinv(inner + held, hermitian=True)
        w = w - back @ slope
    to_raw = np.diag(np.append(1 / spread, 1.0))
    to_raw[-1, :-1] = -x.mean(axis=0) / spread
    against = np.hstack([-np.ones((count - 1, 1)), np.eye(count - 1)])
    turn = np.kron(against, to_raw)
    cov = turn @ back @ inner @ back @ turn.T
    return turn @ w, np.sqrt(np.diag(cov))


def test_ridge_fits_with_weights_have_errors_of_the_penalised_estimate() -> None:
    x, y = three_classes(400)
    weight = np.random.default_rng(4).choice([1.0, 2.0], len(y))
    whole = made(np.column_stack([x, weight]), y, ["a", "b", "times"])
    summary = (
        HybridGLM(
            "multinomial", lam=0.05, gap=1e-9, scaling="standard", solver="newton-cg",
            weight="times", inference=True,
        )
        .fit(by_site(whole, 3))
        .summary()
    )  # fmt: skip
    coef, errors = ridge(x, y, 0.05, weight)
    order = in_order(summary, made(x, y), ["mid", "top"])
    np.testing.assert_allclose(summary.errors[order], errors, rtol=1e-5)
    assert (np.abs(summary.coef[order] - coef) / errors).max() < 1e-5
    assert summary.measures.coefficients < 5.6
    assert "λ holds coefficients back" in str(summary)
    # Against another class: the same fit of classes of which that one is the first.
    turned = summary.against("mid")
    assert "each class against 'mid'" in str(turned)
    coef, errors = ridge(x, np.where(y == "mid", "first", y), 0.05, weight)
    order = in_order(turned, made(x, y), ["low", "top"])
    np.testing.assert_allclose(turned.errors[order], errors, rtol=1e-5)
    assert (np.abs(turned.coef[order] - coef) <= turned.distance[order] + 1e-9 * errors).all()
    np.testing.assert_allclose(turned.p[order], 2 * stats.norm.sf(np.abs(coef / errors)), rtol=1e-3)
    back = turned.against("low")
    assert list(back.names) == list(summary.names)
    np.testing.assert_allclose(back.errors, summary.errors, rtol=1e-9)
    with pytest.raises(ConfigError, match="take one of low, mid, top"):
        summary.against("other")


def test_what_is_certified_holds_of_a_run_that_stops_early() -> None:
    x, y = three_classes(400)
    summary = trained(by_site(made(x, y), 3), lam=1e-2, iterations=2, gap=1e-1).inference.summary
    coef, _ = ridge(x, y, 1e-2, np.ones(len(y)))
    order = in_order(summary, made(x, y), ["mid", "top"])
    off = np.abs(summary.coef[order] - coef)
    assert np.isfinite(summary.distance).all()
    assert (off <= summary.distance[order] + 1e-12).all()


def test_guards_and_refusals_are_one_sentence_each() -> None:
    x, y = three_classes(400)
    apart = np.where(y == "top", x[:, 1] + 150.0, x[:, 1])
    found = trained(by_site(made(np.column_stack([x[:, 0], apart]), y)), iterations=6).inference
    assert "a few of its samples have nearly all" in found.why_not
    twice = np.column_stack([x, x[:, 0] + x[:, 1]])
    found = trained(by_site(made(twice, y), 3), terms=OPEN, lam=1e-6).inference
    assert "the columns 'a', 'b' and 'c' add up to the same" in found.why_not
    refused = {
        "10 samples for every coefficient": (made(x[:50], y[:50]), {"terms": OPEN}),
        "inference = 'robust' of a multinomial model": (made(x, y), {"inference": "robust"}),
    }
    for words, (table, how) in refused.items():
        with pytest.raises(ConfigError, match=words) as caught:
            trained(by_site(table), **how)
        assert str(caught.value).count(". ") == 0
    with pytest.raises(ConfigError, match="set mode = 'sealed'"):
        trained(SPLITS["columns"](made(x, y), parties=2).parties, terms=OPEN)


def test_a_partys_totals_have_pearsons_sum_over_all_classes() -> None:
    """It bounds by how much the slope that parties tell may be rounded."""
    rng = np.random.default_rng(0)
    x, z, weight = rng.normal(size=(9, 2)), rng.normal(size=(9, 3)), rng.uniform(0.5, 2, 9)
    mine = np.eye(3)[rng.integers(0, 3, 9)]
    p = np.exp(z) / np.exp(z).sum(axis=1, keepdims=True)

    def told(z: Floats) -> float:
        numbers = class_statistics(x, z, 2 * mine - 1, weight, Softmax())
        return class_sums_in(numbers, 2, 3).totals.pearson

    assert told(z) == pytest.approx((weight[:, None] * (mine - p) ** 2 / p).sum(), rel=1e-12)
    # Where the class of a sample has no probability at all, it is a number too.
    z[0] = np.where(mine[0] > 0, -1e4, z[0])
    assert told(z) == 2.0**40
