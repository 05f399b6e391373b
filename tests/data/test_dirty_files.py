"""Files as people have them: what is found out by looking, what is asked, and what is said."""

from __future__ import annotations

import gzip
import lzma
import zipfile
from datetime import date

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.feather
import pytest

from weft.config.strict_reading import checked
from weft.data import ReadingOptions, read_tile
from weft.data.findings_with_config_fixes import FoundProblems, merged_settings
from weft.data.read_tiles import examine
from weft.errors import ConfigError, DataError

GERMAN = "id;größe;gewicht\n007;1,75;1.234,5\n008;1,80;980,0\n"


def written(tmp_path, text, name="table.csv", encoding="utf-8"):
    path = tmp_path / name
    path.write_bytes(text.encode(encoding))
    return path


def said(examined, severity):
    return [one.sentence() for one in examined.findings if one.severity == severity]


# ── separator, decimal sign, encoding ─────────────────────────────────────────────────────────


@pytest.mark.parametrize("separator", [";", "\t", "|", ","])
def test_the_separator_is_found_and_named(tmp_path, separator):
    path = written(tmp_path, separator.join(["id", "x", "y"]) + "\n" + separator.join("a12"))
    examined = examine(path)
    assert examined.tile.features.tolist() == ["x", "y"]
    assert examined.tile.block.tolist() == [[1, 2]]
    assert bool(said(examined, "note")) == (separator != ",")
    assert all("separator" in sentence for sentence in said(examined, "note"))


def test_decimal_commas_and_grouped_thousands_are_found_and_named(tmp_path):
    examined = examine(written(tmp_path, GERMAN))
    assert examined.tile.block.tolist() == [[1.75, 1234.5], [1.8, 980]]
    assert examined.tile.ids.tolist() == ["007", "008"]
    notes = " ".join(said(examined, "note"))
    for word in ("separator = ';'", 'decimal = ","', "grouped by '.'"):
        assert word in notes


def test_a_file_with_decimal_commas_alone_is_read_in_one_pass(tmp_path):
    text = "id;x\n" + "".join(f"{n};{n},5\n" for n in range(500))
    examined = examine(written(tmp_path, text))
    assert np.array_equal(examined.tile.block[:, 0], np.arange(500) + 0.5)
    assert any('decimal = ","' in sentence for sentence in said(examined, "note"))


@pytest.mark.parametrize("encoding", ["cp1252", "utf-16", "utf-8-sig"])
def test_other_encodings_are_found(tmp_path, encoding):
    examined = examine(written(tmp_path, GERMAN, encoding=encoding))
    assert examined.tile.features.tolist() == ["größe", "gewicht"]
    named = any("Windows-1252" in sentence for sentence in said(examined, "note"))
    assert named == (encoding == "cp1252")


def test_what_the_owner_says_counts_and_is_not_repeated(tmp_path):
    path = written(tmp_path, "id;x\na;1,234\n", encoding="latin-1")
    options = ReadingOptions(separator=";", decimal=",", encoding="latin-1")
    examined = examine(path, options=options)
    assert examined.tile.block.tolist() == [[1.234]]
    assert not examined.findings
    grouped = examine(path, options=ReadingOptions(thousands=","))
    assert grouped.tile.block.tolist() == [[1234]]


def test_a_comma_that_may_mean_two_things_is_asked_about(tmp_path):
    path = written(tmp_path, "id;x\na;1,234\nb;5,678\n")
    (doubt,) = said(examine(path), "doubt")
    assert "'1,234', '5,678'" in doubt
    assert 'thousands = ","' in doubt
    with pytest.raises(DataError, match="decimal comma or thousands"):
        read_tile(path)


# ── packing, workbooks, other formats ─────────────────────────────────────────────────────────


def test_compressed_files_read_like_plain_ones(tmp_path):
    for suffix, pack in ((".gz", gzip.compress), (".xz", lzma.compress)):
        path = tmp_path / f"table.csv{suffix}"
        path.write_bytes(pack(GERMAN.encode()))
        assert read_tile(path).block[0].tolist() == [1.75, 1234.5]
    path = tmp_path / "table.csv.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("inside.csv", GERMAN)
    assert read_tile(path).block[0].tolist() == [1.75, 1234.5]
    with zipfile.ZipFile(path, "a") as archive:
        archive.writestr("second.csv", GERMAN)
    with pytest.raises(DataError, match="holds 2 files"):
        read_tile(path)


