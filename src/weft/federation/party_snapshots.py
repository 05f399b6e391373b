"""What a party has become in training, sealed under its own key.

A party that was killed is made anew and gets the messages of the set-up once more, up to where
its training began (the ground). A snapshot then brings it to where it was, in the place of all
messages since. It has everything that can be reached from the party
(`weft.storage.object_state`): numbers of requests and pads, sums counted for its ledger, guards,
and whatever its solver keeps. It has no key that outlives the run: those belong to the party's
owner, and are only referred to.
"""

from __future__ import annotations

from collections.abc import Mapping

from weft import __version__
from weft.crypto.authenticated_party_letters import LetterError, read_letter, write_letter
from weft.crypto.party_key_pairs import Identity
from weft.storage.atomic_files import DamagedFile
from weft.storage.object_state import ObjectState, Unlike

_GIVE_UP = "give the run up with --forget and start a new one, and restore nothing of it"


class PartySnapshots:
    """Saves one party, and brings it back.

    Parameters
    ----------
    party
        The party.
    identity
        Its own, under which snapshots are sealed to itself.
    outside
        What belongs to its owner or to its site, by name.
    """

    def __init__(self, party: object, identity: Identity, outside: Mapping[str, object]) -> None:
        self._party, self._identity = party, identity
        known = {name: found for name, found in outside.items() if found is not None}
        self._outside = {**known, "snapshots": self, "identity": identity}
        self._ground: ObjectState | None = None

    def lay_ground(self) -> None:
        """What comes before now is repeated from messages, and what comes after it is saved.

        Raises
        ------
        weft.storage.object_graph.Opaque
            Something in this party has a state that cannot be saved.
        """
        self._ground = ObjectState(self._party, self._outside)

    def save(self, place: bytes) -> bytes:
        """The party as it is now; ``place`` says of which run and after which message.

        Raises
        ------
        weft.storage.object_graph.Opaque
            Something in this party has a state that cannot be saved.
        """
        assert self._ground is not None
        own = self._identity
        return write_letter(own, own.public, _bound(place), self._ground.save())

    def restore(self, place: bytes, sealed: bytes) -> None:
        """Bring a party that stands on its ground to a snapshot.

        Raises
        ------
        DamagedFile
            It is none of this party, or of another place or version.
        """
        own = self._identity
        if self._ground is None:
            raise _unusable("this version of Weft cannot use it")
        try:
            found = read_letter(own, own.public, _bound(place), sealed)
            self._ground.restore(found.reveal())
        except LetterError:
            raise _unusable("it was sealed by another key, or for another place") from None
        except Unlike as unlike:
            raise _unusable(str(unlike)) from None


def _bound(place: bytes) -> bytes:
    # What a party consists of may be another in the next version.
    return f"weft snapshot 1 of {__version__}\n".encode() + place


def _unusable(why: str) -> DamagedFile:
    return DamagedFile(
        f"its snapshot of the run cannot be used ({why}); go on with Weft {__version__}, with "
        f"which it was begun, and the same keys and tables, or {_GIVE_UP}"
    )
