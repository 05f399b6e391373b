"""Standard errors, tests and intervals are those of statsmodels on the pooled table."""

from __future__ import annotations

import pickle
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from reference_data import FAMILIES, SITES, Floats, cancer, credit, sites_of, synthetic, table_of
from scipy import stats
from statsmodels_figures import FIGURES

from weft import HybridClassifier, HybridGLM, Tile
from weft.data import SPLITS, Table, load
from weft.errors import ConfigError, DataError, ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.inference.coefficient_summary import Summary
from weft.inference.coefficient_table_text import ratio_figures
from weft.inference.significance_tests import SignificanceTest
from weft.report.page.coefficients import _line, _Scale
from weft.solvers.run_settings import Settings

#: So small that estimates are those without a penalty, to 1e-4 of their standard errors.
LAM = 1e-7
GUARDED = Terms(allow_second_moments=True)


def by_site(table: Table, sites: int = SITES) -> dict[str, Tile]:
    """Every site holds all columns of some samples."""
    place, block, labels = sites_of(table.ids), np.asarray(table.block), np.asarray(table.labels)
    place = np.minimum(place, sites - 1)
    return {
        f"site{k}": Tile.make(
            list(table.ids[place == k]), list(table.features), block[place == k], labels[place == k]
        )
        for k in range(sites)
    }


def fitted(tiles: Any, family: str, *, terms: Terms = GUARDED, **settings: Any) -> Any:
    """Trained under guards, all sums under pads, in the units of standard columns."""
    loss = {"gaussian": "squared", "binomial": "logistic"}.get(family, family.replace("-", "_"))
    more = {"negative_binomial": {"dispersion": 0.5}, "tweedie": {"power": 1.5}}.get(loss, {})
    how = {"solver": "newton-cg", "gap": 1e-6, "iterations": 9, "lam": LAM, **settings}
    overlap = getattr(tiles, "overlap", "mean")
    parties = {
        name: held if isinstance(held, tuple | list) else (held,)
        for name, held in getattr(tiles, "parties", tiles).items()
    }
    federation = Federation(
        parties, Preprocessing(scaling="standard", intercept=True, overlap=overlap), terms=terms
    )
    how = {"inference": "model", "penalize_intercept": False, "loss_parameters": more, **how}
    return federation.train(Settings(loss=loss, **how))


def assert_same(
    summary: Summary,
    table: Table,
    known: dict[str, list[float]],
    *,
    proved: bool = True,
    within: float = 1e-4,
    digits: float = 1e-5,
) -> None:
    """Coefficients to 1e-4 of their standard errors, the rest to four digits, or ``within``.

    Deviance and the like to ``digits``; what is certified holds, where something is ``proved``.
    """
    order = [list(table.features).index(name) for name in summary.names[:-1]] + [-1]
    figures = {name: np.array(values) for name, values in known.items()}
    coef, errors, p = (figures[name][order] for name in ("coef", "errors", "p"))
    assert (np.abs(summary.coef - coef) / errors).max() < within
    np.testing.assert_allclose(summary.errors, errors, rtol=within)
    if summary.family == "gaussian":
        p = 2 * stats.t.sf(np.abs(coef / errors), summary.measures.residual)
    # Very small chances have fewer digits: those of z, times z.
    np.testing.assert_allclose(summary.p, p, rtol=20 * within, atol=1e-12)
    np.testing.assert_allclose(
        summary.at(0.9).high - summary.coef,
        errors
        * (stats.t(summary.measures.residual) if summary.family == "gaussian" else stats.norm).ppf(
            0.95
        ),
        rtol=within,
    )
    found = summary.measures
    told = (found.deviance, found.null_deviance, found.log_likelihood, found.aic)
    for ours, theirs in zip(told, figures["measures"], strict=True):
        if ours is not None and np.isfinite(theirs):
            assert ours == pytest.approx(theirs, rel=digits)
    if not proved:
        return
    # What is certified holds: no estimate is farther, but for what λ and their last digits are.
    assert np.isfinite(summary.distance).all()
    assert (np.abs(summary.coef - coef) <= summary.distance + 2e-5 * errors).all()


