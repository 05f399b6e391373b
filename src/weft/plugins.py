"""Plug-ins: packages beside Weft that add commands, data sets, splits and kinds of jobs.

A package declares an entry point in the group ``weft.plugins`` that names a `Plugin`. It is
imported when commands are built, or when a name is looked up that Weft itself does not have.
A plug-in that cannot be loaded is left out; a sentence says why wherever its names are missed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from configparser import ConfigParser
from configparser import Error as NotEntryPoints
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cached_property
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, Literal, TypeVar

from weft.errors import DataError

GROUP = "weft.plugins"

Kind = Literal["commands", "data_sets", "splits", "scenes", "job_kinds", "messages"]
T = TypeVar("T")


@dataclass(frozen=True)
class Command:
    """A command that a plug-in adds to ``weft``.

    Attributes
    ----------
    run
        A function as Typer takes it, or a `typer.Typer` with commands of its own.
    epilog
        The last line of its help: an example.
    """

    run: Any
    epilog: str | None = None


@dataclass(frozen=True)
class Plugin:
    """What a package adds to Weft; each function is called when its kind of name is looked up.

    Attributes
    ----------
    commands
        Commands by name; ``"keys print"`` is ``print`` in the group ``keys``.
    data_sets
        `weft.data.named_data_sets.DataSet` by name.
    splits
        Ways to cut a table, by name: functions of a `Table` that return a `Split`.
    scenes
        Published data that is cut and dealt to parties, by name, for job kinds that read such.
    job_kinds
        `weft.network.job_kind_interface.JobKind` by name: the ``kind`` of its tasks, and the
        section of a config that asks for it.
    messages
        Modules that declare phases, by their names.
    """

    commands: Callable[[], Mapping[str, Command]] = dict
    data_sets: Callable[[], Mapping[str, Any]] = dict
    splits: Callable[[], Mapping[str, Callable[..., Any]]] = dict
    scenes: Callable[[], Mapping[str, Any]] = dict
    job_kinds: Callable[[], Mapping[str, Any]] = dict
    messages: Callable[[], Mapping[str, Any]] = dict


@dataclass
class _Added(Generic[T]):
    """What all plug-ins add of one kind, and what is wrong with those that are left out."""

    values: dict[str, T] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


class Registry(Mapping[str, T]):
    """Values by name: Weft's own first, then those that plug-ins add.

    Parameters
    ----------
    kind
        The attribute of `Plugin` to ask.
    own
        Weft's own, which need no plug-in; a plug-in cannot replace them.
    accepts
        Whether a plug-in's value is of the right type.
    """

    def __init__(self, kind: Kind, own: Mapping[str, T], accepts: Callable[[Any], bool]) -> None:
        self._kind, self._own, self._accepts = kind, dict(own), accepts

    def __getitem__(self, name: str) -> T:
        return self._own[name] if name in self._own else self._added.values[name]

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        yield from self._added.values

    def __len__(self) -> int:
        return len(self._own) + len(self._added.values)

    def find(self, name: str, noun: str) -> T:
        """The value of that name; refuses one that is not there.

        Parameters
        ----------
        noun
            What is looked up, for the refusal: "data set".
        """
        if name not in self:
            near = get_close_matches(name, self, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"choose one of {', '.join(self)}"
            raise DataError(f"there is no {noun} {name!r}; {hint}{self.left_out()}")
        return self[name]

    @property
    def problems(self) -> list[str]:
        """A sentence for each plug-in, or name of one, that is left out."""
        return self._added.problems

    def left_out(self) -> str:
        """The problems, to append to the sentence that says which names there are."""
        return "".join(f"; {problem}" for problem in self.problems)

    @cached_property
    def _added(self) -> _Added[T]:
        added = _Added[T]()
        for name, target in installed().items():
            try:
                values = getattr(_plugin(target), self._kind)()
                for entry, value in values.items():
                    self._add(added, name, entry, value)
            # A plug-in is code of others: whatever it raises must not stop Weft's own commands.
            except Exception as error:
                reason = f"{type(error).__name__}: {error}".splitlines()[0].rstrip(".")
                added.problems.append(f"plug-in '{name}' could not be loaded ({reason})")
        return added

    def _add(self, added: _Added[T], plugin: str, name: str, value: Any) -> None:
        if name in self._own or name in added.values:
            added.problems.append(f"plug-in '{plugin}' adds '{name}', which there is already")
        elif not self._accepts(value):
            added.problems.append(
                f"plug-in '{plugin}' adds '{name}' as {type(value).__name__}, which is no entry of "
                f"{self._kind}"
            )
        else:
            added.values[name] = value


def how_to_install(name: str) -> str:
    """How to get what a plug-in that is not installed would add, as a part of a sentence."""
    from importlib import metadata  # Slow to import, and nothing else here needs it.

    try:
        extras = metadata.metadata("weft").get_all("Provides-Extra") or []
    except metadata.PackageNotFoundError:
        extras = []
    hint = f" (pip install 'weft[{name}]')" if name in extras else ""
    return f"install the plug-in that adds it{hint}"


def _plugin(target: str) -> Plugin:
    module, _, attribute = target.partition(":")
    found = getattr(import_module(module), attribute)
    if not isinstance(found, Plugin):
        raise TypeError(f"{target} is no weft.plugins.Plugin")
    return found


def installed() -> dict[str, str]:
    """Name → ``module:object`` of every plug-in that an installed package declares.

    ``importlib.metadata`` would tell the same, in 40 ms instead of 5: every ``weft --help`` waits
    for it.
    """
    found: dict[str, str] = {}
    for folder in sys.path:
        for pattern in ("*.dist-info", "*.egg-info"):
            for path in sorted(Path(folder or ".").glob(f"{pattern}/entry_points.txt")):
                for name, target in _declared(path).items():
                    found.setdefault(name, target)
    return found


class _EntryPoints(ConfigParser):
    """The format of ``entry_points.txt``, whose names keep their capitals."""

    def optionxform(self, optionstr: str) -> str:
        return optionstr


def _declared(path: Path) -> dict[str, str]:
    try:
        text = path.read_text(encoding="utf-8")
        if f"[{GROUP}]" not in text:
            return {}
        parser = _EntryPoints(delimiters=("=",), interpolation=None)
        parser.read_string(text)
    except (OSError, UnicodeDecodeError, NotEntryPoints):
        return {}  # Some other package's file: pip would complain about it, not Weft.
    return dict(parser[GROUP])
