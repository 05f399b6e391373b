"""``weft init``."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer


def init(
    files: Annotated[list[Path], typer.Argument(help="One table for each party.")],
    id: Annotated[
        str | None, typer.Option("--id", metavar="COLUMN", help="Column of the sample ids.")
    ] = None,
    label: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="Column of the labels.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Config to write.")] = Path("config.toml"),
) -> None:
    """Draft a config from the parties' files.

    Looks at every file, takes ids and labels by the names and values of columns, and writes a
    config with a line for whatever a line can mend: columns of text are left out, labels in other
    words mapped, ids with lost zeros filled up, each with the reason above it. In a terminal it
    asks which columns hold ids and labels. Read the config, then run weft check: a proposal is no
    decision.
    """
    from weft.cli.console import say
    from weft.config.draft_config import (
        columns_of,
        draft_config,
        guess_id,
        guess_label,
        party_names,
    )
    from weft.errors import ConfigError
    from weft.storage.files import replacing

    if out.exists():
        raise ConfigError(f"{out} exists; choose another place with --out, or delete it")
    parties = party_names(files)
    columns = {name: columns_of(path) for name, path in parties.items()}
    chosen = _asked("Column of the ids", id, guess_id(columns))
    if chosen is None:
        raise ConfigError("no column looks like ids in all files; name it with --id")
    target = _asked("Column of the labels", label, guess_label(columns))
    if target is None:
        raise ConfigError("no column looks like labels; name it with --label")
    draft = draft_config(out, parties, columns, chosen, target)
    with replacing(out) as part:
        part.write_text(draft.text, encoding="utf-8")
    say(f"{out}: {len(parties)} parties, ids in '{chosen}', labels in '{target}'")
    say(*(f"- {finding.sentence()}" for finding in draft.findings))
    say(f"Next: read it, then weft check {out}")


def _asked(question: str, told: str | None, guess: str | None) -> str | None:
    """What the command line says; else what is answered in a terminal; else the guess."""
    if told is not None or not sys.stdin.isatty():
        return told or guess
    return str(typer.prompt(question, default=guess))
