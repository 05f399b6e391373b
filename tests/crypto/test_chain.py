"""Chains of pads: totals open to the plain sum, and what the coordinator sees says nothing.

A small federation does all four kinds of sums under drawn schedules: who is asked, who stays
silent, which slots are meant. The public record (labels that requests say to take off) is read
anew here. Each contribution is a value plus a signed sum of pads; the pads of all contributions
must be linearly independent, also modulo two: then the words that the coordinator got are uniform
and independent, whatever the values.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cache

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from covering import examples
from weft.crypto.coordinator_adder import Adder
from weft.crypto.pads.pad_ids_in_totals import CohortChain, Holders, SlotChain
from weft.data import SPLITS, Table, Tile
from weft.federation.local_federation import Federation
from weft.protocol.shared_fields import PadLinks, SumRequest
from weft.solvers.run_settings import Settings
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.latest_slot_values_and_proposals import LatestValues, Proposals
from weft.sums.party_contribution import Contribution, Wire
from weft.sums.shared_slots_by_party import Layout

SIGN = 1 << 63
BOUND = 4.0
SCALE = 2.0**-20


# ── a small federation ────────────────────────────────────────────────────────────────────────


class Asked(SumRequest):
    """A request for any of the four kinds of sums."""

    z_pads: PadLinks | None = None
    v_pads: PadLinks | None = None
    alpha_pads: PadLinks | None = None
    delta_pads: PadLinks | None = None

    def pads(self, kind):
        return getattr(self, f"{kind}_pads")

    def chained(self, kind):
        """Whether the request says what a contribution takes off."""
        pads = self.pads(kind)
        return pads is not None and pads.chain is not None


@dataclass
class Sent:
    """A reply with a contribution to one of the four kinds of sums."""

    z: bytes | None = None
    v: bytes | None = None
    alpha: bytes | None = None
    delta: bytes | None = None
    z_slots: np.ndarray | None = None
    v_slots: np.ndarray | None = None
    alpha_slots: np.ndarray | None = None
    delta_slots: np.ndarray | None = None


@dataclass
class World:
    """Parties with keys, and a coordinator that numbers requests."""

    adder: Adder
    ciphers: dict
    rows: Layout
    columns: Layout

    @property
    def parties(self):
        return tuple(self.ciphers)

    def request(self, asked):
        round_ = self.adder.advance()
        return {p: Asked(round=round_) for p in self.parties if p in asked}

    def begin(self, messages):
        for party, message in messages.items():
            self.ciphers[party].begin(message)


@cache
def world(cipher):
    """Four parties whose tiles overlap: cohorts of one, two, three and four holders."""
    random = np.random.default_rng(4)
    names = [f"s{i}" for i in range(16)], [f"f{i}" for i in range(8)]
    labels = np.arange(16) % 2
    tile = Tile.make(*names, random.normal(size=(16, 8)), labels)
    table = Table(tile.ids, tile.features, tile.block, tile.labels, "classification")
    split = SPLITS["overlapping"](table, parties=4, seed=1)
    federation = Federation(split.parties)
    chosen = Settings(lam=1.0, cipher=cipher, iterations=1)
    _, roster, adder, _ = federation.assemble(chosen)
    ciphers = {name: party._cipher for name, party in federation.parties.items()}
    layouts = (Layout(axis, roster.parties) for axis in (roster.rows, roster.columns))
    return World(adder, ciphers, *layouts)


def test_the_federation_has_cohorts_of_several_sizes():
    here = world("pad")
    for layout in (here.rows, here.columns):
        holders = np.diff(layout.holders.begin)
        assert len(set(holders.tolist())) > 1
        assert holders.min() >= 2


# ── the public record ─────────────────────────────────────────────────────────────────────────


@dataclass
class Record:
    """Which labels each contribution put on and took off, slot by slot, from messages alone."""

    kind: str
    layout: Layout
    rows: dict = field(default_factory=dict)
    tails: dict = field(default_factory=dict)

    def note(self, party, message, label, slots):
        """A party contributes to local ``slots`` under ``label``."""
        self._learn(party, message)
        pads = message.pads(self.kind) or PadLinks()
        minus, knots = pads.chain, read_table(pads.chain_sets)
        held = self.layout.own[party]
        cohorts = self.layout.cohorts[self.layout.group[party]].tolist()
        for local in slots:
            slot = int(held[local])
            off = ()
            if minus is not None:
                mark = int(minus[cohorts.index(int(self.layout.cohort_of[slot]))])
                off = labels_of(mark, knots)
                if mark == 0:
                    off = self.tails.get((party, local), ())
            row = {label: 1}
            for signed in off:
                name = signed & ~SIGN
                row[name] = row.get(name, 0) - (-1 if signed & SIGN else 1)
            self.rows.setdefault(slot, []).append(row)

    def _learn(self, party, message):
        """Marks that a leading party is told."""
        told = (message.pads(self.kind) or PadLinks()).news
        if told is None:
            return
        marks = np.repeat(told.marks, told.lengths).tolist()
        knots, news = read_table(told.sets), told.slots
        slots = range(int(news[0]), int(news[0]) + len(marks)) if len(news) == 1 else news.tolist()
        for local, mark in zip(slots, marks, strict=True):
            self.tails[party, local] = labels_of(mark, knots)

    def assert_independent(self):
        for slot, rows in self.rows.items():
            assert rank_modulo_two(rows) == len(rows), f"slot {slot}"
            names = [next(iter(row)) for row in rows]
            assert len(set(names)) == len(names)


def read_table(flat):
    table, values = [], [] if flat is None else flat.tolist()
    while values:
        count = values.pop(0)
        table.append(tuple(values[:count]))
        del values[:count]
    return table


def labels_of(mark, table):
    if mark & SIGN:
        return table[mark & ~SIGN]
    return (mark,) if mark else ()


def rank_modulo_two(rows):
    """Rank over the field of two elements: what counts for words modulo 2^64."""
    names = {name: i for i, name in enumerate(sorted({n for row in rows for n in row}))}
    basis = {}
    for row in rows:
        bits = sum(1 << names[n] for n, times in row.items() if times % 2)
        while bits:
            top = bits.bit_length()
            if top not in basis:
                basis[top] = bits
                break
            bits ^= basis[top]
    return len(basis)


def test_the_rank_is_that_of_dependent_rows():
    assert rank_modulo_two([{1: 1}, {2: 1, 1: -1}, {3: 1, 2: -1}]) == 3
    assert rank_modulo_two([{1: 1, 2: -1}, {2: 1, 3: -1}, {1: 1, 3: -1}]) == 2
    assert rank_modulo_two([{1: 1, 2: 2}, {1: 1}]) == 1


# ── schedules ─────────────────────────────────────────────────────────────────────────────────

SOME = st.sets(st.integers(0, 3), min_size=1)
STEP = st.tuples(SOME, st.sets(st.integers(0, 3), max_size=2), st.integers(0, 2**16))
STEPS = st.lists(STEP, min_size=1, max_size=7)
#: Other work on the same machine must not fail a test.
RELAXED = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}
MANY = examples(60, **RELAXED)
FEW = settings(max_examples=6, **RELAXED)


def names_of(here, numbers):
    return [here.parties[i] for i in sorted(numbers)]


def values_for(random, count, width):
    return random.integers(-(2**20), 2**20, (count, width)) * SCALE


def running_sums(cipher, kind, windows, width, steps):
    """Increments to a running total; after each request everybody reads it."""
    here = world(cipher)
    layout = here.columns if kind == "v" else here.rows
    totals = IncrementTotals(kind, layout, width, here.adder, windows=windows)
    parts = {
        p: Contribution(kind, len(layout.own[p]), width, BOUND, here.ciphers[p], windows=windows)
        for p in here.parties
    }
    record, sent = Record(kind, layout), {}
    for asked, silent, seed in steps:
        random = np.random.default_rng(seed)
        # The same slots at all holders of a cohort that are asked.
        meant = random.random(layout.n_shared) < (0.6 if windows else 2.0)
        messages = here.request(names_of(here, asked))
        totals.invite(messages)
        here.begin(messages)
        replies, quiet = {}, names_of(here, silent)
        for party, message in messages.items():
            held = layout.own[party]
            if not len(held):
                continue
            slots = np.flatnonzero(meant[held]).astype(np.int32) if windows else None
            local = range(len(held)) if slots is None else slots.tolist()
            values = values_for(random, len(local), width)
            packed = parts[party].increment(values, message.pads(kind), slots)
            record.note(party, message, here.ciphers[party].pad_id, local)
            if party in quiet:
                parts[party].undo()
            else:
                parts[party].accept()
                replies[party] = Sent(**{kind: packed, f"{kind}_slots": slots})
                sent[party] = np.array(local, np.int32)
        totals.add(replies, 1)
        assert_everybody_reads_the_sum(here, totals, parts, sent, random)
    return record


def assert_everybody_reads_the_sum(here, totals, parts, sent, random):
    """All slots, some slots, and those of a party's last contribution, which must be in there."""
    layout, width = totals.layout, totals.width
    expected = np.zeros((layout.n_shared, width), np.int64)
    for party, part in parts.items():
        expected[layout.own[party]] += part.sent
    messages = here.request(here.parties)
    here.begin(messages)
    for party, part in parts.items():
        held = layout.own[party]
        if not len(held):
            continue
        windows = part._tails is not None
        kind, cipher = totals.kind, here.ciphers[party]
        reader = Contribution(kind, len(held), width, BOUND, cipher, windows=windows)
        whole = reader.open(totals.take(party), width)
        np.testing.assert_array_equal(whole, expected[held] / part._format.scale)
        some = np.flatnonzero(random.random(len(held)) < 0.5).astype(np.int32)
        for slots, wire in ((some, reader), (sent.get(party, some), part)):
            if len(slots):
                opened = wire.open(totals.take(party, slots), width, slots)
                np.testing.assert_array_equal(opened, whole[slots])


