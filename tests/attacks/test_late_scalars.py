"""A scalar that comes late: total(S) − total(S without k) would be k's own.

Four horizontal parties, breast cancer. p4's answer is late, the coordinator asks the other three
again for the same values, and then p4's answer arrives after all. Unguarded is a model of that
naive protocol, made of Weft's own masks; then the parties of Weft are asked in the same way.
"""

from __future__ import annotations

import numpy as np
import pytest
from asking_again import NAMES, caught, objects, total
from scene import by_rows, run, table_of

from masked_parties import masks_of
from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.coordinator_adder import Adder
from weft.crypto.scalar_mask_neighbours import attendance
from weft.federation.local_federation import Federation
from weft.guards import OPEN, Terms
from weft.solvers.hyfdca.messages import StepReply, StepRequest
from weft.solvers.run_settings import Settings
from weft.sums.gap_certificate import class_sums
from weft.sums.scalar_sums import add_scalars, over_attending, pack_scalars

LATE = "p4"
LAM = 0.01


@pytest.fixture(scope="module")
def tiles():
    return by_rows(table_of("breast_cancer", 200), 4)


# ── the naive protocol ────────────────────────────────────────────────────────────────────────


def masked_parties() -> tuple[Adder, dict[str, Pad]]:
    """Parties with masks, and a coordinator that asks them."""
    adder, parties = Adder("pad"), {}
    for name, masks in zip(NAMES, masks_of(len(NAMES)), strict=True):
        cipher = parties[name] = Pad()
        cipher.masks = masks
    adder.meet(NAMES, 1, b"")
    return adder, parties


def asked(adder: Adder, parties, values, names) -> dict[str, StepReply]:
    """Everybody's answer to one request for its loss, in a sum over those who are asked."""
    round_ = adder.advance()
    messages = {name: StepRequest(round=round_, iteration=1, ack=0, gamma=1.0) for name in names}
    adder.attend(messages)
    replies = {}
    for name, message in messages.items():
        cipher = parties[name]
        cipher.begin(message, "hyfdca.step")
        some = over_attending(cipher, message.attending)
        replies[name] = StepReply(losses=pack_scalars(cipher, "losses", values[name], over=some))
    return replies


def test_asking_again_without_the_late_party_gives_its_value_away(tiles, record):
    trained = Federation(tiles).train(Settings(lam=LAM, gap=1e-2))
    w = trained.model.coef[0]
    values = {
        name: float(np.maximum(0, 1 - (2 * tile.labels - 1) * (tile.block @ w)).sum())
        for name, (tile,) in tiles.items()
    }
    adder, parties = masked_parties()
    first = asked(adder, parties, values, NAMES)
    second = asked(adder, parties, values, NAMES[:3])
    # Neither attempt says anything of p4 alone; but p4's answer comes after all.
    assert add_scalars({p: first[p] for p in NAMES[:3]}, "losses", 1, NAMES) is None
    (whole,), (rest,) = (
        add_scalars(first, "losses", 1, NAMES),
        add_scalars(second, "losses", 1, NAMES[:3]),
    )
    off = abs(whole - rest - values[LATE]) / values[LATE]
    assert off < 1e-9
    record("12", "unguarded", f"p4's loss, error {off:.0e}")


# ── the parties of Weft ───────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize(
    ("solver", "phase", "field"),
    [
        ("hyfdca", "hyfdca.fused", "losses"),
        ("cutting-planes", "subspace.search", "losses"),
        ("cutting-planes", "subspace.spread", "gram"),
    ],
)
def test_parties_of_weft_do_not_tell_the_same_in_two_sums(tiles, record, solver, phase, field):
    """Asked again without p4, the others put the masks of all four on their answers."""
    again = caught(tiles, solver, phase)
    rest = again.ask(NAMES[:3])
    if solver == "hyfdca":
        # Told once: whoever takes a step back is not told scalars of all.
        assert {"takes a step back" in refusal for refusal in again.refusals} == {True}
        record("12", "guarded", f"{phase}: refused")
        return
    assert np.abs(total(again.first, field, NAMES)).max() < 100
    assert np.abs(total(rest, field, NAMES[:3])).min() > 2.0**20
    record("12", "guarded", f"{phase}: noise")


def test_a_sum_over_those_who_are_there_is_refused_under_guards(tiles):
    """Also where a message says in so many words that it goes over three."""
    again = caught(tiles, "hyfdca", "hyfdca.fused")
    three = attendance(4, [0, 1, 2])
    assert not again.ask(NAMES[:3], measure=True, every=False, attending=three)
    assert {"not all take part" in refusal for refusal in again.refusals} == {True}


class Turns:
    """What the coordinator reads of estimates, iteration by iteration, over who was there."""

    def __init__(self) -> None:
        self.replies: dict[int, dict[str, dict]] = {}
        self.truth: dict[int, float] = {}

    def around(self, name, handler):
        def answer(phase, message):
            reply = handler(phase, message)
            if phase == "hyfdca.fused" and "estimate" in reply:
                turn = message["iteration"]
                self.replies.setdefault(turn, {})[name] = reply
                if name == LATE:
                    half = handler.__self__._half
                    z = half.table.products(None, half.w)
                    self.truth[turn] = class_sums(half, z, half.alpha)[0]
            return reply

        return answer


def told_of_p4(tiles, terms) -> list[float]:
    """Differences of estimates with and without p4, off from its loss by how much of it."""
    turns = Turns()
    trace = [NAMES if turn % 2 else NAMES[:3] for turn in range(60)]
    how = Settings(
        lam=LAM, gap=None, iterations=60, norms="cohort", certify_every=1,
        participation={"trace": trace},
    )  # fmt: skip
    run(tiles, how, terms, around=turns.around)
    offs = []
    for turn in sorted(turns.truth)[-10:]:
        if turn - 1 not in turns.replies:
            continue
        with_, without = (turns.replies[t] for t in (turn, turn - 1))
        whole, rest = (add_scalars(objects(r), "estimate", 2, list(r)) for r in (with_, without))
        offs.append(abs(whole[0] - rest[0] - turns.truth[turn]) / turns.truth[turn])
    return offs


def test_sums_over_those_who_are_there_tell_about_those_who_come_and_go(tiles, record):
    """Nobody lies and nothing is late: p4 is there in every second iteration.

    Near the end, the others' losses hardly change in between: the difference of two totals is p4's
    loss but for that.
    """
    offs = told_of_p4(tiles, OPEN)
    assert len(offs) >= 5
    assert np.median(offs) < 0.05
    samples = len(tiles[LATE][0].ids)
    record("12b", "unguarded", f"p4's loss over {samples} samples to {100 * np.median(offs):.1g} %")


def test_no_estimates_are_told_under_guards(tiles, record):
    assert told_of_p4(tiles, Terms(min_batch=5)) == []
    record("12b", "guarded", "no estimates; certificates go over everybody")
