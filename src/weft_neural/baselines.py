"""What HyFEM is compared with: central training, parties alone, FedProx on what all have.

All three are runs of the same code. Central training is a federation of one party that has
everything; a party alone is a federation of itself; FedProx is HyFEM on the blocks that every party
has, with neuron j of every party being row j. Each takes as many steps as the run it is compared
with: T·Q.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from weft.errors import ConfigError
from weft_neural.coordinator import Judge
from weft_neural.cuda_device_and_vectors import Device
from weft_neural.history import Round
from weft_neural.local_federation import NeuralFederation, NeuralTrained
from weft_neural.neuron_matching import Matching
from weft_neural.party import Source
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource
from weft_neural.settings import NeuralSettings

Progress = Callable[[Round], None]

#: Name of the only party of central training.
POOL = "pool"


def train_alone(
    party: str,
    source: Source,
    settings: NeuralSettings,
    *,
    classes: Sequence[Any] | None = None,
    device: Device = "auto",
    progress: Progress | None = None,
) -> NeuralTrained:
    """One party by itself: plain SGD on its own samples."""
    # A network that may be asked for classes it never saw needs an output for each.
    alone = msgspec.structs.replace(
        settings,
        blocks=_held(source, settings),
        method="avg",
        matching=Matching(fixed=True),
        participation="everyone",
    )
    return NeuralFederation({party: source}, device=device).train(
        alone, classes=classes, progress=progress
    )


def train_central(
    pool: Holdings,
    settings: NeuralSettings,
    *,
    classes: Sequence[Any] | None = None,
    device: Device = "auto",
    progress: Progress | None = None,
) -> NeuralTrained:
    """All blocks of all samples in one hand: what nobody in a federation could do."""
    source = BlockSource(POOL, pool)
    return train_alone(POOL, source, settings, classes=classes, device=device, progress=progress)


def train_fedprox(
    sources: Mapping[str, Source],
    common: Sequence[str],
    settings: NeuralSettings,
    *,
    classes: Sequence[Any] | None = None,
    device: Device = "auto",
    progress: Progress | None = None,
    judge: Judge | None = None,
) -> NeuralTrained:
    """FedProx (Li et al. 2020) on the blocks that every party has."""
    if not common:
        raise ConfigError("no block is at every party, so that there is nothing for FedProx")
    prox = msgspec.structs.replace(
        settings,
        blocks={name: settings.blocks[name] for name in common},
        matching=Matching(fixed=True),
        start="common",
    )
    return NeuralFederation(sources, device=device).train(
        prox, classes=classes, progress=progress, judge=judge
    )


def _held(source: Source, settings: NeuralSettings) -> dict[str, Any]:
    held = source.holdings(settings.blocks)
    return {name: block for name, block in settings.blocks.items() if name in held.blocks}
