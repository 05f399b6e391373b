"""``weft reproduce hyfdca``: what it writes of runs that are there, and what it refuses."""

import json

import pandas as pd
import pytest

from weft_papers.hyfdca.cases import SCALES, Plan
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.results_folder import ResultsFolder
from weft_papers.hyfdca.run_case import Curve, settings_of

COSTS = Costs(
    compute=0.1, encryption=0.02, coordinator=0.03, wall=1.0, round_trips=4, bytes=1e3, counted=9
)


@pytest.fixture
def data(monkeypatch, tmp_path):
    """A folder that looks as if it held MNIST."""
    file = tmp_path / "data" / "mnist" / "train-images-idx3-ubyte.gz"
    file.parent.mkdir(parents=True)
    file.touch()
    monkeypatch.setenv("WEFT_DATA", str(tmp_path / "data"))


def fill(folder, plan):
    """Runs as if they had been made; HyFEM is the most accurate, and FedAvg diverged."""
    results = ResultsFolder(folder)
    results.keep_central(
        "mnist", 0, {"loss": 0.5, "accuracy": 0.92, "how": "liblinear", "classes": 10}
    )
    for case in plan.cases():
        steps = [1, 2, 3, 10**6]
        loss, accuracy = (0.9, 0.95) if case.method == "hyfem" else (0.6, 0.9)
        curve = Curve(
            length=10**6,
            iterations=steps,
            losses=[2.0, 1.0, loss, loss],
            accuracies=[0.1, 0.5, accuracy, accuracy],
            costs=COSTS,
            settings=settings_of(case),
        )
        if case.method == "fedavg":
            curve.length, curve.ended, curve.diverged = 3, True, "the weights grew without end"
        results.keep_curve(case, curve)


@pytest.fixture(params=["written", pytest.param("drawn", marks=pytest.mark.release)])
def drawing(request):
    """Figures are made with every change; their pixels, which take seconds, before a release."""
    if request.param == "written":
        request.getfixturevalue("no_pictures")
    return request.param == "drawn"


def test_what_was_run_is_told_in_tables_figures_and_a_page(weft, tmp_path, data, drawing):
    fill(tmp_path / "found", Plan({"mnist": SCALES["small"]}))
    done = weft("reproduce", "hyfdca", "--scale", "small", "--out", "found")
    assert done.code == 0, done.err
    # Two others, two respects, three settings; HyFEM is ahead in accuracy.
    assert "9 of 12" in done.out
    assert "36 of 36" in done.out
    assert "not run: newsgroups" in done.out
    assert "0.01 of the paper's iterations" in done.out
    folder = tmp_path / "found"
    page = (folder / "README.md").read_text()
    assert "weft reproduce hyfdca --scale small --seed 0" in page
    assert "| HyFDCA safe |" + " **9 of 12** |" * 4 in page
    assert "diverged" in page
    for name in ("3-loss", "3-accuracy", "4", "5-loss", "5-accuracy", "6"):
        assert (folder / f"figure-{name}.png").stat().st_size > 5000 or not drawing
        assert f"(figure-{name}.png)" in page
    told = pd.read_csv(folder / "comparisons.csv")
    assert len(told) == 3 * 48
    assert told["ahead"].sum() == 3 * 36
    assert set(told[~told["ahead"]]["against"]) == {"HyFEM"}
    curves = pd.read_csv(folder / "curves.csv")
    assert curves["relative_loss"].max() == pytest.approx((2.0 - 0.5) / 0.5)
    summary = json.loads((folder / "summary.json").read_text())
    modes = ("iterations", "paper", "computing", "time")
    assert summary["ahead"]["safe"] == {mode: [9, 12] for mode in modes}
    assert summary["shares"] == {"mnist": {"iterations": 0.01, "seconds": 0.01, "effects": 0.0}}


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--scale", "huge"], "neither tiny, small, medium, full nor a share above 0"),
        (["--scale", "2"], "a share above 0 and at most 1"),
        (["--scale", "iris=1"], "choose data sets of mnist, newsgroups, covtype"),
        (["--only", "iris"], "choose one of mnist, newsgroups, covtype"),
        (["--only", "covtype"], "covtype/covtype.csv.xz"),
    ],
)
def test_what_cannot_be_run_is_refused_with_nothing_written(weft, tmp_path, data, options, words):
    done = weft("reproduce", "hyfdca", *options, "--out", "found")
    assert done.code == 2
    assert words in " ".join(done.err.split())
    assert not (tmp_path / "found").exists()
