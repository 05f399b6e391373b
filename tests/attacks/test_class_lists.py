"""A coordinator that tells parties other lists of classes, to read labels off their tokens.

Breast cancer, three vertical parties. Unguarded, tokens are made of an id and the *number* of its
class, for any list and as often as asked: under a list with one class more in the middle, the
tokens of the classes behind it change and the others stay.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scene import by_columns, run, table_of

from weft.errors import WeftError
from weft.matching.authenticated_class_list import AgreedClasses
from weft.matching.party import MatchingParty
from weft.protocol import Fields, fields_of
from weft.protocol.shared_fields import Boxes
from weft.solvers.run_settings import Settings

VICTIM = "p1"
HOW = Settings(lam=0.01, solver="lbfgs", loss="logistic", gap=1e-2)


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", 300)


class Stopped(BaseException):
    """The coordinator has what it wanted."""


class Asker:
    """Asks one party for its tokens under several lists of classes.

    Attributes
    ----------
    told
        The party's tokens of (id, label), list by list.
    truth
        For the judge: the labels in the order of the tokens.
    """

    def __init__(self, *lists: Callable[[Any], Any]) -> None:
        self.lists = lists
        self.told: list[Fields] = []
        self.truth = np.zeros(0)

    def around(self, name: str, handler: Any) -> Any:
        def answer(phase: str, message: Fields) -> Fields:
            if phase != "match.tokens" or name != VICTIM:
                return handler(phase, message)
            for other in self.lists:
                values = other(message["classes.values"])
                self.told.append(handler(phase, {**message, "classes.values": values}))
            party = handler.__self__
            self.truth = party.data.tiles[0].labels[party._matching._sent.rows[0]]
            raise Stopped

        return answer

    def labels_read(self) -> int:
        """Labels that two lists of tokens tell: those whose tokens stayed have the first class."""
        first, second = self.told
        stayed = first["labels"] == second["labels"]
        if stayed.all() or not stayed.any():
            return 0
        return int((np.where(stayed, 0, 1) == self.truth).sum())


def as_it_is(classes):
    return classes


def one_more(classes):
    """Another class between the two."""
    return np.array([classes[0], 99, classes[1]])


def forgetful(monkeypatch):
    """Parties that make tokens as often as they are asked."""
    made = MatchingParty._tokens

    def again(self, message):
        self._asked = False
        return made(self, message)

    monkeypatch.setattr(MatchingParty, "_tokens", again)


def believing(monkeypatch):
    """Parties that take any list of classes."""
    monkeypatch.setattr(AgreedClasses, "taken", lambda self, key: self.values)


def counting(monkeypatch):
    """Parties that hash the number of a class."""
    monkeypatch.setattr(
        AgreedClasses, "names", lambda self: [b"%d" % k for k in range(len(self.values))]
    )


def attack(table, asker: Asker) -> None:
    with pytest.raises(Stopped):
        run(by_columns(table, 3), HOW, around=asker.around)


def test_two_lists_of_classes_tell_all_labels(table, record, monkeypatch):
    for without in (forgetful, believing, counting):
        without(monkeypatch)
    asker = Asker(as_it_is, one_more)
    attack(table, asker)
    assert asker.labels_read() == table.n
    record("23", "unguarded", f"{asker.labels_read()} of {table.n} labels, none wrong")


def test_tokens_of_names_tell_no_label_under_any_list(table, monkeypatch):
    for without in (forgetful, believing):
        without(monkeypatch)
    asker = Asker(as_it_is, one_more)
    attack(table, asker)
    assert np.array_equal(asker.told[0]["labels"], asker.told[1]["labels"])
    assert asker.labels_read() == 0


@pytest.mark.parametrize(
    "lists",
    [(one_more,), (lambda c: c[::-1],), (lambda c: c[:1],), (as_it_is, as_it_is)],
    ids=["one more", "another order", "one left out", "asked twice"],
)
def test_only_the_list_that_the_parties_agreed_on_is_taken_and_once(table, record, lists):
    asker = Asker(*lists)
    with pytest.raises(WeftError, match=r"agreed on|once in a run"):
        run(by_columns(table, 3), HOW, around=asker.around)
    assert len(asker.told) == len(lists) - 1
    if len(lists) == 2:
        record("23", "guarded", "refused, no token made (3 other lists); a second question too")


class Omitting:
    """Leaves a party's list out of those that are joined, or puts another's in its place."""

    def __init__(self, change: Callable[[list[bytes]], list[bytes]]) -> None:
        self.change = change

    def around(self, name: str, handler: Any) -> Any:
        def answer(phase: str, message: Fields) -> Fields:
            if phase == "classes":
                boxes = Boxes(content=message["boxes.content"], lengths=message["boxes.lengths"])
                message = {**message, **fields_of(Boxes.of(self.change(boxes.cut())), "boxes.")}
            return handler(phase, message)

        return answer


@pytest.mark.parametrize(
    "change",
    [lambda b: b[1:], lambda b: b[:-1], lambda b: [b[0], b[1], b[1]], lambda b: b[:1]],
    ids=["one", "the last", "one twice", "all but one"],
)
def test_no_list_of_classes_is_left_out(table, change):
    with pytest.raises(WeftError, match=r"once in a run|came twice"):
        run(by_columns(table, 3), HOW, around=Omitting(change).around)


def test_a_loss_for_numbers_is_not_trained_on_classes(table):
    def around(name, handler):
        def answer(phase, message):
            if phase == "announce":
                message = {**message, "classes": False}
            return handler(phase, message)

        return answer

    with pytest.raises(WeftError):
        run(by_columns(table, 3), HOW, around=around)
