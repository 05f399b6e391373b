"""TOML and plain values into structs: every mistake is one sentence.

The structs say what is allowed, and msgspec checks it. Here a mistake becomes a sentence with the
section, the key, what is wrong and what to write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, NamedTuple, TypeVar, get_args, get_origin

import msgspec

from weft.errors import ConfigError, WeftError
from weft.thread_safe_decoding import prepared

T = TypeVar("T")
#: The way to a value: keys of tables and positions in lists.
_Steps = tuple[str | int, ...]


def read_toml(path: Path, missing: str) -> dict[str, Any]:
    """The content of a file, not checked yet; ``missing`` says what to do where there is none."""
    try:
        content: dict[str, Any] = msgspec.toml.decode(path.read_bytes())
    except FileNotFoundError:
        raise ConfigError(missing) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: is not valid TOML ({error}); correct that line") from None
    return content


def checked(kind: type[T], values: object, where: str, *, strict: bool = True) -> T:
    """Build a struct or dataclass from plain values, or say in one sentence what is wrong.

    Parameters
    ----------
    values
        Keys and values, as TOML or keyword arguments give them.
    where
        What the values are, to begin the sentence with; sections inside go by their own names.
    strict
        Whether texts such as "3" are no numbers.
    """
    try:
        return msgspec.convert(values, prepared(kind), strict=strict)
    except (msgspec.ValidationError, WeftError) as error:
        mistake = _innermost(_Mistake((), kind, values, error), strict)
        raise ConfigError(_sentence(mistake, values, where)) from None


@contextmanager
def naming(file: str) -> Iterator[None]:
    """Put a file's name in front of the sentence of an error raised inside."""
    try:
        yield
    except WeftError as error:
        raise ConfigError(f"{file}: {error}") from None


def known_keys(values: Iterable[str], names: Iterable[str], where: str) -> None:
    """Refuse a key that is none of the names, and say which one comes close."""
    names = list(names)
    for key in values:
        if key not in names:
            raise ConfigError(_unknown(key, names, where))


def closest(word: str, names: Iterable[str]) -> str:
    """A hint at the name that a misspelt word comes closest to; empty where none does."""
    close = get_close_matches(word, list(names), 1, cutoff=0.4)
    return f" (the closest is '{close[0]}')" if close else ""


# ── places ────────────────────────────────────────────────────────────────────────────────────


class _Mistake(NamedTuple):
    """Where a value does not fit, the type it should have, the value, and what msgspec says."""

    steps: _Steps
    kind: Any
    value: Any
    error: Exception


def _innermost(mistake: _Mistake, strict: bool) -> _Mistake:
    """The part of a table or list that is to blame: msgspec does not tell keys of open tables."""
    for step, kind, value in _parts(mistake.kind, mistake.value):
        try:
            msgspec.convert(value, prepared(kind), strict=strict)
        except (msgspec.ValidationError, WeftError) as error:
            return _innermost(_Mistake((*mistake.steps, step), kind, value, error), strict)
    return mistake


