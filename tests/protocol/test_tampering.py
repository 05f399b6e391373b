"""What somebody changes on its way stops the run with one sentence, before it is used.

Whoever sits between the coordinator and the parties, or is the coordinator, changes, exchanges,
repeats, cuts or makes up one block or field, once. Then either the run stops with one sentence that
names the sender, the values and the iteration, and the party that noticed has used nothing of it;
or the change is harmless: the run ends with the very bits of one that nobody touched.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from itertools import product

import gmpy2
import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, assume, given, reject, settings
from hypothesis import strategies as st

from covering import changing, cover, every_value
from interposed import (
    HIDING,
    KINDS,
    Middle,
    blocks_in,
    body_at,
    cut,
    header_of,
    interpose,
    outcome,
    quick,
    train,
    with_header,
)
from weft.crypto.ciphers.bfv_by_seal import MODULUS, BfvTotals
from weft.crypto.ciphers.block_format import KIND_CODES, TAG, Carried, pack_block
from weft.crypto.ciphers.chunk_layout import CHECKS
from weft.crypto.ciphers.cipher_arguments_and_results import WHAT
from weft.crypto.primitives.prime_field import PRIME
from weft.errors import WeftError

#: Sums of all four kinds in both directions.
SETTINGS = {"local": "practical", "participation": 0.75, "iterations": 4}
SIGN = 1 << 63


class Done(BaseException):
    """Ends a run that has shown what it should."""


@cache
def untouched(**changes):
    chosen = quick(**{"cipher": "plain", **SETTINGS, **changes})
    return outcome(train(cut("hybrid 2×2"), chosen))


# ── one change, once ──────────────────────────────────────────────────────────────────────────


@dataclass
class Moment:
    """A block on its way, and all that went by before it."""

    packed: bytes
    cipher: str
    kind: str
    direction: str
    phase: str
    party: str
    message: dict
    middle: Middle
    random: np.random.Generator

    def earlier(self, same_party=True):
        """Blocks of the same kind and direction that went by before."""
        return [
            packed
            for direction, kind, party, packed in self.middle.gone_by[:-1]
            if (direction, kind) == (self.direction, self.kind)
            and (party == self.party) == same_party
        ]


class Tamper(Middle):
    """Changes one block, once.

    Parameters
    ----------
    number
        Which of the blocks of this kind and direction; they are counted from zero.
    attack
        Gives what takes the place of a block (None: nothing does), or SKIP to wait for another.
    """

    def __init__(self, cipher, direction, kind, number, attack, seed=0):
        super().__init__()
        self.cipher = cipher
        self.direction = direction
        self.kind = kind
        self.number = number
        self.attack = attack
        self.random = np.random.default_rng(seed)
        self.gone_by = []
        self.public = b""
        self.done = None

    def down(self, phase, party, message):
        return self._look("down", phase, party, message, message)

    def up(self, phase, party, message, reply):
        self.public = reply.get("shared_public", self.public)
        return self._look("up", phase, party, message, reply)

    def _look(self, direction, phase, party, message, carrier):
        for kind, packed in blocks_in(carrier).items():
            self.gone_by.append((direction, kind, party, packed))
            if self.done or (direction, kind) != (self.direction, self.kind):
                continue
            if self.number > 0:
                self.number -= 1
                continue
            moment = Moment(
                packed, self.cipher, kind, direction, phase, party, message, self, self.random
            )
            new = self.attack(moment)
            if new is SKIP:
                continue
            self.done = (phase, party)
            carrier = {name: value for name, value in carrier.items() if name != kind}
            if new is not None:
                carrier[kind] = new
        return carrier


SKIP = object()


def verdict(tamper, **changes):
    """What became of a run: 'stopped', 'harmless', 'accepted' or 'never' (nothing to change)."""
    chosen = quick(**{"cipher": tamper.cipher, **SETTINGS, **changes})
    try:
        with interpose(tamper):
            trained = train(cut("hybrid 2×2"), chosen)
    except WeftError as error:
        assert tamper.done
        assert_a_good_sentence(str(error), tamper.kind)
        for _, _, cause, changed in tamper.refused:
            assert isinstance(cause, WeftError), repr(cause)
            assert changed == [], f"the party had used it: {cause}"
        return "stopped"
    if not tamper.done:
        return "never"
    # A party that breaks down counts as silent, and the run goes on: no way to notice anything.
    assert not tamper.refused, tamper.refused
    return "harmless" if outcome(trained) == untouched(**changes) else "accepted"


def assert_a_good_sentence(sentence, kind):
    assert "\n" not in sentence
    assert "party r" in sentence, sentence
    assert WHAT[kind] in sentence, sentence
    assert "in iteration " in sentence, sentence


def assert_caught(make, must=True):
    found = verdict(make())
    if found == "never":
        reject()
    assert found in (("stopped",) if must else ("stopped", "harmless"))


# ── attacks on one block ──────────────────────────────────────────────────────────────────────


def flip(moment):
    """One bit of header, labels or body."""
    at = int(moment.random.integers(8 * len(moment.packed)))
    changed = bytearray(moment.packed)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def flip_in_body(moment):
    begin = body_at(moment.packed)
    if begin == len(moment.packed):
        return SKIP
    at = int(moment.random.integers(8 * begin, 8 * len(moment.packed)))
    changed = bytearray(moment.packed)
    changed[at // 8] ^= 1 << at % 8
    return bytes(changed)


def flip_in_labels(moment):
    """One bit of the labels that a total carries."""
    head = header_of(moment.packed)
    end = body_at(moment.packed)
    begin = end - 8 * head["labels"]
    if begin == end:
        return SKIP
    # Below the bits of the epoch, so that no label seems to be from the future.
    word = begin + 8 * int(moment.random.integers(head["labels"]))
    bit = int(moment.random.integers(0, 24))
    changed = bytearray(moment.packed)
    changed[word + bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def truncate(moment):
    return moment.packed[: int(moment.random.integers(len(moment.packed)))]


def extend(moment):
    return moment.packed + moment.random.bytes(int(moment.random.integers(1, 40)))


def other_values(moment):
    """A body of the same length, at random."""
    begin = body_at(moment.packed)
    if begin == len(moment.packed):
        return SKIP
    return moment.packed[:begin] + moment.random.bytes(len(moment.packed) - begin)


def zeros(moment):
    begin = body_at(moment.packed)
    if begin == len(moment.packed):
        return SKIP
    return moment.packed[:begin] + bytes(len(moment.packed) - begin)


def replay(moment):
    """An older block, as it was."""
    older = moment.earlier()
    return older[int(moment.random.integers(len(older)))] if older else SKIP


def exchanged_body(moment):
    """The body of an older block under the new header and labels."""
    older = [p[body_at(p) :] for p in moment.earlier()]
    begin = body_at(moment.packed)
    older = [b for b in older if len(b) == len(moment.packed) - begin and b]
    older = [b for b in older if b != moment.packed[begin:]]
    return moment.packed[:begin] + older[-1] if older else SKIP


def anothers(moment):
    """A block of another party, as it was."""
    others = [p for p in moment.earlier(same_party=False) if p != moment.packed]
    return others[int(moment.random.integers(len(others)))] if others else SKIP


def neighbours(moment):
    """The block of another party that was made for the same request, as it was."""
    head = header_of(moment.packed)
    same = [p for p in moment.earlier(same_party=False) if header_of(p)["label"] == head["label"]]
    same = [p for p in same if header_of(p)["count"] == head["count"] and p != moment.packed]
    return same[-1] if same else SKIP


def anothers_body(moment):
    """What another party sent or got, in one's own name."""
    others = [p[body_at(p) :] for p in moment.earlier(same_party=False)]
    begin = body_at(moment.packed)
    others = [b for b in others if b and len(b) == len(moment.packed) - begin]
    others = [b for b in others if b != moment.packed[begin:]]
    return moment.packed[:begin] + others[-1] if others else SKIP


