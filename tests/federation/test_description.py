"""Descriptions against pandas on the pooled table, and what anybody is told on the way."""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pandas as pd
import pytest

from weft.crypto.keys import ephemeral_keys
from weft.data import Tile
from weft.errors import WeftError
from weft.federation import descriptive_statistics_party
from weft.federation.column_correlations_in_one_process import correlate_tiles
from weft.federation.descriptive_statistics_coordinator import describe_study, described_as
from weft.federation.descriptive_statistics_party import DescribeParty
from weft.federation.local_descriptive_statistics import describe_tiles
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.guards import Terms
from weft.guards.cells_safe_to_describe import LEAVES
from weft.privacy.agreement import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import LocalChannel, fields_of, pack
from weft.solvers.run_settings import Settings

LEAST = 10
TERMS = Terms(min_batch=LEAST, allow_pairs=True, allow_site_statistics=True)
COLUMNS = ("age", "dose", "cost", "smokes", "time", "flat")
#: Rows and columns of each party; all but the last hold the first three columns.
CUTS = {
    "north": (range(120), ("age", "dose", "cost", "smokes")),
    "south": (range(100, 220), ("age", "dose", "cost", "smokes")),
    "east": (range(220, 300), ("age", "dose", "cost", "time")),
    "west": (range(300), ("flat", "time")),
}


def table():
    rng = np.random.default_rng(5)
    frame = pd.DataFrame(
        {
            "age": rng.integers(18, 90, 300).astype(float),
            "dose": rng.normal(size=300),
            "cost": rng.lognormal(6.0, 1.0, 300),
            "smokes": (rng.random(300) < 0.3).astype(float),
            # Far from zero, next to its spread.
            "time": 1.7e9 + rng.normal(0, 3600.0, 300),
            "flat": np.full(300, 5.0),
        },
        index=[f"s{row:03}" for row in range(300)],
    )
    labels = (rng.random(300) < 0.4).astype(int)
    # Enough of both in the group that north and south have in common: nobody is left out.
    labels[100:120] = np.arange(20) % 2
    return frame, labels


def tiles(frame, labels, cuts=CUTS):
    found = {}
    for party, (rows, columns) in cuts.items():
        part = frame.iloc[list(rows)][list(columns)]
        told = None if party == "west" else labels[list(rows)]
        found[party] = (Tile.make(part.index, columns, part.to_numpy(), told),)
    return found


def described(held, *, terms=TERMS, loss="logistic", **more):
    how = Preprocessing(confirmed=ONE_TABLE, confirm_separate_ids=True)
    consents = {party: Consent(party, terms) for party in held}
    settings = Settings(lam=0.1, loss=loss)
    return describe_tiles(held, how, settings, consents=consents, **more)


@pytest.fixture(scope="module")
def whole():
    """A table, and what was told of it: the description, and every party's own numbers."""
    frame, labels = table()
    own, pack = [], descriptive_statistics_party.pack_scalars

    def keeping(cipher, field, *values, **more):
        own.append((cipher.party_name, field, np.array(values)))
        return pack(cipher, field, *values, **more)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(descriptive_statistics_party, "pack_scalars", keeping)
        found, channel = described(tiles(frame, labels), record=True)
    return frame, labels, found.to_dict(), own, channel


def test_figures_are_those_of_pandas_on_the_pooled_table(whole):
    frame, labels, told, *_ = whole
    assert [one["name"] for one in told["columns"]] == sorted(COLUMNS)
    for column in told["columns"]:
        holders = [set(CUTS[party][0]) for party in column["holders"]]
        cells = frame[column["name"]].iloc[sorted(set().union(*holders))]
        # Every sample once, also where two parties hold it.
        assert column["cells"] == len(cells)
        assert column["missing"] == 0
        spread = cells.std() or 1.0
        assert abs(column["mean"] - cells.mean()) < 1e-4 * spread, column
        assert abs(column["sd"] - cells.std()) < 3e-4 * spread, column
        assert round(sum(column["histogram"]["counts"])) == pytest.approx(len(cells), abs=2)
        for share, found in column["quantiles"].items():
            exact = cells.quantile(float(share))
            assert found["low"] is None or found["low"] - 1e-3 * spread <= exact
            assert found["high"] is None or exact <= found["high"] + 1e-3 * spread
            if found["value"] is not None:
                assert abs(found["value"] - exact) <= found["bound"]
                if share == "0.5":
                    assert found["bound"] < max(0.4 * spread, 1e-3)
    assert told["outcome"]["classes"] == {
        "0": int((labels == 0).sum()),
        "1": int((labels == 1).sum()),
    }
    east = labels[220:300]
    assert told["outcome"]["sites"]["east"]["classes"] == {"0": (east == 0).sum(), "1": east.sum()}
    # The first of two label holders counts a sample that both have.
    assert sum(told["outcome"]["sites"]["south"]["classes"].values()) == 100
    assert "west" not in told["outcome"]["sites"]


