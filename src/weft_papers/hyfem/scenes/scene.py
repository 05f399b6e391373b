"""A scene: data cut into blocks of features, and which party holds what of it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Ints
from weft.errors import DataError
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource

Block = NDArray[np.uint8] | NDArray[np.float32]
Blocks = Mapping[str, Block]
Held = dict[str, Block]


@dataclass(frozen=True)
class Share:
    """What one party holds: some blocks of the samples of some classes.

    Attributes
    ----------
    party
        Its name.
    blocks, classes
        Which it holds, classes as numbers from 0.
    every, first
        Of each class it holds every so many samples, beginning with the first-th; all by default.
    """

    party: str
    blocks: tuple[str, ...]
    classes: tuple[int, ...]
    every: int = 1
    first: int = 0

    def __post_init__(self) -> None:
        if not self.blocks or not self.classes:
            raise DataError(f"party '{self.party}' holds nothing; give it blocks and classes")
        if not 0 <= self.first < self.every:
            raise DataError(
                f"party '{self.party}' takes every {self.every} samples from {self.first} on; give "
                "first from 0 to every − 1"
            )


@dataclass(frozen=True)
class Scene:
    """Training and test samples in blocks, and the shares of the parties.

    Attributes
    ----------
    name
        Of the scene.
    blocks, labels
        Training samples: block → (n, \\*shape) with rows that line up, classes from 0. Images are
        bytes, vectors are float32.
    test_blocks, test_labels
        Test samples.
    class_names
        In the order of the labels.
    shares
        One for each party.
    having, test_having
        Block → which samples have it, for blocks that some samples lack. Rows of such a block
        mean nothing where it is lacking.
    """

    name: str
    blocks: Blocks
    labels: Ints
    test_blocks: Blocks
    test_labels: Ints
    class_names: tuple[str, ...]
    shares: tuple[Share, ...]
    having: Mapping[str, Flags] = field(default_factory=dict)
    test_having: Mapping[str, Flags] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._check_rows(self.blocks, self.labels, self.having)
        self._check_rows(self.test_blocks, self.test_labels, self.test_having)
        if list(self.blocks) != list(self.test_blocks):
            raise DataError(f"scene '{self.name}': training and test samples differ in blocks")
        self._check_shares()

    def _check_rows(self, blocks: Blocks, labels: Ints, having: Mapping[str, Flags]) -> None:
        for what, values in (*blocks.items(), *having.items()):
            if len(values) != len(labels):
                raise DataError(
                    f"scene '{self.name}': block '{what}' has {len(values)} rows for "
                    f"{len(labels)} labels"
                )
        if len(labels) and not 0 <= labels.min() <= labels.max() < len(self.class_names):
            raise DataError(
                f"scene '{self.name}': labels go from {labels.min()} to {labels.max()}, but there "
                f"are {len(self.class_names)} classes"
            )

    def _check_shares(self) -> None:
        names = [share.party for share in self.shares]
        if len(set(names)) < len(names):
            raise DataError(f"scene '{self.name}': two parties have the same name")
        for share in self.shares:
            strange = [block for block in share.blocks if block not in self.blocks]
            beyond = [c for c in share.classes if not 0 <= c < len(self.class_names)]
            if strange or beyond:
                raise DataError(
                    f"scene '{self.name}': party '{share.party}' holds {(strange + beyond)[0]!r}, "
                    "which is no block or class here"
                )

    @property
    def parties(self) -> tuple[str, ...]:
        """Names, in the order of the shares."""
        return tuple(share.party for share in self.shares)

    def share(self, party: str) -> Share:
        """What that party holds."""
        for share in self.shares:
            if share.party == party:
                return share
        raise DataError(
            f"scene '{self.name}' has no party '{party}'; its parties are {', '.join(self.parties)}"
        )

    def rows(self, party: str) -> Ints:
        """The training samples of which a party holds all of its blocks."""
        share = self.share(party)
        chosen = np.isin(self.labels, share.classes)
        if share.every > 1:
            chosen &= _ranks(self.labels) % share.every == share.first
        return np.flatnonzero(chosen & self._complete(share.blocks, self.having, len(chosen)))

    def held(self, party: str) -> tuple[Held, Ints]:
        """A party's training samples: its blocks, and their labels."""
        rows, names = self.rows(party), self.share(party).blocks
        return {name: self.blocks[name][rows] for name in names}, self.labels[rows]

    def tested(self, party: str | None = None) -> tuple[Held, Ints]:
        """A party's blocks of all test samples that have them; without a party, all blocks."""
        names = tuple(self.blocks) if party is None else self.share(party).blocks
        chosen = self._complete(names, self.test_having, len(self.test_labels))
        if chosen.all():
            return {name: self.test_blocks[name] for name in names}, self.test_labels
        return {name: self.test_blocks[name][chosen] for name in names}, self.test_labels[chosen]

    def source(self, party: str) -> BlockSource:
        """One party's samples; it is measured on all test samples that have its blocks."""
        test = Holdings(*self.tested(party))
        return BlockSource(party, Holdings(*self.held(party), test=test))

    def sources(self) -> dict[str, BlockSource]:
        """Every party's samples."""
        return {party: self.source(party) for party in self.parties}

    def pool(self) -> Holdings:
        """All samples that have all blocks, for central training."""
        test = Holdings(*self.tested())
        if not self.having:
            return Holdings(self.blocks, self.labels, test=test)
        rows = np.flatnonzero(np.logical_and.reduce([*self.having.values()]))
        blocks = {name: block[rows] for name, block in self.blocks.items()}
        return Holdings(blocks, self.labels[rows], test=test)

    @staticmethod
    def _complete(names: Iterable[str], having: Mapping[str, Flags], count: int) -> Flags:
        complete = np.ones(count, dtype=bool)
        for name in names:
            complete &= having.get(name, True)
        return complete

    def usage(self) -> Ints:
        """(blocks, classes): how many parties hold the pair, as Figures 11 and 12 show it."""
        return usage(self.shares, tuple(self.blocks), len(self.class_names))

    def common_blocks(self) -> tuple[str, ...]:
        """Blocks that every party has."""
        return tuple(name for name in self.blocks if all(name in s.blocks for s in self.shares))

    def unused(self) -> float:
        """Share of the training data, counted in blocks of samples, that no party holds."""
        used = {name: np.zeros(len(self.labels), dtype=bool) for name in self.blocks}
        for share in self.shares:
            rows = self.rows(share.party)
            for name in share.blocks:
                used[name][rows] = True
        there = sum(
            int(self.having[name].sum()) if name in self.having else len(self.labels)
            for name in used
        )
        held = sum(int(flags.sum()) for flags in used.values())
        return 1 - held / there

    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Shape of one sample in each block."""
        return {name: values.shape[1:] for name, values in self.blocks.items()}


def usage(shares: Iterable[Share], blocks: tuple[str, ...], classes: int) -> Ints:
    """(blocks, classes): how many of the parties hold the pair."""
    counts = np.zeros((len(blocks), classes), dtype=np.int64)
    for share in shares:
        counts[np.ix_([blocks.index(name) for name in share.blocks], list(share.classes))] += 1
    return counts


def _ranks(labels: NDArray[Any]) -> Ints:
    """Place of each sample among those of its class."""
    ranks = np.empty(len(labels), dtype=np.int64)
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        ranks[rows] = np.arange(len(rows))
    return ranks
