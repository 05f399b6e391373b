"""A report says no more than is true, tells nobody where files lay, and never costs a run."""

import dataclasses
import json
import math
import sys
from types import SimpleNamespace

import numpy as np
import pytest
from hostile_names import federation

from weft import Federation, Preprocessing, Settings
from weft.report import sizes_and_holders_of_groups as cohorts
from weft.report.history_table import history_frame
from weft.report.page import html_file as writing
from weft.report.page.accuracy import accuracy_section
from weft.report.page.gap_and_loss_curves import curves_of
from weft.report.page.holdings_section import tiles_of, tiles_section
from weft.report.page.privacy import privacy_section
from weft.report.page.read_results_folder import Source, read_folder
from weft.report.page.rerun_instructions import rerun_section
from weft.report.results_folder import write_results
from weft.report.sizes_and_holders_of_groups import cohorts_of
from weft.report.summary import certificate_sentence, shortfall, summarise, to_markdown
from weft_evaluation.comparison_results import Comparison

SETTINGS = Settings(lam=0.05, loss="logistic", gap=1e-4, solver="auto")


@pytest.fixture(scope="module")
def tiles():
    return federation()


@pytest.fixture(scope="module")
def trained(tiles):
    return Federation(tiles, Preprocessing()).train(SETTINGS)


@pytest.fixture
def no_plot(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)


@pytest.fixture
def folder(no_plot, trained, tmp_path):
    write_results(tmp_path, trained, SETTINGS, name="a run")
    return tmp_path


def source_of(summary, history, **more):
    things = {"model": None, "config": None, "audit": None, "latency": 0.1, **more}
    return Source(summary=summary, history=history, **things)


# ── who saw what ──────────────────────────────────────────────────────────────────────────────


def words_under(folder, cipher, sees="nothing"):
    source = read_folder(folder)
    source.summary["settings"] |= {"cipher": cipher, "coordinator_sees": sees}
    return str(privacy_section(source))


def test_without_a_cipher_nothing_is_said_to_be_unseen(folder):
    words = words_under(folder, "plain")
    assert "every sum and the weights of the model" in words
    assert "It saw no weight" not in words
    assert "By agreement" in words_under(folder, "plain", "weights")


@pytest.mark.parametrize("cipher", ["pad", "bfv", "paillier"])
def test_ciphers_of_weft_are_said_to_hide(folder, cipher):
    words = words_under(folder, cipher)
    assert "it added what it could not read. It saw no weight" in words
    assert "author" not in words


def test_what_a_cipher_from_outside_hides_is_its_authors_word(folder):
    words = words_under(folder, "hashpad")
    assert "added what it could not read" not in words
    assert "As its author says" in words
    assert "hidden, as its author says" in words


def test_terms_of_another_version_are_shown_without_words(folder):
    source = read_folder(folder)
    source.summary["terms"]["allow_anything"] = True
    words = str(privacy_section(source))
    assert "<code>allow_anything</code></th><td>allowed</td><td></td>" in words


# ── files ────────────────────────────────────────────────────────────────────────────────────


def test_a_page_that_cannot_be_written_costs_nothing_else(
    weft, hospitals, no_plot, monkeypatch, tmp_path
):
    def fail(source):
        raise TypeError("a page went wrong")

    monkeypatch.setattr(writing, "page_of", fail)
    config = hospitals.write()
    for command, kept in (
        (("train", config, "--out", "r"), {"model.npz", "history.csv", "summary.json"}),
        (
            ("compare", config, "--algorithms", "alone", "--out", "c"),
            {"comparison.csv", "summary.json"},
        ),
    ):
        outcome = weft(*command)
        assert outcome.code == 0, outcome.err
        assert "no report.html: it could not be written" in " ".join(outcome.out.split())
        found = {path.name for path in (tmp_path / command[-1]).iterdir()}
        assert kept <= found
        assert not any("report.html" in name for name in found)


def test_a_gap_that_is_not_finite_leaves_a_summary_that_is_json(no_plot, trained, tmp_path):
    proof = dataclasses.replace(trained.result.certificate, dual=(-math.inf,))
    assert proof.gap == math.inf
    result = dataclasses.replace(trained.result, certificate=proof)
    endless = dataclasses.replace(trained, result=result)
    write_results(tmp_path, endless, SETTINGS, name="endless")

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    text = (tmp_path / "summary.json").read_text()
    summary = json.loads(text, parse_constant=refuse)
    assert summary["certificate"]["gap"] is None
    assert "nothing is proved yet" in certificate_sentence(summary)
    assert "was not reached" in shortfall(summary)
    assert "nothing is proved yet" in to_markdown(summary)
    assert "none yet" in (tmp_path / "report.html").read_text("utf-8")
    summary["certificate"]["loss"] = None
    assert "loss not finite" in certificate_sentence(summary)


