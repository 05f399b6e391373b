"""What can be said about algorithms, all of it from the registry: for tables, JSON and docs."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import msgspec

from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.run_settings import Settings

CUTS = {
    "any": "any overlap of rows and columns",
    "rows": "every party has all features, and every sample is at one party",
    "columns": "every party has all samples, and every feature is at one party",
    "whole": "one party has the whole table",
}
LOSSES = {
    "any": "any",
    "smooth": "smooth ones",
    "rounded": "smooth ones and hinge",
    "kinks": "those with kinks",
}
_KINDS = {float: "number", int: "whole number", str: "text", bool: "true or false"}


@dataclass(frozen=True)
class Option:
    """Something that an algorithm can be told.

    Attributes
    ----------
    kind
        What it may be, in words.
    default
        Its default in TOML; None where it has none.
    about
        What it means.
    """

    name: str
    kind: str
    default: str | None
    about: str


def options_of(kind: type[msgspec.Struct], only: Iterable[str] | None = None) -> list[Option]:
    """The fields of a struct, with what its docstring, or a parent's, says of them."""
    hints, told = get_type_hints(kind), meanings(kind)
    wanted = None if only is None else set(only)
    return [
        Option(
            field.encode_name,
            _kind(hints[field.name]),
            _toml(field.default),
            told.get(field.name, ""),
        )
        for field in msgspec.structs.fields(kind)
        if wanted is None or field.name in wanted
    ]


def meanings(kind: type) -> dict[str, str]:
    """Field to its words in the section ``Attributes`` of numpydoc; children override parents."""
    found: dict[str, str] = {}
    for one in reversed(kind.__mro__):
        text = inspect.cleandoc(one.__dict__.get("__doc__") or "")
        _, _, section = text.partition("Attributes\n----------\n")
        names: list[str] = []
        for line in section.splitlines():
            if line and not line.startswith(" "):
                names = re.split(r",\s*", line.partition(" : ")[0].strip())
                found.update(dict.fromkeys(names, ""))
            elif line.strip():
                for name in names:
                    found[name] = f"{found[name]} {line.strip()}".strip()
    # A config has no word for None: it leaves the key out.
    return {n: w.replace("``", "").replace("None:", "left out:") for n, w in found.items()}


def describe(algorithm: Algorithm) -> dict[str, Any]:
    """Everything about one algorithm, as plain values."""
    return {
        "name": algorithm.name,
        "about": algorithm.about,
        "recommended": algorithm.ours,
        "cut": algorithm.cut,
        "everyone": algorithm.everyone,
        "losses": algorithm.losses,
        "guarantee": algorithm.guarantee,
        "round_trips": algorithm.trips,
        "reference": algorithm.reference,
        "coordinator_sees": algorithm.coordinator_sees,
        "parties_see": algorithm.parties_see,
        "several_lambdas": algorithm.spans,
        "checkpoints": algorithm.saves,
        "weighs_parties": algorithm.weighs,
        "options": [asdict(option) for option in options_of(algorithm.options)],
        "settings": [asdict(option) for option in options_of(Settings, algorithm.reads)],
        "example": example(algorithm),
    }


def example(algorithm: Algorithm) -> str:
    """The sections of a config that choose an algorithm, with the defaults of what it is told."""
    lines = ["[solver]", f'name = "{algorithm.name}"']
    for option in options_of(Settings, algorithm.reads):
        lines.append(_line(option))
    told = [_line(option) for option in options_of(algorithm.options)]
    return "\n".join([*lines, *(["", "[solver.options]", *told] if told else [])])


def _line(option: Option) -> str:
    """A default can be written down, unless it is to be found in the run."""
    if option.default is None:
        return f"# {option.name} = …  ({option.kind}; left out: chosen in the run)"
    return f"{option.name} = {option.default}"


def markdown_table(algorithms: Mapping[str, Algorithm] = ALGORITHMS) -> str:
    """The table of all algorithms for the documentation."""
    titles = ("algorithm", "table", "parties", "losses", "guarantees", "round trips", "from")
    lines = [f"| {' | '.join(titles)} |", "|---" * len(titles) + "|"]
    for algorithm in algorithms.values():
        name = f"**`{algorithm.name}`**" if algorithm.ours else f"`{algorithm.name}`"
        cells = (name, *needs(algorithm), algorithm.guarantee, algorithm.trips, algorithm.reference)
        lines.append(f"| {' | '.join(cell.replace('|', '∣') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def needs(algorithm: Algorithm) -> tuple[str, str, str]:
    """Cut of the table, who takes part, and losses, in a word each."""
    return algorithm.cut, "all" if algorithm.everyone else "any", algorithm.losses


def _kind(hint: Any) -> str:
    """A type in words: ``float | None`` is a number."""
    if get_origin(hint) is Literal:
        return " | ".join(str(value) for value in get_args(hint))
    if get_origin(hint) in (Union, types.UnionType):
        kinds = [_kind(part) for part in get_args(hint) if part is not type(None)]
        return " or ".join(dict.fromkeys(kinds))
    origin = get_origin(hint)
    if origin in (list, tuple):
        inner = [part for part in get_args(hint) if part is not Ellipsis]
        return f"list of {_kind(inner[0])}s" if inner else "list"
    if origin is dict or hint is dict:
        return "table"
    return _KINDS.get(hint, getattr(hint, "__name__", str(hint)))


def _toml(default: Any) -> str | None:
    """A default as TOML writes it, which has no word for nothing."""
    if default is None or default is msgspec.NODEFAULT:
        return None
    return json.dumps(default, ensure_ascii=False)
