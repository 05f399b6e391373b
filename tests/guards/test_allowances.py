"""``weft split`` writes a [privacy] section that lets its own cut train, and allows no more."""

from __future__ import annotations

import tomllib
from dataclasses import replace

import pytest
from guarded import checkerboard, table_of, tile_of

from covering import some_of
from weft.cli import main
from weft.config.write_split_federation import lines_for, write_federation
from weft.data import SPLITS, Split, Table, load

BREAST = table_of("breast_cancer", 160)


def even_digits(n: int) -> Table:
    """The first digits, even against odd: which cells are where does not depend on classes."""
    table = load("digits").rows(slice(0, n))
    return replace(table, labels=table.labels % 2)


def hand_made(tiles) -> Split:
    return Split(tiles, "mean", "by hand", "classification", "breast_cancer")


def all_but_one() -> Split:
    """Four parties with all samples; the last one lacks a column."""
    ends = (30, 30, 30, 29)
    return hand_made(
        {f"p{k + 1}": (tile_of(BREAST, columns=slice(end)),) for k, end in enumerate(ends)}
    )


def with_a_few() -> Split:
    """A grid, and six samples that a tenth party has too: groups that are too small."""
    grid = SPLITS["grid"](BREAST, k=3, q=3)
    return hand_made({**grid.parties, "extra": (tile_of(BREAST, slice(0, 6), slice(0, 10)),)})


#: A cut, and what has to be allowed before it can be trained on.
CUTS = {
    "grid": (lambda: SPLITS["grid"](BREAST, k=3, q=3), 10, set()),
    "rows": (lambda: SPLITS["rows"](BREAST, parties=3), 10, set()),
    "columns": (lambda: SPLITS["columns"](BREAST, parties=3), 10, set()),
    "pairs of samples": (lambda: SPLITS["grid"](BREAST, k=3, q=2), 10, {"allow_pairs"}),
    "pairs of features": (lambda: SPLITS["grid"](BREAST, k=2, q=3), 10, {"allow_pairs"}),
    "two parties": (lambda: SPLITS["rows"](BREAST, parties=2), 10, {"allow_pairs"}),
    "one party": (lambda: SPLITS["rows"](BREAST, parties=1), 10, set()),
    "labels at first": (
        lambda: SPLITS["columns"](BREAST, parties=3, labels="first"),
        10,
        {"allow_lone_labels"},
    ),
    "labels at first of two": (
        lambda: SPLITS["columns"](BREAST, parties=2, labels="first"),
        10,
        {"allow_pairs", "allow_lone_labels"},
    ),
    "one column": (all_but_one, 10, {"allow_one_column"}),
    "checkerboard": (lambda: checkerboard(BREAST), 10, {"allow_crossed_cells"}),
    "small groups": (with_a_few, 1, set()),
    "overlapping": (lambda: SPLITS["overlapping"](BREAST, parties=4, seed=1), 1, {"allow_pairs"}),
    "quadrants": (
        lambda: SPLITS["quadrants"](even_digits(120), parties=5),
        10,
        {"allow_pairs", "allow_crossed_cells"},
    ),
    "dealt": (lambda: SPLITS["dealt"](BREAST, k=3, q=3), 10, set()),
}


def trained(folder, config: str, capsys) -> tuple[int, str]:
    """Exit code and errors of ``weft train`` on another config of a folder."""
    (folder / "config.toml").write_text(config, encoding="utf-8")
    capsys.readouterr()
    number = len(list(folder.glob("run*")))
    with pytest.raises(SystemExit) as stop:
        main(["train", str(folder / "config.toml"), "--out", str(folder / f"run{number}")])
    return int(stop.value.code or 0), " ".join(capsys.readouterr().err.split())


#: Cuts in which every holder of a sample has all columns of it.
ALL_COLUMNS = ("rows", "two parties", "one party")
#: Every line that is needed, none, and one who has all columns; others have the same.
SOME = ("rows", "labels at first of two", "one column", "small groups", "quadrants")


@pytest.mark.usefixtures("no_pictures")
@pytest.mark.parametrize("cut", some_of(CUTS, *SOME))
def test_what_is_written_is_enough_and_every_line_is_needed(cut, tmp_path, capsys):
    make, min_batch, allowed = CUTS[cut]
    split = make()
    section = tomllib.loads("\n".join(lines_for(split)))["privacy"]
    flags = {name for name, value in section.items() if name.startswith("allow_") and value}
    # Whether sums are as many as columns depends on how long a run is, not on the cut alone.
    foreign = {"allow_exposure"} & flags
    assert bool(foreign) == (cut not in ALL_COLUMNS)
    flags -= foreign
    assert flags == allowed
    assert section["min_batch"] == min_batch
    assert set(section) == {"min_batch", *flags, *foreign}
    write_federation(
        tmp_path, split, name="cut", suffix="npz", id_column="id", label_column="label"
    )
    config = (tmp_path / "config.toml").read_text(encoding="utf-8")
    config = config.replace("lambda = 1e-3", "lambda = 1e-1").replace("gap = 1e-2", "gap = 1e-1")
    assert "\n".join(lines_for(split)) in config
    code, words = trained(tmp_path, config, capsys)
    assert code == 0, words
    for flag in sorted(flags):
        line = f"{flag} = true\n"
        assert config.count(line) == 1
        code, words = trained(tmp_path, config.replace(line, ""), capsys)
        assert code == 2, f"{flag} was not needed"
        assert "refuses" in words
        assert f"agree on {flag} = true" in words
