"""Matching: cohorts, slots and seats for random tiles, and what the roster refuses."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse as sp
from hypothesis import given
from hypothesis import strategies as st

from covering import examples
from weft.data import Split, Tile, pool
from weft.errors import DataError
from weft.federation.local_federation import Federation, Preprocessing
from weft.matching.messages import VIEW, ViewRequest
from weft.protocol import fields_of, pack, unpack
from weft.solvers.run_settings import Settings

SETTINGS = Settings(lam=1.0, loss="squared")
IDS, FEATURES = 9, 6
MEAN, DENSE = st.just("mean"), st.just(False)


@st.composite
def federations(draw, overlap=MEAN, sparse=DENSE):
    """Random overlapping tiles, one or two per party, some with labels, some with a few."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    target = rng.normal(size=IDS).round(3)
    tiles = {}
    for number in range(draw(st.integers(1, 4))):
        held = []
        for _ in range(draw(st.integers(1, 2))):
            rows = rng.permutation(IDS)[: rng.integers(1, IDS)]
            columns = rng.permutation(FEATURES)[: rng.integers(1, FEATURES)]
            block = rng.normal(size=(len(rows), len(columns)))
            if draw(sparse):
                block = sp.csr_array(block * (rng.random(block.shape) < 0.6))
            known = rng.random(len(rows)) < rng.choice([0.0, 0.5, 1.0])
            held.append(
                Tile.make(
                    [f"id{i}" for i in rows],
                    [f"x{j}" for j in columns],
                    block,
                    np.where(known, target[rows], np.nan) if known.any() else None,
                )
            )
        tiles[f"p{number}"] = tuple(held)
    how = Preprocessing(
        overlap=draw(overlap),
        intercept=draw(st.booleans()),
        intercept_scaling=2.0,
        confirm_separate_ids=True,
    )
    return tiles, how


def labelled_ids(tiles):
    return {
        sample
        for held in tiles.values()
        for tile in held
        for sample, known in zip(tile.ids, tile.labelled, strict=True)
        if known
    }


def seated(tiles, how):
    """The federation after matching, or None where matching rightly refuses."""
    known = labelled_ids(tiles)
    hopeless = any(not any(known & set(t.ids) for t in held) for held in tiles.values())
    federation = Federation(tiles, how)
    if hopeless:
        with pytest.raises(DataError, match="label"):
            federation.assemble(SETTINGS)
        return None
    _, roster, _, _ = federation.assemble(SETTINGS)
    return federation, roster


def places(axis, number, local, names):
    """(name, slot of the axis) of each row or column of a tile that has a slot."""
    slots = axis.party_slots(number)
    return [(n, int(slots[s])) for n, s in zip(names, local.tolist(), strict=True) if s >= 0]


@given(federations())
def test_all_holders_agree_on_the_slot_of_every_sample_and_feature(case):
    tiles, how = case
    if (found := seated(tiles, how)) is None:
        return
    federation, roster = found
    rows, columns = {}, {}
    for number, (name, party) in enumerate(federation.parties.items()):
        for tile, at_rows, at_columns in zip(
            tiles[name], party.view.tile_rows, party.view.tile_columns, strict=True
        ):
            for sample, slot in places(roster.rows, number, at_rows, tile.ids):
                assert rows.setdefault(sample, slot) == slot
            for feature, slot in places(roster.columns, number, at_columns, tile.features):
                assert columns.setdefault(feature, slot) == slot
            left_out = {t for t, s in zip(tile.ids, at_rows, strict=True) if s < 0}
            assert left_out == set(tile.ids) - labelled_ids(tiles)
    # Slots partition the samples and the features, the constant column being one of the latter.
    assert sorted(rows.values()) == list(range(roster.n_samples))
    assert set(rows) == labelled_ids(tiles)
    constant = {roster.bias_slot} - {-1}
    assert sorted({*columns.values(), *constant}) == list(range(roster.n_features))
    everything = {i for held in tiles.values() for t in held for i in t.ids}
    assert roster.rows.left_out == len(everything) - roster.n_samples


