"""All that is needed to run it again."""

from __future__ import annotations

import json
import shlex
from pathlib import PurePath
from typing import Any

from weft.report.page.html_elements import Html, el, facts, section, table
from weft.report.page.read_results_folder import Source

_NAMES = {"weft": "Weft", "python": "Python", "numpy": "NumPy"}


def rerun_section(source: Source) -> Html:
    """Command, config, settings and versions."""
    summary = source.summary
    versions = summary.get("versions") or {"weft": summary["weft"]}
    shown: list[tuple[str, object]] = [
        *((_NAMES.get(name, name), number) for name, number in versions.items()),
        ("seed", summary["settings"]["seed"]),
    ]
    return section(
        "rerun",
        "Run it again",
        facts(shown),
        _copied(
            "command",
            "The command",
            _without_folders(summary.get("command") or "") or None,
            "Of files and folders it tells the names only, not where they lay.",
        ),
        _copied(
            "config",
            "config.toml, the federation and all that was asked for",
            source.config,
            "Shown as it was written, with every path and host in it: look it through before you "
            "hand this page on.",
        ),
        el("details", el("summary", "All settings"), _settings(summary["settings"])),
    )


def _without_folders(command: str) -> str:
    """A command with the names of files in the place of their paths, which tell of a machine."""
    try:
        words = shlex.split(command)
    except ValueError:
        # Whoever wrote the summary did not quote it.
        words = command.split()
    return shlex.join(map(_name_of, words))


def _name_of(word: str) -> str:
    option, equals, value = word.partition("=") if word.startswith("-") else ("", "", word)
    path = PurePath(value)
    return f"{option}{equals}{path.name}" if len(path.parts) > 1 else word


def _copied(key: str, title: str, text: str | None, told: str) -> Html:
    """A text with a button that copies it, and a line about it."""
    if text is None:
        return Html()
    head = el(
        "div",
        el("h3", title),
        el("button", "Copy", type="button", data_copy=f"{key}-text", aria_label=f"Copy {title}"),
        cls="copied",
    )
    # Long configs of many parties scroll in their own box, which the keyboard can reach.
    return el(
        "div",
        head,
        el("p", told, cls="note"),
        el("pre", text, id=f"{key}-text", tabindex="0"),
    )


def _settings(settings: dict[str, Any]) -> Html:
    rows = [
        [el("code", name), json.dumps(value, ensure_ascii=False)]
        for name, value in settings.items()
    ]
    return table(["setting", "value"], rows, caption="Settings, those left out at their defaults")
