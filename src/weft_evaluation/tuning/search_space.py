"""Which options of an algorithm are searched, and between which values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any
from zlib import crc32

import msgspec
import numpy as np

from weft.errors import ConfigError
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.algorithm_entry import Range
from weft.solvers.run_settings import Settings

#: Settings that not every algorithm reads, and that say how it works.
_SETTINGS = ("iic", "gamma", "groups")
#: Highest share of the samples in an iteration, where an algorithm does not say itself.
_MOST_IIC = 5.0


@dataclass(frozen=True)
class Bound:
    """An option that is searched: its name, range, and whether it is a whole number."""

    name: str
    low: float
    high: float
    whole: bool = False

    def at(self, place: float) -> float | int:
        """The value at a place from 0 to 1, on a logarithmic scale."""
        low, high = math.log10(self.low), math.log10(self.high)
        value: float = 10.0 ** (low + place * (high - low))
        value = min(max(value, self.low), self.high)
        return round(value) if self.whole else value


def draws(space: Sequence[Bound], seed: int, name: str) -> Iterator[dict[str, float | int]]:
    """Options at random, log-uniform within their bounds, without end.

    The same seed and name of an algorithm give the same sequence.
    """
    rng = np.random.default_rng((seed, crc32(name.encode())))
    while True:
        places = rng.random(len(space)).tolist()
        yield {bound.name: bound.at(place) for bound, place in zip(space, places, strict=True)}


def space_of(
    settings: Settings, given: Mapping[str, Range], *, samples: int, parties: int
) -> list[Bound]:
    """What is searched: what is usual for the algorithm, and what somebody gave bounds for.

    Parameters
    ----------
    settings
        With the algorithm and the options that are not searched: a rule for steps, for example,
        decides which numbers are read.
    given
        Bounds that count instead of the usual ones, or besides them.
    """
    name = settings.solver
    kinds = numeric_options(name)
    ranges = {**_usual(settings, samples, parties), **given}
    if not ranges:
        known = ", ".join(f"--bound {option}=LOW:HIGH" for option in kinds)
        raise ConfigError(
            f"solver '{name}' has no number that is usually tuned"
            + (f"; say what to search: {known}" if kinds else ", nor any other; choose another one")
        )
    return [Bound(option, low, high, kinds[option]) for option, (low, high) in ranges.items()]


def numeric_options(name: str) -> dict[str, bool]:
    """Numbers that an algorithm can be told, and which of them are whole."""
    algorithm = algorithm_of(name)
    fields = [
        *(f for f in msgspec.structs.fields(Settings) if f.name in algorithm.reads),
        *msgspec.structs.fields(algorithm.options),
    ]
    options = {f.encode_name for f in msgspec.structs.fields(algorithm.options)}
    found = {}
    for field in fields:
        kind: Any = msgspec.inspect.type_info(field.type)
        parts = getattr(kind, "types", (kind,))
        numbers = [
            p for p in parts if isinstance(p, msgspec.inspect.IntType | msgspec.inspect.FloatType)
        ]
        if numbers and (field.encode_name in options or field.name in _SETTINGS):
            found[field.encode_name] = isinstance(numbers[0], msgspec.inspect.IntType)
    return found


def _usual(settings: Settings, samples: int, parties: int) -> Mapping[str, Range]:
    """Sensible bounds, as the algorithm declares them."""
    algorithm = algorithm_of(settings.solver)
    # One inner iteration at least: H = ⌈iic · N / parties⌉.
    least_iic = min(parties / samples, 1.0)
    if algorithm.tuned is not None:
        return algorithm.tuned(settings, least_iic)
    return {"iic": (least_iic, _MOST_IIC)} if "iic" in algorithm.reads else {}


def read_bounds(pairs: Iterable[str], algorithms: Sequence[str]) -> dict[str, dict[str, Range]]:
    """What ``--bound a=1e-5:25`` or ``--bound fedavg.a=1e-5:25`` says, by algorithm."""
    found: dict[str, dict[str, Range]] = {name: {} for name in algorithms}
    for pair in pairs:
        place, _, values = pair.partition("=")
        name, _, option = place.strip().rpartition(".")
        if name and name not in found:
            raise ConfigError(
                f"--bound speaks of '{name}', which is not tuned; add --algorithm {name}, or leave "
                "it out"
            )
        chosen = [name] if name else list(algorithms)
        known = {one: numeric_options(one) for one in chosen}
        readers = [one for one in chosen if option in known[one]]
        if not readers:
            names = sorted({option for one in known.values() for option in one})
            close = get_close_matches(option, names, 1)
            hint = f" (the closest is '{close[0]}')" if close else ""
            raise ConfigError(
                f"--bound {pair}: {' and '.join(chosen)} has no number '{option}'{hint}; there is "
                f"{', '.join(names) or 'none'}"
            )
        for reader in readers:
            found[reader][option] = _range(pair, values, whole=known[reader][option])
    return found


def _range(pair: str, values: str, *, whole: bool) -> Range:
    try:
        low, high = (float(value) for value in values.split(":"))
    except ValueError:
        raise ConfigError(f"--bound {pair} is not of the form OPTION=LOW:HIGH") from None
    if not 0 < low <= high < math.inf:
        raise ConfigError(
            f"--bound {pair}: the scale is logarithmic, so give two numbers above 0, the lower one "
            "first"
        )
    if whole and not (low.is_integer() and high.is_integer()):
        raise ConfigError(f"--bound {pair}: this is a whole number, and so are its bounds")
    return low, high
