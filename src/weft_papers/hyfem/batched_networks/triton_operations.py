"""The operations by Triton's kernels, on a CUDA device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import torch

from weft_papers.hyfem.batched_networks import triton_kernels
from weft_papers.hyfem.batched_networks.network_operations_interface import Shape

#: Numbers that a pass over activations takes at once.
_CELLS = 8192


class Tile(NamedTuple):
    """How a kernel cuts its work.

    Attributes
    ----------
    rows, columns
        Of the product that one program computes.
    depth
        Of the sum, at once.
    warps, stages
        Threads by 32, and loads under way.
    """

    rows: int
    columns: int
    depth: int
    warps: int
    stages: int


def chosen_tile(kind: str, shape: Shape) -> Tile:
    """The one that was fastest on an H200 for 60 networks and 64 images, of those tried."""
    if kind == "weights":
        rows = min(128, shape.inputs)
        if rows < 128:
            return Tile(rows, min(128, shape.outputs), 64, 4, 4 if shape.outputs < 128 else 3)
        return Tile(rows, min(256, shape.outputs), 64, 8, 3)
    if kind == "forward":
        return Tile(128, min(128, shape.outputs), min(64, shape.inputs), 4, 3)
    if shape.inputs < 128:
        return Tile(128, shape.inputs, min(64, shape.outputs), 8, 4)
    return Tile(256, 128, 64, 8, 3)


class TritonOperations:
    """See `Operations`.

    Parameters
    ----------
    tile
        By kind of kernel (forward, input, weights) and shape.
    """

    def __init__(self, tile: Callable[[str, Shape], Tile] = chosen_tile) -> None:
        self._tile = tile

    def convolve(self, x: torch.Tensor, filters: torch.Tensor, shape: Shape) -> torch.Tensor:
        return self._convolved(x, filters, shape, measure=False)[0]

    def convolve_and_measure(
        self,
        x: torch.Tensor,
        filters: torch.Tensor,
        shape: Shape,
        running: tuple[torch.Tensor, torch.Tensor],
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        y, partial = self._convolved(x, filters, shape, measure=True)
        networks, images = x.shape[:2]
        mean, scale = (torch.empty_like(running[0]) for _ in range(2))
        at_once = min(64, shape.outputs)
        triton_kernels.finish_statistics[networks, shape.outputs // at_once](
            *(partial, partial.shape[1], images * shape.pixels, mean, scale, *running),
            CHANNELS=shape.outputs,
            AT_ONCE=at_once,
            PARTS=32,
        )
        return y, mean, scale

    def _convolved(
        self, x: torch.Tensor, filters: torch.Tensor, shape: Shape, *, measure: bool
    ) -> tuple[torch.Tensor, torch.Tensor]:
        networks, images = x.shape[:2]
        high, wide = shape.height // shape.stride, shape.width // shape.stride
        y = x.new_empty(networks, images, high, wide, shape.outputs)
        tile = self._tile("forward", shape)
        count = images * shape.pixels
        parts = -(-count // tile.rows)
        partial = y
        if measure:
            partial = x.new_empty(networks, parts, 2, shape.outputs, dtype=torch.float32)
        triton_kernels.convolve[parts * (shape.outputs // tile.columns), networks](
            *(x, filters, y, partial, count),
            **_sizes(shape),
            STATISTICS=measure,
            **_cut(tile),
        )
        return y, partial

    def normalise(
        self,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
        added: torch.Tensor | None,
        relu: bool,
    ) -> torch.Tensor:
        out = torch.empty_like(y)
        count, rows = _rows(y)
        triton_kernels.normalise[-(-count // rows), len(y)](
            *(y, out, y if added is None else added, *by, count),
            CHANNELS=y.shape[-1],
            ADD=added is not None,
            RELU=relu,
            ROWS=rows,
        )
        return out

    def back_sums(
        self,
        dout: torch.Tensor,
        out: torch.Tensor,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor],
        into: tuple[torch.Tensor, torch.Tensor],
    ) -> None:
        networks, channels = len(y), y.shape[-1]
        count, _ = _rows(y)
        at_once = min(64, channels)
        # Single images have few pixels: no more rows than the next power of two.
        few = min(_CELLS // at_once, 1 << (count - 1).bit_length())
        turns = min(4, -(-count // few))
        parts = -(-count // (few * turns))
        partial = y.new_empty(networks, parts, 2, channels, dtype=torch.float32)
        products, totals = into
        triton_kernels.normalise_back_sums[parts * (channels // at_once), networks](
            *(dout, out, y, *by, partial, count),
            CHANNELS=channels,
            AT_ONCE=at_once,
            ROWS=few,
            TURNS=turns,
        )
        triton_kernels.finish_sums[networks, channels // at_once](
            *(partial, parts, totals, products), CHANNELS=channels, AT_ONCE=at_once, PARTS=32
        )

    def back_through(
        self,
        dout: torch.Tensor,
        out: torch.Tensor,
        y: torch.Tensor,
        by: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
    ) -> torch.Tensor:
        count, rows = _rows(y)
        dy = torch.empty_like(y)
        triton_kernels.normalise_back[-(-count // rows), len(y)](
            *(dout, out, y, dy, *by, count), CHANNELS=y.shape[-1], ROWS=rows
        )
        return dy

    def weights_back(
        self, x: torch.Tensor, dy: torch.Tensor, into: torch.Tensor, shape: Shape
    ) -> None:
        networks, images = x.shape[:2]
        tile = self._tile("weights", shape)
        tiles = shape.inputs // tile.rows * (shape.outputs // tile.columns)
        triton_kernels.convolve_weights[shape.size**2 * tiles, networks](
            *(x, dy, into, images * shape.pixels), **_sizes(shape), **_cut(tile)
        )

    def input_back(
        self,
        dy: torch.Tensor,
        filters: torch.Tensor,
        shape: Shape,
        added: torch.Tensor | None = None,
        mask_of: torch.Tensor | None = None,
    ) -> torch.Tensor:
        networks, images = dy.shape[:2]
        dx = dy.new_empty(networks, images, shape.height, shape.width, shape.inputs)
        tile = self._tile("input", shape)
        count = images * shape.pixels
        parts = -(-count // tile.rows)
        more = dx if added is None else added
        triton_kernels.convolve_back[
            parts * (shape.inputs // tile.columns), networks, shape.stride**2
        ](
            *(dy, filters, dx, more, more if mask_of is None else mask_of, count),
            **_sizes(shape),
            ADD=added is not None,
            MASK=mask_of is not None,
            **_cut(tile),
        )
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
        count = weights.numel()
        triton_kernels.update[(-(-count // 4096),)](
            *(weights, centre, gradient, weights if copies is None else copies, rate, share, count),
            COPY=copies is not None,
            AT_ONCE=4096,
            num_warps=8,
        )


def _rows(y: torch.Tensor) -> tuple[int, int]:
    """Rows of a network's activations, and how many of them are taken at once."""
    return y[0, ..., 0].numel(), max(1, _CELLS // y.shape[-1])


def _sizes(shape: Shape) -> dict[str, Any]:
    return {
        "HEIGHT": shape.height,
        "WIDTH": shape.width,
        "INPUTS": shape.inputs,
        "OUTPUTS": shape.outputs,
        "SIZE": shape.size,
        "STRIDE": shape.stride,
    }


def _cut(tile: Tile) -> dict[str, int]:
    return {
        "ROWS": tile.rows,
        "COLUMNS": tile.columns,
        "DEPTH": tile.depth,
        "num_warps": tile.warps,
        "num_stages": tile.stages,
    }
