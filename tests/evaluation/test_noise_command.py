"""``weft noise``: what noise in the released model costs, before anybody asks for it."""

from __future__ import annotations

import json

import numpy as np
import pytest

from weft import HybridClassifier
from weft.data import SPLITS, load

CONFIG = """
name = "noisy"

[data]
dataset = "breast_cancer"
split = { name = "rows", parties = 3 }

[model]
loss = "logistic"
lambda = 0.1

[solver]
gap = 1e-6

[noise]
epsilon = 1.0
row_norm = 1.0
"""


@pytest.fixture
def config(tmp_path):
    (tmp_path / "config.toml").write_text(CONFIG)
    return tmp_path / "config.toml"


def test_less_noise_is_closer_to_none(weft, config, tmp_path):
    tried = ("--epsilon", "0.01", "--epsilon", "1e6", "--draws", "20")
    outcome = weft("noise", config, *tried, "--out", "n.png", "--json")
    assert outcome.code == 0, outcome.err
    found = json.loads(outcome.out)
    loud, soft = found["points"]
    assert loud["sigma"] > 1000 * soft["sigma"]
    assert abs(soft["accuracy"] - found["without"]) < 0.02
    assert found["without"] > 0.6
    assert loud["low"] <= loud["accuracy"] <= loud["high"]
    assert loud["high"] - loud["low"] > soft["high"] - soft["low"]
    assert (tmp_path / "n.png").stat().st_size > 1000
    assert weft("noise", config, *tried, "--out", "n.png").code == 2


def test_labels_that_stand_for_others_are_measured_too(weft, config):
    told = CONFIG.replace('"breast_cancer"', '"digits"\npositive = [0, 2, 4, 6, 8]')
    config.write_text(told)
    outcome = weft("noise", config, "--epsilon", "1e6", "--draws", "1", "--json")
    assert outcome.code == 0, outcome.err
    assert json.loads(outcome.out)["without"] > 0.7


def test_a_config_without_noise_is_told_what_it_lacks(weft, config):
    config.write_text(CONFIG.split("[noise]")[0])
    outcome = weft("noise", config)
    assert outcome.code == 2
    assert "has no [noise]" in outcome.err


def test_an_estimator_takes_noise():
    table = load("breast_cancer").rows(np.arange(100))
    tiles = SPLITS["rows"](table, 3).parties
    noise = {"epsilon": 1e3, "row_norm": 1.0}
    first, second = (
        HybridClassifier(loss="logistic", lam=0.1, gap=1e-6, noise=noise).fit(tiles).coef_
        for _ in range(2)
    )
    assert not np.allclose(first, second)
