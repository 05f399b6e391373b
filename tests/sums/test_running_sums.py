"""Fixed point, contributions, totals, scalars and maxima: exact, in any order, or refused."""

from __future__ import annotations

import math
from fractions import Fraction
from functools import cache
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from covering import every_pair, every_value, examples
from masked_parties import masks_of
from sum_messages import SumsReply, new_request
from weft.crypto import Adder, FixedPoint
from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.ciphers.block_format import pack_block, read_block, tag_bytes, words_of
from weft.crypto.ciphers.cipher_arguments_and_results import WHAT, Incoming
from weft.crypto.ciphers.party_cipher import Plain
from weft.crypto.fixed_point import LEAST_BITS
from weft.crypto.keys import ephemeral_keys
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.scalar_mask_neighbours import attendance
from weft.data import Tile
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.matching.cohorts import build_axis
from weft.protocol.shared_fields import SumRequest
from weft.solvers.run_settings import Settings
from weft.sums import latest_slot_values_and_proposals
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.gap_certificate import FrozenPair
from weft.sums.latest_slot_values_and_proposals import Changes, LatestValues, Proposals
from weft.sums.maxima_from_digit_sums import ROUNDS, extend, keys_of, reached, values_of
from weft.sums.party_contribution import Contribution, Wire
from weft.sums.scalar_sums import add_scalars, over_attending, pack_scalars
from weft.sums.shared_slots_by_party import Layout
from weft.sums.table_scaling_and_certificate_messages import DigitRequest

KINDS = sorted(WHAT)
CIPHERS = ["plain", "pad"]
bad_values = st.sampled_from([math.nan, math.inf, -math.inf, 1e300, -1e300])


# ── fixed point ──────────────────────────────────────────────────────────────────────────────

#: From the smallest range that is worth a format to the largest that leaves twelve digits.
bounds = st.floats(2.0**-30, 2.0 ** (48 - LEAST_BITS))


@st.composite
def values_in_range(draw):
    bound = draw(bounds)
    elements = st.floats(-bound, bound)
    shape = st.tuples(st.integers(0, 5), st.just(2))
    return bound, draw(hnp.arrays(np.float64, shape, elements=elements))


@given(values_in_range())
def test_encoding_is_wrong_by_at_most_half_a_unit(case):
    bound, values = case
    form = FixedPoint(bound, "values")
    for v, n in zip(values.flat, form.encode(values).flat, strict=True):
        difference = Fraction(float(v)) - Fraction(int(n), 2**form.bits)
        assert abs(difference) <= Fraction(1, 2 ** (form.bits + 1))
    assert np.abs(form.decode(form.encode(values)) - values).max(initial=0) <= form.unit / 2


@given(bounds)
def test_a_format_has_as_many_digits_as_its_range_leaves(bound):
    """Values within the bound fit 2^48, and with another digit they would not (or have 52)."""
    form = FixedPoint(bound, "values")
    assert LEAST_BITS <= form.bits <= 52
    assert bound * form.scale <= 2**48 * (1 + 1e-9)
    assert form.bits == 52 or bound * form.scale * 2 > 2**48
    assert abs(int(form.encode(np.array([[bound]]))[0, 0])) <= 2**48 * (1 + 1e-9) + 1


@examples(30)
@given(bounds, st.integers(1, 100_000), st.integers(0, 2**32 - 1), st.booleans())
def test_no_total_of_a_hundred_thousand_parties_leaves_its_range(bound, parties, seed, extreme):
    """Whatever the parties hold, as long as the total is within the bound, as theirs are."""
    form = FixedPoint(bound, "values")
    rng = np.random.default_rng(seed)
    if extreme:
        # Everyone rounds up by nearly half a unit, at the edge of the range.
        steps = math.floor(bound * form.scale / parties - 0.5)
        values = np.full((parties, 1), (steps + 0.5000001) * form.unit)
        assume(steps > 0)
    else:
        values = rng.uniform(-bound, bound, (parties, 1))
        values -= (values.sum() - rng.uniform(-bound, bound)) / parties
        values = np.clip(values, -bound, bound)
    assume(abs(values.sum()) <= bound)
    total = int(form.encode(values).sum())
    assert abs(Fraction(total) - Fraction(float(values.sum())) * 2**form.bits) <= parties / 2 + 2**8
    assert abs(total) < 2**49
    assert form.decode(np.array([[total]]))[0, 0] == pytest.approx(
        float(values.sum()), abs=parties * form.unit, rel=1e-9
    )


