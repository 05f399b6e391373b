"""Lost requests, lost replies, damaged replies: training goes on, and nothing false is claimed."""

from __future__ import annotations

from dataclasses import asdict
from itertools import product

import numpy as np
import pytest

from covering import cover, every_value
from weft.crypto.ciphers.block_format import pack_block, read_block, words_of
from weft.data import Tile
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation, Preprocessing
from weft.protocol.phase_with_request_and_reply import phase_named
from weft.solvers.hyfdca.messages import STEP
from weft.sums.table_scaling_and_certificate_messages import FREEZE

PREPARATION = Preprocessing(intercept=True)
UNIT_ROWS = Preprocessing(intercept=True, unit_rows=True)
MOVING = ("hyfdca.weights", "hyfdca.step", "hyfdca.dual", "hyfdca.again")


def prepared(local):
    """Only ``safe`` steps need no rows of norm one, for which norms are found in twenty trips."""
    return PREPARATION if local == "safe" else UNIT_ROWS


def at(phase, party, *calls, fault="lost"):
    """A plan with one kind of fault at some calls of one phase at one party."""
    return lambda f, p, n: fault if (f, p) == (phase, party) and n in calls else None


def by_chance(share, seed, phases=MOVING, spared=("north", "south")):
    """A plan that drops that share of the requests and replies, but not at all parties."""
    rng = np.random.default_rng(seed)

    def plan(phase, party, call):
        draw = rng.random()
        if phase not in phases or party in spared or draw >= share:
            return None
        return "dead" if draw < share / 2 else "lost"

    return plan


def assert_both_sides_agree(simulation):
    """What holders read in the totals is the sum of what the parties believe to have sent."""
    run, roster = simulation.run, simulation.holdings
    simulation.settle()
    sent = {
        "z": np.zeros((roster.rows.n_shared, run.classes), np.int64),
        "v": np.zeros((roster.columns.n_shared, run.classes), np.int64),
    }
    opened = {totals.kind: simulation.opened(totals) for totals in (run.z, run.v, run.alpha)}
    for name in roster.parties:
        half = simulation.half(name)
        sent["z"][run.z.layout.own[name]] += half.z_sum.sent
        sent["v"][run.v.layout.own[name]] += half.v_sum.sent
        # A party that missed iterations is told of them when it returns.
        rows = run.alpha.layout.own[name]
        told = run.alpha.changed.stamp[rows] <= run.seen[name]
        posted = half.alpha_wire._format.decode(opened["alpha"][name])
        assert np.array_equal(half.alpha[: len(rows)][told], posted[told]), name
        # Feature sums are those of the party's own α, and what was sent is what they are.
        fresh = np.zeros_like(half.v)
        half.table.accumulate(None, half.alpha, fresh)
        assert np.allclose(half.v, fresh, atol=1e-11), name
        on_grid = half.v_sum._format.decode(half.v_sum.sent)
        if run.seen[name] == run.iteration:
            assert np.allclose(on_grid, half.v[: len(on_grid)] / roster.n_samples, atol=1e-11), name
    for name in roster.parties:
        assert np.array_equal(opened["z"][name], sent["z"][run.z.layout.own[name]]), name
        assert np.array_equal(opened["v"][name], sent["v"][run.v.layout.own[name]]), name


def assert_certified_as_centrally(simulation):
    """The last certificate is P − D of the pooled table, at the α that both sides hold."""
    certificate = simulation.result.certificate
    assert certificate is not None
    assert certificate.iteration == simulation.run.iteration
    factor = next(iter(simulation.parties.values())).data._scaler.row_factor
    judge = simulation.judge()
    judge.x = judge.x * factor
    primal, dual = judge.objectives(simulation.alpha())
    assert np.allclose(certificate.primal, primal, rtol=1e-8)
    assert np.allclose(certificate.dual, dual, rtol=1e-8, atol=1e-10)


