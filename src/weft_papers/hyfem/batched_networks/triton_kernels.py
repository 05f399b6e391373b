"""Triton's kernels for residual networks of one shape, many of them side by side.

Activations lie as (networks, images, height, width, channels), weights as (networks, taps,
inputs, outputs), both in bfloat16; sums are in float32. Sums that normalising needs are taken while
a convolution still has its numbers at hand, and gradients are added where they are made.
"""

# Triton reads these functions' source; their arguments are pointers, numbers and its constants.
# mypy: ignore-errors
# ruff: noqa: SIM108

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def convolve(
    x,
    weights,
    y,
    partial,
    count,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    STATISTICS: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """y = x * weights; if wished, sums and sums of squares of y by part of its rows."""
    high: tl.constexpr = HEIGHT // STRIDE
    wide: tl.constexpr = WIDTH // STRIDE
    across: tl.constexpr = OUTPUTS // COLUMNS
    deep: tl.constexpr = INPUTS // DEPTH
    part = tl.program_id(0) // across
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    network = tl.program_id(1).to(tl.int64)
    row = part * ROWS + tl.arange(0, ROWS)
    there = row < count
    image = row // (high * wide)
    top = row % (high * wide) // wide * STRIDE - SIZE // 2
    left = row % wide * STRIDE - SIZE // 2
    inner = tl.arange(0, DEPTH)
    x += network * (count * STRIDE * STRIDE) * INPUTS
    weights += network * (SIZE * SIZE * INPUTS * OUTPUTS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for step in range(SIZE * SIZE * deep):
        tap = step // deep
        h = top + tap // SIZE
        w = left + tap % SIZE
        inside = there & (h >= 0) & (h < HEIGHT) & (w >= 0) & (w < WIDTH)
        place = ((image * HEIGHT + h) * WIDTH + w) * INPUTS + step % deep * DEPTH
        a = tl.load(x + place[:, None] + inner[None, :], mask=inside[:, None], other=0.0)
        at = step * DEPTH + inner
        b = tl.load(weights + at[:, None] * OUTPUTS + column[None, :])
        sums = tl.dot(a, b, sums)
    y += network * count * OUTPUTS
    tl.store(
        y + row[:, None] * OUTPUTS + column[None, :],
        sums.to(y.dtype.element_ty),
        mask=there[:, None],
    )
    if STATISTICS:
        parts = tl.num_programs(0) // across
        partial += (network * parts + part) * (2 * OUTPUTS) + column
        tl.store(partial, tl.sum(sums, 0))
        tl.store(partial + OUTPUTS, tl.sum(sums * sums, 0))


@triton.jit
def convolve_back(
    dy,
    weights,
    dx,
    added,
    mask_of,
    count,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    ADD: tl.constexpr,
    MASK: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """The gradient by x; ``added`` (where ``mask_of`` is above 0) is added to it.

    With a stride of 2, pixels are taken by the parity of their place: each parity meets taps of
    its own.
    """
    high: tl.constexpr = HEIGHT // STRIDE
    wide: tl.constexpr = WIDTH // STRIDE
    across: tl.constexpr = INPUTS // COLUMNS
    deep: tl.constexpr = OUTPUTS // DEPTH
    part = tl.program_id(0) // across
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    network = tl.program_id(1).to(tl.int64)
    # ``count`` rows of dy: as many pixels of x of each parity.
    row = part * ROWS + tl.arange(0, ROWS)
    there = row < count
    image = row // (high * wide)
    h0 = row % (high * wide) // wide
    w0 = row % wide
    inner = tl.arange(0, DEPTH)
    dy += network * count * OUTPUTS
    weights += network * (SIZE * SIZE * INPUTS * OUTPUTS)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    if STRIDE == 1:
        below = 0
        right = 0
        taps = SIZE * SIZE
    else:
        below = tl.program_id(2) // 2
        right = tl.program_id(2) % 2
        if SIZE == 1:
            taps = (1 - below) * (1 - right)
        else:
            taps = (1 + below) * (1 + right)
    for step in range(taps * deep):
        tap = step // deep
        if STRIDE == 1:
            down = tap // SIZE
            over = tap % SIZE
            h = h0 + SIZE // 2 - down
            w = w0 + SIZE // 2 - over
        elif SIZE == 1:
            down = 0
            over = 0
            h = h0
            w = w0
        else:
            # Even places meet the middle tap, odd ones the first and the last.
            i = tap // (1 + right)
            j = tap % (1 + right)
            down = tl.where(below == 0, 1, 2 * i)
            over = tl.where(right == 0, 1, 2 * j)
            h = h0 + below * (1 - i)
            w = w0 + right * (1 - j)
        inside = there & (h >= 0) & (h < high) & (w >= 0) & (w < wide)
        outer = step % deep * DEPTH + inner
        place = ((image * high + h) * wide + w) * OUTPUTS
        a = tl.load(dy + place[:, None] + outer[None, :], mask=inside[:, None], other=0.0)
        at = (down * SIZE + over) * INPUTS + column
        b = tl.load(weights + at[:, None] * OUTPUTS + outer[None, :])
        sums = tl.dot(a, tl.trans(b), sums)
    pixel = (image * HEIGHT + h0 * STRIDE + below) * WIDTH + w0 * STRIDE + right
    at = network * (count * STRIDE * STRIDE) * INPUTS + pixel[:, None] * INPUTS + column[None, :]
    if ADD:
        more = tl.load(added + at, mask=there[:, None], other=0.0).to(tl.float32)
        if MASK:
            out = tl.load(mask_of + at, mask=there[:, None], other=0.0)
            more = tl.where(out > 0, more, 0.0)
        sums += more
    tl.store(dx + at, sums.to(dx.dtype.element_ty), mask=there[:, None])


@triton.jit
def convolve_weights(
    x,
    dy,
    dw,
    count,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    INPUTS: tl.constexpr,
    OUTPUTS: tl.constexpr,
    SIZE: tl.constexpr,
    STRIDE: tl.constexpr,
    ROWS: tl.constexpr,
    COLUMNS: tl.constexpr,
    DEPTH: tl.constexpr,
):
    """The gradient by the weights: for one tap, some inputs and some outputs over all rows."""
    high: tl.constexpr = HEIGHT // STRIDE
    wide: tl.constexpr = WIDTH // STRIDE
    across: tl.constexpr = OUTPUTS // COLUMNS
    deep: tl.constexpr = INPUTS // ROWS
    column = tl.program_id(0) % across * COLUMNS + tl.arange(0, COLUMNS)
    rest = tl.program_id(0) // across
    channel = rest % deep * ROWS + tl.arange(0, ROWS)
    tap = rest // deep
    network = tl.program_id(1).to(tl.int64)
    x += network * (count * STRIDE * STRIDE) * INPUTS
    dy += network * count * OUTPUTS
    inner = tl.arange(0, DEPTH)
    sums = tl.zeros((ROWS, COLUMNS), tl.float32)
    for start in range(0, count, DEPTH):
        row = start + inner
        there = row < count
        image = row // (high * wide)
        h = row % (high * wide) // wide * STRIDE - SIZE // 2 + tap // SIZE
        w = row % wide * STRIDE - SIZE // 2 + tap % SIZE
        inside = there & (h >= 0) & (h < HEIGHT) & (w >= 0) & (w < WIDTH)
        place = ((image * HEIGHT + h) * WIDTH + w) * INPUTS
        a = tl.load(x + place[:, None] + channel[None, :], mask=inside[:, None], other=0.0)
        b = tl.load(dy + row[:, None] * OUTPUTS + column[None, :], mask=there[:, None], other=0.0)
        sums = tl.dot(tl.trans(a), b, sums)
    at = (network * (SIZE * SIZE) + tap) * INPUTS + channel
    tl.store(dw + at[:, None] * OUTPUTS + column[None, :], sums.to(dw.dtype.element_ty))


@triton.jit
def finish_statistics(
    partial,
    parts,
    count,
    mean,
    scale,
    running_mean,
    running_variance,
    CHANNELS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Mean and 1/deviation from sums by part; running statistics as PyTorch keeps them."""
    network = tl.program_id(0)
    channel = tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    total = tl.zeros((AT_ONCE,), tl.float32)
    squares = tl.zeros((AT_ONCE,), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        at = partial + ((network * parts + part) * (2 * CHANNELS))[:, None] + channel[None, :]
        known = (part < parts)[:, None]
        total += tl.sum(tl.load(at, mask=known, other=0.0), 0)
        squares += tl.sum(tl.load(at + CHANNELS, mask=known, other=0.0), 0)
    middle = total / count
    variance = tl.maximum(squares / count - middle * middle, 0.0)
    at = network * CHANNELS + channel
    tl.store(mean + at, middle)
    tl.store(scale + at, 1 / tl.sqrt(variance + 1e-5))
    before = tl.load(running_mean + at)
    tl.store(running_mean + at, 0.9 * before + 0.1 * middle)
    before = tl.load(running_variance + at)
    tl.store(running_variance + at, 0.9 * before + 0.1 * variance * (count / (count - 1.0)))


@triton.jit
def normalise(
    y,
    out,
    added,
    mean,
    scale,
    slope,
    offset,
    count,
    CHANNELS: tl.constexpr,
    ADD: tl.constexpr,
    RELU: tl.constexpr,
    ROWS: tl.constexpr,
):
    """(y − mean) · scale · slope + offset, added to something, through ReLU."""
    network = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = (row < count)[:, None]
    channel = tl.arange(0, CHANNELS)
    at = network * CHANNELS + channel
    factor = tl.load(scale + at) * tl.load(slope + at)
    shift = tl.load(offset + at) - tl.load(mean + at) * factor
    cells = network * count * CHANNELS + row[:, None] * CHANNELS + channel[None, :]
    value = tl.load(y + cells, mask=there, other=0.0).to(tl.float32)
    value = value * factor[None, :] + shift[None, :]
    if ADD:
        value += tl.load(added + cells, mask=there, other=0.0).to(tl.float32)
    if RELU:
        value = tl.maximum(value, 0.0)
    tl.store(out + cells, value.to(out.dtype.element_ty), mask=there)


@triton.jit
def normalise_back_sums(
    dout,
    out,
    y,
    mean,
    scale,
    partial,
    count,
    CHANNELS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    ROWS: tl.constexpr,
    TURNS: tl.constexpr,
):
    """Of the gradient dz behind ReLU, by part of the rows: Σ dz, and Σ dz · normalised y."""
    network = tl.program_id(1).to(tl.int64)
    across: tl.constexpr = CHANNELS // AT_ONCE
    part = tl.program_id(0) // across
    channel = tl.program_id(0) % across * AT_ONCE + tl.arange(0, AT_ONCE)
    at = network * CHANNELS + channel
    middle = tl.load(mean + at)[None, :]
    factor = tl.load(scale + at)[None, :]
    total = tl.zeros((AT_ONCE,), tl.float32)
    product = tl.zeros((AT_ONCE,), tl.float32)
    for turn in range(TURNS):
        row = (part * TURNS + turn) * ROWS + tl.arange(0, ROWS)
        there = (row < count)[:, None]
        cells = network * count * CHANNELS + row[:, None] * CHANNELS + channel[None, :]
        kept = tl.load(out + cells, mask=there, other=0.0) > 0
        dz = tl.where(kept, tl.load(dout + cells, mask=there, other=0.0).to(tl.float32), 0.0)
        z = (tl.load(y + cells, mask=there, other=0.0).to(tl.float32) - middle) * factor
        total += tl.sum(dz, 0)
        product += tl.sum(dz * z, 0)
    parts = tl.num_programs(0) // across
    to = partial + (network * parts + part) * (2 * CHANNELS) + channel
    tl.store(to, total)
    tl.store(to + CHANNELS, product)


@triton.jit
def finish_sums(
    partial,
    parts,
    first,
    second,
    CHANNELS: tl.constexpr,
    AT_ONCE: tl.constexpr,
    PARTS: tl.constexpr,
):
    """Add up both sums over the parts."""
    network = tl.program_id(0)
    channel = tl.program_id(1) * AT_ONCE + tl.arange(0, AT_ONCE)
    one = tl.zeros((AT_ONCE,), tl.float32)
    two = tl.zeros((AT_ONCE,), tl.float32)
    for start in range(0, parts, PARTS):
        part = start + tl.arange(0, PARTS)
        at = partial + ((network * parts + part) * (2 * CHANNELS))[:, None] + channel[None, :]
        known = (part < parts)[:, None]
        one += tl.sum(tl.load(at, mask=known, other=0.0), 0)
        two += tl.sum(tl.load(at + CHANNELS, mask=known, other=0.0), 0)
    tl.store(first + network * CHANNELS + channel, one)
    tl.store(second + network * CHANNELS + channel, two)


@triton.jit
def normalise_back(
    dout,
    out,
    y,
    dy,
    mean,
    gain,
    constant,
    linear,
    count,
    CHANNELS: tl.constexpr,
    ROWS: tl.constexpr,
):
    """gain · dz − constant − (y − mean) · linear, of the gradient dz behind ReLU."""
    network = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    there = (row < count)[:, None]
    channel = tl.arange(0, CHANNELS)
    at = network * CHANNELS + channel
    middle = tl.load(mean + at)[None, :]
    factor = tl.load(gain + at)[None, :]
    shift = tl.load(constant + at)[None, :]
    steep = tl.load(linear + at)[None, :]
    cells = network * count * CHANNELS + row[:, None] * CHANNELS + channel[None, :]
    kept = tl.load(out + cells, mask=there, other=0.0) > 0
    dz = tl.where(kept, tl.load(dout + cells, mask=there, other=0.0).to(tl.float32), 0.0)
    apart = tl.load(y + cells, mask=there, other=0.0).to(tl.float32) - middle
    value = factor * dz - shift - apart * steep
    tl.store(dy + cells, value.to(dy.dtype.element_ty), mask=there)


@triton.jit
def update(
    weights,
    centre,
    gradient,
    copies,
    rate,
    share,
    count,
    COPY: tl.constexpr,
    AT_ONCE: tl.constexpr,
):
    """w ← w + share (c − w) − rate · g, and a copy in fewer bits."""
    at = tl.program_id(0).to(tl.int64) * AT_ONCE + tl.arange(0, AT_ONCE)
    there = at < count
    w = tl.load(weights + at, mask=there)
    w += tl.load(share) * (tl.load(centre + at, mask=there) - w)
    w -= tl.load(rate) * tl.load(gradient + at, mask=there).to(tl.float32)
    tl.store(weights + at, w, mask=there)
    if COPY:
        tl.store(copies + at, w.to(copies.dtype.element_ty), mask=there)
