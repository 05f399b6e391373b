"""What the neural commands say: a line of progress, and how runs ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

from weft.cli.terminal_output import StatusLine, say, say_json
from weft.report.number_format import time_text

if TYPE_CHECKING:
    from rich.table import Table

    from weft_neural.history import Round

#: What compared runs are called in tables: name, where the summary has it, what it is.
_TOLD = (
    ("HyFEM, server", ("accuracy", "server"), "one network for all blocks"),
    ("HyFEM, received", ("accuracy", "received"), "it, cut to each party's blocks; mean"),
    ("HyFEM, own", ("accuracy", "own"), "parties' networks after local steps; mean"),
    ("central", ("compared", "central"), "all samples in one hand"),
    ("alone", ("compared", "alone"), "every party by itself; mean"),
    ("FedProx, server", ("compared", "fedprox", "server"), "on the common blocks"),
    ("FedProx, own", ("compared", "fedprox", "own"), "its parties after local steps; mean"),
)


class RoundLine(StatusLine):
    """Follows neural runs, one after the other, round by round."""

    def __init__(self, *, quiet: bool = False) -> None:
        super().__init__("starting …", quiet=quiet)

    def follow(self, title: str, rounds: int) -> Callable[[Round], None]:
        """For one run of so many rounds."""
        began = monotonic()
        self.show(lambda: f"{title} · starting …")

        def tell(found: Round) -> None:
            left = (monotonic() - began) / found.turn * (rounds - found.turn)
            self.show(lambda: f"{title} · {round_text(found, rounds)} · {time_text(left)} left")

        return tell


def round_text(found: Round, rounds: int | None = None) -> str:
    """Where a run stands; of how many rounds, where that is known."""
    parts = [f"round {found.turn}" + ("" if rounds is None else f" of {rounds}")]
    if found.loss is not None:
        parts.append(f"loss {found.loss:.3g}")
    for name, accuracy in (
        ("server", found.server_accuracy),
        ("own", found.local_accuracy),
        ("received", found.received_accuracy),
    ):
        if accuracy is not None:
            parts.append(f"{name} {accuracy:.1%}")
    return " · ".join(parts)


def tell_neural(
    folder: Path | None, summary: dict[str, Any], remarks: list[str], *, json: bool
) -> None:
    """Say how a run ended, beside what it is compared with, and what its folder holds."""
    if json:
        say_json({"folder": None if folder is None else str(folder), **summary})
    else:
        say(*ending_text(folder, summary, remarks))


def ending_text(
    folder: Path | None, summary: dict[str, Any], remarks: list[str]
) -> list[str | Table]:
    """A table of accuracies, what the run cost, notes, and what its folder holds."""
    cost = summary["cost"]
    seconds = sum(cost[f"{part}_seconds"] for part in ("training", "averaging", "matching"))
    return [
        _grid(summary),
        f"{summary['name']}: {summary['rounds']} rounds, {cost['round_trips']} round trips, "
        f"{cost['bytes_down'] + cost['bytes_up']:,} bytes, {seconds:.1f} s, of which "
        f"{cost['matching_seconds']:.1f} s for matching.",
        f"Exposed: {summary['exposed']}.",
        *(f"- {note}" for note in [*summary["notes"], *remarks]),
        *(
            []
            if folder is None
            else [f"Models, history, plot, summary and report.html are in {folder}."]
        ),
    ]


def _grid(summary: dict[str, Any]) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    grid = Table(box=SIMPLE_HEAD, pad_edge=False)
    grid.add_column("", no_wrap=True)
    grid.add_column("accuracy", justify="right", no_wrap=True)
    grid.add_column("of")
    for name, path, about in _TOLD:
        found: Any = summary
        for key in path:
            found = None if found is None else found[key]
        if found is None:
            continue
        spread = _spread(summary, path)
        grid.add_row(name, f"{found:.1%}{'' if spread is None else f' ± {spread:.1%}'}", about)
    if not grid.row_count:
        grid.add_row("–", "–", "nobody kept samples for measuring; set test_share in [neural]")
    return grid


def _spread(summary: dict[str, Any], path: tuple[str, ...]) -> float | None:
    """Standard deviation over parties, where the summary has one."""
    *before, last = path
    holder: Any = summary
    for key in before:
        holder = holder[key]
    found: float | None = holder.get(f"{last}_spread")
    return found
