"""Who takes part in an iteration: of every shared group nobody, or as many as were agreed on."""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import combinations
from unittest.mock import patch

import numpy as np
import pytest
from guarded import PLAIN, optimum, roster_of, table_of, tile_of, train, watched
from hypothesis import given
from hypothesis import strategies as st

from covering import before_release, examples
from weft.data import SPLITS
from weft.errors import ConfigError, ProtocolError
from weft.guards import Terms
from weft.solvers.hyfdca import coordinator as hyfdca
from weft.solvers.participation import Contributors
from weft.solvers.run_settings import Settings
from weft.sums.coordinator_totals import IncrementTotals

DIGITS = table_of("digits", 300)
SMALL = table_of("breast_cancer", 12)


def holders_of(roster):
    """The holders of every group of samples or features that several parties share."""
    return [
        {roster.parties[k] for k in axis.holders[cohort].tolist()}
        for axis in (roster.rows, roster.columns)
        for cohort in range(len(axis.sizes))
        if len(axis.holders[cohort]) > 1
    ]


def enough(chosen, shared, least) -> bool:
    return all(not holders & chosen or len(holders & chosen) >= least for holders in shared)


@st.composite
def presences(draw):
    """Random tiles of up to seven parties, terms, and who is there."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    tiles = {}
    for k in range(draw(st.integers(1, 7))):
        rows = np.sort(rng.permutation(SMALL.n)[: rng.integers(1, SMALL.n + 1)])
        columns = np.sort(rng.permutation(6)[: rng.integers(1, 7)])
        tiles[f"p{k}"] = (tile_of(SMALL, rows, columns),)
    pairs = draw(st.booleans())
    least = draw(st.integers(3, 5))
    terms = Terms(min_batch=1, min_contributors=least, allow_pairs=pairs)
    here = [name for name in tiles if rng.random() < 0.8]
    return roster_of(tiles, terms, bias=draw(st.booleans())), here


@given(presences())
@examples(120)
def test_of_every_shared_group_nobody_or_enough_take_part(scene):
    roster, here = scene
    chosen = Contributors(roster).of(here)
    if roster.terms.allow_pairs:
        assert chosen == here
        return
    shared, least = holders_of(roster), roster.terms.min_contributors
    assert enough(set(chosen), shared, least)
    assert chosen == [name for name in here if name in chosen]
    # Nobody waits in vain: no other choice among those present has somebody else in it.
    for count in range(1, len(here) + 1):
        for some in combinations(here, count):
            assert not enough(set(some), shared, least) or set(some) <= set(chosen)


class Copies:
    """Who has put something into a total since a party's last copy of it.

    Attributes
    ----------
    lone
        (party, kind, contributors) of every copy in which fewer than three changed a group that
        the party shares, but somebody did.
    """

    def __init__(self):
        self.run = None
        self.since = defaultdict(set)
        self.copies = Counter()
        self.lone = []

    def add(self, totals, replies, *rest):
        if self.run is not None and totals in (self.run.v, self.run.z):
            new = {
                name for name, reply in replies.items() if getattr(reply, totals.kind) is not None
            }
            for party in self.run.holdings.parties:
                self.since[party, totals.kind] |= new
        return ADD(totals, replies, *rest)

    def after(self, party, phase, message, reply):
        kind = {"hyfdca.weights": "v", "hyfdca.step": "z"}.get(phase)
        if kind not in message:
            return
        changed = self.since.pop((party.name, kind), set())
        roster = self.run.holdings
        axis, number = (roster.rows if kind == "z" else roster.columns), party.view.party
        self.copies[kind] += 1
        for cohort in axis.cohorts[number].tolist():
            holders = {roster.parties[k] for k in axis.holders[cohort].tolist()}
            if 0 < len(holders & changed) < 3 and len(holders) > 1:
                self.lone.append((party.name, kind, holders & changed))


ADD = IncrementTotals.add
HOW = {"lam": 1e-2, "gap": None, "iterations": 30, "cipher": "plain", "norms": "cohort"}


def run(split, before=None, **changes):
    """A run in which every copy of a total has nobody's news, or those of three."""
    copies = Copies()

    class Kept(hyfdca.Run):
        def __init__(self, *arguments):
            super().__init__(*arguments)
            copies.run = self

    with (
        watched(copies.after, before),
        patch.object(IncrementTotals, "add", lambda *arguments: copies.add(*arguments)),
        patch.object(hyfdca, "Run", Kept),
    ):
        _, trained = train(split, Settings(**{**HOW, **changes}), PLAIN)
    assert min(copies.copies["v"], copies.copies["z"]) > 100
    assert not copies.lone
    return trained.result


def check_true(result):
    best = optimum(DIGITS, "hinge", HOW["lam"], 1)
    (primal,), (dual,) = result.certificate.primal, result.certificate.dual
    assert dual <= best * (1 + 1e-7)
    assert primal >= best * (1 - 1e-7)


def test_enough_of_a_large_grid_train_while_others_wait():
    split = SPLITS["grid"](DIGITS, k=5, q=5)
    result = run(split, participation=0.8, iterations=40)
    present = [record.present for record in result.history]
    assert any("parties wait, because too few holders" in note for note in result.notes)
    assert max(present) <= 20
    assert 0 < np.mean(present) < 20
    check_true(result)


def test_too_few_of_a_small_grid_stop_with_a_sentence():
    split = SPLITS["grid"](DIGITS, k=3, q=3)
    with pytest.raises(
        ConfigError,
        match="for 20 iterations no group of parties was large enough for min_contributors = 3; "
        "let more take part, or agree on allow_pairs = true",
    ):
        run(split, participation=0.8)


@pytest.mark.parametrize("phase", ["hyfdca.step", *before_release("hyfdca.weights")])
def test_the_others_go_on_when_one_of_five_fails_in_mid_iteration(phase):
    split = SPLITS["grid"](DIGITS, k=5, q=5)
    calls = Counter()

    def before(party, at, message):
        calls[party.name, at] += 1
        if (party.name, at) == ("r2c2", phase) and calls[party.name, at] in (4, 5, 9):
            raise ConnectionError("no route to the party")
        return message

    result = run(split, before)
    assert any("r2c2 failed" in note for note in result.notes)
    assert min(record.present for record in result.history) == 24
    assert result.history[-1].present == 25
    check_true(result)


@pytest.mark.parametrize("phase", ["hyfdca.weights", "hyfdca.step"])
def test_nobody_goes_on_where_too_few_are_left(phase):
    """Of three holders two are left, who wait; so do all others, one after the other."""
    split = SPLITS["grid"](DIGITS, k=3, q=3)
    calls = Counter()

    def before(party, at, message):
        calls[party.name, at] += 1
        if (party.name, at) == ("r2c2", phase) and calls[party.name, at] >= 4:
            raise ConnectionError("no route to the party")
        return message

    with pytest.raises(ProtocolError, match="no party answered in iteration 4"):
        run(split, before)
