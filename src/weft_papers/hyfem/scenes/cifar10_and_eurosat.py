"""Scenes of colour images, CIFAR-10 and EuroSAT, in quadrants, or in quadrants and colours."""

from __future__ import annotations

from weft.array_types import Ints
from weft.data.named_data_set_files import DataFolder
from weft_papers.hyfem.scenes.blocks_and_classes_per_party import colour_deal, table4
from weft_papers.hyfem.scenes.cifar10_files import CLASSES, read_cifar10
from weft_papers.hyfem.scenes.image_files import Bytes, subfolder
from weft_papers.hyfem.scenes.image_folders import class_folders, list_images
from weft_papers.hyfem.scenes.quadrants_and_stratified_rows import (
    QUADRANT_COLOURS,
    QUADRANTS,
    part,
    quadrants,
    quadrants_by_colour,
    thin,
)
from weft_papers.hyfem.scenes.scene import Scene

Images = tuple[Bytes, Ints]

#: Its authors publish no test part.
_EUROSAT_TEST_SHARE = 0.2


def cifar10(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """CIFAR-10 in twelve blocks of 16 × 16 pixels, quadrant by colour, at nine parties."""
    train, test = _read_cifar10(folder)
    parts = _thinned(train, test, samples, test_samples, seed)
    return _by_colour("cifar10", *parts, CLASSES)


def cifar10_quadrants(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """CIFAR-10 in four blocks of 3 × 16 × 16, two of them at all six parties (Appendix C.1)."""
    train, test = _read_cifar10(folder)
    parts = _thinned(train, test, samples, test_samples, seed)
    return _by_quadrant("cifar10-quadrants", *parts, CLASSES)


def eurosat(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """EuroSAT in twelve blocks of 32 × 32 pixels, quadrant by colour, at nine parties."""
    train, test, classes = _read_eurosat(folder, samples, test_samples, seed)
    return _by_colour("eurosat", train, test, classes)


def eurosat_quadrants(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """EuroSAT in four blocks of 3 × 32 × 32, two of them at all six parties (Appendix C.1)."""
    train, test, classes = _read_eurosat(folder, samples, test_samples, seed)
    return _by_quadrant("eurosat-quadrants", train, test, classes)


def _read_eurosat(
    folder: DataFolder, samples: int | None, test_samples: int | None, seed: int
) -> tuple[Images, Images, tuple[str, ...]]:
    classes = class_folders(subfolder(folder, "eurosat", "a folder of each class"), 10)
    listed = list_images(classes)
    rows, test_rows = part(listed.labels, _EUROSAT_TEST_SHARE, seed)
    train, test = listed.rows(rows), listed.rows(test_rows)
    train = train.rows(thin(train.labels, samples, seed, "samples"))
    test = test.rows(thin(test.labels, test_samples, seed, "test_samples"))
    images, test_images = (one.images(0, "RGB", (64, 64)) for one in (train, test))
    names = tuple(path.name for path in classes)
    return (images, train.labels), (test_images, test.labels), names


def _read_cifar10(folder: DataFolder) -> tuple[Images, Images]:
    return read_cifar10(subfolder(folder, "cifar10", "the batches of CIFAR-10"))


def _thinned(
    train: Images, test: Images, samples: int | None, test_samples: int | None, seed: int
) -> tuple[Images, Images]:
    rows = thin(train[1], samples, seed, "samples")
    test_rows = thin(test[1], test_samples, seed, "test_samples")
    return (train[0][rows], train[1][rows]), (test[0][test_rows], test[1][test_rows])


def _by_colour(name: str, train: Images, test: Images, classes: tuple[str, ...]) -> Scene:
    return Scene(
        name,
        quadrants_by_colour(train[0]),
        train[1],
        quadrants_by_colour(test[0]),
        test[1],
        classes,
        colour_deal(QUADRANT_COLOURS),
    )


def _by_quadrant(name: str, train: Images, test: Images, classes: tuple[str, ...]) -> Scene:
    return Scene(
        name,
        quadrants(train[0]),
        train[1],
        quadrants(test[0]),
        test[1],
        classes,
        table4(QUADRANTS),
    )
