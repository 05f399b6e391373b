"""A coordinator that repeats itself: old seeds in a new run, lists of classes one by one."""

from __future__ import annotations

import numpy as np
import pytest

from flat_messages import ask
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.data.tile import Tile
from weft.errors import ProtocolError
from weft.federation.coordinator import coordinate
from weft.federation.party import Party
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards import OPEN
from weft.matching.messages import KEYS as COHORT_KEYS
from weft.protocol import LocalChannel
from weft.solvers.run_settings import Settings

NAME = b"one and the same"
RNG = np.random.default_rng(0)
IDS = np.array([f"s{i}" for i in range(60)], object)
X = RNG.normal(size=(60, 8))
COLUMNS = {"a": [0, 1, 2], "b": [3, 4, 5], "c": [6, 7]}
LABELS = {"a": [0, 1], "b": [1, 2], "c": [0, 2]}
KEYS = ephemeral_keys(tuple(COLUMNS))
MEMBERS = {name: keys.identity.public for name, keys in KEYS.items()}


def party(name, labels):
    columns = COLUMNS[name]
    tile = Tile.make(IDS, [f"f{c}" for c in columns], X[:, columns].copy(), labels)
    return Party(name, [tile], keys=KEYS[name], terms=OPEN, members=MEMBERS)


class Repeating(LocalChannel):
    """Hands a party the boxes of another run in the place of those of this one."""

    def __init__(self, old=None):
        labels = (X[:, 0] > 0).astype(int)
        super().__init__({name: party(name, labels).on for name in COLUMNS})
        self.old, self.boxes = old, {}

    def exchange(self, requests):
        for request in requests:
            if request.phase is COHORT_KEYS:
                self.boxes = dict(request.messages)
                if self.old is not None:
                    request.messages["b"] = self.old["b"]
        return super().exchange(requests)


def run(channel):
    settings = Settings(loss="hinge", lam=0.1, solver="cutting-planes", iterations=2, gap=None)
    return coordinate(channel, Preprocessing(), settings, run=NAME)


def test_seeds_of_another_run_are_refused_also_under_the_same_name():
    """With them a party would hide other numbers under pads that the coordinator has seen."""
    first = Repeating()
    run(first)
    # The same name alone brings no pads back.
    run(Repeating())
    with pytest.raises(ProtocolError, match="not all their holders confirm"):
        run(Repeating(first.boxes))


def boxed(*boxes):
    lengths = np.array([len(box) for box in boxes])
    return {"boxes.content": b"".join(boxes), "boxes.lengths": lengths}


def announced(run=NAME):
    """Parties that have announced themselves, and their lists of classes."""
    parties = {name: party(name, np.resize(LABELS[name], 60)) for name in COLUMNS}
    return parties, listed(parties, run)


def listed(parties, run=NAME):
    """The lists of classes of parties that are told of each other."""
    asked = {"run": run, "parties": len(parties), "classes": True}
    parts = ("public", "nonce", "exchange", "signature")
    cards = []
    for each in parties.values():
        said = ask(each, "announce", asked)
        cards += [said[f"keys.{part}"] for part in parts]
    company = {"company.keys": b"".join(cards)}
    return {name: ask(p, "classes.list", company)["classes"] for name, p in parties.items()}


def test_classes_are_joined_once_and_never_those_of_another_alone():
    parties, boxes = announced()
    assert len({len(box) for box in boxes.values()}) == 1
    joined = ask(parties["a"], "classes", boxed(*boxes.values()))["classes.values"]
    assert joined.tolist() == [0, 1, 2]
    for name, chosen, why in (
        ("a", boxes.values(), "once in a run"),
        ("b", [boxes["a"]], "together with its own"),
        ("c", [boxes["c"]] * 3, "came twice"),
    ):
        with pytest.raises(ProtocolError, match=why):
            ask(parties[name], "classes", boxed(*chosen))


@pytest.mark.parametrize("name", [NAME, b"another run"])
def test_a_list_of_classes_is_of_one_run(name):
    _, old = announced(name)
    parties, boxes = announced()
    with pytest.raises(ProtocolError, match="under the run secret"):
        ask(parties["a"], "classes", boxed(boxes["a"], boxes["b"], old["c"]))


def own_classes():
    """The classes that the coordinator reads of b by three runs of one name."""
    lists = []
    for _ in range(3):
        parties, boxes = announced()
        lists.append(boxes["b"])
    return ask(parties["b"], "classes", boxed(*lists))["classes.values"].tolist()


def test_lists_of_three_runs_of_one_name_are_not_joined(record, monkeypatch):
    with pytest.raises(ProtocolError, match="under the run secret"):
        own_classes()
    record("36", "guarded", "refused; tokens of two runs of one name have nothing in common")
    by_name(monkeypatch)
    assert own_classes() == sorted(set(LABELS["b"]))
    record("36", "unguarded", f"the {len(set(LABELS['b']))} classes of one party alone")


def by_name(monkeypatch):
    """Parties whose keys depend on the name of a run, which the coordinator chooses."""
    monkeypatch.setattr(
        Keyring, "bound_secret", lambda ring, label: ring.run_secret.derive(label, ring.run_id)
    )


class Listening(LocalChannel):
    """Notes the tokens of ids."""

    def __init__(self):
        labels = (X[:, 0] > 0).astype(int)
        super().__init__({name: party(name, labels).on for name in COLUMNS}, record=True)

    def tokens(self):
        run(self)
        found = [e.reply["rows"] for e in self.transcript if e.phase == "match.tokens"]
        return set(np.concatenate(found).tolist())


def test_tokens_of_two_runs_of_one_name_have_nothing_in_common(monkeypatch):
    assert not Listening().tokens() & Listening().tokens()
    by_name(monkeypatch)
    assert Listening().tokens() == Listening().tokens()
