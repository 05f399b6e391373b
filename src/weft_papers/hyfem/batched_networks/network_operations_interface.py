"""The convolutions of a residual network, by shape."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import torch


@dataclass(frozen=True)
class Shape:
    """A convolution that keeps the size of images, or halves it with a stride of 2.

    Attributes
    ----------
    height, width
        Of the images that it reads.
    size
        Of its filters: 1 or 3.
    """

    height: int
    width: int
    inputs: int
    outputs: int
    size: int
    stride: int

    @property
    def weights(self) -> int:
        """Of one network."""
        return self.size**2 * self.inputs * self.outputs

    @property
    def pixels(self) -> int:
        """Of an image that comes out."""
        return self.height // self.stride * (self.width // self.stride)

    @property
    def operations(self) -> int:
        """For one image: a product and a sum count as two."""
        return 2 * self.pixels * self.weights


class Operations(Protocol):
    """What networks of one shape compute side by side: (networks, images, height, width, channels).

    Weights are (networks, taps · inputs, outputs); what belongs to a channel is (networks,
    channels).
    """

    def convolve(self, x: torch.Tensor, filters: torch.Tensor, shape: Shape) -> torch.Tensor:
        """y = x * filters."""

    def convolve_and_measure(
        self,
        x: torch.Tensor,
        filters: torch.Tensor,
        shape: Shape,
        running: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """y = x * filters with the mean and 1/deviation of each channel; ``running`` follow."""

    def normalise(
        self,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        added: torch.Tensor | None,
        relu: bool,
    ) -> torch.Tensor:
        """(y − mean) · scale · slope + offset, plus what is added, through ReLU."""

    def back_sums(
        self,
        dout: torch.Tensor,
        out: torch.Tensor,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor],
        into: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        """Σ dz (y − mean) · scale and Σ dz go ``into``; dz is ``dout`` where ``out`` is above 0."""

    def back_through(
        self,
        dout: torch.Tensor,
        out: torch.Tensor,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        """gain · dz − constant − (y − mean) · linear; ``by`` = mean, gain, constant, linear."""

    def weights_back(
        self, x: torch.Tensor, dy: torch.Tensor, into: torch.Tensor, shape: Shape
    ) -> None:
        """The gradient by the filters."""

    def input_back(
        self,
        dy: torch.Tensor,
        filters: torch.Tensor,
        shape: Shape,
        added: torch.Tensor | None = None,
        mask_of: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """The gradient by x, plus what is added where ``mask_of`` is above 0."""

    def update(
        self,
        weights: torch.Tensor,
        centre: torch.Tensor,
        gradient: torch.Tensor,
        copies: torch.Tensor | None,
        rate: torch.Tensor,
        share: torch.Tensor,
    ) -> None:
        """w ← w + share (c − w) − rate · g, in place; ``copies`` follow."""
