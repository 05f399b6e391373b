"""Authenticated, encrypted sessions between the coordinator and each site.

The engine checks certificates where its connections end, but trusts what its own machine or a
forwarder hands it. So the coordinator's process and each site's process do a handshake of their
own: both show certificates and agree on a key (X25519). Every envelope and reply is then encrypted
with that key (AES-256-GCM) under a number of its own. A process that was restarted has no session;
it says so, and the handshake is repeated.

TLS 1.3 (`ssl.MemoryBIO`) does not fit here. Its records must arrive complete and in order, but
envelopes time out, and pings overtake work: after one lost or swapped envelope every later one
fails until a new handshake, which takes two round trips where this one takes one. DTLS would
allow gaps; Python has none.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from threading import Lock
from typing import Protocol

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from weft.network import clock
from weft.network.certificate_signatures import AuthenticationFailed, Credential
from weft.network.transport_interface import Transport
from weft.protocol import Failure
from weft.thread_safe_decoding import prepared

#: The first byte of what travels; a site without the session answers ``_UNKNOWN``.
_HANDSHAKE, _SEALED, _UNKNOWN = b"M", b"L", b"?"
#: What each side signs in a handshake begins with this.
_FROM_COORDINATOR, _FROM_SITE = b"weft coordinator 1", b"weft site 1"
#: Bytes of a session's name, of an envelope's number, and of what AES-GCM adds to a content.
_NAME, _NUMBER, _TAG = 16, 8, 16
#: Seconds that a handshake may take.
_HANDSHAKE_TIME = 10.0
#: Seconds at least for what is sent again.
_AGAIN = 1.0
#: Sessions that a site keeps, and how far back it remembers the numbers of envelopes in each.
_MOST_SESSIONS, _WINDOW = 8, 4096
#: First bytes of nonces, which differ by direction.
_DOWN, _UP = b"down", b"up  "


class _Handshake(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What either side shows: its certificate and a signed X25519 key."""

    certificate: bytes
    public: bytes
    signature: bytes

    def packed(self) -> bytes:
        return _HANDSHAKE + msgspec.msgpack.encode(self)


_HANDSHAKES: msgspec.msgpack.Decoder[_Handshake] = msgspec.msgpack.Decoder(prepared(_Handshake))


def _read_handshake(packed: bytes | bytearray) -> _Handshake:
    try:
        return _HANDSHAKES.decode(packed[1:])
    except msgspec.MsgspecError:
        raise AuthenticationFailed("cannot be understood") from None


@dataclass
class _Session:
    """A key that two processes share; ``name`` is how the site finds it again.

    Attributes
    ----------
    numbers
        Of the envelopes that the coordinator sends.
    seen, newest
        Numbers of the envelopes that the site has had.
    """

    name: bytes
    cipher: AESGCM
    numbers: count[int] = field(default_factory=lambda: count(1))
    seen: set[int] = field(default_factory=set)
    newest: int = 0

    @classmethod
    def agree(
        cls, own: X25519PrivateKey, other: bytes, coordinator: bytes, site: bytes
    ) -> _Session:
        """From one's own key and the other's public one; both public keys enter the result."""
        try:
            shared = own.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise AuthenticationFailed("shows a key of another kind") from None
        key = HKDF(SHA256(), 32, None, b"weft bond 1" + coordinator + site).derive(shared)
        name = blake2b(coordinator, digest_size=_NAME, person=b"weft bond").digest()
        return cls(name, AESGCM(key))

    def seal(
        self, direction: bytes, number: int, content: bytes | bytearray, head: bytes
    ) -> bytearray:
        """What travels: a head in the clear, and the content, encrypted behind it in place."""
        nonce = direction + number.to_bytes(_NUMBER, "big")
        # To put the two together afterwards would copy all of a large message once more.
        sealed = bytearray(len(head) + len(content) + _TAG)
        sealed[: len(head)] = head
        self.cipher.encrypt_into(nonce, content, None, memoryview(sealed)[len(head) :])
        return sealed

    def open(self, direction: bytes, number: int, sealed: memoryview) -> bytes | None:
        """The content; None if it was changed or sealed under another key or number."""
        nonce = direction + number.to_bytes(_NUMBER, "big")
        try:
            return self.cipher.decrypt(nonce, sealed, None)
        except InvalidTag:
            return None

    def accept(self, number: int) -> bool:
        """Whether an envelope of this number comes for the first time; remembers that it came."""
        if number in self.seen or number <= self.newest - _WINDOW:
            return False
        self.seen.add(number)
        self.newest = max(self.newest, number)
        if len(self.seen) > 2 * _WINDOW:
            self.seen = {n for n in self.seen if n > self.newest - _WINDOW}
        return True


def _public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


