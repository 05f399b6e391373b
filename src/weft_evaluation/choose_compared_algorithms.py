"""Which algorithms a comparison runs, with which settings, and why others are left out."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

import msgspec

from weft.config.compare_overrides import Told, divided
from weft.errors import ConfigError
from weft.matching.holding_map import HoldingMap
from weft.solvers.algorithm_choice import ALGORITHMS, check_cut, resolve, settled
from weft.solvers.run_settings import AUTO, DEFAULTS, Settings

CENTRAL, ALONE = "central", "alone"
#: What is no algorithm of the registry: the judge, and every party by itself.
BASELINES = (CENTRAL, ALONE)
EVERYTHING = "all"


@dataclass(frozen=True)
class Entry:
    """One algorithm of a comparison: with settings, or with a sentence on why it cannot run."""

    name: str
    settings: Settings | None
    refusal: str = ""


def named(text: str | None) -> list[str] | None:
    """Names in a list with commas; None: everything that fits."""
    if text is None:
        return None
    names = list(dict.fromkeys(name.strip() for name in text.split(",") if name.strip()))
    known = (*ALGORITHMS, *BASELINES, AUTO, EVERYTHING)
    for name in names:
        if name not in known:
            close = get_close_matches(name, known, 1)
            hint = f" (the closest is '{close[0]}')" if close else ""
            raise ConfigError(
                f"there is no algorithm '{name}'{hint}; choose some of {', '.join(known)}"
            )
    if not names:
        raise ConfigError("--algorithms names none; list some, or leave it out for all that fit")
    return None if EVERYTHING in names else names


def entries_of(
    names: Sequence[str] | None, settings: Settings, told: Told, holdings: HoldingMap
) -> list[Entry]:
    """Every algorithm that was named (None: all), each with its settings or a refusal.

    Parameters
    ----------
    settings
        Of the config, with the comparison's limits; its options are for the solver it names.
    told
        What single algorithms are told besides.
    """
    if names is not None:
        chosen, _ = resolve(settings) if AUTO in names else (settings, "")
        names = [chosen.solver if name == AUTO else name for name in names]
        names = [name for name in dict.fromkeys(names) if name not in BASELINES]
    return [
        _entry(name, settings, told.get(name, {}), holdings)
        for name in (ALGORITHMS if names is None else names)
    ]


def _entry(name: str, settings: Settings, told: Mapping[str, Any], holdings: HoldingMap) -> Entry:
    algorithm = ALGORITHMS[name]
    try:
        own, _ = settled(settings_for(name, settings, told))
        # Tables can be pooled for an algorithm that wants a whole one.
        if algorithm.cut != "whole":
            check_cut(own, holdings)
    except ConfigError as error:
        return Entry(name, None, str(error))
    return Entry(name, own)


def settings_for(name: str, settings: Settings, told: Mapping[str, Any]) -> Settings:
    """What one algorithm reads of a config's settings, and what it alone is told."""
    algorithm = ALGORITHMS[name]
    shared_by_some = {key for other in ALGORITHMS.values() for key in other.reads}
    strange = {key: DEFAULTS[key] for key in shared_by_some if key not in algorithm.reads}
    options, shared = divided(algorithm, told)
    given = settings.options if settings.solver == name else {}
    # Named here, it does not follow from the mode.
    named = {"solver": name, "mode": "sums", "options": {**given, **options}}
    return msgspec.structs.replace(settings, **{**strange, **shared, **named})
