"""What every method in rounds keeps: the same bits under all ciphers, as bytes, and when resumed;
nothing readable for the coordinator; lost replies that change nothing."""

from __future__ import annotations

import re
from dataclasses import replace
from functools import cache
from itertools import product

import numpy as np
import pytest

from covering import cover, some_of
from interposed import cut, outcome, quick, train
from small_federations import rough_curvature
from weft.crypto.ciphers.block_format import KIND_CODES
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.privacy.audit.audit_of_a_recording import audit
from weft.protocol import fields_of, phase_named
from weft.protocol.declared_message_fields import declared
from weft.protocol.recording_file import Head, entries_of
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.rounds.coordinator import RoundCoordinator
from weft.solvers.rounds.messages import KINDS, SCALARS, RoundRequest
from weft.solvers.rounds.party import RoundParty
from weft.solvers.solver_interfaces_and_results import Checkpointing

METHODS = {
    name: algorithm
    for name, algorithm in ALGORITHMS.items()
    if isinstance(algorithm.coordinator(), RoundCoordinator)
}
#: Further runs of a method, which take other paths through it.
VARIANTS = {
    "fedavg, full gradients": ("fedavg", {"gradient": "full", "steps": 2}),
    "fedhybrid, one of Newton's type": ("fedhybrid", {"newton": 1}),
    "hyfem, avg": ("hyfem", {"variant": "avg"}),
    "disco, first": ("disco", {"precondition": "first"}),
    "disco, diagonal": ("disco", {"precondition": "diagonal"}),
}
RUNS = {**{name: (name, {}) for name in METHODS}, **VARIANTS}
CUTS = {
    "any": ("hybrid 2×2", "overlap", "labels at first", "multi-class"),
    "rows": ("horizontal",),
    "columns": ("vertical", "labels at first"),
    "whole": ("whole",),
}
CASES = [(run, name) for run, (method, _) in RUNS.items() for name in CUTS[METHODS[method].cut]]
#: Every path through the shared code of rounds: both ways, rows, columns, one party, Newton's.
SOME = ("fedavg", "fedhybrid, one of Newton's type", "hyfem", "feddcd", "fedbcd", "d3ca", "admm")
some_runs = pytest.mark.parametrize("run", some_of(RUNS, *SOME))
#: Those, and every cut.
some_cases = cover(
    ("run", "name"), [case for case in CASES if case[0] in SOME], others=CASES, ids=str
)
#: Those that let parties stay away.
LOOSE = [run for run, (method, _) in RUNS.items() if not METHODS[method].everyone]


def settings_of(run, **changes):
    method, options = RUNS[run]
    how = {"solver": method, "options": options, "loss": "logistic", "certify_every": 3}
    return quick(**{"iterations": 5, "lam": 0.02, **how, **changes})


def split_of(name):
    if name != "whole":
        return cut(name)
    split = cut("horizontal")
    table = cut("vertical")
    first = next(iter(split.parties.values()))[0]
    tiles = [tile for held in split.parties.values() for tile in held]
    whole = type(first).make(
        np.concatenate([tile.ids for tile in tiles]),
        first.features,
        np.concatenate([tile.block for tile in tiles]),
        np.concatenate([tile.labels for tile in tiles]),
    )
    return replace(table, parties={"all": (whole,)})


@cache
def in_the_clear(run, name, participation="everyone"):
    settings = settings_of(run, cipher="plain", participation=participation)
    return outcome(train(split_of(name), settings))


@cache
def recorded(run, name):
    """The same under pads: a federation, and what came of its run with all that travelled."""
    split = split_of(name)
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap), record=True)
    with rough_curvature():
        return federation, federation.train(settings_of(run, cipher="pad"))


@some_cases
def test_pads_change_no_bit(run, name):
    assert outcome(recorded(run, name)[1]) == in_the_clear(run, name)


@cover(
    ("run", "cipher"),
    [("fedavg", "paillier"), ("d3ca", "bfv")],
    others=product(METHODS, ["bfv", "paillier"]),
)
def test_lattices_and_paillier_change_no_bit(run, cipher):
    name = CUTS[METHODS[run].cut][0]
    settings = settings_of(run, cipher=cipher)
    assert outcome(train(split_of(name), settings)) == in_the_clear(run, name)