@given(bounds, bad_values, st.integers(0, 5))
def test_a_value_that_cannot_be_summed_is_refused_with_a_sentence(bound, bad, place):
    form = FixedPoint(bound, "feature sums")
    values = np.zeros((3, 2))
    values.flat[place] = bad
    with pytest.raises(ProtocolError, match=r"feature sums lies outside the range .*scaling"):
        form.encode(values)


@given(st.floats(1.0, 1000.0), st.floats(2.0, 1e6))
def test_a_refusal_does_not_tell_the_value(bound, factor):
    """It goes to the coordinator, who shall see no value: two of them give the same sentence."""
    sentences = []
    for value in (bound * factor, -bound * factor * 1.37, math.nan):
        with pytest.raises(ProtocolError) as caught:
            FixedPoint(bound, "inner products").encode(np.array([[value]]))
        sentences.append(str(caught.value))
        assert "\n" not in sentences[-1]
    assert len(set(sentences)) == 1


@given(bounds)
def test_the_first_value_out_of_range_is_refused_and_the_last_in_range_is_not(bound):
    form = FixedPoint(bound, "values")
    for sign in (1, -1):
        assert form.encode(np.array([[sign * bound]])).size == 1
        edge = math.floor(form.limit)
        form.encode(np.array([[sign * edge * form.unit]]))
        with pytest.raises(ProtocolError):
            form.encode(np.array([[sign * (edge + 1) * form.unit]]))
    assert form.limit <= bound * form.scale * (1 + 1e-9) + 0.5


@pytest.mark.parametrize(
    "bound", [math.nan, math.inf, 0.0, -1.0, 2.0 ** (48 - LEAST_BITS) * 1.001, 1e300]
)
def test_a_range_that_leaves_too_few_digits_is_refused_before_anything_travels(bound):
    with pytest.raises(ProtocolError, match="scale the features"):
        FixedPoint(bound, "inner products").encode(np.zeros((1, 1)))


# ── contributions ────────────────────────────────────────────────────────────────────────────

BOUND = 2.0**20


def plain(round_=1):
    """The first party's half of no cipher, in the midst of a request."""
    cipher = Plain()
    cipher.begin(SumRequest(round=round_))
    return cipher


def integers(packed):
    """The numbers in a block under ``plain``."""
    return words_of(read_block(packed, "the block"), "the block").view(np.int64)


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
    cipher = plain()
    senders = [Contribution(kind, slots, width, BOUND, cipher, unit) for _ in range(parties)]
    latest = np.zeros((parties, slots, width))
    sent = []
    for party, chosen, values in events:
        where = slice(None) if chosen is None else chosen
        sent.append((where, integers(senders[party].increment(values, None, chosen))))
        latest[party, where] = values
    total = np.zeros((slots, width), np.int64)
    for at in order:
        where, increment = sent[at]
        total[where] += increment
    scale = FixedPoint(BOUND, kind).scale * unit
    assert np.array_equal(total, np.rint(latest * scale).astype(np.int64).sum(axis=0))
    assert np.array_equal(total, sum(s.sent for s in senders))


@given(histories(), st.sampled_from(KINDS))
def test_undo_takes_back_exactly_the_last_increment_and_only_once(case, kind):
    _, slots, width, events, _ = case
    sender = Contribution(kind, slots, width, BOUND, plain())
    for _, chosen, values in events:
        before = sender.sent.copy()
        payload = sender.increment(values, None, chosen)
        sender.undo()
        assert np.array_equal(sender.sent, before)
        sender.undo()
        assert np.array_equal(sender.sent, before)
        assert sender.increment(values, None, chosen) == payload


@given(histories(), st.sampled_from(KINDS), bad_values, st.booleans())
def test_a_refused_increment_leaves_the_contribution_as_it_was(case, kind, bad, whole):
    _, slots, width, events, _ = case
    sender = Contribution(kind, slots, width, BOUND, plain())
    for _, chosen, values in events:
        sender.increment(values, None, chosen)
    before = sender.sent.copy()
    values = np.full((slots, width), 0.125)
    values[-1, -1] = bad
    with pytest.raises(ProtocolError, match="outside the range"):
        sender.increment(values, None, None if whole else np.arange(slots, dtype=np.int32))
    assert np.array_equal(sender.sent, before)


@given(st.sampled_from(KINDS), hnp.arrays(np.float64, (4, 2), elements=st.floats(-1e3, 1e3)))
def test_values_on_the_grid_travel_unchanged(kind, values):
    wire = Wire(kind, 4, 1e3, plain())
    on_grid = wire.on_grid(values)
    assert np.array_equal(wire.open(wire.send(on_grid, None), 2), on_grid)
    assert np.abs(on_grid - values).max() <= FixedPoint(1e3, kind).unit


