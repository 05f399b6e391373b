"""The coefficient table of a fit, as an object: text, data frame, CSV, LaTeX, tests."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto.secret_bytes import StaysHere
from weft.errors import ConfigError, DataError
from weft.inference.certified_distance import certify, last_step
from weft.inference.coefficient_table_text import as_latex, as_text
from weft.inference.covariance import covariance, inflation
from weft.inference.fit_measures import FitMeasures, measure
from weft.inference.fit_statistics import FitStatistics
from weft.inference.other_reference_class import against
from weft.inference.refuse_standard_errors import refuse_unfinished, refuse_unidentified
from weft.inference.significance_tests import (
    FittedLoss,
    SignificanceTest,
    likelihood_ratio_test,
    wald,
)
from weft.inference.standard_error_requirements import FIXED_DISPERSION, Kind, refuse_few_samples
from weft.storage.atomic_files import replacing

if TYPE_CHECKING:
    import pandas as pd

#: What e to the power of a coefficient is called.
RATIOS = {
    "binomial": "odds ratio",
    "multinomial": "odds ratio",
    "poisson": "rate ratio",
    "negative-binomial": "rate ratio",
    "gamma": "ratio of means",
    "tweedie": "ratio of means",
}


@dataclass(frozen=True, eq=False, repr=False)
class _Kept(StaysHere):
    """What stays in the process that opened it: the covariance of coefficients, whose columns are
    these."""

    covariance: Floats
    columns: NDArray[np.object_]


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Coefficients with standard errors, tests and intervals; ``print`` shows the table.

    Attributes
    ----------
    names
        Features in the order of the model, then the intercept; arrays are in this order.
    coef, errors
        In the units of the table. Where slopes at the model are known, coefficients are those after
        one more step of Newton's, which is closer to the optimum than the model is.
    statistics, p
        coef/error, z; of a gaussian model t, with ``measures.residual`` degrees of freedom.
    low, high
        The interval for ``level``.
    distance
        How far each coefficient can be from the exact optimum, by the certificate: a certified
        interval is wider by that on both sides. Infinite: nothing is proved of it.
    inflation
        Variance inflation factors; not a number for the intercept.
    kind
        How standard errors are made: ``model``, ``robust`` or ``clustered``.
    gap
        P − P* at most, by the certificate or by the slopes of all losses at the model.
    lam
        λ of the fit: standard errors are those of the penalised estimate.
    reference
        Of several classes, the one that coefficients of all others are against.
    last_step
        How far one more step from the model moves a coefficient at most, in standard errors; None:
        not known.
    """

    names: NDArray[np.object_]
    coef: Floats
    errors: Floats
    statistics: Floats
    p: Floats
    low: Floats
    high: Floats
    distance: Floats
    inflation: Floats
    level: float
    family: str
    kind: Kind
    samples: int
    sites: int
    lam: float
    gap: float
    measures: FitMeasures
    fitted: FittedLoss | None
    reference: str | None = None
    last_step: float | None = None
    _kept: _Kept | None = None

    @classmethod
    def of(cls, fit: FitStatistics, level: float = 0.95) -> Summary:
        """The summary of a fit, or a sentence why it has no standard errors."""
        refuse_few_samples(fit.samples, len(fit.names))
        refuse_unidentified(fit)
        measures = measure(fit)
        found = covariance(fit, measures.dispersion)
        if found is None:
            raise DataError(
                f"there are no standard errors: the dispersion of a {fit.family} model takes sums "
                "over responses, which this run did not make; train in sums, where all parties "
                "hold all columns"
            )
        errors = np.sqrt(np.maximum(np.diag(found), 0.0))
        proof, step = certify(fit), last_step(fit)
        refuse_unfinished(fit, errors, proof.distances, step)
        unknown = np.full(len(errors), np.nan)
        empty = cls(
            names=fit.names,
            coef=proof.coef,
            errors=errors,
            statistics=proof.coef / errors,
            p=unknown,
            low=unknown,
            high=unknown,
            distance=proof.distances,
            inflation=inflation(fit),
            level=level,
            family=fit.family,
            kind=fit.kind,
            samples=fit.samples,
            sites=fit.sites,
            lam=fit.lam,
            gap=proof.gap,
            measures=measures,
            fitted=_fitted(fit, measures, proof.gap),
            reference=fit.reference,
            last_step=None if step is None else float((step / errors).max()),
            _kept=_Kept(found, fit.column_names),
        )
        return empty.at(level)

    def at(self, level: float) -> Summary:
        """The same with intervals for another level, such as 0.9."""
        if not 0 < level < 1:
            raise ConfigError(f"level is {level}; give a share between 0 and 1, such as 0.95")
        # Loading scipy's distributions takes longer than all of this.
        from scipy import stats

        law: Any = stats.t(self.measures.residual) if self._is_t else stats.norm
        reach = float(law.ppf(0.5 + level / 2.0)) * self.errors
        return replace(
            self,
            level=level,
            p=2.0 * law.sf(np.abs(self.statistics)),
            low=self.coef - reach,
            high=self.coef + reach,
        )

    def against(self, reference: str) -> Summary:
        """The same of a multinomial model with another class that all others are against."""
        if self.reference is None:
            raise ConfigError(
                f"reference = '{reference}' is for multinomial models, this is a {self.family} "
                "one; leave it out"
            )
        if reference == self.reference:
            return self
        if self._kept is None:
            raise DataError(
                "the covariance of coefficients stays in the process that opened it; choose the "
                "reference there"
            )
        found = against(
            reference,
            self.reference,
            self._kept.columns,
            self.names,
            self.coef,
            self._kept.covariance,
            self.distance,
        )
        errors = np.sqrt(np.maximum(np.diag(found.covariance), 0.0))
        turned = replace(
            self,
            names=found.names,
            coef=found.coef,
            errors=errors,
            statistics=found.coef / errors,
            distance=found.distance,
            reference=reference,
            _kept=_Kept(found.covariance, self._kept.columns),
        )
        return turned.at(self.level)

    @property
    def _is_t(self) -> bool:
        return self.family == "gaussian"

    @property
    def statistic_name(self) -> str:
        return "t" if self._is_t else "z"

    @property
    def ratio_name(self) -> str | None:
        """What e to the power of a coefficient is; None: of a gaussian model nothing."""
        return RATIOS.get(self.family)

    @property
    def certified_low(self) -> Floats:
        return self.low - self.distance

    @property
    def certified_high(self) -> Floats:
        return self.high + self.distance

    # ── as a table ────────────────────────────────────────────────────────────────────────

    def to_frame(self) -> pd.DataFrame:
        """All columns by name of the coefficient."""
        import pandas as pd

        columns: dict[str, Any] = {
            "coefficient": self.coef,
            "standard_error": self.errors,
            self.statistic_name: self.statistics,
            "p": self.p,
            "low": self.low,
            "high": self.high,
            "certified_low": self.certified_low,
            "certified_high": self.certified_high,
        }
        if self.ratio_name is not None:
            with np.errstate(over="ignore"):
                columns |= {
                    "ratio": np.exp(self.coef),
                    "ratio_low": np.exp(self.low),
                    "ratio_high": np.exp(self.high),
                }
        columns["inflation"] = self.inflation
        return pd.DataFrame(columns, index=pd.Index(self.names.astype(str), name="name"))

    def to_csv(self) -> str:
        """The table, in digits that read back the same."""
        return self.to_frame().to_csv()

    def save(self, path: str | Path) -> None:
        """Write the table whole or not at all, for its owner's eyes: as LaTeX if its name says so,
        else as CSV."""
        text = self.to_latex() if Path(path).suffix == ".tex" else self.to_csv()
        with replacing(Path(path)) as draft:
            draft.touch(mode=0o600)
            draft.write_text(text, encoding="utf-8")

    def to_latex(self) -> str:
        """The table for a paper, with the package booktabs."""
        return as_latex(self)

    def __str__(self) -> str:
        return as_text(self)

    def __repr__(self) -> str:
        return str(self)

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for a report."""
        frame = self.to_frame()
        return {
            "family": self.family,
            "kind": self.kind,
            "level": self.level,
            "samples": self.samples,
            "statistic": self.statistic_name,
            "ratio": self.ratio_name,
            "lam": self.lam,
            "reference": self.reference,
            "rows": [
                {"name": str(name), **{key: float(value) for key, value in row.items()}}
                for name, row in zip(self.names, frame.to_dict("records"), strict=True)
            ],
            "measures": vars(self.measures),
        }

    # ── tests ─────────────────────────────────────────────────────────────────────────────

    def wald_test(self, names: Sequence[str]) -> SignificanceTest:
        """Whether these coefficients are all zero."""
        place = {str(name): at for at, name in enumerate(self.names)}
        strange = [name for name in names if name not in place]
        if strange or not names:
            told = f"'{strange[0]}'" if strange else "no name"
            raise ConfigError(f"a Wald test is of coefficients, but was given {told}; name some")
        if self._kept is None:
            raise DataError(
                "the covariance of coefficients stays in the process that opened it; test there"
            )
        chosen = [place[name] for name in names]
        some = self._kept.covariance[np.ix_(chosen, chosen)]
        return wald(self.coef[chosen], some, names, self.measures.residual if self._is_t else None)

    def likelihood_ratio_test(self, smaller: Summary | FittedLoss) -> SignificanceTest:
        """Whether columns that a smaller model lacks tell something."""
        other = smaller.fitted if isinstance(smaller, Summary) else smaller
        if other is None or self.fitted is None:
            raise DataError("a likelihood ratio takes the losses of both fits; one has none")
        return likelihood_ratio_test(other, self.fitted)

    def __getstate__(self) -> dict[str, Any]:
        """All but the covariance, which is never written down."""
        return {**self.__dict__, "_kept": None}


def _fitted(fit: FitStatistics, measures: FitMeasures, gap: float) -> FittedLoss | None:
    if measures.deviance is None:
        return None
    weights = np.linalg.solve(fit.to_raw, fit.coef)[fit.penalty > 0]
    return FittedLoss(
        names=tuple(str(name) for name in fit.names),
        family=fit.family,
        samples=fit.samples,
        total=measures.deviance / 2.0,
        slack=_slack(fit, gap, float(np.linalg.norm(weights))),
        fixed=fit.loss.name in FIXED_DISPERSION,
        dispersion=measures.dispersion,
    )


def _slack(fit: FitStatistics, gap: float, norm: float) -> float | None:
    found = slack(fit.samples, fit.lam, gap, norm)
    return None if found is None else found + fit.samples * fit.loss_error


def slack(samples: int, lam: float, gap: float, norm: float) -> float | None:
    """How far Σl can be from that of the optimum of P = mean loss + λ/2‖w‖².

    P is within the gap; with ‖w − w*‖ ≤ √(2·gap/λ) the penalties are within √(2·λ·gap)‖w‖ + gap.
    """
    if not np.isfinite(gap):
        return None
    return samples * (2.0 * gap + float(np.sqrt(2.0 * lam * gap)) * norm)