def test_scores_that_there_are_not_come_last(trained):
    summary = {
        "settings": {"loss": "squared", "loss_parameters": {}},
        "test_samples": 3,
        "results": [],
        # Held-out responses that are all the same have no R².
        "alone": {
            "none": {"r2": None},
            "bad": {"r2": -0.5},
            "zero": {"r2": 0.0},
            "good": {"r2": 1},
        },
    }
    words = str(accuracy_section(source_of(summary, None)))
    places = [words.index(f"{name}, alone") for name in ("good", "zero", "bad", "none")]
    assert places == sorted(places)


# ── who holds what ────────────────────────────────────────────────────────────────────────────


def test_totals_count_groups_that_are_not_listed(tiles, trained, monkeypatch):
    monkeypatch.setattr(cohorts, "_MOST", 1)
    found = cohorts_of(trained.holdings)
    assert found["more_rows"]["groups"] > 0
    assert found["more_columns"]["groups"] > 0
    ids = [{name for tile in held for name in tile.ids.tolist()} for held in tiles.values()]
    names = [{name for tile in held for name in tile.features.tolist()} for held in tiles.values()]
    totals = found["totals"]
    assert totals["samples"] == totals["labels"] == [len(own) for own in ids]
    assert totals["features"] == [len(own) for own in names]
    shared = [
        [other for other in range(3) if other != party and ids[party] & ids[other]]
        for party in range(3)
    ]
    assert [cohorts.read_numbers(text) for text in totals["shares"]] == shared
    summary = summarise(trained, SETTINGS, "a run")
    source = source_of(summary, history_frame(trained.result.history))
    words = str(tiles_section(source, tiles_of(source)))
    for own in ids:
        assert f">{len(own)}<" in words


# ── certified points ──────────────────────────────────────────────────────────────────────────


def test_a_certified_point_stands_where_it_was_proved_on_every_page(trained):
    records = [
        dataclasses.replace(record, certified_at=max(1, number - 2))
        for number, record in enumerate(trained.result.history, 1)
    ]
    frame = history_frame(records)
    proved = frame.drop_duplicates("certified_at", keep="first")
    assert len(proved) > 3
    run = curves_of(source_of(summarise(trained, SETTINGS, "a run"), frame))
    row = {"algorithm": "a", "kind": "federated", "distance": None, "gap": 0.1, "iterations": 9}
    several = {
        "results": [row],
        "settings": {"gap": None},
        "optimum": 0.1,
        "judged_by": "somebody",
    }
    compared = curves_of(source_of(several, frame.assign(algorithm="a", distance=frame["gap"])))
    (certified,) = [s for s in run["charts"][1]["series"] if s["name"] == "certified gap"]
    (other,) = compared["charts"][1]["series"]
    assert certified["y"] == other["y"]
    for drawn, series in ((run, certified), (compared, other)):
        grid = drawn["grids"][series["grid"]]
        assert grid["i"] == proved["iteration"].tolist()
        assert grid["t"] == proved["round_trips"].tolist()
        assert grid["b"] == (proved["bytes_down"] + proved["bytes_up"]).tolist()
        assert np.allclose(grid["c"], proved["compute_seconds"].astype(float), rtol=1e-5)
    # The plot of a comparison has the same meaning.
    outcome = SimpleNamespace(name="a", kind="federated", primal=None, history=records)
    judge = SimpleNamespace(distance=lambda primal: None, optimum=0.1, latency=0.5)
    assert Comparison._curve(judge, outcome).round_trips == proved["round_trips"].tolist()


# ── paths ─────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("given", "shown"),
    [
        (
            "weft train /private/owner/config.toml --out /private/owner/first --keys ../secret/k",
            "weft train config.toml --out first --keys k",
        ),
        (
            "weft train '/private/ow ner/a b.toml' --out=/private/owner/x/",
            "weft train 'a b.toml' --out=x",
        ),
        ("weft compare c.toml --set fedavg.steps=3 --lambda 1e-3",) * 2,
    ],
)
def test_a_page_tells_names_of_files_and_not_where_they_lay(trained, given, shown):
    summary = summarise(trained, SETTINGS, "a run", command=given)
    config = '[[party]]\nfile = "/private/owner/north.csv"\n'
    words = str(rerun_section(source_of(summary, None, config=config)))
    command, _, rest = words.partition("config.toml, the federation")
    assert shown in command.replace("&#x27;", "'").replace("&#39;", "'")
    assert "owner" not in command
    assert "Shown as it was written" in rest
    assert "/private/owner/north.csv" in rest


def test_a_page_does_not_tell_where_the_ledger_lies(weft, hospitals, no_plot, tmp_path):
    ledger = tmp_path / "owner" / "book"
    outcome = weft("train", hospitals.write(), "--out", "r", "--ledger", ledger)
    assert outcome.code == 0, outcome.err
    # Whoever runs it is told where to look.
    assert f"see weft ledger {ledger}" in " ".join(outcome.out.split())
    page = (tmp_path / "r" / "report.html").read_text("utf-8")
    assert "see weft ledger book" in page
    assert str(ledger) not in page
    assert str(ledger) not in json.dumps(
        json.loads((tmp_path / "r" / "summary.json").read_text())["remarks"]
    )
