"""The state of a tree of objects as plain values, whatever the objects are.

Everything that can be reached from one object is numbered in the order in which it is found, and
written down as what it consists of: attributes, items, words of arrays. Nothing is left to the
memory of whoever adds an attribute. What is of a kind that this file does not know, and might
change unseen, is refused by name (`Opaque`).
"""

from __future__ import annotations

import enum
import sys
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from itertools import pairwise
from pathlib import PurePath
from types import BuiltinFunctionType, CellType, FunctionType, MethodType, ModuleType
from typing import Any

import msgspec
import numpy as np

from weft.errors import WeftError

#: Dicts with an order or a default, which are made anew by their class.
_DICTS: dict[type, str] = {
    dict: "dict",
    Counter: "Counter",
    OrderedDict: "OrderedDict",
    defaultdict: "defaultdict",
}
_PLAIN = (type(None), bool, float, str, bytes)
_WIDE = 1 << 63
#: Steps from the root to an object.
Path = tuple[Any, ...]


class Opaque(WeftError):
    """Something that is reached from an object has a state that cannot be written down."""


def known_class(module: str, name: str) -> Any:
    """A class or function by its name; of Weft and its plug-ins, of numpy, or of Python."""
    found: Any = sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is None:
        raise Opaque(f"{module} has no {name} in this version")
    return found