@MANY
@given(STEPS, st.integers(1, 3))
def test_whole_blocks_of_increments_open_to_the_sum(steps, width):
    running_sums("pad", "v", False, width, steps).assert_independent()


@MANY
@given(STEPS, st.integers(1, 3))
def test_increments_at_chosen_slots_open_to_the_sum(steps, width):
    running_sums("pad", "z", True, width, steps).assert_independent()


@FEW
@given(st.sampled_from(["v", "z"]), STEPS, st.integers(1, 2))
def test_increments_under_lattices_open_to_the_sum(kind, steps, width):
    record = running_sums("bfv", kind, kind == "z", width, steps[:4])
    record.assert_independent()


# ── boards ────────────────────────────────────────────────────────────────────────────────────


def posts(cipher, steps):
    """One holder of each cohort posts some slots; the others read what changed."""
    here = world(cipher)
    layout = here.rows
    board = LatestValues("alpha", layout, 1, here.adder)
    wires = {p: Wire("alpha", len(layout.own[p]), BOUND, here.ciphers[p]) for p in here.parties}
    record = Record("alpha", layout)
    now = np.zeros((layout.n_shared, 1))
    seen = dict.fromkeys(here.parties, 0)
    copies = {p: np.zeros((len(layout.own[p]), 1)) for p in here.parties}
    for iteration, (asked, silent, seed) in enumerate(steps, 1):
        random = np.random.default_rng(seed)
        messages = here.request(names_of(here, asked))
        round_ = here.adder.round
        speaker = speakers(layout, list(messages), random)
        chosen = {}
        for party in messages:
            cohorts = layout.cohorts[layout.group[party]]
            chosen[party] = np.array([speaker.get(int(c)) == party for c in cohorts], bool)
        board.invite(messages, chosen)
        here.begin(messages)
        replies = {}
        for party, message in messages.items():
            held = layout.own[party]
            mine = np.isin(layout.cohort_of[held], [c for c, p in speaker.items() if p == party])
            slots = np.flatnonzero(mine & (random.random(len(held)) < 0.6)).astype(np.int32)
            if not len(slots) and not message.chained("alpha"):
                continue
            new = values_for(random, len(slots), 1)
            some = None if chosen[party].all() else chosen[party]
            packed = wires[party].post(new, now[held[slots]], slots, message.alpha_pads, some)
            here_slots = np.flatnonzero(mine).tolist() if cipher == "bfv" else slots.tolist()
            record.note(party, message, here.ciphers[party].pad_id, here_slots)
            if party in names_of(here, silent):
                continue
            replies[party] = Sent(alpha=packed, alpha_slots=slots)
            now[held[slots]] = new
        board.post(replies, iteration, round_)
        readers = [p for p in here.parties if random.random() < 0.6]
        messages = here.request(readers)
        here.begin(messages)
        for party, (slots, block) in board.changes({p: seen[p] for p in readers}).items():
            copies[party][slots] = wires[party].open(block, 1, slots)
        for party in readers:
            seen[party] = iteration
            np.testing.assert_array_equal(copies[party], now[layout.own[party]])
    return record


