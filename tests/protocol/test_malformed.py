"""Malformed requests and replies are refused with one sentence; nothing breaks down over them.

A party that breaks down counts as silent, and the run goes on without it: a malformed request must
be *refused*, which stops the run. A coordinator that breaks down shows a traceback.

Fields that are missing or not as declared never get here: test_declarations has them. These are
well-formed fields with a content that only a party, or the coordinator, can know to be wrong.
"""

from __future__ import annotations

import os
from contextlib import suppress
from dataclasses import replace

import numpy as np
import pytest

from covering import cover, every_value
from interposed import HIDING, Middle, cut, interpose, outcome, quick, train
from weft.crypto.keys import ephemeral_keys
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError, WeftError
from weft.protocol.declared_message_fields import SCALAR_BYTES, Message
from weft.protocol.phase_with_request_and_reply import phase_named
from weft.protocol.shared_fields import CARD
from weft.solvers.hyfdca.party import HyfdcaParty

SIGN = np.uint64(1 << 63)
SETTINGS = {"local": "practical", "participation": 0.75, "iterations": 4}
CHANGED = ("match.view", "hyfdca.weights", "hyfdca.step", "hyfdca.dual", "certify.")


class Done(BaseException):
    """Ends a run that has shown what it should."""


class Malform(Middle):
    """Puts something else into fields of one request; keeps what the party said to that."""

    def __init__(self, fields, beside):
        super().__init__()
        self.fields = fields
        self.beside = beside
        self.answer = None

    def down(self, phase, party, message):
        if not phase.startswith(CHANGED) or self.beside not in message:
            return message
        new = dict(message)
        for field, value in self.fields.items():
            put(new, field, value(message.get(field)) if callable(value) else value)
        try:
            declared = phase_named(phase)
            self.answer = self.parties[party].on(declared, declared.read_request(new))
        except Exception as error:
            self.answer = error
        raise Done


def put(message, field, value):
    message.pop(field, None)
    if value is not None:
        message[field] = value


def answer_to(fields, beside=None, **changes):
    """What a party says to a request with malformed fields."""
    malform = Malform(fields, beside or next(iter(fields)))
    with interpose(malform), pytest.raises(Done):
        train(cut("hybrid 2×2"), quick(**{**SETTINGS, **changes}))
    return malform.answer


def assert_refused(answer):
    assert isinstance(answer, WeftError), repr(answer)
    assert "\n" not in str(answer)


# ── requests: which pads to take off ──────────────────────────────────────────────────────────

CHAINS = {
    "missing": None,
    "nothing": np.zeros(0, np.uint64),
    "one too many": lambda old: np.append(old, old[:1]),
}
WITH_CHAINS = [
    ("pad", "z_pads.chain"),
    ("pad", "v_pads.chain"),
    ("paillier", "v_pads.chain"),
    ("bfv", "z_pads.checks"),
]


@cover(
    ("cipher", "field", "value"),
    [(*where, value) for where in WITH_CHAINS for value in CHAINS],
)
def test_a_chain_of_pads_that_is_none_is_refused(cipher, field, value):
    assert_refused(answer_to({field: CHAINS[value]}, cipher=cipher))


@pytest.mark.parametrize(("cipher", "field"), WITH_CHAINS)
def test_pads_of_the_future_are_refused_by_the_party_that_would_take_them_off(cipher, field):
    """Every party is told them. Those that come after another one take off its pads anyway."""

    class Future(Middle):
        def down(self, phase, party, message):
            if phase.startswith(CHANGED) and field in message:
                return {**message, field: np.full(len(message[field]), 1 << 62, np.uint64)}
            return message

    with interpose(Future()), pytest.raises(ProtocolError, match="not older than"):
        train(cut("hybrid 2×2"), quick(**{**SETTINGS, "cipher": cipher}))


@pytest.mark.parametrize(
    ("cipher", "field"),
    [
        ("pad", "v_pads.chain"),
        ("paillier", "v_pads.chain"),
        pytest.param("bfv", "z_pads.chain"),
        pytest.param("bfv", "z_pads.checks"),
    ],
)
def test_marks_of_pads_that_are_not_listed_are_refused(cipher, field):
    assert_refused(answer_to({field: lambda old: old | SIGN}, cipher=cipher))


