"""What comes back to whoever submits a run: not who holds how much, and a page all the same."""

import json
import shutil

import numpy as np
import pandas as pd
import pytest

from weft import Federation, Preprocessing, Settings, Tile
from weft.config.read_config import read_config
from weft.errors import ProtocolError
from weft.network import run_results
from weft.network.linear_job import LinearJob
from weft.network.record_and_replay_absences import Presence
from weft.network.run_progress import Progress
from weft.network.run_results import HISTORY, SUMMARY, write_run_results
from weft.network.submitted_task import LinearTask
from weft.network.submitter_visible_figures import HISTORY as HISTORY_COLUMNS
from weft.network.submitter_visible_figures import LINEAR, PATH, told_of
from weft.network.write_submitter_results import write_out
from weft.report.history_table import history_frame
from weft.report.lambda_path import path_frame
from weft.report.summary import summarise

CONFIG = """
name = "three towns"
[model]
loss = "logistic"
lambda = 0.1
"""
SETTINGS = Settings(lam=0.1, loss="logistic", gap=1e-3)
#: Samples that only the first two have in common, and those of all three.
PAIR, ALL = 137, 211


@pytest.fixture(scope="module")
def trained():
    rng = np.random.default_rng(5)
    ids = np.array([f"s{number}" for number in range(PAIR + ALL)], dtype=object)
    labels = rng.integers(0, 2, len(ids)).astype(object)

    def tile(rows, name):
        return (Tile.make(ids[rows], [name], rng.normal(size=(len(rows), 1)), labels=labels[rows]),)

    everyone = np.arange(len(ids))
    tiles = {
        "north": tile(everyone, "a"),
        "south": tile(everyone, "b"),
        "west": tile(everyone[PAIR:], "c"),
    }
    return Federation(tiles, Preprocessing()).train(SETTINGS)


@pytest.fixture
def results(trained, tmp_path):
    """As the coordinator writes it; it has no party's part of the run."""
    folder = tmp_path / "results"
    folder.mkdir()
    write_run_results(folder, trained, task_of(trained), Presence())
    return folder


def task_of(trained):
    return LinearTask(
        name="three towns",
        parties=tuple(trained.holdings.parties),
        settings=SETTINGS,
        preprocessing=Preprocessing(),
    )


def numbers(value):
    """All numbers in plain values."""
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, list):
        return [number for item in value for number in numbers(item)]
    return [value] if isinstance(value, int | float) and not isinstance(value, bool) else []


def test_a_submitter_is_not_told_who_holds_how_much(trained, results):
    told = json.loads((results / SUMMARY).read_text())
    here = summarise(trained, SETTINGS, "three towns")
    # In one hand it is there, and would tell what two parties share.
    assert PAIR in numbers(here["cohorts"])
    assert told["cohorts"] is None
    assert told["feature_sets"] is None
    found = numbers({key: value for key, value in told.items() if key != "settings"})
    assert not {PAIR, ALL} & set(found)
    # What is left of the rest is the same.
    shown, known = told.pop("federation"), here.pop("federation")
    rounded = ("cohorts", "feature_sets", "phases", "encryption", "cost", "notes", "remarks")
    for key in set(here) - set(rounded):
        assert told[key] == here[key], key
    counts = {"samples": 350, "left_out": 0, "rare": None, "rare_cells": None}
    assert shown == {**known, **counts}
    assert known["samples"] == PAIR + ALL


def places(value, before=()):
    """Where plain values can be given a further figure: in every dict, at every depth."""
    if isinstance(value, dict):
        yield before
        for key, item in value.items():
            yield from places(item, (*before, key))
    if isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*before, number))


def with_figure(value, place, figure):
    if not place:
        return {**value, "rows_by_party": figure}
    first, *rest = place
    changed = list(value) if isinstance(value, list) else dict(value)
    changed[first] = with_figure(value[first], rest, figure)
    return changed


UNLISTED = 424_242
#: Said by the submitter or by all parties: whatever is in there is known to it.
SAID = {"settings", "terms"}


def assert_every_figure_is_listed(here, listed, *, names):
    """A new figure is not told, wherever it is; ``names``: dicts whose keys are names."""
    tried = 0
    for place in places(here):
        if place and (place[0] in SAID or place in names):
            continue
        told = told_of(with_figure(here, place, UNLISTED), listed)
        assert UNLISTED not in numbers(told), place
        tried += 1
    assert tried > 5


def test_a_submitter_gets_no_figure_that_is_not_listed_at_any_depth(trained):
    here = summarise(trained, SETTINGS, "three towns")
    here["path"] = [{"lambda": 0.1, "chosen": True}]
    assert_every_figure_is_listed(here, LINEAR, names={("versions",)})
    assert told_of({**here, "rows_by_party": {"north": 1}}, LINEAR)["rows_by_party"] is None
    assert told_of(here, LINEAR).keys() == here.keys()


