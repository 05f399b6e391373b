"""Batch and group normalisation of networks side by side, forward and backward.

Both subtract a mean and divide by a deviation: of a channel over the whole batch, with running
statistics for later, or of a group of channels over one image. An image by itself is to the
operations what a network is in the batch.
"""

from __future__ import annotations

import torch

from weft_neural.extractors.resnet import GROUPS
from weft_papers.hyfem.batched_networks.network_operations_interface import Operations
from weft_papers.hyfem.batched_networks.pytorch_operations import EPSILON

#: Means and 1/deviations.
Statistics = tuple[torch.Tensor, torch.Tensor]


def batch_back(
    ops: Operations,
    dout: torch.Tensor,
    out: torch.Tensor,
    y: torch.Tensor,
    by: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    into: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """The gradient by y, by ``by`` = mean, scale, slope; those by slope and offset go ``into``."""
    mean, scale, slope = by
    ops.back_sums(dout, out, y, (mean, scale), into)
    dslope, doffset = into
    gain = scale * slope
    share = gain / y[0, ..., 0].numel()
    return ops.back_through(dout, out, y, (mean, gain, share * doffset, share * scale * dslope))


def group_forward(
    ops: Operations,
    y: torch.Tensor,
    by: tuple[torch.Tensor, torch.Tensor],
    added: torch.Tensor | None,
    relu: bool,
) -> tuple[torch.Tensor, Statistics]:
    """Normalised, by ``by`` = slope, offset, plus what is added, through ReLU; its statistics."""
    images = y.shape[1]
    single = _single(y)
    mean, scale = _group_statistics(single)
    slope, offset = (_of_images(values, images) for values in by)
    more = None if added is None else _single(added)
    out = ops.normalise(single, (mean, scale, slope, offset), more, relu)
    return out.view_as(y), (mean, scale)


def group_back(
    ops: Operations,
    dout: torch.Tensor,
    out: torch.Tensor,
    y: torch.Tensor,
    by: tuple[torch.Tensor, torch.Tensor, torch.Tensor],
    into: tuple[torch.Tensor, torch.Tensor],
) -> torch.Tensor:
    """As `batch_back`, with the statistics that :func:`group_forward` gave."""
    mean, scale, slope = by
    networks, images = y.shape[:2]
    products, totals = torch.empty_like(mean), torch.empty_like(mean)
    dsingle, osingle, single = map(_single, (dout, out, y))
    ops.back_sums(dsingle, osingle, single, (mean, scale), (products, totals))
    for to, found in zip(into, (products, totals), strict=True):
        to.copy_(found.view(networks, images, -1).sum(dim=1))
    wide = _of_images(slope, images)
    share = scale / (single[0, ..., 0].numel() * (y.shape[-1] // GROUPS))
    constant = share * _group_sums(wide * totals)
    linear = share * scale * _group_sums(wide * products)
    dy = ops.back_through(dsingle, osingle, single, (mean, scale * wide, constant, linear))
    return dy.view_as(y)


def _single(y: torch.Tensor) -> torch.Tensor:
    """(networks · images, 1, height, width, channels)."""
    return y.flatten(0, 1)[:, None]


def _of_images(values: torch.Tensor, images: int) -> torch.Tensor:
    """What belongs to a network's channels, for each of its images."""
    return values[:, None].expand(-1, images, -1).reshape(-1, values.shape[1])


def _group_statistics(y: torch.Tensor) -> Statistics:
    pixels = y.flatten(1, 3)
    count = pixels.shape[1] * (y.shape[-1] // GROUPS)
    sums = pixels.sum(dim=1, dtype=torch.float32)
    squares = torch.linalg.vector_norm(pixels, dim=1, dtype=torch.float32).square()
    mean = _group_sums(sums) / count
    variance = (_group_sums(squares) / count - mean.square()).clamp(min=0)
    return mean, (variance + EPSILON).rsqrt()


def _group_sums(values: torch.Tensor) -> torch.Tensor:
    """(images, channels) → for each channel, the sum over its group."""
    parts = values.view(len(values), GROUPS, -1)
    return parts.sum(dim=2, keepdim=True).expand_as(parts).reshape(values.shape)