def test_no_party_tells_a_count_of_a_few_cells(whole):
    *_, own, _ = whole
    seen = 0
    for _, field, values in own:
        if field == "sums":
            counts = values.reshape(-1, 3)[:, :2]
        elif field == "counts":
            counts = values.reshape(len(COLUMNS), -1)[:, 2:]
        elif field == "outcomes":
            counts = values
        else:
            continue
        seen += 1
        assert not ((counts > 0) & (counts < LEAST)).any(), field
    assert seen == 3 * len(CUTS)


def test_the_coordinator_reads_totals_and_no_cell(whole):
    frame, _, _, own, channel = whole
    cells = np.unique(frame.to_numpy())
    # Whole numbers may be units by chance.
    cells = cells[cells != np.round(cells)]
    told = {(party, field): values for party, field, values in own if field != "flags"}
    phases = set()
    for entry in channel.transcript:
        if not entry.phase.startswith("describe."):
            continue
        phases.add(entry.phase)
        for message in (entry.message, entry.reply):
            for field, value in message.items():
                if isinstance(value, np.ndarray) and value.dtype.kind == "f":
                    assert not np.isin(value, cells).any(), (entry.phase, field)
                if isinstance(value, bytes) and (entry.party, field) in told:
                    # Under masks: what a party counted is not what it sends.
                    plain = np.frombuffer(value, np.uint8).reshape(-1, 18)
                    assert (plain.any(axis=1)).all()
    assert phases == {
        f"describe.{name}" for name in ("names", "sizes", "centres", "middle", "spreads", "counts")
    }


def test_blank_cells_and_levels_are_counted_where_they_are_enough():
    frame, labels = table()
    frame.loc[frame.index[:30], "dose"] = np.nan
    frame.loc[frame.index[225:228], "dose"] = np.nan
    found, _ = described(tiles(frame, labels))
    (dose,) = [one for one in found.columns if one["name"] == "dose"]
    # Three at east count as its median.
    assert (dose["cells"], dose["missing"]) == (270, 30)
    known = frame["dose"].copy()
    known.iloc[225:228] = frame["dose"].iloc[220:300].median()
    assert dose["mean"] == pytest.approx(known.mean(), abs=0.01)


def test_what_few_hold_is_told_by_leave_alone():
    frame, labels = table()
    strict = msgspec.structs.replace(TERMS, allow_site_statistics=False, allow_pairs=False)
    found, _ = described(tiles(frame, labels), terms=strict)
    assert [one["name"] for one in found.columns] == ["age", "cost", "dose"]
    assert {tuple(one["holders"]): one["columns"] for one in found.untold} == {
        ("west",): 1,
        ("north", "south"): 1,
        ("east", "west"): 1,
    }
    assert found.outcome["sites"] == {}
    assert sum(found.outcome["classes"].values()) == 300


def test_a_response_is_described_like_a_column():
    frame, _ = table()
    response = np.random.default_rng(6).gamma(2.0, 3.0, 300)
    found, _ = described(tiles(frame, response), loss="squared")
    told = found.outcome["response"]
    assert told["cells"] == 300
    assert told["mean"] == pytest.approx(response.mean(), rel=1e-4)
    assert told["sd"] == pytest.approx(response.std(ddof=1), rel=1e-3)
    site = found.outcome["sites"]["east"]
    assert site["mean"] == pytest.approx(response[220:300].mean(), rel=1e-3)


