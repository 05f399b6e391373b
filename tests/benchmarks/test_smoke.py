"""Every benchmark runs on the present code, on tiny data."""

from __future__ import annotations

import json
import math
from importlib import import_module
from pathlib import Path

import pytest

BENCHMARKS = Path(__file__).resolve().parents[2] / "benchmarks"
NAMES = sorted(path.stem for path in BENCHMARKS.glob("*.py"))
#: What a benchmark needs besides Weft itself.
NEEDS = {"network": "nvflare", "neural": "torch", "soak": "nvflare"}


@pytest.mark.parametrize("name", NAMES)
def test_a_benchmark_runs_from_its_first_line_to_its_last_and_judges_nothing(
    name, tmp_path, monkeypatch
):
    if name in NEEDS:
        pytest.importorskip(NEEDS[name])
    monkeypatch.syspath_prepend(BENCHMARKS)
    # Neither the data of the papers nor what an earlier run kept may be needed, or changed.
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "none"))
    monkeypatch.setenv("WEFT_CACHE", str(tmp_path / "cache"))
    rows = tmp_path / "rows.json"
    import_module(name).main(["--smoke", "--json", str(rows)])
    found = json.loads(rows.read_text())
    assert found
    assert all(math.isfinite(row["value"]) for row in found)
    assert all(row["bar"] is None and row["met"] is None for row in found)
    assert not (tmp_path / "cache").exists()