@pytest.mark.parametrize(
    "run",
    some_of(RUNS, "feddcd", "admm"),
)
def test_messages_that_travel_as_bytes_give_the_same_bits(run):
    name = CUTS[METHODS[RUNS[run][0]].cut][-1]
    trained = train(split_of(name), settings_of(run, cipher="pad"), packed=True)
    assert outcome(trained) == in_the_clear(run, name)


@cover(
    ("run", "cipher"),
    [("fedavg", "pad"), ("feddcd", "pad")],
    others=product(LOOSE, ["pad", "bfv"]),
)
def test_parties_that_come_and_go_give_the_same_bits_under_every_cipher(run, cipher):
    name = CUTS[METHODS[RUNS[run][0]].cut][0]
    trained = train(split_of(name), settings_of(run, cipher=cipher, participation=0.7))
    assert outcome(trained) == in_the_clear(run, name, 0.7)
    assert {record.present for record in trained.result.history} != {len(trained.holdings.parties)}


class PowerCutError(Exception):
    """Not one of Weft's own errors."""


@some_runs
def test_a_resumed_run_ends_with_the_same_bits(run, tmp_path):
    name = CUTS[METHODS[RUNS[run][0]].cut][0]
    # Certificates in progress are given up at a resumption: none is, at these iterations.
    settings = settings_of(run, cipher="pad", iterations=8, certify_every=5)
    whole = train(split_of(name), settings)

    def cut_off(record):
        if record.iteration == 5:
            raise PowerCutError

    split, store = split_of(name), tmp_path / "checkpoints"
    first = Checkpointing(store, 4)
    with pytest.raises(PowerCutError):
        train(split, settings, store=store, checkpointing=first, progress=cut_off)
    again = train(split, settings, store=store, checkpointing=replace(first, resume=True))
    assert outcome(again)["coef"] == outcome(whole)["coef"]
    assert outcome(again)["certificate"] == outcome(whole)["certificate"]
    assert len(again.result.history) == len(whole.result.history) == 8


# ── who sees what ─────────────────────────────────────────────────────────────────────────


@some_cases
def test_an_audit_knows_every_field_and_finds_nothing_readable(run, name):
    federation, trained = recorded(run, name)
    transcript = trained.channel.transcript
    found = audit(Head("a run", list(federation.parties), "pad"), entries_of(transcript))
    # A single party has nobody to hide its totals among.
    if len(federation.parties) > 1 and name != "labels at first":
        assert found.findings == {}
    for entry in transcript:
        phase = phase_named(entry.phase)
        # Both refuse fields that are missing, unknown or of another form than declared.
        assert fields_of(phase.read_request(entry.message)).keys() == entry.message.keys()
        assert fields_of(phase.read_reply(entry.reply)).keys() == entry.reply.keys()


@some_runs
def test_no_party_gets_a_slot_outside_of_its_rows_and_columns(run):
    federation, trained = recorded(run, CUTS[METHODS[RUNS[run][0]].cut][0])
    for entry in trained.channel.transcript:
        if not entry.phase.startswith(("rounds.", "measure.")):
            continue
        view = federation.parties[entry.party].view
        for kind in KIND_CODES:
            if kind not in entry.message:
                continue
            most = view.n_shared_columns if kind == "v" else view.n_shared_rows
            # A block's body holds eight bytes a value.
            assert len(entry.message[kind]) <= 8 * most + 64 + 16 * most


# ── faults ────────────────────────────────────────────────────────────────────────────────


def train_with_faults(run, lose, **changes):
    """Train where ``lose(phase, party, call)`` drops a reply; returns the trained and the calls."""
    split = split_of(CUTS[METHODS[RUNS[run][0]].cut][0])
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap))
    calls = {}

    def through(channel):
        handlers = channel._handlers

        def around(party, handler):
            def answer(phase, message):
                reply = handler(phase, message)
                key = (phase.name, party)
                calls[key] = calls.get(key, 0) + 1
                if lose(*key, calls[key]):
                    raise ConnectionError("the reply was lost")
                return reply

            return answer

        channel._handlers = {p: around(p, h) for p, h in handlers.items()}
        return channel

    return federation.train(settings_of(run, **changes), through=through)


