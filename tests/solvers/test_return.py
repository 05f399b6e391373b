"""A party was away and is back: the fast solver goes on, and the model is certified after all."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from itertools import pairwise
from unittest.mock import patch

import numpy as np
import pytest

from covering import before_release, cover, some_of
from weft.crypto.ciphers.block_format import KIND_CODES, read_block, words_of
from weft.data import SPLITS, pool
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation
from weft.guards import Terms
from weft.privacy.audit.audit_of_a_recording import audit
from weft.protocol import LocalChannel, Request
from weft.protocol.recording_file import Head, entries_of
from weft.solvers.hyfdca.messages import STEP
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.lbfgs_solver import Lbfgs
from weft.solvers.subspace.messages import INHERIT
from weft.solvers.subspace.party import SubspaceParty
from weft.sums.table_scaling_and_certificate_messages import MEND

#: Hard enough to take twenty iterations and more.
LAM = 1e-5
SOLVERS = {
    "lbfgs": ("logistic", 1e-7, 34),
    "cutting-planes": ("hinge", 1e-5, 40),
    "newton-cg": ("logistic", 1e-5, 95),
}
#: Round trips after those, and whether the first question is worked on.
WHERE = [(0, False), (1, False), (1, True), (2, True)]
COSTS = ("bytes_down", "bytes_up", "compute_seconds", "wall_seconds", "round_trips")


@dataclass(frozen=True)
class Away:
    """A party does not answer from one round trip to another.

    Round trips in which masks are taken off belong to the one before: not all ciphers have them.
    With ``late`` it still works on the first question, and only its reply is lost.
    """

    party: str
    first: int
    last: int
    late: bool = False


@contextmanager
def absences(*plan: Away) -> Iterator[None]:
    """Federations made here have parties that come and go."""
    exchange = LocalChannel.exchange

    def watched(channel: LocalChannel, requests: list[Request]):
        mending = requests[0].phase is MEND
        mended = channel.__dict__.setdefault("mended", [])
        now, there = channel.meter.round_trips - len(mended) - mending, channel._handlers
        mended += [now] * mending
        gone = {away.party: away for away in plan if away.first <= now < away.last}

        def missing(name):
            def answer(phase, message):
                if gone[name].late and now == gone[name].first:
                    there[name](phase, message)
                raise RuntimeError("away")

            return answer

        channel._handlers = {n: missing(n) if n in gone else h for n, h in there.items()}
        try:
            return exchange(channel, requests)
        finally:
            channel._handlers = there

    with patch.object(LocalChannel, "exchange", watched):
        yield


def train(split, solver, *plan: Away, record=False, **changes):
    loss, gap, _ = SOLVERS[solver]
    how = {"lam": LAM, "loss": loss, "gap": gap, "solver": solver, "cipher": "plain"}
    how |= {"patience": 0.0, "when_missing": "hyfdca", "iterations": 400, **changes}
    with absences(*plan):
        return Federation(split.parties, record=record).train(Settings(**how))


def outcome(trained):
    """All that must not depend on the cipher."""
    history = [asdict(record) for record in trained.result.history]
    for record in history:
        for cost in COSTS:
            del record[cost]
    result = trained.result
    return trained.model.coef.tobytes(), history, result.stopped, result.notes, result.certificate


def returns(trained) -> list[str]:
    return [note for note in trained.result.notes if "is back; going on with" in note]


def check(trained, split, judge, *, times, loss, lam=LAM):
    """Certified to the gap asked for, and so near to the optimum by an outside judge."""
    result = trained.result
    assert len(returns(trained)) == times
    assert result.gone == ()
    assert result.certificate is not None
    problem = judge.problem(loss, split, lam)
    best = judge.optimum(problem)
    (primal,), (dual,) = result.certificate.primal, result.certificate.dual
    assert result.certificate.gap <= trained.settings.gap
    assert dual <= best * (1 + 1e-7)
    assert best <= primal * (1 + 1e-7)
    w = judge.weights(trained.model, split)[0]
    assert problem.primal(w) == pytest.approx(primal, rel=1e-9)
    assert problem.primal(w) <= best * (1 + 2 * trained.settings.gap)
    numbers = [record.iteration for record in result.history]
    assert all(a < b for a, b in pairwise(numbers))


@pytest.fixture(scope="module")
def grid(tables):
    return SPLITS["grid"](tables.breast(160), k=2, q=2)


# ── once ──────────────────────────────────────────────────────────────────────────────────


CASES = [
    *((solver, *where) for solver in ("lbfgs", "cutting-planes") for where in WHERE),
    ("newton-cg", 1, True),
]


# Each of the two moments, and both solvers that the library chooses.
@cover(
    ("solver", "where"),
    [("lbfgs", (1, True)), ("cutting-planes", (0, False))],
    others=[(solver, (later, late)) for solver, later, late in CASES],
)
def test_the_run_ends_certified_in_whichever_phase_the_party_fell_silent(
    solver, where, grid, judge
):
    loss, _, first = SOLVERS[solver]
    later, late = where
    away = Away("r1c2", first + later, first + later + 30, late)
    trained = train(grid, solver, away)
    check(trained, grid, judge, times=1, loss=loss)
    (note,) = returns(trained)
    assert note.endswith(f"r1c2 is back; going on with {solver}")
    assert any("going on with HyFDCA without it" in note for note in trained.result.notes)
    # HyFDCA has gone on meanwhile.
    assert any(record.present == 3 for record in trained.result.history)


@pytest.mark.parametrize("cipher", ["plain", "pad"])
def test_whose_first_reply_is_lost_when_it_is_back_puts_its_totals_in_again(cipher, grid, judge):
    fall_back, told = SubspaceParty._fall_back, []

    def lost(party, message):
        reply = fall_back(party, message)
        if party._context.view.party == 1:
            told.append(message)
            if len(told) == 1:
                raise RuntimeError("its reply is lost")
        return reply

    with patch.object(SubspaceParty, "_fall_back", lost):
        trained = train(grid, "lbfgs", Away("r1c2", 34, 70), cipher=cipher, iterations=400)
    assert len(told) == 2
    assert told[0].number == told[1].number
    check(trained, grid, judge, times=1, loss="logistic")


@pytest.mark.parametrize("solver", ["cutting-planes", *before_release("lbfgs")])
def test_an_absence_costs_hardly_more_than_it_lasts(solver, grid):
    first = SOLVERS[solver][2]
    quiet = train(grid, solver).result.history[-1].round_trips
    trained = train(grid, solver, Away("r2c1", first, first + 40))
    assert trained.result.history[-1].round_trips <= quiet + 40 + 16
    # Bounds only rise.
    certified = [r for r in trained.result.history if r.present == 4]
    assert all(b.dual >= a.dual - 1e-12 for a, b in pairwise(certified[:-1]))


@pytest.mark.parametrize("labels", ["first", *before_release("all")])
def test_alpha_is_taken_over_with_the_bound_that_it_gives(labels, tables, judge):
    """Offset and length of its vector, against D(α) of the pooled table."""
    split = SPLITS["grid"](tables.breast(160), k=2, q=2, labels=labels)
    federation, found = Federation(split.parties), []
    inherit = Lbfgs.inherit

    def looked_at(solver):
        inherit(solver)
        subspace = solver._subspace
        alpha = {}
        for party in federation.parties.values():
            duals = party._half.rows.mixtures._held[-1]
            for sample, row in zip(party.data.tiles[0].ids, party.view.tile_rows[0], strict=True):
                assert alpha.setdefault(sample, duals[row, 0]) == duals[row, 0]
        found.append((subspace.offsets[-1, 0] - subspace.gram[-1, -1, 0] / (2 * LAM), alpha))

    settings = Settings(
        lam=LAM, loss="logistic", gap=1e-7, solver="lbfgs", cipher="plain", patience=0.0,
        when_missing="hyfdca",
    )  # fmt: skip
    with absences(Away("r2c1", 34, 70)), patch.object(Lbfgs, "inherit", looked_at):
        federation.train(settings)
    ((bound, alpha),) = found
    problem = judge.problem("logistic", split, LAM)
    values = np.array([alpha[sample] for sample in pool(split).ids.tolist()])
    assert np.abs(values).max() > 0.1
    assert bound == pytest.approx(problem.dual(values), rel=1e-9, abs=1e-12)


# ── more than once, and more than one ─────────────────────────────────────────────────────


PLANS = {
    "twice": [Away("r1c2", 34, 60), Away("r1c2", 74, 100, late=True)],
    "one after the other": [Away("r1c1", 34, 60), Away("r2c2", 72, 98)],
    "two at once": [Away("r1c1", 34, 70), Away("r2c2", 34, 75, late=True)],
    "the second in the first's absence": [Away("r1c1", 34, 80), Away("r2c1", 55, 60)],
    "the second while HyFDCA is set up": [Away("r1c1", 34, 80), Away("r2c1", 38, 60)],
    "again while it takes over α": [Away("r1c1", 34, 64), Away("r1c2", 68, 95, late=True)],
}


@pytest.mark.parametrize("plan", some_of(PLANS, "again while it takes over α"))
def test_absences_of_several_parties(plan, grid, judge):
    solver = "lbfgs" if plan in ("twice", "two at once") else "cutting-planes"
    trained = train(grid, solver, *PLANS[plan])
    found = len(returns(trained))
    assert found >= 1
    if plan in ("twice", "one after the other", "again while it takes over α"):
        assert found == 2
    check(trained, grid, judge, times=found, loss=SOLVERS[solver][0])


@pytest.mark.parametrize("shift", [2, *before_release(1, 3, 4, 5)])
def test_an_absence_in_every_phase_of_taking_over(shift, grid, judge):
    """A second party is late in each round trip around the first one's return."""
    plan = [Away("r1c1", 34, 58), Away("r2c1", 59 + shift, 71 + shift, late=True)]
    trained = train(grid, "lbfgs", *plan)
    check(trained, grid, judge, times=len(returns(trained)), loss="logistic")
    assert returns(trained)


