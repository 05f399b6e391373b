"""Matching through key holders: a party's half.

A token is made from k₂ · k₁ · H(id), where two parties hold k₁ and k₂. Every party blinds its ids,
has both holders multiply them, one after the other, checks their proofs and takes the blinds off.
Whoever holds one key, or none, cannot try out ids: he has to ask, each party once and for no more
ids than it has rows.

Requests and answers are letters between parties; the coordinator carries them. Whoever has many ids
asks in parts, one after the other through both keys: so nobody holds more than a part of them as
points, a run can tell how far it is, and where letters are remembered, what a killed party worked
out before is not worked out again. Public keys come
through the coordinator too, each with a tag under the run secret, which it does not have; where the
members' keys are known beforehand, they must be those.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from hashlib import blake2b
from hmac import compare_digest
from typing import NoReturn, Protocol

import msgspec

from weft.crypto.authenticated_party_letters import LetterError, read_letter, write_letter
from weft.crypto.party_key_agreement import Keys
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.primitives.oprf import OprfKey, blind, finalize, matching_key, unblind, verify
from weft.crypto.primitives.ristretto import GroupError, count_of, scalars_of
from weft.crypto.randomness_kept_for_restart import Forgotten, RandomnessLog
from weft.errors import ProtocolError
from weft.matching.messages import AskReply, AskRequest, EvaluateReply, EvaluateRequest
from weft.matching.oprf_announcement_and_limits import (
    Announcement,
    may_follow,
    most_ids,
    parts_of,
    range_of,
    read_announcement,
)
from weft.protocol.shared_fields import Boxes

#: Ids from which on it is quicker to read what came of them than to work it out again.
LONG = 1 << 12
#: Random bytes that all blinds of a part follow from.
_SEED = 32


class Known(Protocol):
    """What a signed roster says of a member."""

    @property
    def identity(self) -> PublicIdentity: ...

    @property
    def matching_key(self) -> bytes | None: ...

    @property
    def row_limit(self) -> int: ...


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
        self._inputs: Sequence[bytes] = ()
        #: Which part of them it asks about, and which of the holders.
        self._part, self._hop = -1, 0
        self._blinds = b""
        #: What was sent to the last holder.
        self._sent = b""
        self._holders: list[Announcement] = []
        #: What came of the parts before.
        self._outputs: list[bytes] = []
        #: For how many ids each party was answered, part by part.
        self._answered: dict[str, list[int]] = {}

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
        found = read_announcement(content)
        if found is None:
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

    def _place(self, step: str, hop: int, part: int, writer: str, reader: str) -> bytes:
        """Where a letter belongs."""
        where = ["weft matching 2", self._run, step, hop, part, writer, reader]
        return msgspec.msgpack.encode(where)

    def _once(self, name: str, count: int, work: Callable[[], bytes]) -> bytes:
        """What takes long for so many ids: where a killed party comes back, it is remembered.

        Under its own key: the seed of the blinds is in the same memory, and ids without blinds are
        the same in every run.
        """
        if not self._draws.lasting or count < LONG:
            return work()
        own, place = self._keys.identity, self._place(name, 0, 0, self._keys.name, self._keys.name)
        kept = self._draws.take(name, lambda: write_letter(own, own.public, place, work()))
        try:
            return read_letter(own, own.public, place, kept).reveal()
        except LetterError:
            raise Forgotten(
                f"party {self._keys.name} cannot read '{name}' in its memory of this run, which "
                "another key sealed or somebody changed; start a new run"
            ) from None

    # ── asking ────────────────────────────────────────────────────────────────────────────

    def ask(self, message: AskRequest, inputs: Callable[[], Sequence[bytes]]) -> AskReply:
        """A letter to the next key holder; ``inputs`` are asked for once.

        Nothing changes here before all that can be refused has been looked at.
        """
        if self._part < 0:
            self._inputs = inputs()
        hop, part = message.hop, message.part
        goes_on = hop > 0 and part == self._part and hop == self._hop + 1
        if not goes_on and (hop or part != self._part + 1 or part >= self._parts):
            self._refuse(f"to be asked for step {hop} of part {part} out of turn")
        holder = self._meet(message.holder)
        self._check_holder(hop, part, holder)
        if goes_on:
            self._sent = self._take_answer(message.box)
        else:
            found = self._finished_part(message.box) if part else []
            self._blinds, self._sent = self._begun_part(part)
            self._outputs += found
        self._part, self._hop = part, hop
        if not part:
            self._holders.append(holder)
        place = self._place("ask", hop, part, self._keys.name, holder.name)
        letter = write_letter(self._keys.identity, holder.identity, place, self._sent)
        return AskReply(box=letter, parts=self._parts)

    @property
    def _parts(self) -> int:
        return parts_of(len(self._inputs))

    def _asked(self) -> Sequence[bytes]:
        """The inputs of the part."""
        return self._inputs[range_of(self._part)]

    def _begun_part(self, part: int) -> tuple[bytes, bytes]:
        """Blinds of a part, and its blinded ids."""
        # A seed is remembered in the place of the blinds, which take as much room as the ids.
        seed = self._draws.random("blinds", _SEED)
        asked = self._inputs[range_of(part)]
        blinds = scalars_of(seed, len(asked))
        return blinds, self._once("blinded ids", len(asked), lambda: blind(asked, blinds)[1])

    def _check_holder(self, hop: int, part: int, holder: Announcement) -> None:
        """The holders of the first part are those of all: else ids of two parts never meet."""
        if part:
            if hop >= len(self._holders) or holder != self._holders[hop]:
                self._refuse(f"'{holder.name}' as a key holder that was not one before")
            return
        if any(holder.name == other.name for other in self._holders):
            self._refuse(f"'{holder.name}' as key holder twice")
        listed = self._listed(holder)
        if self._known is not None and (listed is None or listed.matching_key != holder.key):
            self._refuse(f"the matching key of '{holder.name}', which is not the roster's")

    def _take_answer(self, box: bytes | None) -> bytes:
        """What the last holder made of the elements sent, if its proofs are right."""
        if not self._holders:
            self._refuse("an answer that it never asked for")
        if box is None:
            self._refuse("to go on without the answer of a key holder")
        holder = self._holders[self._hop]
        place = self._place("answer", self._hop, self._part, holder.name, self._keys.name)
        try:
            content = read_letter(self._keys.identity, holder.identity, place, box).reveal()
            evaluated, proofs = content[: len(self._sent)], content[len(self._sent) :]
            count = len(self._asked())
            self._once("proofs checked", count, lambda: self._checked(holder, evaluated, proofs))
        except (LetterError, GroupError) as error:
            self._refuse(f"the answer of key holder '{holder.name}' ({error})")
        return evaluated

    def _checked(self, holder: Announcement, evaluated: bytes, proofs: bytes) -> bytes:
        # Nobody has to prove anything to himself.
        if holder.name != self._keys.name:
            verify(holder.key, self._sent, evaluated, proofs)
        return b"right"

    def _finished_part(self, box: bytes | None) -> list[bytes]:
        if self._hop + 1 < max(len(self._holders), self._needed()):
            self._refuse(f"to match with {self._hop + 1} key holder(s)")
        answer, asked = self._take_answer(box), self._asked()
        bare = self._once("ids without blinds", len(asked), lambda: unblind(answer, self._blinds))
        return finalize(asked, bare)

    def finish(self, box: bytes | None) -> list[bytes]:
        """64 secret bytes per input, the same at every party that has it, from the last answer."""
        if self._part >= 0 and self._part + 1 < self._parts:
            self._refuse("to match before it has asked about all of its ids")
        found = self._outputs + self._finished_part(box)
        self._blinds = self._sent = b""
        self._outputs, self._inputs = [], ()
        return found

    def _needed(self) -> int:
        if self._known is None:
            return 1
        return min(2, sum(m.matching_key is not None for m in self._known.values()))

    # ── answering ─────────────────────────────────────────────────────────────────────────

    def evaluate(self, message: EvaluateRequest) -> EvaluateReply:
        """Answers to the letters of all parties, to each part of their ids once in a run."""
        cards, boxes = message.cards.cut(), message.boxes.cut()
        if len(cards) != len(boxes):
            self._refuse("letters of which it is not told who wrote them")
        answers = []
        for card, box in zip(cards, boxes, strict=True):
            answers.append(self._answer(message.hop, message.part, self._meet(card), box))
        return EvaluateReply(boxes=Boxes.of(answers))

    def _answer(self, hop: int, part: int, asker: Announcement, box: bytes) -> bytes:
        before = self._answered.setdefault(asker.name, [])
        if part < len(before):
            self._refuse(f"a second request of '{asker.name}'")
        if part > len(before):
            self._refuse(f"a request of '{asker.name}' before those that it follows")
        place = self._place("ask", hop, part, asker.name, self._keys.name)
        try:
            blinded = read_letter(self._keys.identity, asker.identity, place, box).reveal()
            count = count_of(blinded)
            # How many, of how many, is nobody's business who reads refusals.
            if sum(before) + count > most_ids(self._most(asker)):
                self._refuse(f"a request of '{asker.name}' for more ids than it may have")
            if not may_follow(before, count):
                self._refuse(f"a request of '{asker.name}' in parts that are not full or too long")
            before.append(count)
            answer = self._once(
                "answers of its key", count, lambda: self._evaluated(asker, blinded)
            )
        except (LetterError, GroupError) as error:
            self._refuse(f"the request of '{asker.name}' ({error})")
        place = self._place("answer", hop, part, self._keys.name, asker.name)
        return write_letter(self._keys.identity, asker.identity, place, answer)

    def _evaluated(self, asker: Announcement, blinded: bytes) -> bytes:
        evaluated = self._key.evaluate(blinded)
        own = asker.name == self._keys.name
        return evaluated + (b"" if own else self._key.prove(blinded, evaluated))

    def _most(self, asker: Announcement) -> int:
        """How many rows it may have."""
        listed = self._listed(asker)
        return asker.rows if listed is None else min(asker.rows, listed.row_limit)
