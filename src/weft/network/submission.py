"""From a config to a task, and from the returned files to a results folder."""

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
from weft.network.run_results import PRESENCE, ReturnedResults
from weft.network.task import LinearTask, NeuralTask, Task
from weft.report.results_folder import write_files
from weft.storage.atomic_folder import building

if TYPE_CHECKING:
    from weft_neural.config import NeuralConfig


def new_run(config: FederationConfig) -> str:
    """A new, unique name for a run."""
    plain = re.sub(r"[^A-Za-z0-9._-]+", "-", config.name).strip("-._")[:48]
    return f"{plain or 'run'}-{token_hex(4)}"


def task_of(config: Config | NeuralConfig, connected: Sequence[str]) -> Task:
    """The task of a config, for the parties that it names, or else all that are connected."""
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
    """Make a results folder from the coordinator's files.

    Parameters
    ----------
    returned
        Folder with the coordinator's files.
    keys, party
        Whose keys open a linear model; None leaves the model out.
    command
        The command line that asked for a linear model.

    Returns
    -------
    summary, remarks
        As `weft.report.results_folder.write_results` does.
    """
    if not isinstance(config, Config):
        return _write_neural(returned, out, config)
    results = ReturnedResults(returned)
    results.summary["command"] = command
    model, remarks = None, []
    if keys is None or party is None:
        remarks.append(
            f"the model is sealed to {', '.join(results.readers)}, who have it on their sites; "
            "--keys and --party bring it here too"
        )
    else:
        model = _open(results, keys, party)
    with building(out) as draft:
        remarks += write_files(
            draft,
            model,
            results.history,
            results.path,
            results.summary,
            config.settings,
            config.path,
        )
        results.presence.save(draft / PRESENCE)
    return results.summary, remarks


def _write_neural(
    returned: Path, out: Path, config: NeuralConfig
) -> tuple[dict[str, Any], list[str]]:
    from weft_neural.results_folder import write_neural_files
    from weft_neural.run_results import ReturnedNeuralResults

    results = ReturnedNeuralResults(returned)
    with building(out) as draft:
        remarks = write_neural_files(
            draft, results.model, results.history, results.summary, config=config.path
        )
        results.presence.save(draft / PRESENCE)
    return results.summary, remarks


def _open(results: ReturnedResults, keys: Path, party: str) -> Model:
    """Open the slices that were sealed to a party, and join them."""
    sealed = results.sealed
    if party not in sealed.by_reader:
        raise ConfigError(
            f"the model was not sealed to {party}, but to {', '.join(results.readers)}; they have "
            "it on their sites"
        )
    identity, members = load_keys(keys, party).identity, read_public(keys).members
    slices = []
    for writer, packed in sealed.by_reader[party].items():
        if writer not in members:
            raise ProtocolError(
                f"a part of the model comes from '{writer}', whose keys are not in this folder of "
                "keys; find out who takes part in this run"
            )
        slices.append(open_slice(packed, writer, identity, members[writer], sealed.run))
    return join_slices(slices, Head.from_json(sealed.head), overlapping=sealed.overlapping)