@cover(
    ("phase", "local", "unlabelled", "fault"),
    [
        (MOVING[0], "safe", ("east",), "dead"),
        (MOVING[1], "practical", (), "lost"),
        (MOVING[2], "theory", ("east",), "lost"),
    ],
    others=product(MOVING[:3], ["safe", "practical", "theory"], [(), ("east",)], ["dead", "lost"]),
)
def test_totals_stay_consistent_after_one_party_misses_a_phase_now_and_then(
    patchwork, simulate, quick, phase, local, unlabelled, fault
):
    tiles = patchwork(unlabelled=unlabelled)
    # Each party meets both faults, one of them with labels everywhere and the other without.
    first = (fault == "dead") == bool(unlabelled)
    for party in list(tiles)[first::2]:
        plan = at(phase, party, 3, 6, 7, 11, 13, fault=fault)
        # Squared loss: hinge would hide a difference once both sides reach the end of the box.
        settings = quick(loss="squared", local=local, iterations=13)
        simulation = simulate(tiles, settings, prepared(local), plan=plan)
        simulation.go()
        if simulation.faults.calls[phase, party] >= 3:
            assert simulation.faults.happened[phase, party]
            assert any(party in note for note in simulation.result.notes)
        assert_both_sides_agree(simulation)
        assert_certified_as_centrally(simulation)


@every_value(
    local=["safe", "practical", "theory"],
    unlabelled=[(), ("east",)],
    participation=["everyone", 0.75, {"cyclic": 2}],
)
def test_totals_stay_consistent_under_random_faults(
    patchwork, simulate, quick, local, unlabelled, participation
):
    # Those who never fail, and with them the loss, meet every value of the three, and every pair.
    turn = ["safe", "practical", "theory"].index(local) + len(unlabelled)
    turn += ["everyone", 0.75, {"cyclic": 2}].index(participation)
    spared = (("north", "south"), ("east", "west"))[turn % 2]
    seed = len(local) + len(unlabelled) + len(str(participation))
    loss = "hinge" if "north" in spared else "squared"
    settings = quick(loss=loss, local=local, participation=participation, seed=seed, iterations=20)
    phases = (*MOVING, "certify.freeze", "certify.products", "certify.losses")
    plan = by_chance(0.3, seed, phases, spared)
    tiles = patchwork(seed=seed, unlabelled=unlabelled)
    simulation = simulate(tiles, settings, prepared(local), plan=plan)
    simulation.go()
    assert sum(simulation.faults.happened.values()) > 10
    assert len(simulation.result.history) == 20
    assert_both_sides_agree(simulation)
    assert_certified_as_centrally(simulation)


@cover(
    ("local", "unlabelled", "participation"),
    [("practical", ("east",), 0.75)],
    others=product(
        ["safe", "practical", "theory"], [(), ("east",)], ["everyone", 0.75, {"cyclic": 2}]
    ),
)
def test_faults_have_the_same_consequences_under_encryption(
    patchwork, simulate, quick, local, unlabelled, participation
):
    """Whoever falls silent in mid-sum: the others' sums, and all that follows, are the same."""
    seed = len(local) + len(unlabelled)
    phases = (*MOVING, "certify.freeze", "certify.products", "certify.losses")
    runs = []
    for cipher in ("plain", "pad"):
        settings = quick(
            local=local, participation=participation, seed=seed, iterations=24, cipher=cipher
        )
        plan = by_chance(0.3, seed, phases)
        runs.append(
            simulate(patchwork(unlabelled=unlabelled), settings, prepared(local), plan=plan)
        )
        runs[-1].go()
    plain, padded = runs
    assert plain.faults.happened == padded.faults.happened
    assert sum(plain.faults.happened.values()) > 10
    assert np.array_equal(plain.model().coef, padded.model().coef)
    assert plain.result.certificate == padded.result.certificate
    assert plain.result.notes == padded.result.notes
    costs = ("compute_seconds", "wall_seconds", "bytes_down", "bytes_up")
    for one, other in zip(plain.result.history, padded.result.history, strict=True):
        found = [{k: v for k, v in asdict(r).items() if k not in costs} for r in (one, other)]
        assert found[0] == found[1]


