"""Who takes part in an iteration, who of those may, and who speaks for a cohort of samples."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import ConfigError
from weft.matching.cohorts import Axis
from weft.matching.holding_map import HoldingMap

#: When to stop adding up how long somebody may be waited for.
_MOST_TURNS, _NOBODY_LEFT = 100_000, 1e-4


class Participation(ABC):
    """A rule that names the parties present in an iteration (counted from 1)."""

    #: True when the rule always names everyone.
    complete: bool = False

    @abstractmethod
    def present(self, iteration: int) -> tuple[str, ...]:
        """Parties that take part in ``iteration``, in the federation's order."""

    @property
    @abstractmethod
    def horizon(self) -> int:
        """Iterations after which a party that was present is, as a rule, back again."""

    @property
    @abstractmethod
    def ever_present(self) -> frozenset[str]:
        """Parties that the rule names in some iteration."""

    @abstractmethod
    def turns_to_meet(self, parties: int) -> float:
        """Iterations until so many of the parties have all been present, on average."""


@dataclass(frozen=True)
class Everyone(Participation):
    """All parties, every time."""

    parties: tuple[str, ...]
    complete = True

    def present(self, iteration: int) -> tuple[str, ...]:
        return self.parties

    @property
    def horizon(self) -> int:
        return 1

    @property
    def ever_present(self) -> frozenset[str]:
        return frozenset(self.parties)

    def turns_to_meet(self, parties: int) -> float:
        return 1.0


@dataclass(frozen=True)
class RandomFraction(Participation):
    """A random set of ⌊fraction · parties⌋ parties, at least one, drawn anew each iteration.

    Rounded down, so that a fraction below one always leaves somebody out.
    """

    parties: tuple[str, ...]
    fraction: float
    seed: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.fraction <= 1:
            raise ConfigError(
                f"participation is {self.fraction:g}, but a fraction lies above 0 and at most at 1"
            )

    def present(self, iteration: int) -> tuple[str, ...]:
        random = np.random.default_rng((self.seed, 0x9A47, iteration))
        chosen = np.sort(random.choice(len(self.parties), size=self._count, replace=False))
        return tuple(self.parties[i] for i in chosen.tolist())

    @property
    def horizon(self) -> int:
        share = self._count / len(self.parties)
        if share >= 1:
            return 1
        # 19 of 20 absences are shorter than this.
        return max(1, math.ceil(math.log(0.05) / math.log1p(-share)))

    @property
    def ever_present(self) -> frozenset[str]:
        return frozenset(self.parties)

    def turns_to_meet(self, parties: int) -> float:
        share = self._count / len(self.parties)
        if share >= 1:
            return 1.0
        # Draws are independent: the mean of the longest of so many waits.
        total, met = 1.0, 0.0
        for _ in range(_MOST_TURNS):
            met = 1.0 - (1.0 - met) * (1.0 - share)
            left = 1.0 - met**parties
            total += left
            if left < _NOBODY_LEFT:
                break
        return total

    @property
    def _count(self) -> int:
        return max(1, math.floor(self.fraction * len(self.parties) + 1e-9))


@dataclass(frozen=True)
class Cyclic(Participation):
    """The parties cut into groups of neighbours that take turns (the paper's Assumption 4.10)."""

    parties: tuple[str, ...]
    groups: int

    def __post_init__(self) -> None:
        if not 1 <= self.groups <= len(self.parties):
            raise ConfigError(
                f"{self.groups} cyclic groups do not fit {len(self.parties)} parties; "
                "choose between 1 and the number of parties"
            )

    def present(self, iteration: int) -> tuple[str, ...]:
        turn = (iteration - 1) % self.groups
        bounds = np.linspace(0, len(self.parties), self.groups + 1).round().astype(int)
        return self.parties[bounds[turn] : bounds[turn + 1]]

    @property
    def horizon(self) -> int:
        return self.groups

    @property
    def ever_present(self) -> frozenset[str]:
        return frozenset(self.parties)

    def turns_to_meet(self, parties: int) -> float:
        return float(self.groups)


@dataclass(frozen=True)
class Trace(Participation):
    """A recorded sequence of who took part; it starts over when it ends."""

    parties: tuple[str, ...]
    record: tuple[tuple[str, ...], ...]

    def __post_init__(self) -> None:
        if not self.record:
            raise ConfigError("the participation trace is empty; give at least one iteration")
        for number, names in enumerate(self.record, 1):
            for name in names:
                if name not in self.parties:
                    raise ConfigError(
                        f"iteration {number} of the participation trace names {name}, "
                        "which is not a party of this federation"
                    )
            if len(set(names)) < len(names):
                twice = next(name for name in names if names.count(name) > 1)
                raise ConfigError(
                    f"iteration {number} of the participation trace names {twice} twice; name "
                    "every party once"
                )

    def present(self, iteration: int) -> tuple[str, ...]:
        return self.record[(iteration - 1) % len(self.record)]

    @property
    def horizon(self) -> int:
        longest = 1
        for party in self.parties:
            turns = [i for i, names in enumerate(self.record) if party in names]
            if turns:
                wrapped = [*turns, turns[0] + len(self.record)]
                longest = max(longest, int(np.diff(wrapped).max()))
        return longest

    @property
    def ever_present(self) -> frozenset[str]:
        return frozenset(party for names in self.record for party in names)

    def turns_to_meet(self, parties: int) -> float:
        return float(self.horizon)


