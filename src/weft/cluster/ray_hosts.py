"""Hosts as actors of a Ray cluster, on as many machines as it has."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Sequence
from typing import Any

from weft.cluster.party_host import Answers, HostedParty, Letter, PartyHost
from weft.crypto.party_key_pairs import PublicIdentity
from weft.errors import ConfigError, WeftError
from weft.federation.party import Party
from weft.protocol import Failure

#: Starts a cluster of this machine alone, which ends with the run.
LOCAL = "local"


class RayHosts:
    """One actor per group of parties.

    Parameters
    ----------
    groups
        The parties of each actor.
    run_secret
        What they share.
    address
        Of the cluster; ``local`` starts one here, ``auto`` finds one that runs on this machine.
    """

    def __init__(
        self, groups: Sequence[Sequence[HostedParty]], run_secret: bytes, *, address: str
    ) -> None:
        self._ray = _connected(address, len(groups))
        # Parties have one core each, and their products their bits, wherever an actor is started.
        actor = self._ray.remote(num_cpus=1, max_restarts=0)(PartyHost)
        self._actors = [actor.remote(list(group), run_secret) for group in groups]

    def identities(self) -> dict[str, PublicIdentity]:
        """Public keys of all parties; the first answer of actors, which may fail to start."""
        try:
            found = self._ray.get([actor.identities.remote() for actor in self._actors])
            return {name: key for some in found for name, key in some.items()}
        except self._ray.exceptions.RayError as error:
            self.close()
            cause = getattr(error, "cause", None)
            if isinstance(cause, WeftError):
                raise cause from None
            raise WeftError(
                f"an actor could not be started ({_first_line(error)}); install the same version "
                "of Weft on every machine of the cluster"
            ) from None

    def ask(self, host: int, letter: Letter) -> Any:
        return self._actors[host].exchange.remote(letter)

    def wait(self, asked: Any, seconds: float | None) -> list[Answers] | Failure:
        try:
            found: list[Answers] = self._ray.get(asked, timeout=seconds)
            return found
        except self._ray.exceptions.GetTimeoutError:
            return Failure("late", f"no reply within {seconds:g} s")
        except self._ray.exceptions.RayError as error:
            return Failure("failed", f"its actor is gone: {_first_line(error)}")

    def look(self, host: int, what: Callable[[Party], Any]) -> dict[str, Any]:
        try:
            found: dict[str, Any] = self._ray.get(self._actors[host].look.remote(what))
            return found
        except self._ray.exceptions.RayActorError:
            return {}

    def close(self) -> None:
        for actor in self._actors:
            self._ray.kill(actor)
        self._actors = []
        self._ray.shutdown()


def _connected(address: str, actors: int) -> Any:
    """Ray, connected to a cluster."""
    try:
        import ray
    except ModuleNotFoundError:
        raise ConfigError(
            "Ray is not installed; install it with pip install 'weft[ray]', here and on every "
            "machine of the cluster"
        ) from None
    # Actors compute as this process does: threads of BLAS would share out sums in other orders.
    one_thread = {"OMP_NUM_THREADS": "1", "OPENBLAS_NUM_THREADS": "1"}
    options: dict[str, Any] = {"runtime_env": {"env_vars": one_thread}, "log_to_driver": False}
    options["logging_level"] = logging.ERROR
    if address == LOCAL:
        # As many places as actors, so that none waits for one for ever.
        cores = max(actors, os.cpu_count() or 1)
        options |= {"num_cpus": cores, "include_dashboard": False}
    else:
        options["address"] = address
    try:
        ray.init(**options)
    except Exception as error:  # Ray raises bare ones, too
        raise ConfigError(
            f"the Ray cluster {address} cannot be reached ({_first_line(error)}); start one with "
            "'ray start --head', or say --ray local"
        ) from None
    return ray


def _first_line(error: BaseException) -> str:
    return str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
