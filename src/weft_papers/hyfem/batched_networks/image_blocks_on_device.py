"""Images in blocks, in a device's memory as bytes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from copy import copy
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft.array_types import Ints

#: By name, bytes.
Blocks = Mapping[str, NDArray[Any]]


class ImageBlocks:
    """Training and test images.

    Parameters
    ----------
    train, test
        By block (images, channels, height, width), all blocks of one shape, and the labels.
    classes
        How many.

    Attributes
    ----------
    names
        Of the blocks.
    shape
        (channels, height, width).
    """

    def __init__(
        self,
        train: tuple[Blocks, Ints],
        test: tuple[Blocks, Ints],
        classes: int,
        device: torch.device,
    ) -> None:
        self.names = tuple(train[0])
        self.classes = classes
        channels, height, width = next(iter(train[0].values())).shape[1:]
        self.shape = (channels, height, width)
        self._train = _stacked(train[0], device)
        self.test = _stacked(test[0], device)
        self.labels = torch.from_numpy(np.asarray(train[1], np.int64)).to(device)
        self.test_labels = torch.from_numpy(np.asarray(test[1], np.int64)).to(device)

    def only(self, names: Sequence[str]) -> ImageBlocks:
        """Some of the blocks."""
        numbers = [self.names.index(name) for name in names]
        found = copy(self)
        found.names = tuple(names)
        found._train, found.test = self._train[numbers], self.test[numbers]
        return found

    def some(self, blocks: torch.Tensor, samples: torch.Tensor) -> torch.Tensor:
        """(networks) blocks and (networks, images) samples → images as networks read them."""
        return as_input(self._train[blocks[:, None], samples])


def as_input(images: torch.Tensor) -> torch.Tensor:
    """Bytes as numbers from −1 to 1."""
    return images.float() / 127.5 - 1


def _stacked(blocks: Blocks, device: torch.device) -> torch.Tensor:
    """(blocks, images, height, width, channels)."""
    stacked = np.stack([block.transpose(0, 2, 3, 1) for block in blocks.values()])
    return torch.from_numpy(stacked).to(device)
