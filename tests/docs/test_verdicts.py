"""The page of verdicts has a row for every table and figure of the five texts."""

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "results" / "README.md"
#: By heading: how many figures and tables the text has, counted in the texts.
TEXTS = {
    "HyFDCA, extended text": (8, 8),
    "HyFDCA, preprint": (5, 0),
    "FedHybrid": (4, 0),
    "HyFEM, 2024 text": (14, 4),
    "HyFEM, 2020 text": (4, 0),
}


@pytest.mark.parametrize("title", TEXTS)
def test_nothing_is_missing_from_the_list(title):
    _, _, part = PAGE.read_text().partition(f"\n## {title}")
    rows = [row for row in part.partition("\n## ")[0].splitlines() if row.startswith("| ")]
    named = {"Figure": set(), "Table": set()}
    for row in rows:
        cell = row.split("|")[1]
        for kind in named:
            if kind in cell:
                named[kind] |= {int(number) for number in re.findall(r"\d+", cell)}
        if re.search(r"\d", cell):
            verdict = row.split("|")[4]
            assert re.search(r"agree|partly|not|nothing to run|as there", verdict), row
    figures, tables = TEXTS[title]
    assert named["Figure"] == set(range(1, figures + 1))
    assert named["Table"] == set(range(1, tables + 1))


def test_no_figure_is_left_to_fill_in():
    assert "@" not in PAGE.read_text()
