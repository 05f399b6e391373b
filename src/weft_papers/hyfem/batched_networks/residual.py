"""Residual networks of one shape side by side: forward, backward, and their weights in few vectors.

As `weft_neural.extractors.resnet` makes them. A stem reads images that
are unfolded, so that it is a convolution of size 1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import nn
from torch.nn.functional import pad

from weft_neural.extractors.resnet import ResNet
from weft_papers.hyfem.batched_networks.network_operations_interface import Operations, Shape
from weft_papers.hyfem.batched_networks.normalising import batch_back, group_back, group_forward
from weft_papers.hyfem.batched_networks.pytorch_operations import EPSILON

#: Inputs of a stem are filled up to a multiple of this, which tensor cores want.
_FULL = 16
#: Numbers that come out of a network.
FEATURES = 512


@dataclass(frozen=True)
class Outline:
    """The convolutions of a residual network in the order of its modules.

    Attributes
    ----------
    stem
        Of unfolded images.
    size, stride
        Of the stem's filters before images are unfolded.
    blocks
        Of each basic block its two convolutions, and its shortcut's where there is one.
    grouped
        Whether channels are normalised in groups, image by image, instead of over the batch.
    """

    stem: Shape
    size: int
    stride: int
    blocks: tuple[tuple[Shape, ...], ...]
    grouped: bool

    @property
    def shapes(self) -> list[Shape]:
        return [self.stem, *(shape for block in self.blocks for shape in block)]

    @property
    def operations(self) -> int:
        """Of one image's way forward."""
        return sum(shape.operations for shape in self.shapes)


