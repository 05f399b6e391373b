"""A party's ledger on disk: one file a party, for its owner's eyes only.

It is written whole or not at all, and under a lock from reading to writing, so that runs at the
same time lose nothing of each other. A damaged file is an error: nobody would know what was shown
before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.privacy.ledger.earlier_column_rules import RuleMemory
from weft.privacy.ledger.earlier_histogram_edges import EdgeMemory
from weft.privacy.ledger.earlier_samples import Memory
from weft.privacy.ledger.earlier_score_buckets import ScoreMemory
from weft.privacy.ledger.earlier_scoring_partners import CompanyMemory
from weft.privacy.ledger.earlier_sealed_models_and_moments import NUMBER_KINDS, NumberMemory
from weft.privacy.ledger.fold_cuts_of_earlier_runs import FoldMemory
from weft.privacy.ledger.ledger_contents import COUNTS, LedgerContents, Run
from weft.storage.atomic_files import StorageError, load_arrays, locked, save_arrays
from weft.thread_safe_decoding import prepared

T = TypeVar("T")

#: Of files; 1 did not remember who took part in which run.
_FORMAT = 2


class Book:
    """The file of one party."""

    def __init__(self, folder: Path, party: str) -> None:
        self.party = party
        # A name may hold what a file name may not.
        stem = party.replace("%", "%25").replace("/", "%2F")
        self.path = folder / f"{stem}.npz"

    def read(self) -> LedgerContents | None:
        """What the file holds; None: there is none yet."""
        if not self.path.exists():
            return None
        try:
            arrays = load_arrays(self.path)
        except StorageError as error:
            raise self._damaged(str(error)) from None
        version = arrays.get("format")
        if version is None or version.tolist() != [_FORMAT]:
            raise self._damaged(f"{self.path} is of another format than {_FORMAT}")
        try:
            runs = msgspec.json.decode(arrays["runs"].tobytes(), type=prepared(list[Run]))
        except (KeyError, msgspec.MsgspecError):
            raise self._damaged(f"{self.path} does not hold a ledger") from None
        sample, key = self._held(arrays.get("sample")), self._held(arrays.get("key"))
        counts = [self._held(arrays.get(name)) for name in COUNTS]
        whole = (
            sample.dtype == np.uint64
            and sample.ndim == 1
            and bool((sample[1:] > sample[:-1]).all())
            and key.tobytes() != b""
            and all(
                count.dtype == np.int64 and count.shape == sample.shape and bool((count >= 0).all())
                for count in counts
            )
        )
        numbers = {
            kind: self._held(NumberMemory.from_arrays(arrays, kind)) for kind in NUMBER_KINDS
        }
        received, shown, foreign, fewest = (np.array(count) for count in counts)
        return LedgerContents(
            self._held(key.tobytes() if whole else None),
            sample,
            received,
            shown,
            foreign,
            fewest,
            runs,
            self._held(Memory.from_arrays(arrays, "attended")),
            self._held(Memory.from_arrays(arrays, "versions")),
            # Files from before these were remembered have none.
            folds=self._held(FoldMemory.from_arrays(arrays, "folds"))
            if "folds.runs" in arrays
            else FoldMemory.new(),
            numbers=numbers,
            scored=self._held(ScoreMemory.from_arrays(arrays, "scored"))
            if "scored.runs" in arrays
            else ScoreMemory.new(),
            companies=self._held(CompanyMemory.from_arrays(arrays)),
            rules=self._held(RuleMemory.from_arrays(arrays)),
            edges=self._held(EdgeMemory.from_arrays(arrays)),
            roles=self._held(Memory.from_arrays(arrays, "roles"))
            if "roles.runs" in arrays
            else Memory.new(),
        )

    def _held(self, part: T | None) -> T:
        """A part of a ledger; without it, the file is no ledger."""
        if part is None:
            raise self._damaged(f"{self.path} does not hold a ledger")
        return part

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other runs out while pages are read, added to and written."""
        folder = self.path.parent
        try:
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"the ledger folder {folder} cannot be made ({error.strerror or error}); nothing "
                "is sent that is not booked: check its permissions, or name another folder"
            ) from None
        with locked(self.path):
            yield

    def write(self, pages: LedgerContents) -> None:
        """Put pages in the place of those that were read under the same lock.

        They are on the disk before anybody notes elsewhere that they are.
        """
        runs = msgspec.json.encode(pages.runs)
        save_arrays(
            self.path,
            {
                "format": np.array([_FORMAT]),
                "key": np.frombuffer(pages.key, np.uint8),
                "sample": pages.sample,
                **{name: getattr(pages, name) for name in COUNTS},
                "runs": np.frombuffer(runs, np.uint8),
                **pages.attended.to_arrays("attended"),
                **pages.versions.to_arrays("versions"),
                **pages.roles.to_arrays("roles"),
                **pages.folds.to_arrays("folds"),
                **pages.scored.to_arrays("scored"),
                **{
                    name: array
                    for kind, memory in pages.numbers.items()
                    for name, array in memory.to_arrays(kind).items()
                },
                **pages.companies.to_arrays(),
                **pages.rules.to_arrays(),
                **pages.edges.to_arrays(),
            },
            durable=True,
        )

    def _damaged(self, why: str) -> StorageError:
        return StorageError(
            f"the ledger of party {self.party} cannot be read ({why}); restore it from a backup: "
            "without it nobody knows how many sums were shown before; to begin a new one all the "
            "same, move that file away"
        )


def read_books(folder: Path) -> dict[str, LedgerContents]:
    """All parties' ledgers in a folder, by name."""
    found = {}
    for path in sorted(folder.glob("*.npz")):
        party = path.stem.replace("%2F", "/").replace("%25", "%")
        pages = Book(folder, party).read()
        if pages is not None:
            found[party] = pages
    return found


Range = tuple[int, int]


@dataclass(frozen=True)
class Group:
    """Samples of which the same is known; ranges hold the smallest and the largest number.

    Attributes
    ----------
    foreign, fewest
        See :class:`weft.privacy.ledger.ledger_contents.LedgerContents`.
    received, shown
        Sums about one of them.
    known, told
        Whether as many sums were received as columns are foreign; and shown, as another holder
        lacks.
    """

    samples: int
    foreign: Range
    fewest: Range
    received: Range
    shown: Range
    known: bool
    told: bool

    def to_dict(self) -> dict[str, Any]:
        """As plain values, for JSON."""
        return asdict(self)


def groups_of(pages: LedgerContents, *, fine: bool = False) -> list[Group]:
    """The groups of a ledger, the largest first; ``fine`` ones have the same numbers throughout."""
    known = (pages.foreign > 0) & (pages.received >= pages.foreign)
    told = (pages.fewest > 0) & (pages.shown >= pages.fewest)
    columns: list[NDArray[Any]] = [known, told, pages.foreign > 0, pages.fewest > 0]
    if fine:
        columns += [pages.foreign, pages.fewest, pages.received, pages.shown]
    kinds, back = np.unique(np.stack(columns, axis=1).astype(np.int64), axis=0, return_inverse=True)
    found = []
    for number, kind in enumerate(kinds.tolist()):
        mine = back.ravel() == number
        found.append(
            Group(
                samples=int(mine.sum()),
                foreign=_range(pages.foreign[mine]),
                fewest=_range(pages.fewest[mine]),
                received=_range(pages.received[mine]),
                shown=_range(pages.shown[mine]),
                known=bool(kind[0]),
                told=bool(kind[1]),
            )
        )
    return sorted(found, key=lambda group: -group.samples)


def _range(counts: NDArray[np.int64]) -> Range:
    return int(counts.min()), int(counts.max())
