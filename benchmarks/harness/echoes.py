"""Round trips that a benchmark measures inside the engine's own processes.

A kit of the benchmark names these two classes in the place of the product's: a party that sends
back what it gets, in every way that is measured, and a controller that asks four of them. So both
ends of every way are the same processes, at the same time.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from time import perf_counter
from typing import Annotated, Any

import grpc
from nvflare.apis.event_type import EventType
from nvflare.apis.impl.controller import Controller
from nvflare.apis.shareable import ReturnCode, Shareable, make_reply
from nvflare.fuel.f3.cellnet.core_cell import TargetMessage
from nvflare.fuel.f3.message import Message as CellMessage
from nvflare.private.aux_runner import AuxMsgTarget

from weft.network.certificate_signatures import Credential
from weft.network.kits.kit_folder import Kit
from weft.network.network_channel import NetworkChannel
from weft.network.nvflare_processes.client_party import PartyComponent
from weft.network.nvflare_processes.nvflare_transport import (
    NvflareTransport,
    content_of,
    reply_with,
)
from weft.network.party_interface import OpenedParty, PartyRequest
from weft.network.secure_session import SecureSite, SecureTransport
from weft.network.site_answers_envelopes import Site
from weft.protocol import Message, Phase
from weft.protocol.field_visibility import record
from weft.storage.journal import Journal

#: The same name in every way: a topic of the engine's, a method of gRPC.
ECHO = "echo"
_TIMEOUT = 60.0
#: gRPC's own limit is 4 MB.
_UNLIMITED = [("grpc.max_send_message_length", -1), ("grpc.max_receive_message_length", -1)]

Contents = dict[str, bytes]


class EchoMessage(Message):
    content: Annotated[bytes, record("what comes back")]


_PHASE = Phase(ECHO, EchoMessage, EchoMessage)


class _Echo:
    """A party of a run that sends back what it gets."""

    def on(self, phase: Phase[Any, Any], message: EchoMessage) -> EchoMessage:
        return message

    def close(self) -> None:
        """Nothing is open."""


class EchoParty(PartyComponent):
    """The product's component, with a party that echoes, beside the other ways to reach a process.

    Parameters
    ----------
    kit
        This party's.
    folder
        Where this party's site keeps its runs, and the port of its gRPC server.
    coordinator
        The coordinator's kit: its certificate is the only one that may be a server's.
    """

    def __init__(self, kit: str, folder: str, coordinator: str) -> None:
        super().__init__()
        self._kit, self._folder = Kit.inspect(kit), Path(folder)
        self._coordinator = Kit.inspect(coordinator)

    def handle_event(self, event_type: str, fl_ctx: Any) -> None:
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            kit, site = self._kit, Site(self._folder, _open)
            self.site = SecureSite(site, Credential.of(kit), kit.name, kit.host)
            engine = fl_ctx.get_engine()
            engine.register_aux_message_handler(ECHO, _aux)
            engine.get_cell().register_request_cb(channel=ECHO, topic=ECHO, cb=_cell)
            self._server = _grpc_server(self._coordinator, self._folder / "port")
        super().handle_event(event_type, fl_ctx)

    def close(self) -> None:
        """For a process that goes on afterwards."""
        self._server.stop(None)
        if self.site is not None:
            self.site.close()


def _open(request: PartyRequest) -> OpenedParty:
    return OpenedParty(_Echo())


def _aux(topic: str, request: Shareable, fl_ctx: Any) -> Shareable:
    reply = make_reply(ReturnCode.OK)
    reply[ECHO] = request[ECHO]
    return reply


def _cell(request: CellMessage) -> CellMessage:
    return reply_with(content_of(request))


def _grpc_server(kit: Kit, port_file: Path) -> Any:
    credentials = grpc.ssl_server_credentials(
        [(kit.key.read_bytes(), kit.certificate.read_bytes())],
        root_certificates=kit.authority.read_bytes(),
        require_client_auth=True,
    )
    handler = grpc.unary_unary_rpc_method_handler(lambda content, context: content)
    server = grpc.server(ThreadPoolExecutor(2), options=_UNLIMITED)
    server.add_generic_rpc_handlers([grpc.method_handlers_generic_handler(ECHO, {ECHO: handler})])
    port = server.add_secure_port("localhost:0", credentials)
    server.start()
    port_file.write_text(str(port))
    return server


class RoundTrips(Controller):
    """Asks all parties at once, in one way after the other, over and over.

    Parameters
    ----------
    folder
        Of the benchmark; ``seconds.json`` is written there.
    parties
        Folder of each.
    sizes
        Bytes of a message, and how often it is sent in each way.
    """

    def __init__(self, folder: str, parties: dict[str, str], sizes: list[list[int]]) -> None:
        super().__init__()
        self._folder, self._parties, self._sizes = Path(folder), parties, sizes

    def start_controller(self, fl_ctx: Any) -> None:
        """All is done in the control flow."""

    def stop_controller(self, fl_ctx: Any) -> None:
        """Nothing is left to do."""

    def process_result_of_unknown_task(self, *_: Any, **__: Any) -> None:
        """There are no tasks."""

    def control_flow(self, abort_signal: Any, fl_ctx: Any) -> None:
        engine = fl_ctx.get_engine()
        cell, names = engine.get_cell(), tuple(self._parties)
        kit = Kit.inspect(engine.get_workspace().get_root_dir())
        journal = Journal(self._folder / "journal.weft")
        transport = NvflareTransport(cell, names, lambda: bool(abort_signal.triggered))
        channel = NetworkChannel(
            SecureTransport(transport, Credential.of(kit)), "round-trips", journal
        )
        channel.hello({})
        ways: dict[str, Callable[[Contents], Contents]] = {
            "weft": _through(channel),
            "aux": _by_aux(engine.run_manager.aux_runner, names, fl_ctx),
            "cell": _by_cells(cell.core_cell),
            "grpc": self._by_grpc(kit),
        }
        found = {size: _measure(ways, names, size, times) for size, times in self._sizes}
        channel.end()
        channel.close()
        journal.delete()
        draft = self._folder / "draft.json"
        draft.write_text(json.dumps(found))
        draft.rename(self._folder / "seconds.json")

    def _by_grpc(self, kit: Kit) -> Callable[[Contents], Contents]:
        credentials = grpc.ssl_channel_credentials(
            kit.authority.read_bytes(), kit.key.read_bytes(), kit.certificate.read_bytes()
        )
        calls = {}
        for name, folder in self._parties.items():
            where = f"localhost:{(Path(folder) / 'port').read_text()}"
            channel = grpc.secure_channel(where, credentials, options=_UNLIMITED)
            calls[name] = channel.unary_unary(f"/{ECHO}/{ECHO}")

        def ask(contents: Contents) -> Contents:
            asked = {n: calls[n].future(c, timeout=_TIMEOUT) for n, c in contents.items()}
            return {name: future.result() for name, future in asked.items()}

        return ask


def _measure(
    ways: dict[str, Callable[[Contents], Contents]],
    names: tuple[str, ...],
    size: int,
    times: int,
) -> dict[str, list[float]]:
    """Seconds of every round trip to all parties; the ways take turns, the first to warm up."""
    seconds: dict[str, list[float]] = {way: [] for way in ways}
    for turn in range(times + 1):
        for way, ask in ways.items():
            # To everybody the same: the engine's auxiliary call cannot do otherwise.
            contents = dict.fromkeys(names, os.urandom(size))
            began = perf_counter()
            found = ask(contents)
            spent = perf_counter() - began
            if found != contents:
                raise RuntimeError(f"{way} did not bring back what was sent")
            if turn:
                seconds[way].append(spent)
    return seconds


def _through(channel: NetworkChannel) -> Callable[[Contents], Contents]:
    def ask(contents: Contents) -> Contents:
        asked = {name: EchoMessage(content=content) for name, content in contents.items()}
        replies = channel.ask(_PHASE, asked)
        return {name: reply.content for name, reply in replies.answered.items()}

    return ask


def _by_aux(runner: Any, names: tuple[str, ...], fl_ctx: Any) -> Callable[[Contents], Contents]:
    # The clients' long-lived processes, as in the other ways, not processes of a job.
    targets = [AuxMsgTarget(name, name, job_scoped=False) for name in names]

    def ask(contents: Contents) -> Contents:
        request = Shareable()
        request[ECHO] = contents[names[0]]
        replies = runner.send_aux_request(targets, ECHO, request, _TIMEOUT, fl_ctx)
        return {name: replies[name][ECHO] for name in contents}

    return ask


def _by_cells(core: Any) -> Callable[[Contents], Contents]:
    def ask(contents: Contents) -> Contents:
        asked = {n: TargetMessage(n, ECHO, ECHO, CellMessage({}, c)) for n, c in contents.items()}
        replies = core.broadcast_multi_requests(asked, _TIMEOUT)
        return {name: content_of(replies[name]) for name in contents}

    return ask