@given(federations())
def test_a_cohort_is_a_maximal_set_of_samples_with_the_same_holders(case):
    """Holders are told apart by tile and by whether they have the label."""
    tiles, how = case
    if (found := seated(tiles, how)) is None:
        return
    federation, roster = found
    signature, parties, marked = {}, {}, {}
    for number, (name, party) in enumerate(federation.parties.items()):
        for t, (tile, at) in enumerate(zip(tiles[name], party.view.tile_rows, strict=True)):
            known = dict(zip(tile.ids, tile.labelled, strict=True))
            for sample, slot in places(roster.rows, number, at, tile.ids):
                signature.setdefault(slot, set()).add((number, t, bool(known[sample])))
                parties.setdefault(slot, set()).add(number)
                if known[sample]:
                    marked.setdefault(slot, set()).add(number)
    seen = {}
    for c in range(len(roster.rows.sizes)):
        slots = range(int(roster.rows.start[c]), int(roster.rows.start[c + 1]))
        assert len(slots) > 0
        assert len({frozenset(signature[s]) for s in slots}) == 1
        assert seen.setdefault(frozenset(signature[slots[0]]), c) == c
        assert set(roster.rows.holders[c].tolist()) == parties[slots[0]]
        assert set(roster.rows.marked[c].tolist()) == marked[slots[0]]
    assert all((len(parties[s]) > 1) == (s < roster.rows.n_shared) for s in parties)


@given(federations())
def test_shared_slots_come_first_at_every_party_and_a_seat_holds_nothing_foreign(case):
    tiles, how = case
    if (found := seated(tiles, how)) is None:
        return
    federation, roster = found
    n_bias = 0
    for number, (name, party) in enumerate(federation.parties.items()):
        view = party.view
        for axis, shared, count in (
            (roster.rows, view.n_shared_rows, view.n_rows),
            (roster.columns, view.n_shared_columns, view.n_columns),
        ):
            slots = axis.party_slots(number)
            assert len(slots) == count
            assert ((slots < axis.n_shared) == (np.arange(count) < shared)).all()
        own_ids = {i for t in tiles[name] for i in t.ids} & labelled_ids(tiles)
        own_features = {f for t in tiles[name] for f in t.features}
        assert view.n_rows == len(own_ids)
        has_bias = view.bias_slot >= 0
        n_bias += int(view.bias.sum())
        assert view.n_columns == len(own_features) + has_bias
        # Everything in the view that is numbered is numbered locally.
        for rows in (*view.tile_rows, view.other_start):
            assert (rows < view.n_rows).all()
        for columns in view.tile_columns:
            assert ((columns >= 0) & (columns < view.n_columns)).all()
        assert len(view.cohort) == len(view.labelled) == len(view.counts) == len(view.sizes)
        assert len(view.column_cohort) == len(view.owned) == view.n_columns
        assert view.cohort.tolist() == roster.rows.cohorts[number].tolist()
        if view.cell_holders is not None:
            assert view.cell_holders.shape == (
                len(view.cohort),
                len(roster.columns.cohorts[number]),
            )
    if how.intercept:
        assert n_bias >= len(roster.rows.sizes)


@given(federations())
def test_every_role_is_given_to_exactly_one_holder(case):
    """Losses of a sample, its constant, and the weight of a feature are counted once."""
    tiles, how = case
    if (found := seated(tiles, how)) is None:
        return
    federation, roster = found
    counted = np.zeros(roster.n_samples, int)
    constant = np.zeros(roster.n_samples, int)
    owned = np.zeros(roster.n_features, int)
    for number, party in enumerate(federation.parties.values()):
        view = party.view
        counted[roster.rows.party_slots(number)] += view.counted_rows
        constant[roster.rows.party_slots(number)] += view.bias[view.row_cohort]
        owned[roster.columns.party_slots(number)] += view.owned
        assert (view.labelled | ~view.counts).all()
    assert (counted == 1).all()
    assert (owned == 1).all()
    assert (constant == int(how.intercept)).all()


