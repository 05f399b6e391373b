"""A party in the engine's client process: answers envelopes as long as the process lives."""

from __future__ import annotations

import logging
from collections import OrderedDict
from threading import Event, Lock
from typing import Any, ClassVar

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.cellnet.defs import (
    CellChannel,
    CellChannelTopic,
    MessageHeaderKey,
    ReturnCode,
)
from nvflare.fuel.f3.cellnet.fqcn import FQCN
from nvflare.fuel.f3.message import Message

from weft import __version__
from weft.network.nvflare_processes.nvflare_transport import (
    ANSWERED,
    ASK,
    CHANNEL,
    NO,
    SEEN,
    WORKING,
    content_of,
    envelope_id_of,
    is_from_coordinator,
    refusal,
    reply_with,
)
from weft.network.secure_session import SecureSite
from weft.network.site_metrics import Traffic
from weft.network.versions import VERSION_PROPERTY

log = logging.getLogger("weft.federation.party")

#: How many ids of envelopes it remembers.
_REMEMBERED = 1000


class PartyComponent(FLComponent):
    """Hands envelopes to the site that this process serves.

    The engine makes it from ``local/resources.json``. ``weft join`` sets the site after reading all
    its files: the engine only logs what a component raises, so a party that could not read its data
    would look alive.

    Attributes
    ----------
    site
        Set before the engine starts.
    client
        The engine's own client, to be closed at the end; None before it exists.
    traffic
        Letters of this process, for metrics.
    news
        Set where the coordinator came or went.
    """

    site: ClassVar[SecureSite | None] = None
    client: ClassVar[Any] = None
    traffic: ClassVar[Traffic] = Traffic()
    news: ClassVar[Event] = Event()

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        #: Whether the coordinator was there, and is not.
        self._lost = False
        self._envelopes: OrderedDict[str, bytes] = OrderedDict()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            # Before the client registers, so that a connected party is always ready.
            PartyComponent.client = fl_ctx.get_prop(FLContextKey.SITE_OBJ)
            cell = fl_ctx.get_engine().get_cell()
            cell.register_request_cb(channel=CHANNEL, topic=ASK, cb=self.ask)
            cell.register_request_cb(channel=CHANNEL, topic=SEEN, cb=self.seen)
            cell.core_cell.set_cell_disconnected_cb(self.lost)
            cell.core_cell.set_cell_connected_cb(self.found)
            # The engine says that a heartbeat is over, but not whether it was answered.
            cell.core_cell.add_incoming_reply_filter(
                CellChannel.SERVER_MAIN, CellChannelTopic.HEART_BEAT, self.heard
            )
        elif event_type == EventType.BEFORE_CLIENT_HEARTBEAT:
            fl_ctx.set_prop(VERSION_PROPERTY, __version__, private=False, sticky=False)
        elif event_type == EventType.SYSTEM_START:
            self.traffic.find()
            self.news.set()
            log.info("connected")

    def heard(self, reply: Message) -> None:
        """The coordinator has answered a heartbeat."""
        if reply.get_header(MessageHeaderKey.RETURN_CODE) == ReturnCode.OK:
            self.traffic.hear()

    def lost(self, other: Any) -> None:
        """The engine has lost a connection."""
        if other.info.fqcn == FQCN.ROOT_SERVER and not self._lost:
            self._lost = True
            self.traffic.lose()
            self.news.set()
            log.warning("the coordinator is gone; this site tries to reach it until it is back")

    def found(self, other: Any) -> None:
        """The engine has a connection, perhaps again."""
        if other.info.fqcn == FQCN.ROOT_SERVER and self._lost:
            self._lost = False
            self.traffic.find()
            self.news.set()
            log.info("the coordinator is back")

    def ask(self, request: Message) -> Message:
        """Answer an envelope."""
        if self.site is None or not is_from_coordinator(request):
            return refusal()
        envelope = envelope_id_of(request)
        self._remember(envelope, WORKING)
        letter = content_of(request)
        answer = self.site.answer(letter)
        self.traffic.note(len(letter), len(answer))
        # Where this does not come, it was lost: before this process has logged in, the engine drops
        # whatever it says.
        self._remember(envelope, ANSWERED + str(len(answer)).encode())
        return reply_with(answer)

    def seen(self, request: Message) -> Message:
        """Say what has become of an envelope since this process began."""
        if not is_from_coordinator(request):
            return refusal()
        with self._lock:
            return reply_with(self._envelopes.get(envelope_id_of(request), NO))

    def _remember(self, envelope: str, how: bytes) -> None:
        with self._lock:
            self._envelopes[envelope] = how
            if len(self._envelopes) > _REMEMBERED:
                self._envelopes.popitem(last=False)
