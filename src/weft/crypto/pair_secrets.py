"""What a party shares with every other one in a run, and with nobody else.

Each party makes an X25519 key pair for the run and signs its public half with its identity. Two
parties agree on a secret through these; it also takes the run secret, which the coordinator lacks,
and the list of all participants. The private halves are forgotten with the run. Whoever steals
identity keys and run secrets later opens nothing that was recorded.
"""

from __future__ import annotations

from secrets import token_bytes
from typing import Any

from weft.crypto.authenticated_party_letters import LetterError, lock, unlock
from weft.crypto.party_key_pairs import ExchangeKey
from weft.crypto.run_participants import ParticipantList
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError

_NONCE = 24
#: What letters are for, unless something else is said: seeds of cohorts.
SEEDS = "letter of a run"


class PairSecrets:
    """The secrets of one party with each of the others.

    Parameters
    ----------
    run_secret
        What all parties share and the coordinator lacks.
    key
        Its key pair of this run.
    participants, party
        Who takes part, and its own number among them.
    """

    def __init__(
        self, run_secret: Secret, key: ExchangeKey, participants: ParticipantList, party: int
    ) -> None:
        self._run_secret, self._key = run_secret, key
        self._participants, self._party = participants, party
        self._agreed: dict[int, Secret] = {}

    def __reduce__(self) -> Any:
        raise TypeError("secrets of pairs are not to be pickled")

    def shared(self, peer: int) -> Secret:
        """The secret with one other party, agreed upon once."""
        if peer not in self._agreed:
            point = self._key.agree(self._participants.exchange_key(peer))
            pair = f"{min(peer, self._party)} {max(peer, self._party)}".encode()
            both = Secret(point.reveal() + self._run_secret.reveal())
            self._agreed[peer] = both.derive("weft pair", self._participants.digest + pair)
        return self._agreed[peer]

    def lock(self, peer: int, content: Secret, purpose: str = SEEDS) -> bytes:
        """Lock something for another party, which then knows who locked it, and what for."""
        key = self._lock_key(self._party, peer, purpose)
        return lock(key, content.reveal(), token_bytes(_NONCE))

    def unlock(self, peer: int, locked: bytes, purpose: str = SEEDS) -> Secret:
        """Open what another party has locked for this one in this run."""
        try:
            return unlock(self._lock_key(peer, self._party, purpose), locked)
        except LetterError:
            raise ProtocolError(
                f"a letter was not written by party number {peer} to this one, for this run; stop "
                "this run"
            ) from None

    def _lock_key(self, writer: int, reader: int, purpose: str) -> Secret:
        peer = reader if writer == self._party else writer
        return self.shared(peer).derive(f"weft {purpose}", f"{writer} to {reader}".encode())
