"""Parts that many messages share: numbers of requests, pads to take off, who is asked, boxes."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import Annotated, Self

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Slots
from weft.protocol.declared_message_fields import Message, Part, declared, malformed
from weft.protocol.field_visibility import keys, record, sealed

PadIds = NDArray[np.uint64]

#: Bytes of a party's public keys; of its nonce and its exchange key of the run; and of its
#: signature of these. A card is all of them.
PUBLIC = 64
NONCE = 16
EXCHANGE = 32
SIGNATURE = 64
CARD = PUBLIC + NONCE + EXCHANGE + SIGNATURE

_PADS = "ids of the pads to take off"


class PadNews(Part):
    """Pads under single slots that changed since the party was told."""

    slots: Annotated[Slots, record(_PADS, "slots", common=True)]
    lengths: Annotated[NDArray[np.uint32], record(_PADS, "runs", common=True)]
    marks: Annotated[PadIds, record(_PADS, "runs", common=True)]
    sets: Annotated[PadIds | None, record(_PADS, "entries", common=True)] = None


_ASKED = "over whom this sum goes"
_MASKS = "who shares masks with it"


class Asked(Part):
    """Who contributes to one sum in this request: the parties asked, a bit for each.

    From this and from the confirmed lists of holders a party works out with whom it shares masks,
    and whose pad it takes off (`weft.crypto.pads.cohort_mask_neighbours`).

    Attributes
    ----------
    parties
        Who is asked; None: everyone.
    again
        Which of them have contributed to the sum before; None: nobody has.
    torn
        The id of the request before, whose ring was left open, as somebody fell silent: its masks
        are taken off by those who are left, who are all that are asked.
    checks_left, checks_right, checks_torn
        Neighbours at the check words of whole chunks, −1: none; and per chunk, the request whose
        masks are taken off, zero: none.
    """

    parties: Annotated[NDArray[np.uint8] | None, record(_ASKED, "bytes", common=True)] = None
    again: Annotated[NDArray[np.uint8] | None, record(_ASKED, "bytes", common=True)] = None
    torn: Annotated[int | None, record(_MASKS, common=True)] = None
    checks_left: Annotated[Slots | None, record(_MASKS, "chunks", common=True)] = None
    checks_right: Annotated[Slots | None, record(_MASKS, "chunks", common=True)] = None
    checks_torn: Annotated[PadIds | None, record(_MASKS, "chunks", common=True)] = None


class PadLinks(Part):
    """Which pads a party's contribution to one sum takes off.

    A request has one for each sum that it asks for, in a field named after the sum (``v_pads``),
    which `weft.sums.coordinator_pad_bookkeeping.PadBookkeeping.invite` sets.

    Attributes
    ----------
    chain
        Per cohort that the party shares and leads, the id of the pad under the total, or the
        number of a set of ids.
    chain_sets
        The sets of ids that ``chain`` names.
    checks, checks_sets
        The same for the check words of whole chunks.
    news
        Pads under single slots, where parties contribute to some slots only.
    asked
        Who contributes; None: everyone, for the first time.
    """

    chain: Annotated[PadIds | None, record(_PADS, "cohorts", common=True)] = None
    chain_sets: Annotated[PadIds | None, record(_PADS, "entries", common=True)] = None
    checks: Annotated[PadIds | None, record(_PADS, "chunks", common=True)] = None
    checks_sets: Annotated[PadIds | None, record(_PADS, "entries", common=True)] = None
    news: PadNews | None = None
    asked: Asked | None = None


class Company(Part):
    """Other parties whom a message names, by their cards: public keys, and what they drew.

    Every part with such keys is a company, so that a party with a roster can refuse keys of
    strangers in any message
    (:meth:`weft.privacy.agreement.party_consent_checks.Consent.check_company`).
    """

    keys: Annotated[bytes, keys("of other parties", common=True)]

    def cards(self) -> list[bytes]:
        """The cards, party by party."""
        if len(self.keys) % CARD:
            raise malformed("keys", f"does not hold {CARD} bytes for every party named")
        return [self.keys[at : at + CARD] for at in range(0, len(self.keys), CARD)]


class Everyone(Company):
    """All parties of a run, before it is known what they hold; every party is told the same."""

    keys: Annotated[bytes, keys("of all parties, and their random bytes")]


def company_in(message: Message | Part) -> Iterator[Company]:
    """All companies that a message names, in whichever of its parts."""
    for attribute in _with_company(type(message)):
        part = getattr(message, attribute)
        if isinstance(part, Company):
            yield part
        elif part is not None:
            yield from company_in(part)


@cache
def _with_company(kind: type[Message] | type[Part]) -> tuple[str, ...]:
    """The fields of a type of messages in which there can be a company."""
    return tuple(
        field.attribute
        for field in declared(kind)
        if issubclass(field.kind, Company)
        or (issubclass(field.kind, Part) and _with_company(field.kind))
    )


class Participants(Company):
    """All parties of a run, in the order of their numbers: every party is told the same.

    Secrets between parties depend on this list. Where two parties are told different ones, nothing
    that they hide from the coordinator fits together, and it reads nothing.

    Attributes
    ----------
    labelled
        Who has labels of some sample: sums of losses go over these parties.
    """

    keys: Annotated[bytes, keys("of all parties, and their random bytes", common=True)]
    labelled: Annotated[Flags, record("who has labels of some sample", "parties", common=True)]


#: Over whom a sum of scalars goes where it is not everyone: a bit for every party.
Attending = Annotated[
    NDArray[np.uint8] | None, record("over whom a sum of scalars goes", "bytes", common=True)
]


class SumRequest(Message):
    """A request that asks for a sum, or brings one: its number must be new."""

    round: Annotated[int, record("number of the request", common=True)]


class IterationRequest(SumRequest):
    """A request of one iteration of a solver."""

    iteration: Annotated[int, record("number of the iteration", common=True)]


class AcknowledgedRequest(IterationRequest):
    """A request to a party whose replies change what both sides must agree on.

    ``ack`` is the number of its last reply that arrived: a later one is taken back.
    """

    ack: Annotated[int, record("number of its last reply that arrived", common=True)]


class Boxes(Part):
    """Sealed boxes, one after the other."""

    content: Annotated[bytes, sealed("sealed boxes, one after the other")]
    lengths: Annotated[NDArray[np.int64], record("where a box ends", "boxes")]

    @classmethod
    def of(cls, boxes: list[bytes]) -> Self:
        """Put boxes together."""
        return cls(content=b"".join(boxes), lengths=np.array([len(b) for b in boxes], np.int64))

    def cut(self) -> list[bytes]:
        """The boxes, one by one."""
        at, found = 0, []
        for length in self.lengths.tolist():
            found.append(self.content[at : at + length])
            at += max(length, 0)
        if at != len(self.content):
            raise malformed("boxes", "do not have the lengths told")
        return found