# ── totals ───────────────────────────────────────────────────────────────────────────────────

#: a and b share slots 0–1, all three share 2, b and c share 3–4; 5 is c's alone.
HELD = {"a": [0, 1, 2], "b": [0, 1, 2, 3, 4], "c": [2, 3, 4, 5]}


class Trio:
    """Three parties with keys, who hold samples and features in the same pattern."""

    def __init__(self, cipher):
        tiles = {
            name: (
                Tile.make(
                    [f"i{n}" for n in held],
                    [f"x{n}" for n in held],
                    np.ones((len(held), len(held))),
                    np.array(held, float),
                ),
            )
            for name, held in HELD.items()
        }
        federation = Federation(tiles)
        _, roster, self.adder, _ = federation.assemble(
            Settings(lam=1.0, loss="squared", cipher=cipher)
        )
        self.ciphers = {name: party._cipher for name, party in federation.parties.items()}
        self._layouts = [Layout(axis, roster.parties) for axis in (roster.rows, roster.columns)]

    def layout(self, kind):
        return self._layouts[kind == "v"]

    def totals(self, kind="z", width=1, *, windows=False):
        return IncrementTotals(kind, self.layout(kind), width, self.adder, windows=windows)

    def wires(self, kind, bound=BOUND):
        layout = self.layout(kind)
        return {p: Wire(kind, len(layout.own[p]), bound, c) for p, c in self.ciphers.items()}

    def contributions(self, kind="z", width=1, *, windows=False):
        layout = self.layout(kind)
        return {
            p: Contribution(kind, len(layout.own[p]), width, BOUND, c, windows=windows)
            for p, c in self.ciphers.items()
        }

    def ask(self, parties=tuple(HELD)):
        """Messages of a new request, which all these parties get."""
        messages = new_request(self.adder, parties)
        for party, message in messages.items():
            self.ciphers[party].begin(message)
        return messages

    def read(self, totals):
        """The totals as every holder reads them: whole numbers, by local slot."""
        self.ask()
        return {
            party: self.ciphers[party].reveal(
                Incoming(totals.kind, None, len(totals.layout.own[party]), totals.width, block)
            )
            for party, block in totals.blocks(HELD).items()
        }


@cache
def trio_of(cipher):
    """Made once: requests are numbered on, and every test has totals of its own."""
    return Trio(cipher)


def three_parties():
    tokens = [np.array(held, np.uint64) for held in HELD.values()]
    axis = build_axis(tokens, np.arange(3), None, 3)
    return axis, Layout(axis, tuple(HELD))


def test_each_party_is_given_only_its_own_shared_slots():
    axis, layout = three_parties()
    totals = IncrementTotals("z", layout, 1, Adder("plain"))
    totals._adder.advance()
    totals.store.words[:, 0] = np.arange(axis.n_shared) + 100
    blocks = totals.blocks(HELD)
    assert {p: read_block(b, p).slots for p, b in blocks.items()} == {"a": 3, "b": 5, "c": 3}
    for party, block in blocks.items():
        mine = integers(block)
        assert np.array_equal(mine[:, 0], layout.own[party] + 100)
        assert totals.take(party) == block
        some = np.array([2, 0], np.int32)
        assert np.array_equal(integers(totals.take(party, some)), mine[some])
        assert np.array_equal(integers(totals.pieces({party: some})[party]), mine[some])