def another_kind(moment):
    """Another kind of sum in the header."""
    others = [code for kind, code in KIND_CODES.items() if kind != moment.kind]
    return with_header(moment.packed, kind=others[int(moment.random.integers(len(others)))])


def values_of_another_kind(moment):
    """A block of another kind that says that it is of this one."""
    found = [
        packed
        for direction, kind, _, packed in moment.middle.gone_by
        if direction == moment.direction
        and kind != moment.kind
        and header_of(packed)["count"] == header_of(moment.packed)["count"]
    ]
    if not found:
        return SKIP
    head = header_of(moment.packed)
    return with_header(found[-1], kind=head["kind"], label=head["label"])


def another_cipher(moment):
    """Numbers in the clear, for a party that expects them encrypted."""
    head = header_of(moment.packed)
    values = np.zeros(head["count"] * head["width"], np.int64).tobytes()
    return pack_block("plain", moment.kind, head["key"], head["label"], head["count"],
                      head["width"], values)  # fmt: skip


def another_run(moment):
    """A block as another federation would send it: the same, under another key."""
    return foreign(moment.cipher, moment.direction, moment.kind)


def another_run_in_our_name(moment):
    """The values of another federation, under our header."""
    other = foreign(moment.cipher, moment.direction, moment.kind)
    head = header_of(moment.packed)
    other = with_header(other, key=head["key"], label=head["label"])
    same = header_of(other)["count"] == head["count"]
    return other if same and body_at(other) < len(other) else SKIP


