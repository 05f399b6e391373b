"""Which parties were missing from every exchange of a run, and a channel that repeats it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import msgspec

from weft.errors import ProtocolError
from weft.protocol import Channel, Failure, Replies, Request, size_of
from weft.storage.atomic_files import StorageError, replacing
from weft.thread_safe_decoding import prepared

#: How a party can miss an exchange: it was not asked (``away``), it did not get or finish the work
#: (``absent``), or it did the work and its reply did not arrive (``late``).
Absence = Literal["away", "absent", "late"]

_VERSION = 1


class Missed(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Why a party was missing; kind and reason as in :class:`weft.protocol.Failure`."""

    how: Absence
    kind: Literal["refused", "failed", "late", "unknown"]
    reason: str

    @property
    def failure(self) -> Failure:
        return Failure(self.kind, self.reason)


class Moment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One exchange: seconds since the run began at its end, and who was missing from it."""

    elapsed: float
    missing: dict[str, Missed]


class _File(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    version: int
    exchanges: list[Moment]


class Presence:
    """Which parties missed each exchange of a run, in order. It holds no messages."""

    def __init__(self, moments: Sequence[Moment] = ()) -> None:
        self.moments = list(moments)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Presence) and self.moments == other.moments

    __hash__ = None  # type: ignore[assignment]

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read what :meth:`save` wrote."""
        try:
            found = msgspec.json.decode(path.read_bytes(), type=prepared(_File))
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(f"{path} cannot be read as a record of presence ({error})") from None
        if found.version != _VERSION:
            raise StorageError(
                f"{path} is of version {found.version}, but here is version {_VERSION}; use the "
                "version of Weft that wrote it"
            )
        return cls(found.exchanges)

    def save(self, path: Path) -> None:
        """Write it as JSON."""
        with replacing(path) as draft:
            draft.write_bytes(msgspec.json.encode(_File(_VERSION, self.moments)))

    def add(self, elapsed: float, missing: Mapping[str, Missed]) -> None:
        """The next exchange."""
        self.moments.append(Moment(elapsed, dict(missing)))

    def was_late(self, party: str, number: int) -> None:
        """A party turned out to have worked on an exchange (numbered from 1)."""
        moment = self.moments[number - 1]
        late = msgspec.structs.replace(moment.missing[party], how="late")
        self.moments[number - 1] = Moment(moment.elapsed, {**moment.missing, party: late})


class ReplayedPresence(Channel):
    """A channel on which the same parties are missing, at the same times, as in another run.

    Parameters
    ----------
    channel
        One on which every party is there, such as a :class:`weft.protocol.LocalChannel`.
    presence
        Of the run to repeat.
    """

    def __init__(self, channel: Channel, presence: Presence) -> None:
        super().__init__()
        self._channel = channel
        self._moments = iter(list(presence.moments))
        self._count = 0
        self._now = 0.0

    @property
    def parties(self) -> tuple[str, ...]:
        return self._channel.parties

    @property
    def elapsed(self) -> float:
        return self._now

    def pause(self, seconds: float) -> None:
        self._now += max(0.0, seconds)

    def exchange(self, requests: Sequence[Request[Any, Any]]) -> list[Replies[Any]]:
        moment = next(self._moments, None)
        if moment is None:
            raise ProtocolError(
                f"the record of presence ends after {self._count} exchanges, but this run goes on: "
                "it is not the same run; use its configuration and its version of Weft"
            )
        self._count += 1
        there = [_without(request, moment) for request in requests]
        before = [self._seconds(request.phase.name) for request in requests]
        replies = self._channel.exchange(there)
        results = []
        for request, found, (slowest, total) in zip(requests, replies, before, strict=True):
            result = _imposed(request, found, moment)
            away = {p for p, missed in moment.missing.items() if missed.how == "away"}
            down = sum(size_of(m) for p, m in request.messages.items() if p not in away)
            up = sum(size_of(reply) for reply in result.answered.values())
            name = request.phase.name
            after = self._seconds(name)
            self.meter.record(name, down, up, after[0] - slowest, after[1] - total)
            results.append(result)
        self.meter.round_trips += 1
        self._now = moment.elapsed
        return results

    def _seconds(self, phase: str) -> tuple[float, float]:
        cost = self._channel.meter.phases.get(phase)
        return (0.0, 0.0) if cost is None else (cost.slowest, cost.total)


def _without(request: Request[Any, Any], moment: Moment) -> Request[Any, Any]:
    """The request without parties that did not work on it."""
    missing = moment.missing
    return Request(
        request.phase,
        {p: m for p, m in request.messages.items() if p not in missing or missing[p].how == "late"},
    )


def _imposed(request: Request[Any, Any], found: Replies[Any], moment: Moment) -> Replies[Any]:
    """Replies as they would have come, in the order of the request."""
    result: Replies[Any] = Replies(request.phase.name)
    for party in request.messages:
        if party in moment.missing:
            result.missing[party] = moment.missing[party].failure
        elif party in found.missing:
            result.missing[party] = found.missing[party]
        else:
            result.answered[party] = found.answered[party]
    return result
