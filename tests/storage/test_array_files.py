"""Files of arrays are NumPy's, and a file that is not as it was written is refused."""

from __future__ import annotations

import tracemalloc
import zipfile

import numpy as np
import pytest

from weft.storage.atomic_files import StorageError, load_arrays, save_arrays

GRID = np.arange(24.0).reshape(4, 6)
ARRAYS = {
    "numbers": np.array([1, -2, 3]),
    "a.part of it": GRID,
    "by columns": np.asfortranarray(GRID),
    "every other": GRID[:, ::2],
    "ids": np.array(["anna", "béla", ""]),
    "flags": np.array([True, False]),
    "hashes": np.array([2**64 - 1], np.uint64),
    "bytes": np.frombuffer(b"weft", np.uint8),
    "none": np.zeros((0, 3), np.float32),
    "one": np.array(0.5),
    "größe": np.array([1.5]),
}


def assert_alike(found, arrays):
    assert list(found) == list(arrays)
    for name, array in arrays.items():
        assert found[name].dtype == array.dtype
        assert found[name].shape == array.shape
        assert found[name].tobytes() == array.tobytes()


@pytest.fixture
def path(tmp_path):
    save_arrays(tmp_path / "kept.npz", ARRAYS)
    return tmp_path / "kept.npz"


def test_what_is_written_is_read_by_weft_and_by_numpy(path):
    found = load_arrays(path)
    assert_alike(found, ARRAYS)
    # Products depend on the order in memory to the last bit.
    assert found["by columns"].flags.f_contiguous
    assert found["every other"].flags.c_contiguous
    found["numbers"][0] = 9
    with np.load(path, allow_pickle=False) as opened:
        assert_alike(dict(opened), ARRAYS)
    assert zipfile.ZipFile(path).testzip() is None


def test_what_numpy_wrote_is_read(tmp_path):
    np.savez(tmp_path / "old.npz", **ARRAYS)
    assert_alike(load_arrays(tmp_path / "old.npz"), ARRAYS)


def test_no_arrays_are_a_file_too(tmp_path):
    save_arrays(tmp_path / "empty.npz", {})
    assert load_arrays(tmp_path / "empty.npz") == {}
    assert zipfile.ZipFile(tmp_path / "empty.npz").namelist() == []


def test_objects_are_neither_written_nor_read(tmp_path):
    names = np.array(["anna"], object)
    with pytest.raises(ValueError, match="objects are not written"):
        save_arrays(tmp_path / "names.npz", {"names": names})
    assert list(tmp_path.iterdir()) == []
    np.savez(tmp_path / "names.npz", names=names)
    with pytest.raises(StorageError, match="damaged or of another kind"):
        load_arrays(tmp_path / "names.npz")


def test_a_file_that_ends_early_or_late_is_refused(path):
    whole = path.read_bytes()
    for end in range(0, len(whole), 7):
        path.write_bytes(whole[:end])
        with pytest.raises(StorageError, match="damaged or of another kind"):
            load_arrays(path)
    path.write_bytes(whole + b"\0")
    with pytest.raises(StorageError, match="damaged or of another kind"):
        load_arrays(path)


@pytest.mark.parametrize("writer", ["weft", "numpy"])
def test_whichever_byte_is_changed_nothing_else_is_read(tmp_path, writer):
    path = tmp_path / "kept.npz"
    arrays = {name: ARRAYS[name] for name in ("numbers", "ids")}
    if writer == "weft":
        save_arrays(path, arrays)
    else:
        np.savez(path, **arrays)
    whole = path.read_bytes()
    for place in range(len(whole)):
        changed = bytearray(whole)
        changed[place] ^= 0x41
        path.write_bytes(changed)
        try:
            found = load_arrays(path)
        except StorageError:
            continue
        assert_alike(found, arrays)


def test_arrays_packed_tighter_are_refused(tmp_path):
    np.savez_compressed(tmp_path / "packed.npz", **ARRAYS)
    with pytest.raises(StorageError, match="damaged or of another kind"):
        load_arrays(tmp_path / "packed.npz")


@pytest.mark.parametrize(
    "head",
    [
        "{'descr': '<f8', 'fortran_order': False, 'shape': (-1,)}",
        "{'descr': '<f8', 'fortran_order': False, 'shape': (True,)}",
        "{'descr': '<08', 'fortran_order': False, 'shape': (1,)}",
        "{'descr': ('<f8',), 'fortran_order': False, 'shape': (1,)}",
        "{1: 2, 'descr': '<f8', 'fortran_order': False, 'shape': (1,)}",
        "{[]: 1}",
        "{'descr': '''",
        "(" * 3000,
        "-" * 9000 + "1",
    ],
    ids=["shape", "flag", "type", "tuple", "keys", "list", "open", "deep", "deeper"],
)
def test_made_up_words_before_an_array_are_refused(tmp_path, head):
    content = b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head.encode() + bytes(8)
    with zipfile.ZipFile(tmp_path / "made.npz", "w") as file:
        file.writestr("a.npy", content)
    with pytest.raises(StorageError, match="damaged or of another kind"):
        load_arrays(tmp_path / "made.npz")


@pytest.mark.parametrize("order", ["C", "F"])
def test_arrays_are_written_without_a_copy(tmp_path, order):
    array = np.ones((1000, 1000), order=order)
    tracemalloc.start()
    try:
        save_arrays(tmp_path / "large.npz", {"large": array})
        assert tracemalloc.get_traced_memory()[1] < array.nbytes / 10
    finally:
        tracemalloc.stop()
