"""What is left out as too rare, a submitter who chooses bins and min_batch, does not learn."""

from __future__ import annotations

import json
import shutil

import numpy as np
import pandas as pd
import pytest
from member_sites import MemberSites

from weft.crypto.keys import load_all, new_keys
from weft.data.columns.column_rules import ColumnRule, encode_rules
from weft.federation import coordinator
from weft.federation.local_federation import Preprocessing
from weft.guards.privacy_terms import OPEN, Terms
from weft.network.site_data_keys_and_consent import load_member
from weft.network.submitted_task import LinearTask
from weft.privacy.agreement import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings

PARTIES, ROWS = ("north", "south", "west"), 40
#: Of north; the largest stands alone.
INCOME = np.append(np.arange(39.0), 900.0)
POLICY = """
min_batch = 10
kinds = ["linear"]
tell_columns = false
# For ledgers not to refuse the second run in any case.
allow_small_changes = true
allow_exposure = true
"""


@pytest.fixture
def told(tmp_path):
    """What a submitter gets of a run with income in two bins, but for times and sealed letters."""
    rng = np.random.default_rng(7)
    incomes = INCOME[rng.permutation(ROWS)]
    new_keys(tmp_path / "keys", PARTIES)
    (tmp_path / "policy.toml").write_text(POLICY)
    sites = MemberSites(tmp_path, load_all(tmp_path / "keys", PARTIES))
    for name in PARTIES:
        cells = {f"{name} 1": rng.normal(size=ROWS), f"{name} 2": rng.normal(size=ROWS)}
        if name == "north":
            cells["income"] = incomes
        table = pd.DataFrame({"id": range(ROWS), **cells, "y": np.arange(ROWS) % 2})
        table.to_csv(tmp_path / f"{name}.csv", index=False)
        sites.members[name] = load_member(
            name, [tmp_path / f"{name}.csv"], id_column="id", label="y", keys=tmp_path / "keys",
            ledger=Ledger(tmp_path / "ledger"), policy=tmp_path / "policy.toml",
        )  # fmt: skip

    def run(edge):
        for place in ("coordinator", "sites", "saved"):
            shutil.rmtree(tmp_path / place, ignore_errors=True)
        task = LinearTask(
            name="x", parties=PARTIES, columns=encode_rules({"income": ColumnRule(bins=[edge])}),
            settings=Settings(lam=0.1, loss="logistic", solver="sealed", gap=1e-2),
            preprocessing=Preprocessing(scaling="none"), terms=OPEN,
        )  # fmt: skip
        returned = sites.ask(task)
        summary = json.loads((returned / "summary.json").read_text())
        known = ("federation", "notes", "remarks", "iterations", "exposed", "classes")
        table = pd.read_parquet(returned / "history.parquet")
        table = table[[name for name in table.columns if not name.endswith("seconds")]]
        return {name: summary[name] for name in known}, table

    return run


def test_nothing_tells_whether_a_few_cells_are_beyond_an_edge(told, monkeypatch):
    """With a note that comes and goes, bisecting the edge found the largest cell."""
    left_out, known = [], coordinator.remarks

    def remarks(holdings):
        left_out.append(holdings.rare_cells > 0)
        return known(holdings)

    monkeypatch.setattr(coordinator, "remarks", remarks)
    (without, none_beyond), (found, one_beyond) = told(901.0), told(899.0)
    assert left_out == [False, True]
    assert found == without
    # Rounding on shares is random.
    pd.testing.assert_frame_equal(one_beyond, none_beyond, rtol=1e-3, atol=1e-5)


def test_what_is_rare_does_not_depend_on_a_submitters_min_batch():
    """Under one of 18 a bin of 17 cells would be gone, and the loss another."""
    for asked in (1, 10, 18):
        consent = Consent("north", Terms(min_batch=10), asked=Terms(min_batch=asked))
        assert consent.terms.min_batch == 10
    # A site that guards no groups of its own has nothing to keep back.
    assert Consent("north", OPEN, asked=Terms(min_batch=18)).terms.min_batch == 18
