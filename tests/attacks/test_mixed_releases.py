"""Descriptions, evaluations and standard errors of one study in turn, a sample more each time.

Each of them is about all samples, so that whoever reads two of them takes one off the other: sums
of columns in a description are those that the matrix behind standard errors has at its constant
column, and both know how many samples are of which class, as an evaluation does. So a ledger takes
them down alike, and refuses whatever differs by a few samples from any of them.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.errors import WeftError
from weft.federation.local_descriptive_statistics import describe_tiles
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards import Terms
from weft.inference.coefficient_summary import Summary
from weft.inference.fit_statistics import FitStatistics
from weft.privacy.agreement import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.run_settings import Settings

TERMS = Terms(min_batch=10, allow_second_moments=True)
LOOSE = msgspec.structs.replace(TERMS, allow_small_changes=True, allow_exposure=True)
PARTIES, EACH = ("victim", "other", "reader"), 100
HOW = Preprocessing(intercept=True, confirmed=ONE_TABLE, confirm_separate_ids=True)
KEYS = ephemeral_keys(PARTIES)
RNG = np.random.default_rng(3)
CELLS = RNG.normal(size=(3 * EACH + 1, 2)) * [10.0, 1.0] + [50.0, 0.0]
LABELS = (RNG.random(len(CELLS)) < 0.4).astype(int)
#: The one that the victim has in the second study alone.
NEW = len(CELLS) - 1


def tiles_of(more: bool) -> dict[str, tuple[Tile, ...]]:
    found = {}
    for number, party in enumerate(PARTIES):
        rows = np.arange(number * EACH, (number + 1) * EACH)
        if more and party == "victim":
            rows = np.append(rows, NEW)
        ids = [f"s{row:03}" for row in rows]
        found[party] = (Tile.make(ids, ("age", "dose"), CELLS[rows], LABELS[rows]),)
    return found


def described(more: bool, terms: Terms, folder: Path) -> Any:
    found, _ = describe_tiles(
        tiles_of(more),
        HOW,
        Settings(lam=0.1, loss="logistic"),
        consents={party: Consent(party, terms) for party in PARTIES},
        ledger=Ledger(folder, "study"),
        keys=KEYS,
    )
    return found.to_dict()


def trained(more: bool, terms: Terms, folder: Path, **settings: Any) -> Any:
    federation = Federation(
        tiles_of(more), HOW, terms=terms, ledger=Ledger(folder, "study"), keys=KEYS
    )
    how = {"lam": 0.1, "solver": "lbfgs", "iterations": 3, "penalize_intercept": False, **settings}
    return federation.train(Settings(**how))


def inferred(more: bool, terms: Terms, folder: Path) -> Any:
    return trained(more, terms, folder, loss="squared", inference="model")


def evaluated(more: bool, terms: Terms, folder: Path) -> Any:
    groups = EvaluationSettings(groups={"dose": (0.0,)})
    return trained(more, terms, folder, loss="logistic", folds=2, evaluation=groups)


RELEASES = {"description": described, "inference": inferred, "evaluation": evaluated}


def test_without_the_guard_the_difference_is_the_cell_of_one_sample(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fits: list[FitStatistics] = []
    summary = Summary.of.__func__  # type: ignore[attr-defined]

    def opened(cls: type[Summary], fit: FitStatistics) -> Summary:
        fits.append(fit)
        return summary(cls, fit)

    monkeypatch.setattr(Summary, "of", classmethod(opened))
    told = described(False, LOOSE, tmp_path)["columns"]
    sums = {column["name"]: column["mean"] * column["cells"] for column in told}
    assert inferred(True, LOOSE, tmp_path).inference.summary is not None
    (fit,) = fits
    for name, cell in zip(("age", "dose"), CELLS[NEW].tolist(), strict=True):
        at = list(fit.names).index(name)
        assert fit.curvature[at, -1] - sums[name] == pytest.approx(cell, abs=0.05)


@pytest.mark.parametrize("first", RELEASES)
def test_a_release_of_any_kind_is_refused_where_one_sample_came_since_any_other(
    first: str, tmp_path: Path
) -> None:
    RELEASES[first](False, TERMS, tmp_path)
    for second in RELEASES.values():
        with pytest.raises(WeftError, match="party victim refuses"):
            second(True, TERMS, tmp_path)


def test_the_same_samples_may_be_looked_at_in_every_way(tmp_path: Path) -> None:
    for release in RELEASES.values():
        release(False, TERMS, tmp_path)
