"""Columns that say which site a sample is from: products with them are that site's own sums."""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np
import pytest
from reference_data import sites_of, synthetic, table_of
from test_inference import GUARDED, by_site, fitted

from weft.errors import ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release import reader_standard_errors
from weft.privacy.agreement import Consent
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.second_moment_guard import refuse_site_alone

BY_SITE = msgspec.structs.replace(GUARDED, allow_site_statistics=True)


def test_a_column_of_one_site_tells_its_means_and_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    x, y = synthetic("gaussian")
    ids = table_of(x, y, ["a", "b", "c"], classes=False).ids
    there = sites_of(ids) == 3
    table = table_of(np.column_stack([x, there]), y, ["a", "b", "c", "site3"], classes=False)
    with pytest.raises(ProtocolError, match=r"may tell of one site alone.*allow_site_statistics"):
        fitted(by_site(table), "gaussian")
    read: list[Any] = []
    made = reader_standard_errors._of_shares

    def reading(*told: Any) -> Any:
        read.append(made(*told))
        return read[-1]

    monkeypatch.setattr(reader_standard_errors, "_of_shares", reading)
    summary = fitted(by_site(table), "gaussian", terms=BY_SITE).inference.summary
    names = list(summary.names)
    # XᵀX of standard columns, in which the site's is (s − mean) / spread.
    row = read[0].curvature[names.index("site3")]
    for column, name in enumerate(["a", "b", "c"]):
        own = row[names.index(name)] * there.std() / there.sum()
        mean = x[:, column].mean() + x[:, column].std() * own
        assert mean == pytest.approx(x[there, column].mean(), rel=1e-9)


@pytest.mark.parametrize("year", [0.0, 2019.0])
def test_columns_that_add_up_to_the_same_are_such_columns_too(year: float) -> None:
    rng = np.random.default_rng(0)
    age, other = rng.normal(50, 9, 200), rng.normal(size=200)
    refuse_site_alone(np.column_stack([age, other]))
    with pytest.raises(Exception, match="add up to the same"):
        refuse_site_alone(np.column_stack([age, other, year - age]))
    with pytest.raises(Exception, match="are the same"):
        refuse_site_alone(np.column_stack([age, other, np.full(200, year)]))


def test_a_party_without_terms_of_its_own_takes_those_of_the_study() -> None:
    x, y = synthetic("gaussian")
    tiles = by_site(table_of(x[:150], y[:150], ["a", "b", "c"], classes=False))
    asked = {name: Consent(name, asked=BY_SITE) for name in tiles}
    federation = Federation(
        {name: (tile,) for name, tile in tiles.items()},
        Preprocessing(scaling="standard", intercept=True),
        terms=BY_SITE,
        consents=asked,
    )
    with pytest.raises(ProtocolError, match="so many columns over so few samples"):
        federation.train(Settings(loss="squared", lam=1e-3, inference="model", solver="lbfgs"))


def test_the_weight_of_the_only_sample_that_has_one_is_not_told() -> None:
    """Σω less the number of samples would be it."""
    x, y = synthetic("poisson")
    weight = np.ones(len(y))
    weight[:1] = 2.7
    names = ["a", "b", "c", "weight"]
    table = table_of(np.column_stack([x, weight]), y, names, classes=False)
    federation = Federation(
        {name: (tile,) for name, tile in by_site(table).items()},
        Preprocessing(scaling="standard", intercept=True, weight="weight"),
        terms=GUARDED,
    )
    with pytest.raises(ProtocolError, match="would tell of fewer samples than min_batch"):
        federation.train(Settings(loss="poisson", lam=1e-3, inference="model", solver="lbfgs"))
