"""From a config to a task, and from what came back to a results folder."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from weft.config.federation_config import FederationConfig
from weft.config.read_config import Config
from weft.crypto.keys import load_keys, read_public
from weft.errors import ConfigError, ProtocolError
from weft.federation.model import Model
from weft.federation.release.model_header import Head
from weft.federation.release.model_slices import join_slices, open_slice
from weft.network.run_results import PRESENCE, Parcel
from weft.network.task import LinearTask, NeuralTask, Task
from weft.report.results_folder import write_files
from weft.storage.atomic_folder import building

if TYPE_CHECKING:
    from weft.config.neural_config import NeuralConfig


def new_run(config: FederationConfig) -> str:
    """A name for a run that no other has."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", config.name).strip("-._")[:48]
    return f"{plain or 'run'}-{token_hex(4)}"


def task_of(config: Config | NeuralConfig, connected: Sequence[str]) -> Task:
    """What a config asks for, of the parties that it names, else of all that are connected."""
    return (
        linear_task(config, connected)
        if isinstance(config, Config)
        else _neural_task(config, connected)
    )


def linear_task(config: Config, connected: Sequence[str]) -> LinearTask:
    """The same for a config of a linear model."""
    positive = config.data.positive
    return LinearTask(
        name=config.name,
        parties=_parties(config, connected),
        settings=config.settings,
        preprocessing=config.preprocessing(),
        terms=config.terms,
        positive=None if positive is None else tuple(positive),
        setup=config.network.setup,
        timeout=config.network.timeout,
    )


def _neural_task(config: NeuralConfig, connected: Sequence[str]) -> NeuralTask:
    return NeuralTask(
        name=config.name,
        parties=_parties(config, connected),
        settings=config.settings,
        missing=config.data.missing,
        terms=config.terms,
        setup=config.network.setup,
        timeout=config.network.timeout,
    )


def _parties(config: FederationConfig, connected: Sequence[str]) -> tuple[str, ...]:
    named = tuple(party.name for party in config.parties)
    parties = named or tuple(sorted(connected))
    if not parties:
        raise ConfigError(
            f"no party is connected, and {config.path.name} names none; start them with 'weft join'"
        )
    return parties


def write_out(
    returned: Path,
    out: Path,
    config: Config | NeuralConfig,
    keys: Path | None,
    party: str | None,
    *,
    command: str = "",
) -> tuple[dict[str, Any], list[str]]:
    """Make a results folder of what the coordinator gave.

    Parameters
    ----------
    returned
        Folder with the coordinator's files.
    keys, party
        Whose keys open a linear model; None: there will be none in the folder.
    command
        With which a linear model was asked for.

    Returns
    -------
    summary, remarks
        As `weft.report.results_folder.write_results` does.
    """
    if not isinstance(config, Config):
        return _write_neural(returned, out, config)
    parcel = Parcel(returned)
    parcel.summary["command"] = command
    model, remarks = None, []
    if keys is None or party is None:
        remarks.append(
            f"the model is sealed to {', '.join(parcel.readers)}, who have it on their sites; "
            "--keys and --party bring it here too"
        )
    else:
        model = _open(parcel, keys, party)
    with building(out) as draft:
        remarks += write_files(
            draft, model, parcel.history, parcel.path, parcel.summary, config.settings, config.path
        )
        parcel.presence.save(draft / PRESENCE)
    return parcel.summary, remarks


def _write_neural(
    returned: Path, out: Path, config: NeuralConfig
) -> tuple[dict[str, Any], list[str]]:
    from weft.network.neural_run_results import NeuralParcel
    from weft.report.neural import write_neural_files

    parcel = NeuralParcel(returned)
    with building(out) as draft:
        remarks = write_neural_files(
            draft, parcel.model, parcel.history, parcel.summary, config=config.path
        )
        parcel.presence.save(draft / PRESENCE)
    return parcel.summary, remarks


def _open(parcel: Parcel, keys: Path, party: str) -> Model:
    """Open the slices that were sealed to a party, and join them."""
    sealed = parcel.letters
    if party not in sealed.by_reader:
        raise ConfigError(
            f"the model was not sealed to {party}, but to {', '.join(parcel.readers)}; they have "
            "it on their sites"
        )
    identity, members = load_keys(keys, party).identity, read_public(keys).members
    slices = []
    for writer, letter in sealed.by_reader[party].items():
        if writer not in members:
            raise ProtocolError(
                f"a part of the model comes from '{writer}', whose keys are not in this folder of "
                "keys; find out who takes part in this run"
            )
        slices.append(open_slice(letter, writer, identity, members[writer], sealed.run))
    return join_slices(slices, Head.from_json(sealed.head), overlapping=sealed.overlapping)
