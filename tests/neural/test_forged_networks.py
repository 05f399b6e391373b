"""A coordinator of a neural run that asks for more than its part: refused, or answered by noise."""

from __future__ import annotations

import numpy as np
import pytest
from small_networks import HELD, WIDTHS, holdings, sources, tiny

from weft.crypto import Adder
from weft.crypto.keys import ephemeral_keys
from weft.errors import ConfigError, ProtocolError
from weft.federation.messages import ANNOUNCE
from weft.guards.privacy_terms import Terms
from weft.matching.authenticated_class_list import AgreedClasses
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import fields_of
from weft.protocol.shared_fields import Company
from weft.sums.scalar_sums import add_scalars
from weft_neural.coordinator import coordinate_neural
from weft_neural.messages import BUILD, FINISH, PLAN, SCALE, TRAIN
from weft_neural.party import NeuralParty
from weft_neural.scaling import digest_of

TERMS = Terms(allow_networks=True, coordinator_sees="weights")
RUN = b"r" * 16


class Forger:
    """A coordinator that may put any message to any party."""

    def __init__(self, *, how=None, names=tuple(HELD), told=None, **changes):
        keys, self.how = ephemeral_keys(tuple(HELD)), how or tiny()
        self.parties = {
            name: NeuralParty(
                name,
                source,
                keys=keys[name],
                consent=Consent(name, TERMS),
                device="cpu",
                **changes,
            )
            for name, source in sources().items()
            if name in names
        }
        self.adder = Adder("pad")
        self._plan(told or len(self.parties))

    def _plan(self, parties):
        said, announced = {}, {"run": RUN, "parties": parties, "classes": True}
        for name, party in self.parties.items():
            said[name] = put(party, ANNOUNCE, announced)
        cards = b"".join(reply.keys.card(name) for name, reply in said.items())
        for number, (name, party) in enumerate(self.parties.items()):
            party._keyring.take_company(Company(keys=cards))
            plan = {"run": RUN, "settings": self.how.to_json(), **three_classes(party)}
            said[name] = put(party, PLAN, {**plan, "parties": parties, "number": number})
        cards = [reply.keys.card(name) for name, reply in said.items()]
        self.adder.meet(list(self.parties), 0, b"")
        self.listed = {
            "participants.keys": b"".join(cards),
            "participants.labelled": np.ones(len(cards), bool),
        }

    def sums(self, phase, each, count):
        """Totals of what all parties answer to a message of their own each."""
        round_ = self.adder.advance()
        asked = {}
        for name in self.parties:
            fields = {"round": round_, **each(name)}
            listed = self.listed if fields.get("step") == 0 else {}
            asked[name] = phase.read_request({**fields, **listed})
        replies = {name: self.parties[name].on(phase, message) for name, message in asked.items()}
        return np.array(add_scalars(replies, "sums", count, asked))

    def scale(self, widths=None):
        """The first step of scaling, honestly."""
        widths = widths or WIDTHS
        first = begin(list(widths), [*widths.values()])
        return self.sums(SCALE, lambda name: first, 2 * sum(widths.values()))

    def build(self):
        for party in self.parties.values():
            put(party, BUILD, {"give": np.array([], dtype=str), **self.listed})


def three_classes(party):
    """The list of classes, as the parties of this run agreed on it."""
    agreed = AgreedClasses.of(np.arange(3), party._announcing._tag_key())
    return fields_of(agreed, "classes.")


def put(party, phase, fields):
    """Ask a party as over a network."""
    return party.on(phase, phase.read_request(fields))


def begin(blocks, widths):
    """The first step of scaling, of some columns."""
    return {"step": 0, "columns.blocks": np.array(blocks), "columns.widths": np.array(widths)}


def means(name, value):
    """Means of a party's own columns that are all the same, and the digests of them."""
    own = {block: np.full(WIDTHS[block], value) for block in HELD[name]}
    return np.concatenate([own[block] for block in WIDTHS if block in own])


def digests(values):
    return b"".join(digest_of(np.full(WIDTHS[block], values)) for block in WIDTHS)


def test_sums_of_one_party_do_not_come_out_when_others_are_asked_for_nothing():
    """Honestly asked, totals come out; where lists differ, masks do not cancel."""
    honest = Forger().scale()
    ct = np.concatenate([own.blocks["ct"] for own in holdings().values() if "ct" in own.blocks])
    assert honest[5:10] == pytest.approx(ct.sum(axis=0))

    def odd(name):
        return begin(["ct", "lab"], [5, 3]) if name == "north" else begin(["lab", "ct"], [3, 5])

    totals = Forger().sums(SCALE, odd, 16)
    assert (np.abs(totals) > 1e6).all()


@pytest.mark.parametrize(
    ("blocks", "widths"),
    [
        (["zz"], [5]),
        (["ct"], [4]),
        (["ct", "ct"], [5, 5]),
        (["gene"], [10**10]),
        (["gene"], [-3]),
        (["ct", "lab"], [5]),
    ],
)
def test_only_columns_of_the_plan_are_scaled(blocks, widths):
    with pytest.raises(ProtocolError, match="not those of the plan"):
        Forger().sums(SCALE, lambda name: begin(blocks, widths), 1)


