"""HyFDCA: margins and dual variables of single samples, from turns of the coordinator's choice.

Three parties by columns, breast cancer, logistic loss, careful terms, ``pad``. Nobody is left out
of a sum and nothing is forged; but the coordinator says which reply of a party arrived, which
samples' α it takes over, and how often it asks.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import by_columns, run, table_of
from scipy.optimize import brentq
from staging import Stage, Total, scalars

from weft.crypto.ciphers.block_format import (
    Carried,
    pack_block,
    pad_id_of,
    read_block,
    word_block,
)
from weft.errors import ProtocolError, WeftError
from weft.guards import Terms
from weft.solvers.hyfdca.party import HyfdcaParty
from weft.solvers.hyfdca.party_state import HyfdcaState
from weft.solvers.run_settings import Settings
from weft.sums.party_contribution import Contribution

SAMPLES, TRIED = 60, 5
NAMES = ["p1", "p2", "p3"]
SAFE = Settings(
    lam=0.01, loss="logistic", local="safe", gap=None, iterations=8, norms="cohort", certify_every=9
)


class Turns(Stage):
    """HyFDCA's iterations from the first on, as the coordinator likes them."""

    def __init__(self):
        tiles = by_columns(table_of("breast_cancer", SAMPLES), 3)
        super().__init__(tiles, SAFE, "hyfdca.weights", before=True)
        self.round, self.acks = self.next_message["round"] - 1, dict.fromkeys(NAMES, 0)
        self.z = self.key = None

    def _ask(self, phase, names, words):
        self.round += 1
        replies = {}
        for name in names:
            ask = {**words(name), "round": self.round, "ack": self.acks[name]}
            replies[name] = self.handlers[name](f"hyfdca.{phase}", ask)
            self.acks[name] = replies[name]["sequence"]
        return replies

    def weights(self, iteration, again=NAMES):
        """Everyone's products, added to those of the turn before where there was one."""
        words = {"iteration": iteration, "every": True}
        last = len(NAMES) - 1
        if self.z is not None:
            slots = len(self.z.words)
            words["z_pads.news.slots"] = np.array([0], np.int32)
            words["z_pads.news.lengths"] = np.array([slots], np.uint32)
            words["z_pads.news.marks"] = np.array([self.z.pad], np.uint64)
            words["z_pads.asked.again"] = self.bits(*again)
            last = (NAMES.index(again[0]) - 1) % len(NAMES)
        told = self._ask("weights", NAMES, lambda name: {**self.next_message, **words})
        blocks = [told[name]["z"] for name in NAMES]
        change = Total.of(blocks, self.round, last)
        self.key = read_block(blocks[0], "z").key
        self.z = change if self.z is None else self.z.plus(change)

    def step(self, iteration, names=NAMES, only=None, **words):
        """A step of some; ``only``: the one slot that p1 gets, and nothing elsewhere."""

        def ask(name):
            slots = None if only is None or name != "p1" else only
            z = self.z.packed("z", self.key, self.round, slots)
            return {"iteration": iteration, "gamma": 1.0, "z": z, **words}

        return self._ask("step", names, ask)

    def conjugates(self, iteration):
        """The sum of all conjugates, where everyone stands."""
        self.weights(iteration)
        return scalars(self.step(iteration, still=True), "losses")[1]


# ── a first contribution that is taken back ───────────────────────────────────────────────────


def open_before_contributing(monkeypatch):
    """A party that has contributed to no running sum may open one, as it likes."""
    never = property(lambda sum_: False, lambda sum_, value: None)
    monkeypatch.setattr(Contribution, "_holds_own", never, raising=False)


def step_in_any_turn(monkeypatch):
    """A party takes steps whether or not it sent products in that turn."""
    always = property(lambda half: True, lambda half, value: None)
    monkeypatch.setattr(HyfdcaState, "_turn_open", always, raising=False)


def margins():
    """y·z of some samples, and what they are."""
    turns = Turns()
    turns.weights(1)
    turns.acks["p1"] -= 1
    turns.step(1)
    turns.weights(2, again=["p2", "p3"])
    # "Your last reply was lost": p1 has contributed to nothing then.
    turns.acks["p1"] -= 1
    view = turns.parties["p1"].view
    slots = np.flatnonzero(view.counted_rows[: len(turns.z.words)])[:TRIED]

    def loss(only):
        return scalars(turns.step(2, only=only, still=True), "losses")[0] * turns.n_samples

    nothing = loss([])
    found = [-np.log(np.expm1(loss([slot]) - nothing + np.log(2))) for slot in slots]
    halves = [turns.half(name) for name in NAMES]
    z = sum(half.table.products(None, half.w)[slots, 0] for half in halves)
    return np.array(found), halves[0].labels[slots, 0] * z


def test_margins_follow_from_a_first_contribution_that_is_taken_back(monkeypatch, record):
    open_before_contributing(monkeypatch)
    step_in_any_turn(monkeypatch)
    found, true = margins()
    error = np.abs(found - true).max()
    assert error < 1e-6
    record("47", "unguarded", f"{TRIED} of {TRIED} margins, error {error:.0e}")


@pytest.mark.parametrize(
    ("without", "words"),
    [
        (step_in_any_turn, "a total that this party has not contributed to"),
        (open_before_contributing, "a step without products of its own turn"),
        (None, "a step without products of its own turn"),
    ],
    ids=["no total is opened", "no step is taken", "neither"],
)
def test_nothing_is_opened_after_it_was_taken_back(without, words, monkeypatch, record):
    if without is not None:
        without(monkeypatch)
    with pytest.raises(ProtocolError, match=words):
        margins()
    if without is None:
        record("47", "guarded", "refused")


