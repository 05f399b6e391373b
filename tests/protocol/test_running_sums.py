"""Fixed point, contributions, totals, scalars and maxima: exact, in any order, or refused."""

from __future__ import annotations

import math
from fractions import Fraction

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from weft.crypto import FixedPoint, adder_of, cipher_of
from weft.data import Tile
from weft.errors import ConfigError, ProtocolError
from weft.federation import Preparation
from weft.matching.axis import build_axis
from weft.sums.contribution import FRACTION_BITS, Contribution, Wire
from weft.sums.extremes import ROUNDS, extend, keys_of, reached, values_of
from weft.sums.scalars import add_scalars, pack_scalars
from weft.sums.totals import Changes, Layout, RunningTotals

PLAIN = cipher_of("plain")
KINDS = sorted(FRACTION_BITS)
bad_values = st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300])


def in_range(contributors, bits, width=2):
    limit = 2.0**62 / contributors / 2.0**bits
    elements = st.floats(-limit * 0.999, limit * 0.999)
    return hnp.arrays(np.float64, st.tuples(st.integers(0, 5), st.just(width)), elements=elements)


@given(st.integers(20, 44), st.integers(1, 5000), st.data())
def test_encoding_is_wrong_by_at_most_half_a_unit(bits, contributors, data):
    form = FixedPoint(bits, contributors, "values")
    values = data.draw(in_range(contributors, bits))
    for v, n in zip(values.flat, form.encode(values).flat, strict=True):
        assert abs(Fraction(float(v)) - Fraction(int(n), 2**bits)) <= Fraction(1, 2 ** (bits + 1))
    small = values / (1 + np.abs(values))
    assert np.abs(form.decode(form.encode(small)) - small).max(initial=0) <= form.unit / 2


@given(st.integers(20, 44), st.integers(1, 5000), st.data())
def test_no_sum_of_all_contributors_leaves_the_range_of_sixty_four_bits(bits, contributors, data):
    form = FixedPoint(bits, contributors, "values")
    near = data.draw(st.floats(0.99, 1.01)) * form.limit / form.scale
    try:
        (n,) = form.encode(np.array([[near]])).flat
    except ProtocolError:
        assert near * form.scale >= form.limit - 1
    else:
        assert abs(int(n)) * contributors <= 2**62


@given(st.integers(1, 100), bad_values, st.integers(0, 5))
def test_a_value_that_cannot_be_summed_is_refused_with_a_sentence(contributors, bad, place):
    form = FixedPoint(40, contributors, "feature sums")
    values = np.zeros((3, 2))
    values.flat[place] = bad
    with pytest.raises(ProtocolError, match=r"feature sums lies outside the range .*scaling"):
        form.encode(values)


@given(st.integers(1, 50))
def test_the_first_value_out_of_range_is_refused_and_the_last_in_range_is_not(contributors):
    form = FixedPoint(40, contributors, "values")
    edge = form.limit / form.scale
    form.encode(np.array([[edge * (1 - 1e-12)]]))
    with pytest.raises(ProtocolError):
        form.encode(np.array([[edge]]))


# ── contributions ────────────────────────────────────────────────────────────────────────────