def speakers(layout, present, random):
    """Per cohort, one of its holders that are present."""
    found = {}
    for cohort in range(len(layout.sizes)):
        holders = [p for p in present if cohort in layout.cohorts[layout.group[p]].tolist()]
        if holders:
            found[cohort] = holders[int(random.integers(len(holders)))]
    return found


@MANY
@given(STEPS)
def test_posted_values_are_read_as_they_were_posted(steps):
    posts("pad", steps).assert_independent()


@FEW
@given(STEPS)
def test_posted_values_are_read_under_lattices_too(steps):
    posts("bfv", steps[:4]).assert_independent()


# ── proposals ─────────────────────────────────────────────────────────────────────────────────


def proposals(cipher, width, steps):
    here = world(cipher)
    layout = here.rows
    wires = {p: Wire("delta", len(layout.own[p]), BOUND, here.ciphers[p]) for p in here.parties}
    for iteration, (asked, silent, seed) in enumerate(steps, 1):
        random = np.random.default_rng(seed)
        record = Record("delta", layout)
        sums = Proposals("delta", layout, width, here.adder)
        messages = here.request(names_of(here, asked))
        round_ = here.adder.round
        sums.invite(messages)
        here.begin(messages)
        expected = np.zeros((layout.n_shared, width))
        proposed = np.zeros(layout.n_shared, bool)
        replies = {}
        for party, message in messages.items():
            held = layout.own[party]
            slots = np.flatnonzero(random.random(len(held)) < 0.5).astype(np.int32)
            if not len(held) or (not len(slots) and not message.chained("delta")):
                continue
            values = values_for(random, len(slots), width)
            packed = wires[party].propose(values, slots, message.delta_pads)
            every = range(len(held)) if cipher == "bfv" else slots.tolist()
            record.note(party, message, here.ciphers[party].pad_id, every)
            if party in names_of(here, silent):
                continue
            replies[party] = Sent(delta=packed, delta_slots=slots)
            expected[held[slots]] += values
            proposed[held[slots]] = True
        sums.add(replies, iteration, round_)
        record.assert_independent()
        messages = here.request(here.parties)
        here.begin(messages)
        found = sums.proposed(here.parties)
        for party in here.parties:
            held = layout.own[party]
            slots, block = found.get(party, (np.zeros(0, np.int32), None))
            np.testing.assert_array_equal(np.flatnonzero(proposed[held]), slots)
            if block is not None:
                opened = wires[party].open(block, width, slots)
                np.testing.assert_array_equal(opened, expected[held[slots]])