#: Every kind for two families, and each family by the model.
_CASES = [(family, "model") for family in FAMILIES] + [
    (family, kind) for family in ("binomial", "gamma") for kind in ("robust", "clustered")
]


@pytest.mark.parametrize(("family", "kind"), _CASES)
def test_every_family_has_the_figures_of_statsmodels(family: str, kind: str) -> None:
    x, y = synthetic(family)
    table = table_of(x, y, ["a", "b", "c"], classes=family == "binomial")
    # As many as figures were found for: where sites are the clusters, their number counts.
    tiles = by_site(table, SITES if kind == "clustered" else 3)
    # Of squared residuals of skewed responses, one sample has most of a combination of columns.
    far_off = (family, kind) == ("gamma", "robust")
    trained = fitted(tiles, family, inference=kind, terms=OPEN if far_off else GUARDED)
    if far_off:
        guarded = fitted(tiles, family, inference=kind, terms=GUARDED).inference
        assert "a few of its samples have nearly all" in guarded.why_not
    summary = trained.inference.summary
    assert summary is not None, trained.inference.why_not
    assert_same(summary, table, FIGURES[family if kind == "model" else f"{family} {kind}"])


def overlapping(table: Table, sites: int = 4, share: float = 0.15) -> dict[str, Tile]:
    """Every site has all columns of its own samples, and of some that the next one has too."""
    count, block, labels = len(table.ids), np.asarray(table.block), np.asarray(table.labels)
    size = count // sites
    held = {}
    for k in range(sites):
        last = count if k == sites - 1 else (k + 1) * size
        more = np.arange(last, last + int(share * size)) % count
        rows = np.concatenate([np.arange(k * size, last), more])
        held[f"site{k}"] = Tile.make(
            list(table.ids[rows]), list(table.features), block[rows], labels[rows]
        )
    return held


@pytest.mark.parametrize("cut", ["rows", "overlapping"])
def test_credit_cut_by_rows_and_overlapping_with_guards_on(cut: str) -> None:
    table = credit()
    tiles = by_site(table) if cut == "rows" else overlapping(table)
    # Of samples that two sites share, classes of fewer would be left out.
    terms = Terms(min_batch=10 if cut == "rows" else 2, allow_second_moments=True, allow_pairs=True)
    trained = fitted(tiles, "binomial", terms=terms)
    summary = trained.inference.summary
    assert summary is not None, trained.inference.why_not
    assert_same(summary, table, FIGURES["credit"])
    assert summary.samples == len(table.ids)


@pytest.mark.release
def test_breast_cancer_has_the_figures_of_statsmodels() -> None:
    """Columns that say nearly the same; sites of 114 samples are too small for it with guards."""
    table = cancer()
    with pytest.raises(ProtocolError, match="party site0: refuses second moments"):
        fitted(by_site(table), "binomial")
    trained = fitted(by_site(table), "binomial", terms=OPEN, lam=1e-10, iterations=40)
    summary = trained.inference.summary
    assert_same(summary, table, FIGURES["cancer"])
    radius = list(summary.names).index("mean radius")
    others = np.delete(np.asarray(table.block), 0, axis=1)
    # 1/(1 − R²) of the column on all others, each sample by its p(1 − p).
    x = np.column_stack([others, np.ones(len(others))])
    order = [list(summary.names).index(name) for name in table.features] + [-1]
    score = np.column_stack([table.block, np.ones(len(x))]) @ summary.coef[order]
    weight = np.exp(-np.abs(score)) / (1 + np.exp(-np.abs(score))) ** 2
    y, root = np.asarray(table.block)[:, 0], np.sqrt(weight)
    fit = x @ np.linalg.lstsq(x * root[:, None], y * root, rcond=None)[0]
    mean = (weight * y).sum() / weight.sum()
    expected = (weight * (y - mean) ** 2).sum() / (weight * (y - fit) ** 2).sum()
    assert summary.inflation[radius] == pytest.approx(expected, rel=1e-3)


