"""What ``weft compare`` tells single algorithms: ``[compare.NAME]`` and ``--set NAME.KEY=VALUE``.

.. code-block:: toml

    [compare.fedavg]
    a = 0.05               # an option, as in [solver.options]
    iic = 0.1              # or one of the settings that not every algorithm reads
"""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.config.reader import checked, known_keys
from weft.config.schema import SolverSection
from weft.errors import ConfigError
from weft.solvers.declaration import Algorithm
from weft.solvers.registry import algorithm_of

#: Algorithm to what it is told.
Told = dict[str, dict[str, Any]]


def check_told(told: Mapping[str, Any], where: str) -> Told:
    """Refuse what an algorithm does not know, or cannot be.

    Parameters
    ----------
    where
        What a sentence begins with, up to the name of the algorithm.
    """
    for name, values in told.items():
        algorithm = algorithm_of(name)
        title = f"{where}{name}]"
        if not isinstance(values, dict):
            raise ConfigError(f"{title} must be a table of keys and values")
        options = _names(algorithm)
        known_keys(values, (*options, *algorithm.reads), title)
        own = {key: value for key, value in values.items() if key in options}
        checked(algorithm.options, own, title)
        shared = {key: value for key, value in values.items() if key not in options}
        checked(SolverSection, shared, title)
    return dict(told)


def read_assignments(pairs: Iterable[str]) -> Told:
    """What ``--set fedavg.a=0.05`` says, checked."""
    told: Told = {}
    for pair in pairs:
        place, _, value = pair.partition("=")
        name, _, key = place.strip().partition(".")
        if not (name and key and value.strip()):
            raise ConfigError(f"--set {pair} is not of the form NAME.OPTION=VALUE")
        told.setdefault(name, {})[key.strip()] = _value(value.strip())
    return check_told(told, "--set [")


def divided(algorithm: Algorithm, told: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its own options, and settings that others read too."""
    options = _names(algorithm)
    own = {key: value for key, value in told.items() if key in options}
    return own, {key: value for key, value in told.items() if key not in options}


def _names(algorithm: Algorithm) -> tuple[str, ...]:
    return tuple(field.encode_name for field in msgspec.structs.fields(algorithm.options))


def _value(text: str) -> Any:
    """A value as TOML reads it; a bare word is text."""
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text
