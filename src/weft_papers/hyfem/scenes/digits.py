"""Scenes of handwritten digits: MNIST and a small set in quadrants, Multiple Features in views."""

from __future__ import annotations

import numpy as np

from weft.data.named_data_set_files import DataFolder
from weft_papers.data.original_file_readers import mfeat as read_mfeat
from weft_papers.data.original_file_readers import mnist_images
from weft_papers.hyfem.scenes.blocks_and_classes_per_party import quadrant_deal, view_deal
from weft_papers.hyfem.scenes.quadrants_and_stratified_rows import QUADRANTS, part, quadrants, thin
from weft_papers.hyfem.scenes.scene import Scene
from weft_papers.hyfem.scenes.standardise_vectors import standardised

_DIGITS = tuple("0123456789")
#: Of sets whose authors publish no test part.
_TEST_SHARE = 0.25


def mnist(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """MNIST, each image in four quadrants of 14 × 14 pixels."""
    images, labels = mnist_images(folder, "train")
    test_images, test_labels = mnist_images(folder, "test")
    rows = thin(labels, samples, seed, "samples")
    test_rows = thin(test_labels, test_samples, seed, "test_samples")
    return Scene(
        "mnist",
        quadrants(images[rows, None]),
        labels[rows],
        quadrants(test_images[test_rows, None]),
        test_labels[test_rows],
        _DIGITS,
        quadrant_deal(QUADRANTS),
    )


def digits(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """scikit-learn's digits, each image in four quadrants of 4 × 4 pixels; a quarter for testing.

    They come with scikit-learn: the folder is not looked into.
    """
    from sklearn.datasets import load_digits

    found = load_digits()
    # Sixteen greys become bytes.
    images = np.round(found.images * (255 / 16)).astype(np.uint8)[:, None]
    labels = np.asarray(found.target, dtype=np.int64)
    rows, test_rows = part(labels, _TEST_SHARE, seed)
    rows = rows[thin(labels[rows], samples, seed, "samples")]
    test_rows = test_rows[thin(labels[test_rows], test_samples, seed, "test_samples")]
    return Scene(
        "digits",
        quadrants(images[rows]),
        labels[rows],
        quadrants(images[test_rows]),
        labels[test_rows],
        _DIGITS,
        quadrant_deal(QUADRANTS),
    )


def mfeat(
    folder: DataFolder,
    *,
    samples: int | None = None,
    test_samples: int | None = None,
    seed: int = 0,
) -> Scene:
    """Multiple Features, six views as vectors; a quarter of every class is for testing."""
    table = read_mfeat(folder)
    views = np.array([name.split("_")[0] for name in table.features.tolist()])
    values = np.asarray(table.block, dtype=np.float64)
    labels = np.asarray(table.labels, dtype=np.int64)
    rows, test_rows = part(labels, _TEST_SHARE, seed)
    rows = rows[thin(labels[rows], samples, seed, "samples")]
    test_rows = test_rows[thin(labels[test_rows], test_samples, seed, "test_samples")]
    blocks, test_blocks = {}, {}
    for view in dict.fromkeys(views.tolist()):
        columns = values[:, views == view]
        blocks[view], test_blocks[view] = standardised(columns[rows], columns[test_rows])
    return Scene(
        "mfeat",
        blocks,
        labels[rows],
        test_blocks,
        labels[test_rows],
        _DIGITS,
        # The common view is one of the weaker ones: what the others add can be seen.
        view_deal("zer", ("fac", "pix"), ("fou", "kar", "mor")),
    )