class Graph:
    """All that is reached from an object, numbered.

    Parameters
    ----------
    root
        The object.
    outside
        What belongs to others, by name: it is referred to, and not looked into.

    Attributes
    ----------
    nodes
        What was found, in order; the root is the first.
    paths
        By which steps each was found first.
    """

    def __init__(self, root: object, outside: Mapping[str, object]) -> None:
        self.nodes: list[Any] = []
        self.paths: list[Path] = []
        self._numbers: dict[int, int] = {}
        self._outside = {id(found): name for name, found in outside.items()}
        self._at: Path = ()
        #: Arrays that show another's memory, while it is not known how that is written down.
        self._views: list[int] = []
        self._number(root, ())

    def contents(self) -> list[Any]:
        """What every object consists of, in the order of their numbers."""
        found: list[Any] = []
        while len(found) < len(self.nodes):
            self._at = self.paths[len(found)]
            found.append(self._content(self.nodes[len(found)]))
            if len(found) == len(self.nodes):
                self._settle_views(found)
        return found

    # ── values ────────────────────────────────────────────────────────────────────────────

    def _number(self, found: object, step: Path) -> int:
        number = self._numbers.get(id(found))
        if number is None:
            number = self._numbers[id(found)] = len(self.nodes)
            self.nodes.append(found)
            self.paths.append((*self._at, *step))
        return number

    def value(self, found: Any, step: Any) -> Any:
        """A value in another's content: itself, or a list of its kind and what it takes."""
        kind = type(found)
        if kind in _PLAIN:
            return found
        if kind is int:
            return found if -_WIDE <= found < _WIDE else ["int", str(found)]
        name = self._outside.get(id(found))
        if name is not None:
            return ["outside", name]
        if kind is tuple:
            return ["tuple", [self.value(x, (step, i)) for i, x in enumerate(found)]]
        if isinstance(found, np.generic):
            return ["scalar", found.dtype.str, found.tobytes()]
        if isinstance(found, tuple):
            items = [self.value(x, (step, i)) for i, x in enumerate(found)]
            return ["named", *_name_of(kind), items]
        if kind is frozenset:
            return ["frozenset", _sorted(self.value(x, (step,)) for x in found)]
        if isinstance(found, enum.Enum):
            return ["enum", *_name_of(kind), found.name]
        if isinstance(found, PurePath | np.dtype):
            return ["path" if isinstance(found, PurePath) else "dtype", str(found)]
        if kind is range or kind is slice:
            ends = found.start, found.stop, found.step
            return [kind.__name__, [self.value(end, step) for end in ends]]
        if isinstance(found, type | ModuleType | BuiltinFunctionType):
            return ["global", getattr(found, "__module__", ""), _qualname(found)]
        if kind is FunctionType and "<" not in found.__qualname__:
            return ["global", found.__module__, found.__qualname__]
        return ["node", self._number(found, (step,))]

    # ── objects ───────────────────────────────────────────────────────────────────────────

    def _content(self, found: Any) -> Any:
        kind = type(found)
        if kind is list or kind is deque:
            return [kind.__name__, [self.value(x, i) for i, x in enumerate(found)]]
        if kind in _DICTS:
            items = [
                [self.value(key, ("key", i)), self.value(x, _step(key, i))]
                for i, (key, x) in enumerate(found.items())
            ]
            made = self.value(getattr(found, "default_factory", None), "default")
            return [_DICTS[kind], made, items]
        if kind is set:
            return ["set", _sorted(self.value(x, "item") for x in found)]
        if kind is bytearray:
            return ["bytearray", bytes(found)]
        if isinstance(found, np.ndarray):
            return self._array(found)
        if isinstance(found, np.random.Generator):
            state = found.bit_generator.state
            return ["random", type(found.bit_generator).__name__, _plain(state)]
        if kind is MethodType:
            return ["method", self.value(found.__self__, "self"), found.__func__.__name__]
        if kind is partial:
            kept = self.value(found.func, "func"), self.value(found.args, "args")
            return ["partial", *kept, self.value(found.keywords, "keywords")]
        if kind is FunctionType:
            cells = [self.value(cell, i) for i, cell in enumerate(found.__closure__ or ())]
            return ["function", found.__module__, found.__qualname__, cells]
        if kind is CellType:
            return ["cell", self.value(found.cell_contents, "cell")]
        if isinstance(found, msgspec.Struct):
            return ["struct", *_name_of(kind), self._attributes(found, found.__struct_fields__)]
        if _is_ours(kind) and not getattr(kind, "moves_unseen", False):
            return ["object", *_name_of(kind), self._attributes(found, attributes_of(found))]
        if _never_changes(kind):
            return ["opaque", *_name_of(kind)]
        raise Opaque(f"{self._where()} is a {kind.__module__}.{kind.__qualname__}")

    def _attributes(self, found: object, names: Any) -> list[Any]:
        return [[name, self.value(getattr(found, name), name)] for name in names]

    # ── arrays ────────────────────────────────────────────────────────────────────────────

    def _array(self, found: Any) -> Any:
        if type(found) is not np.ndarray or found.dtype.names:
            raise Opaque(f"{self._where()} is an array of a kind that cannot be written down")
        if found.dtype.hasobject:
            # Names of samples and columns, which nobody changes in place.
            items = [self.value(x, i) for i, x in enumerate(found.ravel().tolist())]
            return ["objects", list(found.shape), items]
        if _owner_of(found) is not None:
            # Of which memory it is seen last, when all arrays are known.
            self._views.append(self._numbers[id(found)])
            return None
        return _own_words(found)

    def _settle_views(self, contents: list[Any]) -> None:
        """Arrays that show another's memory, by which array that memory is written down."""
        groups: dict[int, list[int]] = {}
        for number in self._views:
            groups.setdefault(id(_owner_of(self.nodes[number])), []).append(number)
        self._views.clear()
        for numbers in groups.values():
            first = min(numbers)
            owner = _owner_of(self.nodes[first])
            if id(owner) not in self._numbers and _lie_apart([self.nodes[n] for n in numbers]):
                for number in numbers:
                    contents[number] = _own_words(self.nodes[number])
                continue
            host = max((self.nodes[n] for n in numbers), key=lambda a: np.diff(_bounds(a))[0])
            whole = _contiguous(host) and all(_within(self.nodes[n], host) for n in numbers)
            if id(owner) in self._numbers or not whole:
                host = owner
            self._at = (*self.paths[first], "memory")
            at = ["node", self._number(host, ())]
            for number in numbers:
                seen = self.nodes[number]
                contents[number] = _own_words(seen) if seen is host else _view(seen, host, at)

    def _where(self) -> str:
        return ".".join(map(str, self._at))


def _owner_of(found: Any) -> Any:
    """The array whose memory one shows; None: its own, or that of bytes."""
    owner = found.base
    while isinstance(owner, np.ndarray) and isinstance(owner.base, np.ndarray):
        owner = owner.base
    return owner if isinstance(owner, np.ndarray) else None


