"""The coordinator's metrics: nothing that it does not know, and sizes no more exactly than told."""

from __future__ import annotations

import time
from collections.abc import Iterable, Mapping

from weft.network.metrics_text import Metric
from weft.network.process_pulse import SeenSite, connected_sites
from weft.network.run_progress_file import RunFigures
from weft.report.json_safe_and_rounded_values import rounded


def coordinator_metrics(sites: Mapping[str, SeenSite], runs: Iterable[RunFigures]) -> list[Metric]:
    """Who is there, and how runs get on.

    Parameters
    ----------
    sites
        All that were connected since the process began.
    """
    found, now = list(runs), time.time()
    connected = connected_sites(sites, now)
    each = [({"run": run.run}, run) for run in found]
    since = [(label, int(now - run.exchanged)) for label, run in each if run.exchanged]
    sizes = [
        # As rough as submitters see them: exact ones tell sizes of tables.
        ({"run": run.run, "direction": way}, rounded(float(run.last.get(f"bytes_{way}") or 0.0)))
        for run in found
        for way in ("down", "up")
    ]
    return [
        Metric("weft_connected_sites", "Sites whose heartbeats come.", [({}, len(connected))]),
        Metric(
            "weft_site_connected",
            "1 for every site whose heartbeats come, 0 for one that was there before.",
            [({"site": name}, name in connected) for name in sorted(sites)],
        ),
        Metric(
            "weft_site_seconds_since_seen",
            "Since its last heartbeat.",
            [({"site": name}, int(now - site.seen)) for name, site in sorted(sites.items())],
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
            [(label, run.report.wait.seconds if run.report.wait else 0) for label, run in each],
        ),
        Metric(
            "weft_run_waits_for_parties",
            "For how many parties it waits.",
            [
                (label, len(run.report.wait.parties) if run.report.wait else 0)
                for label, run in each
            ],
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
