"""Metrics: what they say of real runs, and that nothing of anybody's data is in them."""

from __future__ import annotations

import os
import re
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import msgspec
import numpy as np
import pytest
from kitted import certificate_of, kit_of
from member_sites import MemberSites
from toys import MemoryTransport

from weft.crypto.keys import ephemeral_keys
from weft.data import SPLITS, load
from weft.federation.preprocessing_settings import Preprocessing
from weft.network import absent_parties, coordinator_run
from weft.network.coordinator_metrics import coordinator_metrics
from weft.network.coordinator_run import coordinate_run
from weft.network.exposure_metrics import ExposureMetrics
from weft.network.kits.kit_folder import Kit
from weft.network.metrics_text import Metric, single, write_metrics
from weft.network.process_metrics_file import MetricsFile, machine_metrics
from weft.network.process_pulse import SeenSite
from weft.network.run_progress import Progress, Report
from weft.network.run_progress_file import (
    GapCurve,
    GapPoint,
    RunFigures,
    delete_figures,
    figures_of_run,
    figures_written,
    read_figures,
    write_figures,
)
from weft.network.site_metrics import Traffic, run_metrics
from weft.network.site_run_index import IndexedRun
from weft.network.submitted_task import LinearTask
from weft.privacy.ledger.ledger_file import read_books
from weft.solvers.run_settings import Settings
from weft.storage.atomic_files import StorageError

PARTIES = ("p1", "p2", "p3")
LINE = re.compile(r'^([a-z_]+)(?:\{((?:[a-z]+="[^"\\]*",?)*)\})? (-?[0-9.e+-]+)$')
#: All that may tell values of a metric apart.
LABELS = {"run", "state", "site", "direction", "what", "version", "kind"}


def read(path):
    """Every value by its name and labels, in the format that Prometheus reads."""
    found = {}
    for line in path.read_text().splitlines():
        if line.startswith("#"):
            assert re.match(r"# (HELP [a-z_]+ .+|TYPE [a-z_]+ (gauge|counter))$", line)
            continue
        name, labels, value = LINE.match(line).groups()
        pairs = re.findall(r'([a-z]+)="([^"]*)"', labels or "")
        assert {key for key, _ in pairs} <= LABELS
        found[(name, *(text for _, text in pairs))] = float(value)
    return found