def test_one_who_is_back_waits_while_another_is_away(grid):
    """HyFDCA goes on among those who began it; the model then lacks nobody's features."""
    trained = train(
        grid, "lbfgs", Away("r1c1", 34, 60), Away("r2c2", 34, 10**6), iterations=60, gap=1e-12
    )
    assert trained.result.gone == ("r1c1", "r2c2")
    assert trained.result.certificate is None
    assert not returns(trained)
    assert sorted(trained.model.features) == sorted(
        {name for tiles in grid.parties.values() for tile in tiles for name in tile.features}
    )


def test_where_too_few_are_left_for_a_sum_the_run_stops_with_what_is_proved(tables):
    """All groups of a 3×3 grid have three holders; without one, no sum may be opened."""
    split = SPLITS["grid"](tables.breast(90), k=3, q=3)
    settings = Settings(
        lam=LAM, loss="logistic", gap=1e-7, solver="lbfgs", patience=0.0, when_missing="hyfdca",
        norms="cohort",
    )  # fmt: skip
    with absences(Away("r2c2", 34, 10**6)):
        result = Federation(split.parties, terms=Terms()).train(settings).result
    assert result.gone == ("r2c2",)
    assert result.certificate is not None
    assert not any("HyFDCA" in note for note in result.notes)


