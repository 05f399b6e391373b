"""Lines that the engine calls errors, and that every healthy run has.

Submitters ask twice a second how their run gets on, also while its process starts and after it has
ended. The engine writes two lines each time that there is nobody to ask; the submitter asks again.
"""

from __future__ import annotations

import logging

from weft.network.nvflare_processes.write_job import PROGRESS

#: Loggers, and what their lines have in common, all of it in one line.
_EXPECTED = (
    (
        "nvflare.fuel.f3.cellnet.core_cell.CoreCell",
        (
            ("STP=app_command", "cannot send to 'server.", "target_unreachable"),
            ("STP=app_command", "no connection to child server."),
        ),
    ),
    (
        "nvflare.private.fed.server.server_commands.AppCommandProcessor",
        ((f"no app command func for topic {PROGRESS}",),),
    ),
)


def leave_out_expected_errors() -> None:
    """Keep them out of this process's log; everything else stays there."""
    for name, kinds in _EXPECTED:
        logger = logging.getLogger(name)
        if not any(isinstance(known, _Expected) for known in logger.filters):
            logger.addFilter(_Expected(kinds))


class _Expected(logging.Filter):
    def __init__(self, kinds: tuple[tuple[str, ...], ...]) -> None:
        super().__init__()
        self._kinds = kinds

    def filter(self, record: logging.LogRecord) -> bool:
        said = record.getMessage()
        return not any(all(part in said for part in kind) for kind in self._kinds)