class SecureTransport:
    """A transport whose envelopes only the right party can read and answer.

    Parameters
    ----------
    transport
        Carries bytes.
    credential
        The coordinator's.
    """

    def __init__(self, transport: Transport, credential: Credential) -> None:
        self._transport, self._credential = transport, credential
        self._sessions: dict[str, _Session] = {}
        self._lock = Lock()

    @property
    def parties(self) -> tuple[str, ...]:
        return self._transport.parties

    @property
    def unanswered(self) -> tuple[str, ...]:
        return self._transport.unanswered

    def send(
        self, envelopes: Mapping[str, bytes | bytearray], timeout: float
    ) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none."""
        until = clock.now() + timeout
        replies = self._send(envelopes, timeout)
        # A site that was restarted has lost the session; one whose reply was lost does not take
        # the same envelope twice.
        again = [party for party, reply in replies.items() if reply == _UNKNOWN]
        if again:
            with self._lock:
                for party in again:
                    self._sessions.pop(party, None)
            left = max(_AGAIN, until - clock.now())
            replies |= self._send({party: envelopes[party] for party in again}, left)
        lost = Failure("failed", "does not know the coordinator any more")
        return {p: lost if replies[p] == _UNKNOWN else replies[p] for p in envelopes}

    def _send(
        self, envelopes: Mapping[str, bytes | bytearray], timeout: float
    ) -> dict[str, bytes | Failure]:
        sessions, replies = self._open_sessions(tuple(envelopes), timeout)
        sealed, numbers = {}, {}
        for party, session in sessions.items():
            number = numbers[party] = next(session.numbers)
            head = _SEALED + session.name + number.to_bytes(_NUMBER, "big")
            sealed[party] = session.seal(_DOWN, number, envelopes[party], head)
        for party, reply in self._transport.send(sealed, timeout).items() if sealed else ():
            if isinstance(reply, Failure) or reply == _UNKNOWN:
                replies[party] = reply
                continue
            opened = sessions[party].open(_UP, numbers[party], memoryview(reply)[1:])
            # Empty bytes are no message, so the caller asks again.
            replies[party] = b"" if opened is None else opened
        return replies

    def _open_sessions(
        self, parties: tuple[str, ...], timeout: float
    ) -> tuple[dict[str, _Session], dict[str, bytes | Failure]]:
        """Sessions with parties, after handshakes where needed; and why some have none."""
        failures: dict[str, bytes | Failure] = {}
        with self._lock:
            sessions = {p: self._sessions[p] for p in parties if p in self._sessions}
        keys = {party: X25519PrivateKey.generate() for party in parties if party not in sessions}
        if not keys:
            return sessions, failures
        handshakes = {party: self._handshake(party, key) for party, key in keys.items()}
        wait = min(timeout, _HANDSHAKE_TIME)
        for party, reply in self._transport.send(handshakes, wait).items():
            if isinstance(reply, Failure):
                failures[party] = reply
                continue
            try:
                sessions[party] = self._session(party, keys[party], reply)
            except AuthenticationFailed as error:
                failures[party] = Failure("failed", str(error))
        with self._lock:
            self._sessions.update({p: session for p, session in sessions.items() if p in keys})
        return sessions, failures

    def _handshake(self, party: str, key: X25519PrivateKey) -> bytes:
        public = _public(key)
        signature = self._credential.sign(_FROM_COORDINATOR + public + party.encode())
        return _Handshake(self._credential.certificate_bytes, public, signature).packed()

    def _session(self, party: str, key: X25519PrivateKey, reply: bytes) -> _Session:
        if not reply.startswith(_HANDSHAKE):
            raise AuthenticationFailed("does not accept this coordinator as its federation's")
        ours, found = _public(key), _read_handshake(reply)
        signed = _FROM_SITE + ours + found.public
        self._credential.verify(found.certificate, party, signed, found.signature)
        return _Session.agree(key, found.public, ours, found.public)


class AnsweringSite(Protocol):
    """What answers envelopes: a site in this process, or in another one."""

    def answer(self, envelope: bytes) -> bytes: ...

    def close(self) -> None: ...


class SecureSite:
    """A site that answers only its coordinator.

    Parameters
    ----------
    site
        Answers envelopes.
    credential
        The site's own.
    name
        The site's.
    host
        Name in the coordinator's certificate.
    """

    def __init__(self, site: AnsweringSite, credential: Credential, name: str, host: str) -> None:
        self._site, self._credential = site, credential
        self._party, self._host = name, host
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._lock = Lock()

    def answer(self, packed: bytes | bytearray) -> bytes | bytearray:
        """The reply to a sealed envelope or a handshake; never raises."""
        if packed.startswith(_HANDSHAKE):
            try:
                return self._shake_hands(packed)
            except AuthenticationFailed:
                return _UNKNOWN
        at = 1 + _NAME + _NUMBER
        number = int.from_bytes(packed[1 + _NAME : at], "big")
        with self._lock:
            session = self._sessions.get(bytes(packed[1 : 1 + _NAME]))
            if session is not None:
                # Of several runs at once, the one that was not heard of longest is forgotten first.
                self._sessions.move_to_end(session.name)
        envelope = None
        if session is not None:
            envelope = session.open(_DOWN, number, memoryview(packed)[at:])
        if session is None or envelope is None or not packed.startswith(_SEALED):
            return _UNKNOWN
        with self._lock:
            if not session.accept(number):
                return _UNKNOWN
        return session.seal(_UP, number, self._site.answer(envelope), _SEALED)

    def close(self) -> None:
        self._site.close()

    def _shake_hands(self, packed: bytes | bytearray) -> bytes:
        theirs = _read_handshake(packed)
        signed = _FROM_COORDINATOR + theirs.public + self._party.encode()
        self._credential.verify(theirs.certificate, self._host, signed, theirs.signature)
        key = X25519PrivateKey.generate()
        public = _public(key)
        session = _Session.agree(key, theirs.public, theirs.public, public)
        with self._lock:
            self._sessions[session.name] = session
            while len(self._sessions) > _MOST_SESSIONS:
                self._sessions.popitem(last=False)
        signature = self._credential.sign(_FROM_SITE + theirs.public + public)
        return _Handshake(self._credential.certificate_bytes, public, signature).packed()