@st.composite
def stories(draw):
    """Requests: who is asked, who stays silent and how, and for which slots it is."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    requests = []
    for _ in range(draw(st.integers(1, 9))):
        asked = [p for p in HELD if rng.random() < 0.7] or ["b"]
        silent = {p: rng.choice(["dead", "lost"]) for p in asked if rng.random() < 0.3}
        requests.append((asked, silent, np.flatnonzero(rng.random(5) < 0.6)))
    return requests, rng


@examples(60)
@given(stories(), st.integers(1, 3))
@pytest.mark.parametrize(
    ("kind", "windows"), [("v", False), ("z", False), ("z", True)], ids=["v", "z", "z in windows"]
)
@pytest.mark.parametrize("cipher", CIPHERS)
def test_linked_sums_hold_everyones_last_contribution_whoever_falls_silent(
    cipher, kind, windows, story, width
):
    """Some never hear of a request, of others the answer is lost: the rest still add up."""
    trio, (requests, rng) = trio_of(cipher), story
    totals = trio.totals(kind, width, windows=windows)
    parties = trio.contributions(kind, width, windows=windows)
    layout = totals.layout
    latest = {p: np.zeros((len(layout.own[p]), width)) for p in HELD}

    def request(asked, silent, chosen):
        messages = new_request(trio.adder, asked)
        totals.invite(messages)
        replies = {}
        for party, message in messages.items():
            if silent.get(party) == "dead":
                continue
            trio.ciphers[party].begin(message)
            slots = None
            if windows:
                slots = np.flatnonzero(np.isin(layout.own[party], chosen)).astype(np.int32)
            where = slice(None) if slots is None else slots
            values = rng.normal(size=latest[party][where].shape)
            pads = getattr(message, f"{kind}_pads")
            block = parties[party].increment(values, pads, slots)
            reply = SumsReply(**{kind: block, f"{kind}_slots": slots})
            if silent.get(party) == "lost":
                parties[party].undo()
                continue
            parties[party].accept()
            latest[party][where] = values
            replies[party] = reply
        shuffled = rng.permutation(list(replies)).tolist()
        totals.add({p: replies[p] for p in shuffled})

    def check():
        expected = np.zeros((layout.n_shared, width), np.int64)
        scale = FixedPoint(BOUND, kind).scale
        for party, values in latest.items():
            expected[layout.own[party]] += np.rint(values * scale).astype(np.int64)
            assert np.array_equal(parties[party].sent, np.rint(values * scale))
        for party, opened in trio.read(totals).items():
            assert np.array_equal(opened, expected[layout.own[party]]), party

    for asked, silent, chosen in requests:
        request(asked, silent, chosen)
        check()
    # Silence leaves knots of several pads; after a request that everybody answers there are none.
    request(tuple(HELD), {}, np.arange(5))
    check()
    for party, block in totals.blocks(HELD).items():
        carried = read_block(block, party).carried
        assert carried.counts is None
        assert carried.pad_ids.all()
        assert bool(len(carried.pad_ids)) == (cipher == "pad")


def test_only_who_leads_a_cohort_is_told_of_pads_and_only_of_those_that_changed():
    trio = trio_of("pad")
    totals, parties = trio.totals(windows=True), trio.contributions(windows=True)

    def request(asked, chosen):
        """The number of marks that each party is told."""
        messages = new_request(trio.adder, asked)
        totals.invite(messages)
        replies = {}
        for party, message in messages.items():
            trio.ciphers[party].begin(message)
            slots = np.flatnonzero(np.isin(totals.layout.own[party], chosen)).astype(np.int32)
            block = parties[party].increment(np.ones((len(slots), 1)), message.z_pads, slots)
            replies[party] = SumsReply(z=block, z_slots=slots)
        totals.add(replies)
        pads = {p: m.z_pads for p, m in messages.items() if m.z_pads is not None}
        return {p: int(told.news.lengths.sum()) for p, told in pads.items() if told.news}

    order = totals.layout
    shared = {name: set(order.own[name].tolist()) for name in HELD}
    three = shared["a"] & shared["b"] & shared["c"]
    two, last = (shared["a"] & shared["b"]) - three, (shared["b"] & shared["c"]) - three
    every = sorted(two | three | last)
    assert request("abc", every) == {}  # nothing lies under the totals yet
    assert request("bc", sorted(three)) == {"b": 5}  # a led at three of the slots so far
    assert request("bc", sorted(last)) == {"b": 1}  # what changed since
    assert request("abc", every) == {"a": 3, "b": 2}
    assert request("c", sorted(last)) == {"c": 3}
    ones = {name: len(shared[name]) for name in HELD}
    for party, opened in trio.read(totals).items():
        assert len(opened) == ones[party]


@examples(40)
@given(st.integers(0, 2**32 - 1), st.integers(1, 3))
@pytest.mark.parametrize("cipher", CIPHERS)
def test_proposals_are_summed_where_somebody_made_one_and_reach_holders_only(cipher, seed, width):
    trio, rng = trio_of(cipher), np.random.default_rng(seed)
    layout, wires = trio.layout("delta"), trio.wires("delta")
    proposals = Proposals("delta", layout, width, trio.adder)
    messages, round_ = trio.ask(), trio.adder.round
    proposals.invite(messages)
    expected = np.zeros((layout.n_shared, width))
    named, replies = np.zeros(layout.n_shared, bool), {}
    for party in rng.permutation(list(HELD))[: rng.integers(1, 4)].tolist():
        mine = layout.own[party]
        slots = np.flatnonzero(rng.random(len(mine)) < 0.5).astype(np.int32)
        if not len(slots):
            continue
        values = wires[party].on_grid(rng.normal(size=(len(slots), width)))
        block = wires[party].propose(values, slots, messages[party].delta_pads)
        replies[party] = SumsReply(delta=block, delta_slots=slots)
        expected[mine[slots]] += values
        named[mine[slots]] = True
    proposals.add(replies, 1, round_)
    trio.ask()
    told = proposals.proposed(HELD)
    # As where parties have many more slots than are proposed.
    with patch.object(latest_slot_values_and_proposals, "_FEWER", 0):
        assert proposals.proposed(HELD).keys() == told.keys()
        for party, (slots, block) in proposals.proposed(HELD).items():
            assert slots.dtype == told[party][0].dtype
            assert slots.tolist() == told[party][0].tolist()
            assert block == told[party][1]
    assert set(told) == {p for p in HELD if named[layout.own[p]].any()}
    for party, (slots, block) in told.items():
        mine = layout.own[party]
        assert mine[slots].tolist() == [s for s in mine.tolist() if named[s]]
        assert np.array_equal(wires[party].open(block, width, slots), expected[mine[slots]])


class Posting:
    """A board of α and the parties that write on it."""

    def __init__(self, cipher, width=1):
        self.trio = trio_of(cipher)
        self.layout, self.wires = self.trio.layout("alpha"), self.trio.wires("alpha")
        self.board = LatestValues("alpha", self.layout, width, self.trio.adder)

    def post(self, iteration, **posts):
        """Let parties post: local slots, and a value for each."""
        messages = self.trio.ask(tuple(posts))
        everything = {p: np.ones(9, bool) for p in posts}
        self.board.invite(messages, everything)
        replies = {}
        for party, (slots, values) in posts.items():
            at, new = np.array(slots, np.int32), np.array(values, float).reshape(len(slots), -1)
            pads = messages[party].alpha_pads
            block = self.wires[party].post(new, np.zeros_like(new), at, pads)
            replies[party] = SumsReply(alpha=block, alpha_slots=at)
        self.board.post(replies, iteration, self.trio.adder.round)

    def changes(self, since, board=None):
        """Per party, {slot of the axis: value} of what changed after an iteration."""
        self.trio.ask()
        board = board or self.board
        found = {}
        for party, (slots, block) in board.changes(dict.fromkeys(HELD, since)).items():
            values = self.wires[party].open(block, board.width, slots)
            mine = self.layout.own[party][slots]
            found[party] = dict(zip(mine.tolist(), values.tolist(), strict=True))
        return found


@pytest.mark.parametrize("cipher", CIPHERS)
def test_only_slots_that_changed_since_are_handed_out(cipher):
    posting = Posting(cipher)
    slot = int(posting.layout.own["a"][2])
    holders = [p for p in HELD if slot in posting.layout.own[p]]
    posting.post(4, a=([2], [5.0]))
    assert posting.changes(3) == {p: {slot: [5.0]} for p in holders}
    assert posting.changes(4) == {}


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_post_takes_the_place_of_older_ones_whoever_made_them(cipher):
    posting = Posting(cipher, 2)
    both = np.intersect1d(posting.layout.own["a"], posting.layout.own["b"]).tolist()
    of_a = [posting.layout.own["a"].tolist().index(s) for s in both]
    of_b = [posting.layout.own["b"].tolist().index(s) for s in both]
    posting.post(1, a=(of_a, [[s, 1.0] for s in both]))
    posting.post(2, b=(of_b[1:], [[s, 2.0] for s in both[1:]]))
    posting.post(3, a=(of_a[2:], [[s, 3.0] for s in both[2:]]))
    newest = {both[0]: [both[0], 1.0], both[1]: [both[1], 2.0], both[2]: [both[2], 3.0]}
    for party, found in posting.changes(0).items():
        mine = posting.layout.own[party].tolist()
        assert found == {s: v for s, v in newest.items() if s in mine}
    assert posting.changes(2)["b"] == {both[2]: [both[2], 3.0]}


@pytest.mark.parametrize("cipher", CIPHERS)
def test_a_copy_of_a_board_stays_while_the_original_moves_on(cipher):
    posting = Posting(cipher)
    posting.post(1, a=([0, 1, 2], [1.0, 2.0, 3.0]))
    kept = posting.board.copy()
    foreign = int(np.flatnonzero(~np.isin(posting.layout.own["c"], posting.layout.own["a"]))[0])
    posting.post(2, a=([0, 1, 2], [4.0, 5.0, 6.0]), c=([foreign], [7.0]))
    assert sorted(posting.changes(0)["a"].values()) == [[4.0], [5.0], [6.0]]
    assert sorted(posting.changes(0, kept)["a"].values()) == [[1.0], [2.0], [3.0]]
    assert posting.changes(1, kept) == {}
    assert set(posting.changes(1)) == set(HELD)


def test_a_frozen_pair_is_lost_once_a_party_that_never_froze_its_part_has_moved_on():
    posting = Posting("plain")
    nothing = dict.fromkeys(HELD, np.zeros(0, np.int32))
    columns, adder = posting.trio.layout("v"), posting.trio.adder
    pair = FrozenPair(
        4, nothing, posting.board, columns, adder, Settings(lam=1.0), lambda asked, _: asked
    )
    here, on = dict.fromkeys(HELD, 4), {**dict.fromkeys(HELD, 4), "b": 5}
    assert not pair.outrun(here)
    assert pair.outrun(on)
    # Who has frozen its part may go on.
    pair.waiting.remove("b")
    assert not pair.outrun(on)


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
@pytest.mark.parametrize("cipher", CIPHERS)
def test_whole_blocks_and_some_slots_may_come_from_different_parties_in_one_phase(cipher, width):
    """A party that draws all its rows sends its block; others say which slots they mean."""
    trio = trio_of(cipher)
    for first in "ab":
        totals = trio.totals("z", width, windows=True)
        parties = trio.contributions("z", width, windows=True)
        messages = trio.ask(("a", "b"))
        totals.invite(messages)
        layout = totals.layout
        of_b = (
            np.flatnonzero(np.isin(layout.own["b"], layout.own["a"])).astype(np.int32)[::-1].copy()
        )
        block = np.arange(3.0 * width).reshape(3, width) + 1
        some = np.full((len(of_b), width), 10.0)
        replies = {
            "a": SumsReply(z=parties["a"].increment(block, messages["a"].z_pads)),
            "b": SumsReply(
                z=parties["b"].increment(some, messages["b"].z_pads, of_b), z_slots=of_b
            ),
        }
        totals.add(replies if first == "a" else dict(reversed(replies.items())), 1)
        expected = np.zeros((layout.n_shared, width))
        expected[layout.own["a"]] += block
        expected[layout.own["b"][of_b]] += 10
        scale = FixedPoint(BOUND, "z").scale
        for party, opened in trio.read(totals).items():
            assert np.array_equal(opened, expected[layout.own[party]] * scale)


@every_value(local=["safe", "practical", "theory"], participation=["everyone", 0.75])
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
    assert_certified_as_centrally(simulate(tiles, settings, Preprocessing(unit_rows=True)))


@every_pair(local=["safe", "practical", "theory"], cipher=CIPHERS, participation=["everyone", 0.75])
def test_a_party_that_shares_features_but_no_sample_is_heard(
    simulate, quick, table, local, cipher, participation
):
    """Nobody proposes anything for its rows, but its feature sums change all the same."""
    whole = table()
    tiles = {
        name: (Tile.make(whole.ids[r], whole.features[c], whole.block[r, c], whole.labels[r]),)
        for name, r, c in (
            ("left", slice(0, 25), slice(0, 4)),
            ("right", slice(0, 25), slice(3, 7)),
            ("alone", slice(25, 44), slice(0, 7)),
        )
    }
    settings = quick(local=local, participation=participation, cipher=cipher, iterations=12)
    how = Preprocessing(unit_rows=True, confirm_separate_ids=True)
    assert_certified_as_centrally(simulate(tiles, settings, how))


def assert_certified_as_centrally(simulation):
    simulation.go()
    judge = simulation.judge()
    judge.x = judge.x * next(iter(simulation.parties.values())).data._scaler.row_factor
    primal, dual = judge.objectives(simulation.alpha())
    assert simulation.result.certificate.iteration == simulation.run.iteration
    assert np.allclose(simulation.result.certificate.primal, primal, rtol=1e-8)
    assert np.allclose(simulation.result.certificate.dual, dual, rtol=1e-8, atol=1e-10)


# ── malformed replies ────────────────────────────────────────────────────────────────────────


def block_of(trio, party="a", count=3, width=1, **changes):
    """A block for the current request, well made but for ``changes``."""
    adder = trio.adder
    made = {"cipher": adder.name, "kind": "z", "key": adder.key, "pad_id": adder.pad_id(party)}
    made |= {"count": count, "width": width, "body": bytes(8 * count * width)} | changes
    made["body"] += bytes(tag_bytes(made["cipher"], count))
    return pack_block(**made)


def slots(*numbers):
    return {"z_slots": np.array(numbers, np.int32)}


MALFORMED = {
    "too few values": lambda trio: {"z": block_of(trio, count=2)},
    "too many values": lambda trio: {"z": block_of(trio, count=4)},
    "too wide": lambda trio: {"z": block_of(trio, width=2)},
    "fewer bytes than it says": lambda trio: {"z": block_of(trio, body=bytes(16))},
    "a byte too many": lambda trio: {"z": block_of(trio) + b"\0"},
    "a byte too few": lambda trio: {"z": block_of(trio)[:-1]},
    "noise": lambda trio: {"z": b"bytes"},
    "long noise": lambda trio: {"z": bytes(range(100))},
    "nothing": lambda trio: {},
    "another kind": lambda trio: {"z": block_of(trio, kind="v")},
    "another cipher": lambda trio: {"z": block_of(trio, cipher="paillier")},
    "another key": lambda trio: {"z": block_of(trio, key=(trio.adder.key + 1) % 2**32)},
    "an older pad id": lambda trio: {
        "z": block_of(trio, pad_id=trio.adder.pad_id("a") - (1 << 20))
    },
    "another's pad id": lambda trio: {"z": block_of(trio, pad_id=trio.adder.pad_id("b"))},
    "another epoch's pad id": lambda trio: {
        "z": block_of(trio, pad_id=trio.adder.pad_id("a") + (1 << 52))
    },
    "two values for one slot": lambda trio: {"z": block_of(trio, count=2), **slots(0)},
    "a slot beyond its own": lambda trio: {"z": block_of(trio, count=1), **slots(3)},
    "a slot below zero": lambda trio: {"z": block_of(trio, count=1), **slots(-1)},
}


@pytest.mark.parametrize("first", [True, False], ids=["first", "after another"])
@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("fault", MALFORMED)
def test_a_reply_of_the_wrong_shape_or_for_a_foreign_slot_names_the_party(fault, cipher, first):
    trio = trio_of(cipher)
    totals = trio.totals(windows=True)
    totals.invite(trio.ask(("a", "b")))
    reply = SumsReply(**MALFORMED[fault](trio))
    honest = SumsReply(z=block_of(trio, "b", 5, body=np.ones(5, np.int64).tobytes()))
    if reply.z_slots is not None:
        honest = SumsReply(
            z=block_of(trio, "b", 1, body=np.ones(1, np.int64).tobytes()), **slots(1)
        )
    replies = {"a": reply, "b": honest} if first else {"b": honest, "a": reply}
    with pytest.raises(ProtocolError, match="party a") as caught:
        totals.add(replies, 3)
    assert "\n" not in str(caught.value)
    assert not any(array.any() for array in totals.store.state().values())


def test_two_wrong_lengths_that_add_up_to_the_right_one_are_still_refused():
    trio = trio_of("plain")
    totals = trio.totals()
    totals.invite(trio.ask(("a", "b")))
    replies = {p: SumsReply(z=block_of(trio, p, 4, body=bytes(range(1, 33)))) for p in "ab"}
    with pytest.raises(ProtocolError, match="party a"):
        totals.add(replies, 3)
    assert not any(array.any() for array in totals.store.state().values())


def test_an_unknown_cipher_is_refused_by_both_halves():
    keys = ephemeral_keys(["a"])["a"]
    for half in (lambda name: Keyring(keys, name), Adder):
        with pytest.raises(ConfigError, match=r"unknown cipher 'rot13'.*plain"):
            half("rot13")


# ── scalars ──────────────────────────────────────────────────────────────────────────────────

scalars = st.floats(-(2.0**45), 2.0**45).filter(lambda x: x == 0 or abs(x) > 2.0**-27)


class Crowd:
    """Many parties of which only the masks matter."""

    def __init__(self, cipher, count=12):
        self.names = [f"p{i}" for i in range(count)]
        self.ciphers = {}
        self.adder = Adder(cipher)
        self.adder.meet(self.names, 0, b"")
        for name, masks in zip(self.names, masks_of(count), strict=True):
            half = self.ciphers[name] = Plain() if cipher == "plain" else Pad()
            if cipher != "plain":
                half.masks = masks

    def ask(self, names):
        messages = new_request(self.adder, names)
        self.adder.attend(messages)
        return messages

    def answer(self, messages, values):
        """What each party of a request sends for its values."""
        return {
            name: SumsReply(losses=told_by(self.ciphers[name], messages[name], *pair))
            for name, pair in zip(messages, values, strict=True)
        }


def told_by(cipher, message, *values, field="losses"):
    """What a party answers to a request."""
    cipher.begin(message, "a phase")
    return pack_scalars(cipher, field, *values, over=over_attending(cipher, message.attending))


@cache
def crowd_of(cipher):
    return Crowd(cipher)


@given(st.lists(st.tuples(scalars, scalars), min_size=1, max_size=12), st.randoms())
@pytest.mark.parametrize("cipher", CIPHERS)
def test_scalar_sums_are_exact_and_do_not_depend_on_the_order(cipher, pairs, random):
    crowd = crowd_of(cipher)
    asked = sorted(random.sample(crowd.names, len(pairs)))
    replies = crowd.answer(crowd.ask(asked), pairs)
    shuffled = list(replies.items())
    random.shuffle(shuffled)
    exact = [sum(Fraction(pair[place]) for pair in pairs) for place in range(2)]
    assume(all(abs(total) < 2**47 for total in exact))
    totals = add_scalars(replies, "losses", 2, asked)
    assert totals == add_scalars(dict(shuffled), "losses", 2, asked)
    assert totals == [float(total) for total in exact]


@pytest.mark.parametrize("cipher", CIPHERS)
@pytest.mark.parametrize("value", [2.0**45, -(2.0**45), 0.999 * 2.0**46])
def test_scalars_that_are_each_small_enough_have_a_total_that_is_right(cipher, value):
    crowd = crowd_of(cipher)
    replies = crowd.answer(crowd.ask(crowd.names), [(value, -value)] * len(crowd.names))
    totals = add_scalars(replies, "losses", 2, crowd.names)
    assert totals == [len(crowd.names) * value, -len(crowd.names) * value]


@pytest.mark.parametrize("count", [2, 3, 5, 12])
def test_masked_scalars_say_nothing_until_all_of_them_are_added(count):
    crowd = crowd_of("pad")
    asked = crowd.names[:count]
    seen = set()
    for _ in range(3):
        replies = crowd.answer(crowd.ask(asked), [(1.0, 0.0)] * count)
        seen |= {reply.losses[at : at + 18] for reply in replies.values() for at in (0, 18)}
        assert add_scalars(replies, "losses", 2, asked) == [count, 0.0]
        for name in asked:
            others = {p: r for p, r in replies.items() if p != name}
            assert add_scalars(others, "losses", 2, asked) is None
            assert abs(add_scalars(others, "losses", 2, others)[0]) > 2.0**20
    # Equal values, and even zeros, never look alike.
    assert len(seen) == 3 * count * 2


def test_masks_do_not_cancel_where_parties_were_asked_different_things():
    """Another phase, field or question at one of them, or a sum over others."""
    crowd = crowd_of("pad")
    everyone, odd = crowd.names, crowd.ciphers["p3"]

    def told(message):
        return pack_scalars(odd, "losses", 1.0, 0.0)

    def in_another_phase(message):
        odd._phase = "another phase"
        return told(message)

    def at_another_point(message):
        odd._message = DigitRequest(round=message.round, digit=1, prefix=np.ones(1, np.uint64))
        odd._digest = b""
        return told(message)

    def in_another_field(message):
        return pack_scalars(odd, "gains", 1.0, 0.0)

    def over_fewer(message):
        some = over_attending(odd, attendance(12, list(range(11))))
        return pack_scalars(odd, "losses", 1.0, 0.0, over=some)

    def total(tell):
        messages = crowd.ask(everyone)
        replies = crowd.answer(messages, [(1.0, 0.0)] * len(everyone))
        odd._answers.clear()
        replies["p3"].losses = tell(messages["p3"])
        return add_scalars(replies, "losses", 2, everyone)[0]

    assert total(told) == 12.0
    for tell in (in_another_phase, at_another_point, in_another_field, over_fewer):
        assert abs(total(tell)) > 2.0**20
    total(told)
    with pytest.raises(ProtocolError, match="another 'losses' in the same turn"):
        pack_scalars(odd, "losses", 2.0, 0.0)


@given(st.one_of(st.sampled_from([math.nan, math.inf, -math.inf]), st.floats(min_value=2.0**46)))
def test_a_scalar_that_cannot_be_added_exactly_is_refused(value):
    with pytest.raises(ProtocolError, match="too large to be added exactly"):
        pack_scalars(plain(), "losses", 1.0, value)


@pytest.mark.parametrize("pack", [b"", b"123", bytes(16), bytes(18), None])
def test_a_malformed_scalar_names_the_party_instead_of_counting_as_nothing(pack):
    sound = pack_scalars(plain(), "losses", 1.0, 2.0)
    replies = {"a": SumsReply(losses=sound), "b": SumsReply(losses=pack)}
    for asked in ("ab", "abc"):
        with pytest.raises(ProtocolError, match=r"party b.*losses"):
            add_scalars(replies, "losses", 2, asked)


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
