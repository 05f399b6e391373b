"""A tree of objects comes back as it was, with all that its parts have in common."""

from __future__ import annotations

import threading
from collections import Counter, OrderedDict, defaultdict, deque
from dataclasses import dataclass, field
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.hashes import SHA256, Hash

from weft.crypto.primitives.seeded_words import SeededStream
from weft.storage import object_graph
from weft.storage.object_graph import Opaque
from weft.storage.object_state import ObjectState, Unlike


class Pair(NamedTuple):
    one: object
    other: object


class Told(msgspec.Struct):
    words: object
    number: int = 0


@dataclass(frozen=True)
class Fixed:
    values: np.ndarray


class Slotted:
    __slots__ = ("here", "missing")

    def __init__(self):
        self.here = [1]


@dataclass
class Root:
    """Some of everything that parties are made of."""

    table: np.ndarray = field(default_factory=lambda: np.arange(4000.0))
    items: list = field(default_factory=list)
    counts: Counter = field(default_factory=Counter)
    queue: deque = field(default_factory=deque)
    lists: defaultdict = field(default_factory=lambda: defaultdict(list))
    ordered: OrderedDict = field(default_factory=OrderedDict)
    names: set = field(default_factory=set)
    slotted: Slotted = field(default_factory=Slotted)
    random: np.random.Generator = field(default_factory=lambda: np.random.default_rng(3))
    owner: object = None
    more: dict = field(default_factory=dict)

    def __post_init__(self):
        self.length = lambda: len(self.items)
        self.add = partial(self.take, 2)
        self.taken = self.take
        self.part = self.table[100:200]

    def take(self, *what):
        self.items.append(what)


@pytest.fixture(autouse=True)
def _ours(monkeypatch):
    """Classes of this file are looked into, as Weft's are."""
    monkeypatch.setattr(object_graph, "_is_ours", lambda kind: kind.__module__ == __name__)


OWNER = object()


def made():
    return Root(owner=OWNER)


def grown(root):
    """Changes of every kind."""
    root.part[3] = -1.0
    root.take(1, 2.5, "three", b"4", None, 1 << 90, -(1 << 70), float("inf"), -0.0)
    root.counts.update("aab")
    root.queue.extend([1, 2])
    root.lists["a"].append(3)
    root.ordered["z"], root.ordered["a"] = 1, 2
    root.names |= {"x", "y"}
    root.slotted.here.append(2)
    root.random.normal(size=7)
    new = np.arange(12.0).reshape(3, 4)
    root.more["new"], root.more["row"], root.more["turned"] = new, new[1], new.T
    root.more["fixed"] = Fixed(np.asfortranarray(new))
    root.more["pair"] = Pair(root.items, Told(root.more["fixed"].values, 7))
    root.more["scalar"] = np.uint64(2**63 + 5), np.float32(0.1), range(2, 9, 3), np.dtype("<u2")
    root.more["slices"] = slice(1, 4), slice(None, np.int64(7), 2)
    root.more["text"] = np.array(["ab", "c"])
    root.more["ids"] = np.array(["x", 4, None], object)
    root.more["empty"] = np.zeros((0, 3))
    root.more["self"] = root
    root.more[1, "k"] = frozenset({1, 2})


def test_everything_comes_back_with_what_it_shares():
    one = made()
    ground = ObjectState(one, {"owner": OWNER})
    grown(one)
    saved = ground.save()
    # What has not changed, and is long, is not in it.
    assert len(saved) < one.table.nbytes + 12_000
    other = made()
    ObjectState(other, {"owner": OWNER}).restore(saved)
    assert other.table.tobytes() == one.table.tobytes()
    assert other.items == one.items
    assert str(other.items[0][-1]) == "-0.0"
    assert (other.counts, other.queue, other.lists) == (one.counts, one.queue, one.lists)
    assert list(other.ordered) == ["z", "a"]
    assert other.random.normal() == one.random.normal()
    assert other.slotted.here == [1, 2]
    assert other.owner is OWNER
    more = other.more
    assert more["self"] is other
    assert more["pair"].one is other.items
    assert more["pair"].other.words is more["fixed"].values
    assert more["fixed"].values.flags.f_contiguous
    assert more["scalar"] == one.more["scalar"]
    assert [type(x) for x in more["scalar"]] == [type(x) for x in one.more["scalar"]]
    assert more["slices"] == one.more["slices"]
    assert more["text"].dtype == one.more["text"].dtype
    assert more["ids"].tolist() == ["x", 4, None]
    assert more[1, "k"] == {1, 2}
    # Views show the same memory as before, also old ones, and functions the same objects.
    more["row"][0] = 99.0
    assert more["new"][1, 0] == more["turned"][0, 1] == 99.0
    other.part[0] = 77.0
    assert other.table[100] == 77.0
    other.add()
    other.taken("last")
    assert other.length() == len(other.items) == 3


def test_memory_that_two_arrays_share_in_part_stays_shared():
    def with_views(root):
        memory = np.arange(10.0)
        root.more = {"low": memory[:6], "high": memory[4:]}

    one, other = made(), made()
    ground = ObjectState(one, {"owner": OWNER})
    with_views(one)
    ObjectState(other, {"owner": OWNER}).restore(ground.save())
    other.more["low"][5] = -1.0
    assert other.more["high"][1] == -1.0


@pytest.mark.parametrize(
    "what",
    [
        threading.Lock(),
        blake2b(),
        iter([1]),
        (x for x in "ab"),
        SeededStream(bytes(32), "words"),
        Hash(SHA256()),
    ],
)
def test_what_could_change_unseen_is_refused_by_name(what):
    root = made()
    root.more["deep"] = [what]
    with pytest.raises(Opaque, match=r"more\.deep\.0 is a"):
        ObjectState(root, {"owner": OWNER})


def test_a_new_function_is_refused():
    root = made()
    ground = ObjectState(root, {"owner": OWNER})
    root.more["f"] = lambda: root
    with pytest.raises(Opaque, match="new function"):
        ground.save()


def test_a_state_of_something_else_is_noticed():
    """Of other values where nothing was saved, or of another shape."""
    one, other = made(), made()
    ground = ObjectState(one, {"owner": OWNER})
    one.take(1)
    saved = ground.save()
    other.table[5] = 4.0
    with pytest.raises(Unlike, match="is not what was saved"):
        ObjectState(other, {"owner": OWNER}).restore(saved)
    shorter = made()
    shorter.table = np.arange(3.0)
    with pytest.raises(Unlike):
        ObjectState(shorter, {"owner": OWNER}).restore(saved)
    with pytest.raises(Unlike, match="no saved state"):
        ObjectState(made(), {"owner": OWNER}).restore(b"else")