@pytest.mark.release
@pytest.mark.parametrize("kind", ["model", "robust"])
def test_boston_is_that_of_least_squares(kind: str, data_dir: Path) -> None:
    """A real table of thirteen columns; statsmodels judges smaller ones with every change."""
    table = load("boston", data_dir)
    x, y = np.asarray(table.block), np.asarray(table.labels, float)
    how = {"terms": OPEN, "lam": 1e-9, "iterations": 30, "inference": kind}
    summary = fitted(by_site(named_by_row(table)), "gaussian", **how).inference.summary
    whole = np.column_stack([x, np.ones(len(y))])
    inverse = np.linalg.inv(whole.T @ whole)
    coef = inverse @ whole.T @ y
    left = y - whole @ coef
    middle = whole.T @ (left[:, None] ** 2 * whole)
    if kind == "model":
        middle = whole.T @ whole * (left**2).sum() / (len(y) - whole.shape[1])
    errors = np.sqrt(np.diag(inverse @ middle @ inverse))
    order = [list(table.features).index(name) for name in summary.names[:-1]] + [-1]
    assert (np.abs(summary.coef - coef[order]) / errors[order]).max() < 1e-4
    np.testing.assert_allclose(summary.errors, errors[order], rtol=1e-4)
    chances = 2 * stats.t.sf(np.abs(coef / errors), len(y) - whole.shape[1])
    np.testing.assert_allclose(summary.p, chances[order], rtol=1e-3, atol=1e-12)
    assert summary.measures.explained == pytest.approx(1 - left.var() / y.var(), rel=1e-6)


def named_by_row(table: Table) -> Table:
    ids = np.array([f"s{i:04d}" for i in range(len(table.ids))], object)
    return Table(ids, table.features, table.block, table.labels, table.task)


def closed_form(x: Floats, y: Floats, lam: float, *, squared: bool) -> tuple[Floats, Floats]:
    """The penalised optimum of standard columns and a free intercept, by Newton's method, and its
    standard errors: roots of the diagonal of (H + Λ)⁻¹H(H + Λ)⁻¹."""
    spread = x.std(axis=0)
    z = np.column_stack([(x - x.mean(axis=0)) / spread, np.ones(len(x))])
    w, count = np.zeros(z.shape[1]), len(y)
    penalty = np.append(np.full(x.shape[1], count * lam), 0.0)
    for _ in range(40):
        mean = z @ w if squared else 1 / (1 + np.exp(-z @ w))
        bend = np.ones(count) if squared else mean * (1 - mean)
        inner = z.T @ (bend[:, None] * z)
        held = inner + np.diag(penalty)
        w = w - np.linalg.solve(held, z.T @ (mean - y) + penalty * w)
    cov = np.linalg.solve(held, np.linalg.solve(held, inner).T)
    if squared:
        left = count - np.trace(np.linalg.solve(held, inner))
        cov = cov * ((y - z @ w) ** 2).sum() / left
    to_raw = np.diag(np.append(1 / spread, 1.0))
    to_raw[-1, :-1] = -x.mean(axis=0) / spread
    return to_raw @ w, np.sqrt(np.diag(to_raw @ cov @ to_raw.T))


