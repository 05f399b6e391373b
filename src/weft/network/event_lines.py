"""Events as lines: for people, and as JSON for whatever collects logs.

Lines for people stay in the kit and may name what is the site's own. JSON lines are made to be sent
on: of an error they have what may leave the machine, of a traceback the kind of error only.
"""

from __future__ import annotations

import logging
from datetime import UTC, datetime
from typing import Any, Literal

import msgspec

from weft.errors import DataError, WeftError

#: How events are shown on the terminal.
LogStyle = Literal["text", "json"]
#: How every line about a run begins, which makes its name a field.
_ABOUT = "run %s: "
_TEXT = "%(asctime)s %(message)s"
_TIME = "%Y-%m-%d %H:%M:%S"
#: In the place of what is for the owner of this machine only.
_ELSEWHERE = "(in events.log)"
#: For ``extra`` of lines about the site's own samples, such as counts of them.
OWN = {"own": True}


class TextLines(logging.Formatter):
    """``time message``; for the kit's own file."""

    def __init__(self) -> None:
        super().__init__(_TEXT, _TIME)


class JsonLines(logging.Formatter):
    """One JSON object a line, with ``time`` in UTC, ``level``, ``run`` where known, ``message``.

    Parameters
    ----------
    run
        The run of this process, if all its lines are about one.
    """

    def __init__(self, run: str = "") -> None:
        super().__init__()
        self._run = run

    def format(self, record: logging.LogRecord) -> str:
        time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
        line = {"time": time, "level": record.levelname.lower(), "part": record.name}
        message, values = str(record.msg), record.args if isinstance(record.args, tuple) else ()
        run = self._run
        if message.startswith(_ABOUT) and values:
            # An envelope that cannot be read is of no run that is known.
            run = "" if values[0] == "?" else str(values[0])
            message, values = message.removeprefix(_ABOUT), values[1:]
        if run:
            line["run"] = run
        told = tuple(_told(value, own=hasattr(record, "own")) for value in values)
        line["message"] = message % told if told else message
        if record.exc_info and record.exc_info[0] is not None:
            line["error"] = record.exc_info[0].__name__
        return msgspec.json.encode(line).decode()


def _told(value: Any, *, own: bool) -> Any:
    """What may be sent on of a value in a message."""
    if own:
        return _ELSEWHERE
    if isinstance(value, DataError):
        return value.harmless or _ELSEWHERE
    if isinstance(value, WeftError):
        return value.told
    return type(value).__name__ if isinstance(value, BaseException) else value