@MANY
@given(STEPS, st.integers(1, 3))
def test_proposals_are_read_as_their_sum(steps, width):
    proposals("pad", width, steps)


@FEW
@given(STEPS, st.integers(1, 2))
def test_proposals_are_read_as_their_sum_under_lattices(steps, width):
    proposals("bfv", width, steps[:3])


# ── the chains by themselves ──────────────────────────────────────────────────────────────────


@st.composite
def units(draw):
    """Holders of up to four units among five parties."""
    lists = draw(st.lists(st.sets(st.integers(0, 4), min_size=2), min_size=1, max_size=4))
    lengths = np.array([len(held) for held in lists])
    party = np.array([p for held in lists for p in sorted(held)])
    return Holders.of(lengths, party, 5)


REQUESTS = st.lists(
    st.tuples(st.sets(st.integers(0, 4), min_size=1), st.sets(st.integers(0, 4))),
    min_size=1,
    max_size=12,
)


def taken_off(chain, asked, number):
    """Per pair, the mark that it is to take off."""
    minus, _ = chain.invite(asked, np.zeros(0, bool), 0, number)
    return minus[chain.holders.place]


@examples(150, **RELAXED)
@given(units(), REQUESTS)
def test_marks_say_what_the_totals_carry(holders, requests):
    """Signed labels added up contribution by contribution, next to the chain's own marks."""
    chain = CohortChain(holders)
    carried = [{} for _ in range(len(holders.begin) - 1)]
    rows = [[] for _ in carried]
    for number, (asked, silent) in enumerate(requests, 1):
        flags, answered = np.zeros(5, bool), np.zeros(5, bool)
        flags[list(asked)] = True
        answered[[p for p in asked if p not in silent]] = True
        minus = taken_off(chain, flags, number)
        for pair in np.flatnonzero(flags[holders.party]).tolist():
            unit, party = int(holders.unit[pair]), int(holders.party[pair])
            label = (number << 20) | party
            row = {label: 1}
            for signed in chain.knots.pad_ids(int(minus[pair])):
                assert signed & ~SIGN < label, "a chain points backwards"
                row[signed & ~SIGN] = 1 if signed & SIGN else -1
            rows[unit].append(row)
            if answered[party]:
                for name, times in row.items():
                    carried[unit][name] = carried[unit].get(name, 0) + times
        chain.record(answered)
        for unit, found in enumerate(carried):
            expected = {
                name | SIGN if times < 0 else name for name, times in found.items() if times
            }
            assert set(chain.knots.pad_ids(int(chain.marks[unit]))) == expected
            assert all(times in (-1, 0, 1) for times in found.values())
    for found in rows:
        assert rank_modulo_two(found) == len(found)


