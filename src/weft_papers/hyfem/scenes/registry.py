"""The scenes there are, by name."""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from weft.data.data_folder import DataFolder
from weft.errors import DataError
from weft_papers.hyfem.scenes import colour, digits, heritage, objects
from weft_papers.hyfem.scenes.scene import Scene


@dataclass(frozen=True)
class Entry:
    """A scene as the list of them shows it.

    Attributes
    ----------
    about
        One line on its data and its parties.
    needs
        Which files, where in the data directory.
    loader
        Makes it from a data folder.
    """

    about: str
    needs: str
    loader: Callable[..., Scene]

    @property
    def options(self) -> tuple[str, ...]:
        """What the loader takes besides the folder."""
        return tuple(o for o in inspect.signature(self.loader).parameters if o != "folder")


def load_scene(name: str, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Scene:
    """A scene by name.

    Parameters
    ----------
    name
        One of `SCENES`.
    data_dir
        Directory with the original files; without it the environment variable WEFT_DATA names it.
    **options
        ``samples`` and ``test_samples``: at most so many, drawn by ``seed`` so that classes keep
        their shares; and what the scene takes besides.
    """
    if name not in SCENES:
        near = get_close_matches(name, SCENES, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(SCENES)}."
        raise DataError(f"there is no scene {name!r}; {hint}")
    entry = SCENES[name]
    for option in options:
        if option not in entry.options:
            raise DataError(
                f"scene {name!r} has no option {option!r}; it takes {', '.join(entry.options)}."
            )
    return entry.loader(DataFolder.of(name, data_dir), **options)


_MODELNET40 = "modelnet40/CLASS/{train,test}/ with views OBJECT_001.png to OBJECT_012.png"

SCENES: dict[str, Entry] = {
    "digits": Entry(
        "1,797 small digits in 4 quadrants; 6 parties with 3 quadrants of 5 classes, 2 common",
        "nothing: they come with scikit-learn",
        digits.digits,
    ),
    "mnist": Entry(
        "MNIST in 4 quadrants; 6 parties with 3 quadrants of 5 classes, 2 quadrants common",
        "mnist/{train,t10k}-*-ubyte.gz",
        digits.mnist,
    ),
    "mfeat": Entry(
        "Multiple Features in 6 views; 6 parties with 3 views of 5 classes, 1 view common",
        "mfeat/mfeat-*.csv.gz",
        digits.mfeat,
    ),
    "cifar10": Entry(
        "CIFAR-10 in 12 blocks, quadrant by colour; 9 parties with 6 to 8 blocks of 5 classes",
        "cifar10/ with data_batch_1 to 5 and test_batch, as .png, .bin or Python batches",
        colour.cifar10,
    ),
    "cifar10-quadrants": Entry(
        "CIFAR-10 in 4 quadrants; 6 parties as in Table 4, 2 quadrants common",
        "cifar10/ with data_batch_1 to 5 and test_batch, as .png, .bin or Python batches",
        colour.cifar10_quadrants,
    ),
    "eurosat": Entry(
        "EuroSAT in 12 blocks, quadrant by colour; 9 parties with 6 to 8 blocks of 5 classes",
        "eurosat/ with a folder of .jpg images for each of the 10 classes",
        colour.eurosat,
    ),
    "eurosat-quadrants": Entry(
        "EuroSAT in 4 quadrants; 6 parties as in Table 4, 2 quadrants common",
        "eurosat/ with a folder of .jpg images for each of the 10 classes",
        colour.eurosat_quadrants,
    ),
    "modelnet40-1": Entry(
        "4 views of ModelNet40; 4 parties with 3 views of 20 of 40 classes",
        _MODELNET40,
        objects.modelnet40_1,
    ),
    "modelnet40-2": Entry(
        "12 views of ModelNet40; 8 parties with 6 views of 15 of 40 classes, 12 % at nobody",
        _MODELNET40,
        objects.modelnet40_2,
    ),
    "modelnet40-common": Entry(
        "4 views of ModelNet40; 6 parties as in Table 3, 2 views common",
        _MODELNET40,
        objects.modelnet40_common,
    ),
    "modelnet40-2020": Entry(
        "4 views of ModelNet40; 4 parties with 3 views of 30 of 40 classes, as in the 2020 text",
        _MODELNET40,
        objects.modelnet40_2020,
    ),
    "herigraph": Entry(
        "HeriGraph, posts with up to 4 feature blocks; 6 parties with 2 blocks of 6 of 9 classes",
        "herigraph/herigraph.npz, or herigraph/labels.csv and a CSV file for each block",
        heritage.herigraph,
    ),
}
