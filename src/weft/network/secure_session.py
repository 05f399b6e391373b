"""Bonds: what the coordinator and a site say to each other, nobody between them can say.

The engine checks certificates where its connections end. What a process hears from its own machine,
or what was forwarded, it takes on trust. So the coordinator's process and each site's meet once,
show their certificates and agree on a key (X25519); every letter and reply is sealed under it
(AES-256-GCM) with a number of its own. A process that was started again knows no bond: the other
one is told so and meets it anew.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import count
from threading import Lock

import msgspec
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from weft.network.credentials import Credential, Stranger
from weft.network.site import Site
from weft.network.transport import Post
from weft.protocol import Failure

_MEETING, _LETTER, _UNKNOWN = b"M", b"L", b"?"
_FROM_COORDINATOR, _FROM_SITE = b"weft coordinator 1", b"weft site 1"
_NAME, _NUMBER = 16, 8
#: Seconds that a meeting may take.
_MEETING_TIME = 10.0
#: Bonds that a site keeps, and numbers of letters that it remembers of each.
_MOST_BONDS, _WINDOW = 8, 4096


class _Meeting(msgspec.Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    certificate: bytes
    public: bytes
    signature: bytes


def _meeting(packed: bytes) -> _Meeting:
    try:
        return msgspec.msgpack.decode(packed[1:], type=_Meeting)
    except msgspec.MsgspecError:
        raise Stranger("cannot be understood") from None


@dataclass
class _Bond:
    """A key between two processes; ``name`` is how the site finds it again."""

    name: bytes
    cipher: AESGCM
    numbers: count[int] = field(default_factory=lambda: count(1))
    seen: set[int] = field(default_factory=set)

    @classmethod
    def of(cls, own: X25519PrivateKey, other: bytes, ours: bytes, theirs: bytes) -> _Bond:
        """From one's own key and the other's public one; ``ours`` is the coordinator's."""
        try:
            shared = own.exchange(X25519PublicKey.from_public_bytes(other))
        except ValueError:
            raise Stranger("shows a key of another kind") from None
        key = HKDF(SHA256(), 32, None, b"weft bond 1" + ours + theirs).derive(shared)
        return cls(_bond_name(ours), AESGCM(key))

    def seal(self, direction: bytes, number: int, content: bytes) -> bytes:
        nonce = direction[:4] + number.to_bytes(_NUMBER, "big")
        return self.cipher.encrypt(nonce, content, None)

    def open(self, direction: bytes, number: int, sealed: bytes) -> bytes | None:
        nonce = direction[:4] + number.to_bytes(_NUMBER, "big")
        try:
            return self.cipher.decrypt(nonce, sealed, None)
        except InvalidTag:
            return None

    def is_new(self, number: int) -> bool:
        """Whether a letter of this number has not come before; from then on it has."""
        newest = max(self.seen, default=0)
        if number in self.seen or number <= newest - _WINDOW:
            return False
        self.seen.add(number)
        if len(self.seen) > 2 * _WINDOW:
            self.seen = {n for n in self.seen if n > newest - _WINDOW}
        return True


#: What is sealed in which direction; the first four bytes make nonces differ.
_DOWN, _UP = b"down", b"up  "


def _bond_name(public: bytes) -> bytes:
    return blake2b(public, digest_size=_NAME, person=b"weft bond").digest()


def _public(key: X25519PrivateKey) -> bytes:
    return key.public_key().public_bytes_raw()