@every_value(
    ids=lambda value: value if isinstance(value, str) else "-".join(value),
    fault=["dead", "lost"],
    silent=[("east",), ("east", "south", "west")],
)
def test_totals_stay_consistent_when_the_stand_in_of_a_silent_sender_is_silent_too(
    patchwork, simulate, quick, silent, fault
):
    """The first holder's step is lost, and so is the second's answer for its cohorts."""

    def plan(phase, party, call):
        if phase == "hyfdca.step" and party == "north" and call in (4, 9):
            return "lost"
        return fault if phase == "hyfdca.again" and party in silent else None

    settings = quick(loss="squared", iterations=10)
    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan)
    simulation.go()
    assert simulation.faults.happened["hyfdca.again", "east"]
    assert_both_sides_agree(simulation)
    assert_certified_as_centrally(simulation)


@every_value(local=["safe", "practical"], fault=["dead", "lost"])
def test_rows_only_federations_survive_faults_in_their_single_phase(
    table, simulate, quick, local, fault
):
    whole = table(n=40)
    tiles = {
        name: (Tile.make(whole.ids[part], whole.features, whole.block[part], whole.labels[part]),)
        for name, part in (("a", slice(0, 25)), ("b", slice(25, 40)))
    }
    plan = at("hyfdca.weights", "a", 2, 3, 9, fault=fault)
    simulation = simulate(tiles, quick(local=local), prepared(local), plan=plan)
    simulation.go()
    assert_both_sides_agree(simulation)
    assert_certified_as_centrally(simulation)


# ── who is gone for good ──────────────────────────────────────────────────────────────────────


@cover(
    ("participation", "local"),
    [(0.75, "safe")],
    others=product(["everyone", 0.75], ["safe", "practical"]),
)
def test_a_party_dead_forever_leaves_a_run_without_a_later_certificate_and_a_note_naming_it(
    patchwork, simulate, quick, local, participation
):
    dead_from = 8

    def plan(phase, party, call):
        return "dead" if party == "south" and len(done) >= dead_from else None

    done = []
    settings = quick(local=local, participation=participation, iterations=30)
    simulation = simulate(patchwork(), settings, prepared(local), plan=plan)
    result = simulation.go(progress=done.append)
    assert result.stopped == "30 iterations"
    assert len(result.history) == 30
    assert any("south" in note for note in result.notes)
    assert all(r.certified_at is None or r.certified_at <= dead_from for r in result.history)
    certificate = result.certificate
    if certificate is not None:
        # It may only be the certificate of the model that is released.
        assert result.model_iteration == certificate.iteration <= dead_from


def test_an_older_certificate_is_not_passed_off_as_that_of_the_model_held_now(
    patchwork, simulate, quick
):
    """Everyone takes part, so parties keep no frozen weights; then one dies for good."""

    def plan(phase, party, call):
        if party == "west" and phase == "hyfdca.step":
            steps.append(call)
        return "dead" if party == "west" and len(steps) >= 6 else None

    steps = []
    simulation = simulate(patchwork(), quick(iterations=20), PREPARATION, plan=plan)
    result = simulation.go()
    assert result.history[-1].certified_at is not None
    assert result.certificate is None or result.model_iteration == result.certificate.iteration
    assert simulation.model().certificate == {} or result.model_iteration is not None


