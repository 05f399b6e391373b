"""The scenes there are, by name."""

from __future__ import annotations

import os
from typing import Any, cast

from weft.data.named_data_set_files import DataFolder, load_with
from weft_neural.named_scenes import SceneEntry
from weft_papers.hyfem.scenes import cifar10_and_eurosat, digits, herigraph, modelnet40
from weft_papers.hyfem.scenes.scene import Scene


def load_scene(name: str, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Scene:
    """One of `SCENES`; `weft_neural.named_scenes.load_scene` finds those of all plug-ins.

    Parameters
    ----------
    data_dir
        Directory with the original files; without it the environment variable WEFT_DATA names it.
    **options
        ``samples`` and ``test_samples``: at most so many, drawn by ``seed`` so that classes keep
        their shares; and what the scene takes besides.
    """
    loader, folder = SCENES[name].loader, DataFolder.of(name, data_dir)
    return cast(Scene, load_with(loader, folder, options, f"scene {name!r}"))


_MODELNET40 = "modelnet40/CLASS/{train,test}/ with views OBJECT_001.png to OBJECT_012.png"

SCENES: dict[str, SceneEntry] = {
    "digits": SceneEntry(
        "1,797 small digits in 4 quadrants; 6 parties with 3 quadrants of 5 classes, 2 common",
        "nothing: they come with scikit-learn",
        digits.digits,
    ),
    "mnist": SceneEntry(
        "MNIST in 4 quadrants; 6 parties with 3 quadrants of 5 classes, 2 quadrants common",
        "mnist/{train,t10k}-*-ubyte.gz",
        digits.mnist,
    ),
    "mfeat": SceneEntry(
        "Multiple Features in 6 views; 6 parties with 3 views of 5 classes, 1 view common",
        "mfeat/mfeat-*.csv.gz",
        digits.mfeat,
    ),
    "cifar10": SceneEntry(
        "CIFAR-10 in 12 blocks, quadrant by colour; 9 parties with 6 to 8 blocks of 5 classes",
        "cifar10/ with data_batch_1 to 5 and test_batch, as .png, .bin or Python batches",
        cifar10_and_eurosat.cifar10,
    ),
    "cifar10-quadrants": SceneEntry(
        "CIFAR-10 in 4 quadrants; 6 parties as in Table 4, 2 quadrants common",
        "cifar10/ with data_batch_1 to 5 and test_batch, as .png, .bin or Python batches",
        cifar10_and_eurosat.cifar10_quadrants,
    ),
    "eurosat": SceneEntry(
        "EuroSAT in 12 blocks, quadrant by colour; 9 parties with 6 to 8 blocks of 5 classes",
        "eurosat/ with a folder of .jpg images for each of the 10 classes",
        cifar10_and_eurosat.eurosat,
    ),
    "eurosat-quadrants": SceneEntry(
        "EuroSAT in 4 quadrants; 6 parties as in Table 4, 2 quadrants common",
        "eurosat/ with a folder of .jpg images for each of the 10 classes",
        cifar10_and_eurosat.eurosat_quadrants,
    ),
    "modelnet40-1": SceneEntry(
        "4 views of ModelNet40; 4 parties with 3 views of 20 of 40 classes",
        _MODELNET40,
        modelnet40.modelnet40_1,
    ),
    "modelnet40-2": SceneEntry(
        "12 views of ModelNet40; 8 parties with 6 views of 15 of 40 classes, 12 % at nobody",
        _MODELNET40,
        modelnet40.modelnet40_2,
    ),
    "modelnet40-common": SceneEntry(
        "4 views of ModelNet40; 6 parties as in Table 3, 2 views common",
        _MODELNET40,
        modelnet40.modelnet40_common,
    ),
    "modelnet40-2020": SceneEntry(
        "4 views of ModelNet40; 4 parties with 3 views of 30 of 40 classes, as in the 2020 text",
        _MODELNET40,
        modelnet40.modelnet40_2020,
    ),
    "herigraph": SceneEntry(
        "HeriGraph, posts with up to 4 feature blocks; 6 parties with 2 blocks of 6 of 9 classes",
        "herigraph/herigraph.npz, or herigraph/labels.csv and a CSV file for each block",
        herigraph.herigraph,
    ),
}
