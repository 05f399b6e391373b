"""Images in folders of classes, listed first, so that only those that are drawn are read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from weft.array_types import Ints
from weft.errors import DataError
from weft_papers.hyfem.scenes.image_files import Bytes, read_image

_SUFFIXES = {".png", ".jpg", ".jpeg"}
#: chair_0890_003.png, or chair_0890.obj.shaded_v003.png: the object, and its view from 1.
_VIEW = re.compile(r"(?P<object>.+)_v?(?P<view>\d{3})")


@dataclass(frozen=True)
class Listed:
    """Files of samples: so many lists of as many files as there are views, and the classes."""

    files: list[tuple[Path, ...]]
    labels: Ints

    def rows(self, chosen: Ints) -> Listed:
        return Listed([self.files[row] for row in chosen.tolist()], self.labels[chosen])

    def images(self, view: int, mode: str, size: tuple[int, int]) -> Bytes:
        """One view of all samples, (n, channels, height, width); other sizes are scaled."""
        width, height = size
        channels = 3 if mode == "RGB" else 1
        images = np.empty((len(self.files), channels, height, width), dtype=np.uint8)
        for row, files in enumerate(self.files):
            pixels = read_image(files[view], mode, size)
            images[row] = pixels.transpose(2, 0, 1) if mode == "RGB" else pixels
        return images


def class_folders(root: Path, count: int) -> list[Path]:
    """The folders of the classes, by name; there must be so many."""
    folders = sorted(path for path in root.iterdir() if path.is_dir())
    if len(folders) != count:
        raise DataError(
            f"{root} has {len(folders)} folders instead of {count}, one for each class; put the "
            "whole data set there."
        )
    return folders


def list_images(folders: Sequence[Path]) -> Listed:
    """All images of each folder, one view each."""
    files: list[tuple[Path, ...]] = []
    labels: list[int] = []
    for label, folder in enumerate(folders):
        found = [(path,) for path in _images(folder)]
        files += found
        labels += [label] * len(found)
    return Listed(files, np.array(labels, dtype=np.int64))


def list_views(folders: Sequence[Path], part: str, views: Sequence[int]) -> Listed:
    """All objects in the folder ``part`` of each class, with these views of each."""
    files: list[tuple[Path, ...]] = []
    labels: list[int] = []
    for label, folder in enumerate(folders):
        objects: dict[str, dict[int, Path]] = {}
        for path in _images(folder / part):
            found = _VIEW.fullmatch(path.stem)
            if found is None:
                raise DataError(
                    f"{path}: the name does not end in the number of a view, such as _001 or _v001"
                )
            objects.setdefault(found["object"], {})[int(found["view"])] = path
        for name in sorted(objects):
            lacking = [view for view in views if view not in objects[name]]
            if lacking:
                raise DataError(
                    f"{folder / part}: object {name} has no view {lacking[0]:03d}; put it there, "
                    "or take the object away"
                )
            files.append(tuple(objects[name][view] for view in views))
            labels.append(label)
    return Listed(files, np.array(labels, dtype=np.int64))


def _images(folder: Path) -> list[Path]:
    if not folder.is_dir():
        raise DataError(f"the folder {folder} does not exist; put the images of its class there.")
    found = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES)
    if not found:
        raise DataError(f"{folder} has no .png or .jpg images; put those of its class there.")
    return found
