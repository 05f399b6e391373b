"""Which solver will run, and whether it knows all that it is told."""

from __future__ import annotations

import msgspec

from weft.errors import ConfigError
from weft.solvers.catalogue import ALGORITHMS
from weft.solvers.registry import resolve
from weft.solvers.settings import Settings


def _readers() -> dict[str, tuple[str, ...]]:
    """Settings that not every solver reads, and those that do."""
    return {
        name: tuple(a.name for a in ALGORITHMS.values() if name in a.reads)
        for name in sorted({name for a in ALGORITHMS.values() for name in a.reads})
    }


def settled(settings: Settings, *, saves: bool = False, warm: bool = False) -> tuple[Settings, str]:
    """Settings with the solver that will run, and why ``auto`` chose it; empty: it did not.

    A setting that this solver does not read is refused rather than ignored, unless it has its
    default value.

    Parameters
    ----------
    saves
        Whether the run shall save checkpoints.
    warm
        Whether the run shall start from a model.
    """
    chosen, reason = resolve(settings, saves=saves, warm=warm)
    defaults = {field.name: field.default for field in msgspec.structs.fields(Settings)}
    for name, readers in _readers().items():
        value = getattr(chosen, name)
        if value != defaults[name] and chosen.solver not in readers:
            known = " and ".join([", ".join(readers[:-1]), readers[-1]] if readers[1:] else readers)
            raise ConfigError(
                f"{name} = {value!r} is for solver {known}, but this run's is '{chosen.solver}', "
                "which does not know it; leave it out, or change the solver"
            )
    return chosen, reason


def going_on(settings: Settings) -> Settings:
    """Let the others go on while a party is away, for it may come back, where a solver can."""
    chosen, _ = resolve(settings)
    if chosen.solver not in _readers()["when_missing"]:
        # HyFDCA does so anyway.
        return settings
    return msgspec.structs.replace(settings, when_missing="hyfdca")