def another_label(moment):
    """A label of the past, the future or somebody else in the header."""
    change = [-(1 << 20), 1 << 20, 1, 1 << 52][int(moment.random.integers(4))]
    return with_header(moment.packed, label=header_of(moment.packed)["label"] + change)


def other_sizes(moment):
    head = header_of(moment.packed)
    field = ["count", "width", "runs", "labels"][int(moment.random.integers(4))]
    return with_header(moment.packed, **{field: head[field] + 1})


def four_billion_runs(moment):
    """A header that promises more than any memory holds."""
    field = ["count", "runs", "labels"][int(moment.random.integers(3))]
    return with_header(moment.packed, **{field: (1 << 32) - 1})


def no_block(moment):
    """Bytes that are none; other types are refused by decoding, see test_declarations."""
    chosen = [b"", b"Wb", moment.packed[:8], None]
    if moment.direction == "down" and moment.kind != "v":
        chosen.pop()  # See below.
    return chosen[int(moment.random.integers(len(chosen)))]


def missing(moment):
    return None


def added_twice(moment):
    """One contribution goes into the total twice."""
    if moment.direction == "down":
        return SKIP
    begin = body_at(moment.packed)
    body = moment.packed[begin:]
    return moment.packed[:begin] + summed(moment, [body, body]) if body else SKIP


def left_out(moment):
    """The total lacks one contribution."""
    if moment.direction == "down":
        return SKIP
    begin = body_at(moment.packed)
    return moment.packed[:begin] + nothing(moment, len(moment.packed) - begin)


def single(moment):
    """One party's contribution is sent as the total, under the labels of the total."""
    if moment.direction == "up":
        return SKIP
    begin = body_at(moment.packed)
    found = [p for d, k, _, p in moment.middle.gone_by if (d, k) == ("up", moment.kind)]
    bodies = [p[body_at(p) :] for p in found]
    prefix = b""
    if moment.cipher == "bfv":
        prefix, _ = bfv_parts(moment.packed[begin:])
    else:
        bodies = [b for b in bodies if len(b) == len(moment.packed) - begin]
    bodies = [b for b in bodies if b and b != moment.packed[begin:]]
    return moment.packed[:begin] + prefix + bodies[-1] if bodies else SKIP


def summed(moment, bodies):
    """What the coordinator's arithmetic makes of bodies: it can add, as anybody can."""
    if moment.cipher != "bfv":
        end = len(bodies[0]) - TAG * header_of(moment.packed)["count"]
        tags = [np.frombuffer(body[end:], np.uint64).astype(object) for body in bodies]
        tags = (sum(tags) % PRIME).astype(np.uint64).tobytes()
        bodies = [body[:end] for body in bodies]
    if moment.cipher == "pad":
        with np.errstate(over="ignore"):
            return sum(np.frombuffer(b, np.uint64) for b in bodies).tobytes() + tags
    if moment.cipher == "paillier":
        n = int.from_bytes(moment.middle.public, "big")
        width = 2 * len(moment.middle.public)
        out = []
        for at in range(0, len(bodies[0]), width):
            product = gmpy2.mpz(1)
            for body in bodies:
                product = product * int.from_bytes(body[at : at + width], "big") % (n * n)
            out.append(int(product).to_bytes(width, "big"))
        return b"".join(out) + tags
    totals = BfvTotals(1)
    checks = np.zeros(CHECKS, np.uint64)
    for body in bodies:
        checks = (checks + np.frombuffer(body, np.uint64, CHECKS)) % np.uint64(MODULUS)
        totals.add(np.arange(1), body[CHECK_BYTES:])
    return checks.tobytes() + totals.take(np.arange(1))


