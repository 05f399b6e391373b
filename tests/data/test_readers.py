"""Reading and writing tiles: round trips, and what each kind of bad file is told."""

from __future__ import annotations

import gzip
import lzma

import numpy as np
import pandas as pd
import pyarrow.parquet
import pytest
import scipy.sparse as sp
from hypothesis import HealthCheck, given
from hypothesis import strategies as st

from covering import examples
from weft.data import Tile, read_tables, read_tile, write_tile
from weft.data.reading_options import ReadingOptions
from weft.errors import DataError
from weft.storage.atomic_files import StorageError

PATIENTS = "id,age,label,dose\n007,41,yes,0.5\n 7 ,,no,2\nNA,3,,1e-3\n"


@pytest.fixture
def small():
    block = np.array([[1.5, -2.0], [np.nan, 1e-310], [1 / 3, 1e300]])
    return Tile.make(["007", "7", "NA"], ["age", "dose"], block, ["yes", None, "no"], "small")


def assert_same(read, written):
    assert read.ids.tolist() == written.ids.tolist()
    assert read.features.tolist() == written.features.tolist()
    dense = [t.block.toarray() if t.is_sparse else t.block for t in (read, written)]
    assert np.array_equal(dense[0], dense[1], equal_nan=True)
    assert read.labelled.tolist() == written.labelled.tolist()
    if written.labels is not None:
        assert read.labels[read.labelled].tolist() == written.labels[written.labelled].tolist()


def refusal(path, **options):
    with pytest.raises(DataError) as caught:
        read_tile(path, party="north", **options)
    message = str(caught.value)
    assert "north" in message
    assert path.name in message
    assert "\n" not in message
    return message


