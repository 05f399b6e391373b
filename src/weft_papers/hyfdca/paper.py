"""What the paper says: data sets, settings, hyper-parameters, and the figures it found."""

from __future__ import annotations

from functools import cache
from importlib.resources import files
from typing import Literal

import msgspec

from weft.protocol.metering import LATENCIES

#: The latency of Figure 5.
LATENCY = LATENCIES[1]
#: Modelled seconds of the experiments of equal time.
WALL_SECONDS = 10_800.0
#: Round trips of an iteration of HyFDCA as the paper counts them; FedAvg and HyFEM take one.
ROUND_TRIPS = 4.5
#: Comparisons in which HyFDCA came out ahead, at equal iterations and at equal time, of 36 each.
WINS = (36, 33)

Baseline = Literal["fedavg", "hyfem"]
BASELINES: tuple[Baseline, ...] = ("fedavg", "hyfem")


class Options(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Hyper-parameters of Tables 2 to 4: inner iterations, a and b of the step, and μ."""

    iic: float
    a: float | None = None
    b: float | None = None
    mu: float | None = None


class Setting(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A number of clients and the fraction of them that takes part.

    Attributes
    ----------
    parties
        How many there are; for two of the data sets, groups of samples and parties in each.
    seconds
        Of an iteration, Tables 6 to 8: HyFDCA's computing and encryption, FedAvg's and HyFEM's
        computing; nan where the paper has none.
    """

    parties: tuple[int, ...]
    fraction: float
    hyfdca: Options
    fedavg: Options
    hyfem: Options
    seconds: tuple[float, float, float, float]

    @property
    def count(self) -> int:
        """Parties in all."""
        count = 1
        for factor in self.parties:
            count *= factor
        return count

    @property
    def label(self) -> str:
        return f"{'×'.join(map(str, self.parties))} parties, {self.fraction:g}"

    @property
    def key(self) -> str:
        """As part of a file's name."""
        return f"{'x'.join(map(str, self.parties))}-{self.fraction:g}"


class DataSet(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename={"lam": "lambda"}):
    """One of the three.

    Attributes
    ----------
    iterations
        Of the experiments of equal iterations.
    window
        Iterations that curves are smoothed over there.
    loss, central_iterations
        Table 5: what central training came to, after how many iterations.
    paper
        The paper's data set, where ours stands in for it.
    """

    title: str
    lam: float
    iterations: int
    window: int
    loss: float
    central_iterations: int
    settings: tuple[Setting, ...]
    paper: str | None = None

    @property
    def compared(self) -> tuple[Setting, Setting, Setting]:
        """Few clients of which most take part, a middle, and many of which few do."""
        return (self.settings[2], self.settings[4], self.settings[6])


@cache
def data_sets() -> dict[str, DataSet]:
    """By Weft's name of the data."""
    text = files(__package__).joinpath("paper.toml").read_bytes()
    return msgspec.toml.decode(text, type=dict[str, DataSet])