def nothing(moment, size):
    """A sum over nothing, as anybody can write it down."""
    if moment.cipher == "pad":
        return bytes(size)
    if moment.cipher == "paillier":
        width, tags = 2 * len(moment.middle.public), TAG * header_of(moment.packed)["count"]
        return (1).to_bytes(width, "big") * ((size - tags) // width) + bytes(tags)
    return EMPTY_CHUNK


#: Check words travel in front of a chunk; a chunk of nothing is one byte.
CHECK_BYTES = 8 * CHECKS
EMPTY_CHUNK = bytes(CHECK_BYTES) + b"\0"


def bfv_parts(body, chunks=1):
    """The labels in front of sealed totals, and the totals."""
    counts = np.frombuffer(body, np.uint32, chunks)
    end = 4 * chunks + 8 * int(counts.sum())
    return body[:end], body[end:]


def foreign(cipher, direction, kind):
    """The last block of a kind in another federation that does the same."""
    return [p for d, k, _, p in another_federation(cipher) if (d, k) == (direction, kind)][-1]


@cache
def another_federation(cipher):
    """All blocks of its run."""
    middle = Tamper(cipher, "down", "z", 10**6, None)
    with interpose(middle):
        train(cut("hybrid 2×2"), quick(cipher=cipher, **SETTINGS))
    return middle.gone_by


#: What no party and no coordinator may ever take.
ALWAYS_CAUGHT = (
    truncate,
    extend,
    replay,
    anothers,
    another_kind,
    another_cipher,
    another_run,
    another_label,
    other_sizes,
    four_billion_runs,
    no_block,
)
#: What is noticed where the values are read; the newest α may be replaced before anybody does.
CAUGHT_WHERE_READ = (
    flip,
    flip_in_body,
    other_values,
    zeros,
    exchanged_body,
    anothers_body,
    values_of_another_kind,
    another_run_in_our_name,
    added_twice,
    left_out,
    single,
)

#: Attacks that there are in one direction only; a run in the other would show nothing.
ONE_WAY = {added_twice: "up", left_out: "up", single: "down"}
WAYS = ("down", "up")
PLACES = {
    "way": st.sampled_from(WAYS),
    "kind": st.sampled_from(KINDS),
    "number": st.integers(0, 9),
    "seed": st.integers(0, 2**16),
}
RUNS = {
    "suppress_health_check": [HealthCheck.too_slow, HealthCheck.filter_too_much],
    # Runs are no simpler for smaller numbers.
    "phases": (Phase.explicit, Phase.generate),
}


def named(attack):
    return attack.__name__


@pytest.mark.parametrize("attack", ALWAYS_CAUGHT, ids=named)
@settings(max_examples=2 if changing() else 3, **RUNS)
@given(**PLACES)
def test_a_pad_block_that_is_not_what_was_asked_for_is_refused(attack, way, kind, number, seed):
    assert_caught(lambda: Tamper("pad", way, kind, number, attack, seed))


@pytest.mark.parametrize("attack", CAUGHT_WHERE_READ, ids=named)
@settings(max_examples=2 if changing() else 3, **RUNS)
@given(**PLACES)
def test_pad_values_that_were_changed_are_not_used(attack, way, kind, number, seed):
    direction = ONE_WAY.get(attack, way)
    assert_caught(lambda: Tamper("pad", direction, kind, number, attack, seed), must=False)


@cover(
    ("attack", "cipher"),
    # Headers are the same under every cipher: above; bodies are not.
    [
        *((attack, "bfv") for attack in (truncate, other_sizes, replay, another_run)),
        *((attack, "paillier") for attack in (extend, anothers, another_run)),
    ],
    others=product(ALWAYS_CAUGHT, ["bfv", "paillier"]),
    ids=lambda value: value if isinstance(value, str) else named(value),
)
@settings(max_examples=1 if changing() else 2, **RUNS)
@given(**PLACES)
def test_a_sealed_block_that_is_not_what_was_asked_for_is_refused(
    cipher, attack, way, kind, number, seed
):
    assume(cipher != "bfv" or way == "up" or attack not in UNBOUND)
    assert_caught(lambda: Tamper(cipher, way, kind, number, attack, seed))


#: Under BFV the labels of the values are not bound to them: see below.
UNBOUND = (flip, exchanged_body, anothers, anothers_body)


@every_value(attack=CAUGHT_WHERE_READ, cipher=["bfv", "paillier"])
@settings(max_examples=1 if changing() else 2, **RUNS)
@given(**PLACES)
def test_sealed_values_that_were_changed_are_not_used(cipher, attack, way, kind, number, seed):
    direction = ONE_WAY.get(attack, way)
    assume(cipher != "bfv" or direction == "up" or attack not in UNBOUND)
    assert_caught(lambda: Tamper(cipher, direction, kind, number, attack, seed), must=False)


@every_value(cipher=HIDING, attack=[flip_in_body, other_values, zeros], kind=KINDS)
def test_changed_totals_are_never_used(cipher, attack, kind):
    """Down, every one of them is noticed: there is nobody whom it would not reach."""
    number = 2 if kind == "alpha" else 4
    assert_caught(lambda: Tamper(cipher, "down", kind, number, attack, 5))


@every_value(kind=["v", "z", "alpha", "delta"], cipher=HIDING)
def test_totals_that_are_missing_stop_the_run(cipher, kind):
    number = 2 if kind == "alpha" else 4
    assert verdict(Tamper(cipher, "down", kind, number, missing)) == "stopped"


@every_value(cipher=HIDING, kind=KINDS)
def test_contributions_that_are_missing_from_a_reply_stop_the_run(cipher, kind):
    """Who has nothing to post says so: a post that got lost would leave an older α behind."""
    assert verdict(Tamper(cipher, "up", kind, 0, missing)) == "stopped"


@every_value(cipher=HIDING, attack=[flip_in_labels, exchanged_body], kind=["z", "v"])
def test_totals_under_other_labels_are_never_used(cipher, attack, kind):
    if (cipher, kind) == ("bfv", "v"):
        # Of noise in the few features of a cohort, all are in range once in a while: the threat
        # model admits it.
        kind = "z"
    assert_caught(lambda: Tamper(cipher, "down", kind, 5, attack, 5))


@pytest.mark.parametrize("cipher", HIDING)
def test_totals_of_another_party_are_never_used(cipher):
    """Both hold samples in the same chunk, so that both could open its ciphertext."""
    assert_caught(lambda: Tamper(cipher, "down", "z", 0, neighbours))


# ── a coordinator that makes the labels fit its lie ───────────────────────────────────────────
#
# Nothing that a coordinator does by mistake, and nothing that one does who follows the protocol.
# The labels of a block are public, and the coordinator can add and forward as it likes.

EVERYONE = {"participation": "everyone", "certify_every": 100}


def carrying(moment, body, labels, checks=None):
    """A total made of ``body`` that says it carries these labels."""
    head = header_of(moment.packed)
    carried = Carried(
        np.array([head["count"]], np.uint32),
        np.array([len(labels)], np.uint32),
        np.array(labels, np.uint64),
    )
    if len(labels) == 1:
        carried = Carried(None, None, np.array(labels, np.uint64))
    if moment.cipher == "bfv":
        checks = labels if checks is None else checks
        body = np.uint32(len(checks)).tobytes() + np.array(checks, np.uint64).tobytes() + body
    return pack_block(
        moment.cipher, moment.kind, head["key"], head["label"], head["count"], head["width"], body,
        carried,
    )  # fmt: skip


def last_contribution(moment, party):
    """A party's last block of feature sums, and the labels that it put on and took off."""
    for phase, who, message, reply in reversed(moment.middle.log):
        if who == party and phase.startswith("hyfdca.") and "v" in reply:
            on, off = header_of(reply["v"])["label"], int(message["v_pads.chain"][0])
            checks = int(message["v_pads.checks"][0]) if moment.cipher == "bfv" else 0
            return reply["v"][body_at(reply["v"]) :], on, off, checks
    return None


def older_total(moment):
    """Yesterday's total, as of today."""
    older = [
        p for p in moment.earlier() if p[body_at(p) :] != moment.packed[body_at(moment.packed) :]
    ]
    return with_header(older[-1], label=header_of(moment.packed)["label"]) if older else SKIP


def total_of_nothing(moment):
    """Nobody contributed anything, it says."""
    if moment.party != "r1c1" or not last_contribution(moment, "r1c1"):
        return SKIP
    size = len(moment.packed) - body_at(moment.packed)
    if moment.cipher == "bfv":
        return carrying(moment, EMPTY_CHUNK, [0], [])
    return carrying(moment, nothing(moment, size), [0])


def one_contribution(moment):
    """Another party's last contribution alone, to be read by this one."""
    found = last_contribution(moment, "r2c1")
    if moment.party != "r1c1" or found is None or not found[2]:
        return SKIP
    body, on, off, checks = found
    return carrying(moment, body, [on, off | SIGN], [on, checks | SIGN])


def all_but_the_last(moment):
    """The total before, with the contributions up to this party's own."""
    found = last_contribution(moment, "r1c1")
    older = moment.earlier()
    if moment.party != "r1c1" or found is None or not found[2]:
        return SKIP
    body, on, _, _ = found
    before = older[-1][body_at(older[-1]) :]
    if moment.cipher == "bfv":
        _, before = bfv_parts(before)
    return carrying(moment, summed(moment, [before, body]), [on])


LIES = (older_total, total_of_nothing, one_contribution, all_but_the_last)


@every_value(
    ids=lambda value: value if isinstance(value, str) else named(value), cipher=HIDING, lie=LIES
)
def test_totals_whose_labels_were_made_to_fit_are_not_used(cipher, lie):
    make = lambda: Tamper(cipher, "down", "v", 8, lie)  # noqa: E731
    assert verdict(make(), **EVERYONE) == "stopped"