def test_the_certified_model_can_still_be_released_after_two_pairs_that_never_completed(
    patchwork, simulate, quick
):
    """A party stops answering for losses: others have kept the weights of newer pairs."""

    def plan(phase, party, call):
        return "dead" if (phase, party) == ("certify.losses", "west") and call > 1 else None

    settings = quick(participation=0.75, iterations=15, certify_every=1)
    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan)
    result = simulation.go()
    assert simulation.faults.happened["certify.losses", "west"] > 1
    assert result.certificate is not None
    assert result.model_iteration == result.certificate.iteration < 15
    judge = simulation.judge()
    judge.x = judge.x * next(iter(simulation.parties.values())).data._scaler.row_factor
    model = simulation.model()
    w = np.vstack([model.coef.T, model.intercept[None]])
    scores = (judge.x / judge.x[0, -1]) @ w
    primal = judge.loss.value(scores, judge.y).mean()
    assert primal <= result.certificate.primal[0]


@every_value(local=["safe", "practical", "theory"], phase=MOVING[:2])
def test_one_sentence_when_no_party_answers_any_more(patchwork, simulate, quick, local, phase):
    def plan(f, party, call):
        return "dead" if f == phase and call > 4 else None

    simulation = simulate(patchwork(), quick(local=local), prepared(local), plan=plan)
    with pytest.raises(ProtocolError, match=r"no party answered in iteration 5 .*running"):
        simulation.go()


def test_a_party_that_is_gone_before_the_first_iteration_stops_the_setting_up(
    patchwork, simulate, quick
):
    plan = at("hyfdca.norms", "east", 1, fault="dead")
    simulation = simulate(patchwork(), quick(), PREPARATION, plan=plan)
    with pytest.raises(ProtocolError, match="needs every party, but east did not answer"):
        simulation.go()


def test_a_slow_single_party_does_not_end_a_run_in_which_few_take_part(patchwork, simulate, quick):
    """One party an iteration: if that one is silent once, the others go on next time."""
    names = list(patchwork())
    settings = quick(participation={"trace": [[name] for name in names]}, iterations=24)
    plan = at("hyfdca.weights", "east", 2, 4)
    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan)
    simulation.go()
    assert len(simulation.result.history) == 24
    assert_both_sides_agree(simulation)
    assert_certified_as_centrally(simulation)


# ── certificates from complete answers only ──────────────────────────────────────────────────


@every_value(fault=["dead", "lost"], phase=["hyfdca.weights", "hyfdca.step"])
def test_no_certificate_is_issued_in_an_iteration_in_which_somebody_was_silent(
    patchwork, simulate, quick, phase, fault
):
    plan = at(phase, "south", 5, fault=fault)
    simulation = simulate(patchwork(), quick(certify_every=1), PREPARATION, plan=plan)
    result = simulation.go()
    by_iteration = {r.iteration: r.certified_at for r in result.history}
    assert by_iteration[4] == 3
    assert by_iteration[5] == 3  # nothing new while south was silent
    assert by_iteration[6] == 3  # nor while it was catching up
    assert by_iteration[7] == 6
    assert_certified_as_centrally(simulation)


def test_every_certificate_of_a_run_with_faults_bounds_the_true_suboptimality(
    patchwork, simulate, quick
):
    """P of a certificate is never below, and D never above, the optimum of the pooled table."""
    tiles = patchwork()
    settings = quick(iterations=100, gap=1e-6, solver="cutting-planes")
    exact = Federation(tiles, UNIT_ROWS).train(settings).result.certificate
    assert exact.gap <= 1e-6
    optimum = exact.primal[0]
    for seed in range(2):
        faulty = simulate(
            tiles,
            quick(participation=0.5, iterations=25, certify_every=1, seed=seed),
            UNIT_ROWS,
            plan=by_chance(0.2, seed, (*MOVING[:3], "certify.freeze", "certify.losses")),
        )
        faulty.go()
        certified = [r for r in faulty.result.history if r.primal is not None]
        assert certified
        for record in certified:
            assert record.primal >= optimum - 1e-6
            assert record.dual <= optimum + 1e-6


# ── damaged replies ──────────────────────────────────────────────────────────────────────────


def cut_short(field):
    def damage(reply):
        reply[field] = reply[field][:-1]
        return reply

    return damage