def test_feather_reads_like_parquet(tmp_path):
    path = tmp_path / "table.feather"
    pyarrow.feather.write_feather(
        pa.table({"id": ["a", "b"], "x": [1, None], "t": [True, False]}), path
    )
    tile = read_tile(path)
    assert np.array_equal(tile.block, [[1, 1], [np.nan, 0]], equal_nan=True)


def workbook(path, sheets):
    openpyxl = pytest.importorskip("openpyxl")
    book = openpyxl.Workbook()
    book.remove(book.active)
    for title, rows in sheets.items():
        sheet = book.create_sheet(title)
        for row in rows:
            sheet.append(row)
        for cell in sheet["A"][1:]:
            cell.number_format = "00000"
    book.save(path)


def test_a_workbook_reads_with_the_zeros_that_it_shows(tmp_path):
    path = tmp_path / "book.xlsx"
    rows = [
        ["id", "dose", "smoker", "day", None],
        [7, 0.5, True, date(2020, 5, 1)],
        [12, None, False],
    ]
    workbook(path, {"cells": rows, "empty": []})
    examined = examine(path, options=ReadingOptions(drop=["day"]))
    assert examined.tile.ids.tolist() == ["00007", "00012"]
    assert np.array_equal(examined.tile.block, [[0.5, 1], [np.nan, 0]], equal_nan=True)
    (dates,) = said(examine(path), "error")
    assert "'day' holds dates" in dates
    assert "'2020-05-01'" in dates


def test_a_workbook_with_two_filled_sheets_asks_which(tmp_path):
    path = tmp_path / "book.xlsx"
    workbook(path, {"one": [["id", "x"], ["a", 1]], "two": [["id", "x"], ["a", 2]]})
    with pytest.raises(DataError, match="'one', 'two'"):
        read_tile(path)
    assert read_tile(path, options=ReadingOptions(sheet="two")).block.tolist() == [[2]]
    with pytest.raises(DataError, match="no sheet 'three'"):
        read_tile(path, options=ReadingOptions(sheet="three"))


# ── cells ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cells", "values"),
    [
        (["1,234.5", "0.5"], [1234.5, 0.5]),
        (["1'234", "1’234.25"], [1234, 1234.25]),
        (["1 234", "1\u202f234 567"], None),
        (["1\u00a0234", "12"], [1234, 12]),
        (["12 %", "7.5%"], [0.12, 0.075]),
        (["12 %", "7.5"], None),
        (["Yes", "no"], [1, 0]),
        (["ja", "nein"], [1, 0]),
        (["TRUE", "false"], [1, 0]),
        (["?", "3"], [np.nan, 3]),
        (["−3", "+4"], [-3, 4]),
        (["1e3", ".5"], [1000, 0.5]),
        (["<5", "7"], None),
        (["1.2.3", "7"], None),
        (["1,23,456", "0.5"], None),
    ],
)
def test_cells_are_numbers_as_people_write_them(tmp_path, cells, values):
    rows = "".join(f"{row};{cell}\n" for row, cell in enumerate(cells))
    examined = examine(written(tmp_path, "id;x\n" + rows))
    if values is None:
        assert said(examined, "error")
    else:
        assert not said(examined, "error")
        assert np.allclose(examined.tile.block[:, 0], values, equal_nan=True)


def test_texts_that_stand_for_blanks_can_be_named(tmp_path):
    path = written(tmp_path, "id,x\na,-99\nb,3\n")
    assert read_tile(path).block.ravel().tolist() == [-99, 3]
    tile = read_tile(path, options=ReadingOptions(blanks=["-99"]))
    assert np.array_equal(tile.block.ravel(), [np.nan, 3], equal_nan=True)


def test_labels_with_decimal_commas_are_numbers_and_words_stay_words(tmp_path):
    path = written(tmp_path, "id;x;y;z\na;0,5;1,5;ja\nb;0,7;2,5;nein\n")
    assert read_tile(path, label_column="y", features=["x"]).labels.tolist() == [1.5, 2.5]
    assert read_tile(path, label_column="z", features=["x"]).labels.tolist() == ["ja", "nein"]


# ── what an owner can say ─────────────────────────────────────────────────────────────────────


