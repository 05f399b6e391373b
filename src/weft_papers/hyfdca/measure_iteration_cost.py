"""What an iteration of a run costs, measured while it runs."""

from __future__ import annotations

from math import ceil, log, log1p
from time import thread_time

import msgspec

from weft.errors import ConfigError
from weft.federation.local_federation import Federation
from weft.protocol import Channel
from weft_papers.hyfdca.paper import LATENCY

#: Iterations that may compile something, before anything is counted.
_WARM = 3
#: Iterations that say what one costs: fewer where they take longer than so many seconds.
_COUNTED, _FEWEST, _LONG = 100, 10, 10.0


def settling(parties: int, fraction: float) -> int:
    """Iterations before what one costs is what the later ones do, nearly all of a long run.

    When everybody has been there once, inner products are known, and each fetches all of its own
    when it is next there: such iterations cost up to fifty times the later ones. Both take about
    as long; the message sizes of Covertype's settings settle within three times that.
    """
    if fraction >= 1.0:
        return _WARM
    return 3 * ceil(log(10 * parties) / -log1p(-fraction)) + _WARM


class Costs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What an iteration takes, on average.

    Attributes
    ----------
    compute
        Seconds of the slowest party in every phase, without encryption.
    encryption
        Seconds of the party that encrypts and decrypts longest in that iteration.
    coordinator
        Seconds in which the coordinator works, and all parties wait.
    wall
        Seconds of the processor, for all parties one after the other.
    round_trips, bytes
        What crosses.
    counted
        Iterations that were looked at; None, as of the two before: not kept.
    """

    compute: float
    encryption: float
    coordinator: float
    round_trips: float
    wall: float | None = None
    bytes: float | None = None
    counted: int | None = None

    def seconds(self, latency: float = LATENCY) -> float:
        """Modelled seconds of an iteration: computation, encryption, coordinator and latency."""
        return self.compute + self.encryption + self.coordinator + latency * self.round_trips


class CostMeter:
    """Measures the iterations of a run, without what is done between them.

    Parameters
    ----------
    federation
        That runs.
    warm
        Iterations before the first that is counted.
    """

    def __init__(self, federation: Federation, warm: int = _WARM) -> None:
        self._federation, self._warm = federation, max(_WARM, warm)
        self._channel: Channel | None = None
        self._seen = 0
        self._skip = False
        self.counted = 0
        self._last: tuple[float, ...] = (0.0,) * 5
        self._spent = [0.0] * 5
        self._encrypting: list[float] = []
        self._encryption = 0.0

    def watch(self, channel: Channel) -> Channel:
        """Take the channel of the run, to read its meter."""
        self._channel = channel
        return channel

    def end_iteration(self) -> None:
        """An iteration is over."""
        self._seen += 1
        if self._seen > self._warm and not self._skip:
            now = self._reading()
            self._spent = [s + b - a for s, a, b in zip(self._spent, self._last, now, strict=True)]
            pairs = zip(self._encrypting, self._by_party(), strict=True)
            self._encryption += max(after - before for before, after in pairs)
            self.counted += 1
        self._skip = False

    def begin_iteration(self, *, skip: bool = False) -> None:
        """The next iteration begins; it may have to be skipped, since a run saves itself in it."""
        if self._seen >= self._warm:
            self._encrypting = self._by_party()
        self._last, self._skip = self._reading(), skip

    def seconds(self, latency: float = LATENCY) -> float:
        """Modelled seconds of an iteration, as far as is known."""
        if not self.counted:
            return 1e-3 + latency
        slowest, total, wall, trips, _ = (spent / self.counted for spent in self._spent)
        return slowest + max(0.0, wall - total) + latency * trips

    @property
    def enough(self) -> bool:
        """Whether the averages over what was counted say what an iteration costs."""
        return self.counted >= _COUNTED or (self.counted >= _FEWEST and self._spent[2] > _LONG)

    def costs(self) -> Costs | None:
        """Averages over all that was counted; None: too little was run to say."""
        if not self.counted:
            return None
        slowest, total, wall, round_trips, size = (spent / self.counted for spent in self._spent)
        encryption = min(slowest, self._encryption / self.counted)
        return Costs(
            compute=slowest - encryption,
            encryption=encryption,
            coordinator=max(0.0, wall - total),
            wall=wall,
            round_trips=round_trips,
            bytes=size,
            counted=self.counted,
        )

    def _by_party(self) -> list[float]:
        """Seconds that each has spent in its cipher."""
        return [party.encryption.seconds for party in self._federation.parties.values()]

    def _reading(self) -> tuple[float, ...]:
        if self._channel is None:
            raise ConfigError("costs cannot be measured before the run's channel is watched")
        wall, meter = thread_time(), self._channel.meter
        read = meter.read(without="checkpoint")
        total = sum(cost.total for cost in meter.phases.values())
        return (
            read.slowest,
            total,
            wall,
            float(read.round_trips),
            float(read.bytes_down + read.bytes_up),
        )
