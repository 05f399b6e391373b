"""A small party, a small coordinator, and a post in memory that loses, delays and kills."""

from __future__ import annotations

import random
import threading
from contextlib import suppress
from functools import cache
from hashlib import blake2b
from typing import Annotated

from weft.errors import ConfigError, DataError, ProtocolError
from weft.network.envelope_bytes import End, Work, decode_envelope
from weft.network.party_interface import OpenedParty
from weft.network.site_answers_envelopes import Site
from weft.protocol import Failure, Message, Phase, Request, fields_of, pack
from weft.protocol.field_visibility import record, texts


class Killed(BaseException):
    """A party's process dies in the middle of its work."""


class Crashed(BaseException):
    """The coordinator's process dies."""


class ToyRequest(Message):
    """Whatever a toy may be told; all of it goes into its state."""

    x: Annotated[int | None, record("a number")] = None
    y: Annotated[float | None, record("a number")] = None
    number: Annotated[int | None, record("a number")] = None
    turn: Annotated[int | None, record("a number")] = None
    odd: Annotated[int | None, record("a number")] = None
    told: Annotated[bytes | None, record("what came back before")] = None
    said: Annotated[str | None, texts("a word")] = None
    fail: Annotated[str | None, texts("what the toy shall fail at")] = None


class ToyReply(Message):
    state: Annotated[bytes, record("a digest")]
    calls: Annotated[int, record("how often it was asked")]


@cache
def toy(name):
    """The phase of that name which toys answer."""
    return Phase(name, ToyRequest, ToyReply)


class Toy:
    """Its state is a digest of all that it was ever told, in order."""

    def __init__(self, name):
        self.name = name
        self.state = name.encode()
        self.calls = 0
        self.closed = False
        #: Dies at its next call, having changed its state.
        self.dies = False

    def on(self, phase, message):
        self.calls += 1
        told = phase.name.encode() + pack(fields_of(message))
        self.state = blake2b(self.state + told, digest_size=16).digest()
        if self.dies:
            raise Killed
        if message.fail == "refuse":
            raise ConfigError("this toy does not do that")
        if message.fail == "unfit":
            raise DataError("sample 's41' has the label 7")
        if message.fail == "lie":
            raise ProtocolError("this block fails its check")
        if message.fail == "break":
            raise KeyError("a secret value")
        return ToyReply(state=self.state, calls=self.calls)

    def close(self):
        self.closed = True


class Place:
    """A party's machine: a folder that outlives its processes; ``make`` makes the party."""

    def __init__(self, name, folder, make=None, **options):
        self.name, self.folder, self.options = name, folder, options
        self.make = make or (lambda request: Toy(name))
        self.toy = None
        self.start()

    def start(self):
        self.site = Site(self.folder, self._open, **self.options)

    def kill(self):
        self.site.close()
        self.toy = None
        self.start()

    def _open(self, request):
        self.toy = self.make(request)
        return OpenedParty(self.toy, {"name": self.name, "plan": pack(request.plan)})


class MemoryTransport:
    """Hands letters to sites at once; ``fate`` says what becomes of each."""

    def __init__(self, places):
        self.places = {place.name: place for place in places}
        self.lock = threading.RLock()
        self.delayed = []
        self.sent = []

    @property
    def parties(self):
        return tuple(self.places)

    @property
    def unanswered(self):
        return ()

    def fate(self, party, envelope):
        return "fine"

    def send(self, envelopes, timeout):
        with self.lock:
            return {party: self._deliver(party, envelope) for party, envelope in envelopes.items()}

    def _deliver(self, party, envelope):
        if party not in self.places:
            return Failure("unknown", "is not known")
        self.sent.append((party, decode_envelope(envelope)))
        place, late = self.places[party], Failure("late", "no reply in time")
        match self.fate(party, envelope):
            case "fine":
                return place.site.answer(envelope)
            case "lost":
                return late
            case "unheard":
                place.site.answer(envelope)
                return late
            case "twice":
                place.site.answer(envelope)
                return place.site.answer(envelope)
            case "delayed":
                self.delayed.append((party, envelope))
                return late
            case "overtaken":
                # Letters that were under way all the time come in first.
                self.bring_delayed()
                return place.site.answer(envelope)
            case "garbled there":
                return place.site.answer(flipped(envelope))
            case "garbled back":
                return flipped(place.site.answer(envelope))
            case "killed before":
                place.kill()
                return place.site.answer(envelope)
            case "killed after":
                place.site.answer(envelope)
                place.kill()
                return late
            case "killed within":
                self.kill_within(place, envelope)
                return Failure("failed", "the connection broke")
            case "crash before":
                raise Crashed
            case "crash after":
                place.site.answer(envelope)
                raise Crashed

    def bring_delayed(self):
        waiting, self.delayed = self.delayed, []
        for party, envelope in waiting:
            self.places[party].site.answer(envelope)

    def kill_within(self, place, envelope):
        if place.toy is not None:
            place.toy.dies = True
        with suppress(Killed):
            place.site.answer(envelope)
        place.kill()


def flipped(packed):
    """The same bytes, but for one bit in the middle."""
    changed = bytearray(packed)
    changed[len(changed) // 2] ^= 4
    return bytes(changed)


#: What may become of a letter, and how often.
FATES = {
    "fine": 40, "lost": 3, "unheard": 3, "twice": 2, "delayed": 3, "overtaken": 6,
    "garbled there": 2, "garbled back": 2, "killed before": 2, "killed after": 2,
    "killed within": 2, "crash before": 1, "crash after": 1,
}  # fmt: skip


class UnreliableTransport(MemoryTransport):
    """Draws what becomes of each letter of an exchange."""

    def __init__(self, places, seed):
        super().__init__(places)
        self.random = random.Random(seed)
        self.met = set()

    def fate(self, party, envelope):
        envelope = decode_envelope(envelope)
        if isinstance(envelope, End):
            return "fine"
        if not isinstance(envelope, Work):
            return self.random.choice(["fine"] * 8 + ["lost", "killed before"])
        fates = self.fates_of(envelope)
        (drawn,) = self.random.choices(list(fates), list(fates.values()))
        self.met.add(drawn)
        return drawn

    def fates_of(self, work):
        return FATES


def coordinate(channel, rounds, seed):
    """Ask around; what is asked next depends on all that came back, and on the time."""
    state, draw = b"", random.Random(seed)
    for turn in range(rounds):
        requests = []
        for phase in ["match.a", "work.b", "work.c"][: draw.randint(1, 3)]:
            some = [p for p in channel.parties if draw.random() < 0.8]
            odd = int(channel.elapsed * 1e6) % 2
            asked = {p: ToyRequest(turn=turn, told=state, odd=odd, fail=mishap(draw)) for p in some}
            requests.append(Request(toy(phase), asked))
        for replies in channel.exchange(requests):
            for party, reply in replies.answered.items():
                state = _mixed(state, party.encode() + pack(fields_of(reply)))
            for party, failure in replies.missing.items():
                state = _mixed(state, f"{party} {failure}".encode())
        channel.pause(0.001 * (turn % 3))
    return state


def mishap(draw):
    """Now and then something that a toy breaks down at."""
    (fail,) = draw.choices(["", "break"], [20, 1])
    return fail


def _mixed(state, more):
    return blake2b(state + more, digest_size=16).digest()
