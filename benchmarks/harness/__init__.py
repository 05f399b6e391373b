"""What every benchmark shares: a table with the anchor beside our figure, and JSON rows."""

from __future__ import annotations

import argparse
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True)
class Row:
    """One figure.

    ``anchor`` is what it is held against (a paper's figure, a peer in the same run), ``bar``
    what it must reach, None where it is only for the record.
    """

    name: str
    value: float
    unit: str
    anchor: float | None
    bar: float | None
    better: Literal["lower", "higher"]

    @property
    def met(self) -> bool | None:
        if self.bar is None:
            return None
        return self.value <= self.bar if self.better == "lower" else self.value >= self.bar


@dataclass(frozen=True)
class Number:
    """An option that is a number: its default, its default in a smoke run, what it is for."""

    default: float
    smoke: float
    help: str


class Report:
    """Collects rows, prints them as they come in a table, writes them as JSON.

    Parameters
    ----------
    anchor
        Heading of what the figures are held against.
    arguments
        Of the command line; None: those of this process.
    numbers
        Further options that are numbers.

    Attributes
    ----------
    smoke
        Whether to run all code on tiny data, in seconds: its figures say nothing, so no bar is
        judged.
    """

    def __init__(
        self,
        title: str,
        anchor: str,
        arguments: Sequence[str] | None = None,
        numbers: Mapping[str, Number] | None = None,
    ) -> None:
        parser = argparse.ArgumentParser(description=title)
        parser.add_argument("--json", type=Path, metavar="FILE", help="write the rows here too")
        parser.add_argument("--only", default="", help="run only what has this in its name")
        parser.add_argument(
            "--smoke", action="store_true", help="run all code on tiny data, and judge nothing"
        )
        for name, number in (numbers or {}).items():
            text = f"{number.help} (default {number.default:g}, with --smoke {number.smoke:g})"
            parser.add_argument(f"--{name}", type=float, help=text)
        self._options = parser.parse_args(arguments)
        self.smoke: bool = self._options.smoke
        self._numbers = dict(numbers or {})
        self._title = f"{title} (smoke run: the figures say nothing)" if self.smoke else title
        self._anchor = anchor
        self._rows: list[Row] = []
        self._lacking: list[tuple[str, str]] = []

    def number(self, name: str) -> float:
        """What an option that is a number was set to."""
        given: float | None = getattr(self._options, name.replace("-", "_"))
        default = self._numbers[name].smoke if self.smoke else self._numbers[name].default
        return default if given is None else given

    @property
    def missed(self) -> bool:
        """Whether a figure did not reach its bar."""
        return any(row.met is False for row in self._rows)

    def wants(self, name: str) -> bool:
        return self._options.only in name

    def add(
        self,
        name: str,
        value: float,
        unit: str,
        *,
        anchor: float | None = None,
        bar: float | None = None,
        better: Literal["lower", "higher"] = "lower",
    ) -> None:
        bar = None if self.smoke else bar
        self._rows.append(Row(name, value, unit, anchor, bar, better))
        print(f"{name}: {value:.4g} {unit}", flush=True)

    def lacks(self, name: str, peer: str) -> None:
        """A figure that needs a peer which is not there."""
        self._lacking.append((name, f"{peer} is not available"))
        print(f"{name}: {peer} is not available", flush=True)

    def close(self) -> None:
        table = Table(title=self._title)
        for heading in ("", "Weft", "unit", self._anchor, "bar", "met"):
            table.add_column(heading, justify="left" if heading in ("", "unit") else "right")
        for row in self._rows:
            sign = "≤" if row.better == "lower" else "≥"
            table.add_row(
                row.name,
                f"{row.value:.4g}",
                row.unit,
                "" if row.anchor is None else f"{row.anchor:g}",
                "" if row.bar is None else f"{sign} {row.bar:g}",
                {None: "", True: "yes", False: "NO"}[row.met],
            )
        for name, why in self._lacking:
            table.add_row(name, "", why, "", "", "")
        Console(width=110).print(table)
        if self._options.json is not None:
            rows = [{**asdict(row), "met": row.met} for row in self._rows]
            self._options.json.write_text(json.dumps(rows, indent=1) + "\n")
