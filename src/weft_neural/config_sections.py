"""The sections of a config of networks, their keys and their defaults."""

from __future__ import annotations

from typing import Any

import msgspec

from weft.config.schema import FederationFile
from weft.data.tile import MissingPolicy
from weft_neural.settings import Block, TrainingSettings


class NeuralDataSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[data]`` of a neural run: columns of all files, or a scene in the place of files."""

    id: str = "id"
    label: str | None = None
    missing: MissingPolicy = "error"
    scene: str | None = None
    data_dir: str | None = None
    options: dict[str, Any] = msgspec.field(default_factory=dict)


class BlockSection(Block, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[neural.blocks.NAME]``: a block; its shape chooses the extractor if none is named."""

    extractor: str = ""


class NeuralSection(TrainingSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[neural]``: the networks and how they are trained; see `NeuralSettings`."""

    blocks: dict[str, BlockSection] = msgspec.field(default_factory=dict)


class NeuralFile(FederationFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A config of a neural run."""

    neural: NeuralSection
    data: NeuralDataSection = NeuralDataSection()