def test_a_submitter_gets_no_column_that_is_not_listed(trained, tmp_path, monkeypatch):
    def with_more(records):
        return history_frame(records).assign(rows_of_north=7)

    assert set(history_frame(trained.result.history)) == set(HISTORY_COLUMNS)
    assert set(path_frame(trained.result, "classification")) <= set(PATH)
    monkeypatch.setattr(run_results, "history_frame", with_more)
    write_run_results(tmp_path, trained, task_of(trained), Presence())
    assert "rows_of_north" not in pd.read_parquet(tmp_path / HISTORY)


def test_a_submitter_of_networks_gets_no_figure_that_is_not_listed():
    from weft_neural.neural_result_files import TOLD

    here = {
        "name": "n",
        "accuracy": {"server": 0.5},
        "model": {"classes": [0, 1], "blocks": {"a": {"extractor": "linear", "shape": []}}},
        "federation": {"north": {"blocks": ["a"], "weight": 0.5}},
        "cost": {"round_trips": 1, "training_seconds": 1.2345},
        "versions": {"weft": "1"},
    }
    assert_every_figure_is_listed(here, TOLD, names={("versions",)})
    assert told_of(here, TOLD)["cost"]["training_seconds"] == 1.2


def only_two_digits(values, exact):
    assert all(value == float(f"{value:.1e}") for value in values)
    assert values == pytest.approx(exact, rel=0.05)
    assert values != exact


def test_totals_of_bytes_and_seconds_tell_no_exact_sizes_of_tables(trained, results):
    """Between two runs that differ in one vector they would tell how many rows parties share."""
    told = json.loads((results / SUMMARY).read_text())
    kept = pd.read_parquet(results / HISTORY)
    progress = Progress("a-run")
    progress.begin(trained.holdings.parties)
    for record in trained.result.history:
        progress.add(record, {})
    for name in ("bytes_down", "bytes_up", "compute_seconds", "wall_seconds"):
        exact = [getattr(record, name) for record in trained.result.history]
        only_two_digits([told["cost"][name]], exact[-1:])
        only_two_digits(kept[name].tolist(), exact)
        only_two_digits([record[name] for record in progress.since().records], exact)


def test_phases_tell_no_exact_sizes_of_tables(trained, results):
    told = json.loads((results / SUMMARY).read_text())
    exact = trained.meter.to_dict()
    assert told["phases"].keys() == exact.keys()
    changed = 0
    for phase, cost in told["phases"].items():
        assert cost["calls"] == exact[phase]["calls"]
        for key in ("bytes_down", "bytes_up", "slowest", "total"):
            assert cost[key] == float(f"{cost[key]:.1e}")
            assert cost[key] == pytest.approx(exact[phase][key], rel=0.05)
            changed += cost[key] != exact[phase][key]
    assert changed > len(exact)
    # How many values the coordinator added follows from the sizes of groups.
    assert trained.adder.cost.added > 0
    spent = told["encryption"]["coordinator"]
    assert {name for name, value in spent.items() if value is not None} == {"seconds"}


def test_a_networked_run_has_a_page_that_says_who_knows_the_rest(results, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    plan = read_config(config, deployed=True)
    out = tmp_path / "out"
    _, remarks = write_out(results, out, plan, None, None, command="weft submit kit config.toml")
    assert not any("report.html" in remark for remark in remarks)
    page = (out / "report.html").read_text("utf-8")
    assert "is known to the coordinator only" in page
    assert "older Weft" not in page
    assert "Bytes and seconds are rounded" in page
    assert "interrupted and resumed" not in page
    assert '"tiles": null' in page or '"tiles":null' in page
    assert len(pd.read_csv(out / "history.csv")) > 0


def test_a_run_that_did_not_reach_what_was_asked_for_says_so(results):
    summary = json.loads((results / SUMMARY).read_text())
    kind = LinearJob()
    assert kind.shortcomings(summary) == []
    (short,) = kind.shortcomings({**summary, "certificate": None})
    assert "was not reached" in short
    free = {**summary, "settings": {**summary["settings"], "gap": None}, "certificate": None}
    assert kind.shortcomings(free) == []
    (lacking,) = kind.shortcomings({**free, "gone": ["north"]})
    assert "not certified without north" in lacking


@pytest.mark.parametrize("name", ["summary.json", "history.parquet", "sealed_slices.msgpack"])
def test_results_that_came_back_damaged_are_refused_and_leave_no_folder(name, results, tmp_path):
    config = tmp_path / "config.toml"
    config.write_text(CONFIG)
    plan = read_config(config, deployed=True)
    returned = tmp_path / "returned"
    shutil.copytree(results, returned)
    (returned / name).write_bytes(b"{")
    with pytest.raises(ProtocolError, match=r"came back damaged .*; resume the run"):
        write_out(returned, tmp_path / "out", plan, None, None)
    assert not (tmp_path / "out").exists()