@st.composite
def histories(draw):
    """What several parties hold at shared slots over time: whole blocks and some slots."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    parties, slots, width = (
        draw(st.integers(1, 4)),
        draw(st.integers(1, 6)),
        draw(st.integers(1, 3)),
    )
    events = []
    for _ in range(draw(st.integers(1, 12))):
        party = int(rng.integers(parties))
        chosen = None
        if rng.random() < 0.5:
            chosen = rng.permutation(slots)[: rng.integers(1, slots + 1)].astype(np.int32)
        count = slots if chosen is None else len(chosen)
        events.append(
            (party, chosen, rng.normal(size=(count, width)) * 10.0 ** rng.integers(-6, 4))
        )
    return parties, slots, width, events, rng.permutation(len(events))


@given(histories(), st.sampled_from(KINDS), st.sampled_from([1.0, 1 / 7]))
def test_increments_add_up_to_the_latest_values_in_any_order_of_arrival(case, kind, unit):
    parties, slots, width, events, order = case
    senders = [Contribution(kind, slots, width, parties, PLAIN, unit) for _ in range(parties)]
    latest = np.zeros((parties, slots, width))
    payloads = []
    for party, chosen, values in events:
        payloads.append((chosen, senders[party].increment(values, chosen)))
        latest[party, slice(None) if chosen is None else chosen] = values
    adder = adder_of("plain")
    total = adder.zeros(slots, width)
    for at in order:
        chosen, payload = payloads[at]
        adder.add(total, np.arange(slots) if chosen is None else chosen.astype(np.int64), payload)
    scale = 2.0 ** FRACTION_BITS[kind] * unit
    assert np.array_equal(total, np.rint(latest * scale).astype(np.int64).sum(axis=0))
    assert np.array_equal(total, sum(s.sent for s in senders))


@given(histories(), st.sampled_from(KINDS))
def test_undo_takes_back_exactly_the_last_increment_and_only_once(case, kind):
    _, slots, width, events, _ = case
    sender = Contribution(kind, slots, width, 3, PLAIN)
    for _, chosen, values in events:
        before = sender.sent.copy()
        payload = sender.increment(values, chosen)
        sender.undo()
        assert np.array_equal(sender.sent, before)
        sender.undo()
        assert np.array_equal(sender.sent, before)
        assert np.array_equal(sender.increment(values, chosen), payload)


@given(histories(), st.sampled_from(KINDS), bad_values, st.booleans())
def test_a_refused_increment_leaves_the_contribution_as_it_was(case, kind, bad, whole):
    _, slots, width, events, _ = case
    sender = Contribution(kind, slots, width, 2, PLAIN)
    for _, chosen, values in events:
        sender.increment(values, chosen)
    before = sender.sent.copy()
    values = np.full((slots, width), 0.125)
    values[-1, -1] = bad
    with pytest.raises(ProtocolError, match="outside the range"):
        sender.increment(values, None if whole else np.arange(slots, dtype=np.int32))
    assert np.array_equal(sender.sent, before)


@given(st.sampled_from(KINDS), hnp.arrays(np.float64, (4, 2), elements=st.floats(-1e3, 1e3)))
def test_values_on_the_grid_travel_unchanged(kind, values):
    wire = Wire(kind, 5, PLAIN)
    on_grid = wire.on_grid(values)
    assert np.array_equal(wire.open(wire.send(on_grid)), on_grid)
    assert np.abs(on_grid - values).max() <= 2.0 ** -FRACTION_BITS[kind]


# ── totals ───────────────────────────────────────────────────────────────────────────────────


def three_parties():
    """a and b share slots 0–1, all three share 2, b and c share 3–4; 5 is c's alone."""
    held = [[0, 1, 2], [0, 1, 2, 3, 4], [2, 3, 4, 5]]
    tokens = [np.array(h, np.uint64) for h in held]
    axis = build_axis(tokens, np.arange(3), None, 3)
    return axis, Layout(axis, ("a", "b", "c"))


def test_each_party_is_given_only_its_own_shared_slots():
    axis, layout = three_parties()
    totals = RunningTotals("z", layout, 1, adder_of("plain"))
    totals.totals[:, 0] = np.arange(axis.n_shared) + 100
    blocks = totals.blocks(("a", "b", "c"))
    assert {p: len(b) for p, b in blocks.items()} == {"a": 3, "b": 5, "c": 3}
    for party, block in blocks.items():
        assert np.array_equal(block[:, 0], layout.of(party) + 100)
        assert np.array_equal(totals.take(party), block)
        some = np.array([2, 0], np.int32)
        assert np.array_equal(totals.take(party, some), block[some])
        assert np.array_equal(totals.pieces({party: some})[party], block[some])


def test_only_slots_that_changed_since_are_handed_out():
    _, layout = three_parties()
    totals = RunningTotals("alpha", layout, 1, adder_of("plain"), tracked=True)
    reply = {"alpha": np.array([[5]]), "alpha.slots": np.array([2], np.int32)}
    totals.add({"a": reply}, 4)
    for party in "abc":
        slots, values = totals.changes({party: 3})[party]
        assert layout.of(party)[slots].tolist() == [int(layout.of("a")[2])]
        assert values.tolist() == [[5]]
        assert len(totals.changes({party: 4})[party][0]) == 0


