"""Saving what has become of a tree of objects since it was made, and putting it back.

Whoever can make the objects anew, as they were at some moment, brings them from there to where they
were saved. Large arrays that have not changed in between are not saved again, nor are functions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Mapping
from functools import partial
from hashlib import blake2b
from pathlib import Path
from types import MethodType
from typing import Any

import msgspec
import numpy as np

from weft.errors import WeftError
from weft.storage.object_graph import (
    Graph,
    Opaque,
    attributes_of,
    digest_of,
    known_class,
    written,
)
from weft.thread_safe_decoding import prepared

#: Arrays of fewer bytes are saved whether they have changed or not.
_LARGE = 1024
#: Kinds that are not made anew, but must be there.
_FIXED = ("function", "cell", "opaque")
_DICTS: dict[str, Any] = {"dict": dict, "Counter": Counter, "OrderedDict": OrderedDict}
_MADE: dict[str, Any] = {**_DICTS, "list": list, "set": set, "deque": deque}


class Unlike(WeftError):
    """Objects that were made anew are not those that were saved."""


class _Node(msgspec.Struct, frozen=True, array_like=True):
    """One object: by which steps it was found at first, if it was there, and its content."""

    path: str | None
    content: Any


class _Saved(msgspec.Struct, frozen=True, array_like=True):
    digest: bytes
    nodes: list[_Node]


class ObjectState:
    """What an object consists of now, as the ground on which later states are saved.

    Parameters
    ----------
    root
        The object.
    outside
        What belongs to others, by name.

    Raises
    ------
    Opaque
        Something in it has a state that cannot be written down.
    """

    def __init__(self, root: object, outside: Mapping[str, object]) -> None:
        self._root, self._outside = root, outside
        graph = Graph(root, outside)
        self._large = {
            number: digest_of(content)
            for number, content in enumerate(graph.contents())
            if _is_large(content)
        }
        # They stay alive, so that their ids belong to nothing else.
        self._nodes, self._paths = graph.nodes, [repr(path) for path in graph.paths]
        self._numbers = {id(node): number for number, node in enumerate(self._nodes)}

    def save(self) -> bytes:
        """Its state now."""
        graph, digest = Graph(self._root, self._outside), blake2b(digest_size=32)
        nodes = []
        for number, content in enumerate(graph.contents()):
            own = digest_of(content)
            digest.update(own)
            before = self._numbers.get(id(graph.nodes[number]))
            path = None if before is None else self._paths[before]
            if before is None and content[0] in _FIXED:
                raise Opaque(f"{'.'.join(map(str, graph.paths[number]))} is a new {content[0]}")
            kept = before is not None and self._large.get(before) == own
            nodes.append(_Node(path, None if kept else written(content)))
        return msgspec.msgpack.encode(_Saved(digest.digest(), nodes))

    def restore(self, packed: bytes) -> None:
        """Bring the object, as it was made anew, to a saved state.

        Raises
        ------
        Unlike
            It is not as it was when the ground was laid, or there is no such state here.
        """
        try:
            saved = msgspec.msgpack.decode(packed, type=prepared(_Saved))
        except msgspec.MsgspecError:
            raise Unlike("it is no saved state of this version") from None
        there = dict(zip(self._paths, self._nodes, strict=True))
        try:
            _Restoring(saved.nodes, there, self._outside)
        except (Opaque, ValueError, TypeError, LookupError, AttributeError) as error:
            raise Unlike(f"it does not fit what is there ({error})") from None
        graph, digest = Graph(self._root, self._outside), blake2b(digest_size=32)
        for content in graph.contents():
            digest.update(digest_of(content))
        if digest.digest() != saved.digest:
            raise Unlike("what was put back is not what was saved")


class _Restoring:
    """Makes saved objects, or finds them, and fills them."""

    def __init__(
        self, nodes: list[_Node], there: Mapping[str, Any], outside: Mapping[str, object]
    ) -> None:
        self._saved, self._there, self._outside = nodes, there, outside
        self._made: dict[int, Any] = {}
        for number in range(len(nodes)):
            self._node(number)
        for number, node in enumerate(nodes):
            if node.content is not None:
                self._fill(self._made[number], node.content)

    # ── objects ───────────────────────────────────────────────────────────────────────────

    def _node(self, number: int) -> Any:
        if number not in self._made:
            node = self._saved[number]
            there = None if node.path is None else self._there.get(node.path)
            self._made[number] = self._empty(node.content, there)
        return self._made[number]

    def _empty(self, content: Any, there: Any) -> Any:
        """The object itself; mutable ones are filled once all are there."""
        if content is None or content[0] in _FIXED:
            if there is None:
                raise Unlike("a part of it is not there")
            return there
        kind, *told = content
        if kind in _MADE:
            return there if type(there) is _MADE[kind] else _MADE[kind]()
        if kind == "defaultdict":
            return there if type(there) is defaultdict else defaultdict(self._value(told[0]))
        if kind in ("array", "view", "objects"):
            return self._array(kind, told, there)
        if kind == "object":
            made = known_class(told[0], told[1])
            return there if type(there) is made else made.__new__(made)
        if kind == "struct":
            return self._struct(told, there)
        if kind == "method":
            owner = self._value(told[0])
            same = isinstance(there, MethodType) and there.__self__ is owner
            return there if same else getattr(owner, told[1])
        if kind == "partial":
            func, args, named = map(self._value, told)
            return there if type(there) is partial else partial(func, *args, **named)
        if kind == "random":
            found = there
            if not isinstance(there, np.random.Generator):
                found = np.random.Generator(getattr(np.random, told[0])())
            return found
        raise Unlike(f"it has a {kind}, which is not known here")

    def _struct(self, told: Any, there: Any) -> Any:
        made = known_class(told[0], told[1])
        values = {name: self._value(value) for name, value in told[2]}
        kept = type(there) is made and all(
            (old := getattr(there, name)) is new or (type(old) is type(new) and _equal(old, new))
            for name, new in values.items()
        )
        return there if kept else made(**values)

    def _array(self, kind: str, told: Any, there: Any) -> Any:
        if kind == "objects":
            same = isinstance(there, np.ndarray) and list(there.shape) == told[0]
            return there if same and there.flags.writeable else np.empty(told[0], object)
        if kind == "view":
            owner, dtype, shape, strides, offset = told
            owner = self._value(owner)
            seen = np.ndarray(
                tuple(shape), np.dtype(dtype), _bytes_of(owner), offset, tuple(strides)
            )
            return there if _same_view(there, seen) else seen
        dtype, shape, order, writeable, words = told
        found = np.zeros(tuple(shape), np.dtype(dtype), order=order)
        if words:
            flat = np.frombuffer(words, found.dtype)
            found[...] = flat.reshape(shape, order=order)
        if isinstance(there, np.ndarray) and there.dtype == found.dtype:
            if there.shape == found.shape and there.flags.writeable and writeable:
                there[...] = found
                return there
            if there.tobytes() == words and there.shape == found.shape:
                return there
        found.flags.writeable = writeable
        return found

    # ── contents ──────────────────────────────────────────────────────────────────────────

    def _fill(self, made: Any, content: Any) -> None:
        kind, *told = content
        if kind in ("list", "deque"):
            items = [self._value(item) for item in told[0]]
            made.clear()
            made.extend(items)
        elif kind == "set":
            items = [self._value(item) for item in told[0]]
            made.clear()
            made.update(items)
        elif kind in _DICTS or kind == "defaultdict":
            found = [(self._value(key), self._value(item)) for key, item in told[1]]
            made.clear()
            for key, item in found:
                made[key] = item
        elif kind == "objects":
            made.reshape(-1)[:] = [self._value(item) for item in told[1]]
        elif kind == "object":
            self._fill_object(made, told[2])
        elif kind == "random":
            made.bit_generator.state = _state_of(told[1])
        elif kind == "cell":
            made.cell_contents = self._value(told[0])

    def _fill_object(self, made: Any, attributes: Any) -> None:
        for name in attributes_of(made):
            object.__delattr__(made, name)
        for name, value in attributes:
            object.__setattr__(made, name, self._value(value))

    # ── values ────────────────────────────────────────────────────────────────────────────

    def _value(self, value: Any) -> Any:
        if not isinstance(value, list):
            return value
        kind, *told = value
        if kind == "node":
            return self._node(told[0])
        if kind == "tuple":
            return tuple(map(self._value, told[0]))
        if kind == "named":
            return known_class(told[0], told[1])._make(map(self._value, told[2]))
        if kind == "int":
            return int(told[0])
        if kind == "scalar":
            return np.frombuffer(told[1], np.dtype(told[0]))[0]
        if kind == "frozenset":
            return frozenset(map(self._value, told[0]))
        if kind == "outside":
            return self._outside[told[0]]
        if kind == "enum":
            return known_class(told[0], told[1])[told[2]]
        if kind == "global":
            return known_class(told[0], told[1])
        if kind == "path":
            return Path(told[0])
        if kind in ("range", "slice"):
            return (range if kind == "range" else slice)(*map(self._value, told[0]))
        return np.dtype(told[0])


def _is_large(content: Any) -> bool:
    return bool(content[0] == "array" and content[-1].nbytes >= _LARGE)


def _equal(old: object, new: object) -> bool:
    return not isinstance(old, np.ndarray) and bool(old == new)


def _bytes_of(owner: Any) -> Any:
    """The memory of an array, whatever its order."""
    return owner if owner.flags.c_contiguous else owner.T


def _same_view(there: Any, seen: Any) -> bool:
    """Whether an array shows the same memory in the same way."""
    return bool(
        isinstance(there, np.ndarray)
        and there.dtype == seen.dtype
        and there.__array_interface__["data"][0] == seen.__array_interface__["data"][0]
        and (there.shape, there.strides) == (seen.shape, seen.strides)
    )


def _state_of(plain: Any) -> Any:
    """The inverse of what is written of a generator of random numbers."""
    if isinstance(plain, list) and plain and plain[0] == "array":
        return np.frombuffer(plain[2], np.dtype(plain[1])).copy()
    if isinstance(plain, list):
        return {key: _state_of(value) for key, value in plain}
    return int(plain) if isinstance(plain, str) and plain.isdigit() else plain