@pytest.mark.release
@pytest.mark.parametrize(
    ("family", "cut"), [("gaussian", "columns"), ("binomial", "grid"), ("binomial", "columns")]
)
def test_sealed_runs_have_standard_errors_on_any_cut(family: str, cut: str) -> None:
    """``test_sealed_figures_are_those_of_statsmodels`` (test_sealed_figures.py) has them sooner."""
    x, y = synthetic(family)
    table = table_of(x, y, ["a", "b", "c"], classes=family == "binomial")
    how = {"columns": {"parties": 3}, "grid": {"k": 2, "q": 2}}[cut]
    lam = 1e-4
    model = HybridGLM(
        family, lam=lam, gap=1e-6, scaling="standard", privacy="sealed", inference=True, max_iter=80
    ).fit(SPLITS[cut](table, **how))
    summary = model.summary()
    assert not hasattr(model, "second_moments_")
    order = [list(table.features).index(name) for name in summary.names[:-1]] + [-1]
    coef, errors = closed_form(x, y, lam, squared=family == "gaussian")
    # The dispersion of a gaussian model follows from its loss as it was measured, not from a bound.
    rtol = 1e-5 if family == "gaussian" else 1e-4
    np.testing.assert_allclose(summary.errors, errors[order], rtol=rtol)
    off = np.abs(summary.coef - coef[order])
    assert (off <= summary.distance).all()
    assert (off / errors[order]).max() < 1e-2
    # λ holds so little back that these are statsmodels' to three digits.
    known = np.array(FIGURES[family]["errors"])[order]
    np.testing.assert_allclose(summary.errors, known, rtol=5e-3)
    deviance, null = FIGURES[family]["measures"][:2]
    assert summary.measures.deviance == pytest.approx(deviance, rel=1e-3)
    if family == "gaussian":
        assert summary.measures.null_deviance == pytest.approx(null, rel=1e-3)


def test_weights_and_offsets_count_as_in_a_weighted_fit() -> None:
    x, y = synthetic("poisson")
    rng = np.random.default_rng(3)
    years, weight = rng.uniform(0.5, 2.0, len(y)), rng.choice([1.0, 2.0], len(y))
    whole = np.column_stack([x, years, weight])
    table = table_of(whole, y, ["a", "b", "c", "years", "weight"], classes=False)
    model = HybridGLM(
        "poisson", lam=LAM, gap=1e-7, scaling="standard", solver="newton-cg", inference=True,
        exposure="years", weight="weight", max_iter=10,
    ).fit(by_site(table, 3))  # fmt: skip
    summary = model.summary()
    z = np.column_stack([x, np.ones(len(y))])
    w = np.zeros(4)
    for _ in range(30):
        mean = years * np.exp(z @ w)
        held = z.T @ ((weight * mean)[:, None] * z)
        w = w - np.linalg.solve(held, z.T @ (weight * (mean - y)))
    order = [["a", "b", "c"].index(name) for name in summary.names[:-1]] + [-1]
    errors = np.sqrt(np.diag(np.linalg.inv(held)))[order]
    np.testing.assert_allclose(summary.errors, errors, rtol=1e-4)
    assert (np.abs(summary.coef - w[order]) / errors).max() < 1e-4
    # An intercept alone: rates of everybody.
    rate = (weight * y).sum() / (weight * years).sum()
    terms = (
        np.where(y > 0, y * np.log(np.where(y > 0, y, 1) / (years * rate)), 0) - y + years * rate
    )
    assert summary.measures.null_deviance == pytest.approx(2 * (weight * terms).sum(), rel=1e-9)


@pytest.mark.parametrize("family", ["gaussian", "gamma"])
def test_a_weighted_fit_has_the_likelihood_of_its_variances_or_none(family: str) -> None:
    """A sample that weighs ω has variance σ²/ω; of amounts, each weight would have its own law."""
    x, y = synthetic(family)
    weight = np.random.default_rng(3).choice([1.0, 2.0, 5.0], len(y))
    names = ["a", "b", "c"][: x.shape[1]]
    table = table_of(np.column_stack([x, weight]), y, [*names, "weight"], classes=False)
    summary = HybridGLM(
        family, lam=LAM, gap=1e-7, scaling="standard", solver="newton-cg", inference=True,
        weight="weight", max_iter=10,
    ).fit(by_site(table, 3)).summary()  # fmt: skip
    if family == "gamma":
        assert summary.measures.log_likelihood is None
        return
    z, root = np.column_stack([x, np.ones(len(y))]), np.sqrt(weight)
    left = y - z @ np.linalg.lstsq(root[:, None] * z, root * y, rcond=None)[0]
    sigma = np.sqrt((weight * left**2).mean())
    expected = stats.norm.logpdf(left, scale=sigma / root).sum()
    assert summary.measures.log_likelihood == pytest.approx(expected, rel=1e-6)


