"""``weft reproduce all --from-archive``: what the repository keeps, drawn from its runs."""

import shutil
from pathlib import Path

import pytest

from weft_papers.hyfdca import figures

RESULTS = Path(__file__).parents[2] / "docs" / "results"
PAPERS = sorted(path.parent.name for path in RESULTS.glob("*/runs.jsonl"))


@pytest.fixture(params=["written", pytest.param("drawn", marks=pytest.mark.release)])
def drawing(request):
    """Figures, which take most of the time, are made before a release.

    Those of HyFDCA are made with every change of a few runs, in ``test_reproduce_hyfdca.py``.
    """
    if request.param == "written":
        request.getfixturevalue("no_pictures")
        patch = request.getfixturevalue("monkeypatch")
        for name in ("comparison", "costs", "effects"):
            patch.setattr(figures, f"plot_{name}", lambda *told: told[-1].write_bytes(b""))


def test_every_page_table_and_figure_comes_from_the_archive(weft, tmp_path, drawing):
    assert set(PAPERS) >= {"fedhybrid", "hyfdca", "hyfem"}
    for name in PAPERS:
        (tmp_path / "kept" / name).mkdir(parents=True)
        shutil.copy(RESULTS / name / "runs.jsonl", tmp_path / "kept" / name)
    done = weft("reproduce", "all", "--from-archive", "--results", "kept")
    assert done.code == 0, done.err
    for paper in PAPERS:
        drawn, kept = tmp_path / "kept" / paper, RESULTS / paper
        names = {file.name for file in drawn.iterdir()}
        assert names >= {"README.md", *(file.name for file in kept.glob("*.png"))}
        for name in names:
            if not name.endswith(".png"):
                assert (drawn / name).read_text() == (kept / name).read_text(), name


def test_figures_that_pages_show_are_kept():
    for page in RESULTS.glob("*/README.md"):
        shown = {part.split(")")[0] for part in page.read_text().split("](")[1:]}
        assert {name for name in shown if name.endswith(".png")} <= {
            file.name for file in page.parent.iterdir()
        }


def test_nothing_is_run_or_drawn_without_an_archive(weft, tmp_path):
    done = weft("reproduce", "all", "--results", ".")
    assert done.code == 2
    assert "give --from-archive" in " ".join(done.err.split())
    done = weft("reproduce", "all", "--from-archive", "--results", ".")
    assert done.code == 2
    assert "no folder with runs.jsonl" in " ".join(done.err.split())
    assert list(tmp_path.iterdir()) == []
