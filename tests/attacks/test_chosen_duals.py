"""Which α a holder without labels is told, it cannot compare with its own.

A coordinator that carries the α of one sample only, and nothing for all others, gets feature sums
of that sample alone; from the norm of the vector it reads the length of the sample's row at that
party, and one cell where it chooses who counts which weight. Unguarded are parties that open
whatever they are brought.
"""

from __future__ import annotations

from dataclasses import replace

import msgspec
import numpy as np
import pytest
from scene import by_both, run, table_of, tile_of

from weft.crypto.ciphers.block_format import Carried, pack_block, read_block, word_block
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.primitives.scalars_modulo_2_144 import floats_of, unpacked
from weft.data import Tile
from weft.errors import WeftError
from weft.guards import Terms
from weft.matching import slots_within_cohort
from weft.matching.guard_facts_from_confirmed_lists import facts_of
from weft.solvers.hyfdca.party_state import HyfdcaState
from weft.solvers.run_settings import Settings
from weft.sums.party_contribution import Latest, Posts, Wire

ROWS, SLOT, COLUMN = 120, 7, 2
SETTINGS = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=1e-1, iterations=1)
REFUSED = "fails its check|older than this party's own|do not name all|is not all that others"


def without_labels(table):
    """Four parties with a share of the columns each; the last has no labels."""
    columns = np.array_split(np.arange(table.m), 4)
    tiles = {f"p{k + 1}": (tile_of(table, columns=c),) for k, c in enumerate(columns[:3])}
    block = np.ascontiguousarray(table.block[:, columns[3]])
    tiles["p4"] = (Tile.make(table.ids, table.features[columns[3]], block, None),)
    return tiles


def alone(packed, slots, keep):
    """A block of α in which some slots are left, and nothing elsewhere."""
    block = read_block(packed, "alpha")
    sent, at = word_block(block, "alpha"), np.flatnonzero(np.isin(slots, keep))
    words, tags = np.zeros_like(sent.words), np.zeros_like(sent.tags)
    words[at], tags[at] = sent.words[at], sent.tags[at]
    pads = np.zeros(block.slots, np.uint64)
    pads[at] = np.repeat(block.carried.pad_ids, block.carried.lengths)[at]
    made_up = Carried(np.ones(block.slots, np.uint32), None, pads)
    shape = (block.slots, block.width)
    body = words.tobytes() + tags.tobytes()
    return pack_block(block.cipher, block.kind, block.key, block.pad_id, *shape, body, made_up)


def attack():
    """The cell that the coordinator reads, and the true one."""
    table, grams = table_of("breast_cancer", ROWS), {}

    def around(name, handler):
        def answer(phase, message):
            if phase == "subspace.follow" and message.get("alpha") is not None:
                kept = alone(message["alpha"], message["alpha_slots"], [SLOT])
                message = {**message, "alpha": kept}
            reply = handler(phase, message)
            if phase == "subspace.spread":
                grams.setdefault(name, reply["gram"])
            return reply

        return answer

    found = run(without_labels(table), SETTINGS, Terms(), around=around)
    limbs = unpacked(b"".join(grams.values())).reshape(len(grams), -1, 3).sum(axis=0)
    # At w = 0 every α is a half.
    read = np.sqrt(max(floats_of(limbs))) * ROWS / 0.5
    row, column = found.rows_of("p4", table)[SLOT], found.columns_of("p4", table)[COLUMN]
    return read, abs(table.block[row, column])


@pytest.fixture
def credulous(monkeypatch):
    """Parties open whatever they are brought, as long as it fits its tags."""

    def take(wire, packed, width, slots, lacking=None):
        return Wire.open(wire, packed, width, slots)

    def reveal(cipher, total):
        return opened(cipher, msgspec.structs.replace(total, since=0))

    opened = Cipher.reveal
    for kind in (Posts, Latest):
        monkeypatch.setattr(kind, "take", take)
    monkeypatch.setattr(Cipher, "reveal", reveal)
    monkeypatch.setattr(HyfdcaState, "insist_on_enough", lambda *_: None)


def test_the_alpha_of_one_sample_does_not_open(record):
    with pytest.raises(WeftError, match=REFUSED):
        attack()
    record("35", "guarded", "refused; so is an older α")


