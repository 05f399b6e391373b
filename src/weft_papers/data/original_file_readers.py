"""Loaders of data sets from the files in which their authors publish them."""

from __future__ import annotations

import gzip
import lzma
from pathlib import Path
from typing import Literal

import numpy as np
import pandas as pd
import pyarrow.csv
from numpy.typing import NDArray

from weft.data.named_data_set_files import DataFolder
from weft.data.named_data_sets import pixel_names, row_ids
from weft.data.read_tiles import read_tile
from weft.data.tile import Table, Tile
from weft.errors import DataError

_MFEAT_VIEWS = ("fac", "fou", "kar", "mor", "pix", "zer")
_MUSHROOM_ATTRIBUTES = [
    "cap-shape",
    "cap-surface",
    "cap-color",
    "bruises",
    "odor",
    "gill-attachment",
    "gill-spacing",
    "gill-size",
    "gill-color",
    "stalk-shape",
    "stalk-root",
    "stalk-surface-above-ring",
    "stalk-surface-below-ring",
    "stalk-color-above-ring",
    "stalk-color-below-ring",
    "veil-type",
    "veil-color",
    "ring-number",
    "ring-type",
    "spore-print-color",
    "population",
    "habitat",
]


def mnist(folder: DataFolder, part: Literal["train", "test"] = "train") -> Table:
    """MNIST from its idx files, pixels divided by 255."""
    images, labels = mnist_images(folder, part)
    block = images.reshape(len(images), -1) / 255.0
    ids = row_ids(len(block))
    return Table(ids, pixel_names(28), block, labels, "classification", "mnist")


def mnist_images(
    folder: DataFolder, part: Literal["train", "test"]
) -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """MNIST as it is: images (n, 28, 28) of bytes, and their labels."""
    if part not in ("train", "test"):
        raise DataError(f"mnist has no part {part!r}; choose 'train' or 'test'.")
    stem = "train" if part == "train" else "t10k"
    images = _read_idx(folder.file(f"mnist/{stem}-images-idx3-ubyte.gz"))
    labels = _read_idx(folder.file(f"mnist/{stem}-labels-idx1-ubyte.gz"))
    return images, labels.astype(np.int64)


def covtype(folder: DataFolder) -> Table:
    """Covertype as a binary problem: type 2 (+1) against the rest (-1), scaled to [0, 1]."""
    with lzma.open(folder.file("covtype/covtype.csv.xz")) as stream:
        columns = pyarrow.csv.read_csv(stream)
    *features, label = columns.column_names
    block = np.empty((columns.num_rows, len(features)))
    for position, feature in enumerate(features):
        values = columns[feature].to_numpy().astype(np.float64)
        low, high = values.min(), values.max()
        block[:, position] = (values - low) / (high - low)
    labels = np.where(columns[label].to_numpy() == 2, 1, -1)
    names = np.array(features, dtype=object)
    return Table(row_ids(len(block)), names, block, labels, "classification", "covtype")


def mushroom(folder: DataFolder) -> Table:
    """Mushroom, complete rows only, one-hot with a constant column; poisonous is +1."""
    path = folder.file("mushroom/agaricus-lepiota.data.gz")
    frame = pd.read_csv(path, header=None, names=["class", *_MUSHROOM_ATTRIBUTES], dtype=str)
    complete = frame[(frame != "?").all(axis=1)]
    coded = pd.get_dummies(complete[_MUSHROOM_ATTRIBUTES], prefix_sep="=", dtype=np.float64)
    coded["constant"] = 1.0
    if coded.shape[1] != 99:
        raise DataError(
            f"{path}: one-hot coding gives {coded.shape[1]} columns instead of 99; use the "
            "original UCI file."
        )
    return Table(
        row_ids(len(coded)),
        np.array(coded.columns.tolist(), dtype=object),
        np.ascontiguousarray(coded.to_numpy()),
        np.where(complete["class"].to_numpy() == "p", 1, -1),
        "classification",
        "mushroom",
    )


