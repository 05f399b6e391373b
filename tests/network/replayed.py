"""Parties that are killed and made anew in the middle of a run. Not a test itself.

A :class:`Troupe` stands in the place of the parties of a federation, keeps what a site keeps on its
disk (the messages and the memory of each party) and can rebuild any of them from it alone.
"""

from __future__ import annotations

from contextlib import contextmanager, nullcontext, suppress
from unittest.mock import patch

import numpy as np

from small_federations import rough_curvature
from weft.crypto.ciphers.paillier_scheme import PaillierSecret
from weft.data import SPLITS, Table, load
from weft.errors import WeftError
from weft.federation import local_federation as federation_module
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.party import Party
from weft.protocol import LocalChannel, fields_of, phase_named
from weft.protocol.message_bytes import pack, unpack
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.run_settings import Settings

#: Rows of norm one are found in twenty round trips, all of which are repeated after every death.
PREPARATION = Preprocessing(intercept=True, scaling="standard")

_NEW_KEY = PaillierSecret.new.__func__


@contextmanager
def short_keys(bits=512):
    """Paillier keys that are only good for tests: fifty times faster than real ones."""
    with patch.object(PaillierSecret, "new", classmethod(lambda cls: _NEW_KEY(cls, bits))):
        yield


class Killed(BaseException):
    """No exception that anything in a party catches."""


class Mortal(dict):
    """A memory in whose n-th writing the party dies, before or after the value is kept."""

    def __init__(self, content=(), *, dies_at=None, kept=True):
        super().__init__(content)
        self.dies_at, self.kept, self.written = dies_at, kept, 0

    def __setitem__(self, name, value):
        self.written += 1
        if self.written == self.dies_at and not self.kept:
            raise Killed(name)
        super().__setitem__(name, value)
        if self.written == self.dies_at:
            raise Killed(name)


class MortalInAll(dict):
    """A memory in whose first writing of each value the party dies, but for the very first.

    That is of the party's making.
    """

    def __init__(self, *, kept):
        super().__init__()
        self.kept, self.met = kept, set()

    def __setitem__(self, name, value):
        dies = bool(self.met - {name}) and name not in self.met
        self.met.add(name)
        if self.kept or not dies:
            super().__setitem__(name, value)
        if dies:
            raise Killed(name)


class Troupe:
    """All parties of a federation, and what would lie on their disks.

    Parameters
    ----------
    kill
        Whether a party is killed before it works on its next message, given its name and the
        number of messages that it has had.
    memories
        Party to its memory; a new dict where there is none.
    """

    def __init__(self, kill=lambda party, count: False, memories=None):
        self._kill = kill
        self.memories = dict(memories or {})
        self.made = {}
        self.parties = {}
        self.messages = {}
        self.replies = {}
        self.deaths = 0
        self.federation = None

    def hire(self, name, tiles, **things):
        self.made[name] = (tiles, things)
        self.messages[name], self.replies[name] = [], []
        self.parties[name] = self.build(name, self.memories.setdefault(name, {}))
        return self.parties[name]

    def build(self, name, memory):
        tiles, things = self.made[name]
        return Party(name, tiles, **things, memory=memory)

    def answer(self, name, phase, message):
        """What the channel calls: the message is in the journal before anything else happens."""
        if self._kill(name, len(self.messages[name])):
            self.rebuild(name)
        self.messages[name].append((phase.name, pack(fields_of(message))))
        try:
            reply = self.parties[name].on(*self.message(name, -1))
        except Killed:
            reply = self.rebuild(name)
        self.replies[name].append(reply)
        return reply

    def message(self, name, number):
        """Phase and content of one of a party's messages."""
        return read(*self.messages[name][number])

    def rebuild(self, name):
        """Make a party anew, and again where it is killed in that; the last reply."""
        while True:
            self.deaths += 1
            with suppress(Killed):
                party, replies = replay(self, name, self.memories[name])
                break
        self.parties[name] = party
        self.federation.parties[name] = party
        return replies[-1] if replies else None

    def train(self, federation, settings):
        """Train with these parties."""
        self.federation, troupe = federation, self

        class Stage(LocalChannel):
            def __init__(self, handlers, **options):
                calls = {
                    name: lambda phase, message, name=name: troupe.answer(name, phase, message)
                    for name in handlers
                }
                super().__init__(calls, **options)

        with (
            patch.object(federation_module, "Party", self.hire),
            patch.object(federation_module, "LocalChannel", Stage),
            short_keys(),
            rough_curvature(),
        ):
            return federation.train(settings)


def read(phase, packed):
    """A message as a site reads it, with its phase."""
    asked = phase_named(phase)
    return asked, asked.read_request(unpack(packed))


def replay(troupe, name, memory, *, strict=True):
    """A new party with a memory, after all messages of an old one; and its replies."""
    party = troupe.build(name, memory)
    replies = []
    *before, last = troupe.messages[name] or [None]
    with party.replaying() if strict else nullcontext():
        for phase, message in before:
            reply = None
            # What was refused live is refused again.
            with suppress(WeftError):
                reply = party.on(*read(phase, message))
            replies.append(reply)
    if last is not None:
        replies.append(party.on(*read(*last)))
    return party, replies


def same(one, other):
    """Whether two values of messages are equal, to the bit."""
    if isinstance(one, np.ndarray):
        same_kind = one.dtype == other.dtype and one.shape == other.shape
        return same_kind and one.tobytes() == other.tobytes()
    return type(one) is type(other) and one == other


def small():
    """A few rows and columns of a real table."""
    whole, rows, columns = load("breast_cancer"), slice(0, 32), slice(0, 8)
    block, labels = np.ascontiguousarray(whole.block[rows, columns]), whole.labels[rows]
    return Table(whole.ids[rows], whole.features[columns], block, labels, whole.task, whole.name)


def cut_for(solver):
    """The table, cut as a solver can have it."""
    kind = ALGORITHMS[solver].cut
    if kind == "any":
        return SPLITS["grid"](small(), k=2, q=2)
    return SPLITS["rows" if kind == "whole" else kind](small(), parties=1 if kind == "whole" else 3)


def settings_for(solver, cipher="pad", **changes):
    """A short run."""
    loss = "hinge" if ALGORITHMS[solver].losses == "kinks" else "logistic"
    base = {"lam": 0.05, "loss": loss, "gap": None, "iterations": 3, "certify_every": 2}
    if ALGORITHMS[solver].spans:
        base = {"lam": 0.05, "loss": loss, "gap": 0.05}
    return Settings(solver=solver, cipher=cipher, **{**base, **changes})


def federation_for(solver, preprocessing=PREPARATION, **options):
    return Federation(cut_for(solver).parties, preprocessing, **options)


def pair(preprocessing=PREPARATION, **options):
    """Two parties with the same samples and one feature in common."""
    whole = small().to_tile()
    tiles = {"p1": (whole.columns(np.arange(5)),), "p2": (whole.columns(np.arange(4, 8)),)}
    return Federation(tiles, preprocessing, **options)
