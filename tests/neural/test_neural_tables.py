"""Tables as blocks: columns in one order everywhere, scaled over all who hold them."""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st
from small_networks import numbers, tiny, trained

from covering import examples
from weft.data.tile import Tile
from weft.errors import DataError, WeftError
from weft.protocol.message_bytes import pack
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource, TableSource
from weft_neural.settings import Block

COLUMNS = {"ct": [f"ct_{k}" for k in range(1, 13)], "lab": ["lab.iron", "lab.salt"]}
HELD = {"north": ("ct", "lab"), "east": ("ct",), "south": ("lab",)}


def table(party, seed, *, blanks=0.1, rows=30, order=None):
    """Ids, columns, cells and labels of a party."""
    random = np.random.default_rng(seed)
    columns = [column for name in HELD[party] for column in COLUMNS[name]]
    labels = random.integers(0, 2, rows)
    cells = random.normal(size=(rows, len(columns))) * 3 + labels[:, None] + 7
    cells[random.random(cells.shape) < blanks] = np.nan
    if order is not None:
        columns = [columns[k] for k in order(len(columns))]
        cells = cells[:, order(cells.shape[1])]
    ids = [f"{party}-patient-{row}" for row in range(rows)]
    return Tile.make(ids, columns, cells, np.array(["no", "yes"], object)[labels], party)


def tables(**changes):
    return {
        party: TableSource(party, [table(party, seed, **changes)])
        for seed, party in enumerate(HELD)
    }


def of_columns(tile, names):
    where = {feature: at for at, feature in enumerate(tile.features.tolist())}
    return tile.block[:, [where[name] for name in names]]


# ── scaling ───────────────────────────────────────────────────────────────────────────────────


def test_means_and_deviations_are_numpys_over_all_cells_of_all_holders():
    own = tables()
    run = trained(own, tiny(COLUMNS))
    for name, columns in COLUMNS.items():
        cells = np.vstack([of_columns(own[p].tiles[0], columns) for p in HELD if name in HELD[p]])
        assert np.isnan(cells).any()
        mean, deviation = run.model.scaling[name]
        assert np.allclose(mean, np.nanmean(cells, axis=0), rtol=1e-12)
        assert np.allclose(deviation, np.nanstd(cells, axis=0), rtol=1e-12)


@examples(15, deadline=None)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(-1e6, 1e6),
    st.floats(1e-3, 1e3),
    st.integers(1, 4),
)
def test_scaling_holds_for_cells_of_any_size(seed, middle, spread, parties):
    random = np.random.default_rng(seed)
    blocks = [middle + spread * random.normal(size=(5 + k, 3)) for k in range(parties)]
    own = {
        f"p{k}": BlockSource(f"p{k}", Holdings({"a": block}, np.arange(len(block)) % 2))
        for k, block in enumerate(blocks)
    }
    model = trained(own, tiny(("a",), rounds=1, steps=1)).model
    mean, deviation = model.scaling["a"]
    pooled = np.vstack(blocks)
    assert np.allclose(mean, pooled.mean(axis=0), rtol=1e-9, atol=1e-9 * spread)
    assert np.allclose(deviation, pooled.std(axis=0), rtol=1e-7)


def test_constant_columns_are_centred_and_not_blown_up():
    blocks = np.random.default_rng(0).normal(size=(12, 3))
    blocks[:, 1] = 5.0
    own = {
        party: BlockSource(party, Holdings({"a": blocks[rows]}, np.arange(6) % 2))
        for party, rows in (("p", slice(0, 6)), ("q", slice(6, 12)))
    }
    mean, deviation = trained(own, tiny(("a",), rounds=1)).model.scaling["a"]
    assert mean[1] == pytest.approx(5.0)
    assert deviation[1] == 1.0


def test_blanks_are_means():
    """A blank becomes 0 after scaling, which is what the mean becomes."""
    model = trained(tables(), tiny(COLUMNS)).model
    mean = model.scaling["ct"][0]
    known = {"ct": np.full((2, 12), 9.0), "lab": np.ones((2, 2))}
    known["ct"][0, 4], known["ct"][1, 4] = np.nan, mean[4]
    found = model.probabilities(known)
    assert np.allclose(found[0], found[1], atol=1e-7)


