"""A party is its tiles, its keys, its memory and the messages it got: nothing else is in it.

Whoever has these can make the party anew, and neither the model nor the ledger shows that he did.
"""

from __future__ import annotations

from collections import Counter
from functools import partial
from itertools import count
from zlib import crc32

import numpy as np
import pytest
from replayed import (
    MortalInAll,
    Troupe,
    cut_for,
    federation_for,
    pair,
    read,
    replay,
    same,
    settings_for,
)

from covering import some_of
from weft.crypto.keys import ephemeral_keys
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.crypto.primitives.oprf import OprfKey
from weft.crypto.randomness_kept_for_restart import Forgotten, RandomnessLog
from weft.errors import ConfigError
from weft.federation.local_federation import Preprocessing
from weft.guards.sum_noise_size import SumNoise
from weft.matching import oprf_party
from weft.privacy.agreement.limits_and_site_policy import Limits, SitePolicy
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import fields_of
from weft.solvers.algorithm_choice import ALGORITHMS

#: Sealed to other parties with fresh randomness outside: the same content in other bytes.
SEALED = {
    "match.ask": {"box"},
    "match.evaluate": {"boxes.content"},
    "match.view": {"seeds.content"},
    "release": {"boxes.content"},
}
#: Under two ciphers blocks are ciphertexts, of which there are many for the same words.
BLOCKS = {cipher: {"z", "v", "alpha"} for cipher in ("bfv", "paillier")}
#: What a party draws that makes keys for the others, in this order.
DRAWN = (
    *("origin", "nonce", "exchange key", "classes", "blinds", "seeds of rows", "seeds of columns"),
    *("run key", "shared key"),
)


def bits(trained):
    model = trained.model
    return model.coef.tobytes(), model.intercept.tobytes(), trained.result.certificate


#: Solver, cipher, how ids are matched, other settings.
RUNS = {
    **{solver: (solver, "pad", "hmac", {}) for solver in ALGORITHMS},
    "practical steps": ("hyfdca", "pad", "oprf", {"local": "practical", "iic": 0.4}),
    "half of the parties": ("hyfdca", "pad", "hmac", {"participation": 0.5}),
    "a path with folds": ("cutting-planes", "pad", "oprf", {"path": (0.5,), "folds": 2}),
    "plain": ("hyfdca", "plain", "oprf", {}),
    "paillier": ("lbfgs", "paillier", "hmac", {}),
    "bfv": ("hyfdca", "bfv", "hmac", {"iterations": 1}),
}
#: After how many messages the first and the second party die: in matching, in scaling, in
#: iterations, and before they seal their part of the model.
DEATHS = ({2, 4, 9, 20, 25}, {3, 7, 12, 22})


#: Every way in which parties draw, and one method of every family.
SOME = ("half of the parties", "a path with folds", "paillier", "fedhybrid", "admm", "sealed")


def draw_alike(patch):
    """Let two runs have the same masks, noise and rounding: on shares, bits depend on them."""
    random = RandomnessLog.random

    def drawn(self, name, length):
        if not name.startswith("sealed"):
            return random(self, name, length)
        return self.take(name, lambda: name.encode().ljust(length, b"."))

    patch.setattr(RandomnessLog, "random", drawn)
    patch.setattr(OpeningPads, "common_word", lambda self, label: crc32(label.encode()))