def _parts(kind: Any, value: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Keys or positions, types and values of what a table or list holds."""
    inner, origin = get_args(kind), get_origin(kind)
    if isinstance(value, dict) and (fields := _fields(kind)):
        for field in fields:
            if field.encode_name in value:
                yield field.encode_name, field.type, value[field.encode_name]
    elif isinstance(value, dict) and origin is dict:
        for key, held in value.items():
            yield key, inner[1], held
    elif isinstance(value, list) and origin in (list, tuple):
        for number, held in enumerate(value):
            yield number, inner[0], held
    else:
        for arm in inner:
            yield from _parts(arm, value)


def _fields(kind: Any) -> tuple[msgspec.structs.FieldInfo, ...]:
    """The keys of a table that has a fixed set of them."""
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return msgspec.structs.fields(kind)
    return ()


def _arms(kind: Any) -> Iterator[Any]:
    """A type, the types that it is a union of, and remarks on them."""
    yield kind
    if get_origin(kind) not in (Literal, dict, list, tuple):
        for arm in get_args(kind):
            yield from _arms(arm)


# ── sentences ─────────────────────────────────────────────────────────────────────────────────

#: Types, as msgspec's sentences have them, in the words of a config.
_WORDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def _sentence(mistake: _Mistake, values: Any, where: str) -> str:
    steps, kind, _, error = mistake
    title = _title(steps, values, where)
    if isinstance(error, WeftError):
        # A struct's own check names the key; without a section its sentence is whole.
        return f"{title} {error}" if steps or where.endswith("]") else str(error)
    told = str(error).partition(" - at ")[0]
    fields = {field.encode_name: field for arm in _arms(kind) for field in _fields(arm)}
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", told):
        return _unknown(match[1], list(fields), title)
    if match := re.fullmatch(r"Object missing required field `(.*)`", told):
        return _needs(match[1], fields[match[1]].type, title)
    if re.match(r"Expected `object( \| null)?`", told):
        if len(steps) == 1:
            return f"{steps[0]} must be a section [{steps[0]}] with keys of its own"
        return f"{title} must be a table of keys and values"
    # A mistake within a list of numbers or texts is the key's.
    while isinstance(steps[-1], int):
        steps = steps[:-1]
    return _about_key(str(steps[-1]), told, mistake, _title(steps[:-1], values, where))


def _about_key(key: str, told: str, mistake: _Mistake, title: str) -> str:
    _, kind, value, _ = mistake
    if re.match(r"Expected `array( \| null)?`, got `object`", told):
        return f"write [[{key}]] with two brackets, once for each {key}"
    if told.startswith("Invalid enum value"):
        literals = [arm for arm in _arms(kind) if get_origin(arm) is Literal]
        choices = [str(choice) for choice in get_args(literals[0])]
        hint = closest(str(value), choices)
        return f"{title} {key} = {value!r} is unknown{hint}; choose one of {', '.join(choices)}"
    if re.search(r"of length|matching regex", told):
        return _needs(key, kind, title)
    if match := re.fullmatch(r"Expected `(.*)` (>=|>|<=|<) (.*)", told):
        return f"{title} {key} = {value!r} is out of range; give {_WORDS[match[1]]} {_range(kind)}"
    told = re.sub(r"`([a-z |]+)`", lambda match: _any_of(match[1]), told)
    return f"{title} {key}: {told[0].lower()}{told[1:]}"


def _unknown(key: str, names: list[str], title: str) -> str:
    close = get_close_matches(key, names, 1)
    hint = f" (did you mean '{close[0]}'?)" if close else f"; it takes {', '.join(names)}"
    return f"{title} has no key '{key}'{hint}"


def _needs(key: str, kind: Any, title: str) -> str:
    """A key that is missing, or that says nothing."""
    shown = [example for remark in _remarks(kind) for example in remark.examples or ()]
    hint = f", such as {key} = {json.dumps(shown[0])}" if shown else "; give it a value"
    return f"{title} needs {key}{hint}"


def _range(kind: Any) -> str:
    """The numbers that are allowed, in words."""
    for remark in _remarks(kind):
        if remark.ge is not None and remark.le is not None:
            return f"from {remark.ge} to {remark.le}"
        limits = {"of at least": remark.ge, "above": remark.gt, "of at most": remark.le}
        return " and ".join(f"{words} {at}" for words, at in limits.items() if at is not None)
    return ""


def _remarks(kind: Any) -> list[msgspec.Meta]:
    return [arm for arm in _arms(kind) if isinstance(arm, msgspec.Meta)]


def _any_of(kinds: str) -> str:
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")


def _title(steps: _Steps, values: Any, where: str) -> str:
    """A table by the name that its author knows it by."""
    if not steps:
        return where
    if not isinstance(steps[-1], int):
        return f"[{'.'.join(map(str, steps))}]"
    held = values
    for step in steps:
        held = held[step]
    named = held.get("name") if isinstance(held, dict) else None
    title = f"'{named}'" if isinstance(named, str) else str(steps[-1] + 1)
    return f"{'.'.join(map(str, steps[:-1]))} {title}"