def test_a_chain_that_takes_off_its_own_pad_is_refused():
    def own(message):
        return np.full(1, (message["round"] << 20) | 0, np.uint64)

    class Own(Malform):
        def down(self, phase, party, message):
            self.fields = {"v_pads.chain": own(message) if "v_pads.chain" in message else None}
            return super().down(phase, party, message)

    malform = Own({}, "v_pads.chain")
    with interpose(malform), pytest.raises(Done):
        train(cut("hybrid 2×2"), quick(**SETTINGS))
    assert_refused(malform.answer)
    assert "not older" in str(malform.answer)


TABLES = [
    ("missing", None),
    ("nothing", np.zeros(0, np.uint64)),
    ("of the future", np.array([1, 1 << 62], np.uint64)),
    ("signs of the future", np.array([2, 5, SIGN | np.uint64(1 << 62)], np.uint64)),
]


@pytest.mark.parametrize(("name", "value"), TABLES)
def test_tables_of_pads_that_are_none_are_refused(name, value):
    fields = {"v_pads.chain": lambda old: np.full(len(old), SIGN), "v_pads.chain_sets": value}
    assert_refused(answer_to(fields))


@pytest.mark.parametrize("count", [2, 1 << 20, (1 << 63) - 1, (1 << 64) - 1])
def test_a_table_that_promises_more_than_it_holds_costs_nothing(count):
    """It is read as far as it goes, and what it lacks is noticed in the total, if anywhere."""
    fields = {
        "v_pads.chain": lambda old: np.full(len(old), SIGN),
        "v_pads.chain_sets": np.array([count, 5], np.uint64),
    }
    answer = answer_to(fields)
    assert isinstance(answer, Message | WeftError)


# ── requests: news of pads ────────────────────────────────────────────────────────────────────

NEWS = {
    "no slots": ("slots", lambda old: old[:0]),
    "far slots": ("slots", lambda old: old + np.int32(10**6)),
    "negative slots": ("slots", lambda old: -1 - old),
    "no lengths": ("lengths", lambda old: old[:0]),
    "endless": ("lengths", lambda old: np.full(len(old), (1 << 32) - 1, np.uint32)),
    "no marks": ("marks", lambda old: old[:0]),
    "of the future": ("marks", lambda old: np.full(len(old), 1 << 62, np.uint64)),
    "not listed": ("marks", lambda old: old | SIGN | np.uint64(7)),
}


@pytest.mark.parametrize("what", NEWS)
def test_news_of_pads_that_are_none_are_refused(what):
    field, value = NEWS[what]
    assert_refused(answer_to({f"z_pads.news.{field}": value}))


# ── requests: slots of totals ─────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("cipher", "value"),
    [
        ("pad", "missing"),
        ("pad", "one too many"),
        ("bfv", "missing"),
        ("pad", "far away"),
        ("bfv", "far away"),
        ("paillier", "far away"),
    ],
)
def test_slots_of_changes_that_are_none_are_refused(cipher, value):
    values = {
        "missing": None,
        "one too many": lambda old: np.append(old, old[:1]),
        "far away": lambda old: old + np.int32(10**6),
    }
    assert_refused(answer_to({"delta_slots": values[value]}, cipher=cipher))


@pytest.mark.parametrize("shift", [1, -1])
def test_changes_of_other_slots_are_noise(shift, monkeypatch):
    """They are for samples of the same cohort, but every slot has pads of its own."""
    rows = 20  # of a party
    changes = {"delta_slots": lambda old: (old + np.int32(shift)) % np.int32(rows)}
    answer = answer_to(changes)
    assert_refused(answer)
    assert "samples that were proposed" in str(answer)
    monkeypatch.setattr(HyfdcaParty, "_insist_on_proposed", lambda party, slots: None)
    answer = answer_to(changes)
    assert_refused(answer)
    assert "changes of dual variables" in str(answer)