def boston(folder: DataFolder) -> Table:
    """Boston housing; the first line of the file counts rows and columns and is skipped."""
    frame = pd.read_csv(folder.file("boston/boston_house_prices.csv"), skiprows=1)
    return Table(
        row_ids(len(frame)),
        np.array(frame.columns[:-1].tolist(), dtype=object),
        np.ascontiguousarray(frame.iloc[:, :-1].to_numpy(dtype=np.float64)),
        frame["MEDV"].to_numpy(dtype=np.float64),
        "regression",
        "boston",
    )


def mfeat(folder: DataFolder) -> Table:
    """Multiple Features: six views of the same digits side by side, named view_column."""
    views = {
        view: pd.read_csv(folder.file(f"mfeat/mfeat-{view}.csv.gz")).to_numpy(dtype=np.float64)
        for view in _MFEAT_VIEWS
    }
    labels = views["fac"][:, -1]
    for view, values in views.items():
        if not np.array_equal(values[:, -1], labels):
            raise DataError(
                f"mfeat: the labels of view {view!r} differ from those of 'fac'; use the original "
                "files, whose rows line up."
            )
    names = [f"{view}_{j}" for view, values in views.items() for j in range(values.shape[1] - 1)]
    block = np.ascontiguousarray(np.hstack([values[:, :-1] for values in views.values()]))
    features = np.array(names, dtype=object)
    ids = row_ids(len(block))
    return Table(ids, features, block, labels.astype(np.int64), "classification", "mfeat")


def fate_breast_tiles(data_dir: str | Path | None = None) -> dict[str, Tile]:
    """FATE's vertical example as its two parties hold it: "guest" (with labels) and "host".

    Both files call their columns x0, x1, …, though they are different measurements. A feature
    name means the same column at every party of Weft, so the party's name is put in front:
    guest_x0, host_x0, ….
    """
    return _fate_breast_tiles(DataFolder.of("fate_breast", data_dir))


def fate_breast(folder: DataFolder) -> Table:
    """FATE's vertical example joined on the id, in the order of the guest's rows."""
    tiles = _fate_breast_tiles(folder)
    guest, host = tiles["guest"], tiles["host"]
    place = {sample: row for row, sample in enumerate(host.ids.tolist())}
    joined = host.rows(np.array([place[sample] for sample in guest.ids.tolist()]))
    if guest.labels is None:
        raise DataError(f"{guest.source}: the labels are missing; use FATE's original file.")
    return Table(
        guest.ids,
        np.concatenate([guest.features, joined.features]),
        np.hstack([np.asarray(guest.block), np.asarray(joined.block)]),
        guest.labels,
        "classification",
        "fate_breast",
    )


def _fate_breast_tiles(folder: DataFolder) -> dict[str, Tile]:
    tiles = {}
    for party, label in (("guest", "y"), ("host", None)):
        path = folder.file(f"breast/breast_hetero_{party}.csv")
        tile = read_tile(path, label_column=label, party=party)
        features = np.array([f"{party}_{name}" for name in tile.features.tolist()], dtype=object)
        tiles[party] = Tile(tile.ids, features, tile.block, tile.labels, tile.source)
    return tiles


def _read_idx(path: Path) -> NDArray[np.uint8]:
    """An array of bytes in the idx format: magic number, big-endian sizes, values."""
    try:
        with gzip.open(path) as stream:
            raw = stream.read()
        dimensions = raw[3]
        shape = np.frombuffer(raw, dtype=">u4", count=dimensions, offset=4).astype(int)
        return np.frombuffer(raw, dtype=np.uint8, offset=4 + 4 * dimensions).reshape(shape)
    except (OSError, EOFError, IndexError, ValueError) as error:
        raise DataError(f"{path}: not a complete idx file ({error}); download it again.") from error
