"""The experiments of both HyFEM texts, and ours: which there are, and what each of them runs.

Every experiment has a config, as ``weft neural run`` reads it, in the folder ``hyfem`` beside this
file; ``experiments.toml`` there says where a text has it and what is run besides HyFEM.
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from difflib import get_close_matches
from importlib.resources import files
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from weft.errors import ConfigError
from weft_neural.settings import NeuralSettings

if TYPE_CHECKING:
    from weft_papers.hyfem.scenes import Scene

Kind = Literal["hyfem", "central", "alone", "fedprox"]
KINDS: tuple[Kind, ...] = ("hyfem", "central", "alone", "fedprox")

#: The block whose description holds for all that have none of their own.
_EVERY = "*"


class Plan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One run of an experiment, as far as it is known before its data are read.

    Attributes
    ----------
    run
        Its name, which is that of its file.
    label
        What figures and tables call it.
    party
        The party that trains alone, in runs of that kind.
    scene, options
        The data.
    neural
        The section [neural] of the config, with what this run sets differently.
    """

    experiment: str
    run: str
    kind: Kind
    label: str
    scene: str
    options: dict[str, Any]
    neural: dict[str, Any]
    party: str | None = None

    def settings(self, blocks: Sequence[str]) -> NeuralSettings:
        """The settings for a scene's blocks."""
        described: dict[str, Any] = self.neural.get("blocks", {})
        strange = [name for name in described if name not in (*blocks, _EVERY)]
        if strange:
            raise ConfigError(
                f"experiment {self.experiment} describes block '{strange[0]}', but its scene has "
                f"{', '.join(blocks)}"
            )
        every = {name: described.get(name, described.get(_EVERY, {})) for name in blocks}
        try:
            return msgspec.convert({**self.neural, "blocks": every}, NeuralSettings)
        except msgspec.ValidationError as error:
            raise ConfigError(
                f"the settings of experiment {self.experiment} do not fit ({error}); see "
                "NeuralSettings"
            ) from None


class Experiment(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What ``experiments.toml`` says of an experiment.

    Attributes
    ----------
    title
        For figures.
    text
        Where a text has it.
    config
        Whose config it shares; None: it has its own.
    compare
        What is run besides HyFEM.
    variants
        Runs of HyFEM by label, with what each sets differently in [neural].
    central, alone, fedprox
        What those runs set differently.
    """

    title: str
    text: str
    config: str | None = None
    compare: tuple[Kind, ...] = ("central", "alone", "fedprox")
    variants: dict[str, dict[str, Any]] = msgspec.field(default_factory=lambda: {"HyFEM": {}})
    central: dict[str, Any] = {}
    alone: dict[str, Any] = {}
    fedprox: dict[str, Any] = {}


class Setup:
    """An experiment with its config.

    Parameters
    ----------
    config
        The TOML file's content: ``name``, ``data`` and ``neural``.
    changes
        Of [neural], for all its runs: a shorter trial, another seed.
    samples, test_samples
        At most so many of the scene.
    """

    def __init__(
        self,
        name: str,
        experiment: Experiment,
        config: Mapping[str, Any],
        *,
        changes: Mapping[str, Any] | None = None,
        samples: int | None = None,
        test_samples: int | None = None,
    ) -> None:
        self.name, self.experiment = name, experiment
        data = dict(config["data"])
        self.scene: str = data["scene"]
        self.options: dict[str, Any] = dict(data.get("options", {}))
        for option, count in (("samples", samples), ("test_samples", test_samples)):
            if count is not None:
                self.options[option] = count
        self._neural = dict(config["neural"])
        #: Rounds of the config, before a trial made them fewer.
        self.rounds: int = self._neural["rounds"]
        self.changes = dict(changes or {})

    def plans(
        self, parties: Sequence[str], common: Sequence[str], kinds: Sequence[Kind] = KINDS
    ) -> Iterator[Plan]:
        """All runs of some kinds.

        Parameters
        ----------
        parties, common
            The scene's parties, and the blocks that all of them have.
        """
        wanted = [kind for kind in kinds if kind in ("hyfem", *self.experiment.compare)]
        if "hyfem" in wanted:
            for label, changes in self.experiment.variants.items():
                one = len(self.experiment.variants) == 1
                yield self._plan("hyfem" if one else file_name(label), "hyfem", label, changes)
        if "central" in wanted:
            yield self._plan("central", "central", "central", self.experiment.central)
        if "alone" in wanted:
            for party in parties:
                name = f"alone-{file_name(party)}"
                yield self._plan(name, "alone", f"{party} alone", self.experiment.alone, party)
        if "fedprox" in wanted and common:
            yield self._plan("fedprox", "fedprox", "FedProx", self.experiment.fedprox)

    def _plan(
        self, run: str, kind: Kind, label: str, changes: Mapping[str, Any], party: str | None = None
    ) -> Plan:
        return Plan(
            experiment=self.name,
            run=run,
            kind=kind,
            label=label,
            scene=self.scene,
            options=self.options,
            neural={**self._neural, **changes, **self.changes},
            party=party,
        )

    def load(self, data_dir: str | None) -> Scene:
        """The data; refuses in a sentence where they are not there."""
        from weft_papers.hyfem.scenes import load_scene

        return load_scene(self.scene, data_dir, **self.options)


def file_name(label: str) -> str:
    """A label as part of a file's name."""
    kept = "".join(c if c.isalnum() or c in ".-_" else "-" for c in label)
    return "-".join(part for part in kept.split("-") if part).lower()


def experiments() -> dict[str, Experiment]:
    """All experiments by name, in the order of the texts."""
    found: dict[str, Any] = tomllib.loads(_read("experiments"))
    return {name: msgspec.convert(entry, Experiment) for name, entry in found.items()}


def setup(
    name: str,
    *,
    changes: Mapping[str, Any] | None = None,
    samples: int | None = None,
    test_samples: int | None = None,
) -> Setup:
    """One of the experiments; see `Setup`."""
    known = experiments()
    if name not in known:
        near = get_close_matches(name, known, n=1)
        hint = f"did you mean '{near[0]}'?" if near else f"choose one of {', '.join(known)}"
        raise ConfigError(f"there is no experiment '{name}' of HyFEM; {hint}")
    experiment = known[name]
    config = tomllib.loads(_read(experiment.config or name))
    return Setup(
        name, experiment, config, changes=changes, samples=samples, test_samples=test_samples
    )


def _read(name: str) -> str:
    return files("weft_papers").joinpath("hyfem", f"{name}.toml").read_text(encoding="utf-8")
