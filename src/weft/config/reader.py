"""Plain values against what they should be: one sentence for each mistake."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from difflib import get_close_matches
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

import msgspec

from weft.errors import ConfigError, WeftError

T = TypeVar("T")


def checked(kind: type[T], values: object, where: str) -> T:
    """Build a struct or dataclass from plain values, or say in one sentence what is wrong.

    Parameters
    ----------
    kind
        A msgspec struct or a dataclass with annotations.
    values
        Keys and values, as TOML or keyword arguments give them.
    where
        What the sentence begins with.
    """
    if not isinstance(values, dict):
        raise ConfigError(f"{where} must be a table of keys and values")
    hints = get_type_hints(kind)
    names = {name: name for name in hints}
    if issubclass(kind, msgspec.Struct):
        names = {field.encode_name: field.name for field in msgspec.structs.fields(kind)}
    known_keys(values, names, where)
    for key, value in values.items():
        choices = _choices(hints[names[key]])
        if choices and value not in choices:
            raise ConfigError(
                f"{where} {key} = {value!r} is unknown{closest(str(value), choices)}; choose one "
                f"of {', '.join(choices)}"
            )
    try:
        return msgspec.convert(values, kind)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where} {plain(error)}") from None


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
            raise ConfigError(f"{where} has no key '{key}'{_did_you_mean(key, names)}")


def _did_you_mean(word: str, names: list[str]) -> str:
    close = get_close_matches(word, names, 1)
    return f" (did you mean '{close[0]}'?)" if close else f"; it takes {', '.join(names)}"


def closest(word: str, names: Iterable[str]) -> str:
    """A hint at the name that a misspelt word comes closest to; empty where none does."""
    close = get_close_matches(word, list(names), 1, cutoff=0.4)
    return f" (the closest is '{close[0]}')" if close else ""


def _choices(hint: Any) -> tuple[str, ...]:
    """The texts that a Literal, possibly optional, allows; empty for any other type."""
    options = (hint, *get_args(hint)) if get_origin(hint) is not Literal else (hint,)
    literals = [option for option in options if get_origin(option) is Literal]
    return get_args(literals[0]) if literals else ()


_KINDS = {
    "float": "a number",
    "int": "a whole number",
    "str": "text",
    "bool": "true or false",
    "array": "a list",
    "object": "a table",
    "null": "nothing",
}


def plain(error: msgspec.ValidationError) -> str:
    """A validation error in the words of a config: which key, what was expected."""
    message, _, place = str(error).partition(" - at ")
    message = re.sub(
        r"`([a-z |]+)`",
        lambda m: " or ".join(_KINDS.get(k, k) for k in m[1].split(" | ") if k != "null"),
        message,
    )
    key = re.sub(r"\[\.\.\.\]", "", place.strip("`").removeprefix("$").lstrip("."))
    told = message[0].lower() + message[1:]
    return f"{key}: {told}" if key else told
