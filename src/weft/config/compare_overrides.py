"""What ``weft compare`` tells single algorithms: ``[compare.NAME]`` and ``--set NAME.KEY=VALUE``.

.. code-block:: toml

    [compare.fedavg]
    a = 0.05               # an option, as in [solver.options]
    iic = 0.1              # or one of the settings that not every algorithm reads
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from weft.config.strict_reading import checked
from weft.errors import ConfigError
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.solver_settings import SolverSettings

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
        checked(_tellable(algorithm), values, title)
        own, _ = divided(algorithm, values)
        checked(algorithm.options, own, title)
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
    options = {field.encode_name for field in msgspec.structs.fields(algorithm.options)}
    own = {key: value for key, value in told.items() if key in options}
    return own, {key: value for key, value in told.items() if key not in options}


def _tellable(algorithm: Algorithm) -> type[msgspec.Struct]:
    """What one algorithm can be told: its options, and the shared settings that it reads.

    Values that fit only together are not checked, as ``[solver]`` says the rest of them.
    """
    fields = [
        *msgspec.structs.fields(algorithm.options),
        *(f for f in msgspec.structs.fields(SolverSettings) if f.name in algorithm.reads),
    ]
    return msgspec.defstruct(
        "Tellable",
        [(field.encode_name, field.type, None) for field in fields],
        forbid_unknown_fields=True,
    )


def _value(text: str) -> Any:
    """A value as TOML reads it; a bare word is text."""
    try:
        return msgspec.toml.decode(f"value = {text}")["value"]
    except msgspec.DecodeError:
        return text
