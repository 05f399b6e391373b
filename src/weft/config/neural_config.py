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
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import msgspec

from weft.config.data_sources import check_files, check_left_to_sites
from weft.config.federation_config import (
    FederationConfig,
    keys_in,
    name_in,
    participation_in,
    parties_in,
    read_toml,
    roster_in,
    section,
    terms_of,
)
from weft.config.read_config import Config, read_config
from weft.config.reader import checked, closest, known_keys, naming
from weft.config.schema import NetworkSection
from weft.data.tile import MissingPolicy, Tile, settle_missing
from weft.errors import ConfigError
from weft.guards import OPEN
from weft.neural.extractors import read_extractor_options
from weft.neural.neuron_matching import Matching
from weft.neural.party_samples import without_labels
from weft.neural.sample_sources import BlockSource, TableSource
from weft.neural.scenes import SCENES, Scene, load_scene
from weft.neural.settings import Block, NeuralSettings
from weft.protocol.participation import participation_of

Source = TableSource | BlockSource

#: The description of all blocks of a scene that have none of their own.
EVERY = "*"
#: Shortest side of an image that the default extractor of images reads.
_LEAST_IMAGE = 4


class NeuralDataSection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``[data]`` of a neural run: columns of all files, or a scene in the place of files."""

    id: str = "id"
    label: str | None = None
    missing: MissingPolicy = "error"
    scene: str | None = None
    data_dir: str | None = None
    options: dict[str, Any] = {}


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
    """A config of a neural run; `read_neural_config` makes one.

    Attributes
    ----------
    given
        ``[neural]`` without its blocks.
    blocks
        ``[neural.blocks]`` as they are told.
    """

    data: NeuralDataSection
    given: Mapping[str, Any]
    blocks: Mapping[str, Mapping[str, Any]]
    network: NetworkSection = field(default_factory=NetworkSection)

    @property
    def settings(self) -> NeuralSettings:
        """Those of a run on tables, whose blocks are all told."""
        return _settings(self.given, {name: _block(told) for name, told in self.blocks.items()})

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
        settings = _settings(self.given, blocks_of(scene, self.blocks))
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
    where, content = path.name, read_toml(path)
    if "neural" not in content:
        raise ConfigError(
            f"{where}: has no section [neural]; describe the networks there, or use 'weft train'"
        )
    known_keys(
        content,
        ("name", "data", "neural", "privacy", "keys", "federation", "network", "party"),
        f"{where}: the config",
    )
    data = checked(NeuralDataSection, section(content, "data", where), f"{where}: [data]")
    given = dict(section(content, "neural", where))
    blocks = {
        name: _told(name, told, where)
        for name, told in section(given, "blocks", f"{where}: [neural]").items()
    }
    given.pop("blocks", None)
    given["participation"] = participation_in(given.get("participation", "everyone"), path.parent)
    roster = roster_in(content, path)
    private = section(content, "privacy", where)
    with naming(where):
        # A scene is published data in one hand: what is not agreed on hurts nobody.
        terms = terms_of(private, roster, deployed=deployed)
        if data.scene is not None and roster is None:
            terms = checked(type(OPEN), {**msgspec.to_builtins(OPEN), **private}, "[privacy]")
        # Which extractors suit a scene's blocks is known when it is read.
        known = {} if data.scene else {name: _block(told) for name, told in blocks.items()}
        _settings(given, known or _UNTOLD)
    config = NeuralConfig(
        path=path,
        name=name_in(content, path),
        data=data,
        given=given,
        blocks=blocks,
        keys=keys_in(content, path),
        roster=roster,
        terms=terms,
        parties=parties_in(content, where),
        network=checked(NetworkSection, section(content, "network", where), f"{where}: [network]"),
    )
    _check_sources(config, deployed)
    return config


def read_either(path: Path, *, deployed: bool = False) -> Config | NeuralConfig:
    """A config of networks if it has a section ``[neural]``, else of a linear model."""
    if "neural" in read_toml(path):
        return read_neural_config(path, deployed=deployed)
    return read_config(path, deployed=deployed)


# ── blocks ────────────────────────────────────────────────────────────────────────────────


def default_extractor(shape: tuple[int, ...] | None) -> str:
    """What reads a block of which nothing is said: images ``cnn``, all else ``mlp``."""
    image = shape is not None and len(shape) == 3 and min(shape[1:]) >= _LEAST_IMAGE
    return "cnn" if image else "mlp"


def blocks_of(scene: Scene, told: Mapping[str, Mapping[str, Any]]) -> dict[str, Block]:
    """All blocks of a scene; ``told`` describes some, and under ``*`` all others."""
    shapes = scene.shapes()
    strange = [name for name in told if name != EVERY and name not in shapes]
    if strange:
        raise ConfigError(
            f"scene '{scene.name}' has no block '{strange[0]}'"
            f"{closest(strange[0], shapes)}; it has {', '.join(shapes)}"
        )
    return {
        name: _block(told.get(name, told.get(EVERY, {})), shape) for name, shape in shapes.items()
    }


def _told(name: str, told: object, where: str) -> dict[str, Any]:
    """A block's description, checked as far as its shape need not be known."""
    with naming(f"{where}: [neural.blocks.{name}]"):
        block = checked(Block, told, "the block")
        described: dict[str, Any] = msgspec.convert(told, dict[str, Any])
        if "extractor" in described:
            read_extractor_options(block.extractor, block.options)
    return described


def _block(told: Mapping[str, Any], shape: tuple[int, ...] | None = None) -> Block:
    """A block as it is told, with the extractor that suits its shape if none is."""
    block = msgspec.convert(dict(told), Block)
    if "extractor" not in told:
        suited = default_extractor(block.shape or shape)
        block = msgspec.structs.replace(block, extractor=suited)
    read_extractor_options(block.extractor, block.options)
    return block


_UNTOLD = {EVERY: Block()}


def _settings(given: Mapping[str, Any], blocks: Mapping[str, Block]) -> NeuralSettings:
    told = dict(given)
    matching = checked(Matching, told.pop("matching", {}), "[neural.matching]")
    fields = {**told, "blocks": {}, "matching": {}}
    known_keys(fields, (f.name for f in msgspec.structs.fields(NeuralSettings)), "[neural]")
    plain = {name: msgspec.to_builtins(block) for name, block in blocks.items()}
    return checked(
        NeuralSettings,
        {**told, "blocks": plain, "matching": msgspec.to_builtins(matching)},
        "[neural]",
    )


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
    if data.scene is None and (EVERY in config.blocks or not config.blocks):
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
