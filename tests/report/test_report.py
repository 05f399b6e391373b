"""History, plot, summary and results folder."""

import json
import sys

import numpy as np
import pandas as pd
import pytest

from weft import Federation, Preprocessing, Settings
from weft.data import SPLITS, load
from weft.errors import WeftError
from weft.report.convergence_plot import plot_convergence
from weft.report.history_table import certificates, history_frame
from weft.report.results_folder import write_results
from weft.report.summary import certificate_sentence, shortfall, summarise, to_markdown
from weft.storage.atomic_folder import building


@pytest.fixture(scope="module")
def settings():
    return Settings(lam=1e-2, gap=5e-2, participation=0.5)


@pytest.fixture(scope="module")
def trained(settings):
    split = SPLITS["grid"](load("breast_cancer"), k=2, q=2)
    preprocessing = Preprocessing(scaling="standard", unit_rows=True)
    return Federation(split.parties, preprocessing).train(settings)


def test_a_history_has_a_row_for_each_iteration_and_no_false_zeros(trained):
    frame = history_frame(trained.result.history)
    assert frame["iteration"].tolist() == list(range(1, len(frame) + 1))
    assert pd.isna(frame["gap"].iloc[0])
    new = certificates(frame)
    assert new["certified_at"].is_unique
    assert 0 < len(new) < len(frame)


def test_the_plot_is_a_picture(trained, tmp_path):
    path = tmp_path / "plot.png"
    frame = history_frame(trained.result.history)
    assert plot_convergence(frame, path, title="a run", target=1e-2) is None
    assert path.read_bytes()[:4] == b"\x89PNG"


def test_a_history_without_certificates_can_be_drawn(trained, tmp_path):
    frame = history_frame(trained.result.history).head(1)
    assert plot_convergence(frame, tmp_path / "plot.png", title="one row") is None


def test_a_results_folder_needs_no_matplotlib_and_a_plot_says_that_it_does(
    trained, settings, tmp_path, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    _, remarks = write_results(tmp_path, trained, settings, name="a run")
    assert not any("matplotlib" in remark for remark in remarks)
    assert (tmp_path / "model.npz").is_file()
    frame = history_frame(trained.result.history)
    said = plot_convergence(frame, tmp_path / "plot.png", title="a run")
    assert said is not None
    assert "pip install 'weft[report]'" in said
    assert not (tmp_path / "plot.png").exists()


def test_the_summary_says_what_is_certified(trained, settings):
    summary = summarise(trained, settings, "a run")
    json.dumps(summary, allow_nan=False)
    at = trained.result.certificate.iteration
    assert f"certified at iteration {at}" in certificate_sentence(summary)
    assert shortfall(summary) is None
    assert f"certified at iteration {at}" in to_markdown(summary)


def test_the_summary_calls_an_estimate_an_estimate(trained, settings):
    summary = summarise(trained, settings, "a run") | {"certificate": None}
    assert "estimate" in certificate_sentence(summary)
    assert "not certified" in certificate_sentence(summary)
    assert "not reached" in shortfall(summary)
    summary["estimate"] = None
    assert "not known" in certificate_sentence(summary)


def test_a_folder_appears_whole_or_not_at_all(tmp_path):
    target = tmp_path / "deep" / "results"

    def fail():
        with building(target) as draft:
            (draft / "half.txt").write_text("half")
            raise WeftError("something went wrong")

    with pytest.raises(WeftError):
        fail()
    assert not target.exists()
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    with building(target) as draft:
        (draft / "a.txt").write_text("whole")
    with building(target, replace=True) as draft:
        (draft / "b.txt").write_text("newer")
    assert [path.name for path in target.iterdir()] == ["b.txt"]
    assert [path.name for path in target.parent.iterdir()] == ["results"]


def test_costs_cover_matching_as_well_as_training(trained, settings):
    cost = summarise(trained, settings, "a run")["cost"]
    history = trained.result.history
    assert cost["round_trips"] == history[-1].round_trips
    # Matching and finding ω come before the first iteration, which takes two or three.
    assert history[0].round_trips > 5
    assert np.isfinite(cost["wall_seconds"])
