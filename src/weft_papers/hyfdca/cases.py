"""Which runs there are: a data set, a setting and a method each, and how long it goes on."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import msgspec

from weft.solvers.run_settings import Settings
from weft_papers.hyfdca.paper import BASELINES, WALL_SECONDS, DataSet, Setting, data_sets

Method = Literal["hyfdca", "unit", "safe", "auto", "fedavg", "hyfem"]

#: As figures and tables name them.
TITLES: dict[Method, str] = {
    "hyfdca": "HyFDCA",
    "unit": "HyFDCA, ‖x‖ ≤ 1",
    "safe": "HyFDCA safe",
    "auto": "Weft auto",
    "fedavg": "FedAvg",
    "hyfem": "HyFEM",
}
#: Data sets of which rows are longer than 1.
_LONG_ROWS = ("mnist", "covtype")
#: Where ``auto`` ends: a certified gap, or so many round trips.
_AUTO_GAP, _AUTO_TRIPS = 1e-3, 200
_NEVER = 10**9
#: Parties up to which it is run: all of them work in every round trip, one after the other here.
_MOST_AUTO = 150
#: Iterations of the shortest run.
_FEWEST = 10


class Case(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run.

    Attributes
    ----------
    number
        Of the setting, in the order of the paper's tables.
    """

    data: str
    number: int
    method: Method
    seed: int = 0

    @property
    def paper(self) -> DataSet:
        return data_sets()[self.data]

    @property
    def setting(self) -> Setting:
        return self.paper.settings[self.number]

    @property
    def key(self) -> str:
        """Name of its files."""
        return f"{self.data}-{self.setting.key}-{self.method}-{self.seed}"

    @property
    def title(self) -> str:
        return f"{self.paper.title}, {self.setting.label}, {TITLES[self.method]}"

    @property
    def save_every(self) -> int:
        """Iterations after which a run saves itself; every party has a file of its own."""
        return self.paper.iterations // (20 if self.setting.count <= 500 else 4)

    @property
    def encrypts(self) -> bool:
        """FedAvg and HyFEM send weights in the clear, as in the paper."""
        return self.method not in ("fedavg", "hyfem")

    def settings(self, lam: float, iterations: int | None, cipher: str = "plain") -> Settings:
        """Hyper-parameters of the paper, whatever comes of them."""
        setting, method = self.setting, self.method
        given: dict[str, Any] = {"lam": lam, "seed": self.seed, "cipher": cipher}
        if method == "auto":
            # All parties take part: this is what a federation would run if it can.
            trips = _AUTO_TRIPS
            return Settings(solver="auto", gap=_AUTO_GAP, round_trips=trips, **given)
        given |= {"participation": setting.fraction, "gap": None, "iterations": iterations}
        if method in ("hyfdca", "unit", "safe"):
            local: Any = "safe" if method == "safe" else "practical"
            # Whether its steps are short enough, ``safe`` sees by its certificates.
            every = None if method == "safe" else _NEVER
            iic = setting.hyfdca.iic
            return Settings(local=local, iic=iic, certify_every=every, **given)
        options = msgspec.to_builtins(getattr(setting, method))
        iic = options.pop("iic")
        known = {name: value for name, value in options.items() if value is not None}
        return Settings(solver=method, iic=iic, options=known, certify_every=_NEVER, **given)


def _runs(method: Method, data: str, setting: Setting) -> bool:
    """Whether a method is run in a setting that is compared."""
    if method == "auto":
        return setting.count <= _MOST_AUTO
    return method != "unit" or data in _LONG_ROWS


class Target(NamedTuple):
    """How far a run goes: until all are reached.

    Attributes
    ----------
    iterations
        Of the experiments of equal iterations.
    seconds
        Modelled ones, of the experiments of equal time.
    window
        Iterations that values at the end of equal iterations are averaged over.
    most
        Experiments of equal time that would take more iterations are left out.
    """

    iterations: int
    seconds: float
    window: int = 1
    most: int = 10**9


