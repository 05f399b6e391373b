"""All problems of a party's files on the screen, the gravest first, with what to write where."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from weft.data.findings_with_config_fixes import FoundProblems

_MARKS = {"error": "✗", "doubt": "?", "note": "-"}


def refuse_files(problems: FoundProblems, where: str, *, json: bool = False) -> NoReturn:
    """Show what is wrong with files, and stop.

    Parameters
    ----------
    where
        The config, or whatever file takes the lines that mend.
    """
    from weft.cli.terminal_output import say, say_json
    from weft.data.findings_with_config_fixes import FoundProblems, merged_settings
    from weft.errors import DataError

    listed = problems.findings
    count = sum(finding.severity != "note" for finding in listed)
    if json:
        say_json(problems_as_json(problems))
    elif count > 1:
        say(*(f"{_MARKS[one.severity]} {one.sentence()}" for one in listed))
        lines = merged_settings(listed)
        if lines:
            say("", f"Lines for {where} that mend what a line can mend, if that is meant:")
        for section, written in lines.items():
            say(f"  {section}", *(f"    {line}" for line in written))
    if count == 1:
        raise FoundProblems(listed)
    raise DataError(f"{count} problems in the files, listed above; mend them and try again")


def problems_as_json(problems: FoundProblems) -> dict[str, Any]:
    """Findings and the lines that mend them, as plain values."""
    from weft.data.findings_with_config_fixes import merged_settings

    return {
        "problems": [finding.to_dict() for finding in problems.findings],
        "mend": merged_settings(problems.findings),
    }
