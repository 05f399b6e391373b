"""Scenes of colour images: CIFAR-10 in quadrants, or in quadrants and colours."""

from __future__ import annotations

from weft.data.files import DataFolder
from weft.neural.scenes.cifar10 import CLASSES, read_cifar10
from weft.neural.scenes.cutting import (
    QUADRANT_COLOURS,
    QUADRANTS,
    quadrants,
    quadrants_by_colour,
    thin,
)
from weft.neural.scenes.deals import colour_deal, table4
from weft.neural.scenes.scene import Ints, Scene
from weft.neural.scenes.sources import Bytes, subfolder

Images = tuple[Bytes, Ints]


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
