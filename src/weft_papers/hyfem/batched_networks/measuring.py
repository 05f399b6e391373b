"""Accuracy and loss on all test samples, of many networks at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, pstdev

import torch
from torch.nn.functional import cross_entropy

from weft_papers.hyfem.batched_networks.image_blocks_on_device import ImageBlocks, as_input
from weft_papers.hyfem.batched_networks.residual import Networks

#: Images of blocks that are measured at once.
_AT_ONCE = 30_000


@dataclass(frozen=True)
class Measured:
    """Shares of test samples put into the right class, and mean losses, by model."""

    accuracies: list[float]
    losses: list[float]

    def only(self, some: slice) -> Measured:
        return Measured(self.accuracies[some], self.losses[some])

    @property
    def accuracy(self) -> float:
        return fmean(self.accuracies)

    @property
    def spread(self) -> float:
        return pstdev(self.accuracies)


@torch.no_grad()
def measure(
    pictures: ImageBlocks,
    networks: Networks,
    blocks: torch.Tensor,
    answer: Callable[[torch.Tensor], torch.Tensor],
) -> Measured:
    """Of models that read features of networks.

    Parameters
    ----------
    blocks
        Which block each network reads.
    answer
        (networks, images, features) → (models, images, classes).
    """
    right = loss = torch.zeros(1, dtype=torch.float64, device=blocks.device)
    count = len(pictures.test_labels)
    step = max(1, _AT_ONCE // networks.count)
    for start in range(0, count, step):
        labels = pictures.test_labels[start : start + step]
        images = as_input(pictures.test[blocks, start : start + step])
        logits = answer(networks.forward(images, learn=False))
        right = right + (logits.argmax(dim=2) == labels).sum(dim=1)
        each = cross_entropy(
            logits.flatten(0, 1), labels.repeat(len(logits)), reduction="none"
        ).view(len(logits), -1)
        loss = loss + each.sum(dim=1, dtype=torch.float64)
    return Measured((right / count).tolist(), (loss / count).tolist())