class Watched(MemoryTransport):
    """Loses one letter in training."""

    def __init__(self, places):
        super().__init__(places)
        self.left = 12

    def fate(self, party, envelope):
        self.left -= 1
        return "lost" if self.left == 0 else "fine"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run of three sites, its figures by files, and the table that it was about."""
    folder = tmp_path_factory.mktemp("run")
    table = load("breast_cancer").rows(np.arange(40))
    table = replace(table, ids=np.array([f"patient-{found}" for found in table.ids], object))
    tiles = SPLITS["columns"](table, 3).parties
    sites = MemberSites(folder, ephemeral_keys(PARTIES), tiles)
    task = LinearTask(
        name="a run",
        parties=PARTIES,
        settings=Settings(lam=0.1, gap=0.1, solver="lbfgs", loss="logistic"),
        preprocessing=Preprocessing(scaling="standard"),
    )
    progress = Progress("study-1")
    post = Watched([sites.place(name) for name in PARTIES])
    with pytest.MonkeyPatch.context() as patch, figures_written(folder, progress):
        for sync in ("fdatasync", "fsync"):
            patch.setattr(os, sync, lambda file: None)
        patch.setattr(coordinator_run, "_WAIT", 0.002)
        patch.setattr(absent_parties, "_FIRST", 0.002)
        coordinate_run(lambda parties: post, folder / "coordinator", task, progress)
        progress.end("over")
    return folder, table, progress


def test_the_coordinators_metrics_tell_how_a_run_got_on_and_nothing_of_data(trained, tmp_path):
    folder, table, progress = trained
    path = tmp_path / "weft.prom"
    sites = {name: SeenSite(since=0, seen=time.time()) for name in PARTIES}
    write_metrics(path, coordinator_metrics(sites, read_figures(folder)))
    found, last = read(path), progress.since().records[-1]
    assert found["weft_connected_sites",] == 3
    assert found["weft_run_state", "study-1", "over"] == 1
    assert found["weft_run_exchanges_total", "study-1"] > 12
    assert found["weft_run_unanswered_total", "study-1"] >= 1
    assert found["weft_run_retries_total", "study-1"] >= 1
    assert 0 <= found["weft_run_seconds_since_exchange", "study-1"] < 60
    assert found["weft_run_waiting_seconds", "study-1"] == 0
    exact = progress._records[-1]
    for way in ("down", "up"):
        told = found["weft_run_bytes_total", "study-1", way]
        assert told == last[f"bytes_{way}"] == float(f"{told:.1e}")
        assert told == pytest.approx(getattr(exact, f"bytes_{way}"), rel=0.05)
    _tells_nothing(path, table)


def test_a_sites_metrics_tell_its_runs_and_what_its_ledger_says(trained, tmp_path):
    folder, table, _ = trained
    exposure = ExposureMetrics(folder / "ledger-p1", "p1")
    pages = read_books(folder / "ledger-p1")["p1"]
    runs = [IndexedRun("a", "now"), IndexedRun("b", "now", "later", "over")]
    traffic = Traffic()
    traffic.find()
    traffic.note(123_456, 7)
    traffic.lose()
    path = tmp_path / "weft.prom"
    write_metrics(path, [*traffic.metrics(), *run_metrics(runs), *exposure.metrics()])
    found = read(path)
    assert found["weft_coordinator_connected",] == 0
    assert found["weft_coordinator_lost_total",] == 1
    assert found["weft_bytes_total", "down"] == 120_000
    assert (found["weft_runs", "under way"], found["weft_runs", "over"]) == (1, 1)
    share = max(s / f for s, f in zip(pages.shown.tolist(), pages.fewest.tolist(), strict=True))
    assert share > 0
    assert found["weft_exposure_sums_share",] == float(f"{share:.1e}")
    assert found["weft_exposure_epsilon",] == 0
    _tells_nothing(path, table)
    assert exposure.metrics() is exposure.metrics()
    assert ExposureMetrics(folder / "ledger-p1", "another").metrics() == []


def _tells_nothing(path, table):
    text = path.read_text()
    words = set(re.findall(r'[^\s{}=",]+', text))
    own = {str(name) for name in (*table.ids, *table.features)}
    numbers = {f"{float(x):.10g}" for x in np.ravel(table.to_tile().block) if x not in (0, 1)}
    assert not words & own
    assert not words & numbers


def test_both_kinds_of_kits_tell_days_and_disk(place, tmp_path):
    for name in ("coordinator", "south"):
        kit = Kit.open(kit_of(place, name))
        write_metrics(tmp_path / "weft.prom", machine_metrics(kit))
        found = read(tmp_path / "weft.prom")
        left = certificate_of(kit.path).not_valid_after_utc - datetime.now(UTC)
        days = found["weft_certificate_days_left", "certificate"]
        assert days == pytest.approx(left / timedelta(days=1), abs=0.02)
        assert found["weft_certificate_days_left", "authority"] >= days
        assert found["weft_disk_free_bytes",] > 0


def test_a_file_that_cannot_be_written_is_told_at_the_start_and_later_logged_once(tmp_path, caplog):
    with pytest.raises(StorageError, match="does not exist"):
        MetricsFile(tmp_path / "nowhere" / "weft.prom", list).write_first()
    told = []

    def collect():
        told.append(1)
        if len(told) in (3, 4):
            raise OSError("no disk")
        return [single("weft_told", "How often.", len(told))]

    path = tmp_path / "weft.prom"
    file = MetricsFile(path, collect)
    file.write_first()
    for expected in (2, 2, 2, 5):
        file.write_again()
        assert read(path) == {("weft_told",): expected}
    said = [entry.getMessage() for entry in caplog.records]
    assert said == ["metrics are not written: no disk"]
    assert path.stat().st_mode & 0o777 == 0o644
    assert [found.name for found in tmp_path.iterdir()] == ["weft.prom"]


def test_figures_of_old_runs_and_damaged_ones_are_not_told(tmp_path):
    for run in ("old", "new", "hurt"):
        write_figures(tmp_path, RunFigures(report=Report(run=run, state="failed")))
    old = tmp_path / "figures" / "old.json"
    os.utime(old, (time.time() - 7200,) * 2)
    (tmp_path / "figures" / "hurt.json").write_text("{")
    assert [found.run for found in read_figures(tmp_path)] == ["new"]
    assert [found.run for found in read_figures(tmp_path, within=86400)] == ["new", "old"]
    os.utime(old, (1, 1))
    assert [found.run for found in read_figures(tmp_path)] == ["new"]
    assert not old.exists()
    delete_figures(tmp_path, "new")
    delete_figures(tmp_path, "unknown")
    assert list(read_figures(tmp_path)) == []


def test_names_are_escaped(tmp_path):
    metric = Metric("weft_site_connected", "1.", [({"site": 'a"b\\c\nd'}, 1)])
    assert list(metric.lines())[-1] == 'weft_site_connected{site="a\\"b\\\\c\\nd"} 1'


def test_who_is_connected_comes_from_heartbeats(monkeypatch, tmp_path):
    now = time.time()
    sites = {
        "north": SeenSite(since=1, seen=now),
        "south": SeenSite(since=1, seen=now - 31),
        "west": SeenSite(since=1, seen=now, there=False),
    }
    write_metrics(tmp_path / "weft.prom", coordinator_metrics(sites, []))
    found = read(tmp_path / "weft.prom")
    assert found["weft_connected_sites",] == 1
    states = {name: found["weft_site_connected", name] for name in sites}
    assert states == {"north": 1, "south": 0, "west": 0}
    assert found["weft_site_seconds_since_seen", "south"] == 31


def test_a_coordinator_that_hangs_is_not_there_though_its_connection_is(monkeypatch, tmp_path):
    moment = [1000.0]
    monkeypatch.setattr(time, "time", lambda: moment[0])
    traffic = Traffic()

    def told():
        write_metrics(tmp_path / "weft.prom", traffic.metrics())
        found = read(tmp_path / "weft.prom")
        since = found.get(("weft_coordinator_seconds_since_seen",))
        return found["weft_coordinator_connected",], since

    assert told() == (0, None)
    traffic.find()
    assert told() == (1, 0)
    moment[0] += 29
    assert told() == (1, 29)
    moment[0] += 2
    assert told() == (0, 31)
    traffic.hear()
    assert told() == (1, 0)
    traffic.lose()
    assert told() == (0, 0)


def test_a_curve_has_every_certified_gap_once_and_stays_short():
    def records(first, last):
        return [{"iteration": n, "gap": 1 / n if n % 2 else None} for n in range(first, last)]

    curve = GapCurve()
    curve.extend(records(1, 6), 3.9)
    assert curve.points == [GapPoint(3.5, 1, 1.0), GapPoint(3.5, 3, 1 / 3), GapPoint(3.5, 5, 0.2)]
    # A run that is taken up again repeats its iterations.
    curve.extend(records(1, 8), 60)
    assert curve.points[3:] == [GapPoint(60, 7, 1 / 7)]
    curve.extend(records(8, 4000), 100)
    assert 100 < len(curve.points) <= 240
    assert (curve.points[0].iteration, curve.points[-1].iteration) == (1, 3999)


def test_figures_of_a_run_tell_its_curve_and_what_a_submitter_hears(trained):
    folder, _, progress = trained
    (figures,) = read_figures(folder)
    told = progress.since()
    assert figures.report == msgspec.structs.replace(told, records=told.records[-1:])
    proved = [(r["iteration"], r["gap"]) for r in told.records if r["gap"] is not None]
    assert [(point.iteration, point.gap) for point in figures.curve] == proved
    assert proved
    assert figures_of_run(folder, "study-1") == figures
    assert figures_of_run(folder, "study-2") is None