def test_slots_beyond_a_partys_own_do_not_reach_memory_that_is_not_its_own():
    """In a process of its own, which may die of it."""
    child = os.fork()
    if not child:
        ended = 1
        with suppress(BaseException):
            for away in (10**6, -(10**6), 2**30, 25):
                slots = np.int32(away)
                assert_refused(answer_to({"alpha_slots": lambda old, slots=slots: old * 0 + slots}))
            ended = 0
        os._exit(ended)
    assert os.waitpid(child, 0)[1] == 0


# ── requests: the rest ────────────────────────────────────────────────────────────────────────


_LIST = "seeds.participants.keys"
REQUESTS = {
    "weak keys": {_LIST: lambda old: old[:CARD] + bytes(CARD) + old[2 * CARD :]},
    "no keys": {_LIST: b""},
    "half a key": {_LIST: lambda old: old[:-1]},
    "a key that its party did not sign": {_LIST: lambda old: old[:-70] + bytes(6) + old[-64:]},
    "a party less": {_LIST: lambda old: old[:-CARD]},
    "others in another order": {_LIST: lambda old: old[-CARD:] + old[:-CARD]},
    "a party twice": {_LIST: lambda old: old[: -2 * CARD] + 2 * old[-CARD:]},
    "makers who are none": {"seeds.rows.maker": lambda old: old + 99},
    "cohorts of one number": {"seeds.columns.cohort": lambda old: old[:0]},
    "another who deals": {"seeds.deal": lambda old: not old},
    "a receiver who is none": {"seeds.to": lambda old: old + 99},
    "seeds of others": {"seeds.rows.given": lambda old: old + 99},
    "nobody has labels": {"seeds.participants.labelled": lambda old: old & False},
    "too few flags": {"seeds.participants.labelled": lambda old: old[:-1]},
}


@pytest.mark.parametrize("what", REQUESTS)
def test_other_fields_that_make_no_sense_are_refused(what):
    assert_refused(answer_to(REQUESTS[what], beside=_LIST))


def test_an_old_request_is_refused():
    assert_refused(answer_to({"round": 1}, beside="ack"))


@pytest.mark.parametrize("flags", [np.zeros(0, bool), np.ones(99, bool)])
def test_flags_of_more_or_fewer_cohorts_are_refused(flags):
    assert_refused(answer_to({"send": flags}, beside="alpha_pads.chain", cipher="bfv"))


# ── replies ───────────────────────────────────────────────────────────────────────────────────


class Answers(Middle):
    """Puts something else into one field of one reply."""

    def __init__(self, field, value):
        super().__init__()
        self.field = field
        self.value = value
        self.done = False

    def up(self, phase, party, message, reply):
        if self.done or self.field not in reply or not phase.startswith(CHANGED):
            return reply
        self.done = True
        value = self.value
        put(reply, self.field, value(reply[self.field]) if callable(value) else value)
        return reply


REPLIES = [
    ("pad", "z_slots", "far away"),
    ("pad", "z_slots", "negative"),
    ("pad", "z_slots", "one too many"),
    ("pad", "delta_slots", "far away"),
    ("pad", "alpha_slots", "far away"),
    ("pad", "want", "far away"),
    ("pad", "sequence", "missing"),
    ("pad", "sequence", "a number"),
    ("pad", "norm_change", "missing"),
    ("pad", "norm_change", "too long"),
    ("pad", "estimate", "too long"),
    ("pad", "losses", "too long"),
    ("bfv", "delta_slots", "missing"),
    ("bfv", "delta_slots", "far away"),
    ("bfv", "alpha_slots", "missing"),
]


@pytest.mark.parametrize(("cipher", "field", "value"), REPLIES)
def test_a_reply_that_is_malformed_stops_the_run_with_one_sentence(cipher, field, value):
    values = {
        "missing": None,
        "a number": 7,
        "too long": lambda old: old + bytes(SCALAR_BYTES),
        "far away": lambda old: old + np.int32(10**6),
        "negative": lambda old: -1 - old,
        "one too many": lambda old: np.append(old, old[:1]),
    }
    answers = Answers(field, values[value])
    with interpose(answers), pytest.raises(WeftError) as caught:
        train(cut("hybrid 2×2"), quick(cipher=cipher, **SETTINGS))
    assert answers.done
    assert "\n" not in str(caught.value)
    assert "party r" in str(caught.value)