@given(federations(overlap=st.sampled_from(["mean", "first", "sum"])))
def test_a_seat_survives_its_message(case):
    tiles, how = case
    if (found := seated(tiles, how)) is None:
        return
    for number in range(len(tiles)):
        view = found[1].view(number)
        sent = fields_of(ViewRequest(view=view))
        again = fields_of(VIEW.read_request(unpack(pack(sent))))
        assert set(again) == set(sent)
        assert all(np.array_equal(value, again[name]) for name, value in sent.items())


# ── a party's cells ──────────────────────────────────────────────────────────────────────────


@examples(150)
@given(
    federations(overlap=st.sampled_from(["mean", "first", "sum"]), sparse=st.booleans()),
    st.integers(1, 3),
    st.integers(0, 1000),
)
def test_products_and_sums_of_all_parties_are_those_of_the_pooled_table(case, classes, seed):
    tiles, how = case
    if (found := seated(tiles, how)) is None:
        return
    federation, roster = found
    rng = np.random.default_rng(seed)
    central = pool(Split(tiles, how.overlap, ""))
    block = central.block if isinstance(central.block, np.ndarray) else central.block.toarray()
    row_of, column_of = {}, {}
    for number, (name, party) in enumerate(federation.parties.items()):
        for tile, rows, columns in zip(
            tiles[name], party.view.tile_rows, party.view.tile_columns, strict=True
        ):
            row_of.update(places(roster.rows, number, rows, tile.ids))
            column_of.update(places(roster.columns, number, columns, tile.features))
    x = np.zeros((roster.n_samples, roster.n_features))
    if how.intercept:
        x[:, roster.bias_slot] = how.intercept_scaling
    for i, sample in enumerate(central.ids):
        if sample in row_of:
            x[row_of[sample], [column_of[f] for f in central.features]] = block[i]

    w = rng.normal(size=(roster.n_features, classes))
    alpha = rng.normal(size=(roster.n_samples, classes))
    z, v, squares = np.zeros_like(alpha), np.zeros_like(w), np.zeros(roster.n_samples)
    for number, party in enumerate(federation.parties.values()):
        table = party.data.table
        rows = roster.rows.party_slots(number)
        columns = roster.columns.party_slots(number)
        z[rows] += (whole := table.products(None, w[columns]))
        some = rng.permutation(len(rows)).astype(np.int32)[: rng.integers(0, len(rows) + 1)]
        assert np.allclose(table.products(some, w[columns]), whole[some], rtol=1e-12, atol=1e-13)
        # A sum over all rows is a sum over some and one over the others.
        rest = np.setdiff1d(np.arange(len(rows)), some).astype(np.int32)
        everything, parts = np.zeros((2, len(columns), classes))
        table.accumulate(None, alpha[rows], everything)
        for slots in (some, rest):
            table.accumulate(slots, alpha[rows][slots], parts)
        assert np.allclose(everything, parts, rtol=1e-12, atol=1e-13)
        v[columns] += everything
        squares[rows] += table.squares[:, 0]
    assert np.allclose(z, x @ w, rtol=1e-12, atol=1e-12)
    assert np.allclose(v, x.T @ alpha, rtol=1e-12, atol=1e-12)
    exact = (x**2).sum(axis=1)
    assert (squares >= exact * (1 - 1e-12)).all()
    if not any(p.view.cell_holders is not None for p in federation.parties.values()):
        assert np.allclose(squares, exact)


def test_equal_duplicates_share_exact_norms_under_mean_and_first():
    block = np.arange(1.0, 7.0).reshape(3, 2)
    tiles = {
        "a": (Tile.make(["i", "j", "k"], ["x", "y"], block, [1.0, 2.0, 3.0]),),
        "b": (Tile.make(["j", "k"], ["x", "y"], block[1:], [2.0, 3.0]),),
    }
    for overlap in ("mean", "first"):
        federation = Federation(tiles, Preprocessing(overlap=overlap))
        _, roster, _, _ = federation.assemble(SETTINGS)
        squares = np.zeros(3)
        for number, party in enumerate(federation.parties.values()):
            squares[roster.rows.party_slots(number)] += party.data.table.squares[:, 0]
        assert sorted(squares) == pytest.approx(sorted((block**2).sum(axis=1)))


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