def test_a_copy_of_totals_stays_while_the_original_moves_on():
    _, layout = three_parties()
    totals = RunningTotals("v", layout, 1, adder_of("plain"), tracked=True)
    kept = totals.copy()
    totals.add({"a": {"v": np.ones((3, 1), np.int64)}}, 1)
    assert totals.totals.sum() == 3
    assert kept.totals.sum() == 0
    assert len(totals.changes({"a": 0})["a"][0]) == 3
    assert len(kept.changes({"a": 0})["a"][0]) == 0


@given(
    st.lists(st.lists(st.integers(0, 39), max_size=6), min_size=1, max_size=12),
    st.lists(st.integers(0, 39), unique=True),
    st.integers(0, 12),
)
def test_log_and_stamps_agree_on_what_changed(history, held, since):
    """A party is told the same slots, whether the log still knows them or only the stamps."""
    mine = np.array(sorted(held), np.int64)
    changes = Changes(40)
    last = np.zeros(40, int)
    for iteration, slots in enumerate(history, 1):
        changes.mark(np.array(slots, np.int64), iteration)
        last[slots] = iteration
    expected = np.flatnonzero(last[mine] > since)
    assert changes.among(mine, since).tolist() == expected.tolist()
    assert changes.copy().among(mine, since).tolist() == expected.tolist()
    restored = Changes(40)
    restored.restore(changes.stamp, len(history))
    assert restored.among(mine, since).tolist() == expected.tolist()


@pytest.mark.parametrize("width", [1, 3])
def test_whole_blocks_and_some_slots_may_come_from_different_parties_in_one_phase(width):
    """A party that draws all its rows sends its block; others say which slots they mean."""
    _, layout = three_parties()
    block = {"z": np.arange(3 * width).reshape(3, width) + 1}
    some = {"z": np.full((2, width), 10), "z.slots": np.array([4, 0], np.int32)}
    for replies in ({"a": block, "b": some}, {"b": some, "a": block}):
        totals = RunningTotals("z", layout, width, adder_of("plain"))
        totals.add(replies, 1)
        expected = np.zeros_like(totals.totals)
        expected[layout.of("a")] += block["z"]
        expected[layout.of("b")[[4, 0]]] += 10
        assert np.array_equal(totals.totals, expected)


@pytest.mark.parametrize("participation", ["everyone", 0.75])
@pytest.mark.parametrize("local", ["safe", "practical", "theory"])
def test_a_party_that_draws_all_its_rows_trains_with_others_that_draw_a_few(
    simulate, quick, table, local, participation
):
    """The first shares one row and always draws it; the others share many."""
    whole = table()
    tiles = {
        name: (Tile.make(whole.ids[r], whole.features[c], whole.block[r, c], whole.labels[r]),)
        for name, r, c in (
            ("one", slice(0, 1), slice(0, 3)),
            ("many", slice(0, 44), slice(2, 5)),
            ("more", slice(1, 44), slice(5, 7)),
        )
    }
    settings = quick(local=local, participation=participation, iic=0.1, iterations=12)
    simulation = simulate(tiles, settings, Preparation(unit_rows=True))
    simulation.go()
    judge = simulation.judge()
    judge.x = judge.x * simulation.parties["one"]._scaler.row_factor
    primal, dual = judge.objectives(simulation.alpha())
    assert np.allclose(simulation.result.certificate.primal, primal, rtol=1e-8)
    assert np.allclose(simulation.result.certificate.dual, dual, rtol=1e-8, atol=1e-10)