def test_a_test_says_its_law_and_between_which_values_p_is_certified() -> None:
    told = str(SignificanceTest("ratio of b", 3.0, 1, None, 0.0833, (0.0829, 0.08371)))
    assert told == "ratio of b: χ²(1) = 3, p = 0.0833, certified between 0.0829 and 0.08371"
    told = str(SignificanceTest("Wald test of b, c", 0.5, 2, 27.0, 0.612))
    assert told == "Wald test of b, c: F(2, 27) = 0.5, p = 0.612"


def test_tests_of_several_coefficients() -> None:
    x, y = synthetic("binomial")
    table = table_of(x, y, ["a", "b", "c"], classes=True)
    full = fitted(by_site(table, 3), "binomial").inference.summary
    less = Table(table.ids, table.features[:1], np.ascontiguousarray(x[:, :1]), y, "classification")
    small = fitted(by_site(less, 3), "binomial").inference.summary
    ratio = full.likelihood_ratio_test(small)
    expected = small.measures.deviance - full.measures.deviance
    assert ratio.statistic == pytest.approx(expected)
    assert ratio.degrees == 2
    assert ratio.certified is not None
    assert ratio.certified[0] <= ratio.p <= ratio.certified[1]
    wald = full.wald_test(["b", "c"])
    z = np.column_stack([x, np.ones(len(y))])
    order = [list(full.names).index(name) for name in ("a", "b", "c", "(intercept)")]
    w = full.coef[order]
    p = 1 / (1 + np.exp(-z @ w))
    cov = np.linalg.inv(z.T @ ((p * (1 - p))[:, None] * z))[1:3, 1:3]
    assert wald.statistic == pytest.approx(w[1:3] @ np.linalg.solve(cov, w[1:3]), rel=1e-5)
    assert wald.p == pytest.approx(stats.chi2.sf(wald.statistic, 2))
    with pytest.raises(ConfigError, match="nested"):
        small.likelihood_ratio_test(full)
    # The covariance stays here: what was written down and read again has none.
    again = pickle.loads(pickle.dumps(full))
    with pytest.raises(DataError, match="stays in the process"):
        again.wald_test(["b"])


def test_the_table_in_all_its_forms(tmp_path: Path) -> None:
    x, y = synthetic("poisson")
    summary = fitted(
        by_site(table_of(x, y, ["a_1", "b&", "c"], classes=False), 3), "poisson"
    ).inference.summary
    text = str(summary)
    assert "rate ratio" in text
    assert re.search(r"^\(intercept\) +-?0?\.?\d", text, re.MULTILINE)
    frame = summary.to_frame()
    assert frame.loc["c", "ratio"] == pytest.approx(np.exp(frame.loc["c", "coefficient"]))
    assert (frame["certified_low"] <= frame["low"]).all()
    summary.save(tmp_path / "t.csv")
    summary.save(tmp_path / "t.tex")
    import pandas as pd

    again = pd.read_csv(tmp_path / "t.csv", index_col=0)
    np.testing.assert_array_equal(again["standard_error"], summary.errors)
    latex = (tmp_path / "t.tex").read_text()
    assert r"a\_1 &" in latex
    assert r"b\& &" in latex
    assert (tmp_path / "t.tex").stat().st_mode & 0o77 == 0


