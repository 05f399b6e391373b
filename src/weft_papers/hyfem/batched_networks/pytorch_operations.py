"""The operations in PyTorch alone, on any device: what the kernels are held against."""

from __future__ import annotations

import torch
from torch.nn.functional import conv2d
from torch.nn.grad import conv2d_input, conv2d_weight

from weft_papers.hyfem.batched_networks.network_operations_interface import Shape

#: As PyTorch's BatchNorm2d has them.
EPSILON = 1e-5
MOMENTUM = 0.1


class PytorchOperations:
    """See `Operations`; networks are groups of one convolution."""

    def convolve(self, x: torch.Tensor, filters: torch.Tensor, shape: Shape) -> torch.Tensor:
        y = conv2d(
            _images(x),
            _filters(filters, shape),
            stride=shape.stride,
            padding=shape.size // 2,
            groups=len(x),
        )
        return _networks(y, len(x))

    def convolve_and_measure(
        self,
        x: torch.Tensor,
        filters: torch.Tensor,
        shape: Shape,
        running: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y = self.convolve(x, filters, shape)
        variance, mean = torch.var_mean(y.float(), dim=(1, 2, 3), correction=0)
        count = y[0, ..., 0].numel()
        running[0].lerp_(mean, MOMENTUM)
        running[1].lerp_(variance * (count / (count - 1)), MOMENTUM)
        return y, mean, (variance + EPSILON).rsqrt()

    def normalise(
        self,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        added: torch.Tensor | None,
        relu: bool,
    ) -> torch.Tensor:
        mean, scale, slope, offset = map(_wide, by)
        out = (y.float() - mean) * (scale * slope) + offset
        if added is not None:
            out += added
        return (out.relu_() if relu else out).to(y.dtype)

    def back_sums(
        self,
        dout: torch.Tensor,
        out: torch.Tensor,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor],
        into: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        mean, scale = map(_wide, by)
        dz = dout.float() * (out > 0)
        products, totals = into
        products.copy_((dz * (y.float() - mean) * scale).sum(dim=(1, 2, 3)))
        totals.copy_(dz.sum(dim=(1, 2, 3)))

    def back_through(
        self,
        dout: torch.Tensor,
        out: torch.Tensor,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        mean, gain, constant, linear = map(_wide, by)
        dz = dout.float() * (out > 0)
        return (gain * dz - constant - (y.float() - mean) * linear).to(y.dtype)

    def weights_back(
        self, x: torch.Tensor, dy: torch.Tensor, into: torch.Tensor, shape: Shape
    ) -> None:
        found = conv2d_weight(  # type: ignore[no-untyped-call]
            _images(x),
            _filters(into, shape).shape,
            _images(dy),
            stride=shape.stride,
            padding=shape.size // 2,
            groups=len(x),
        )
        parts = found.view(len(x), shape.outputs, shape.inputs, shape.size**2)
        into.copy_(parts.permute(0, 3, 2, 1).reshape(into.shape))

    def input_back(
        self,
        dy: torch.Tensor,
        filters: torch.Tensor,
        shape: Shape,
        added: torch.Tensor | None = None,
        mask_of: torch.Tensor | None = None,
    ) -> torch.Tensor:
        networks, images = dy.shape[:2]
        found = conv2d_input(  # type: ignore[no-untyped-call]
            (images, networks * shape.inputs, shape.height, shape.width),
            _filters(filters, shape),
            _images(dy),
            stride=shape.stride,
            padding=shape.size // 2,
            groups=networks,
        )
        dx = _networks(found, networks)
        if added is not None:
            dx = dx + (added if mask_of is None else added * (mask_of > 0))
        return dx

    def update(
        self,
        weights: torch.Tensor,
        centre: torch.Tensor,
        gradient: torch.Tensor,
        copies: torch.Tensor | None,
        rate: torch.Tensor,
        share: torch.Tensor,
    ) -> None:
        weights.lerp_(centre, share)
        weights.sub_(gradient.to(weights.dtype) * rate)
        if copies is not None:
            copies.copy_(weights)


def _wide(values: torch.Tensor) -> torch.Tensor:
    return values[:, None, None, None, :]


def _images(x: torch.Tensor) -> torch.Tensor:
    """(networks, images, height, width, channels) as images with the channels of all networks."""
    networks, images, height, width, channels = x.shape
    return x.permute(1, 0, 4, 2, 3).reshape(images, networks * channels, height, width)


def _networks(y: torch.Tensor, networks: int) -> torch.Tensor:
    images, channels, height, width = y.shape
    parts = y.view(images, networks, channels // networks, height, width)
    return parts.permute(1, 0, 3, 4, 2).contiguous()


def _filters(filters: torch.Tensor, shape: Shape) -> torch.Tensor:
    size, inputs, outputs = shape.size, shape.inputs, shape.outputs
    parts = filters.view(len(filters), size, size, inputs, outputs)
    return parts.permute(0, 4, 3, 1, 2).reshape(len(filters) * outputs, inputs, size, size)
