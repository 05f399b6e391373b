"""The cuttings of the papers' experiments: HyFDCA, HyFEM and FedHybrid."""

from __future__ import annotations

from math import isqrt

import numpy as np
import scipy.sparse as sp
from numpy.typing import NDArray

from weft.data.splits.split_and_cutter import (
    Cutter,
    LabelRule,
    Parties,
    Positions,
    Split,
    groups,
    party_names,
    runs,
)
from weft.data.tile import Labels, Sparse, Table, Tile, present
from weft.errors import DataError


def quadrants(table: Table, parties: int, bias: float = 10.0, labels: LabelRule = "all") -> Split:
    """HyFDCA's cutting of MNIST: quadrants of images, dealt out in order.

    A row of the table is a side × side image, read row by row. It is cut into the quadrants
    top left, top right, bottom left and bottom right; the fourth gets a constant column. The
    4N sample-quadrants, all samples of the first quadrant before those of the second, are
    dealt out in runs of 4N / parties, so a party whose run crosses from one quadrant into the
    next holds several tiles.

    Parameters
    ----------
    table : Table
        A table of square images with an even side.
    parties : int
        Number of parties, at most 4N.
    bias : float
        Value of the column "bias" in the fourth quadrant (the paper uses 10, so that the
        penalty hardly touches the intercept); 0 adds no column.
    labels : {"all", "first"}
        "first" leaves each label with the first holder of its sample.
    """
    side = isqrt(table.m)
    if side * side != table.m or side % 2:
        raise DataError(
            f"{table.name or 'the table'} has {table.m} columns, which is no square image with an "
            "even side; cut it with 'grid' or 'dealt' instead."
        )
    dealt_runs = runs(4 * table.n, parties, "sample-quadrants")
    corners = _corners(table, side, bias)
    cutter = Cutter(table, labels)
    held: Parties = {}
    for name, run in zip(party_names(parties), dealt_runs, strict=True):
        tiles = []
        for quadrant in range(run.start // table.n, (run.stop - 1) // table.n + 1):
            features, block = corners[quadrant]
            first = max(run.start - quadrant * table.n, 0)
            part = slice(first, min(run.stop - quadrant * table.n, table.n))
            label_part = cutter.labels(part)
            tiles.append(Tile(table.ids[part], features, block[part], label_part, table.name))
        held[name] = tuple(tiles)
    note = f"image quadrants dealt in order to {parties} parties, bias {bias:g} in the fourth"
    return Split(held, "mean", note, table.task, table.name)


def _corners(
    table: Table, side: int, bias: float
) -> list[tuple[NDArray[np.object_], NDArray[np.float64]]]:
    """Feature names and contiguous values of the four quadrants."""
    block = table.block if isinstance(table.block, np.ndarray) else table.block.toarray()
    images = block.reshape(table.n, side, side)
    names = table.features.reshape(side, side)
    half = side // 2
    corners = []
    for down in (slice(0, half), slice(half, side)):
        for across in (slice(0, half), slice(half, side)):
            pixels = images[:, down, across].reshape(table.n, half * half)
            corners.append((names[down, across].reshape(-1), np.ascontiguousarray(pixels)))
    if bias:
        if "bias" in set(table.features.tolist()):
            raise DataError(
                f"{table.name or 'the table'} already has a column 'bias'; rename it or set bias "
                "to 0."
            )
        features, pixels = corners[3]
        named = np.append(features, np.array(["bias"], dtype=object))
        corners[3] = (named, np.hstack([pixels, np.full((table.n, 1), float(bias))]))
    return corners


def dealt(table: Table, k: int, q: int, seed: int = 0, labels: LabelRule = "all") -> Split:
    """HyFDCA's cutting of News20 and Covtype: each sample's non-zeros dealt out at random.

    The samples are cut into K even random groups. Within a group each sample's
    non-zeros are shuffled and dealt in turn to Q parties, going on where the previous sample
    stopped: every party gets 1/Q of each sample, to within one value, and of the whole group,
    to within one value. Every party holds all samples of its group, and of the features those
    in which it got a value; the value of a cell is the sum over its holders.

    Parameters
    ----------
    table : Table
        The table to cut, dense or sparse.
    k, q : int
        Number of groups of samples, and of parties in each; the parties are r1c1 … rKcQ.
    seed : int
        Seed of the groups and of the dealing.
    labels : {"all", "first"}
        "first" leaves the labels with the first party of each group.
    """
    if q < 1:
        raise DataError(f"samples cannot be dealt to {q} parties; ask for at least one.")
    rng = np.random.default_rng(seed)
    cutter = Cutter(table, labels)
    block: Sparse = sp.csr_array(table.block)
    tiles: Parties = {}
    for i, part in enumerate(groups(table.n, k, "samples", rng), start=1):
        for j, (columns, piece) in enumerate(_deal(block[part], q, rng), start=1):
            tiles[f"r{i}c{j}"] = (
                Tile(
                    table.ids[part],
                    table.features[columns],
                    piece,
                    cutter.labels(part),
                    table.name,
                ),
            )
    note = f"{k} groups of samples, each sample's non-zeros dealt at random among {q} parties"
    return Split(tiles, "sum", note, table.task, table.name)


def _deal(group: Sparse, q: int, rng: np.random.Generator) -> list[tuple[Positions, Sparse]]:
    """For each of q parties, the columns it got and its values in them."""
    if (group.data == 0).any():
        group = group.copy()
        group.eliminate_zeros()
    n, nonzeros = group.shape[0], group.nnz
    row = np.repeat(np.arange(n), np.diff(group.indptr))
    # Sorting row + fraction shuffles within each row; a stable sort gives the same order on
    # every machine even where two fractions tie.
    shuffled = np.argsort(row + rng.random(nonzeros), kind="stable")
    taker = np.empty(nonzeros, dtype=np.min_scalar_type(q))
    taker[shuffled] = np.arange(nonzeros) % q
    by_taker = np.argsort(taker, kind="stable")
    ends = np.cumsum(np.bincount(taker, minlength=q))
    pieces = []
    for mine in np.split(by_taker, ends[:-1]):
        columns, local = np.unique(group.indices[mine], return_inverse=True)
        indptr = np.concatenate([[0], np.cumsum(np.bincount(row[mine], minlength=n))])
        piece = sp.csr_array((group.data[mine], local, indptr), shape=(n, len(columns)))
        pieces.append((columns.astype(np.int64), piece))
    return pieces


def class_blocks(
    table: Table,
    parties: int,
    classes_per_party: int,
    blocks: int,
    blocks_per_party: int,
    seed: int = 0,
    labels: LabelRule = "all",
) -> Split:
    """HyFEM's cutting: each party holds some classes and some blocks of features.

    The features are cut into contiguous blocks. Each party in turn takes the classes, and the
    blocks, that the fewest parties hold so far, ties broken at random, and gets all samples
    of its classes. Classes and blocks are shared, so parties overlap in part; cells that
    nobody holds count as zero.

    Parameters
    ----------
    table : Table
        A classification table.
    parties : int
        Number of parties.
    classes_per_party : int
        Number of classes at each party.
    blocks, blocks_per_party : int
        Number of blocks of features, and how many of them each party holds.
    seed : int
        Seed of the choices.
    labels : {"all", "first"}
        "first" leaves each label with the first holder of its sample.
    """
    if table.task != "classification":
        raise DataError(
            f"{table.name or 'the table'} has no classes to share out; cut it with 'grid' or "
            "'sorted_response' instead."
        )
    names = party_names(parties)
    classes, class_of = np.unique(_complete_labels(table), return_inverse=True)
    block_of = np.empty(table.m, dtype=np.int64)
    for number, part in enumerate(runs(table.m, blocks, "features")):
        block_of[part] = number
    rng = np.random.default_rng(seed)
    class_hands = _hands(parties, len(classes), classes_per_party, "classes", rng)
    block_hands = _hands(parties, blocks, blocks_per_party, "blocks of features", rng)
    cutter = Cutter(table, labels)
    tiles: Parties = {}
    for name, class_hand, block_hand in zip(names, class_hands, block_hands, strict=True):
        rows = np.flatnonzero(np.isin(class_of, class_hand))
        columns = np.flatnonzero(np.isin(block_of, block_hand))
        tiles[name] = (cutter.tile(rows, columns),)
    note = (
        f"{classes_per_party} of {len(classes)} classes × {blocks_per_party} of {blocks} blocks "
        f"of features at each of {parties} parties"
    )
    return Split(tiles, "mean", note, table.task, table.name)


def _hands(
    parties: int, count: int, size: int, what: str, rng: np.random.Generator
) -> list[Positions]:
    """For each party, the `size` of `count` things that the fewest earlier parties hold."""
    if not 1 <= size <= count:
        raise DataError(
            f"a party cannot hold {size} of {count} {what}; choose between 1 and {count}."
        )
    holders = np.zeros(count, dtype=np.int64)
    hands = []
    for _ in range(parties):
        hand = np.lexsort((rng.random(count), holders))[:size]
        holders[hand] += 1
        hands.append(hand)
    return hands


def _complete_labels(table: Table) -> Labels:
    """The labels, refused when one is missing."""
    known = present(table.labels)
    if not known.all():
        raise DataError(
            f"{table.name or 'the table'}: sample {table.ids[int(known.argmin())]!r} has no label "
            "to cut by; leave unlabelled samples out."
        )
    return table.labels


def sorted_response(table: Table, parties: int, seed: int = 0, labels: LabelRule = "all") -> Split:
    """FedHybrid's cutting: samples sorted by response, dealt as runs of unequal size.

    The sizes are uniform draws, scaled to add up to the number of samples, at least one each.
    With class labels all samples of a class stand together, so most parties see one class
    only and of two classes at most one party sees both.

    Parameters
    ----------
    table : Table
        The table to cut by rows.
    parties : int
        Number of parties, at most the number of samples.
    seed : int
        Seed of the sizes.
    labels : {"all", "first"}
        Here the same, because each sample has one holder.
    """
    names = party_names(parties)
    if parties > table.n:
        raise DataError(
            f"cannot cut {table.n} samples for {parties} parties; choose at most {table.n}."
        )
    shares = np.random.default_rng(seed).random(parties)
    spare = table.n - parties
    bounds = np.rint(spare * np.cumsum(shares) / shares.sum()).astype(np.int64)
    bounds += np.arange(1, parties + 1)
    order = np.argsort(_complete_labels(table), kind="stable")
    cutter = Cutter(table, labels)
    sorted_runs = np.split(order, bounds[:-1])
    tiles: Parties = {
        name: (cutter.tile(run),) for name, run in zip(names, sorted_runs, strict=True)
    }
    note = f"sorted by response and dealt as {parties} runs of unequal size"
    return Split(tiles, "mean", note, table.task, table.name)
