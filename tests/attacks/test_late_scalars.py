"""A scalar that comes late: total(S) − total(S without k) would be k's own.

Four horizontal parties, breast cancer. p4's answer is late, the coordinator asks the other three
again for the same values, and then p4's answer arrives after all. Unguarded is a model of that
naive protocol, made of Weft's own masks; then the parties of Weft are asked in the same way.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scene import by_rows, run, table_of

from weft.crypto.adder import Adder
from weft.crypto.ciphers.block_format import HEAD, pad_id_of
from weft.crypto.ciphers.pad import Pad
from weft.crypto.identities import Identity
from weft.crypto.scalar_masks import NONCE, Masks
from weft.errors import WeftError
from weft.federation.local_federation import Federation
from weft.guards import OPEN, Terms
from weft.protocol.message import SCALAR_BYTES
from weft.solvers.hyfdca.messages import StepReply, StepRequest
from weft.solvers.settings import Settings
from weft.sums.gap_certificate import class_sums
from weft.sums.scalar_sums import add_scalars, pack_scalars

NAMES = ["p1", "p2", "p3", "p4"]
LATE = "p4"
LAM = 0.01


@pytest.fixture(scope="module")
def tiles():
    return by_rows(table_of("breast_cancer", 200), 4)


class Done(BaseException):
    """The attack has got what it can."""


# ── the naive protocol ────────────────────────────────────────────────────────────────────────


def masked_parties() -> tuple[Adder, dict[str, Pad]]:
    """Parties with masks, and a coordinator that knows their public keys."""
    adder, parties, keys = Adder("pad"), {}, []
    for number, name in enumerate(NAMES):
        identity, nonce = Identity.new(), bytes([number]) * NONCE
        cipher = parties[name] = Pad()
        cipher.party, cipher.masks = number, Masks(identity, nonce, OPEN)
        keys.append(identity.public.to_bytes() + nonce)
    adder.meet(NAMES, keys, 1, b"")
    return adder, parties


def asked(adder: Adder, parties, values, names) -> dict[str, dict]:
    """Everybody's answer to one request for its loss."""
    round_ = adder.advance()
    messages = {name: StepRequest(round=round_, iteration=1, ack=0, gamma=1.0) for name in names}
    adder.mask(messages)
    replies = {}
    for name in names:
        parties[name].begin(messages[name])
        told = pack_scalars(parties[name], messages[name], "losses", values[name])
        replies[name] = StepReply(losses=told)
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


class Again:
    """A coordinator that keeps p4's answer back and asks the other three again.

    Parameters
    ----------
    phase
        Where the scalars travel.
    number
        In which of such requests.
    """

    def __init__(self, phase: str, number: int) -> None:
        self.phase, self.number = phase, number
        self.handlers, self.asked, self.first, self.second = {}, {}, {}, {}
        self.refusals: list[str] = []

    def around(self, name, handler):
        self.handlers[name] = handler

        def answer(phase, message):
            reply = handler(phase, message)
            if phase == self.phase:
                self.asked[name], self.first[name] = dict(message), reply
                self.number -= name == LATE
                if self.number < 0:
                    self._ask_again()
                    raise Done
            return reply

        return answer

    def _ask_again(self) -> None:
        for name in NAMES[:3]:
            try:
                self.second[name] = self.handlers[name](self.phase, self._without(name))
            except WeftError as error:
                self.refusals.append(str(error))

    def _without(self, name: str) -> dict:
        """The same question, as if p4 had never been asked."""
        message = dict(self.asked[name])
        message["round"] += 100
        keep = np.flatnonzero(message["ring.peers"] != NAMES.index(LATE))
        keys, size = message["ring.keys"], 64 + NONCE
        message["ring.peers"] = message["ring.peers"][keep]
        message["ring.keys"] = b"".join(keys[size * k : size * (k + 1)] for k in keep)
        if "v" in message:
            # The label of the request stands in the last eight bytes of a block's header.
            label = pad_id_of(0, message["round"], 0).to_bytes(8, "little")
            message["v"] = message["v"][: HEAD - 8] + label + message["v"][HEAD:]
        return message


def difference(again: Again, field: str, count: int) -> list[float] | None:
    """total(S) − total(S without p4), as far as it was told."""
    if len(again.second) < 3 or any(field not in r for r in again.second.values()):
        return None
    whole = add_scalars(objects(again.first), field, count, NAMES)
    rest = add_scalars(objects(again.second), field, count, NAMES[:3])
    return None if whole is None or rest is None else np.subtract(whole, rest).tolist()


@pytest.mark.parametrize(
    ("solver", "phase", "field"),
    [
        ("hyfdca", "hyfdca.fused", "losses"),
        ("cutting-planes", "subspace.search", "losses"),
        ("cutting-planes", "subspace.spread", "gram"),
    ],
)
def test_parties_of_weft_do_not_tell_the_same_in_two_sums(tiles, record, solver, phase, field):
    again = Again(phase, 3)
    how = Settings(lam=LAM, solver=solver, gap=None, iterations=6, norms="cohort", certify_every=1)
    with pytest.raises(Done):
        run(tiles, how, Terms(min_batch=5), around=again.around)
    count = len(again.first[LATE][field]) // SCALAR_BYTES
    told = difference(again, field, count)
    record("12", "guarded", f"{phase}: {'refused' if told is None else 'NOT PREVENTED'}")
    assert told is None
    assert len(again.refusals) == 3


def objects(replies: dict[str, dict]) -> dict[str, SimpleNamespace]:
    """Replies with attributes, as code reads them."""
    return {name: SimpleNamespace(**reply) for name, reply in replies.items()}


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