@pytest.mark.parametrize(
    "reply",
    [
        {"z": np.zeros((2, 1), np.int64)},
        {"z": np.zeros((4, 1), np.int64)},
        {"z": np.zeros((3, 2), np.int64)},
        {"z": np.zeros(3, np.int64)},
        {"z": b"bytes"},
        {"z": np.zeros((2, 1), np.int64), "z.slots": np.array([0], np.int32)},
        {"z": np.zeros((1, 1), np.int64), "z.slots": np.array([3], np.int32)},
        {"z": np.zeros((1, 1), np.int64), "z.slots": np.array([-1], np.int32)},
        {"z": np.zeros((1, 1), np.int64), "z.slots": "all"},
    ],
    ids=str,
)
@pytest.mark.parametrize("first", [True, False], ids=["first", "after another"])
def test_a_reply_of_the_wrong_shape_or_for_a_foreign_slot_names_the_party(reply, first):
    _, layout = three_parties()
    totals = RunningTotals("z", layout, 1, adder_of("plain"))
    honest = {"z": np.ones((5, 1), np.int64)}
    if "z.slots" in reply:
        honest = {"z": np.ones((1, 1), np.int64), "z.slots": np.array([1], np.int32)}
    replies = {"a": reply, "b": honest} if first else {"b": honest, "a": reply}
    with pytest.raises(ProtocolError, match="party a"):
        totals.add(replies, 3)


def test_two_wrong_lengths_that_add_up_to_the_right_one_are_still_refused():
    _, layout = three_parties()
    totals = RunningTotals("z", layout, 1, adder_of("plain"))
    replies = {"a": {"z": np.ones((4, 1), np.int64)}, "b": {"z": np.ones((4, 1), np.int64)}}
    with pytest.raises(ProtocolError, match="party a"):
        totals.add(replies, 3)
    assert not totals.totals.any()


def test_an_unknown_cipher_is_refused_by_both_halves():
    for half in (cipher_of, adder_of):
        with pytest.raises(ConfigError, match=r"unknown cipher 'rot13'.*plain"):
            half("rot13")


# ── scalars ──────────────────────────────────────────────────────────────────────────────────

scalars = st.floats(-(2.0**45), 2.0**45).filter(lambda x: x == 0 or abs(x) > 2.0**-27)


@given(st.lists(st.tuples(scalars, scalars), min_size=1, max_size=8), st.randoms())
def test_scalar_sums_are_exact_and_do_not_depend_on_the_order(pairs, random):
    replies = {f"p{i}": {"losses": pack_scalars(*pair)} for i, pair in enumerate(pairs)}
    shuffled = list(replies.items())
    random.shuffle(shuffled)
    totals = add_scalars(replies, "losses", 2)
    assert totals == add_scalars(dict(shuffled), "losses", 2)
    for place in range(2):
        exact = sum(Fraction(pair[place]) for pair in pairs)
        assert totals[place] == float(exact)


@given(st.one_of(st.sampled_from([math.nan, math.inf, -math.inf]), st.floats(min_value=2.0**46)))
def test_a_scalar_that_cannot_be_added_exactly_is_refused(value):
    with pytest.raises(ProtocolError, match="too large to be added exactly"):
        pack_scalars(1.0, value)


@pytest.mark.parametrize("pack", [b"", b"123", pack_scalars(1.0), "text", 3.0, None])
def test_a_malformed_scalar_names_the_party_instead_of_counting_as_nothing(pack):
    replies = {"a": {"norms": pack_scalars(1.0, 2.0)}, "b": {"norms": pack}}
    with pytest.raises(ProtocolError, match=r"party b.*norms"):
        add_scalars(replies, "norms", 2)


# ── maxima ───────────────────────────────────────────────────────────────────────────────────

numbers = st.floats(allow_nan=False, allow_infinity=True, width=64)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=6))
def test_digit_by_digit_maxima_are_exact_for_all_floats(rows):
    values = np.array(rows)
    keys = [keys_of(v) for v in values]
    prefix = np.zeros(values.shape[1], np.uint64)
    for round_ in range(ROUNDS):
        prefix = extend(prefix, sum(reached(k, prefix, round_) for k in keys), round_)
    assert np.array_equal(values_of(prefix), values.max(axis=0))


@given(numbers, numbers)
def test_keys_sort_like_their_numbers_and_come_back_unchanged(x, y):
    a, b = keys_of(np.array([x, y]))
    assert values_of(np.array([a, b])).tolist() == [x, y]
    assume(x != y)
    assert (a < b) == (x < y)
