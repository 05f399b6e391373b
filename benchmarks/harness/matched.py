"""Parties that match their ids and share keys, and do nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_bytes
from typing import Any

from weft.crypto import Adder
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.data import Tile
from weft.guards.privacy_terms import Matching
from weft.matching.coordinator import meet
from weft.matching.holding_map import HoldingMap
from weft.matching.messages import VIEW, ViewReply, ViewRequest
from weft.matching.party import MatchingParty
from weft.protocol import Handler, LocalChannel, Message, Phase, answer, answers


class MatchedParties:
    """Parties up to the end of matching.

    Attributes
    ----------
    channel
        By which they were asked.
    adder, ciphers
        The two halves of the cipher: the coordinator's, and each party's.
    holdings
        Who holds what.
    """

    def __init__(
        self,
        tiles: Mapping[str, Sequence[Tile]],
        cipher: str,
        *,
        matching: Matching = "hmac",
        separate: bool = False,
    ) -> None:
        keys = ephemeral_keys(tuple(tiles))
        self.ciphers: dict[str, Cipher] = {}
        handlers: dict[str, Handler] = {}
        run, announced = token_bytes(16), {}
        for name, held in tiles.items():
            ring = Keyring(keys[name], cipher)
            announced[name] = ring.announce(run)
            self.ciphers[name] = ring.cipher
            handlers[name] = _handler(MatchingParty(name, held, keys[name], ring))
        self.channel, self.adder = LocalChannel(handlers), Adder(cipher)
        self.holdings: HoldingMap = meet(
            self.channel,
            self.adder,
            run=run,
            keys=announced,
            classes=None,
            matching=matching,
            confirm_separate_ids=separate,
        )


def _handler(party: MatchingParty) -> Handler:
    def take_view(message: ViewRequest) -> ViewReply:
        party.sit(message)
        return party.make_seeds(message)

    known = {**party.answers(), **answers(answer(VIEW, take_view))}

    def on(phase: Phase[Any, Any], message: Any) -> Message:
        return known[phase.name].handle(message)

    return on
