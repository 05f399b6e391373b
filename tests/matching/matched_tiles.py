"""Tiles that are matched without training, through messages that a test may change."""

from __future__ import annotations

from secrets import token_bytes

import numpy as np

from weft.crypto import Adder
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.guards.privacy_terms import OPEN
from weft.matching.coordinator import meet
from weft.matching.messages import VIEW
from weft.matching.party import MatchingParty
from weft.privacy.agreement import Consent
from weft.protocol import LocalChannel, fields_of
from weft.protocol.shared_fields import Boxes


def matched(tiles, *, change=None, keys=None, known=None, terms=OPEN, matching="oprf", **options):
    """Match without training; ``change`` sees every message and may change it.

    It gets direction, phase, party and the fields that travel, and gives those that go on.
    """
    change = change or (lambda direction, phase, party, message: message)
    keys = keys or ephemeral_keys(tuple(tiles))
    parties, announced, run = {}, {}, options.pop("run", token_bytes(16))
    for name, held in tiles.items():
        labels = [np.full(t.n, np.nan) if t.labels is None else t.labels * 1.0 for t in held]
        ring = Keyring(keys[name], "pad")
        announced[name] = ring.announce(run)
        parties[name] = MatchingParty(
            name,
            held,
            keys[name],
            ring,
            targets=lambda _, y=labels: y,
            accept=Consent(name, terms).check_matching,
            known=known,
        )

    def handler(name, party):
        answers = party.answers()

        def answer(phase, message):
            message = phase.read_request(change("down", phase.name, name, fields_of(message)))
            if phase is VIEW:
                party.sit(message)
                reply = party.make_seeds(message)
            else:
                reply = answers[phase.name].handle(message)
            return phase.read_reply(change("up", phase.name, name, fields_of(reply)))

        return answer

    channel = LocalChannel({n: handler(n, p) for n, p in parties.items()}, record=True)
    channel.follower = options.pop("follow", None)
    told = {"run": run, "keys": announced, "classes": None, "matching": matching}
    roster = meet(channel, Adder("pad"), **told, **options)
    return roster, channel, parties


def cut(message, part):
    """The boxes in a part of a message."""
    return Boxes(content=message[f"{part}.content"], lengths=message[f"{part}.lengths"]).cut()


def filled(message, part, boxes):
    """A message with other boxes in a part."""
    return {**message, **fields_of(Boxes.of(boxes), f"{part}.")}


def only(direction, phase, party, change):
    """Change the messages of one party in one phase."""

    def changed(d, p, n, message):
        return change(message) if (d, p, n) == (direction, phase, party) else message

    return changed