# ── other cuts and other problems ─────────────────────────────────────────────────────────


CUTS = {
    "rows": ("lbfgs", "rows", {"parties": 3}, {}),
    "columns": ("cutting-planes", "columns", {"parties": 3}, {}),
    "labels at first": ("lbfgs", "grid", {"k": 2, "q": 2, "labels": "first"}, {}),
    "folds": ("cutting-planes", "grid", {"k": 2, "q": 2}, {"folds": 2, "gap": 1e-3}),
    "a path": ("lbfgs", "grid", {"k": 2, "q": 2}, {"path": (1e-3,), "lam": 1e-4}),
}


@pytest.mark.parametrize("name", some_of(CUTS, "folds"))
def test_every_cut_and_list_of_problems(name, tables, judge):
    solver, way, options, changes = CUTS[name]
    split = SPLITS[way](tables.breast(160), **options)
    who = list(split.parties)[-1]
    trained = train(split, solver, Away(who, 22, 50), **changes)
    lam = changes.get("lam", LAM)
    check(trained, split, judge, times=1, loss=SOLVERS[solver][0], lam=lam)
    stages = trained.result.stages
    assert len(stages) == 1 + len(changes.get("path", ()))
    assert all(stage.certificate.gap <= trained.settings.gap for stage in stages)


@pytest.mark.parametrize("solver", ["cutting-planes", *before_release("lbfgs")])
def test_pads_change_no_bit(solver, tables):
    split = SPLITS["grid"](tables.breast(80), k=2, q=2, labels="first")
    first = 24
    plan = [Away("r1c1", first, first + 22), Away("r2c2", first + 30, first + 50, late=True)]
    plain, pad = (
        outcome(train(split, solver, *plan, cipher=c, gap=1e-3)) for c in ("plain", "pad")
    )
    assert any("is back" in note for note in plain[3])
    assert plain == pad


# ── time ──────────────────────────────────────────────────────────────────────────────────