def test_without_scaling_cells_are_taken_as_they_are():
    block = Block(options={"hidden": (), "features": 4}, scaling="none")
    run = trained(tables(), tiny(COLUMNS, block=block), record=True)
    assert run.model.scaling == {}
    assert not [entry for entry in run.channel.transcript if entry.phase == "neural.scale"]


# ── columns ───────────────────────────────────────────────────────────────────────────────────


def orders():
    return {
        "backwards": lambda count: np.arange(count)[::-1],
        "shuffled": lambda count: np.random.default_rng(count).permutation(count),
    }


@pytest.mark.parametrize("order", orders().values(), ids=orders())
def test_the_order_of_columns_in_a_table_does_not_matter(order):
    mixed = tables()
    mixed["north"] = tables(order=order)["north"]
    assert mixed["north"].tiles[0].features.tolist() != tables()["north"].tiles[0].features.tolist()
    wanted = numbers(trained(tables(), tiny(COLUMNS)).model)
    assert numbers(trained(mixed, tiny(COLUMNS)).model).tobytes() == wanted.tobytes()


def test_columns_lie_in_their_natural_order():
    held = tables(order=lambda count: np.arange(count)[::-1])["north"].holdings(
        tiny(COLUMNS).blocks
    )
    assert held.columns["ct"] == tuple(COLUMNS["ct"])
    assert held.columns["ct"].index("ct_2") < held.columns["ct"].index("ct_10")
    tile = table("north", 0)
    assert np.array_equal(held.blocks["ct"], of_columns(tile, COLUMNS["ct"]), equal_nan=True)


def test_tables_that_are_cut_or_sparse_give_the_same_result():
    whole = tables(blanks=0)
    wanted = numbers(trained(whole, tiny(COLUMNS)).model).tobytes()
    tile = whole["north"].tiles[0]
    half = tile.m // 2
    left = Tile.make(tile.ids, tile.features[:half], tile.block[:, :half], tile.labels)
    right = Tile.make(tile.ids, tile.features[half:], sp.csr_array(tile.block[:, half:]))
    cut = {**whole, "north": TableSource("north", [left, right])}
    assert numbers(trained(cut, tiny(COLUMNS)).model).tobytes() == wanted


def test_a_block_may_be_an_image():
    shape = (1, 3, 4)
    block = Block(extractor="cnn", options={"channels": (2,), "features": 4}, shape=shape)
    how = tiny(("ct",), block=block)
    own = {party: source for party, source in tables().items() if "ct" in HELD[party]}
    held = own["north"].holdings(how.blocks)
    cells = of_columns(own["north"].tiles[0], COLUMNS["ct"])
    assert np.array_equal(held.blocks["ct"], cells.reshape(-1, *shape), equal_nan=True)
    assert np.isfinite(numbers(trained(own, how).model)).all()


# ── refusals ──────────────────────────────────────────────────────────────────────────────────


def refused(own, how=None):
    with pytest.raises(WeftError) as error:
        trained(own, tiny(COLUMNS) if how is None else how)
    words = str(error.value)
    assert "\n" not in words
    return words


def without(tile, *names):
    kept = [k for k, feature in enumerate(tile.features.tolist()) if feature not in names]
    return Tile.make(tile.ids, tile.features[kept], tile.block[:, kept], tile.labels)


def renamed(tile, old, new):
    names = [new if feature == old else feature for feature in tile.features.tolist()]
    return Tile.make(tile.ids, names, tile.block, tile.labels)


def test_a_block_with_fewer_columns_at_one_party_is_refused():
    own = tables()
    own["east"] = TableSource("east", [without(own["east"].tiles[0], "ct_3")])
    words = refused(own)
    assert "north" in words
    assert "east" in words
    assert "ct" in words