def test_columns_are_renamed_and_dropped(tmp_path):
    path = written(tmp_path, "Nr,Alter,Ort,y\na,41,Bonn,1\n")
    options = ReadingOptions(rename={"Alter": "age", "Nr": "id"}, drop=["Ort"])
    tile = read_tile(path, label_column="y", options=options)
    assert tile.features.tolist() == ["age"]
    assert tile.ids.tolist() == ["a"]


def test_lost_zeros_and_prefixes_of_ids_are_mended(tmp_path):
    path = written(tmp_path, "id,x\nP-7,1\nP-12,2\nQ9,3\n")
    tile = read_tile(path, options=ReadingOptions(id_prefix="P-", id_width=4))
    assert tile.ids.tolist() == ["0007", "0012", "Q9"]


def test_labels_are_mapped_to_those_of_the_federation(tmp_path):
    path = written(tmp_path, "id,x,y\na,1,yes\nb,2,no\nc,3,\n")
    options = ReadingOptions(classes={"yes": "1", "no": "0"})
    tile = read_tile(path, label_column="y", options=options)
    assert tile.labels[:2].tolist() == [1, 0]
    assert tile.labelled.tolist() == [True, True, False]
    with pytest.raises(DataError, match="'no' are none that 'classes' names"):
        read_tile(path, label_column="y", options=ReadingOptions(classes={"yes": "1"}))


def test_which_of_several_rows_counts_can_be_said(tmp_path):
    path = written(tmp_path, "id,x\na,1\na,2\nb,3\n")
    for which, value in (("first", 1), ("last", 2)):
        tile = read_tile(path, options=ReadingOptions(duplicates=which))
        assert tile.block[tile.ids == "a", 0].tolist() == [value]


@pytest.mark.parametrize(
    "wrong", [{"thousands": "x"}, {"thousands": ",", "decimal": ","}, {"separator": "a"}]
)
def test_options_that_make_no_sense_are_refused(wrong):
    with pytest.raises(ConfigError):
        ReadingOptions(**wrong)


# ── all at once ───────────────────────────────────────────────────────────────────────────────


def test_all_problems_of_a_file_come_at_once_with_counts_and_mends(tmp_path):
    path = written(
        tmp_path,
        "id,town,day,x,y\n"
        "a,Bonn,2020-01-01,1,3\n"
        "b,Köln,2020-02-01,inf,4\n"
        "b,Bonn,2020-03-01,2,5\n"
        ",Ulm,2020-04-01,3,6\n"
        "c,Ulm,2020-05-01,4,6,7\n",
    )
    examined = examine(path, party="north")
    errors = said(examined, "error")
    for words in (
        ["'town' is not numeric", "'Bonn'", "4 of 4 cells", 'drop = ["town"]'],
        ["'day' holds dates", "2020-01-01"],
        ["'x' is infinite", "'b'"],
        ["'b' occurs more than once", 'duplicates = "first"'],
        ["id at position 4 is empty"],
        ["Expected 5 columns, got 6", "row 6"],
    ):
        (sentence,) = [one for one in errors if words[0] in one]
        assert all(word in sentence for word in words)
        assert sentence.startswith("party 'north', table.csv: ")
    assert len(errors) == 6
    mended = merged_settings(examined.findings)
    day = 'columns = { "day" = { "kind" = "date", "since" = "2000-01-01" } }'
    assert mended == {"[[party]] north": ['drop = ["town"]', day, 'duplicates = "first"']}
    with pytest.raises(FoundProblems, match="5 more problems") as caught:
        read_tile(path)
    assert "Bonn" not in caught.value.told


def test_what_was_found_mends_what_was_found(tmp_path):
    path = written(tmp_path, "id,town,x\na,Bonn,1\na,Bonn,2\n")
    settings = dict(one.setting for one in examine(path).findings)
    options = checked(ReadingOptions, settings, "the file")
    tile = read_tile(path, options=options)
    assert tile.block.tolist() == [[1]]
    assert tile.declared.cells["town"].texts == ("Bonn",)


def test_ids_that_a_program_made_fractions_of_are_whole_again(tmp_path):
    path = tmp_path / "table.parquet"
    pd.DataFrame({"id": [7.0, 12.0], "x": [1, 2]}).to_parquet(path)
    assert read_tile(path).ids.tolist() == ["7", "12"]