def outline(net: ResNet, image: tuple[int, int, int]) -> Outline:
    """Of a network for images of (channels, height, width)."""
    first = _convolutions(net.stem)[0]
    size, stride = first.kernel_size[0], first.stride[0]
    height, width = image[1] // stride, image[2] // stride
    filled = -(-(size**2 * image[0]) // _FULL) * _FULL
    if stride > 1:
        raise ValueError('networks run together have stem = "small"')
    stem = Shape(height, width, filled, first.out_channels, 1, 1)
    blocks = []
    for block in net.stages:
        shapes: list[Shape] = []
        at = height, width
        for number, layer in enumerate(_convolutions(block)):
            # The first and the shortcut read what comes in, the second what the first made.
            scale = shapes[0].stride if number == 1 else 1
            shapes.append(
                Shape(
                    *(at[0] // scale, at[1] // scale),
                    inputs=layer.in_channels,
                    outputs=layer.out_channels,
                    size=layer.kernel_size[0],
                    stride=layer.stride[0],
                )
            )
        height, width = at[0] // shapes[0].stride, at[1] // shapes[0].stride
        blocks.append(tuple(shapes))
    return Outline(stem, size, stride, tuple(blocks), isinstance(_norms(net)[0], nn.GroupNorm))


def unfolded(images: torch.Tensor, plan: Outline) -> torch.Tensor:
    """(…, height, width, channels) → the same with all taps of the stem at each pixel."""
    edge = plan.size // 2
    wide = pad(images, (0, 0, edge, edge, edge, edge))
    height, width = images.shape[-3:-1]
    taps = [
        wide[..., down : down + height, right : right + width, :]
        for down in range(plan.size)
        for right in range(plan.size)
    ]
    missing = plan.stem.inputs - plan.size**2 * images.shape[-1]
    empty = images.new_zeros(1).expand(*images.shape[:-1], missing)
    return torch.cat([*taps, empty], dim=-1)


class _Layer:
    """A convolution and the normalisation after it, of all networks."""

    def __init__(
        self,
        shape: Shape,
        filters: tuple[torch.Tensor, torch.Tensor],
        norm: tuple[torch.Tensor, ...],
        statistics: tuple[torch.Tensor, torch.Tensor],
        *,
        grouped: bool,
    ) -> None:
        self.shape, self._grouped = shape, grouped
        self.filters, self._dfilters = filters
        self._slope, self._offset, self._dslope, self._doffset = norm
        self._running = statistics
        self._saved: tuple[torch.Tensor, ...] = ()

    def forward(
        self,
        ops: Operations,
        x: torch.Tensor,
        *,
        learn: bool,
        added: torch.Tensor | None = None,
        relu: bool = True,
    ) -> torch.Tensor:
        if self._grouped:
            y = ops.convolve(x, self.filters, self.shape)
            out, statistics = group_forward(ops, y, (self._slope, self._offset), added, relu)
            self._saved = (x, y, *statistics) if learn else ()
            return out
        if learn:
            y, mean, scale = ops.convolve_and_measure(x, self.filters, self.shape, self._running)
            self._saved = x, y, mean, scale
        else:
            y = ops.convolve(x, self.filters, self.shape)
            mean, scale = self._running[0], (self._running[1] + EPSILON).rsqrt()
        return ops.normalise(y, (mean, scale, self._slope, self._offset), added, relu)

    def back(self, ops: Operations, dout: torch.Tensor, out: torch.Tensor) -> torch.Tensor:
        """Gradients by its weights; returns that by what its convolution gave."""
        x, y, mean, scale = self._saved
        self._saved = ()
        into = self._dslope, self._doffset
        through = group_back if self._grouped else batch_back
        dy = through(ops, dout, out, y, (mean, scale, self._slope), into)
        ops.weights_back(x, dy, self._dfilters, self.shape)
        return dy


class Networks:
    """Residual networks of one outline.

    Parameters
    ----------
    count
        How many.
    low
        What they compute with; weights are kept in float32.
    learns
        Whether gradients are needed.

    Attributes
    ----------
    filters, norms
        Weights; of each layer (networks, …), one layer after the other.
    statistics
        Running means and variances in the same way; groups have none.
    dfilters, dnorms
        Gradients by the weights.
    """

    def __init__(
        self,
        plan: Outline,
        count: int,
        ops: Operations,
        device: torch.device,
        *,
        low: torch.dtype,
        learns: bool = True,
    ) -> None:
        self.plan, self.count, self._ops, self._low = plan, count, ops, low
        sizes = [count * shape.weights for shape in plan.shapes]
        channels = [2 * count * shape.outputs for shape in plan.shapes]
        self.filters = torch.zeros(sum(sizes), device=device)
        self.norms = torch.zeros(sum(channels), device=device)
        self.statistics = torch.zeros_like(self.norms)
        self.copies = self.filters if low == torch.float32 else self.filters.to(low)
        self.dfilters = torch.zeros_like(self.copies) if learns else self.copies
        self.dnorms = torch.zeros_like(self.norms) if learns else self.norms
        layers = [
            self._layer(shape, slice_of(sizes, n), slice_of(channels, n))
            for n, shape in enumerate(plan.shapes)
        ]
        self._stem, rest = layers[0], iter(layers[1:])
        self._blocks = [[next(rest) for _ in block] for block in plan.blocks]
        self._taken: list[torch.Tensor] = []

    def _layer(self, shape: Shape, weights: slice, norm: slice) -> _Layer:
        form = self.count, shape.weights // shape.outputs, shape.outputs
        pair = 2, self.count, shape.outputs
        return _Layer(
            shape,
            (self.copies[weights].view(form), self.dfilters[weights].view(form)),
            (*self.norms[norm].view(pair), *self.dnorms[norm].view(pair)),
            tuple(self.statistics[norm].view(pair)),
            grouped=self.plan.grouped,
        )

    def refresh(self) -> None:
        """After weights were set: compute with them."""
        if self.copies is not self.filters:
            self.copies.copy_(self.filters)

    def forward(self, images: torch.Tensor, *, learn: bool) -> torch.Tensor:
        """(networks, images, height, width, channels) → (networks, images, features)."""
        ops = self._ops
        x = unfolded(images, self.plan).to(self._low).contiguous()
        out = self._stem.forward(ops, x, learn=learn)
        taken = [out]
        for first, second, *shortcut in self._blocks:
            middle = first.forward(ops, out, learn=learn)
            added = out
            for layer in shortcut:
                added = layer.forward(ops, out, learn=learn, relu=False)
            out = second.forward(ops, middle, learn=learn, added=added)
            taken += [middle, out]
        self._taken = taken if learn else []
        return out.mean(dim=(2, 3), dtype=torch.float32)

    def back(self, dfeatures: torch.Tensor) -> None:
        """Gradients by all weights."""
        ops, taken = self._ops, self._taken
        last = taken[-1]
        dout = (dfeatures / last[0, 0, ..., 0].numel()).to(self._low)
        dout = dout[:, :, None, None, :].expand_as(last).contiguous()
        for first, second, *shortcut in reversed(self._blocks):
            out, middle = taken.pop(), taken.pop()
            dy = second.back(ops, dout, out)
            dmiddle = ops.input_back(dy, second.filters, second.shape)
            added, mask_of = dout, out
            for layer in shortcut:
                added = ops.input_back(layer.back(ops, dout, out), layer.filters, layer.shape)
            dy = first.back(ops, dmiddle, middle)
            dout = ops.input_back(
                dy, first.filters, first.shape, added, None if shortcut else mask_of
            )
        self._stem.back(ops, dout, taken.pop())

    def load(self, modules: Sequence[ResNet]) -> None:
        """Take the weights of modules, one for each network."""
        filters, slopes, statistics = [], [], []
        for at, shape in enumerate(self.plan.shapes):
            parts = [_parts(module, at) for module in modules]
            filters += [_rows(part[0], shape).reshape(-1) for part in parts]
            for number in (1, 2):
                slopes += [part[number].reshape(-1) for part in parts]
            for number in (3, 4):
                statistics += [part[number].reshape(-1) for part in parts]
        self.filters.copy_(torch.cat(filters))
        self.norms.copy_(torch.cat(slopes))
        self.statistics.copy_(torch.cat(statistics))
        self.refresh()

    def vectors(self) -> tuple[list[torch.Tensor], ...]:
        """Views by layer, (networks, …): filters; slopes and offsets; statistics."""
        found: tuple[list[torch.Tensor], ...] = [], [], []
        at = after = 0
        for shape in self.plan.shapes:
            size, channels = self.count * shape.weights, self.count * shape.outputs
            found[0].append(self.filters[at : at + size].view(self.count, -1))
            for where in (after, after + channels):
                found[1].append(self.norms[where : where + channels].view(self.count, -1))
                found[2].append(self.statistics[where : where + channels].view(self.count, -1))
            at, after = at + size, after + 2 * channels
        return found

    def copy_of(self, other: Networks, numbers: torch.Tensor) -> None:
        """Become those networks of another, by number."""
        for mine, theirs in zip(self.vectors(), other.vectors(), strict=True):
            for to, source in zip(mine, theirs, strict=True):
                torch.index_select(source, 0, numbers, out=to)
        self.refresh()

    def mean_of(self, other: Networks, weights: torch.Tensor) -> None:
        """Become weighted means of another's networks; weights are (mine, others)."""
        for mine, theirs in zip(self.vectors(), other.vectors(), strict=True):
            for to, source in zip(mine, theirs, strict=True):
                torch.mm(weights, source, out=to)
        self.refresh()


def slice_of(sizes: Sequence[int], number: int) -> slice:
    """Where a part lies in a vector of parts."""
    start = sum(sizes[:number])
    return slice(start, start + sizes[number])


def _convolutions(module: nn.Module) -> list[nn.Conv2d]:
    return [layer for layer in module.modules() if isinstance(layer, nn.Conv2d)]


def _parts(net: ResNet, number: int) -> list[torch.Tensor]:
    """Of a convolution and the norm after it: filters, slope, offset, running mean, variance."""
    filters, norm = _convolutions(net)[number].weight, _norms(net)[number]
    running = torch.zeros_like(norm.bias), torch.ones_like(norm.bias)
    if isinstance(norm, nn.BatchNorm2d):
        assert norm.running_mean is not None
        assert norm.running_var is not None
        running = norm.running_mean, norm.running_var
    return [tensor.detach() for tensor in (filters, norm.weight, norm.bias, *running)]


def _norms(net: nn.Module) -> list[nn.BatchNorm2d | nn.GroupNorm]:
    return [m for m in net.modules() if isinstance(m, nn.BatchNorm2d | nn.GroupNorm)]


def _rows(filters: torch.Tensor, shape: Shape) -> torch.Tensor:
    """(outputs, inputs, height, width) → (taps · inputs, outputs), filled up."""
    rows = filters.permute(2, 3, 1, 0).reshape(-1, shape.outputs)
    missing = shape.weights // shape.outputs - len(rows)
    return torch.cat([rows, rows.new_zeros(missing, shape.outputs)])
