"""What was found in a party's files: problems, doubts and notes, all of them at once.

A finding says what is wrong and what to do about it, and where one line of a config mends it, that
line. Findings name values and samples: they are for the owner of a file, and stay on its machine.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from weft.errors import DataError

#: ``error``: cannot be trained on; ``doubt``: may mean two things; ``note``: handled, and said.
Severity: TypeAlias = Literal["error", "doubt", "note"]
#: A key of a party's section, and what to write there.
Setting: TypeAlias = tuple[str, Any]
_ORDER: tuple[Severity, ...] = ("error", "doubt", "note")
#: Values, samples or rows that a finding shows.
MOST_EXAMPLES = 3


@dataclass(frozen=True)
class Finding:
    """One thing to know about a file, or about several that do not fit together.

    Attributes
    ----------
    what
        What was found: the beginning of a sentence, with file, column and first example.
    mend
        What to do about it: the end of that sentence.
    party, file, column
        Where; empty: not at one alone.
    count
        How many rows, cells, columns or ids it is about.
    examples
        The first of them.
    setting
        Key and value that mend it; None: it takes more than a line.
    for_all
        Whether that goes into ``[data]``, and not into ``[[party]]`` of the party.
    harmless
        What others may know of it, as in `DataError`.
    declarable
        Whether it is no problem where the column is declared.
    """

    severity: Severity
    what: str
    mend: str = ""
    party: str = ""
    file: str = ""
    column: str = ""
    count: int = 1
    examples: tuple[str, ...] = ()
    setting: Setting | None = None
    for_all: bool = False
    harmless: str = ""
    declarable: bool = False

    def sentence(self) -> str:
        """The whole of it in one sentence."""
        place = ", ".join(
            part for part in (f"party {self.party!r}" if self.party else "", self.file) if part
        )
        said = f"{place}: {self.what}" if place else self.what
        return f"{said}; {self.mend}" if self.mend else said

    def to_dict(self) -> dict[str, Any]:
        """Plain values, ready for JSON."""
        line = None if self.setting is None else toml_line(*self.setting)
        return {
            "severity": self.severity,
            "party": self.party,
            "file": self.file,
            "column": self.column,
            "count": self.count,
            "examples": list(self.examples),
            "sentence": self.sentence(),
            "section": self.section if line else None,
            "line": line,
        }

    @property
    def section(self) -> str:
        """Where its setting goes."""
        return "[data]" if self.for_all or not self.party else f"[[party]] {self.party}"


@dataclass
class Findings:
    """Collects what is found in one file."""

    party: str = ""
    file: str = ""
    found: list[Finding] = field(default_factory=list)

    def add(self, severity: Severity, what: str, mend: str = "", **more: Any) -> None:
        """One more; ``more`` are fields of `Finding`."""
        self.found.append(
            Finding(severity, what, mend, **{"party": self.party, "file": self.file, **more})
        )

    @property
    def stops(self) -> bool:
        """Whether something was found that no tile can be made of."""
        return any(finding.severity == "error" for finding in self.found)

    def stop(self, error: DataError) -> None:
        """An error that ended the reading of this file, as a finding."""
        what, _, mend = str(error).partition("; ")
        said = what.removeprefix(f"{self.file}: ")
        self.add("error", said, mend.rstrip("."), harmless=error.harmless)


class FoundProblems(DataError):
    """Files that cannot be used as they are.

    The message has the first problem, and how many there are besides.

    Attributes
    ----------
    findings
        All that was found, the gravest first.
    """

    def __init__(self, findings: Iterable[Finding]) -> None:
        self.findings = by_severity(findings)
        problems = [one for one in self.findings if one.severity != "note"]
        first, more = problems[0].sentence(), len(problems) - 1
        if more:
            first += f" ({more} more problem{'s' * (more > 1)}: 'weft check' lists all of them)"
        # Sentences hold values, samples and names of files: nothing for other machines.
        super().__init__(
            first,
            told="a site's files cannot be used as they are; its log says why",
            harmless=_harmless(problems),
        )


def _harmless(problems: Iterable[Finding]) -> str:
    """What others may know of problems, the first few; empty: nothing."""
    said = list(dict.fromkeys(one.harmless for one in problems if one.harmless))
    more = ", and more" if len(said) > MOST_EXAMPLES else ""
    return f"{', '.join(said[:MOST_EXAMPLES])}{more}; its own log says more" if said else ""


def insist(findings: Iterable[Finding]) -> None:
    """Refuse files with problems, or with doubts; notes are no reason."""
    listed = list(findings)
    if any(finding.severity != "note" for finding in listed):
        raise FoundProblems(listed)


def by_severity(findings: Iterable[Finding]) -> list[Finding]:
    """The gravest first; within a severity, as they were found."""
    return sorted(findings, key=lambda finding: _ORDER.index(finding.severity))


def merged_settings(findings: Iterable[Finding]) -> dict[str, list[str]]:
    """Lines of a config that mend what can be mended there, by section; lists become one."""
    sections: dict[str, dict[str, Any]] = {}
    for finding in findings:
        if finding.setting is None or finding.severity == "note":
            continue
        key, value = finding.setting
        section = sections.setdefault(finding.section, {})
        before = section.get(key)
        if isinstance(value, list) and isinstance(before, list):
            section[key] = list(dict.fromkeys([*before, *value]))
        elif isinstance(value, Mapping) and isinstance(before, Mapping):
            # What was proposed first stays: later findings are about what it mends.
            section[key] = {**value, **before}
        else:
            section.setdefault(key, value)
    return {
        section: [toml_line(key, value) for key, value in keys.items()]
        for section, keys in sections.items()
    }


def toml_line(key: str, value: Any) -> str:
    """``key = value`` as a config has it."""
    return f"{key} = {_toml(value)}"


def _toml(value: Any) -> str:
    if isinstance(value, Mapping):
        inner = ", ".join(
            f"{json.dumps(k, ensure_ascii=False)} = {_toml(v)}" for k, v in value.items()
        )
        return f"{{ {inner} }}"
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    return json.dumps(value, ensure_ascii=False)


def shown(values: Iterable[object], total: int | None = None) -> str:
    """The first few of some values, quoted."""
    listed = [repr(value) for value in values]
    first = ", ".join(listed[:MOST_EXAMPLES])
    return first + (", …" if (total or len(listed)) > MOST_EXAMPLES else "")
