"""``[privacy] mode`` of a config chooses sealed training, or says in a sentence why it cannot."""

from __future__ import annotations

import pytest

from weft.config.read_config import read_config
from weft.errors import ConfigError

CONFIG = """
[data]
dataset = "breast_cancer"
split = {{ name = "columns", parties = 2 }}
[model]
loss = "{loss}"
[privacy]
mode = "{mode}"
min_batch = 12
"""


def config(folder, **words):
    path = folder / "config.toml"
    path.write_text(CONFIG.format(**words))
    return read_config(path)


@pytest.mark.parametrize(
    ("mode", "loss", "solver"),
    [
        ("sealed", "logistic", "sealed"),
        ("auto", "logistic", "sealed"),
        ("auto", "hinge", "auto"),
        ("sums", "logistic", "auto"),
    ],
)
def test_the_mode_chooses_the_solver_and_terms_stay(tmp_path, mode, loss, solver):
    read = config(tmp_path, mode=mode, loss=loss)
    assert read.settings.solver == solver
    assert read.terms.min_batch == 12


@pytest.mark.parametrize(("mode", "loss"), [("sealed", "hinge"), ("seald", "logistic")])
def test_what_cannot_be_sealed_is_refused_before_anything_is_sent(tmp_path, mode, loss):
    with pytest.raises(ConfigError, match=r"config\.toml"):
        config(tmp_path, mode=mode, loss=loss)
