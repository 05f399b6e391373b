"""Classifiers of all parties side by side: one hidden layer each, inputs filled up with zeros."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch.nn.functional import cross_entropy

from weft_papers.hyfem.batched_networks.network_operations_interface import Operations
from weft_papers.hyfem.batched_networks.residual import FEATURES


class Classifiers:
    """Perceptrons of parties on the features of their blocks.

    Parameters
    ----------
    blocks
        Of each party, the numbers of its blocks among all.
    networks
        Of each party, the numbers of its extractors among those that run together.
    hidden, classes
        Widths.

    Attributes
    ----------
    tensors
        (parties, inputs, hidden), (parties, 1, hidden), (parties, hidden, classes), (parties, 1,
        classes). Inputs that a party lacks have weight 0.
    """

    def __init__(
        self,
        blocks: Sequence[Sequence[int]],
        networks: Sequence[Sequence[int]],
        hidden: int,
        classes: int,
        device: torch.device,
    ) -> None:
        self.blocks = [list(own) for own in blocks]
        parties, widest = len(blocks), max(map(len, blocks))
        self.tensors = [
            torch.zeros(parties, widest * FEATURES, hidden, device=device),
            torch.zeros(parties, 1, hidden, device=device),
            torch.zeros(parties, hidden, classes, device=device),
            torch.zeros(parties, 1, classes, device=device),
        ]
        self._own = _slots(networks, widest, sum(map(len, networks)), device)
        count = 1 + max(max(own) for own in blocks)
        self._shared = _slots(blocks, widest, count, device)
        self._shared_count = count

    def set(self, party: int, first: torch.Tensor, second: torch.Tensor) -> None:
        """A party's layers as matching has them: (rows, columns), the bias in the last column."""
        inputs = first.shape[1] - 1
        self.tensors[0][party, :inputs] = first[:, :-1].T
        self.tensors[1][party, 0] = first[:, -1]
        self.tensors[2][party] = second[:, :-1].T
        self.tensors[3][party, 0] = second[:, -1]

    def layers(self, party: int) -> tuple[torch.Tensor, torch.Tensor]:
        """The inverse of :meth:`set`."""
        weights, bias, last, last_bias = (tensor[party] for tensor in self.tensors)
        inputs = len(self.blocks[party]) * FEATURES
        return (
            torch.cat([weights[:inputs].T, bias.T], dim=1),
            torch.cat([last.T, last_bias.T], dim=1),
        )

    def on_own(self, features: torch.Tensor) -> torch.Tensor:
        """(networks, samples, features) of the parties' own extractors → logits by party."""
        return self._logits(_gathered(features, self._own), self.tensors)

    def on_shared(self, features: torch.Tensor) -> torch.Tensor:
        """(blocks, samples, features) of the server's extractors → logits by party."""
        return self._logits(_gathered(features[: self._shared_count], self._shared), self.tensors)

    @staticmethod
    def _logits(inputs: torch.Tensor, tensors: Sequence[torch.Tensor]) -> torch.Tensor:
        weights, bias, last, last_bias = tensors
        return torch.relu(inputs @ weights + bias) @ last + last_bias

    def gradients(
        self, features: torch.Tensor, labels: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor, Sequence[torch.Tensor]]:
        """Losses by party, and gradients by features and by the tensors."""
        features = features.detach().requires_grad_()
        tensors = [tensor.detach().requires_grad_() for tensor in self.tensors]
        logits = self._logits(_gathered(features, self._own), tensors)
        flat = cross_entropy(logits.flatten(0, 1), labels.flatten(), reduction="none")
        losses = flat.view(labels.shape).mean(dim=1)
        first, *rest = torch.autograd.grad(losses.sum(), [features, *tensors])
        return losses.detach(), first, rest

    def update(
        self,
        ops: Operations,
        centres: Sequence[torch.Tensor],
        gradients: Sequence[torch.Tensor],
        rate: torch.Tensor,
        share: torch.Tensor,
    ) -> None:
        for tensor, centre, gradient in zip(self.tensors, centres, gradients, strict=True):
            ops.update(tensor, centre, gradient.contiguous(), None, rate, share)


def _slots(
    numbers: Sequence[Sequence[int]], widest: int, empty: int, device: torch.device
) -> torch.Tensor:
    """(parties, widest): which features, or ``empty``."""
    filled = [[*own, *[empty] * (widest - len(own))] for own in numbers]
    return torch.tensor(filled, device=device)


def _gathered(features: torch.Tensor, slots: torch.Tensor) -> torch.Tensor:
    """(parties, samples, slots · features), zeros where a party has no more blocks."""
    none = features.new_zeros(1, *features.shape[1:])
    chosen = torch.cat([features, none])[slots]
    return chosen.permute(0, 2, 1, 3).flatten(2)
