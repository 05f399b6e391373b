"""What this package adds to Weft: ``weft reproduce``, and the papers' data, splits and scenes.

Functions import what they return, so that a command waits for its own modules only.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from weft.plugins import Command, Plugin

if TYPE_CHECKING:
    from weft.data import DataSet, Split
    from weft_neural.named_scenes import SceneEntry


def _commands() -> dict[str, Command]:
    from weft_papers.reproduce_command import reproduce

    return {"reproduce": Command(reproduce)}


def _data_sets() -> dict[str, DataSet]:
    from weft_papers.data.data_sets import DATA_SETS

    return {entry.name: entry for entry in DATA_SETS}


def _splits() -> dict[str, Callable[..., Split]]:
    from weft_papers.data.splits import class_blocks, dealt, quadrants, sorted_response

    return {
        "quadrants": quadrants,
        "dealt": dealt,
        "class_blocks": class_blocks,
        "sorted_response": sorted_response,
    }


def _scenes() -> dict[str, SceneEntry]:
    from weft_papers.hyfem.scenes import SCENES

    return SCENES


PLUGIN = Plugin(commands=_commands, data_sets=_data_sets, splits=_splits, scenes=_scenes)
