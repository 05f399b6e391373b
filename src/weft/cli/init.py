"""``weft init``: draft a config from the parties' files, or a site's policy from its own."""

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
    site: Annotated[
        Path | None,
        typer.Option(
            metavar="KIT",
            help="Draft the policy of the site with this kit, from its own tables, instead.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="File to write; by default config.toml, with --site policy.toml."),
    ] = None,
) -> None:
    """Draft a config from the parties' files, or a site's policy from its own.

    Looks at every file, takes ids and labels by the names and values of columns, and writes a
    config with a line for whatever a line can mend: columns of text are left out, labels in other
    words mapped, ids with lost zeros filled up, each with the reason above it. In a terminal it
    asks which columns hold ids and labels. Read the config, then run weft check: a proposal is no
    decision.

    With --site all files are tables of one site. A policy is written that offers their columns,
    with a line for each thing that its owner decides; beside it reading.toml, if something has to
    be said about how the tables are read; and the command that joins is printed.
    """
    if site is not None:
        _init_site(site, files, id, label, out or Path("policy.toml"))
        return
    out = out or Path("config.toml")
    from weft.cli.terminal_output import say
    from weft.config.draft_config import (
        columns_of,
        draft_config,
        guess_id,
        guess_label,
        party_names,
    )
    from weft.errors import ConfigError
    from weft.storage.atomic_files import replacing

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


def _init_site(kit: Path, files: list[Path], id: str | None, label: str | None, out: Path) -> None:
    """``weft init --site``."""
    import shlex

    from weft.cli.terminal_output import say
    from weft.config.draft_config import columns_of, guess_id, guess_label
    from weft.config.draft_site_policy import draft_site_policy
    from weft.errors import ConfigError
    from weft.network.kits.kit_folder import Kit
    from weft.storage.atomic_files import replacing

    found = Kit.inspect(kit)
    if found.kind != "site":
        raise ConfigError(f"{kit} is no kit of a site; name the one that your site was given")
    reading = out.with_name("reading.toml")
    for path in (out, reading):
        if path.exists():
            raise ConfigError(f"{path} exists; choose another place with --out, or delete it")
    columns = {str(path): columns_of(path) for path in files}
    chosen = _asked("Column of the ids", id, guess_id(columns))
    if chosen is None:
        raise ConfigError("no column looks like ids in all files; name it with --id")
    target = _asked("Column of the labels", label, guess_label(columns))
    draft = draft_site_policy(found.name, files, chosen, target)
    told = ["weft", "join", str(kit)]
    for path in files:
        told += ["--data", str(path)]
    told += ["--id", chosen, *(["--label", target] if target else [])]
    with replacing(out) as part:
        part.write_text(draft.policy, encoding="utf-8")
    if draft.reading:
        with replacing(reading) as part:
            part.write_text(draft.reading, encoding="utf-8")
        told += ["--reading", str(reading)]
    told += ["--keys", "KEYS", "--roster", "ROSTER", "--policy", str(out)]
    labels = f"labels in '{target}'" if target else "no labels"
    say(f"{out}: offers {len(draft.columns)} columns, ids in '{chosen}', {labels}")
    say(*(f"- {finding.sentence()}" for finding in draft.findings))
    say(f"Next: read it, then {shlex.join(told)}")


def _asked(question: str, told: str | None, guess: str | None) -> str | None:
    """What the command line says; else what is answered in a terminal; else the guess."""
    if told is not None or not sys.stdin.isatty():
        return told or guess
    return str(typer.prompt(question, default=guess))
