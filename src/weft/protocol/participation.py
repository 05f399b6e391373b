"""Who takes part in which iteration."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from weft.errors import ConfigError


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