def test_patience_is_that_of_the_channel(grid, judge):
    """A channel that repeats what was recorded tells the recorded time: nobody looks elsewhere."""
    told = {"now": 0.0}

    def pause(_, seconds):
        told["now"] += seconds

    with (
        patch.object(LocalChannel, "elapsed", property(lambda _: told["now"])),
        patch.object(LocalChannel, "pause", pause),
    ):
        trained = train(grid, "lbfgs", Away("r1c2", 34, 90), patience=60.0)
    check(trained, grid, judge, times=1, loss="logistic")
    assert 55.0 < told["now"] < 62.0
    assert trained.result.history[-1].wall_seconds == pytest.approx(told["now"])


def test_where_only_the_certificate_is_missing_the_run_waits_for_the_party_again(grid, judge):
    """HyFDCA is at the gap asked for as soon as it stands in."""
    told = {"now": 0.0}

    def pause(_, seconds):
        told["now"] += seconds

    with (
        patch.object(LocalChannel, "elapsed", property(lambda _: told["now"])),
        patch.object(LocalChannel, "pause", pause),
    ):
        how = {"lam": 1e-3, "gap": 2e-2, "patience": 60.0}
        last = train(grid, "lbfgs", **how).result.history[-1].round_trips
        back = train(grid, "lbfgs", Away("r1c2", last - 1, last + 70), **how)
        gone = train(grid, "lbfgs", Away("r1c2", last - 1, 10**6), **how)
    check(back, grid, judge, times=1, loss="logistic", lam=1e-3)
    assert any(record.present == 3 for record in back.result.history)
    assert gone.result.gone == ("r1c2",)
    assert gone.result.stopped.startswith("estimated gap")
    assert gone.result.certificate is None


# ── what travels ──────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def recorded(tables):
    split = SPLITS["grid"](tables.breast(80), k=2, q=3)
    plan = [Away("r1c2", 24, 50), Away("r2c3", 58, 80, late=True)]
    return split, train(split, "lbfgs", *plan, cipher="pad", record=True)


def test_an_audit_knows_every_field_and_finds_nothing_readable(recorded):
    split, trained = recorded
    assert len(returns(trained)) == 2
    transcript = trained.channel.transcript
    phases = {entry.phase for entry in transcript}
    assert {"subspace.fallback", "subspace.here", "subspace.inherit", "hyfdca.step"} <= phases
    found = audit(Head("a run", list(split.parties), "pad"), entries_of(transcript))
    # The party's hash has replies that were lost on their way, which no recording shows.
    assert found.findings.keys() == {"seen"}
    assert found.findings["seen"].count == 1
    assert {line.verdict(coordinator=True) for line in found.coordinator} == {"hidden", "public"}


def test_no_pad_is_used_twice(recorded):
    _, trained = recorded
    words, turns = [], {}
    for entry in trained.channel.transcript:
        for field, value in entry.reply.items():
            if isinstance(value, bytes) and field in KIND_CODES:
                words.append(words_of(read_block(value, field), field).ravel())
            elif isinstance(value, bytes) and "serial" in entry.message:
                where = (entry.party, entry.message["serial"], field)
                assert turns.setdefault(where, value) == value
    every = np.concatenate(words)
    assert len(every) > 10_000
    assert len(np.unique(every)) == len(every)


def test_who_is_away_is_asked_for_nothing(recorded):
    """Whether it is there: an empty message, and an empty reply."""
    _, trained = recorded
    asked = [entry for entry in trained.channel.transcript if entry.phase == "subspace.here"]
    assert len(asked) >= 5
    assert all(entry.message == {} and entry.reply == {} for entry in asked)


_STEP = {"iteration": 9, "ack": 0, "gamma": 1.0}
_INHERIT = {
    "iteration": 9,
    "inherit.number": 1,
    "inherit.ack": 0,
    "by_rows": False,
    "moved": np.ones((2, 1)),
}


@pytest.mark.parametrize(
    ("phase", "fields", "why"),
    [
        (INHERIT, {**_INHERIT, "serial": 1}, "comes after phase"),
        (INHERIT, _INHERIT, "no α that could be taken over"),
        (STEP, _STEP, "comes too early"),
    ],
    ids=["again", "next", "hyfdca"],
)
def test_nothing_of_hyfdca_is_answered_unless_somebody_is_away(phase, fields, why, grid):
    federation = Federation(grid.parties)
    federation.train(Settings(lam=1e-2, gap=1e-2, solver="lbfgs", loss="logistic", cipher="plain"))
    party = federation.parties["r1c1"]
    if phase is INHERIT:
        fields = {"serial": party._half._serial + 1, **fields}
    with pytest.raises(ProtocolError, match=why):
        party.on(phase, phase.read_request(fields | {"round": 10**6}))
