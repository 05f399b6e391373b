"""Matching through key holders: a party's half.

A token is made from k₂ · k₁ · H(id), where two parties hold k₁ and k₂. Every party blinds its ids,
has both holders multiply them, one after the other, checks their proofs and takes the blinds off.
Whoever holds one key, or none, cannot try out ids: he has to ask, each party once and for no more
ids than it has rows.

Requests and answers are letters between parties; the coordinator carries them. Public keys come
through the coordinator too, each with a tag under the run secret, which it does not have; where the
members' keys are known beforehand, they must be those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import NoReturn, Protocol

import msgspec

from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.primitives.oprf import OprfKey, blind, finalize, matching_key, unblind, verify
from weft.crypto.primitives.ristretto import WIDTH, GroupError, scalars_of
from weft.crypto.replay_log import RandomnessLog
from weft.crypto.run_participants import Keys
from weft.crypto.sealed_letters import LetterError, read_letter, write_letter
from weft.errors import ProtocolError
from weft.matching.id_normalization import MOST_BARE
from weft.matching.messages import AskReply, AskRequest, EvaluateReply, EvaluateRequest
from weft.prepared_types import prepared
from weft.protocol.shared_fields import Boxes

#: A party may ask for every row and for its loose form, and for some without what all begin with.
FORMS = 2
#: Random bytes that all blinds of a party in a run follow from.
_SEED = 32


class Known(Protocol):
    """What a signed roster says of a member."""

    @property
    def identity(self) -> PublicIdentity: ...

    @property
    def matching_key(self) -> bytes | None: ...

    @property
    def row_limit(self) -> int: ...


class Announcement(msgspec.Struct, frozen=True, array_like=True):
    """What a party tells all others of itself.

    Attributes
    ----------
    public, key
        Its public identity, and the public key of its matching key.
    rows
        How many rows it has, in all its tiles.
    tag
        Shows that the run secret was known to whoever wrote this.
    """

    name: str
    public: bytes
    key: bytes
    rows: int
    tag: bytes

    @property
    def identity(self) -> PublicIdentity:
        return PublicIdentity.from_bytes(self.public)


class Oblivious:
    """One party's questions and answers of one run.

    Parameters
    ----------
    keys
        Its identity and the run secret.
    rows
        How many rows it has.
    known
        What a signed roster says of all members; None: there is none.
    draws
        Makes and remembers what is random.
    """

    def __init__(
        self,
        keys: Keys,
        run: bytes,
        rows: int,
        known: Mapping[str, Known] | None,
        draws: RandomnessLog,
    ) -> None:
        self._keys, self._run, self._known, self._draws = keys, run, known, draws
        self._key: OprfKey = matching_key(keys.identity)
        self._announced = self._announcement(rows)
        self._inputs: list[bytes] = []
        self._blinds = b""
        #: What was sent to the last holder.
        self._sent = b""
        self._holders: list[Announcement] = []
        self._answered: set[str] = set()

    def announce(self) -> bytes:
        """What all parties may know."""
        return msgspec.msgpack.encode(self._announced)

    def _announcement(self, rows: int) -> Announcement:
        public = self._keys.identity.public.to_bytes()
        plain = Announcement(self._keys.name, public, self._key.public, rows, b"")
        return msgspec.structs.replace(plain, tag=self._tag(plain))

    def _tag(self, announced: Announcement) -> bytes:
        plain = msgspec.msgpack.encode(msgspec.structs.replace(announced, tag=b""))
        key = self._keys.run.derive("weft announcement", self._run)
        return blake2b(plain, key=key.reveal(), digest_size=32).digest()

    def _meet(self, content: bytes) -> Announcement:
        """Read what another party, or this one, announced."""
        try:
            found = msgspec.msgpack.decode(content, type=prepared(Announcement))
        except (msgspec.MsgspecError, UnicodeDecodeError):
            self._refuse("an announcement that it cannot read")
        if not compare_digest(self._tag(found), found.tag):
            self._refuse(f"the public keys of '{found.name}': nobody with the run secret sent them")
        if found.name == self._keys.name and found != self._announced:
            self._refuse("another announcement under its own name")
        if self._known is not None:
            listed = self._listed(found)
            if listed is None or listed.identity.to_bytes() != found.public:
                self._refuse(f"the public keys of '{found.name}', which the roster does not list")
        return found

    def _listed(self, announced: Announcement) -> Known | None:
        return None if self._known is None else self._known.get(announced.name)

    def _refuse(self, what: str) -> NoReturn:
        name = self._keys.name
        raise ProtocolError(f"party {name} refuses {what}; stop this run and find out why")

    def _place(self, step: str, hop: int, writer: str, reader: str) -> bytes:
        """Where a letter belongs."""
        return msgspec.msgpack.encode(["weft matching 1", self._run, step, hop, writer, reader])

    # ── asking ────────────────────────────────────────────────────────────────────────────

    def ask(self, message: AskRequest, inputs: Sequence[bytes]) -> AskReply:
        """A letter to the next key holder."""
        hop = message.hop
        if hop != len(self._holders):
            self._refuse(f"to be asked for step {hop} in the place of {len(self._holders)}")
        if hop == 0:
            self._inputs = list(inputs)
            # A seed is remembered in the place of the blinds, which take as much room as the ids.
            seed = self._draws.random("blinds", _SEED)
            blinds = scalars_of(seed, len(self._inputs))
            self._blinds, self._sent = blind(self._inputs, blinds)
        else:
            self._sent = self._take_answer(message.box)
        holder = self._meet(message.holder)
        if any(holder.name == other.name for other in self._holders):
            self._refuse(f"'{holder.name}' as key holder twice")
        listed = self._listed(holder)
        if self._known is not None and (listed is None or listed.matching_key != holder.key):
            self._refuse(f"the matching key of '{holder.name}', which is not the roster's")
        self._holders.append(holder)
        place = self._place("ask", hop, self._keys.name, holder.name)
        letter = write_letter(self._keys.identity, holder.identity, place, self._sent)
        return AskReply(box=letter)

    def _take_answer(self, box: bytes | None) -> bytes:
        """What the last holder made of the elements sent, if its proofs are right."""
        if not self._holders:
            self._refuse("an answer that it never asked for")
        if box is None:
            self._refuse("to go on without the answer of a key holder")
        holder, hop = self._holders[-1], len(self._holders) - 1
        place = self._place("answer", hop, holder.name, self._keys.name)
        try:
            content = read_letter(self._keys.identity, holder.identity, place, box).reveal()
            evaluated, proofs = content[: len(self._sent)], content[len(self._sent) :]
            # Nobody has to prove anything to himself.
            if holder.name != self._keys.name:
                verify(holder.key, self._sent, evaluated, proofs)
        except (LetterError, GroupError) as error:
            self._refuse(f"the answer of key holder '{holder.name}' ({error})")
        return evaluated

    def finish(self, box: bytes | None) -> list[bytes]:
        """64 secret bytes per input, the same at every party that has it, from the last answer."""
        if len(self._holders) < self._needed():
            self._refuse(f"to match with {len(self._holders)} key holder(s)")
        elements = unblind(self._take_answer(box), self._blinds)
        self._blinds = self._sent = b""
        return finalize(self._inputs, elements)

    def _needed(self) -> int:
        if self._known is None:
            return 1
        return min(2, sum(m.matching_key is not None for m in self._known.values()))

    # ── answering ─────────────────────────────────────────────────────────────────────────

    def evaluate(self, message: EvaluateRequest) -> EvaluateReply:
        """Answers to the letters of all parties, each once in a run."""
        hop = message.hop
        cards, boxes = message.cards.cut(), message.boxes.cut()
        if len(cards) != len(boxes):
            self._refuse("letters of which it is not told who wrote them")
        answers = []
        for card, box in zip(cards, boxes, strict=True):
            answers.append(self._answer(hop, self._meet(card), box))
        return EvaluateReply(boxes=Boxes.of(answers))

    def _answer(self, hop: int, asker: Announcement, box: bytes) -> bytes:
        if asker.name in self._answered:
            self._refuse(f"a second request of '{asker.name}'")
        self._answered.add(asker.name)
        place = self._place("ask", hop, asker.name, self._keys.name)
        try:
            blinded = read_letter(self._keys.identity, asker.identity, place, box).reveal()
            rows = self._most(asker)
            if len(blinded) > WIDTH * (FORMS * rows + min(rows, MOST_BARE)):
                # How many, of how many, is nobody's business who reads refusals.
                self._refuse(f"a request of '{asker.name}' for more ids than it may have")
            evaluated = self._key.evaluate(blinded)
            own = asker.name == self._keys.name
            proofs = b"" if own else self._key.prove(blinded, evaluated)
        except (LetterError, GroupError) as error:
            self._refuse(f"the request of '{asker.name}' ({error})")
        place = self._place("answer", hop, self._keys.name, asker.name)
        return write_letter(self._keys.identity, asker.identity, place, evaluated + proofs)

    def _most(self, asker: Announcement) -> int:
        listed = self._listed(asker)
        return asker.rows if listed is None else min(asker.rows, listed.row_limit)