@pytest.mark.parametrize("run", some_of(RUNS, *SOME))
def test_the_same_messages_bring_a_new_party_to_the_same_state(run, monkeypatch):
    solver, cipher, matching, changes = RUNS[run]
    if ALGORITHMS[solver].shares:
        draw_alike(monkeypatch)
    # Scaling takes many messages, and a message under some ciphers much time.
    scaling = "none" if cipher in BLOCKS else "standard"
    # Which itself takes twenty messages, all of which are repeated after every death.
    unit_rows = cipher in BLOCKS or run in ("fedhybrid", "practical steps")
    how = Preprocessing(intercept=True, scaling=scaling, unit_rows=unit_rows, matching=matching)
    settings = settings_for(solver, cipher, **changes)
    names = list(cut_for(solver).parties)
    points = dict(zip(names, DEATHS, strict=False))
    troupe = Troupe(kill=lambda party, count: count in points.get(party, ()))
    killed = troupe.train(federation_for(solver, how), settings)
    assert troupe.deaths >= (5 if cipher in BLOCKS else sum(map(len, points.values())))
    calm = Troupe()
    assert bits(killed) == bits(calm.train(federation_for(solver, how), settings))
    # The party that makes keys for all has the most to remember.
    name = names[0]
    memory = dict(calm.memories[name])
    twin, replies = replay(calm, name, memory)
    assert memory == calm.memories[name]
    for (phase, _), reply, first in zip(
        calm.messages[name], replies, calm.replies[name], strict=True
    ):
        reply, first = fields_of(reply), fields_of(first)
        assert reply.keys() == first.keys()
        for field in reply.keys() - SEALED.get(phase, set()) - BLOCKS.get(cipher, set()):
            assert same(reply[field], first[field]), (phase, field)
    party = calm.parties[name]
    shares = ALGORITHMS[solver].shares
    ours, theirs = (
        p._half.model_share(killed.result.model_iteration).words
        if shares
        else p._half.weights(killed.result.model_iteration)
        for p in (twin, party)
    )
    assert ours.tobytes() == theirs.tobytes()
    assert np.array_equal(twin.sum_counter.received, party.sum_counter.received)
    assert np.array_equal(twin.sum_counter.shown, party.sum_counter.shown)


@pytest.mark.release
def test_what_is_excepted_from_being_the_same_does_differ():
    """Else the exceptions would be too many for the test above, which holds without this one."""
    how = Preprocessing(matching="oprf")
    troupe = Troupe()
    troupe.train(pair(how), settings_for("hyfdca", "bfv", iterations=1))
    differ = set()
    for name in troupe.parties:
        _, replies = replay(troupe, name, dict(troupe.memories[name]))
        for (phase, _), reply, first in zip(
            troupe.messages[name], replies, troupe.replies[name], strict=True
        ):
            reply, first = fields_of(reply), fields_of(first)
            differ |= {(phase, f) for f in reply if not same(reply[f], first[f])}
    assert {(phase, field) for phase in SEALED for field in SEALED[phase]} <= differ
    assert {field for phase, field in differ if phase not in SEALED} == BLOCKS["bfv"]


def test_a_killed_party_multiplies_no_id_a_second_time(monkeypatch):
    """Parts of ids that were through a key when it was killed are read from its memory."""
    monkeypatch.setattr("weft.matching.oprf_announcement_and_limits.PART", 12)
    monkeypatch.setattr("weft.matching.oprf_party.LONG", 1)
    worked = Counter()
    for name in ("blind", "unblind", "verify"):
        work = getattr(oprf_party, name)
        counted = partial(lambda name, work, *given: worked.update([name]) or work(*given), name)
        monkeypatch.setattr(oprf_party, name, partial(counted, work))
    evaluate = OprfKey.evaluate
    monkeypatch.setattr(
        OprfKey, "evaluate", lambda key, ids: worked.update(["evaluate"]) or evaluate(key, ids)
    )
    how = Preprocessing(intercept=True, matching="oprf")
    settings = settings_for("hyfdca", "pad", iterations=1)
    calm = Troupe()
    expected = bits(calm.train(pair(how), settings))
    name = next(iter(calm.parties))
    parts = sum(phase == "match.ask" for phase, _ in calm.messages[name]) // 2
    assert parts > 1
    assert worked["blind"] == worked["unblind"] == 2 * parts
    # Two key holders, for two parties each; nobody checks what he proved himself.
    assert worked["evaluate"] == 2 * worked["verify"] == 4 * parts
    before = Counter(worked)
    replay(calm, name, dict(calm.memories[name]))
    assert worked == before
    # Killed after each message of matching, it goes on to the same bits.
    deadly = range(2, 4 + 3 * parts)
    troupe = Troupe(kill=lambda party, count: party == name and count in deadly)
    assert bits(troupe.train(pair(how), settings)) == expected
    assert troupe.deaths == len(deadly)
    assert worked - before == before


