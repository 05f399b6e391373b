"""The folder of a reproduction, with all finished runs, which are not repeated.

.. code-block:: text

    runs.jsonl         a line for every finished run, measured cost and central optimum
    unfinished/CASE/   a run that was interrupted, to go on from

The first is small, and is kept beside the page that is made from it.
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any, Literal

import msgspec

from weft.errors import DataError
from weft.storage.atomic_files import StorageError, replacing
from weft_papers.hyfdca.cases import Case
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.run_case import Curve

_NAME = "runs.jsonl"
Kind = Literal["central", "costs", "curve"]


class Entry(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """One line: what it is of, and one of the three."""

    key: str
    curve: Curve | None = None
    costs: Costs | None = None
    central: dict[str, Any] | None = None

    @property
    def name(self) -> tuple[str, Kind]:
        """What a newer line takes the place of."""
        kind: Kind = "curve" if self.curve else "costs" if self.costs else "central"
        return self.key, kind


class ResultsFolder:
    """Results of cases on disk.

    Parameters
    ----------
    folder
        May be there already, with results of an earlier run of any scale.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._entries: dict[tuple[str, Kind], Entry] | None = None

    def open(self) -> None:
        """Make the folder, where it is not there."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise StorageError(
                f"{self.folder}: the folder cannot be made ({error.strerror or error}); check the "
                "permissions and free space there"
            ) from None

    def costs(self, case: Case) -> Costs | None:
        """Measured alone, or else in the run."""
        alone, curve = self.costs_alone(case), self.curve(case)
        return alone if alone or curve is None else curve.costs

    def costs_alone(self, case: Case) -> Costs | None:
        entry = self._read().get((case.key, "costs"))
        return None if entry is None else entry.costs

    def curve(self, case: Case) -> Curve | None:
        entry = self._read().get((case.key, "curve"))
        return None if entry is None else entry.curve

    def central(self, data: str, seed: int) -> dict[str, Any] | None:
        entry = self._read().get((f"{data}-{seed}", "central"))
        return None if entry is None else entry.central

    def candidates(self, data: str) -> dict[str, dict[str, Any]]:
        """Optima of other readings of a problem, by what they are."""
        begin, found = f"{data}-candidate-", self._read().values()
        some = [e for e in found if e.key.startswith(begin) and e.central is not None]
        return {entry.key.removeprefix(begin): entry.central or {} for entry in some}

    def keep_candidate(self, data: str, told: str, found: dict[str, Any]) -> None:
        self._keep(Entry(f"{data}-candidate-{told}", central=found))

    def keep_costs(self, case: Case, costs: Costs) -> None:
        self._keep(Entry(case.key, costs=costs))

    def keep_curve(self, case: Case, curve: Curve) -> None:
        self._keep(Entry(case.key, curve=curve))
        shutil.rmtree(self.unfinished(case), ignore_errors=True)

    def keep_central(self, data: str, seed: int, found: dict[str, Any]) -> None:
        self._keep(Entry(f"{data}-{seed}", central=found))

    def unfinished(self, case: Case) -> Path:
        """Where a run of the case saves itself."""
        return self.folder / "unfinished" / case.key

    def _read(self) -> dict[tuple[str, Kind], Entry]:
        if self._entries is None:
            path = self.folder / _NAME
            lines = path.read_bytes().splitlines() if path.is_file() else []
            try:
                found = [msgspec.json.decode(line, type=Entry) for line in lines]
            except msgspec.MsgspecError as error:
                raise DataError(
                    f"{path} cannot be read ({error}); take the broken line out, and what it was "
                    "of is run again"
                ) from None
            self._entries = {entry.name: entry for entry in found}
        return self._entries

    def _keep(self, entry: Entry) -> None:
        """Write the whole file anew: sorted, so that it changes where runs changed only."""
        entries = self._read()
        entries[entry.name] = entry
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = [msgspec.json.encode(entries[name]) for name in sorted(entries)]
        with replacing(self.folder / _NAME) as draft:
            draft.write_bytes(b"\n".join(lines) + b"\n")