@pytest.mark.parametrize("cipher", ["pad", "bfv"])
def test_slots_that_somebody_exchanged_are_noticed(cipher):
    """Slots travel in the clear; values under pads do not fit others. BFV does not go by them."""
    answers = Answers("z_slots", lambda old: old[::-1].copy())
    settings = quick(cipher=cipher, **SETTINGS)
    if cipher == "bfv":
        with interpose(answers):
            trained = train(cut("hybrid 2×2"), settings)
        assert outcome(trained) == outcome(
            train(cut("hybrid 2×2"), quick(cipher="plain", **SETTINGS))
        )
        return
    with interpose(answers), pytest.raises(WeftError, match="block of inner products"):
        train(cut("hybrid 2×2"), settings)


# ── scalars ───────────────────────────────────────────────────────────────────────────────────


def shifted(amount):
    """A masked scalar with something added to it: anybody on the way can do that."""

    def change(packed):
        first = (int.from_bytes(packed[:16], "big") + amount) % (1 << 128)
        return first.to_bytes(16, "big") + packed[16:]

    return change


@pytest.mark.parametrize("field", ["losses", "norms"])
def test_a_changed_scalar_changes_the_certificate_and_nothing_else(field):
    """What holds: scalars are hidden, not authenticated. Nobody trains on them."""
    settings = quick(iterations=4, local="practical", certify_every=1)
    clean = train(cut("hybrid 2×2"), settings)
    answers = Answers(field, shifted(1 << 70))
    with interpose(answers):
        changed = train(cut("hybrid 2×2"), settings)
    assert answers.done
    assert np.array_equal(clean.model.coef, changed.model.coef)
    first, other = (run.result.history[0].primal for run in (clean, changed))
    assert first != other
    # Only sums over everyone are taken: the certificates after it are right again.
    assert clean.result.certificate == changed.result.certificate


@pytest.mark.parametrize("fields", [("estimate", "norm_change")])
def test_changed_estimates_stop_nothing_and_change_no_model(fields):
    settings = quick(iterations=4, local="practical", participation=0.75)
    clean = train(cut("hybrid 2×2"), settings)
    for field in fields:
        answers = Answers(field, shifted(1 << 70))
        with interpose(answers):
            changed = train(cut("hybrid 2×2"), settings)
        assert answers.done
        assert np.array_equal(clean.model.coef, changed.model.coef)


def test_a_changed_scalar_does_not_pass_for_a_gap_of_zero():
    settings = quick(iterations=4, local="practical", certify_every=1, gap=1e-9)
    answers = Answers("losses", shifted(1 << 127))
    stopped = "4 iterations"
    with interpose(answers), suppress(WeftError):
        stopped = train(cut("hybrid 2×2"), settings).result.stopped
    assert answers.done
    assert stopped == "4 iterations"


def test_scalars_of_parties_that_were_asked_different_things_are_noise():
    """A party that is told another step than the others adds masks that do not cancel."""

    class Differently(Middle):
        done = False

        def down(self, phase, party, message):
            if phase == "hyfdca.step" and not self.done:
                self.done = True
                # It changes nothing under 'practical' but what was asked.
                message["omega"] = 7.0
            return message

    settings = quick(iterations=3, local="practical", certify_every=1)
    differently = Differently()
    with interpose(differently):
        trained = train(cut("hybrid 2×2"), settings)
    clean = train(cut("hybrid 2×2"), settings)
    assert differently.done
    assert np.array_equal(clean.model.coef, trained.model.coef)
    assert abs(trained.result.history[0].primal) > 1e9


# ── matching: boxes and secrets ───────────────────────────────────────────────────────────────


class Setup(Middle):
    """Changes the first message of a phase to one party, or its reply."""

    def __init__(self, phase, party, change, direction="down"):
        super().__init__()
        self.place = (phase, party)
        self.change = change
        self.direction = direction

    def down(self, phase, party, message):
        here = (phase, party) == self.place and self.direction == "down"
        return self.change(message) if here else message

    def up(self, phase, party, message, reply):
        here = (phase, party) == self.place and self.direction == "up"
        return self.change(reply) if here else reply


