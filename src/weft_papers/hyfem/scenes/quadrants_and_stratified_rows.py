"""Cutting samples: images into quadrants and colours, sets into parts."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import DataError

#: The order of the text: (top left, top right, bottom left, bottom right).
QUADRANTS = ("top_left", "top_right", "bottom_left", "bottom_right")
COLOURS = ("red", "green", "blue")
QUADRANT_COLOURS = tuple(f"{place}_{colour}" for place in QUADRANTS for colour in COLOURS)


def quadrants(images: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    """(n, channels, 2h, 2w) → four blocks of (n, channels, h, w)."""
    height, width = images.shape[2] // 2, images.shape[3] // 2
    if images.shape[2:] != (2 * height, 2 * width):
        raise DataError(
            f"images of {images.shape[2]} × {images.shape[3]} pixels have no quadrants of one size"
        )
    corners = [(row, column) for row in (0, height) for column in (0, width)]
    return {
        name: np.ascontiguousarray(images[:, :, row : row + height, column : column + width])
        for name, (row, column) in zip(QUADRANTS, corners, strict=True)
    }


def quadrants_by_colour(images: NDArray[np.uint8]) -> dict[str, NDArray[np.uint8]]:
    """(n, 3, 2h, 2w) → twelve blocks of (n, 1, h, w), the colours of a quadrant side by side."""
    return {
        f"{place}_{colour}": np.ascontiguousarray(block[:, [channel]])
        for place, block in quadrants(images).items()
        for channel, colour in enumerate(COLOURS)
    }


def thin(labels: Ints, samples: int | None, seed: int, what: str) -> Ints:
    """Rows of at most so many samples, drawn so that classes keep their shares; sorted.

    Parameters
    ----------
    samples
        At most so many, at least one of each class; None: all.
    what
        Name of the option, for the refusal of a number too small.
    """
    if samples is None or samples >= len(labels):
        return np.arange(len(labels))
    classes, counts = np.unique(labels, return_counts=True)
    if samples < len(classes):
        raise DataError(
            f"{what} is {samples}, but there are {len(classes)} classes; give one sample of each "
            "or more"
        )
    rng = np.random.default_rng([seed, 1])
    quota = _quota(counts, samples)
    drawn = [
        rng.permutation(np.flatnonzero(labels == label))[:count]
        for label, count in zip(classes, quota, strict=True)
    ]
    return np.sort(np.concatenate(drawn))


def part(labels: Ints, test_share: float, seed: int) -> tuple[Ints, Ints]:
    """Rows for training and for testing, that share of every class, drawn by the seed; sorted."""
    rng = np.random.default_rng([seed, 0])
    train, test = [], []
    for label in np.unique(labels):
        rows = rng.permutation(np.flatnonzero(labels == label))
        if len(rows) < 2:
            raise DataError(
                f"class {label} has {len(rows)} sample, which is too few to train and test on; "
                "give it two or more"
            )
        count = min(max(round(test_share * len(rows)), 1), len(rows) - 1)
        test.append(rows[:count])
        train.append(rows[count:])
    return np.sort(np.concatenate(train)), np.sort(np.concatenate(test))


def _quota(counts: Ints, total: int) -> Ints:
    """So many of each class: proportional, at least one, the largest remainders rounded up."""
    exact = total * counts / counts.sum()
    quota = np.maximum(np.floor(exact).astype(np.int64), 1)
    order = np.argsort(quota - exact, kind="stable")
    # Ones raised from zero may overshoot; the largest classes give way.
    while quota.sum() > total:
        quota[np.argmax(quota)] -= 1
    for label in order[: total - int(quota.sum())]:
        quota[label] += 1
    least: Ints = np.minimum(quota, counts)
    return least
