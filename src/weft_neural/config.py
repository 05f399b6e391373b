"""Configs of neural runs.

.. code-block:: toml

    name = "three clinics"

    [data]
    id = "patient"
    label = "outcome"

    [neural]
    coordinator_sees = "weights"
    rounds = 32

    [neural.blocks.mri]
    columns = ["mri_*"]
    extractor = "mlp"
    options = { features = 32 }

    [neural.blocks.blood]        # all columns that begin with blood_ or blood.

    [privacy]
    allow_networks = true
    coordinator_sees = "weights"

    [[party]]
    name = "north"
    file = "north.csv"

In the place of ``[[party]]``, ``scene = "mfeat"`` in ``[data]`` cuts and deals published data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import ClassVar

import msgspec

from weft.config.base_config_of_all_jobs import (
    FederationConfig,
    participation_in,
    read_content,
    roster_of,
    terms_from,
    terms_of,
)
from weft.config.check_where_data_lies import check_files, check_left_to_sites
from weft.config.strict_reading import checked, closest, known_keys, naming
from weft.data.blank_cells import settle_missing
from weft.data.columns.column_agreement import insist_on_plain
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.guards import OPEN
from weft.solvers.participation import participation_of
from weft_neural.config_sections import BlockSection, NeuralDataSection, NeuralFile
from weft_neural.extractors import read_extractor_options
from weft_neural.named_scenes import SCENES, Scene, load_scene
from weft_neural.party_samples import without_labels
from weft_neural.sample_sources import BlockSource, TableSource
from weft_neural.settings import Block, NeuralSettings, TrainingSettings

Source = TableSource | BlockSource

#: The description of all blocks of a scene that have none of their own.
EVERY = "*"
#: Shortest side of an image that the default extractor of images reads.
_LEAST_IMAGE = 4


@dataclass(frozen=True, eq=False)
class NeuralProblem:
    """What a config describes, read from its files and ready for a `NeuralFederation`.

    Attributes
    ----------
    scene
        Where the parties' blocks are from; None: from tables of theirs.
    classes
        The class values of a scene; None: the parties collect them.
    """

    sources: Mapping[str, Source]
    settings: NeuralSettings
    scene: Scene | None = None

    @property
    def classes(self) -> list[int] | None:
        return None if self.scene is None else list(range(len(self.scene.class_names)))


@dataclass(frozen=True, kw_only=True)
class NeuralConfig(FederationConfig):
    """A config of a neural run; `read_neural_config` makes one."""

    kind: ClassVar[str] = "neural"
    file: NeuralFile

    @property
    def data(self) -> NeuralDataSection:
        return self.file.data

    @property
    def settings(self) -> NeuralSettings:
        """Those of a run on tables, whose blocks are all described."""
        blocks = {name: _block(told) for name, told in self.file.neural.blocks.items()}
        return self._settings(blocks)

    def _settings(self, blocks: Mapping[str, Block]) -> NeuralSettings:
        section = self.file.neural
        told = {name: getattr(section, name) for name in TrainingSettings.__struct_fields__}
        return NeuralSettings(**told, blocks=dict(blocks))

    def party_names(self) -> list[str]:
        return [party.name for party in self.parties] or list(self.problem().sources)

    def problem(self, data_dir: Path | None = None) -> NeuralProblem:
        """Read the parties' files, or cut the scene.

        Parameters
        ----------
        data_dir
            Where a scene finds its original files; None: where the config says, else WEFT_DATA.
        """
        with naming(self.path.name):
            problem = self._from_scene(data_dir) if self.data.scene else self._from_tables()
            settings = problem.settings
            participation_of(settings.participation, list(problem.sources), settings.seed)
        return problem

    def _from_tables(self) -> NeuralProblem:
        tiles = {
            party: tuple(settle_missing(tile, self.data.missing, party) for tile in held)
            for party, held in self.read_tiles(self.data).items()
        }
        for party, held in tiles.items():
            insist_on_plain(held, party, "networks")
        settings = self.settings
        _check_patterns(settings.blocks, tiles)
        sources = {party: TableSource(party, held) for party, held in tiles.items()}
        for party, source in sources.items():
            # Parties would refuse one by one, with what follows from too few labels first.
            if not any(len(labels) for labels in source.labels()):
                raise without_labels(party)
        return NeuralProblem(sources, settings)

    def _from_scene(self, data_dir: Path | None) -> NeuralProblem:
        beside = None if self.data.data_dir is None else self.path.parent / self.data.data_dir
        scene = load_scene(str(self.data.scene), data_dir or beside, **self.data.options)
        settings = self._settings(blocks_of(scene, self.file.neural.blocks))
        return NeuralProblem(scene.sources(), settings, scene)


def read_neural_config(path: str | Path, *, deployed: bool = False) -> NeuralConfig:
    """Read and check a config; nothing but it and its roster has been read then.

    Parameters
    ----------
    deployed
        The parties are on sites of their own: the config names them at most, and no file of theirs.

    Raises
    ------
    ConfigError
        One sentence that names the file, the key or the party.
    """
    path = Path(path)
    content = read_content(path)
    if "neural" not in content:
        raise ConfigError(
            f"{path.name}: has no section [neural]; describe the networks there, or use 'weft "
            "train'"
        )
    with naming(path.name):
        file = checked(NeuralFile, content, "the config")
        rule = participation_in(file.neural.participation, path.parent)
        neural = msgspec.structs.replace(file.neural, participation=rule)
        file = msgspec.structs.replace(file, neural=neural)
    roster = roster_of(file, path)
    with naming(path.name):
        terms = terms_of(file.privacy, roster, deployed=deployed)
        if file.data.scene is not None and roster is None:
            # A scene is published data on one machine: terms that it leaves out protect no party.
            terms = terms_from(file.privacy, OPEN)
        for name, told in file.neural.blocks.items():
            # Which extractor suits a block of a scene is known when the scene is read.
            if told.extractor or file.data.scene is None:
                with naming(f"[neural.blocks.{name}]"):
                    _block(told)
    config = NeuralConfig(path=path, file=file, roster=roster, terms=terms)
    _check_sources(config, deployed)
    return config


# ── blocks ────────────────────────────────────────────────────────────────────────────────


def default_extractor(shape: tuple[int, ...] | None) -> str:
    """What reads a block of which nothing is said: images ``cnn``, all else ``mlp``."""
    image = shape is not None and len(shape) == 3 and min(shape[1:]) >= _LEAST_IMAGE
    return "cnn" if image else "mlp"


def blocks_of(scene: Scene, told: Mapping[str, BlockSection]) -> dict[str, Block]:
    """All blocks of a scene; ``told`` describes some, and under ``*`` all others."""
    shapes = scene.shapes()
    strange = [name for name in told if name != EVERY and name not in shapes]
    if strange:
        raise ConfigError(
            f"scene '{scene.name}' has no block '{strange[0]}'"
            f"{closest(strange[0], shapes)}; it has {', '.join(shapes)}"
        )
    others = told.get(EVERY, BlockSection())
    return {name: _block(told.get(name, others), shape) for name, shape in shapes.items()}


def _block(told: BlockSection, shape: tuple[int, ...] | None = None) -> Block:
    """A block as it is described, with the extractor that suits its shape if none is named."""
    described = msgspec.structs.asdict(told)
    described["extractor"] = told.extractor or default_extractor(told.shape or shape)
    block = Block(**described)
    read_extractor_options(block.extractor, block.options)
    return block


# ── what is refused ───────────────────────────────────────────────────────────────────────


def _check_sources(config: NeuralConfig, deployed: bool) -> None:
    where, data = config.path.name, config.data
    if deployed:
        said = {
            "[data] scene": data.scene is not None,
            "[data] id": data.id != "id",
            "[data] label": data.label is not None,
        }
        check_left_to_sites(config, said)
    elif data.scene is not None:
        _check_scene(config)
    else:
        if data.options or data.data_dir is not None:
            raise ConfigError(f"{where}: [data] options and data_dir are for a scene; name one")
        check_files(config)
    if data.scene is None and (EVERY in config.file.neural.blocks or not config.file.neural.blocks):
        raise ConfigError(
            f"{where}: tables need a [neural.blocks.NAME] for every block, with its columns; only "
            "a scene knows its blocks itself"
        )
    terms = config.terms
    if config.roster is None and not (terms.allow_networks and terms.coordinator_sees != "nothing"):
        raise ConfigError(
            f"{where}: a neural run shows the coordinator every party's own network; if that is "
            'agreed, write allow_networks = true and coordinator_sees = "weights" under [privacy]'
        )


def _check_scene(config: NeuralConfig) -> None:
    where, data = config.path.name, config.data
    if config.parties:
        raise ConfigError(
            f"{where}: [data] scene and [[party]] exclude each other; keep one of them"
        )
    if data.scene not in SCENES:
        hint = closest(str(data.scene), SCENES)
        raise ConfigError(
            f"{where}: [data] there is no scene '{data.scene}'{hint}; weft neural scenes lists them"
            f"{SCENES.left_out()}"
        )
    known_keys(data.options, SCENES[str(data.scene)].options, f"{where}: [data.options]")


def _check_patterns(blocks: Mapping[str, Block], tiles: Mapping[str, tuple[Tile, ...]]) -> None:
    """Refuse a pattern that no column of any party fits: a slip, most likely."""
    columns = {c for held in tiles.values() for tile in held for c in tile.features.tolist()}
    for name, block in blocks.items():
        for pattern in block.columns or ():
            if not any(c == pattern or fnmatchcase(c, pattern) for c in columns):
                hint = closest(pattern, sorted(columns))
                raise ConfigError(
                    f"[neural.blocks.{name}] columns: no party has a column '{pattern}'{hint}; "
                    "correct it, or leave it out"
                )