def too_wide(field):
    """Two values where there is one, in a block that is well made otherwise."""

    def damage(reply):
        block = read_block(reply[field], "the reply")
        words = np.repeat(words_of(block, "the reply"), 2, axis=1)
        reply[field] = pack_block(
            block.cipher, block.kind, block.key, block.pad_id, *words.shape, words.tobytes()
        )
        return reply

    return damage


def foreign_slot(field, slot):
    def damage(reply):
        slots = reply[f"{field}_slots"].copy()
        slots[0] = slot
        reply[f"{field}_slots"] = slots
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


def repeated(field):
    """The block of the reply before, once more."""
    before = []

    def damage(reply):
        before.append(reply[field])
        reply[field] = before[0]
        return reply

    return damage


def changed(field, byte):
    """One bit of every word, which only its readers can notice."""

    def damage(reply):
        packed = bytearray(reply[field])
        slots = read_block(reply[field], "the reply").slots
        for at_word in range(len(packed) - 8 * slots, len(packed), 8):
            packed[at_word + byte] ^= 0x80
        reply[field] = bytes(packed)
        return reply

    return damage


@pytest.mark.parametrize(
    ("phase", "damage"),
    [
        ("weights", cut_short("z")),
        ("weights", too_wide("z")),
        ("weights", foreign_slot("z", 10_000)),
        ("weights", foreign_slot("z", -1)),
        ("weights", without("z_slots")),
        ("weights", instead("z", b"noise")),
        ("weights", without("sequence")),
        ("step", cut_short("v")),
        ("step", cut_short("alpha")),
        ("step", foreign_slot("alpha", 10_000)),
        ("step", without("alpha_slots")),
        # Fields of another type, and needed ones, are refused in ``test_declarations.py``.
        pytest.param("weights", instead("sequence", "seven"), marks=pytest.mark.release),
        pytest.param("step", instead("v", 3.0), marks=pytest.mark.release),
        pytest.param("step", without("sequence"), marks=pytest.mark.release),
    ],
)
def test_a_damaged_reply_stops_the_run_and_names_the_party(
    patchwork, simulate, quick, phase, damage
):
    plan = at(f"hyfdca.{phase}", "east", 2, fault=damage)
    settings = quick(certify_every=5)
    simulation = simulate(patchwork(), settings, plan=plan)
    with pytest.raises(ProtocolError, match="east") as caught:
        simulation.go()
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("phase", "field"), [("weights", "z"), ("step", "v"), ("step", "alpha")])
def test_a_reply_sent_twice_stops_the_run_and_names_the_party(
    patchwork, simulate, quick, phase, field
):
    plan = at(f"hyfdca.{phase}", "east", 2, 3, fault=repeated(field))
    simulation = simulate(patchwork(), quick(iic=1.0), PREPARATION, plan=plan)
    with pytest.raises(
        ProtocolError, match=r"party east .*the pad id of another request"
    ) as caught:
        simulation.go()
    assert "\n" not in str(caught.value)
    assert simulation.run.iteration == 3


@cover(
    ("local", "phase", "field", "byte"),
    [
        (*case, byte)
        for case in [
            ("safe", "weights", "z"),
            ("safe", "step", "v"),
            ("safe", "step", "alpha"),
            ("practical", "step", "delta"),
        ]
        for byte in (0, 3, 7)
    ],
)
def test_words_changed_on_their_way_stop_the_run_at_their_first_reader(
    patchwork, simulate, quick, local, phase, field, byte
):
    plan = at(f"hyfdca.{phase}", "north", 2, fault=changed(field, byte))
    # All that the first shares is shared with the second, who must be told α.
    tiles = patchwork(unlabelled=("east",))
    simulation = simulate(tiles, quick(iic=1.0, local=local), prepared(local), plan=plan)
    with pytest.raises(ProtocolError, match=r"fails its check: .*changed") as caught:
        simulation.go()
    assert "\n" not in str(caught.value)
    # Checking takes no trust in the coordinator: it is a party that refuses.
    assert str(caught.value).startswith("party ")


