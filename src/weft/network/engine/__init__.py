"""Weft on NVIDIA FLARE, the engine that carries envelopes between processes.

The party is a component of the client's one process, the coordinator a controller in a job process
of the server, the submitter an admin session. Nothing else of Weft but the kits knows the engine.

- `wire`: what crosses, and how the engine's answers are read;
- `post`: the coordinator's `weft.network.transport.Post`;
- `party`: the component that answers for a site;
- `coordinator`: the controller that runs a task;
- `scheduling`: lets the engine start a job that no client takes part in;
- `doors`: is the port free, is the coordinator there, does it take the certificate;
- `processes`: ``weft serve`` and ``weft join`` in the foreground;
- `diary`: their readable log;
- `session`: the submitter's side.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec

from weft.errors import ConfigError


def require_engine() -> None:
    """Refuse to go on where the engine is not installed, and load it where it is.

    The engine looks through all that was loaded before it: after the rest of Weft that takes most
    of a second, before it next to nothing.
    """
    if find_spec("nvflare") is None:
        raise ConfigError(
            "the network engine is not installed here; install it with pip install 'weft[network]'"
        )
    import_module("nvflare")
