"""The folder of a reproduction, with all finished runs, which are not repeated.

.. code-block:: text

    curves/CASE.json   how the run went
    costs/CASE.json    what an iteration costs with nothing beside it, where that was measured
    central/DATA-SEED.json  what liblinear finds on the pooled table
    unfinished/CASE/   a run that was interrupted, to go on from
"""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

from weft.storage.atomic_files import StorageError
from weft_papers.hyfdca.cases import Case
from weft_papers.hyfdca.measure_iteration_cost import Costs
from weft_papers.hyfdca.run_case import Curve
from weft_papers.run_files import read_file, write_file


class ResultsFolder:
    """Results of cases on disk.

    Parameters
    ----------
    folder
        May be there already, with results of an earlier run of any scale.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

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
        return read_file(self.folder / "costs" / f"{case.key}.json", Costs)

    def curve(self, case: Case) -> Curve | None:
        return read_file(self.folder / "curves" / f"{case.key}.json", Curve)

    def central(self, data: str, seed: int) -> dict[str, Any] | None:
        path = self.folder / "central" / f"{data}-{seed}.json"
        return read_file(path, dict[str, Any])

    def keep_costs(self, case: Case, costs: Costs) -> None:
        write_file(self.folder / "costs" / f"{case.key}.json", costs, indent=1)

    def keep_curve(self, case: Case, curve: Curve) -> None:
        write_file(self.folder / "curves" / f"{case.key}.json", curve, indent=1)
        shutil.rmtree(self.unfinished(case), ignore_errors=True)

    def keep_central(self, data: str, seed: int, found: dict[str, Any]) -> None:
        write_file(self.folder / "central" / f"{data}-{seed}.json", found, indent=1)

    def unfinished(self, case: Case) -> Path:
        """Where a run of the case saves itself."""
        return self.folder / "unfinished" / case.key
