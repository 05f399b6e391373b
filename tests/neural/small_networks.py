"""Small federations of networks for tests, and doors between a coordinator and its parties.

Not a test itself.
"""

from __future__ import annotations

import numpy as np

from weft.network.exchange_outcomes_and_journal_records import reply_of
from weft.protocol import Channel, fields_of, pack
from weft.protocol.channel import Failure, Replies
from weft_neural.local_federation import NeuralFederation
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource
from weft_neural.settings import Block, NeuralSettings

#: Which blocks the three parties hold.
HELD = {"north": ("ct", "lab"), "east": ("lab", "gene"), "south": ("ct", "gene")}
WIDTHS = {"ct": 5, "lab": 3, "gene": 4}
CLASSES = 3
#: Every class is at two parties.
SEEN = {"north": (0, 1), "east": (1, 2), "south": (0, 2)}


def samples(count, seed=0, widths=WIDTHS):
    """Blocks and labels: a cloud around a centre per class."""
    random = np.random.default_rng((7, seed))
    centres = np.random.default_rng(1)
    labels = random.integers(0, CLASSES, count)
    blocks = {
        name: (2 * centres.normal(size=(CLASSES, width))[labels])
        + random.normal(size=(count, width))
        for name, width in widths.items()
    }
    return blocks, labels


def holdings(count=60, held=HELD, seen=SEEN):
    """Per party its blocks of the samples of its classes, and test samples of all classes."""
    test, test_labels = samples(90, seed=99)
    found = {}
    for number, (party, names) in enumerate(held.items()):
        blocks, labels = samples(count, seed=number)
        rows = np.isin(labels, seen[party])
        found[party] = Holdings(
            {name: blocks[name][rows] for name in names},
            labels[rows],
            test=Holdings({name: test[name] for name in names}, test_labels),
        )
    return found


def sources(*args, **keywords):
    return {party: BlockSource(party, own) for party, own in holdings(*args, **keywords).items()}


def tiny(names=WIDTHS, *, block=None, **changes):
    """Settings of a run of a second at most."""
    each = Block(extractor="mlp", options={"hidden": (), "features": 4}) if block is None else block
    chosen = {
        "coordinator_sees": "weights",
        "hidden": (6,),
        "rounds": 3,
        "steps": 4,
        "batch": 8,
        "patience": 0.0,
        **changes,
    }
    return NeuralSettings(blocks=dict.fromkeys(names, each), **chosen)


def trained(own=None, how=None, *, door=None, **keywords):
    """A run in this process."""
    federation = NeuralFederation(sources() if own is None else own, device="cpu", **keywords)
    return federation.train(tiny() if how is None else how, through=door)


def numbers(model):
    """All weights of a model as one vector."""
    parts = [*model.extractors.values(), *(layer.ravel() for layer in model.classifier)]
    return np.concatenate(parts)


class Door(Channel):
    """Stands before another channel; what goes through can be looked at or changed.

    Parameters
    ----------
    away
        (phase, message, party) → a kind of failure if the party is not to be reached; None: it is.
    change
        (phase, party, fields of the reply) → those that the coordinator's channel reads, as from
        a network.
    """

    def __init__(self, channel, *, away=None, change=None):
        super().__init__()
        self._channel, self._away, self._change = channel, away, change
        self.meter = channel.meter
        self.paused = 0.0

    @property
    def parties(self):
        return self._channel.parties

    def pause(self, seconds):
        self.paused += seconds

    def exchange(self, requests):
        return [self._one(request.phase, request.messages) for request in requests]

    def _one(self, phase, messages):
        gone = {}
        for party, message in messages.items():
            kind = self._away and self._away(phase.name, message, party)
            if kind:
                gone[party] = Failure(kind, "a storm")
        reached = {party: message for party, message in messages.items() if party not in gone}
        found = self._channel.ask(phase, reached)
        answered = found.answered
        if self._change is not None:
            answered = {p: self._changed(phase, p, reply) for p, reply in answered.items()}
        return Replies(phase.name, answered, {**found.missing, **gone})

    def _changed(self, phase, party, reply):
        fields = self._change(phase.name, party, fields_of(reply))
        return reply_of(phase, party, pack(fields))
