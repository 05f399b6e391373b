"""What is noted of a job beside what the engine notes itself: it stays with the job's listing."""

from __future__ import annotations

from pathlib import Path

from weft.network.kits.open_kit import Kit

#: Entries of ours: that a job gives a run up, and how a run ended.
FORGETS, ENDING = "weft_forgets", "weft_ending"


def ending_file(kit: Kit, job: str) -> Path:
    """Where a job leaves word for its server how its run ended."""
    return kit.home / "endings" / f"{job}.json"