def test_ratios_of_tiny_units_are_told_in_digits_that_tell_them_apart() -> None:
    assert ratio_figures(1.0000021, 1.0000003, 1.0000039) == ("1.0000021", "1.0000003", "1.0000039")
    assert ratio_figures(0.999998, 0.9999944, 1.0000015) == ("0.9999980", "0.9999944", "1.0000015")
    assert ratio_figures(2.5, 1.25, 5.0) == ("2.5", "1.25", "5")
    # A wide one, and one that has no end.
    assert ratio_figures(3.0, 0.5, float("inf")) == ("3", "0.5", "–")
    row = {"name": "limit", "coefficient": 2.1e-6, "low": 3e-7, "high": 3.9e-6, "p": 0.02}
    row |= {"ratio": 1.0000021, "ratio_low": 1.0000003, "ratio_high": 1.0000039}
    assert _line(row, _Scale([row], True), True)[2] == "1.0000021 (1.0000003 – 1.0000039)"


def test_what_has_no_standard_errors_is_said_with_the_column() -> None:
    x, y = synthetic("binomial")
    twice = np.column_stack([x, x[:, 0] + x[:, 1]])
    tiles = by_site(table_of(twice, y, ["a", "b", "c", "sum"], classes=True))
    model = HybridGLM("binomial", lam=1e-6, scaling="standard", inference=True).fit(tiles)
    with pytest.raises(DataError, match=r"'a', 'b' and 'sum' add up to the same"):
        model.summary()
    tells = np.column_stack([x[:, 1:], (y > 0) * 1.0 * (x[:, 0] > 3.0)])
    tiles = by_site(table_of(tells, y, ["b", "c", "tells"], classes=True))
    model = HybridGLM(
        "binomial", lam=1e-7, scaling="standard", inference=True, solver="newton-cg", max_iter=20
    ).fit(tiles)
    with pytest.raises(DataError, match="not shown that the coefficient of 'tells' stays finite"):
        model.summary()
    with pytest.raises(ConfigError, match="fitted without standard errors"):
        HybridGLM("binomial").fit(tiles).summary()


REFUSED = {
    "few samples": (lambda t: by_site(t(30)), {}, "10 samples for every coefficient"),
    "columns": (
        lambda t: SPLITS["columns"](t(300), parties=3).parties, {}, "set mode = 'sealed'",
    ),
    "few sites": (
        lambda t: SPLITS["rows"](t(300), parties=3).parties,
        {"inference": "clustered"},
        "needs 5 sites, but there are 3",
    ),
    "a loss": (lambda t: by_site(t(300)), {"loss": "squared_hinge"}, "has no likelihood"),
    "robust, sealed": (
        lambda t: by_site(t(300)),
        {"inference": "robust", "privacy": "sealed", "penalize_intercept": True},
        "set inference = true",
    ),
    "noise": (
        lambda t: by_site(t(300)),
        {"noise": {"epsilon": 1.0, "delta": 1e-6, "row_norm": 1.0}, "penalize_intercept": True},
        "model with noise",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_done_is_refused_in_a_sentence(case: str) -> None:
    cut, settings, words = REFUSED[case]

    def table(rows: int) -> Table:
        x, y = synthetic("binomial", rows)
        return table_of(x, y, ["a", "b", "c"], classes=True)

    how = {"lam": 1e-3, "inference": True, "loss": "logistic", **settings}
    with pytest.raises(ConfigError, match=re.escape(words)) as caught:
        HybridClassifier(**how).fit(cut(table))
    assert str(caught.value).count(". ") == 0


def test_a_separated_outcome_is_said_with_the_column_where_guards_keep_sums_back() -> None:
    """Hardly a sample is undecided, so that parties tell nothing; the model names the column."""
    x, _ = synthetic("binomial")
    table = table_of(x, (x[:, 1] > -2.0).astype(float), ["a", "b", "c"], classes=True)
    found = fitted(by_site(table), "binomial", iterations=12).inference
    assert "a few of its samples have nearly all" in found.why_not
    assert "the coefficient of 'b' is very large, and runs away" in found.why_not