def test_memories_have_no_point_of_an_id_in_the_clear(monkeypatch):
    """Blinds are in the same memory, and without them points are the same in every run."""
    monkeypatch.setattr("weft.matching.oprf_announcement_and_limits.PART", 12)
    monkeypatch.setattr("weft.matching.oprf_party.LONG", 1)
    points = set()

    def noted(made):
        points.update(made[at : at + 32] for at in range(0, len(made), 32))
        return made

    blinded, bare, evaluate = oprf_party.blind, oprf_party.unblind, OprfKey.evaluate
    monkeypatch.setattr(oprf_party, "blind", lambda *given: (b"", noted(blinded(*given)[1])))
    monkeypatch.setattr(oprf_party, "unblind", lambda *given: noted(bare(*given)))
    monkeypatch.setattr(OprfKey, "evaluate", lambda key, ids: noted(evaluate(key, ids)))
    troupe = Troupe()
    troupe.train(pair(Preprocessing(matching="oprf")), settings_for("hyfdca", "pad", iterations=1))
    kept = {name: b"".join(memory.values()) for name, memory in troupe.memories.items()}
    # They are there, and long enough that they could be in the clear.
    names = {key.split(" 1 ")[0] for memory in troupe.memories.values() for key in memory}
    assert {"blinded ids", "answers of its key", "ids without blinds"} <= names
    assert len(points) > 100
    assert not [point for point in points for memory in kept.values() if point in memory]


def test_what_another_key_sealed_in_a_memory_is_not_believed(monkeypatch):
    """Else whoever writes on the disk of a site decides which proofs it has found right."""
    monkeypatch.setattr("weft.matching.oprf_party.LONG", 1)
    troupe = Troupe()
    troupe.train(pair(Preprocessing(matching="oprf")), settings_for("hyfdca", "pad", iterations=1))
    name = next(iter(troupe.parties))
    memory = dict(troupe.memories[name])
    changed = {key: b"right" if key.startswith("proofs") else kept for key, kept in memory.items()}
    assert changed != memory
    last = max(n for n, (phase, _) in enumerate(troupe.messages[name]) if phase == "match.ask")
    troupe.messages[name] = troupe.messages[name][: last + 1]
    with pytest.raises(Forgotten, match=f"party {name} cannot read 'proofs checked' in its memory"):
        replay(troupe, name, changed)


def test_noise_in_sums_is_drawn_once_and_remembered(monkeypatch):
    """Seeds are counted here: a party that drew anew after its death would have others."""
    random, made = RandomnessLog.random, count()

    def counted(self, name, length):
        if name != "sum noise":
            return random(self, name, length)
        return self.take(name, lambda: str(next(made)).encode().ljust(length))

    monkeypatch.setattr(RandomnessLog, "random", counted)
    how = Preprocessing(intercept=True)
    settings = settings_for("lbfgs", iterations=3, sum_noise=SumNoise(multiplier=0.1))
    points = dict(zip(cut_for("lbfgs").parties, ({9, 14}, {12}), strict=False))
    troupe = Troupe(kill=lambda party, number: number in points.get(party, ()))
    killed = bits(troupe.train(federation_for("lbfgs", how), settings))
    assert troupe.deaths >= 2
    made = count()
    assert killed == bits(Troupe().train(federation_for("lbfgs", how), settings))


