"""A description over a network, by sites that agreed to this kind of run."""

from __future__ import annotations

import json
from dataclasses import replace
from types import SimpleNamespace

import msgspec
import numpy as np
import pandas as pd
import pytest
from member_sites import AGREES, MemberSites

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.errors import WeftError
from weft.federation.descriptive_statistics_coordinator import described_as
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import OPEN
from weft.network.descriptive_statistics_job import make_correlation_run, read_description
from weft.network.submitted_task import DescribeTask
from weft.solvers.run_settings import Settings

PARTIES = ("north", "south", "west")
TERMS = msgspec.structs.replace(OPEN, min_batch=10)
DESCRIBES = msgspec.structs.replace(AGREES, kinds=("linear", "describe"))


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(PARTIES)


@pytest.fixture
def tiles():
    cells = np.random.default_rng(8).normal((40.0, 0.0), size=(150, 2))
    cells[3, 1] = np.nan
    return {
        name: (
            Tile.make(
                [f"n{row:03}" for row in range(50 * place, 50 * place + 50)],
                ("age", "dose"),
                cells[50 * place : 50 * place + 50],
                np.arange(50) % 2,
            ),
        )
        for place, name in enumerate(PARTIES)
    }


def task():
    how = described_as(Preprocessing(scaling="standard"))
    settings = Settings(lam=0.1, loss="logistic")
    return DescribeTask(name="trial", parties=PARTIES, settings=settings, preprocessing=how)


def test_sites_describe_their_columns_together(tmp_path, keys, tiles):
    limits = dict.fromkeys(PARTIES, DESCRIBES)
    sites = MemberSites(tmp_path, keys, tiles, terms=TERMS, limits=limits)
    found = read_description(sites.ask(task()))
    age, dose = found["columns"]
    ages = np.concatenate([held[0].block[:, 0] for held in tiles.values()])
    assert age["holders"] == list(PARTIES)
    assert age["mean"] == pytest.approx(ages.mean(), abs=1e-4)
    # A single blank cell is nobody's to find.
    assert (dose["cells"], dose["missing"]) == (150, 0)
    assert found["outcome"]["classes"] == {"0": 75, "1": 75}
    assert "n0" not in json.dumps(found)


def test_a_site_that_did_not_agree_to_descriptions_tells_nothing(tmp_path, keys, tiles):
    limits = {**dict.fromkeys(PARTIES, DESCRIBES), "west": AGREES}
    with pytest.raises(WeftError, match="refuses a job of kind 'describe'"):
        MemberSites(tmp_path, keys, tiles, terms=TERMS, limits=limits).ask(task())


def test_names_of_columns_stay_where_a_site_keeps_them_back(tmp_path, keys, tiles):
    limits = dict.fromkeys(PARTIES, DESCRIBES)
    sites = MemberSites(tmp_path, keys, tiles, terms=TERMS, limits=limits)
    sites.members = {
        name: replace(member, policy=replace(member.policy, tell_columns=False))
        for name, member in sites.members.items()
    }
    found = read_description(sites.ask(task()))
    assert [one["name"] for one in found["columns"]] == ["column 1", "column 2"]


def test_readers_have_correlations_beside_the_model_and_the_coordinator_has_none(
    tmp_path, keys, tiles
):
    described = task()
    config = SimpleNamespace(
        name="trial",
        settings=described.settings,
        preprocessing=lambda: described.preprocessing,
        terms=described.terms,
        data=SimpleNamespace(positive=None),
        file=SimpleNamespace(columns={}),
        network=SimpleNamespace(setup=described.setup, timeout=described.timeout),
    )
    sites = MemberSites(tmp_path, keys, tiles, terms=TERMS)
    returned = sites.ask(make_correlation_run(config, PARTIES))
    cells = np.concatenate([held[0].block for held in tiles.values()])
    cells = np.where(np.isnan(cells), np.nanmean(cells, axis=0), cells)
    expected = np.corrcoef(cells.T)[0, 1]
    for name in PARTIES:
        found = pd.read_csv(tmp_path / "saved" / name / "correlations.csv", index_col="column")
        assert list(found.index) == list(found.columns) == ["age", "dose"]
        assert found.loc["age", "dose"] == pytest.approx(expected, abs=2e-3)
        assert found.loc["age", "age"] == 1.0
    assert not list(returned.parent.rglob("correlations*"))
    told = f"{expected:.3f}".encode()
    assert not any(told in path.read_bytes() for path in returned.rglob("*.json"))
