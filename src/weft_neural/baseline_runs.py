"""HyFEM's rivals in one go: central training, every party alone, FedProx on what all have."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from weft_neural.baselines import Progress, train_alone, train_central, train_fedprox
from weft_neural.cuda_device_and_vectors import Device
from weft_neural.history import NeuralOutcome
from weft_neural.named_scenes import Scene
from weft_neural.party import Source
from weft_neural.server_model_accuracy import ServerJudge
from weft_neural.settings import NeuralSettings

#: Is told which run begins, and follows it.
Follow = Callable[[str], Progress]


@dataclass(frozen=True, eq=False)
class Rivals:
    """How those went that a run is compared with.

    Attributes
    ----------
    central
        All samples in one hand; None: nobody has them.
    alone
        Every party by itself.
    common, fedprox
        The blocks that every party has, and FedProx on them; None: there are none.
    notes
        What was not run, and why.
    """

    central: NeuralOutcome | None
    alone: Mapping[str, NeuralOutcome]
    common: tuple[str, ...]
    fedprox: NeuralOutcome | None
    notes: list[str] = field(default_factory=list)


def train_rivals(
    sources: Mapping[str, Source],
    settings: NeuralSettings,
    *,
    classes: Sequence[Any],
    holders: Mapping[str, Sequence[str]],
    scene: Scene | None = None,
    device: Device = "auto",
    follow: Follow,
) -> Rivals:
    """Train all of them with the settings, and so with the local steps, of a run of HyFEM.

    Parameters
    ----------
    classes
        All class values of the run: a party alone has an output for those that it never saw.
    holders
        Blocks of every party.
    scene
        Where the data are from; None: from tables, of which nobody has all.
    """
    notes = []
    central = None
    if scene is None:
        notes.append("central training is not compared: nobody has all samples with all blocks")
    else:
        central = train_central(
            scene.pool(), settings, classes=classes, device=device, progress=follow("central")
        )
    alone = {
        party: train_alone(
            party,
            source,
            settings,
            classes=classes,
            device=device,
            progress=follow(f"{party} alone"),
        )
        for party, source in sources.items()
    }
    common = tuple(
        name for name in settings.blocks if all(name in held for held in holders.values())
    )
    fedprox = None
    if common:
        fedprox = train_fedprox(
            sources,
            common,
            settings,
            classes=classes,
            device=device,
            progress=follow("FedProx"),
            judge=None if scene is None else ServerJudge(*scene.tested(), device=device),
        )
    else:
        notes.append("FedProx is not compared: no block is at every party")
    return Rivals(central, alone, common, fedprox, notes)
