"""A check foresees what would be refused of standard errors, in the words of the run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from weft import load_model

SETTINGS = """
[data]
label = "y"
confirmed = ["units"]

[model]
family = "poisson"
lambda = 1e-6
inference = true

[privacy]
min_batch = 5
allow_second_moments = true
"""


def written(folder: Path, rows: int, columns: str, settings: str, sites: int = 3) -> Path:
    """A study of sites with so many samples each, of which all have the same columns."""
    rng = np.random.default_rng(2)
    for site in range(sites):
        x = rng.normal(size=(rows, len(columns)))
        # A column that is left out, since fewer than min_batch samples of a site have it.
        x[:, columns.find("r")] = np.arange(rows) < 6 if "r" in columns else x[:, -1]
        y = rng.poisson(np.exp(0.3 * x[:, 0]))
        names = [f"s{site}{row:03d}" for row in range(rows)]
        lines = [f"{n},{','.join(map(str, c))},{v}" for n, c, v in zip(names, x, y, strict=True)]
        text = f"id,{','.join(columns)},y\n" + "\n".join(lines) + "\n"
        (folder / f"{site}.csv").write_text(text)
        settings += f'[[party]]\nname = "site{site}"\nfile = "{site}.csv"\n'
    path = folder / "study.toml"
    path.write_text(settings)
    return path


@pytest.mark.parametrize(
    ("rows", "columns", "settings", "words"),
    [
        (10, "abc", SETTINGS, "inference needs 10 samples for every coefficient, but there are 30"),
        (40, "abcdefgh", SETTINGS, "site0: refuses second moments of so many columns"),
        (
            200,
            "abr",
            SETTINGS.replace("min_batch = 5", "min_batch = 10"),
            "site0: refuses second moments of columns that are the same",
        ),
        (
            200,
            "abc",
            SETTINGS.replace("inference = true", 'inference = "clustered"'),
            "needs 5 sites, but there are 3",
        ),
        (
            200,
            "abc",
            SETTINGS.replace("allow_second_moments = true\n", ""),
            "allow_second_moments",
        ),
    ],
)
def test_what_a_run_would_refuse_is_said_by_a_check(
    weft: Any, tmp_path: Path, rows: int, columns: str, settings: str, words: str
) -> None:
    config = written(tmp_path, rows, columns, settings)
    for command in (["check", config], ["train", config, "--out", "results"]):
        outcome = weft(*command)
        assert outcome.code == 2
        said = outcome.err.replace("party site0 refuses", "party site0: refuses")
        assert words in said, (command[0], outcome.err)
        assert not (tmp_path / "results").exists()


def test_a_check_lets_be_what_a_run_fits(weft: Any, tmp_path: Path) -> None:
    config = written(tmp_path, 120, "abc", SETTINGS)
    outcome = weft("check", config)
    assert outcome.code == 0, outcome.err
    assert "Ready: weft train" in outcome.out


def test_a_run_without_a_penalty_ends_with_what_is_proved_of_its_model(
    weft: Any, tmp_path: Path
) -> None:
    free = SETTINGS.replace("lambda = 1e-6", "lambda = 0")
    solver = '[solver]\nname = "newton-cg"\niterations = 8\n'
    config = written(tmp_path, 120, "abc", free + solver)
    outcome = weft("train", config, "--out", "results")
    assert outcome.code == 0, outcome.err
    assert "was not reached" not in outcome.out
    summary = json.loads((tmp_path / "results" / "summary.json").read_text())
    assert summary["lambda"] == 0.0
    assert 0 < summary["certificate"]["gap"] < 1e-9
    assert load_model(tmp_path / "results" / "model.npz").lam == 0.0