class BondedPost:
    """A post whose letters only the right party can read and answer.

    Parameters
    ----------
    post
        Carries bytes.
    credential
        The coordinator's.
    """

    def __init__(self, post: Post, credential: Credential) -> None:
        self._post, self._credential = post, credential
        self._bonds: dict[str, _Bond] = {}
        self._lock = Lock()

    @property
    def parties(self) -> tuple[str, ...]:
        return self._post.parties

    def send(self, letters: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        """Replies as bytes, or why there is none."""
        replies = self._send(letters, timeout)
        # Whoever was started again since knows no bond.
        again = [party for party, reply in replies.items() if reply == _UNKNOWN]
        if again:
            with self._lock:
                for party in again:
                    self._bonds.pop(party, None)
            replies |= self._send({party: letters[party] for party in again}, timeout)
        strange = Failure("failed", "does not know the coordinator any more")
        return {p: strange if replies[p] == _UNKNOWN else replies[p] for p in letters}

    def _send(self, letters: Mapping[str, bytes], timeout: float) -> dict[str, bytes | Failure]:
        replies: dict[str, bytes | Failure] = {}
        bonds = self._met(tuple(letters), timeout, replies)
        sealed, numbers = {}, {}
        for party, bond in bonds.items():
            number = numbers[party] = next(bond.numbers)
            content = bond.seal(_DOWN, number, letters[party])
            sealed[party] = _LETTER + bond.name + number.to_bytes(_NUMBER, "big") + content
        for party, reply in self._post.send(sealed, timeout).items() if sealed else ():
            if isinstance(reply, Failure) or reply == _UNKNOWN:
                replies[party] = reply
                continue
            opened = bonds[party].open(_UP, numbers[party], reply[1:])
            # Bytes that cannot be read are no message: whoever asked asks again.
            replies[party] = b"" if opened is None else opened
        return replies

    def _met(
        self, parties: tuple[str, ...], timeout: float, replies: dict[str, bytes | Failure]
    ) -> dict[str, _Bond]:
        """Bonds with those parties; who cannot be met gets a failure."""
        with self._lock:
            bonds = {party: self._bonds[party] for party in parties if party in self._bonds}
        keys = {party: X25519PrivateKey.generate() for party in parties if party not in bonds}
        if not keys:
            return bonds
        wishes = {party: self._wish(party, key) for party, key in keys.items()}
        for party, reply in self._post.send(wishes, min(timeout, _MEETING_TIME)).items():
            if isinstance(reply, Failure):
                replies[party] = reply
                continue
            try:
                bonds[party] = self._meet(party, keys[party], reply)
            except Stranger as error:
                replies[party] = Failure("failed", str(error))
        with self._lock:
            self._bonds.update({party: bond for party, bond in bonds.items() if party in keys})
        return bonds

    def _wish(self, party: str, key: X25519PrivateKey) -> bytes:
        public = _public(key)
        signature = self._credential.sign(_FROM_COORDINATOR + public + party.encode())
        meeting = _Meeting(self._credential.shown, public, signature)
        return _MEETING + msgspec.msgpack.encode(meeting)

    def _meet(self, party: str, key: X25519PrivateKey, reply: bytes) -> _Bond:
        if not reply.startswith(_MEETING):
            raise Stranger("does not take the coordinator for the one of its federation")
        ours, found = _public(key), _meeting(reply)
        said = _FROM_SITE + ours + found.public
        self._credential.believe(found.certificate, party, said, found.signature)
        return _Bond.of(key, found.public, ours, found.public)


class BondedSite:
    """A site that answers nobody but its coordinator.

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

    def __init__(self, site: Site, credential: Credential, name: str, host: str) -> None:
        self._site, self._credential = site, credential
        self._party, self._host = name, host
        self._bonds: OrderedDict[bytes, _Bond] = OrderedDict()
        self._lock = Lock()

    def answer(self, letter: bytes) -> bytes:
        """The reply to a letter, or to the wish to meet; it never raises."""
        if letter.startswith(_MEETING):
            try:
                return self._meet(letter)
            except Stranger:
                return _UNKNOWN
        at = 1 + _NAME + _NUMBER
        number = int.from_bytes(letter[1 + _NAME : at], "big")
        with self._lock:
            bond = self._bonds.get(letter[1 : 1 + _NAME])
        content = None if bond is None else bond.open(_DOWN, number, letter[at:])
        if bond is None or content is None or not letter.startswith(_LETTER):
            return _UNKNOWN
        with self._lock:
            if not bond.is_new(number):
                return _UNKNOWN
        return _LETTER + bond.seal(_UP, number, self._site.answer(content))

    def close(self) -> None:
        self._site.close()

    def _meet(self, letter: bytes) -> bytes:
        wish = _meeting(letter)
        said = _FROM_COORDINATOR + wish.public + self._party.encode()
        self._credential.believe(wish.certificate, self._host, said, wish.signature)
        key = X25519PrivateKey.generate()
        public = _public(key)
        bond = _Bond.of(key, wish.public, wish.public, public)
        with self._lock:
            self._bonds[bond.name] = bond
            while len(self._bonds) > _MOST_BONDS:
                self._bonds.popitem(last=False)
        signature = self._credential.sign(_FROM_SITE + wish.public + public)
        meeting = _Meeting(self._credential.shown, public, signature)
        return _MEETING + msgspec.msgpack.encode(meeting)
