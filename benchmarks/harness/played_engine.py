"""The network's engine, played in one process: for a smoke run, which starts no other.

Kits, sites, sessions, journals and gRPC are the real ones; only what carries envelopes between the
processes is not there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey

from weft.network.secure_session import SecureSite
from weft.protocol import Failure

#: Whom envelopes come from, as the engine's server has it.
_ORIGIN = "server.smoke"


class PlayedEngine:
    """The engine in one process, its cell and its workspace; the coordinator's reaches all parties.

    Parameters
    ----------
    kit
        Of the process.
    parties
        Engines of the parties, for the coordinator's.
    """

    def __init__(self, kit: Path, parties: Mapping[str, PlayedEngine] | None = None) -> None:
        self._kit, self._parties = kit, dict(parties or {})
        self._callbacks: dict[tuple[str, str], Callable[[Any], Any]] = {}
        self._handlers: dict[str, Callable[[str, Any, Any], Any]] = {}
        self.core_cell = self
        self.run_manager = SimpleNamespace(aux_runner=self)

    @property
    def context(self) -> Any:
        """What the engine hands to components and controllers."""
        return SimpleNamespace(get_engine=lambda: self, get_prop=lambda name: None)

    def get_cell(self) -> PlayedEngine:
        return self

    def get_workspace(self) -> PlayedEngine:
        return self

    def get_root_dir(self) -> str:
        return str(self._kit)

    def register_request_cb(self, channel: str, topic: str, cb: Callable[[Any], Any]) -> None:
        self._callbacks[channel, topic] = cb

    def set_cell_connected_cb(self, cb: Callable[[Any], None]) -> None:
        """Nobody comes or goes here."""

    def set_cell_disconnected_cb(self, cb: Callable[[Any], None]) -> None:
        """Nobody comes or goes here."""

    def add_incoming_reply_filter(self, channel: str, topic: str, cb: Callable[..., Any]) -> None:
        """Nobody answers heartbeats here."""

    def register_aux_message_handler(
        self, topic: str, handler: Callable[[str, Any, Any], Any]
    ) -> None:
        self._handlers[topic] = handler

    def broadcast_multi_requests(
        self, messages: Mapping[str, Any], timeout: float
    ) -> dict[str, Any]:
        """Between cells."""
        replies = {}
        for party, asked in messages.items():
            asked.message.add_headers({MessageHeaderKey.ORIGIN: _ORIGIN})
            callback = self._parties[party]._callbacks[asked.channel, asked.topic]
            replies[party] = callback(asked.message)
        return replies

    def send_aux_request(
        self, targets: Iterable[Any], topic: str, request: Any, timeout: float, fl_ctx: Any
    ) -> dict[str, Any]:
        """The auxiliary call."""
        return {
            target.name: self._parties[target.name]._handlers[topic](topic, request, fl_ctx)
            for target in targets
        }


class PlayedTransport:
    """Hands envelopes to sites in this process."""

    def __init__(self, sites: Mapping[str, SecureSite]) -> None:
        self._sites = dict(sites)

    @property
    def parties(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def send(self, envelopes: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        return {party: self._sites[party].answer(packed) for party, packed in envelopes.items()}