def test_squares_are_taken_once_and_about_means_that_all_are_told():
    forger = Forger()
    forger.scale()
    with pytest.raises(ProtocolError, match="comes twice"):
        forger.scale()

    def lying(name):
        """Other means for north, under the digests that the others are told."""
        value = 1.0 if name == "north" else 0.0
        return {"step": 1, "means.mean": means(name, value), "means.digests": digests(0.0)}

    with pytest.raises(ProtocolError, match="not those that others are told"):
        forger.sums(SCALE, lying, 12)
    forger = Forger()
    forger.scale()

    def apart(name):
        """Other means and other digests for north."""
        value = 1.0 if name == "north" else 0.0
        return {"step": 1, "means.mean": means(name, value), "means.digests": digests(value)}

    assert (np.abs(forger.sums(SCALE, apart, 12)) > 1e6).all()


def test_rounds_come_in_order_and_no_more_of_them_than_agreed():
    forger = Forger(how=tiny(rounds=2))
    forger.build()

    def turn(number):
        def each(name):
            extractors, classifier = forger.parties[name]._network.weights()
            return {"turn": number, "extractors": extractors, "classifier": classifier}

        return forger.sums(TRAIN, each, 1)

    turn(1)
    for again in (1, 0, 3):
        with pytest.raises(ProtocolError, match=f"asked for round {again} after round 1 of 2"):
            turn(again)
    for name, party in forger.parties.items():
        extractors, classifier = party._network.weights()
        weights = {"extractors": extractors, "classifier": classifier}
        put(party, FINISH, weights)
        with pytest.raises(ProtocolError, match="asked for round 2"):
            put(forger.parties[name], TRAIN, {"round": 9, "turn": 2, **weights})


def test_a_party_that_knows_of_others_is_not_alone_because_somebody_says_so():
    lone = Forger(names=("north",))
    assert len(lone.scale({"ct": 5, "lab": 3})) == 16
    keys = ephemeral_keys(("north",))
    north = NeuralParty(
        "north", sources()["north"], keys=keys["north"], consent=Consent("north", TERMS)
    )
    north._consent._listed = frozenset({b"x" * 64, b"y" * 64})
    announced = put(north, ANNOUNCE, {"run": RUN, "parties": 1, "classes": True})
    north._keyring.take_company(Company(keys=announced.keys.card("north")))
    plan = {"run": RUN, "settings": tiny().to_json(), **three_classes(north)}
    said = put(north, PLAN, {**plan, "parties": 1, "number": 0})
    card, flags = said.keys.card("north"), np.ones(1, bool)
    asked = {"round": 1, "participants.keys": card, "participants.labelled": flags}
    with pytest.raises((ConfigError, ProtocolError), match="would read its own"):
        put(north, SCALE, {**asked, **begin(["ct"], [5])})


def test_a_message_of_another_phase_is_refused():
    north = Forger().parties["north"]
    with pytest.raises(ProtocolError, match="came with a message of another phase"):
        north.on(TRAIN, FINISH.request(extractors=np.zeros(1, np.float32)))


def test_what_is_left_out_switches_nothing_off():
    """Masks, columns, means: a party refuses what does not say them."""
    forger = Forger()
    north = forger.parties["north"]
    with pytest.raises(ProtocolError, match="must be told once who takes part"):
        put(north, SCALE, {"round": 1, **begin(["ct"], [5])})
    forger = Forger()
    with pytest.raises(ProtocolError, match="'columns' is missing"):
        forger.sums(SCALE, lambda name: {"step": 0}, 1)
    forger.scale()
    with pytest.raises(ProtocolError, match="'means' is missing"):
        forger.sums(SCALE, lambda name: {"step": 1}, 1)
    with pytest.raises(ProtocolError, match="'scales' is missing"):
        forger.build()
    with pytest.raises(ProtocolError, match="'extractors' is missing"):
        forger.sums(TRAIN, lambda name: {"turn": 1}, 1)


def test_a_party_announces_itself_once():
    forger = Forger()
    with pytest.raises(ProtocolError, match="announced itself in this run already"):
        put(forger.parties["north"], ANNOUNCE, {"run": RUN, "parties": 3, "classes": True})


def test_a_party_keeps_to_the_plan_that_it_agreed_to():
    with pytest.raises(ProtocolError, match="another plan"):
        Forger(how=tiny(rounds=50), expected=tiny())
    Forger(how=tiny(), expected=tiny())


def test_minibatches_of_a_private_party_do_not_follow_from_the_seed():
    known, private = Forger(), Forger(private=True)
    draws = []
    for forger in (known, private):
        forger.build()
        local = forger.parties["north"]._network
        draws.append(local._trainer._drawn(4, local._drawing, "round 1 of north"))
    expected = known.parties["north"]._network._trainer._drawn(4, b"0", "round 1 of north")
    assert (draws[0] == expected).all()
    assert not (draws[1] == expected).all()


def test_too_few_parties_in_a_round_are_refused_before_anybody_is_told_a_plan():
    from weft.protocol import LocalChannel

    keys = ephemeral_keys(tuple(HELD))
    parties = {
        name: NeuralParty(name, source, keys=keys[name], consent=Consent(name, TERMS))
        for name, source in sources().items()
    }
    channel = LocalChannel({name: party.on for name, party in parties.items()}, record=True)
    with pytest.raises(ConfigError, match="a round with 2 parties would show their losses"):
        coordinate_neural(channel, tiny(participation=0.7))
    assert {entry.phase for entry in channel.transcript} == {"announce", "classes.list", "classes"}
