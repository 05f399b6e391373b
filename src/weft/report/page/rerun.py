"""All that is needed to run it again."""

from __future__ import annotations

import json
from typing import Any

from weft.report.page.markup import Html, el, facts, section, table
from weft.report.page.reading import Source

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
        _copied("command", "The command", summary.get("command") or None),
        _copied("config", "config.toml, the federation and all that was asked for", source.config),
        el("details", el("summary", "All settings"), _settings(summary["settings"])),
    )


def _copied(key: str, title: str, text: str | None) -> Html:
    """A text with a button that copies it."""
    if text is None:
        return Html()
    head = el(
        "div",
        el("h3", title),
        el("button", "Copy", type="button", data_copy=f"{key}-text", aria_label=f"Copy {title}"),
        cls="copied",
    )
    # Long configs of many parties scroll in their own box, which the keyboard can reach.
    return el("div", head, el("pre", text, id=f"{key}-text", tabindex="0"))


def _settings(settings: dict[str, Any]) -> Html:
    rows = [
        [el("code", name), json.dumps(value, ensure_ascii=False)]
        for name, value in settings.items()
    ]
    return table(["setting", "value"], rows, caption="Settings, those left out at their defaults")