def test_csv_ids_are_text_as_written_and_blanks_are_missing(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(PATIENTS)
    tile = read_tile(path, label_column="label")
    assert tile.ids.tolist() == ["007", "7", "NA"]
    assert tile.features.tolist() == ["age", "dose"]
    assert np.array_equal(tile.block, [[41, 0.5], [np.nan, 2], [3, 1e-3]], equal_nan=True)
    assert tile.labels[:2].tolist() == ["yes", "no"]
    assert tile.labelled.tolist() == [True, True, False]
    assert tile.source == "patients.csv"


@pytest.mark.parametrize(("suffix", "opener"), [(".gz", gzip.open), (".xz", lzma.open)])
def test_compressed_csv_reads_like_plain_csv(tmp_path, suffix, opener):
    path = tmp_path / f"patients.csv{suffix}"
    with opener(path, "wt") as stream:
        stream.write(PATIENTS)
    assert read_tile(path, features=["dose"]).block.ravel().tolist() == [0.5, 2, 1e-3]


def test_byte_order_mark_blanks_in_names_and_windows_lines_are_harmless(tmp_path):
    path = tmp_path / "excel.csv"
    path.write_bytes("\ufeffid , age\r\n01, 4\r\n".encode())
    tile = read_tile(path)
    assert tile.ids.tolist() == ["01"]
    assert tile.features.tolist() == ["age"]
    assert tile.block.tolist() == [[4]]


def test_truth_values_become_zero_and_one(tmp_path):
    path = tmp_path / "flags.csv"
    path.write_text("id,smoker\na,true\nb,false\n")
    assert read_tile(path).block.ravel().tolist() == [1, 0]


def test_numeric_labels_are_numbers_and_a_blank_one_is_missing(tmp_path):
    path = tmp_path / "scores.csv"
    path.write_text("id,x,y\na,1,5\nb,2,\n")
    tile = read_tile(path, label_column="y")
    assert tile.labels.dtype == np.float64
    assert tile.labelled.tolist() == [True, False]


@pytest.mark.parametrize("suffix", [".csv", ".csv.gz", ".csv.xz", ".parquet", ".npz"])
def test_written_tile_reads_back_the_same(tmp_path, small, suffix):
    path = tmp_path / f"tile{suffix}"
    write_tile(small, path)
    label_column = None if suffix == ".npz" else "label"
    assert_same(read_tile(path, label_column=label_column), small)
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("suffix", [".csv", ".parquet", ".npz"])
def test_sparse_tile_without_labels_reads_back_the_same(tmp_path, suffix):
    block = sp.random_array((20, 9), density=0.2, rng=np.random.default_rng(0), format="csr")
    tile = Tile.make(range(20), range(9), block)
    path = tmp_path / f"tile{suffix}"
    write_tile(tile, path)
    read = read_tile(path)
    assert_same(read, tile)
    assert read.labels is None
    assert read.is_sparse == (suffix == ".npz")


@examples(40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    values=st.lists(st.floats(allow_infinity=False), min_size=1, max_size=8),
    suffix=st.sampled_from([".csv", ".parquet", ".npz"]),
)
def test_every_finite_number_survives_a_file(tmp_path, values, suffix):
    tile = Tile.make(range(len(values)), ["x"], np.array(values)[:, None])
    path = tmp_path / f"tile{suffix}"
    write_tile(tile, path)
    assert np.array_equal(read_tile(path).block, tile.block, equal_nan=True)


def test_parquet_whole_number_ids_become_text(tmp_path):
    path = tmp_path / "tile.parquet"
    pd.DataFrame({"id": [7, 12], "x": [1, 2], "t": [0.5, None]}).to_parquet(path)
    assert read_tile(path).ids.tolist() == ["7", "12"]


def test_parquet_fractional_ids_are_refused(tmp_path):
    path = tmp_path / "tile.parquet"
    pd.DataFrame({"id": [7.5, 12], "x": [1, 2]}).to_parquet(path)
    assert "text or whole numbers" in refusal(path)


def test_libsvm_names_rows_and_features_by_number(tmp_path):
    path = tmp_path / "part.libsvm"
    path.write_text("+1 1:0.5 3:2\n-1 2:1\n")
    tile = read_tile(path)
    assert tile.is_sparse
    assert tile.ids.tolist() == ["1", "2"]
    assert tile.features.tolist() == ["1", "2", "3"]
    assert tile.labels.tolist() == [1, -1]
    assert read_tile(path, features=["3"]).block.toarray().tolist() == [[2], [0]]


def test_libsvm_takes_ids_from_the_file_beside_it(tmp_path):
    path = tmp_path / "part.svm"
    path.write_text("1 1:1\n0 1:2\n")
    beside = tmp_path / "part.svm.ids"
    beside.write_text("p-1\np-2\n")
    assert read_tile(path).ids.tolist() == ["p-1", "p-2"]
    beside.write_text("p-1\n")
    assert "1 ids do not fit the 2 rows" in refusal(path)


@pytest.mark.parametrize(
    ("text", "options", "words"),
    [
        ("patient_id,x\na,1\n", {"id_column": "patientid"}, ["id column", "'patient_id'"]),
        ("id,outcome\na,1\n", {"label_column": "outcom"}, ["label column", "'outcome'"]),
        ("id,x\na,1\n", {"features": ["z"]}, ["feature column 'z'"]),
        ("id,x,y\na,1,1\n", {"features": ["x", "y"], "label_column": "y"}, ["'y' cannot be"]),
        ("id,x\na,1\na,2\n", {}, ["sample id 'a'", "more than once"]),
        ("id,x\na,1\n  ,2\n", {}, ["sample id at position 2", "empty"]),
        ("id,x,x\na,1,2\n", {}, ["column 'x'", "more than once"]),
        ("id,x,town\na,1,\nb,2,3\nc,1,Bonn\n", {}, ["'town'", "'Bonn'", "'c'", "drop ="]),
        ("id,day\na,2020-01-01\n", {}, ["'day'", "2020-01-01", "'a'"]),
        ("id,x\na,1\nb,inf\n", {}, ["column 'x'", "infinite", "sample 'b'"]),
        ("id,x\n", {}, ["no rows"]),
        ("id\na\n", {}, ["no feature columns"]),
        ("id,x\na,1\nb,2,3\n", {}, ["cannot be read", "Expected 2 columns"]),
        ("", {}, ["id column 'id'"]),
    ],
)
def test_bad_csv_is_refused_in_one_sentence(tmp_path, text, options, words):
    path = tmp_path / "bad.csv"
    path.write_text(text)
    message = refusal(path, **options)
    for word in words:
        assert word in message


def test_missing_file_unknown_suffix_and_broken_files_are_refused(tmp_path):
    assert "no such file" in refusal(tmp_path / "gone.csv")
    letter = tmp_path / "letter.docx"
    letter.write_bytes(b"PK")
    assert "suffix '.docx' is unknown" in refusal(letter)
    for name in ("broken.parquet", "broken.npz", "broken.csv.gz", "broken.csv.xz", "broken.svm"):
        path = tmp_path / name
        path.write_bytes(b"\x1f\x8b nothing like it\n")
        refusal(path)


def test_libsvm_with_index_zero_is_refused(tmp_path):
    path = tmp_path / "zero.svm"
    path.write_text("1 0:1 1:2\n")
    assert "indices from 1 on" in refusal(path)


def test_npz_without_ids_or_with_broken_indices_is_refused(tmp_path):
    path = tmp_path / "tile.npz"
    np.savez(path, X=np.ones((2, 2)), features=["a", "b"])
    assert "array 'ids' is missing" in refusal(path)
    pieces = {"data": [1.0], "indices": [9], "indptr": [0, 1], "shape": [1, 2]}
    np.savez(path, ids=["a"], features=["x", "y"], **pieces)
    assert "cannot be read" in refusal(path)


def test_writing_refuses_what_it_cannot_write(tmp_path, small):
    with pytest.raises(DataError, match="suffix"):
        write_tile(small, tmp_path / "tile.txt")
    with pytest.raises(StorageError, match="does not exist"):
        write_tile(small, tmp_path / "no" / "tile.csv")
    with pytest.raises(DataError, match="'age' has the name"):
        write_tile(small, tmp_path / "tile.csv", id_column="age")
    huge = Tile.make(range(60_000), range(1000), sp.csr_array((60_000, 1000)))
    with pytest.raises(DataError, match=r"\.npz"):
        write_tile(huge, tmp_path / "tile.csv")
    assert not list(tmp_path.iterdir())


def test_a_write_that_fails_leaves_the_old_file(tmp_path, small, monkeypatch):
    path = tmp_path / "tile.npz"
    write_tile(small, path)
    before = path.read_bytes()

    def full_disk(*_args, **_arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(np, "savez", full_disk)
    with pytest.raises(StorageError, match="No space left"):
        write_tile(small, path)
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir()] == ["tile.npz"]


def test_a_parquet_file_is_never_in_memory_as_a_whole(tmp_path, monkeypatch):
    random = np.random.default_rng(0)
    columns = {"id": [f"r{n}" for n in range(50)], "x0": [f"{n},5" for n in range(50)]}
    columns |= {f"x{k}": random.normal(size=50).round(3) for k in range(1, 9)}
    frame = pd.DataFrame({**columns, "y": np.arange(50) % 2})
    path = tmp_path / "table.parquet"
    frame.to_parquet(path, index=False)
    whole = read_tile(path, label_column="y")
    asked = []

    def counted(source, columns, before=pyarrow.parquet.read_table):
        asked.append(list(columns))
        return before(source, columns=columns)

    monkeypatch.setattr(pyarrow.parquet, "read_table", counted)
    monkeypatch.setattr(read_tables, "AT_ONCE", 3 * 8 * 50)
    tile = read_tile(path, label_column="y", options=ReadingOptions(scale={"x2": 2.0}))
    # Columns of texts are looked at first; then every column is read once, three at a time.
    assert asked[0] == ["x0"]
    assert [name for some in asked[1:] for name in some] == list(frame.columns)
    assert max(map(len, asked)) == 3
    expected = frame[[f"x{k}" for k in range(1, 9)]].to_numpy() * [1, 2, 1, 1, 1, 1, 1, 1]
    np.testing.assert_array_equal(tile.block[:, 1:], expected)
    np.testing.assert_array_equal(tile.block[:, 0], np.arange(50) + 0.5)
    np.testing.assert_array_equal(tile.labels, whole.labels)
    assert tile.ids.tolist() == whole.ids.tolist()


def test_cells_are_kept_in_single_precision_where_the_party_says_so(tmp_path):
    path = tmp_path / "patients.csv"
    path.write_text(PATIENTS)
    options = ReadingOptions(storage="float32", scale={"dose": 0.1})
    whole = read_tile(path, label_column="label", options=ReadingOptions(scale={"dose": 0.1}))
    tile = read_tile(path, label_column="label", options=options)
    assert (tile.block.dtype, whole.block.dtype) == (np.float32, np.float64)
    assert np.array_equal(tile.block, whole.block.astype(np.float32), equal_nan=True)
