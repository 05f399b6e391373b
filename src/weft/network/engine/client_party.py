"""A party in the engine's client process: answers letters for as long as the process lives."""

from __future__ import annotations

import logging
from collections import OrderedDict
from threading import Lock
from typing import Any, ClassVar

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_constant import FLContextKey
from nvflare.apis.fl_context import FLContext
from nvflare.fuel.f3.message import Message

from weft.network.engine.frames import (
    ASK,
    CHANNEL,
    NO,
    SEEN,
    YES,
    content_of,
    is_from_coordinator,
    letter_of,
    refusal,
    reply_with,
)
from weft.network.secure_session import BondedSite

log = logging.getLogger("weft.federation.party")

#: How many letters it can be asked after.
_REMEMBERED = 1000


class PartyComponent(FLComponent):
    """Hands letters to the site that this process serves.

    The engine makes it from ``local/resources.json``. The site comes from ``weft join``, which has
    read all its files by then: what an engine's component raises is only logged, and a party whose
    data cannot be read would look alive.

    Attributes
    ----------
    site
        Set before the engine starts.
    client
        The engine's own client, to leave in order; None before it is there.
    """

    site: ClassVar[BondedSite | None] = None
    client: ClassVar[Any] = None

    def __init__(self) -> None:
        super().__init__()
        self._lock = Lock()
        self._letters: OrderedDict[str, None] = OrderedDict()

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        if event_type == EventType.SYSTEM_BOOTSTRAP:
            # Before it registers: whoever finds it connected finds it ready.
            PartyComponent.client = fl_ctx.get_prop(FLContextKey.SITE_OBJ)
            cell = fl_ctx.get_engine().get_cell()
            cell.register_request_cb(channel=CHANNEL, topic=ASK, cb=self.ask)
            cell.register_request_cb(channel=CHANNEL, topic=SEEN, cb=self.seen)
        elif event_type == EventType.SYSTEM_START:
            log.info("connected")

    def ask(self, request: Message) -> Message:
        """Answer a letter."""
        if self.site is None or not is_from_coordinator(request):
            return refusal()
        self._remember(letter_of(request))
        return reply_with(self.site.answer(content_of(request)))

    def seen(self, request: Message) -> Message:
        """Say whether a letter has come since this process began."""
        if not is_from_coordinator(request):
            return refusal()
        with self._lock:
            return reply_with(YES if letter_of(request) in self._letters else NO)

    def _remember(self, letter: str) -> None:
        with self._lock:
            self._letters[letter] = None
            if len(self._letters) > _REMEMBERED:
                self._letters.popitem(last=False)