def tile(ids, features, labels=None):
    return (Tile.make(ids, features, np.ones((len(ids), len(features))), labels),)


def test_holders_that_disagree_on_a_label_are_named_with_the_rows():
    tiles = {
        "north": tile(["a", "b", "c"], ["x"], [0.5, 1.5, 2.5]),
        "south": tile(["z", "c", "b"], ["y"], [9.0, 2.5, 1.0]),
    }
    with pytest.raises(
        DataError, match=r"north and south .* 1 common .*north: row 2 .*south: row 3 of"
    ):
        Federation(tiles).assemble(SETTINGS)


def test_holders_that_agree_on_labels_in_other_number_types_are_no_conflict():
    tiles = {
        "north": tile(["a", "b"], ["x"], np.array([0, 1])),
        "south": tile(["b", "a"], ["y"], np.array([1.0, 0.0])),
    }
    _, roster, _, _ = Federation(tiles).assemble(Settings(lam=1.0))
    assert roster.labels_everywhere


def test_two_tiles_of_one_party_that_disagree_on_a_label_are_refused_too():
    one, other = tile(["a", "b"], ["x"], [1.0, 2.0]), tile(["a"], ["y"], [3.0])
    with pytest.raises(DataError, match="different labels"):
        Federation({"north": one + other}).assemble(SETTINGS)


def test_ids_that_never_meet_are_refused_unless_confirmed():
    tiles = {
        "north": tile(["a", "b"], ["x"], [0.0, 1.0]),
        "south": tile(["a-1", "b-1"], ["y"], [0.0, 1.0]),
    }
    with pytest.raises(DataError, match=r"north .*two schemes.*confirm_separate_ids"):
        Federation(tiles).assemble(SETTINGS)
    how = Preprocessing(confirm_separate_ids=True)
    _, roster, _, _ = Federation(tiles, how).assemble(SETTINGS)
    assert roster.rows.n_shared == 0


def test_separate_ids_with_the_same_columns_are_rows_only_data_and_need_no_confirmation():
    tiles = {
        "north": tile(["a", "b"], ["x", "y"], [0.0, 1.0]),
        "south": tile(["c"], ["y", "x"], [0.0]),
    }
    _, roster, _, _ = Federation(tiles).assemble(SETTINGS)
    assert roster.horizontal
    assert roster.rows.n_shared == 0


@pytest.mark.parametrize("loss", ["squared", "hinge"])
def test_a_federation_without_any_label_is_refused(loss):
    tiles = {"north": tile(["a"], ["x"]), "south": tile(["a"], ["y"])}
    with pytest.raises(DataError, match="label"):
        Federation(tiles).assemble(Settings(lam=1.0, loss=loss))


def test_samples_without_a_label_are_left_out_and_counted():
    tiles = {
        "north": tile(["a", "b", "c", "d"], ["x"], [1.0, np.nan, 2.0, np.nan]),
        "south": tile(["b", "c", "d", "e"], ["y"], [5.0, np.nan, np.nan, np.nan]),
    }
    federation = Federation(tiles)
    _, roster, _, _ = federation.assemble(SETTINGS)
    assert roster.rows.left_out == 2  # d and e
    assert roster.n_samples == 3
    assert (federation.parties["south"].view.tile_rows[0] < 0).tolist() == [0, 0, 1, 1]


def test_a_party_with_nothing_but_unlabelled_samples_is_named():
    tiles = {
        "north": tile(["a", "b"], ["x"], [1.0, 2.0]),
        "south": tile(["c", "d"], ["x"]),
    }
    with pytest.raises(DataError, match="south holds no sample that anyone has a label for"):
        Federation(tiles).assemble(SETTINGS)
