"""A scene's parties as sources of a run, and its samples in one hand to compare with."""

from __future__ import annotations

import numpy as np

from weft.neural.party_samples import Holdings
from weft.neural.sample_sources import BlockSource
from weft_papers.hyfem.scenes import Scene


def sources_of(scene: Scene) -> dict[str, BlockSource]:
    """Every party's samples; it is measured on all test samples that have its blocks."""
    return {party: source_of(scene, party) for party in scene.parties}


def source_of(scene: Scene, party: str) -> BlockSource:
    """One party's samples."""
    test = Holdings(*scene.tested(party))
    return BlockSource(party, Holdings(*scene.held(party), test=test))


def pool_of(scene: Scene) -> Holdings:
    """All samples that have all blocks."""
    test = Holdings(*scene.tested())
    if not scene.having:
        return Holdings(scene.blocks, scene.labels, test=test)
    rows = np.flatnonzero(np.logical_and.reduce([*scene.having.values()]))
    blocks = {name: block[rows] for name, block in scene.blocks.items()}
    return Holdings(blocks, scene.labels[rows], test=test)
