"""The engine's cells, played under a clock of the tests' own. Not a test itself.

Everything between the cells is the real thing: the coordinator's transport and sessions on one
side, the component, the site and its party on the other. Machines can die and come back; what they
say before they have logged in is lost, as the engine loses it.
"""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

from nvflare.fuel.f3.cellnet.defs import MessageHeaderKey, ReturnCode
from nvflare.fuel.f3.message import Message

from weft.network.nvflare_processes.client_party import PartyComponent
from weft.network.nvflare_processes.nvflare_transport import ASK, NvflareTransport
from weft.network.secure_session import SecureSite, SecureTransport

ORIGIN = "server.f00d"
#: Real seconds between two looks at the clock.
_LOOK = 0.0004


class Killed(BaseException):
    """A party's process dies in the middle of its work."""


class Unheard(BaseException):
    """Nobody hears the answer, though the party lives."""


class Frozen(BaseException):
    """A party's process stands still for some seconds, and goes on."""


class FakeClock:
    """Time that passes only while all wait: to the next moment that somebody waits for.

    It counts the thread that makes it, and all that begin later.
    """

    def __init__(self):
        self._others = {*threading.enumerate()} - {threading.current_thread()}
        self._now, self._lock = 1000.0, threading.Lock()
        self._waiting = {}
        self._over = False

    def install(self, monkeypatch, module):
        for name in ("now", "sleep", "wait", "join"):
            monkeypatch.setattr(module, name, getattr(self, name))

    def now(self):
        return self._now

    def sleep(self, seconds):
        self._until(seconds, lambda: time.sleep(_LOOK))

    def wait(self, change, seconds):
        self._until(seconds, lambda: change.wait(_LOOK))

    def join(self, thread, seconds):
        self._until(seconds, lambda: time.sleep(_LOOK) or not thread.is_alive())

    def stop(self):
        """Nobody waits any more: threads of processes that were killed come to their end."""
        self._over = True

    def _until(self, seconds, look):
        until, me = self._now + max(0.0, seconds), threading.current_thread()
        with self._lock:
            self._waiting[me] = until
        try:
            while not (look() or self._now >= until or self._over):
                self._pass()
        finally:
            with self._lock:
                del self._waiting[me]

    def _pass(self):
        with self._lock:
            if {*threading.enumerate()} - self._others <= self._waiting.keys():
                self._now = max(self._now, min(self._waiting.values()))


class Machine:
    """A party's machine: its process dies, is away and comes back, and logs in a little later.

    ``fate`` sees every envelope, and may raise what becomes of the process before or after it is
    answered.
    """

    def __init__(self, name, clock, open_site, credential, host):
        self.name, self.clock, self.host = name, clock, host
        self._open_site, self._credential = open_site, credential
        self.fate = lambda envelope, answer: answer(envelope)
        #: How long it is away after its death, and how much longer it takes to log in.
        self.away, self.login, self.frozen = 3.0, 0.0, 20.0
        self.deaths = 0
        self._lock = threading.Lock()
        self._up = self._logged = self._thawed = 0.0
        self._component = None

    def answer(self, envelope):
        return self.fate(envelope, self._site.answer)

    def close(self):
        if self._component is not None:
            self._site.close()

    def take(self, topic, message, timeout):
        began = self.clock.now()
        if self._thawed > began:
            self.clock.sleep(min(timeout, self._thawed - began))
            if self._thawed > self.clock.now():
                return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.TIMEOUT}, None)
        with self._lock:
            if self.clock.now() < self._up:
                return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.COMM_ERROR}, None)
            if self._component is None:
                self._begin()
            component, deaths = self._component, self.deaths
        reply = None
        try:
            reply = (component.ask if topic == ASK else component.seen)(message)
        except Killed:
            self._die(deaths)
        except Unheard:
            pass
        except Frozen:
            self._thawed = self.clock.now() + self.frozen
            return self.take(topic, message, timeout)
        if reply is None or deaths != self.deaths or self.clock.now() < self._logged:
            self.clock.sleep(timeout)
            return Message({MessageHeaderKey.RETURN_CODE: ReturnCode.TIMEOUT}, None)
        return reply

    def _begin(self):
        self._site = self._open_site()
        self._component = PartyComponent()
        self._component.site = SecureSite(self, self._credential, self.name, self.host)

    def _die(self, deaths):
        with self._lock:
            if deaths != self.deaths:
                return
            self._site.close()
            self._component = None
            self.deaths += 1
            self._up = self.clock.now() + self.away
            self._logged = self._up + self.login


class Cells:
    """The engine's end of the wire in the coordinator's job."""

    def __init__(self, machines):
        self.machines = {machine.name: machine for machine in machines}

    def broadcast_multi_requests(self, messages, timeout):
        ((party, wanted),) = messages.items()
        wanted.message.add_headers({MessageHeaderKey.ORIGIN: ORIGIN})
        machine = self.machines[party]
        return {party: machine.take(wanted.topic, wanted.message, timeout)}

    def transport(self, credential, stopped):
        """A new process of the coordinator."""
        cell = SimpleNamespace(core_cell=self)
        return SecureTransport(NvflareTransport(cell, tuple(self.machines), stopped), credential)