def participation_of(
    rule: str | float | dict[str, object], parties: Sequence[str], seed: int
) -> Participation:
    """Read a participation setting.

    ``"everyone"``, a fraction such as ``0.5``, ``{"cyclic": groups}`` or
    ``{"trace": [[names], …]}``.
    """
    names = tuple(parties)
    if rule == "everyone" or rule == 1:
        return Everyone(names)
    if isinstance(rule, int | float) and not isinstance(rule, bool):
        return RandomFraction(names, float(rule), seed)
    if isinstance(rule, dict) and len(rule) == 1:
        (kind, value), *_ = rule.items()
        if kind == "cyclic" and isinstance(value, int):
            return Cyclic(names, value)
        if kind == "trace" and isinstance(value, list | tuple):
            return Trace(names, tuple(tuple(str(n) for n in names_) for names_ in value))
    raise ConfigError(
        f"participation = {rule!r} is not understood; use 'everyone', a fraction such as 0.5, "
        "{cyclic = 2} or {trace = [[…], …]}"
    )


class Contributors:
    """Keeps parties out of an iteration in which too few would share a cohort with them.

    A party sees by how much a total has changed since its last copy. So of every shared cohort
    either nobody takes part, or as many parties as the terms ask for. Where sums of two are
    allowed, anybody may.
    """

    def __init__(self, holdings: HoldingMap) -> None:
        self._parties = holdings.parties
        self._index = holdings.index
        terms = holdings.terms
        self._least = 1 if terms.allow_pairs else terms.min_contributors
        pairs = [_pairs(axis) for axis in (holdings.rows, holdings.columns)]
        cohorts = [len(axis.sizes) for axis in (holdings.rows, holdings.columns)]
        self._cohort: Ints = np.concatenate([pairs[0][0], pairs[1][0] + cohorts[0]])
        self._party: Ints = np.concatenate([pairs[0][1], pairs[1][1]])
        self._cohorts = sum(cohorts)

    def joined(self, asked: list[str], present: list[str]) -> list[str]:
        """Those asked for a sum; where they are too few, all who are present, to join them.

        Whoever has told its part before puts nothing in.
        """
        return asked if len(self.of(asked)) == len(asked) else present

    def of(self, present: Sequence[str]) -> list[str]:
        """Those of the parties present that may take part."""
        if self._least <= 1:
            return list(present)
        here = np.zeros(len(self._parties), bool)
        here[[self._index[party] for party in present]] = True
        while True:
            counts = np.bincount(self._cohort[here[self._party]], minlength=self._cohorts)
            few = (counts > 0) & (counts < self._least)
            alone = self._party[few[self._cohort] & here[self._party]]
            if not len(alone):
                return [party for party in present if here[self._index[party]]]
            here[alone] = False


def _pairs(axis: Axis) -> tuple[Ints, Ints]:
    """(cohort, holder) of all cohorts that take part in sums."""
    cohort = np.repeat(np.arange(len(axis.sizes)), axis.holders.lengths)
    shared = axis.shared_cohort[cohort]
    return cohort[shared], axis.holders.values[shared]


class CohortSpeakers:
    """Who keeps the coordinator's α current: the first of those present who move it, per cohort.

    Parameters
    ----------
    labelled
        Whether only the holders of labels move α, or all holders of a sample.
    """

    def __init__(self, holdings: HoldingMap, *, labelled: bool) -> None:
        movers = holdings.rows.marked if labelled else holdings.rows.holders
        self._holder = movers.values
        self._start = movers.start[:-1]
        cohort = np.repeat(np.arange(len(movers)), movers.lengths)
        # Entries in the order of (party, cohort): a party's own cohorts are one slice.
        order = np.lexsort((cohort, self._holder))
        self._rank = np.empty(len(order), np.int64)
        self._rank[order] = np.arange(len(order))
        self._bounds = np.searchsorted(
            self._holder[order], np.arange(len(holdings.parties) + 1)
        ).tolist()
        self._slot = {p: i for i, p in enumerate(holdings.parties)}
        self._moved = [
            None
            if len(holdings.rows.cohorts[k]) == self._bounds[k + 1] - self._bounds[k]
            else np.isin(
                holdings.rows.cohorts[k], cohort[order][self._bounds[k] : self._bounds[k + 1]]
            )
            for k in range(len(holdings.parties))
        ]

    def of(self, present: list[str]) -> dict[str, NDArray[np.bool_]]:
        """Per party present, a flag for each of its cohorts."""
        here = np.zeros(len(self._slot), bool)
        here[[self._slot[p] for p in present]] = True
        candidate = np.where(here[self._holder], np.arange(len(self._holder)), len(self._holder))
        first = np.minimum.reduceat(candidate, self._start)
        chosen = np.zeros(len(self._holder) + 1, bool)
        chosen[first] = True
        by_party = np.empty(len(self._holder), bool)
        by_party[self._rank] = chosen[:-1]
        flags = {}
        for party in present:
            k = self._slot[party]
            mine = by_party[self._bounds[k] : self._bounds[k + 1]]
            moved = self._moved[k]
            if moved is not None:
                mine_all = np.zeros(len(moved), bool)
                mine_all[moved] = mine
                mine = mine_all
            flags[party] = mine
        return flags
