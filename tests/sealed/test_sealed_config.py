"""``[privacy] mode`` of a config chooses sealed training, or says in a sentence why it cannot."""

from __future__ import annotations

import msgspec
import pytest
from sealed_runs import ALL, CUTS, cut, table

from weft.config.read_config import read_config
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.guards import OPEN
from weft.solvers.algorithm_choice import in_sums, resolve, settled
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import catalogue_entry, table_positions
from weft_evaluation.choose_compared_algorithms import settings_for

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
        ("auto", "hinge", "cutting-planes"),
        ("sums", "logistic", "lbfgs"),
    ],
)
def test_the_mode_chooses_the_solver_and_terms_stay(tmp_path, mode, loss, solver):
    read = config(tmp_path, mode=mode, loss=loss)
    assert resolve(read.settings)[0].solver == solver
    assert read.terms.min_batch == 12


@pytest.mark.parametrize(("mode", "loss"), [("sealed", "hinge"), ("seald", "logistic")])
def test_what_cannot_be_sealed_is_refused_before_anything_is_sent(tmp_path, mode, loss):
    with pytest.raises(ConfigError, match=r"config\.toml"):
        config(tmp_path, mode=mode, loss=loss)


def test_auto_takes_sealed_training_wherever_it_can_and_says_why_not():
    smooth, kinked = (
        Settings(lam=1.0, loss="logistic", solver="auto", mode="auto"),
        Settings(lam=1.0, solver="auto", mode="auto"),
    )
    chosen, reason = resolve(smooth)
    assert chosen.solver == "sealed"
    assert "five round trips" in reason
    for settings, changes, why in (
        (kinked, {}, "not 'hinge'"),
        (smooth, {"saves": True}, "keeps no checkpoints"),
        (smooth, {"warm": True}, "starts from no model"),
    ):
        chosen, reason = resolve(settings, **changes)
        assert chosen.solver != "sealed"
        assert why in reason
        assert "label holders see scores" in reason
    assert "by the loss" in resolve(msgspec.structs.replace(smooth, folds=3))[1]
    chosen, reason = resolve(msgspec.structs.replace(smooth, mode="sums"))
    assert chosen.solver == "lbfgs"
    assert "mode" not in reason


def test_a_comparison_names_solvers_whatever_the_mode():
    asked = Settings(lam=1.0, loss="logistic", solver="auto", mode="sealed")
    for name in ("lbfgs", "sealed"):
        assert settled(settings_for(name, asked, {}))[0].solver == name


def test_auto_trains_in_sums_where_tables_are_too_large_and_sealed_refuses_them(monkeypatch):
    block, labels = table()
    tiles = cut(block, labels, CUTS["overlapping"])
    for module in (catalogue_entry, table_positions):
        monkeypatch.setattr(module, "MOST_CELLS", 100)
    how = Preprocessing(intercept=False)
    asked = Settings(lam=1e-2, loss="logistic", solver="auto", mode="auto")
    trained = Federation(tiles, how).train(asked)
    assert trained.settings.solver == "lbfgs"
    assert trained.result.notes[0].startswith("mode: sums, since the tables have")
    federation = Federation(tiles, how, record=True)
    with pytest.raises(ConfigError, match="keeps a mask for every cell"):
        federation.train(msgspec.structs.replace(asked, mode="sealed"))
    assert all(party._half._serial == 0 for party in federation.parties.values())


def test_auto_trains_in_sums_where_a_party_would_refuse_so_wide_a_model():
    block, labels = table(rows=25)
    tiles = cut(block, labels, {"a": [(ALL, slice(0, 1))], "b": [(ALL, slice(1, None), False)]})
    careful = msgspec.structs.replace(OPEN, allow_exposure=False)
    asked = Settings(lam=1e-2, loss="logistic", solver="auto", mode="auto")
    chosen, _ = resolve(asked)
    _, holdings, *_ = Federation(tiles, Preprocessing(intercept=False)).assemble(chosen)
    settings, reason = in_sums(chosen, holdings, (0, 1), careful)
    assert settings.solver == "lbfgs"
    assert reason.startswith("mode: sums, since a would refuse a sealed model with so many columns")
    assert in_sums(chosen, holdings, (0, 1), OPEN) is None
    # And so it would.
    with pytest.raises(WeftError, match="refuses a sealed model with so many columns"):
        Federation(tiles, Preprocessing(intercept=False), terms=careful).train(
            msgspec.structs.replace(asked, mode="sealed")
        )