class Shares(NamedTuple):
    """How much of the paper's lengths is run.

    Attributes
    ----------
    iterations, seconds
        Of the settings that are compared, in the experiments of equal iterations and equal time.
    effects
        Of the iterations of the other settings, which are in Figures 6 to 8 only; 0: not run.
    """

    iterations: float
    seconds: float
    effects: float


FULL = Shares(1.0, 1.0, 1.0)
Kind = Literal["iterations", "seconds", "effects"]
_LENGTHS: dict[Kind, str] = {
    "iterations": "iterations",
    "seconds": "modelled seconds",
    "effects": "iterations in settings that are in Figures 6 to 8 only",
}
#: By name.
SCALES: dict[str, Shares] = {
    "tiny": Shares(0.004, 0.004, 0.0),
    "small": Shares(0.01, 0.01, 0.0),
    "medium": Shares(0.2, 0.2, 0.1),
    "full": FULL,
}


@dataclass(frozen=True)
class Plan:
    """How much of the paper is run.

    Attributes
    ----------
    shares
        By data set.
    most
        Iterations of the longest run of the experiments of equal time.
    """

    shares: Mapping[str, Shares]
    seed: int = 0
    most: int = 10**9

    @classmethod
    def named(cls, scale: str, data: Iterable[str] | None = None, seed: int = 0) -> Plan:
        """The same for all data sets."""
        return cls(dict.fromkeys(data or data_sets(), SCALES[scale]), seed)

    @property
    def data(self) -> tuple[str, ...]:
        return tuple(self.shares)

    def length(self, kind: Kind) -> str:
        """How far runs go of what the paper's have: a part of a sentence."""
        shares = {name: getattr(each, kind) for name, each in self.shares.items()}
        told = ", ".join(f"{data_sets()[name].title} {share:.3g}" for name, share in shares.items())
        if len(set(shares.values())) == 1:
            share = next(iter(shares.values()))
            told = {0: "none", 1: "all"}.get(share, f"{share:.3g}")
        return f"{told} of the paper's {_LENGTHS[kind]}"

    @property
    def note(self) -> str:
        """How far all runs go, in a sentence."""
        return f"Length: {'; '.join(self.length(kind) for kind in _LENGTHS)}."

    def cases(self) -> list[Case]:
        """All of them."""
        return [case for name in self.data for case in self._of(name)]

    def _of(self, name: str) -> Iterable[Case]:
        paper = data_sets()[name]
        for number, setting in enumerate(paper.settings):
            if setting in paper.compared:
                # Other units, other tiles: last, so that the others can share theirs.
                for method in sorted(TITLES, key=lambda method: method == "unit"):
                    if _runs(method, name, setting):
                        yield Case(name, number, method, self.seed)
            elif self.shares[name].effects:
                yield Case(name, number, "hyfdca", self.seed)

    def costed(self) -> list[Case]:
        """All, and the paper's two others in every setting: Tables 6 to 8."""
        others = [
            Case(name, number, method, self.seed)
            for name in self.data
            for number in range(len(data_sets()[name].settings))
            for method in BASELINES
        ]
        return list(dict.fromkeys([*self.cases(), *others]))

    def compared(self, case: Case) -> bool:
        return case.setting in case.paper.compared

    def urgency(self, case: Case) -> int:
        """What is compared comes first, should there be no time for all; last comes Covertype in
        other units, which make little difference to rows of that length."""
        if case.method == "unit" and case.data != "mnist":
            return 2
        return 0 if self.compared(case) else 1

    def target(self, case: Case) -> Target:
        """How far a case goes."""
        shares, compared = self.shares[case.data], self.compared(case)
        share = shares.iterations if compared else shares.effects
        iterations = max(_FEWEST, round(share * case.paper.iterations))
        window = max(1, round(iterations / case.paper.iterations * case.paper.window))
        seconds = shares.seconds * WALL_SECONDS if compared else 0.0
        return Target(iterations, seconds, window, self.most)
