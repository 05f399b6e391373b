"""A federation as one of its sites knows it: its connection, its runs and its own ledger."""

from __future__ import annotations

import time

from weft import __version__
from weft.network.console.shared_view_records import ExposureRow, FederationView, RunRow
from weft.network.exposure_metrics import ExposureMetrics
from weft.network.kits.kit_folder import Kit
from weft.network.nvflare_processes.kit_health import examine_machine, examine_process
from weft.network.site_run_index import IndexedRun, RunIndex

_FROM = "By this site's own ledger, over all its runs (weft ledger has more)."


class SiteView:
    """What a site's kit has to show."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._exposure = ExposureMetrics(kit.home / "ledger", kit.name)

    def close(self) -> None:
        """Files are all it looks at."""

    def look(self) -> FederationView:
        kit, process = self._kit, examine_process(self._kit)
        runs = RunIndex(kit.home).entries()
        return FederationView(
            kind=kit.kind,
            owner=kit.name,
            federation=kit.federation,
            weft=__version__,
            now=time.time(),
            state="good" if process.state == "good" else "bad",
            sentence=process.found.removeprefix("weft join: "),
            symptoms=[process, *examine_machine(kit)],
            runs=[_row(run) for run in reversed(runs)],
            exposure=self._spent(len(runs)),
            exposure_from=_FROM,
        )

    def _spent(self, runs: int) -> list[ExposureRow]:
        told = {metric.name: metric.values[0][1] for metric in self._exposure.metrics()}
        if not told:
            return []
        return [
            ExposureRow(
                party=self._kit.name,
                runs=runs,
                epsilon=told["weft_exposure_epsilon"],
                delta=told["weft_exposure_delta"],
                rho=told["weft_exposure_rho"],
                share=told["weft_exposure_sums_share"],
            )
        ]


def _row(run: IndexedRun) -> RunRow:
    ended = f"{run.how} since {run.ended}" if run.ended else ""
    return RunRow(
        run=run.run,
        state=run.how if run.ended else "running",
        submitted=run.began,
        progress=ended,
    )
