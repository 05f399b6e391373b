"""Parties that come and go, and parties that answer nonsense."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from small_networks import HELD, Door, numbers, tiny, trained

from weft.errors import PartyAway, ProtocolError


def through(away):
    return lambda channel: Door(channel, away=away)


def absent(*names, turns=None, phase="neural.train", kind="failed"):
    """Parties that are not to be reached, in all rounds or in some."""

    def away(asked, message, party):
        hit = asked == phase and party in names
        return kind if hit and (turns is None or message.turn in turns) else None

    return away


def bits(run):
    return numbers(run.model).tobytes()


# ── participation ─────────────────────────────────────────────────────────────────────────────


def test_rounds_with_a_fraction_have_so_many_parties():
    run = trained(how=tiny(participation=0.67, rounds=6))
    assert {turn.present for turn in run.history} == {2}
    assert all(turn.loss is not None for turn in run.history)
    assert np.isfinite(numbers(run.model)).all()


def test_a_trace_is_followed():
    trace = [["north"], ["north", "south"], ["east"]]
    seen = []
    run = trained(how=tiny(participation={"trace": trace}, rounds=3), record=True)
    for entry in run.channel.transcript:
        if entry.phase == "neural.train":
            seen.append((entry.message["turn"], entry.party))
    assert seen == [(1, "north"), (2, "north"), (2, "south"), (3, "east")]


@pytest.mark.parametrize("kind", ["failed", "late"])
def test_a_party_that_gives_no_answer_is_left_out_of_the_round(kind):
    """To the server, a party that did not answer is one that was not asked."""
    lost = trained(
        how=tiny(rounds=4),
        door=through(absent("east", turns=(2, 3), kind=kind)),
    )
    trace = [[*HELD], ["north", "south"], ["north", "south"], [*HELD]]
    unasked = trained(how=tiny(rounds=4, participation={"trace": trace}))
    assert bits(lost) == bits(unasked)
    assert [turn.present for turn in lost.history] == [3, 2, 2, 3]
    # Masks of those who answered do not cancel.
    assert [turn.loss is None for turn in lost.history] == [False, True, True, False]
    how = "was late" if kind == "late" else "failed"
    assert lost.notes == [f"east did not answer in 2 of 4 rounds (the last time it {how}: a storm)"]
    assert unasked.notes == []


def test_a_party_that_comes_back_is_heard():
    back = trained(how=tiny(rounds=4), door=through(absent("east", turns=(2, 3))))
    gone = trained(how=tiny(rounds=4), door=through(absent("east", turns=(2, 3, 4))))
    assert bits(back) != bits(gone)


def test_what_nobody_covers_keeps_its_value():
    """North holds ct and lab: without the others, the extractor and the columns of gene stay."""
    first = trained(how=tiny(rounds=1))
    trace = [[*HELD], ["north"]]
    both = trained(how=tiny(rounds=2, participation={"trace": trace}))
    assert np.array_equal(first.model.extractors["gene"], both.model.extractors["gene"])
    for name in ("ct", "lab"):
        assert not np.array_equal(first.model.extractors[name], both.model.extractors[name])
    old, new = first.model.classifier[0], both.model.classifier[0]
    assert old.shape == new.shape
    gene = slice(8, 12)
    # Rows may be renumbered; the columns of gene are the same set of rows.
    assert sorted(map(tuple, old[:, gene].tolist())) == sorted(map(tuple, new[:, gene].tolist()))
    assert not np.array_equal(old[:, :8], new[:, :8])
    # What north sent is what the server has of its blocks: nobody else weighs in.
    sent = numbers(both.own["north"])[: 4 * 6 + 4 * 4]
    ours = np.concatenate([both.model.extractors["ct"], both.model.extractors["lab"]])
    assert np.allclose(sent, ours, atol=1e-7)


def test_a_round_without_anybody_changes_nothing():
    doors = []

    def door(channel):
        doors.append(Door(channel, away=absent(*HELD, turns=(2,))))
        return doors[0]

    run = trained(how=tiny(rounds=2), door=door)
    assert bits(run) == bits(trained(how=tiny(rounds=1)))
    assert run.last.present == 0
    assert run.last.loss is None
    # The coordinator waits a little before it goes on.
    assert doors[0].paused > 0


def test_a_trace_may_name_nobody():
    quiet = tiny(rounds=2, participation={"trace": [[*HELD], []]})
    assert bits(trained(how=quiet, door=Door)) == bits(trained(how=tiny(rounds=1)))


def test_a_run_that_nobody_answers_gives_up():
    with pytest.raises(PartyAway, match=r"no party answered in 20 rounds .* failed: a storm"):
        trained(how=tiny(rounds=40), door=through(absent(*HELD)))


def test_a_short_run_that_nobody_answers_leaves_no_model():
    with pytest.raises(PartyAway, match="no party took part in any round"):
        trained(how=tiny(rounds=2), door=through(absent(*HELD)))


def test_who_is_away_at_the_end_is_told_of():
    run = trained(door=through(absent("south", phase="neural.finish")))
    assert set(run.received) == {"north", "east"}
    assert run.notes == ["south did not get its copy of the model (a storm); send it the server's"]


@pytest.mark.parametrize("phase", ["neural.plan", "neural.scale", "neural.build"])
def test_a_run_cannot_begin_without_a_party(phase):
    with pytest.raises(PartyAway, match="east"):
        trained(door=through(absent("east", phase=phase)))


# ── malformed replies ─────────────────────────────────────────────────────────────────────────

FIELDS = {
    "neural.plan": ("keys.public", "keys.nonce", "held", "samples"),
    "neural.scale": ("sums",),
    "neural.build": ("features", "sizes", "extractors"),
    "neural.train": ("extractors", "classifier", "sums"),
}
PLACES = [(phase, field) for phase, fields in FIELDS.items() for field in fields]


def spoilt(value):
    """Ways to spoil a value so that no honest party could have sent it."""
    ways = [None, "nonsense", 1.5, [], b"\x01"]
    if isinstance(value, np.ndarray):
        ways += [value[:-1], np.append(value, value[-1:], axis=0), value[None], value.tolist()]
        ways += [value.astype(np.float16), value.astype(str), value.astype(np.int8)]
        if value.dtype.kind == "f":
            for bad in (np.nan, np.inf):
                broken = value.copy()
                broken[len(value) // 2] = bad
                ways.append(broken)
        else:
            ways += [-value, value + 1]
    elif isinstance(value, bytes):
        ways += [value[:-1], value + b"\0", value.hex(), b""]
    elif isinstance(value, str):
        ways += [value[:-1], "[]", "{}", value.encode(), value.replace("ct", "toe")]
    elif isinstance(value, int):
        ways += [-value, 0, np.array([value])]
    return ways


def asked_of(phase, field):
    """The first party that sends the field in that phase."""
    return "north" if (phase, field) != ("neural.train", "classifier") else "east"


@pytest.mark.parametrize(("phase", "field"), PLACES, ids=[" ".join(place) for place in PLACES])
@settings(
    max_examples=3, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(way=st.integers(0, 11))
def test_a_malformed_reply_is_a_sentence_that_names_the_party(phase, field, way):
    party = asked_of(phase, field)
    spoiling = []

    def change(asked, sender, reply):
        if asked != phase or sender != party or field not in reply:
            return reply
        ways = spoilt(reply[field])
        value = ways[way % len(ways)]
        spoiling.append(value)
        rest = {name: other for name, other in reply.items() if name != field}
        return rest if value is None else {**rest, field: value}

    with pytest.raises(ProtocolError) as error:
        trained(how=tiny(rounds=1, steps=1), door=lambda channel: Door(channel, change=change))
    words = str(error.value)
    assert len(spoiling) == 1
    assert party in words, words
    assert "\n" not in words
