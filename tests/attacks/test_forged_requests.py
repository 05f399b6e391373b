"""A coordinator that asks the key holders of matching in a party's name.

Whoever may ask for tokens of ids that he only guesses finds out who is in a table: ids are few.
Unguarded is a model of matching through key holders whose requests travel unsealed, made of the
same oblivious function; then the key holders of Weft are sent forged requests. The ids are those of
breast cancer, 569 guesses.
"""

from __future__ import annotations

import msgspec
import pytest
from scene import by_columns, run, table_of

from weft.crypto.authenticated_party_letters import write_letter
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.crypto.primitives.oprf import blind, finalize, matching_key, unblind
from weft.errors import WeftError
from weft.federation.local_federation import Preprocessing
from weft.matching.oprf_announcement_and_limits import Announcement
from weft.protocol import fields_of
from weft.protocol.shared_fields import Boxes
from weft.solvers.run_settings import Settings

HOLDER, VICTIM = "p1", "p3"


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", 120)


# ── unsealed requests ─────────────────────────────────────────────────────────────────────────


def tokens_of(ids: list[bytes], holders) -> list[bytes]:
    """What anybody gets whose requests are answered."""
    blinds, elements = blind(ids)
    for key in holders:
        elements = key.evaluate(elements)
    return finalize(ids, unblind(elements, blinds))


def test_a_coordinator_whose_requests_are_answered_finds_out_who_is_there(record):
    holders = [matching_key(Identity.new()) for _ in range(2)]
    everybody = [text.encode() for text in table_of("breast_cancer").ids.tolist()]
    present = everybody[100:140]
    tokens = set(tokens_of(present, holders))
    # The coordinator has the tokens, and asks for guesses as if a party did.
    guessed = dict(zip(tokens_of(everybody, holders), everybody, strict=True))
    found = [guessed[token] for token in tokens]
    assert sorted(found) == sorted(present)
    record("13", "unguarded", f"{len(found)} of {len(present)} ids found among {len(everybody)}")


# ── letters ───────────────────────────────────────────────────────────────────────────────────


#: What a forger knows: the run, everybody's card and letter, and whose place it takes.
Asked = tuple[bytes, list[bytes], list[bytes], int]


def guesses() -> bytes:
    """Elements that the coordinator would like to have evaluated."""
    return blind([str(number).encode() for number in range(40)])[1]


def own_letter(me: Identity, asked: Asked) -> bytes:
    run_, cards, _, _ = asked
    holder = PublicIdentity.from_bytes(card_of(cards, HOLDER).public)
    place = msgspec.msgpack.encode(["weft matching 2", run_, "ask", 0, 0, VICTIM, HOLDER])
    return write_letter(me, holder, place, guesses())


def in_the_clear(asked: Asked) -> tuple[bytes, bytes]:
    """Elements that nobody has sealed."""
    return asked[1][asked[3]], guesses()


def by_the_coordinator(asked: Asked) -> tuple[bytes, bytes]:
    """A letter that the coordinator has written itself."""
    return asked[1][asked[3]], own_letter(Identity.new(), asked)


def under_its_own_card(asked: Asked) -> tuple[bytes, bytes]:
    """A letter that fits a card which the coordinator has made in p3's name."""
    me, theirs = Identity.new(), card_of(asked[1], VICTIM)
    card = Announcement(VICTIM, me.public.to_bytes(), theirs.key, theirs.rows, theirs.tag)
    return msgspec.msgpack.encode(card), own_letter(me, asked)


def of_another_party(asked: Asked) -> tuple[bytes, bytes]:
    """p2's letter, once more, in p3's name."""
    _, cards, boxes, place = asked
    return cards[place], boxes[place - 1]


def twice(asked: Asked) -> tuple[bytes, bytes]:
    """p2 asks a second time in the place of p3."""
    _, cards, boxes, place = asked
    return cards[place - 1], boxes[place - 1]


FORGERIES = (in_the_clear, by_the_coordinator, under_its_own_card, of_another_party, twice)


def card_of(cards: list[bytes], name: str) -> Announcement:
    read = [msgspec.msgpack.decode(card, type=Announcement) for card in cards]
    return next(card for card in read if card.name == name)


def cut_out(message, field: str) -> list[bytes]:
    return Boxes(content=message[f"{field}.content"], lengths=message[f"{field}.lengths"]).cut()


def put_in(field: str, boxes: list[bytes]) -> dict:
    return fields_of(Boxes.of(boxes), f"{field}.")


class Forger:
    """Puts something else in the place of p3's letter to the first key holder."""

    def __init__(self, forge) -> None:
        self.forge = forge
        self.run = b""
        self.forged = 0
        self.answers: list[dict] = []

    def around(self, name, handler):
        def answer(phase, message):
            self.run = message.get("run", self.run)
            if phase != "match.evaluate" or name != HOLDER:
                return handler(phase, message)
            cards, boxes = cut_out(message, "cards"), cut_out(message, "boxes")
            place = cards.index(msgspec.msgpack.encode(card_of(cards, VICTIM)))
            cards[place], boxes[place] = self.forge((self.run, cards, boxes, place))
            self.forged += 1
            reply = handler(phase, {**message, **put_in("cards", cards), **put_in("boxes", boxes)})
            self.answers.append(reply)
            return reply

        return answer


def test_key_holders_of_weft_answer_what_nobody_forged(table):
    forger = Forger(lambda asked: (asked[1][asked[3]], asked[2][asked[3]]))
    how = Settings(lam=0.01, solver="lbfgs", loss="logistic", gap=1e-2)
    run(
        by_columns(table, 3),
        how,
        preprocessing=Preprocessing(matching="oprf"),
        around=forger.around,
    )
    assert forger.forged == len(forger.answers) == 1


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_key_holders_of_weft_answer_the_parties_themselves_only(table, record, forge):
    forger = Forger(forge)
    how = Settings(lam=0.01, solver="lbfgs", loss="logistic", gap=1e-2)
    sealed = Preprocessing(matching="oprf")
    with pytest.raises(WeftError, match="party p1 refuses"):
        run(by_columns(table, 3), how, preprocessing=sealed, around=forger.around)
    assert forger.forged == 1
    assert forger.answers == []
    if forge is FORGERIES[-1]:
        record("13", "guarded", f"refused, nothing evaluated ({len(FORGERIES)} kinds of forgery)")
