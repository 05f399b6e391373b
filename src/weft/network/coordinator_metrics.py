"""The coordinator's metrics: nothing that it does not know, and sizes no more exactly than told."""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable

from weft.network.metrics_text import Metric
from weft.network.run_figures import RunFigures


def coordinator_metrics(connected: Collection[str], runs: Iterable[RunFigures]) -> list[Metric]:
    """Who is there, and how runs get on.

    Parameters
    ----------
    connected
        Names of the sites that are connected.
    """
    found, now = list(runs), time.time()
    each = [({"run": run.run}, run) for run in found]
    since = [(label, int(now - run.exchanged)) for label, run in each if run.exchanged]
    sizes = [
        ({"run": run.run, "direction": way}, size)
        for run in found
        for way, size in (("down", run.bytes_down), ("up", run.bytes_up))
    ]
    return [
        Metric("weft_connected_sites", "Sites that are connected.", [({}, len(connected))]),
        Metric(
            "weft_site_connected",
            "1 for every site that is connected.",
            [({"site": name}, 1) for name in sorted(connected)],
        ),
        Metric(
            "weft_run_state",
            "1 for the state of a run that goes on or ended within the last hour.",
            [({"run": run.run, "state": run.state}, 1) for run in found],
        ),
        Metric("weft_run_seconds_since_exchange", "Since parties were last asked.", [*since]),
        Metric(
            "weft_run_waiting_seconds",
            "Seconds of the current wait; 0: it waits for nobody.",
            [(label, run.waiting) for label, run in each],
        ),
        Metric(
            "weft_run_waits_for_parties",
            "For how many parties it waits.",
            [(label, run.waits_for) for label, run in each],
        ),
        Metric(
            "weft_run_exchanges_total",
            "Exchanges since its process began.",
            [(label, run.exchanges) for label, run in each],
            "counter",
        ),
        Metric(
            "weft_run_unanswered_total",
            "Letters without an answer since its process began.",
            [(label, run.unanswered) for label, run in each],
            "counter",
        ),
        Metric(
            "weft_run_retries_total",
            "How often it was taken up again from its journal.",
            [(label, run.resumed) for label, run in each],
            "counter",
        ),
        Metric(
            "weft_run_bytes_total", "To and from parties, with two digits.", [*sizes], "counter"
        ),
    ]
