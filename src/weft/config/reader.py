"""TOML and plain values into structs: every mistake is one sentence.

The structs say what is allowed; msgspec checks it and names the place of a mistake, such as
``$.solver.gap``. Here that becomes a sentence with the section, the key, what is wrong and what to
write instead.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from typing import Any, TypeVar, get_args, get_origin

import msgspec
from msgspec import inspect

from weft.errors import ConfigError, WeftError

T = TypeVar("T")
#: The way to a value: keys of tables and positions in lists.
Steps = Sequence[str | int]


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
        return msgspec.convert(values, kind, strict=strict)
    except msgspec.ValidationError as error:
        raise ConfigError(_sentence(str(error), kind, values, where)) from None
    except WeftError as error:
        place = _origin(kind, values)
        # A struct's own check names the key; without a section the sentence is whole.
        named = place or where.endswith("]")
        title = f"{_title(place, values, where)} " if named else ""
        raise ConfigError(f"{title}{error}") from None


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


def _sentence(message: str, kind: Any, values: Any, where: str) -> str:
    told, _, path = message.partition(" - at ")
    steps = _steps(path.strip("`"), kind, values)
    if match := re.fullmatch(r"Object contains unknown field `(.*)`", told):
        names = [field.encode_name for field in _fields(_type_at(kind, steps))]
        return _unknown(match[1], names, _title(steps, values, where))
    if match := re.fullmatch(r"Object missing required field `(.*)`", told):
        return _needs(match[1], kind, steps, values, where)
    if not steps:
        return f"{where} must be a table of keys and values"
    # Positions within a list of numbers or texts: the mistake is the key's.
    while len(steps) > 1 and isinstance(steps[-1], int) and not _fields(_type_at(kind, steps)):
        steps = steps[:-1]
    *table, key = steps
    of, title, value = _type_at(kind, steps), _title(table, values, where), _value_at(values, steps)
    if re.match(r"Expected `object( \| null)?`", told):
        return _no_table(steps, values, where)
    if re.match(r"Expected `array( \| null)?`", told) and _fields(of):
        return f"write [[{key}]] with two brackets, once for each {key}"
    choices = [v for arm in _arms(of) if isinstance(arm, inspect.LiteralType) for v in arm.values]
    if told.startswith("Invalid enum value"):
        hint = closest(str(value), map(str, choices))
        known = ", ".join(map(str, choices))
        return f"{title} {key} = {value!r} is unknown{hint}; choose one of {known}"
    if re.search(r"of length|matching regex", told):
        return _needs(str(key), kind, table, values, where)
    if match := re.fullmatch(r"Expected `(.*)` (>=|>|<=|<) (.*)", told):
        return f"{title} {key} = {value!r} is out of range; give {_bounds(of, _WORDS[match[1]])}"
    told = re.sub(r"`([a-z |]+)`", lambda match: _any_of(match[1]), told)
    return f"{title} {key}: {told[0].lower()}{told[1:]}"


def _unknown(key: str, names: list[str], title: str) -> str:
    close = get_close_matches(key, names, 1)
    hint = f" (did you mean '{close[0]}'?)" if close else f"; it takes {', '.join(names)}"
    return f"{title} has no key '{key}'{hint}"


def _needs(key: str, kind: Any, table: Steps, values: Any, where: str) -> str:
    """A key that is missing, or that says nothing."""
    shown = [
        example
        for arm in _arms(_type_at(kind, [*table, key]), keep=True)
        if isinstance(arm, inspect.Metadata)
        for example in (arm.extra_json_schema or {}).get("examples", ())
    ]
    hint = f", such as {key} = {json.dumps(shown[0])}" if shown else "; give it a value"
    return f"{_title(table, values, where)} needs {key}{hint}"


def _no_table(steps: Steps, values: Any, where: str) -> str:
    if len(steps) > 1:
        return f"{_title(steps, values, where)} must be a table of keys and values"
    return f"{steps[0]} must be a section [{steps[0]}] with keys of its own"


def _bounds(of: inspect.Type, what: str) -> str:
    """The numbers that are allowed, in words."""
    for arm in _arms(of):
        if not isinstance(arm, inspect.IntType | inspect.FloatType):
            continue
        if arm.ge is not None and arm.le is not None:
            return f"{what} from {arm.ge:g} to {arm.le:g}"
        limits = {
            "of at least": arm.ge,
            "above": arm.gt,
            "of at most": arm.le,
            "below": arm.lt,
        }
        told = [f"{words} {limit:g}" for words, limit in limits.items() if limit is not None]
        if told:
            return f"{what} {' and '.join(told)}"
    return what


def _any_of(kinds: str) -> str:
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | ") if kind != "null")


def _title(steps: Steps, values: Any, where: str) -> str:
    """A table by the name that its author knows it by."""
    if not steps:
        return where
    *table, last = steps
    if isinstance(last, int):
        named = _value_at(values, [*steps, "name"])
        told = f"'{named}'" if isinstance(named, str) else str(last + 1)
        return f"{'.'.join(map(str, table))} {told}"
    return f"[{'.'.join(map(str, steps))}]"


# ── places ────────────────────────────────────────────────────────────────────────────────────

_LISTS = (inspect.ListType, inspect.VarTupleType)


def _steps(path: str, kind: Any, values: Any) -> list[str | int]:
    """``$.party[0].file`` as steps; msgspec hides keys of open tables, which are looked for."""
    steps: list[str | int] = []
    for name, position in re.findall(r"\.([^.\[]+)|\[(\d+|\.\.\.)\]", path):
        if name:
            steps.append(name)
        elif position != "...":
            steps.append(int(position))
        else:
            steps.append(_culprit(kind, values, steps))
    return steps


def _culprit(kind: Any, values: Any, steps: Steps) -> str:
    """The key of an open table whose value is refused: the table with it alone is refused too."""
    table = _value_at(values, steps)
    for key, value in table.items():
        try:
            msgspec.convert(_replaced(values, steps, {key: value}), kind)
        except msgspec.ValidationError:
            return str(key)
        except WeftError:
            continue
    return str(next(iter(table)))


def _replaced(values: Any, steps: Steps, new: Any) -> Any:
    """A copy with something else at one place."""
    if not steps:
        return new
    copy = values.copy()
    copy[steps[0]] = _replaced(values[steps[0]], steps[1:], new)
    return copy


def _origin(kind: Any, values: Any) -> list[str | int]:
    """The innermost table whose own check refuses it."""
    for step, inner, part in _parts(kind, values):
        try:
            msgspec.convert(part, inner)
        except WeftError:
            return [step, *_origin(inner, part)]
        except msgspec.ValidationError:
            continue
    return []


def _parts(kind: Any, values: Any) -> Iterator[tuple[str | int, Any, Any]]:
    """Keys or positions, types and values of what a table or list holds."""
    inner = get_args(kind)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and isinstance(values, dict):
        for field in msgspec.structs.fields(kind):
            if field.encode_name in values:
                yield field.encode_name, field.type, values[field.encode_name]
    elif get_origin(kind) is dict and isinstance(values, dict):
        for key, value in values.items():
            yield key, inner[1], value
    elif get_origin(kind) in (list, tuple) and isinstance(values, list):
        for number, value in enumerate(values):
            yield number, inner[0], value
    else:
        for arm in inner:
            yield from _parts(arm, values)


def _value_at(values: Any, steps: Steps) -> Any:
    """What is at a place; None where nothing is."""
    for step in steps:
        if isinstance(values, dict):
            values = values.get(step)
        elif isinstance(values, list | tuple) and isinstance(step, int):
            values = values[step]
        else:
            return None
    return values


def _type_at(kind: Any, steps: Steps) -> inspect.Type:
    """The type that a place has."""
    of = inspect.type_info(kind)
    for step in steps:
        for arm in _arms(of):
            if isinstance(arm, inspect.DictType):
                of = arm.value_type
            elif isinstance(arm, _LISTS) and isinstance(step, int):
                of = arm.item_type
            elif isinstance(arm, inspect.StructType | inspect.DataclassType):
                of = next(field.type for field in arm.fields if field.encode_name == step)
            else:
                continue
            break
    return of


def _arms(of: inspect.Type, *, keep: bool = False) -> Iterator[inspect.Type]:
    """The types that a union allows, without their remarks unless these are to be kept."""
    if isinstance(of, inspect.Metadata):
        if keep:
            yield of
        yield from _arms(of.type, keep=keep)
    elif isinstance(of, inspect.UnionType):
        for arm in of.types:
            yield from _arms(arm, keep=keep)
    else:
        yield of


def _fields(of: inspect.Type) -> tuple[inspect.Field, ...]:
    """Keys of a table that has a fixed set of them, or of the tables in a list."""
    for arm in _arms(of):
        if isinstance(arm, inspect.StructType | inspect.DataclassType):
            return arm.fields
        if isinstance(arm, _LISTS) and (found := _fields(arm.item_type)):
            return found
    return ()