def test_a_block_with_other_columns_at_one_party_is_refused():
    """As many, so that shapes agree: only the mark of the names tells."""
    own = tables()
    own["east"] = TableSource("east", [renamed(own["east"].tiles[0], "ct_3", "ct_99")])
    words = refused(own)
    assert "different columns in block ct" in words


def test_a_party_without_labels_or_blocks_is_refused():
    own = tables()
    tile = own["east"].tiles[0]
    bare = Tile.make(tile.ids, tile.features, tile.block)
    assert "east has no labels" in refused({**own, "east": TableSource("east", [bare])})
    other = Tile.make(tile.ids, [f"x{k}" for k in range(tile.m)], tile.block, tile.labels)
    assert "east has columns of none" in refused({**own, "east": TableSource("east", [other])})


def test_a_column_in_two_blocks_is_refused():
    both = {"ct": Block(columns=("ct_*",)), "again": Block(columns=("ct_1*",))}
    with pytest.raises(DataError, match="belongs to the blocks ct and again"):
        tables()["east"].holdings(both)


def test_parties_whose_columns_are_not_scaled_take_part_beside_others():
    blocks = {
        "ct": Block(extractor="mlp", scaling="standard"),
        "lab": Block(extractor="mlp", scaling="none"),
    }
    settled = tiny()
    how = type(settled)(blocks=blocks, coordinator_sees="weights", rounds=1, steps=1)
    run = trained(tables(blanks=0.0), how)
    assert set(run.model.scaling) == {"ct"}
    assert run.last.present == len(HELD)


def test_a_sample_is_kept_for_measuring_at_all_who_hold_it_or_at_none():
    ids = [f"patient-{k}" for k in range(60)]
    random = np.random.default_rng(0)
    kept = []
    for order in (np.arange(60), random.permutation(60)):
        tile = Tile.make(
            [ids[k] for k in order], COLUMNS["lab"], random.normal(size=(60, 2)), np.arange(60) % 2
        )
        held = TableSource("north", [tile]).holdings({"lab": Block()})
        shared = held.sharing(0.3, b"0", f"party {order[0]}")
        kept.append(set(shared.test.ids.tolist()))
        assert not kept[-1] & set(shared.ids.tolist())
        assert len(shared) + len(shared.test) == 60
    assert kept[0] == kept[1]
    assert 5 < len(kept[0]) < 35
    assert set(held.sharing(0.3, b"1", "north").test.ids.tolist()) != kept[0]


def test_a_sample_with_two_labels_is_refused_by_name():
    one = Tile.make(["a", "b"], ["lab.iron"], np.ones((2, 1)), ["no", "yes"])
    other = Tile.make(["b", "a"], ["lab.salt"], np.ones((2, 1)), ["no", "no"])
    with pytest.raises(DataError, match="sample b has the labels yes and no in two of its files"):
        TableSource("north", [one, other]).holdings({"lab": Block()})


def test_too_few_samples_for_a_test_share_are_refused():
    own = {**tables(), "east": TableSource("east", [table("east", 1, rows=1)])}
    assert "test_share" in refused(own, tiny(COLUMNS, test_share=0.5))


# ── what travels ──────────────────────────────────────────────────────────────────────────────


def test_no_id_and_no_name_of_a_column_crosses():
    run = trained(tables(), tiny(COLUMNS), record=True)
    sought = [b"patient", *(name.encode() for columns in COLUMNS.values() for name in columns)]
    for entry in run.channel.transcript:
        crossed = pack(entry.message) + pack(entry.reply)
        assert not any(word in crossed for word in sought), entry.phase
    told = b"".join(pack(entry.reply) for entry in run.channel.transcript)
    assert b"ct" in told


def test_what_marks_columns_differs_from_run_to_run():
    """Else the coordinator could tell by them who changed its columns, or guess names."""
    marks = []
    for _ in range(2):
        run = trained(tables(), tiny(COLUMNS, rounds=1), record=True)
        marks.append([e.reply["held"] for e in run.channel.transcript if e.phase == "neural.plan"])
    for one, other in combinations([set(found) for found in marks], 2):
        assert not one & other
