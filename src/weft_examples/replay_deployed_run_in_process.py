"""A deployed run once more in one process, with everything that its parties drew at random.

On shares, the last bits of a model depend on masks: they are rounded under them. Whoever has all
keys and what all parties drew can show that a run over a network gave what one process gives. No
site can do this, since each has its own draws alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.crypto.keys import PartyKeys
from weft.crypto.party_key_pairs import Identity
from weft.data.tile import Tile
from weft.federation.coordinator import coordinate
from weft.federation.party import Party
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.coordinator import Outcome
from weft.federation.release.reader_opens_release import Released, open_release
from weft.network.journal_of_random_draws import RandomnessStore
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import LocalChannel
from weft.solvers.run_settings import Settings

_HERE = "here"
#: What a party remembers without having drawn it: what it began with, and that it is done.
_OTHERS = ("origin", "end")


class DrawnBefore(dict[str, bytes]):
    """What a party drew in another run, by what it was for (a memory of draws).

    A party asks by name, number and a hash of all messages before. Letters that the parties write
    each other differ from run to run, and so does the hash: here it does not count.
    """

    @classmethod
    def of(cls, kept: Mapping[str, bytes]) -> DrawnBefore:
        """From what a party remembered, under the names that it has for it."""
        draws = cls()
        for name, value in kept.items():
            if not name.startswith(_OTHERS):
                draws[name] = value
        return draws

    def get(self, name: str, default: bytes | None = None) -> bytes | None:  # type: ignore[override]
        return super().get(_without_hash(name), default)

    def __setitem__(self, name: str, value: bytes) -> None:
        super().__setitem__(_without_hash(name), value)

    def __contains__(self, name: object) -> bool:
        return super().__contains__(_without_hash(str(name)))


def _without_hash(name: str) -> str:
    """Name and number: "run key 1 5f3a…" is "run key 1"."""
    words = name.split(" ")
    numbers = [place for place, word in enumerate(words) if word.isdigit()]
    return " ".join(words[: numbers[0] + 1]) if numbers else name


@dataclass(frozen=True)
class Drawn:
    """What a run drew.

    Attributes
    ----------
    run
        The coordinator's random name of it.
    memories
        By party, what it remembered.
    """

    run: bytes
    memories: Mapping[str, Mapping[str, bytes]]

    @classmethod
    def of_files(cls, run: Path, stores: Mapping[str, Path]) -> Drawn:
        """From copies of the coordinator's and the parties' files of a run."""
        memories = {}
        for party, path in stores.items():
            store = RandomnessStore(path)
            memories[party] = {name: store.get(name) or b"" for name in store}
            store.close()
        return cls(run.read_bytes(), memories)


def repeat_run(
    tiles: Mapping[str, Sequence[Tile]],
    preprocessing: Preprocessing,
    settings: Settings,
    drawn: Drawn,
    *,
    keys: Mapping[str, PartyKeys],
    consents: Mapping[str, Consent],
) -> tuple[Released, Outcome]:
    """Train in this process as the run did, though nobody is ever away."""
    reader = Identity.new()
    parties = {
        name: Party(
            name,
            held,
            keys=keys[name],
            cipher=settings.cipher,
            consent=consents[name],
            readers={_HERE: reader.public},
            memory=DrawnBefore.of(drawn.memories[name]),
        )
        for name, held in tiles.items()
    }
    channel = LocalChannel({name: party.on for name, party in parties.items()}, packed=True)
    try:
        outcome = coordinate(channel, preprocessing, settings, run=drawn.run)
    finally:
        for party in parties.values():
            party.close()
    released = open_release(
        outcome.letters[_HERE],
        outcome.head,
        outcome.settings,
        reader=reader,
        writers={name: each.identity.public for name, each in keys.items()},
        run=drawn.run,
    )
    return released, outcome
