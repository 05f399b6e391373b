"""The config with the options that were chosen, ready for ``weft train``."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from weft.config.base_config_of_all_jobs import read_content
from weft.config.schema import SolverSection
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.run_settings import DEFAULTS, Settings

#: Settings that only some algorithms read.
_SHARED = {name for algorithm in ALGORITHMS.values() for name in algorithm.reads}
_BARE = re.compile(r"[A-Za-z0-9_-]+")


def tuned_config(
    config: Path,
    chosen: Settings,
    others: Mapping[str, Mapping[str, Any]],
    folder: Path,
    note: str,
) -> str:
    """A config as text.

    Parameters
    ----------
    config
        The one that was tuned.
    chosen
        Solver and options that it shall have now; its limits and all else stay.
    others
        What algorithms are told in ``weft compare``, instead of what the config says.
    folder
        Where the text will stand: files are named relative to it.
    note
        What the first line says.
    """
    content = read_content(config)
    content["solver"] = _solver(content.get("solver", {}), chosen)
    if others:
        content["compare"] = {**content.get("compare", {}), **others}
    return f"# {note}\n" + written(_moved(content, config.parent, folder))


def told_of(settings: Settings) -> dict[str, Any]:
    """All that one algorithm is told besides what every one is, as ``[compare.NAME]`` has it."""
    shared = {key: getattr(settings, key) for key in ALGORITHMS[settings.solver].reads}
    return {k: v for k, v in shared.items() if v != DEFAULTS[k]} | settings.options


def _solver(section: Mapping[str, Any], chosen: Settings) -> dict[str, Any]:
    """``[solver]`` without what the chosen algorithm does not know."""
    algorithm = ALGORITHMS[chosen.solver]
    strange = (_SHARED - set(algorithm.reads)) | (
        set() if algorithm.saves else {"checkpoint_every"}
    )
    kept = {key: value for key, value in section.items() if key not in strange | {"options"}}
    known = {field.name for field in msgspec.structs.fields(SolverSection)}
    told = {key: value for key, value in told_of(chosen).items() if key not in chosen.options}
    # Written out even where they are the defaults, if they take another value's place.
    again = {key: getattr(chosen, key) for key in kept if key in algorithm.reads}
    found = {**kept, **again, **told, "name": chosen.solver}
    found = {key: value for key, value in found.items() if key in known and value is not None}
    return {**found, "options": chosen.options} if chosen.options else found


def _moved(content: dict[str, Any], old: Path, new: Path) -> dict[str, Any]:
    """The same files, named as seen from another folder."""

    def seen(name: Any) -> Any:
        if isinstance(name, list):
            return [seen(one) for one in name]
        if not isinstance(name, str) or Path(name).is_absolute():
            return name
        return Path(os.path.relpath(old.absolute() / name, new.absolute())).as_posix()

    def within(section: Any, *keys: str) -> Any:
        if not isinstance(section, dict):
            return section
        return {key: seen(value) if key in keys else value for key, value in section.items()}

    found = dict(content)
    for name, key in (("data", "data_dir"), ("keys", "folder"), ("federation", "roster")):
        if name in found:
            found[name] = within(found[name], key)
    if isinstance(found["solver"].get("participation"), dict):
        found["solver"]["participation"] = within(found["solver"]["participation"], "trace")
    if "party" in found:
        found["party"] = [within(party, "file", "files", "policy") for party in found["party"]]
    return found


# ── TOML ──────────────────────────────────────────────────────────────────────────────────────


def written(content: Mapping[str, Any]) -> str:
    """TOML: values first, then sections, then lists of sections."""
    return "\n".join(_lines(content, ())).strip() + "\n"


def _lines(content: Mapping[str, Any], path: Sequence[str]) -> list[str]:
    lines = []
    nested: list[tuple[str, Any]] = []
    for key, value in content.items():
        if isinstance(value, dict) or _is_sections(value):
            nested.append((key, value))
        elif value is not None:
            lines.append(f"{_key(key)} = {_value(value)}")
    for key, value in nested:
        inner = (*path, key)
        title = ".".join(_key(part) for part in inner)
        for one in value if _is_sections(value) else [value]:
            brackets = f"[[{title}]]" if _is_sections(value) else f"[{title}]"
            below = _lines(one, inner)
            # A section that has nothing but sections needs no line of its own.
            lines += below if below[:1] == [""] else ["", brackets, *below]
    return lines


def _is_sections(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(v, dict) for v in value)


def _key(key: str) -> str:
    return key if _BARE.fullmatch(key) else json.dumps(key, ensure_ascii=False)


def _value(value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, list | tuple):
        return f"[{', '.join(_value(one) for one in value)}]"
    if isinstance(value, dict):
        inner = ", ".join(f"{_key(key)} = {_value(one)}" for key, one in value.items())
        return f"{{{inner}}}"
    if isinstance(value, str):
        # DEL is the one character that JSON writes as it is and TOML does not take.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return repr(value)