def test_a_description_stands_beside_earlier_ones_in_the_ledger(tmp_path):
    frame, labels = table()
    books = Ledger(tmp_path / "ledger", "study")
    held = tiles(frame, labels)
    first, _ = described(held, ledger=books)
    again, _ = described(held, ledger=books)
    assert again.to_dict() == first.to_dict()
    fewer = {**held, "east": (held["east"][0].rows(slice(1, None)),)}
    with pytest.raises(WeftError, match="went since"):
        described(fewer, ledger=books)
    changed = held["east"][0].block.copy()
    changed[0, 1] += 1.0
    with pytest.raises(WeftError, match="other cells"):
        described({**held, "east": (replace(held["east"][0], block=changed),)}, ledger=books)


def test_another_partys_cells_do_not_move_edges_past_a_few(tmp_path, monkeypatch):
    frame, labels = table()
    books = Ledger(tmp_path / "ledger", "study")
    counted, pack = [], descriptive_statistics_party.pack_scalars

    def keeping(cipher, field, *values, **more):
        if field == "counts" and cipher.party_name == "north":
            counted.append(np.array(values).reshape(len(COLUMNS), -1)[:, 2:])
        return pack(cipher, field, *values, **more)

    monkeypatch.setattr(descriptive_statistics_party, "pack_scalars", keeping)
    described(tiles(frame, labels), ledger=books)
    frame.iloc[220:300, 1] = frame.iloc[220:300, 1] * 3 + 2
    described(tiles(frame, labels), ledger=books)
    pages = books.book("north").read()
    column = int(pages.column_hashes(["dose"])[0])
    edges, cells = pages.edges.of(column), np.sort(frame["dose"].to_numpy()[:120])
    below = np.searchsorted(cells, edges)
    apart = np.abs(below[:, None] - below[None, :])
    assert len(edges) > LEAST
    assert not ((apart > 0) & (apart < LEAST - 1)).any()
    # Two lines were used, so that there was something to keep apart.
    assert any((one != other).any() for one, other in zip(*counted, strict=True))
    assert counted[0].shape[1] > LEAVES


def test_correlations_are_those_of_the_pooled_table():
    rng = np.random.default_rng(10)
    cells = rng.normal(size=(240, 5)) @ rng.normal(size=(5, 5)) + 3.0
    columns, ids = ("a", "b", "c", "d", "e"), [f"s{row:03}" for row in range(240)]
    labels = (cells[:, 0] + rng.normal(size=240) > 3).astype(int)
    held = {
        "north": (Tile.make(ids, columns[:2], cells[:, :2], labels),),
        "south": (Tile.make(ids, columns[2:4], cells[:, 2:4], labels),),
        "west": (Tile.make(ids, columns[4:], cells[:, 4:]),),
    }
    terms = msgspec.structs.replace(TERMS, allow_second_moments=True)
    consents = {party: Consent(party, terms) for party in held}
    settings = Settings(lam=0.1, loss="logistic")
    found = correlate_tiles(held, Preprocessing(), settings, consents=consents)
    order = [columns.index(name) for name in found["columns"]]
    assert sorted(order) == list(range(5))
    exact = np.corrcoef(cells[:, order].T)
    np.testing.assert_allclose(found["matrix"], exact, atol=2e-3)
    strict = {party: Consent(party, TERMS) for party in held}
    with pytest.raises(WeftError, match="allow_second_moments"):
        correlate_tiles(held, Preprocessing(), settings, consents=strict)


def test_a_party_that_is_made_again_answers_the_same(tmp_path):
    frame, labels = table()
    held, told = tiles(frame, labels), described_as(Preprocessing(confirmed=ONE_TABLE))
    keys, memories = ephemeral_keys(tuple(held)), {party: {} for party in held}
    books = Ledger(tmp_path / "ledger", "study")

    def party(name):
        return DescribeParty(
            name,
            held[name],
            keys=keys[name],
            consent=Consent(name, TERMS),
            ledger=books,
            memory=memories[name],
            missing="mean",
        )

    heard = []

    def hearing(name, own):
        def on(phase, message):
            reply = own.on(phase, message)
            heard.append((name, phase, message, fields_of(reply)))
            return reply

        return on

    channel = LocalChannel({name: hearing(name, party(name)) for name in held})
    how = msgspec.structs.replace(told, confirm_separate_ids=True)
    describe_study(channel, how, Settings(lam=0.1, loss="logistic"), bytes(16))
    again = party("north")
    for name, phase, message, reply in heard:
        if name == "north":
            said = again.on(phase, message)
            # Boxes are sealed anew.
            boxed = phase.name in ("match.view", "match.keys")
            assert boxed or pack(fields_of(said)) == pack(reply), phase.name