def test_believed_it_gives_a_single_cell(record, monkeypatch, credulous):
    def chosen(told):
        columns = np.zeros(told.n_columns, bool)
        columns[COLUMN] = told.party == 3
        return replace(facts_of(told), owned=columns)

    monkeypatch.setattr(slots_within_cohort, "facts_of", chosen)
    read, true = attack()
    assert np.isclose(read, true, rtol=1e-6)
    record("35", "unguarded", f"one cell of a party without labels, error {abs(read - true):.0e}")


def test_vectors_that_are_told_keep_apart(record):
    """Whoever carries dual vectors might choose among those that holders with labels made."""
    tiles = by_both(table_of("breast_cancer", 180), 3, 3)
    (tile,) = tiles["r1c3"]
    tiles["r1c3"] = (Tile.make(tile.ids, tile.features, tile.block, None),)
    half = run(tiles, SETTINGS, Terms(allow_pairs=True)).party("r1c3")._half
    told, near = half.samples.duals + 0.25, half.samples.duals + 0.25
    near[SLOT] += 0.1
    half.samples._told_before.take(told)
    half.samples._told_before.take(told)
    with pytest.raises(WeftError, match="too close to others"):
        half.samples._told_before.take(near)
    record("35", "guarded", "vectors that differ in one sample are refused")


@pytest.mark.parametrize("fixed", [False, True])
def test_which_samples_are_left_out_is_not_told_as_dual_variables(fixed, monkeypatch):
    """Both are posts of one kind: a vector of the samples left out would be their rows."""
    tiles = by_both(table_of("breast_cancer", 180), 3, 3)
    (tile,) = tiles["r1c3"]
    tiles["r1c3"] = (Tile.make(tile.ids, tile.features, tile.block, None),)
    seen, told = [], []

    def around(name, handler):
        def answer(phase, message):
            if name == "r1c3" and message.get("alpha") is not None:
                seen.append({**message})
                if phase == "subspace.follow" and not told:
                    told.append(handler)
                    message = older(seen[0], message)
            return handler(phase, message)

        return answer

    if not fixed:
        monkeypatch.setattr(Posts, "begin", lambda posts: posts)
        run(tiles, SETTINGS, Terms(allow_pairs=True), around=around)
        assert told
        return
    with pytest.raises(WeftError, match="older than this party's own"):
        run(tiles, SETTINGS, Terms(allow_pairs=True), around=around)


# ── HyFDCA, whose α is told as it changes ─────────────────────────────────────────────────────

HYFDCA = Settings(lam=0.1, loss="hinge", solver="hyfdca", gap=1e-9, iterations=4)


def told_otherwise(change):
    """A run in which what p4 is told of α in its third message is changed."""
    seen, told = [], []

    def around(name, handler):
        def answer(phase, message):
            if name == "p4" and message.get("alpha") is not None:
                seen.append({**message})
                if len(seen) == 3:
                    message = change(seen[0], seen[2])
                    told.append(phase)
            return handler(phase, message)

        return answer

    run(without_labels(table_of("breast_cancer", ROWS)), HYFDCA, Terms(), around=around)
    assert told


def nothing_but_one(first, third):
    kept = alone(third["alpha"], third["alpha_slots"], third["alpha_slots"][:1])
    return {**third, "alpha": kept}


def older(first, third):
    """What was told first, as if it belonged to this request."""
    now, block = read_block(third["alpha"], "alpha"), read_block(first["alpha"], "alpha")
    head = (block.cipher, block.kind, block.key, now.pad_id, block.slots, block.width)
    again = pack_block(*head, bytes(block.body), block.carried)
    return {**third, "alpha": again, "alpha_slots": first["alpha_slots"]}


@pytest.mark.parametrize("lie", [nothing_but_one, older], ids=lambda lie: lie.__name__)
def test_alpha_that_is_old_or_was_not_posted_is_refused(lie):
    with pytest.raises(WeftError, match=REFUSED):
        told_otherwise(lie)


@pytest.mark.parametrize("lie", [nothing_but_one, older], ids=lambda lie: lie.__name__)
def test_believed_alpha_may_be_anything(lie, credulous):
    told_otherwise(lie)