@examples(100, **RELAXED)
@given(units(), REQUESTS, st.data())
def test_a_chain_that_was_saved_goes_on_as_if_it_had_not_been(holders, requests, data):
    whole, saved = CohortChain(holders), CohortChain(holders)
    at = data.draw(st.integers(0, len(requests)))
    for number, (asked, silent) in enumerate(requests, 1):
        flags, answered = np.zeros(5, bool), np.zeros(5, bool)
        flags[list(asked)] = True
        answered[[p for p in asked if p not in silent]] = True
        if number == at:
            state = {name: value.copy() for name, value in saved.state().items()}
            saved = CohortChain(holders)
            saved.restore(state)
        taken = [taken_off(chain, flags, number) for chain in (whole, saved)]
        for one, other in zip(*taken, strict=True):
            assert whole.knots.pad_ids(int(one)) == saved.knots.pad_ids(int(other))
        for chain in (whole, saved):
            chain.record(answered)


def test_the_chains_are_those_of_the_totals():
    """What was tested above is what the coordinator uses."""
    here = world("pad")
    v = IncrementTotals("v", here.columns, 1, here.adder)
    z = IncrementTotals("z", here.rows, 1, here.adder, windows=True)
    assert type(v._bookkeeping.chain) is CohortChain
    assert type(z._bookkeeping.chain) is SlotChain
    with pytest.raises(RuntimeError, match="nobody was invited"):
        CohortChain(here.rows.holders).record(np.ones(4, bool))
