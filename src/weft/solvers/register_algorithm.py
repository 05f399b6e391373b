"""How an algorithm from outside gets onto the list, and what it must say of itself."""

from __future__ import annotations

import re
from dataclasses import fields

import msgspec

from weft.errors import ConfigError
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.messages import KINDS, SCALARS, STEP_PHASES
from weft.solvers.run_settings import AUTO, Settings
from weft.solvers.solver_interfaces_and_results import Coordinator

_NAME = re.compile(r"[a-z][a-z0-9+-]*")
#: What ``shown_alone`` is where an entry does not name it.
_UNSAID = next(field.default for field in fields(Algorithm) if field.name == "shown_alone")
_WORDS = ("about", "guarantee", "trips", "reference", "coordinator_sees", "parties_see")


def register_algorithm(algorithm: Algorithm) -> Algorithm:
    """Let configs and settings name an algorithm of your own.

    ``auto`` never chooses it, and limits of rosters and policies hold for it as for all others.
    Every party and the coordinator must register it before the run, from the same code: what
    travels is its name and its options.

    Raises
    ------
    ConfigError
        If the name is taken, if it does not say what it guarantees, who sees what and how much, or
        if its steps have phases or sums that no audit knows.
    """
    if not isinstance(algorithm, Algorithm):
        raise ConfigError(f"{algorithm!r} is no algorithm; register a weft Algorithm")
    name = algorithm.name
    if not _NAME.fullmatch(name):
        raise ConfigError(f"'{name}' is no name for a solver; use small letters, digits, + and -")
    if name == AUTO or name in ALGORITHMS:
        raise ConfigError(f"there is a solver '{name}' already; choose another name")
    for field in _WORDS:
        if not getattr(algorithm, field).strip():
            raise ConfigError(f"solver '{name}' does not say '{field}'; write a few words there")
    if algorithm.ours:
        raise ConfigError(
            f"solver '{name}' says ours = True, which marks what Weft recommends; leave it out"
        )
    _check_settings(algorithm)
    _check_shown(algorithm)
    _check_rounds(algorithm)
    ALGORITHMS[name] = algorithm
    return algorithm


def _check_settings(algorithm: Algorithm) -> None:
    known = {field.name for field in msgspec.structs.fields(Settings)}
    for name in algorithm.reads:
        if name not in known:
            raise ConfigError(f"solver '{algorithm.name}' reads '{name}', which is no setting")
    options = msgspec.structs.fields(algorithm.options)
    required = [field.name for field in options if field.required]
    if required:
        raise ConfigError(
            f"option '{required[0]}' of solver '{algorithm.name}' has no default; give it one"
        )
    if not algorithm.options.__struct_config__.forbid_unknown_fields:
        raise ConfigError(
            f"the options of solver '{algorithm.name}' would ignore what is misspelt; make them a "
            "msgspec.Struct with forbid_unknown_fields=True"
        )


def _check_shown(algorithm: Algorithm) -> None:
    """Ledgers count, and parties refuse, by what an algorithm says that it shows of them.

    Nobody could tell a default from an author who never thought of it.
    """
    name, sums = algorithm.name, algorithm.sample_sums
    if sums is None:
        raise ConfigError(
            f"solver '{name}' does not say 'sample_sums', by which ledgers count; give the number "
            "of sums over samples that a party opens in an iteration, 0 for none"
        )
    if type(sums) is not int or sums < 0:
        raise ConfigError(
            f"solver '{name}' has sample_sums = {sums!r}; give a whole number of at least 0"
        )
    if algorithm.shown_alone is _UNSAID:
        raise ConfigError(
            f"solver '{name}' does not say 'shown_alone', by which parties refuse; give a function "
            "of settings that says what others see of a single party, '' for nothing"
        )


def _check_rounds(algorithm: Algorithm) -> None:
    """What an iteration sends must be declared, since audits go by that."""
    coordinator = algorithm.coordinator
    if not (isinstance(coordinator, type) and issubclass(coordinator, Coordinator)):
        raise ConfigError(f"the coordinator of solver '{algorithm.name}' is no Coordinator")
    if not issubclass(coordinator, RoundCoordinator):
        return
    opened = sum("z" in step.gets for step in coordinator.steps)
    if opened > (algorithm.sample_sums or 0):
        raise ConfigError(
            f"solver '{algorithm.name}' says sample_sums = {algorithm.sample_sums}, but its steps "
            f"get sums over samples (z) {opened} times an iteration; say {opened}"
        )
    phases = tuple(phase.name for phase in STEP_PHASES)
    for step in coordinator.steps:
        scalars = [name for name, _ in step.scalars]
        for what, given, known in (
            ("phase", (step.phase.name,), phases),
            ("sum", (*step.gets, *step.gives), KINDS),
            ("scalar", scalars, SCALARS),
        ):
            strange = [one for one in given if one not in known]
            if strange:
                raise ConfigError(
                    f"solver '{algorithm.name}' has a {what} '{strange[0]}' that no audit knows; "
                    f"use {', '.join(known)}"
                )