def _contiguous(found: Any) -> bool:
    return bool(found.flags.c_contiguous or found.flags.f_contiguous)


def _bounds(found: Any) -> tuple[int, int]:
    """Where the memory of an array begins and ends."""
    at = int(found.__array_interface__["data"][0])
    if not found.size:
        return at, at
    ends = [(d - 1) * s for d, s in zip(found.shape, found.strides, strict=True)]
    low, high = sum(min(0, end) for end in ends), sum(max(0, end) for end in ends)
    return at + low, at + high + int(found.itemsize)


def _within(found: Any, host: Any) -> bool:
    (low, high), (begin, end) = _bounds(found), _bounds(host)
    return begin <= low and high <= end


def _lie_apart(arrays: list[Any]) -> bool:
    """Whether each can be written down by itself: no memory is shared, and none is left out."""
    bounds = sorted(map(_bounds, arrays))
    apart = all(before[1] <= after[0] for before, after in pairwise(bounds))
    return apart and all(map(_contiguous, arrays))


def _own_words(found: Any) -> Any:
    order = "F" if found.flags.f_contiguous and not found.flags.c_contiguous else "C"
    return ["array", found.dtype.str, list(found.shape), order, found.flags.writeable, found]


def _view(found: Any, host: Any, at: Any) -> Any:
    offset = found.__array_interface__["data"][0] - host.__array_interface__["data"][0]
    return ["view", at, found.dtype.str, list(found.shape), list(found.strides), offset]


def digest_of(content: Any) -> bytes:
    """A hash of what an object consists of; words of arrays are not copied for it."""
    made = blake2b(digest_size=16)
    if content[0] == "array":
        *head, found = content
        made.update(msgspec.msgpack.encode(head))
        flat = (found.T if head[3] == "F" else np.ascontiguousarray(found)).reshape(-1)
        if flat.nbytes:
            made.update(flat.view(np.uint8).data)
    else:
        made.update(msgspec.msgpack.encode(content))
    return made.digest()


def written(content: Any) -> Any:
    """Content as it is saved."""
    if content[0] != "array":
        return content
    *head, found = content
    return [*head, found.tobytes(head[3])]


def attributes_of(found: object) -> list[str]:
    """Names of all attributes that an object has of its own, in the order in which it got them."""
    slots = [
        name
        for part in type(found).__mro__
        for name in _slots_of(part)
        if name not in ("__dict__", "__weakref__") and hasattr(found, name)
    ]
    return [*slots, *getattr(found, "__dict__", ())]


def _slots_of(kind: type) -> tuple[str, ...]:
    slots = vars(kind).get("__slots__", ())
    return (slots,) if isinstance(slots, str) else tuple(slots)


def _is_ours(kind: type) -> bool:
    return kind.__module__.split(".")[0].startswith(("weft", "scipy"))


#: Of libraries whose other objects never change: hashes under way. A cipher by blocks keeps nothing
#: from one to the next; where it is a stream, its owner says ``moves_unseen``.
_MOVING = ("AEADEncryptionContext", "AEADDecryptionContext", "Hash", "HMAC")


def _never_changes(kind: type) -> bool:
    fixed = kind.__module__.split(".")[0] in ("cryptography", "_cffi_backend", "re", "datetime")
    return fixed and kind.__qualname__ not in _MOVING


def _name_of(kind: type) -> tuple[str, str]:
    return kind.__module__, kind.__qualname__


def _qualname(found: Any) -> str:
    return str(getattr(found, "__qualname__", None) or found.__name__)


def _step(key: object, place: int) -> object:
    return key if isinstance(key, str | int) else ("value", place)


def _sorted(values: Any) -> list[Any]:
    return sorted(values, key=msgspec.msgpack.encode)


def _plain(state: Any) -> Any:
    """The state of a generator of random numbers, whose integers are wide."""
    if isinstance(state, dict):
        return [[key, _plain(x)] for key, x in state.items()]
    if isinstance(state, np.ndarray):
        return ["array", state.dtype.str, state.tobytes()]
    return str(state) if isinstance(state, int) else state
