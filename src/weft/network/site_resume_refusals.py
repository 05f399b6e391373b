"""Why a site does not go on with a run, a sentence each: else pads might be used twice."""

from __future__ import annotations

from pathlib import Path

from weft.errors import ProtocolError
from weft.network.envelope_bytes import Work
from weft.storage.atomic_files import DamagedFile


def restored(run: str, folder: Path) -> DamagedFile:
    """Its files are not those that the run wrote."""
    return DamagedFile(
        f"{folder} was copied or restored from a backup, and a run that goes on from there would "
        f"use pads a second time; drop it with weft join KIT --forget {run}, and start a new run",
        told="has restored its files of this run from a backup, and would use pads a second time; "
        "start a new run",
    )


def another_plan(run: str) -> ProtocolError:
    """It was begun with other words."""
    return ProtocolError(
        f"run {run} was begun here with another plan; resume it with the configuration that it "
        "began with, or start a new run"
    )


def overtaken(run: str, work: Work, last: int) -> ProtocolError:
    """An envelope comes after a later one."""
    return ProtocolError(
        f"run {run} is past exchange {work.number} here, at {last}: the envelope was overtaken on "
        "its way, or the coordinator has lost part of its journal; in that case start a new run"
    )


def lost_memory(run: str, work: Work, heard: int) -> ProtocolError:
    """An envelope speaks of answers that the journal does not know."""
    return ProtocolError(
        f"has lost its memory of run {run}: the coordinator has had {work.answered} answers, of "
        f"which its journal knows {heard}; start a new run"
    )


def another_question(run: str, work: Work) -> ProtocolError:
    """The last envelope comes once more, with other words."""
    return ProtocolError(
        f"exchange {work.number} of run {run} is asked once more, but for something else; resume "
        "the run with the configuration that it began with"
    )


def has_left(run: str) -> ProtocolError:
    """It refused what it was asked, and answers nothing more."""
    return ProtocolError(
        f"has left run {run}, in which it refused what it was asked; its own log says why; start a "
        "new run"
    )