@pytest.mark.parametrize(
    ("phase", "field"), [("weights", "z"), ("step", "v"), ("weights", "norms"), ("step", "losses")]
)
def test_a_field_left_out_of_a_reply_never_makes_a_false_certificate(
    patchwork, simulate, quick, phase, field
):
    """Either the run stops with the party's name, or its certificates stay true."""
    plan = at(f"hyfdca.{phase}", "east", 9, fault=without(field))
    settings = quick(certify_every=2, iterations=12)
    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan)
    with pytest.raises(ProtocolError, match="east"):
        simulation.go()


@pytest.mark.parametrize(
    ("stage", "damage"),
    [
        ("freeze", cut_short("v")),
        ("products", cut_short("z")),
        ("products", instead("norms", b"short")),
        ("losses", without("losses")),
        ("products", without("norms")),
        ("freeze", without("v")),
        ("products", without("z")),
    ],
)
def test_a_damaged_answer_about_a_frozen_pair_stops_the_run_and_names_the_party(
    patchwork, simulate, quick, stage, damage
):
    plan = at(f"certify.{stage}", "east", 1, fault=damage)
    settings = quick(participation=0.75, certify_every=1, iterations=40)
    simulation = simulate(patchwork(), settings, plan=plan)
    with pytest.raises(ProtocolError, match="east"):
        simulation.go()


# ── refusals ─────────────────────────────────────────────────────────────────────────────────


def with_large_features(table, factor):
    whole = table()
    return {
        name: (Tile.make(whole.ids, whole.features[c], whole.block[:, c] * factor, whole.labels),)
        for name, c in (("a", slice(0, 4)), ("b", slice(3, 7)))
    }


@pytest.mark.parametrize(("local", "factor"), [("practical", 1e9), ("safe", 1e200)])
def test_features_too_large_to_sum_stop_the_run_with_one_sentence(table, quick, local, factor):
    with pytest.raises(ProtocolError, match=r"party [ab]: .* scale the features") as caught:
        Federation(with_large_features(table, factor)).train(quick(local=local))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("factor", [1e6, 1e9])
def test_features_too_large_for_lambda_are_refused_before_anything_is_sent(table, quick, factor):
    """|z| may reach A h² U / λ, which then leaves too few digits behind the point."""
    federation = Federation(with_large_features(table, factor), record=True)
    with pytest.raises(ProtocolError, match=r"party [ab]: .* scale the features"):
        federation.train(quick())


@pytest.mark.parametrize("factor", [1e-6, 1e-3, 1e3])
def test_features_of_any_usual_size_are_certified_truly(table, simulate, quick, factor):
    """Fixed point has a range and a grain; neither bends the certificate.

    The grain shows in large features: by up to 3e-6, depending on which samples are drawn.
    """
    simulation = simulate(with_large_features(table, factor), quick())
    simulation.go()
    primal, dual = simulation.judge().objectives(simulation.alpha())
    assert np.allclose(simulation.result.certificate.primal, primal, rtol=1e-5)
    assert np.allclose(simulation.result.certificate.dual, dual, rtol=1e-5, atol=1e-8)


def test_a_party_asked_too_early_or_for_an_unknown_phase_refuses(patchwork, quick):
    federation = Federation(patchwork())
    channel, *_ = federation.assemble(quick())
    known = {"round": 1, "iteration": 1, "ack": 0}
    for phase, extra in ((STEP, {"gamma": 1.0}), (FREEZE, {})):
        replies = channel.ask(phase, {"north": phase.request(**known, **extra)})
        assert replies.missing["north"].kind == "refused"
        assert phase.name in replies.missing["north"].reason
    with pytest.raises(ProtocolError, match=r"no\.such\.phase"):
        phase_named("no.such.phase")
