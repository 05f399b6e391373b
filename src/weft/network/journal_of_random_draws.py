"""What a party drew at random in a run, on its site's disk until the run is over."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from weft.crypto.randomness_kept_for_restart import is_of_messages
from weft.errors import WeftError
from weft.storage.atomic_files import StorageError
from weft.storage.journal import Journal

_DECODER: msgspec.msgpack.Decoder[tuple[str, bytes]] = msgspec.msgpack.Decoder(tuple[str, bytes])


class RandomnessStore:
    """Named secret values in a journal (:class:`weft.crypto.randomness_kept_for_restart.Memory`).

    A value is on the disk before it is used anywhere, so neither a kill nor a power cut loses one
    that anything depends on.

    Parameters
    ----------
    path
        The journal of one run of one party.

    Raises
    ------
    StorageError
        As in :class:`weft.storage.journal.Journal`.
    """

    def __init__(self, path: Path) -> None:
        self._journal = Journal(path)
        #: The record that holds the latest value of each name.
        self._places: dict[str, int] = {}
        try:
            for place, record in enumerate(self._journal):
                self._places[self._read(record)[0]] = place
        except WeftError:
            self.close()
            raise

    def __repr__(self) -> str:
        return f"RandomnessStore({str(self._journal.path)!r})"

    def __len__(self) -> int:
        return len(self._places)

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def get(self, name: str) -> bytes | None:
        """The value of this name, or None."""
        place = self._places.get(name)
        return None if place is None else self._read(self._journal[place])[1]

    def __setitem__(self, name: str, value: bytes) -> None:
        self._journal.append(msgspec.msgpack.encode((name, value)))
        self._places[name] = len(self._journal) - 1

    @property
    def count(self) -> int:
        """Records in the file."""
        return len(self._journal)

    def place_of(self, name: str) -> int | None:
        """Which of the records holds the value of this name; None: none."""
        return self._places.get(name)

    def size(self, begin: int, end: int) -> int:
        """Bytes of the records from one to before another."""
        return self._journal.size(begin, end)

    def forget(self, begin: int, end: int) -> int:
        """Leave out what was drawn in the course of messages that nobody hears again.

        Their records are those from one to before another. What hangs on no message stays, and the
        file is the old one or the new one, whatever happens. A value that is missing is never made
        anew where messages are heard again (`weft.crypto.randomness_kept_for_restart.Forgotten`).

        Returns
        -------
        count
            How many records are gone.
        """
        kept = {name: place for name, place in self._places.items() if not is_of_messages(name)}
        stay = sorted(place for place in kept.values() if begin <= place < end)
        ranges = [range(begin), *(range(place, place + 1) for place in stay)]
        self._journal.keep([*ranges, range(end, self.count)])
        gone = end - begin - len(stay)
        moved = {place: begin + number for number, place in enumerate(stay)}
        self._places = {
            name: place if place < begin else moved.get(place, place - gone)
            for name, place in self._places.items()
            if not begin <= place < end or place in moved
        }
        return gone

    def close(self) -> None:
        """Let another process open the file."""
        self._journal.close()

    def _read(self, record: bytes) -> tuple[str, bytes]:
        try:
            return _DECODER.decode(record)
        except msgspec.MsgspecError:
            raise StorageError(
                f"{self._journal.path} does not hold the random values of a run; start a new run"
            ) from None
