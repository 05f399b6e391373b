"""Scenes: published data that is cut into blocks and dealt to parties; plug-ins add them.

A neural config names one in ``[data]`` in the place of parties' files.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from weft.data.named_data_set_files import DataFolder, load_with, options_of
from weft.plugins import Registry
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource


class Scene(Protocol):
    """What a neural run needs to know of a scene."""

    @property
    def name(self) -> str:
        """Of the scene."""

    @property
    def class_names(self) -> tuple[str, ...]:
        """In the order of the labels, which are numbers from 0."""

    def shapes(self) -> Mapping[str, tuple[int, ...]]:
        """Shape of one sample in each block."""

    def sources(self) -> Mapping[str, BlockSource]:
        """Every party's samples, with samples to measure with."""

    def pool(self) -> Holdings:
        """All samples that have all blocks, for central training."""

    def tested(self) -> tuple[Mapping[str, NDArray[Any]], NDArray[np.int64]]:
        """All blocks of the test samples, and their labels."""


@dataclass(frozen=True)
class SceneEntry:
    """A scene as the list of them shows it.

    Attributes
    ----------
    about
        One line on its data and its parties.
    needs
        Which files, where in the data directory.
    loader
        Makes it from a `DataFolder` and options.
    """

    about: str
    needs: str
    loader: Callable[..., Scene]

    @property
    def options(self) -> tuple[str, ...]:
        """What the loader takes besides the folder."""
        return options_of(self.loader)


SCENES: Registry[SceneEntry] = Registry("scenes", {}, lambda value: isinstance(value, SceneEntry))


def load_scene(name: str, data_dir: str | os.PathLike[str] | None = None, **options: Any) -> Scene:
    """A scene by name.

    Parameters
    ----------
    name
        One of `SCENES`.
    data_dir
        Directory with the original files; without it the environment variable WEFT_DATA names it.
    **options
        What the scene's loader takes.
    """
    loader = SCENES.find(name, "scene").loader
    return load_with(loader, DataFolder.of(name, data_dir), options, f"scene {name!r}")