@pytest.mark.parametrize(
    "kept", [False, pytest.param(True, marks=pytest.mark.release)], ids=["before", "after"]
)
def test_a_party_may_die_in_any_draw(kept):
    """Killed in the middle of a message, before or after a value is kept, it goes on.

    In all draws of a run, one after the other.
    """
    how = Preprocessing(intercept=True, matching="oprf")
    settings = settings_for("hyfdca", "paillier", iterations=1)
    calm = Troupe()
    expected = bits(calm.train(pair(how), settings))
    name = next(iter(calm.parties))
    drawn = list(calm.memories[name])
    assert [key.partition(" 1")[0] for key in drawn] == list(DRAWN)
    troupe = Troupe(memories={name: MortalInAll(kept=kept)})
    assert bits(troupe.train(pair(how), settings)) == expected
    # The first value is that of the party's making, when there is no message yet.
    assert troupe.deaths == len(drawn) - 1


def test_what_a_clock_decided_stays_decided(monkeypatch):
    """A slow machine after a restart makes no other party of a Newton-type one."""
    calm = Troupe()
    settings = settings_for("fedhybrid", options={"newton": "auto", "seconds": 100.0})
    calm.train(federation_for("fedhybrid"), settings)
    ticks = iter(range(0, 10**9, 1000))
    monkeypatch.setattr("weft.solvers.fedhybrid.method.perf_counter", lambda: next(ticks))
    for name in calm.parties:
        twin, _ = replay(calm, name, dict(calm.memories[name]))
        assert twin._half.newton
    slow = Troupe()
    slow.train(federation_for("fedhybrid"), settings)
    assert not slow.parties[name]._half.newton


# ── what is not the same ──────────────────────────────────────────────────────────────────────


def test_a_memory_that_lost_something_stops_the_replay():
    calm = Troupe()
    calm.train(federation_for("hyfdca"), settings_for("hyfdca"))
    name = next(iter(calm.parties))
    for lost in calm.memories[name]:
        if lost.startswith("origin"):
            continue
        memory = {key: value for key, value in calm.memories[name].items() if key != lost}
        party = calm.build(name, memory)
        drawn = lost.partition(" 1")[0]
        with party.replaying(), pytest.raises(Forgotten, match=f"lacks '{drawn}'"):
            _answer_all(party, calm.messages[name])


def _answer_all(party, messages):
    for phase, message in messages:
        party.on(*read(phase, message))


FEW = Limits(most_problems=99)


def test_a_party_of_other_things_does_not_take_up_the_run(monkeypatch):
    calm = Troupe()
    calm.train(federation_for("hyfdca"), settings_for("hyfdca"))
    name = next(iter(calm.parties))
    (tile,), things = calm.made[name]
    block = np.array(tile.block)
    block[0, 0] += 1e-9
    other = {
        "a cell": ((type(tile).make(tile.ids, tile.features, block, tile.labels),), things),
        "no labels": ((type(tile).make(tile.ids, tile.features, tile.block),), things),
        "the cipher": ((tile,), {**things, "cipher": "bfv"}),
        "keys": ((tile,), {**things, "keys": ephemeral_keys((name,))[name]}),
        "terms": ((tile,), {**things, "consent": Consent(name, policy=SitePolicy(limits=FEW))}),
    }
    for made in other.values():
        calm.made[name] = made
        with pytest.raises(ConfigError, match=f"party {name} was interrupted in this run"):
            calm.build(name, dict(calm.memories[name]))
    calm.made[name] = ((tile,), things)
    calm.build(name, dict(calm.memories[name]))
    # The same things, where sums come out differently in their last digits.
    monkeypatch.setattr("weft.federation.resume_fingerprint.last_digits", lambda: b"others")
    with pytest.raises(ConfigError, match=f"party {name} was interrupted in this run"):
        calm.build(name, dict(calm.memories[name]))


def test_a_party_has_a_memory_or_checkpoints(tmp_path):
    calm = Troupe()
    name = next(iter(cut_for("hyfdca").parties))
    calm.made[name] = (cut_for("hyfdca").parties[name], {"store": tmp_path})
    calm.made[name][1]["keys"] = ephemeral_keys((name,))[name]
    with pytest.raises(ConfigError, match="give it no folder for checkpoints"):
        calm.build(name, {})
