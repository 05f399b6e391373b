"""The index of the runs that a site has taken part in."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import msgspec

from weft.storage.atomic_files import StorageError, write_private
from weft.thread_safe_decoding import prepared

#: Name of the file in a site's folder.
RUNS = "runs.json"


class IndexedRun(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """One run.

    Attributes
    ----------
    began, ended
        When, in UTC; not ended: empty.
    how
        ``over`` or ``given up``; empty while it goes on.
    worked
        Numbers of the last exchanges that it worked on although its reply did not arrive.
    asked
        Whether the site was asked anything in it; refused or not, it counts as a run then.
    """

    run: str
    began: str
    ended: str = ""
    how: str = ""
    worked: list[int] = []
    asked: bool = False


class RunIndex:
    """All runs of a site, in a file that only its owner can read.

    Raises
    ------
    StorageError
        The file is damaged.
    """

    def __init__(self, folder: Path) -> None:
        self._path = folder / RUNS
        self._entries: dict[str, IndexedRun] = {}
        try:
            found = msgspec.json.decode(self._path.read_bytes(), type=prepared(list[IndexedRun]))
        except FileNotFoundError:
            return
        except (OSError, msgspec.MsgspecError) as error:
            raise StorageError(
                f"{self._path} cannot be read ({error}); it counts this site's runs: restore it "
                "from a backup"
            ) from None
        self._entries = {entry.run: entry for entry in found}

    def __len__(self) -> int:
        return len(self._entries)

    def entries(self) -> list[IndexedRun]:
        """All runs, in the order in which they began."""
        return list(self._entries.values())

    def get(self, run: str) -> IndexedRun | None:
        return self._entries.get(run)

    def begin(self, run: str) -> None:
        """A run begins here."""
        self._save({**self._entries, run: IndexedRun(run, _now())})

    def ask(self, run: str) -> None:
        """The site is asked something in a run: written down before it answers."""
        known = self._entries.get(run) or IndexedRun(run, _now())
        if not known.asked:
            self._save({**self._entries, run: msgspec.structs.replace(known, asked=True)})

    def end(self, run: str, how: str, worked: list[int]) -> None:
        """A run is over here."""
        known = self._entries.get(run) or IndexedRun(run, _now())
        ended = msgspec.structs.replace(known, ended=_now(), how=how, worked=worked)
        self._save({**self._entries, run: ended})

    def forget(self, run: str) -> None:
        """Remove a run in which nothing was ever asked."""
        self._save({name: entry for name, entry in self._entries.items() if name != run})

    def _save(self, entries: dict[str, IndexedRun]) -> None:
        """Write the file first: a change that cannot be written does not count."""
        content = msgspec.json.format(msgspec.json.encode(list(entries.values())))
        write_private(self._path, content, durable=True)
        self._entries = entries


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="seconds")
