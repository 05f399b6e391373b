"""Lost requests, late and damaged replies in the fast solvers: asked again, or stopped."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product
from unittest.mock import patch

import msgspec
import numpy as np
import pytest

from covering import cover
from interposed import short_keys
from weft.errors import ProtocolError
from weft.federation.local_federation import Preprocessing
from weft.protocol import fields_of
from weft.solvers.subspace import ask_until_answered
from weft.solvers.subspace.messages import SPREAD

PREPARATION = Preprocessing(intercept=True)
RUNS = {
    "cutting planes": {"solver": "cutting-planes"},
    "groups": {"solver": "cutting-planes", "groups": 3},
    "lbfgs": {"solver": "lbfgs", "loss": "logistic"},
    "newton": {"solver": "newton-cg", "loss": "logistic", "iterations": 2},
    "path and folds": {"solver": "cutting-planes", "path": (0.5,), "folds": 2},
}
PHASES = ("spread", "search", "gather", "point", "close", "follow")
#: Costs, and what repeated questions add to them.
COSTS = ("bytes_down", "bytes_up", "compute_seconds", "wall_seconds", "round_trips")


@pytest.fixture(autouse=True)
def impatient():
    """Ask again at once: nobody needs time to recover here."""
    with patch.object(ask_until_answered, "_FIRST_PAUSE", 1e-3):
        yield


def settings_of(quick, run, **changes):
    base = {"iterations": 4, "patience": 5.0, "when_missing": "stop"}
    return quick(**{**base, **RUNS[run], **changes})


def outcome(simulation):
    """All that must not depend on who had to be asked twice."""
    model = simulation.model()
    history = [asdict(record) for record in simulation.result.history]
    for record in history:
        for cost in COSTS:
            del record[cost]
    stages = [(stage.lam, stage.certificate, stage.scores) for stage in simulation.result.stages]
    return model.coef.tobytes(), model.intercept.tobytes(), history, stages


def run_through(simulate, tiles, settings, plan=None):
    simulation = simulate(tiles, settings, PREPARATION, plan=plan)
    simulation.go()
    return simulation


def at(phase, party, *calls, fault="lost"):
    """A plan with one kind of fault at some calls of one phase at one party."""
    where = (f"subspace.{phase}", party)
    return lambda f, p, n: fault if (f, p) == where and n in calls else None


# ── asked again ───────────────────────────────────────────────────────────────────────────


@cover(
    ("run", "fault"),
    [("cutting planes", "lost"), ("newton", "dead"), ("path and folds", "lost")],
    others=product(RUNS, ["dead", "lost"]),
)
def test_a_party_that_fails_once_in_any_phase_is_asked_again_and_no_bit_changes(
    patchwork, simulate, quick, run, fault
):
    tiles = patchwork(unlabelled=("east",))
    settings = settings_of(quick, run)
    quiet = outcome(run_through(simulate, tiles, settings))

    def plan(phase, party, call):
        """Every party once in every phase, and south twice in a row."""
        if not phase.startswith("subspace."):
            return None
        return fault if call == 1 or (party == "south" and call == 2) else None

    simulation = run_through(simulate, tiles, settings, plan)
    expected = {f"subspace.{phase}" for phase in PHASES}
    expected |= {"subspace.evaluate"} if settings.folds else set()
    assert {phase for phase, _ in simulation.faults.happened} == expected
    assert outcome(simulation) == quiet
    for party in tiles:
        assert any(f"waiting for {party}" in note for note in simulation.result.notes)


@cover(
    ("run", "seed"),
    [("path and folds", 0)],
    others=product(RUNS, range(2)),
)
def test_random_faults_in_a_fifth_of_all_answers_change_no_bit(
    patchwork, simulate, quick, run, seed
):
    tiles = patchwork(unlabelled=("east",), seed=seed)
    settings = settings_of(quick, run)
    quiet = outcome(run_through(simulate, tiles, settings))
    random = np.random.default_rng(seed)

    def plan(phase, party, call):
        draw = random.random()
        if not phase.startswith("subspace.") or draw > 0.2:
            return None
        return "dead" if draw < 0.1 else "lost"

    simulation = run_through(simulate, tiles, settings, plan)
    assert sum(simulation.faults.happened.values()) > 10
    assert outcome(simulation) == quiet


@cover(
    ("run", "cipher"),
    [("groups", "bfv"), ("lbfgs", "paillier")],
    others=product(["groups", "lbfgs"], ["plain", "bfv", "paillier"]),
)
def test_other_ciphers_can_be_asked_again_too(patchwork, simulate, quick, cipher, run):
    tiles = patchwork(unlabelled=("east",))
    quiet = outcome(run_through(simulate, tiles, settings_of(quick, run, iterations=2)))

    def plan(phase, party, call):
        silent = phase.startswith("subspace.") and party != "north" and call == 1
        return "lost" if silent else None

    with short_keys():
        settings = settings_of(quick, run, iterations=2, cipher=cipher)
        simulation = run_through(simulate, tiles, settings, plan)
    assert sum(simulation.faults.happened.values()) > 5
    assert outcome(simulation) == quiet


@pytest.mark.parametrize("run", ["cutting planes", "lbfgs"])
def test_a_party_that_answers_late_is_asked_again_and_no_bit_changes(
    patchwork, simulate, quick, run, monkeypatch
):
    tiles, settings = patchwork(), settings_of(quick, run)
    quiet = outcome(run_through(simulate, tiles, settings))
    # By a clock that only goes on where somebody is slow, however busy the machine.
    now = [0.0]
    monkeypatch.setattr("weft.protocol.channel.perf_counter", lambda: now[0])

    def slowly(reply):
        now[0] += 0.35
        return reply

    simulation = simulate(tiles, settings, PREPARATION, plan=at("search", "south", 2, fault=slowly))
    simulation.channel._timeout = 0.3
    simulation.go()
    assert outcome(simulation) == quiet
    assert any("no reply within 0.3 s" in note for note in simulation.result.notes)


def test_scalars_of_a_question_asked_twice_are_the_same_under_the_same_masks(
    patchwork, simulate, quick
):
    """Two different answers under one mask would show their difference."""
    settings = settings_of(quick, "cutting planes")
    plan = at("search", "south", 1, 2, 4)
    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan)
    answers = {}

    def listening(name, party):
        def on(phase, message):
            reply = party.on(phase, message)
            asked, said = fields_of(message), fields_of(reply)
            for field in ("losses", "offsets", "gram", "norms"):
                if field in said and "serial" in asked:
                    answers.setdefault((name, asked["serial"], field), []).append(said[field])
            return reply

        return simulation.faults.around(name, on)

    for name, party in simulation.parties.items():
        simulation.channel._handlers[name] = listening(name, party)
    simulation.go()
    assert sum(simulation.faults.happened.values()) == 3
    twice = [found for found in answers.values() if len(found) > 1]
    # Two questions, of which one was put three times, with losses and offsets each, to all four.
    assert sorted(map(len, twice)) == [2] * 8 + [3] * 8
    assert all(len(set(found)) == 1 for found in answers.values())


# ── stopped ───────────────────────────────────────────────────────────────────────────────


def cut_short(field):
    def damage(reply):
        reply[field] = reply[field][:-1]
        return reply

    return damage


def without(field):
    def damage(reply):
        del reply[field]
        return reply

    return damage


def instead(field, value):
    def damage(reply):
        reply[field] = value
        return reply

    return damage


def foreign_slot(reply):
    slots = reply["alpha_slots"].copy()
    slots[0] = 10_000
    reply["alpha_slots"] = slots
    return reply


def flipped(field):
    """One bit of the last word, which only a reader can notice."""

    def damage(reply):
        packed = bytearray(reply[field])
        packed[-1] ^= 0x80
        reply[field] = bytes(packed)
        return reply

    return damage


DAMAGE = [
    ("spread", cut_short("gram")),
    ("spread", without("gram")),
    ("spread", instead("gram", 1.0)),
    ("spread", cut_short("z")),
    ("spread", instead("z", b"noise")),
    ("spread", without("z")),
    ("search", cut_short("losses")),
    ("search", without("offsets")),
    ("search", cut_short("alpha")),
    ("search", foreign_slot),
    ("search", without("alpha_slots")),
    ("gather", cut_short("sizes")),
    ("follow", cut_short("v")),
    ("follow", without("v")),
    ("point", cut_short("norms")),
    ("point", cut_short("z")),
    ("close", without("losses")),
]


#: Where all have labels, they tell vectors at once.
LABELLED = [
    ("search", cut_short("v")),
    ("search", instead("v", 3.0)),
    ("search", without("v")),
    ("gather", cut_short("v")),
]


@pytest.mark.parametrize(
    ("phase", "damage", "unlabelled"),
    [(*each, ("east",)) for each in DAMAGE] + [(*each, ()) for each in LABELLED],
)
def test_a_damaged_reply_stops_the_run_and_names_the_party(
    patchwork, simulate, quick, phase, damage, unlabelled
):
    # South posts for some of its cohorts only; north speaks for the others.
    party = "east" if phase == "follow" else "south"
    call = 1 if phase in ("gather", "point", "close") else 2
    simulation = simulate(
        patchwork(unlabelled=unlabelled),
        settings_of(quick, "cutting planes"),
        plan=at(phase, party, call, fault=damage),
    )
    with pytest.raises(ProtocolError, match=f"party {party}") as caught:
        simulation.go()
    assert "\n" not in str(caught.value)
    assert sum(simulation.faults.happened.values()) == 1


@pytest.mark.parametrize(("phase", "field"), [("spread", "z"), ("search", "v"), ("follow", "v")])
def test_a_word_changed_on_its_way_stops_the_run_at_its_reader(
    patchwork, simulate, quick, phase, field
):
    party = "east" if phase == "follow" else "north"
    simulation = simulate(
        patchwork(unlabelled=() if phase == "search" else ("east",)),
        settings_of(quick, "cutting planes"),
        PREPARATION,
        plan=at(phase, party, 2, fault=flipped(field)),
    )
    with pytest.raises(ProtocolError, match="party ") as caught:
        simulation.go()
    assert "\n" not in str(caught.value)


def test_a_party_that_lost_its_memory_is_refused_in_one_clear_sentence(patchwork, simulate, quick):
    """It was started again in the middle of a run, as after a crash."""
    settings = settings_of(quick, "cutting planes")
    simulation = simulate(patchwork(), settings, PREPARATION)

    def restart(record):
        if record.iteration == 3:
            simulation.parties["south"].training.half = None
            simulation.parties["south"]._start(simulation.start)

    with pytest.raises(ProtocolError, match=r"party south: .*has lost its memory; start") as caught:
        simulation.go(progress=restart)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("run", ["cutting planes", "lbfgs"])
def test_a_phase_that_was_missed_is_noticed(patchwork, simulate, quick, run):
    """A reply in the party's name by somebody else: the party itself never saw the question."""
    settings = settings_of(quick, run)
    replies = []

    def plan(phase, party, call):
        if (phase, party) != ("subspace.search", "south"):
            return None
        return (lambda reply: replies.append(reply) or reply) if call == 1 else None

    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan)
    handler = simulation.channel._handlers["south"]

    def skipping(phase, message):
        if phase is SPREAD and message.iteration == 3:
            message = msgspec.structs.replace(message, serial=message.serial + 1)
        return handler(phase, message)

    simulation.channel._handlers["south"] = skipping
    with pytest.raises(ProtocolError, match=r"party south: phase \d+ of this run comes after"):
        simulation.go()
    assert replies