# ── α of one sample at a time ─────────────────────────────────────────────────────────────────


def conjugate(a):
    return a * np.log(a) + (1 - a) * np.log(1 - a) if 0 < a < 1 else 0.0


def read_back(changes):
    """|α| of single samples, or 1 − |α|, from how the sum of conjugates changed."""
    return np.array([brentq(lambda a, c=c: conjugate(a) - c, 0.0, 0.5) for c in changes])


def off(found, true):
    return np.minimum(np.abs(found - true), np.abs(1 - found - true)).max()


def told_one_by_one():
    """α of some samples as p2 posts it, of which p1 is told one after the other."""
    turns = Turns()
    for iteration in (1, 2, 3):
        turns.weights(iteration)
        posts = turns.step(iteration, ["p2", "p3"])
    post, at = posts["p2"], pad_id_of(0, turns.round, 1)
    block = read_block(post["alpha"], "alpha")
    words, counted = word_block(block, "alpha"), turns.parties["p1"].view.counted_rows
    last = turns.conjugates(3)
    changes, samples = [], []
    for k in np.flatnonzero(counted[post["alpha_slots"]])[:TRIED]:
        turns.round += 1
        carried = Carried(np.ones(1, np.uint32), None, np.array([at], np.uint64))
        body = words.words[k : k + 1].tobytes() + words.tags[k : k + 1].tobytes()
        request = pad_id_of(0, turns.round, 0)
        alpha = pack_block("pad", "alpha", block.key, request, 1, 1, body, carried)
        slots = post["alpha_slots"][k : k + 1]
        ask = {"round": turns.round, "iteration": 3, "ack": turns.acks["p1"]}
        reply = turns.handlers["p1"]("hyfdca.dual", {**ask, "alpha_slots": slots, "alpha": alpha})
        turns.acks["p1"] = reply["sequence"]
        now = turns.conjugates(3)
        changes.append((now - last) * turns.n_samples)
        samples.append(int(slots[0]))
        last = now
    half = turns.half("p1")
    return read_back(changes), (half.labels * half.alpha)[samples, 0]


def test_dual_variables_follow_from_posts_of_one_sample(monkeypatch, record):
    monkeypatch.setattr(HyfdcaState, "_insist_on_draws", lambda half, slots: None)
    error = off(*told_one_by_one())
    assert error < 1e-6
    record("48", "unguarded", f"posts: {TRIED} of {TRIED} samples, error {error:.0e}")


def test_posts_of_one_sample_are_refused(record):
    with pytest.raises(ProtocolError, match="do not name all samples that were drawn"):
        told_one_by_one()
    record("48", "guarded", "posts: refused")


def first_of(message, used):
    """The sum of changes that everyone proposed, of one sample not seen yet."""
    slots = message["delta_slots"]
    k = next(i for i, slot in enumerate(slots.tolist()) if slot not in used)
    block = read_block(message["delta"], "delta")
    words = word_block(block, "delta")
    pads = words.carried.per_slot(len(slots), np.zeros(len(slots), np.int32), "delta")[:, k]
    pads = pads[pads != 0]
    layers = np.array([len(pads)], np.uint32) if len(pads) > 1 else None
    body = words.words[k : k + 1].tobytes() + words.tags[k : k + 1].tobytes()
    carried = Carried(np.ones(1, np.uint32), layers, pads)
    delta = pack_block("pad", "delta", block.key, block.pad_id, 1, 1, body, carried)
    return {**message, "delta": delta, "delta_slots": slots[k : k + 1]}


def changed_one_by_one():
    """A run in which α of one sample changes in every iteration."""
    settings = Settings(
        lam=0.01,
        loss="logistic",
        local="practical",
        gap=None,
        iterations=TRIED + 1,
        certify_every=1,
    )
    told, totals, used, true = {}, [], [], []

    def around(name, handler):
        def answer(phase, message):
            if phase == "hyfdca.dual" and "delta" in message:
                message = first_of(message, used if name == "p1" else used[:-1])
                if name == "p1":
                    used.append(int(message["delta_slots"][0]))
            reply = handler(phase, message)
            if phase == "hyfdca.step" and reply.get("losses") is not None:
                told[name] = reply
                if name == NAMES[-1]:
                    totals.append(scalars(told, "losses")[1])
            if phase == "hyfdca.dual" and name == "p1":
                half = handler.__self__._half
                true.append(float((half.labels * half.alpha)[used[-1], 0]))
            return reply

        return answer

    done = run(by_columns(table_of("breast_cancer", SAMPLES), 3), settings, Terms(), around=around)
    changes = np.diff(totals)[:TRIED] * done.trained.holdings.n_samples
    return read_back(changes), np.array(true[: len(changes)])


@pytest.mark.release
def test_dual_variables_follow_from_changes_of_one_sample(monkeypatch, record):
    monkeypatch.setattr(HyfdcaParty, "_insist_on_proposed", lambda half, slots: None)
    found, true = changed_one_by_one()
    assert len(found) == TRIED
    error = off(found, true)
    assert error < 1e-6
    record("48", "unguarded", f"changes: {TRIED} of {TRIED} samples, error {error:.0e}")


def test_changes_of_one_sample_are_refused(record):
    with pytest.raises(WeftError, match="do not name all samples that were proposed"):
        changed_one_by_one()
    record("48", "guarded", "changes: refused")