@pytest.mark.parametrize(
    "run",
    some_of(LOOSE, "feddcd"),
)
def test_a_lost_reply_is_taken_back_and_the_run_goes_on(run):
    lost = train_with_faults(
        run,
        lambda phase, party, call: phase == "rounds.local" and party.endswith("1") and call == 3,
        iterations=40,
    )
    plain = train_with_faults(run, lambda *_: False, iterations=40)
    assert any("failed" in note for note in lost.result.notes)
    assert lost.result.certificate.iteration == 40
    assert lost.result.history[2].present < plain.result.history[2].present
    assert lost.result.certificate.primal[0] == pytest.approx(
        plain.result.certificate.primal[0], rel=0.05
    )


@pytest.mark.parametrize("silent", [False, True])
def test_a_model_that_is_older_than_the_last_iteration_says_so(silent):
    """Where somebody stops telling measurements, that of the last certificate is released."""
    trained = train_with_faults(
        "fedavg",
        lambda phase, party, call: (
            silent and phase.startswith("measure") and party.endswith("1") and call > 2
        ),
        iterations=12,
    )
    result = trained.result
    notes = [note for note in result.notes if "the model released" in note]
    if silent:
        assert 0 < result.certificate.iteration < 12
        (said,) = notes
        assert f"that of iteration {result.certificate.iteration}," in said
    else:
        assert (result.certificate.iteration, notes) == (12, [])
    assert result.model_iteration == result.certificate.iteration


def test_a_mean_that_was_lost_while_a_point_is_measured_is_caught_up_with():
    trained = train_with_faults(
        "feddcd",
        lambda phase, party, call: phase == "rounds.merge" and party.endswith("1") and call == 4,
        iterations=40,
    )
    assert any("failed" in note for note in trained.result.notes)
    assert trained.result.certificate.gap < 1e-6


@pytest.mark.parametrize(
    ("participation", "sentence"),
    [(0.34, "two parties or more in every iteration"), ({"cyclic": 2}, "two parties|never meet")],
    ids=str,
)
def test_feddcd_refuses_parties_that_never_mix(participation, sentence):
    with pytest.raises(ConfigError, match=sentence):
        train(split_of("horizontal"), settings_of("feddcd", participation=participation))


@pytest.mark.parametrize("run", ["fedavg", "cocoa", "fedhybrid", "disco"])
def test_the_weights_that_the_coordinator_saw_are_those_of_the_model(run):
    settings = settings_of(run, coordinator_sees="weights")
    trained = train(split_of("horizontal"), settings)
    seen = sorted(trained.result.weights.ravel().tolist())
    assert seen == sorted(trained.model.coef.ravel().tolist())


@pytest.mark.parametrize("run", [run for run in METHODS if METHODS[run].everyone])
def test_a_method_that_needs_everyone_says_who_is_missing(run):
    name = re.escape(f"solver '{run}'")
    with pytest.raises(ProtocolError, match=f"{name} needs every party, but .* did not"):
        train_with_faults(run, lambda phase, party, call: phase == "rounds.local" and call == 3)


def test_a_party_takes_back_what_was_never_received():
    split = split_of("hybrid 2×2")
    federation = Federation(split.parties, Preprocessing(overlap=split.overlap))
    federation.train(settings_of("fedavg"))
    for party in federation.parties.values():
        half = party._half
        assert isinstance(half, RoundParty)
        before = {name: array.copy() for name, array in half._before.items()}
        half.settle(half._sequence - 1)
        for name, array in half.variables().items():
            assert np.array_equal(array, before[name])


def test_every_sum_of_a_step_can_go_down_and_come_up_under_pads():
    """What registering an algorithm admits is declared in requests and in replies."""
    down = {field.name for field in declared(RoundRequest)}
    assert KINDS == ("v", "z", "delta")
    assert {*KINDS, *(f"{kind}_pads" for kind in KINDS)} <= down
    assert SCALARS == ("objective", "residual")