def flipped(message):
    box = bytearray(message["seeds.content"])
    box[len(box) // 2] ^= 4
    return {**message, "seeds.content": bytes(box)}


BOXES = {
    "flipped": flipped,
    "cut": lambda m: {**m, "seeds.content": m["seeds.content"][:-1]},
    "longer": lambda m: {**m, "seeds.content": m["seeds.content"] + b"0"},
    "zeros": lambda m: {**m, "seeds.content": bytes(len(m["seeds.content"]))},
    "from another": lambda m: {**m, "seeds.makers": m["seeds.makers"] + 1},
    "of another length": lambda m: {**m, "seeds.lengths": m["seeds.lengths"] - 1},
    "missing": lambda m: {k: v for k, v in m.items() if not k.startswith("seeds.")},
    "none": lambda m: {**m, "seeds.content": b"", "seeds.lengths": m["seeds.lengths"][:0],
                       "seeds.makers": m["seeds.makers"][:0]},
}  # fmt: skip


@pytest.mark.parametrize("cipher", ["bfv", "paillier"])
def test_a_run_in_which_nobody_is_told_to_deal_the_shared_key_stops(cipher):
    with (
        interpose(Setup("match.view", "r1c1", lambda m: {**m, "seeds.deal": False})),
        pytest.raises(ProtocolError, match=r"'seeds\.deal' is for the first party"),
    ):
        train(cut("hybrid 2×2"), quick(cipher=cipher, iterations=1, local="practical"))


@every_value(change=BOXES, cipher=HIDING)
def test_sealed_boxes_that_were_changed_stop_the_run(cipher, change):
    with (
        interpose(Setup("match.keys", "r2c2", BOXES[change])),
        pytest.raises(WeftError, match="r2c2") as caught,
    ):
        train(cut("hybrid 2×2"), quick(cipher=cipher, iterations=1, local="practical"))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cipher", HIDING)
def test_boxes_that_are_given_to_another_party_do_not_open(cipher):
    class Swap(Middle):
        kept = None

        def down(self, phase, party, message):
            if phase != "match.keys":
                return message
            if party == "r1c2":
                self.kept = message
            # Tags are of its own view, so that the boxes are looked at.
            return {**self.kept, "tags": message["tags"]} if party == "r2c2" else message

    with (
        interpose(Swap()),
        pytest.raises(WeftError, match="r2c2 was not sent one letter from each"),
    ):
        train(cut("hybrid 2×2"), quick(cipher=cipher, iterations=1))


@every_value(cipher=HIDING, change=["flipped", "cut", "missing"])
def test_boxes_that_were_changed_on_their_way_up_stop_the_run(cipher, change):
    with (
        interpose(Setup("match.view", "r1c1", BOXES[change], "up")),
        pytest.raises(WeftError) as caught,
    ):
        train(cut("hybrid 2×2"), quick(cipher=cipher, iterations=1))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("cipher", HIDING)
def test_parties_with_different_run_secrets_do_not_begin(cipher):
    split = cut("hybrid 2×2")
    keys = ephemeral_keys(tuple(split.parties))
    keys["r2c1"] = replace(keys["r2c1"], run=Secret.random())
    with pytest.raises(WeftError, match="r1c1 and r2c1 hold different run secrets") as caught:
        train(split, quick(cipher=cipher), keys=keys)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("field", ["keys.mark", "keys.public", "key"])
def test_parties_whose_keys_were_exchanged_on_the_way_do_not_begin(field):
    values = {"keys.mark": "0" * 16, "keys.public": b"short", "key": 7}
    phase = "match.view" if field == "key" else "match.tokens"
    change = Setup(phase, "r2c1", lambda reply: {**reply, field: values[field]}, "up")
    with interpose(change), pytest.raises(WeftError) as caught:
        train(cut("hybrid 2×2"), quick())
    assert "r2c1" in str(caught.value)
    assert "\n" not in str(caught.value)
