"""Whose contributions a sum is of is not the coordinator's word.

Holders of a cohort can open its pads. A coordinator that could ask one party for a contribution
without masks, bring zeros in the place of the others', or begin a sum anew, would have an honest
party open a total of its own making, and read what that party does with it: cells, labels, weights.
"""

from __future__ import annotations

from functools import cache
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from scene import by_rows, run, table_of
from without_rings import NEWEST, without_masks

from weft.crypto.ciphers.block_format import KIND_CODES, Carried, read_block, word_block
from weft.crypto.pads.cohort_mask_neighbours import CohortHolders
from weft.errors import ProtocolError, WeftError
from weft.guards import Terms
from weft.protocol.shared_fields import Asked, PadLinks
from weft.solvers.run_settings import Settings
from weft.sums.table_scaling_and_certificate_messages import MEND, MendRequest

NAMES = ("p1", "p2", "p3", "p4")
FAST = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=1e-1, iterations=3)
SLOW = Settings(lam=0.01, loss="logistic", local="safe", iterations=3, certify_every=9)


def bits(*names: str) -> np.ndarray:
    return np.packbits(np.isin(NAMES, names))


def attack(change, settings=FAST, phase="subspace.gather"):
    """A run in which requests for feature sums are changed; what came back in the first of them."""
    told = SimpleNamespace(parties={}, first={}, truth={})

    def around(name, handler):
        told.parties[name] = handler.__self__

        def answer(asked, message):
            mine = asked == phase and "v_pads.chain" in message
            if mine:
                message = change(name, dict(message))
            reply = handler(asked, message)
            if mine and name not in told.first:
                told.first[name] = reply["v"]
            return reply

        return answer

    run(by_rows(table_of("breast_cancer", 200), 4), settings, Terms(), around=around)
    return told


def asked_alone(name, message):
    if name != "p1":
        return message
    fields = {"v_pads.asked.parties", "v_pads.asked.again"}
    told = {field: bits(name) for field in fields & {*message, "v_pads.asked.parties"}}
    return {**message, **told}


def opened_by(party, packed) -> np.ndarray | None:
    """What a contribution is to a holder of the same columns, with the pads of its maker."""
    block = read_block(packed, "v")
    sent = word_block(block, "v")
    streams = party._cipher._streams["v"]
    carried = Carried(None, None, np.full(streams.cohorts, block.pad_id, np.uint64))
    try:
        return streams.show(
            KIND_CODES["v"], None, sent.words, sent.tags, carried, (0, NEWEST), "a contribution"
        )
    except ProtocolError:
        return None


@pytest.mark.parametrize("fixed", [False, True])
def test_nobody_contributes_alone_and_without_masks(fixed, monkeypatch, record):
    if fixed:
        with pytest.raises(WeftError, match="over fewer parties than agreed on"):
            attack(asked_alone, SLOW, "hyfdca.fused")
        record("44", "guarded", "refused")
        return
    with monkeypatch.context() as patch:
        made = CohortHolders.__init__

        def careless(self, lengths, holders, party, parties, least, secret):
            made(self, lengths, holders, party, parties, 1, secret)

        patch.setattr(CohortHolders, "__init__", careless)
        without_masks(patch)
        told = attack(asked_alone, SLOW, "hyfdca.fused")
    found = opened_by(told.parties["p2"], told.first["p1"])
    assert found is not None
    # After a first step from zero, α is nearly y times a constant.
    tile = by_rows(table_of("breast_cancer", 200), 4)["p1"][0]
    own = tile.block.T @ np.where(tile.labels == tile.labels.max(), 1.0, -1.0)
    slots = told.parties["p1"].view.tile_columns[0]
    fit = np.corrcoef(found[slots, 0], own)[0, 1]
    assert abs(fit) > 0.98
    record("44", "unguarded", f"p1's own feature sum, correlation {abs(fit):.3f}")


def test_masks_of_parties_that_were_told_of_others_do_not_cancel():
    def three_or_four(name, message):
        three = {"v_pads.asked.parties": bits("p1", "p2", "p3")}
        return {**message, **three} if name == "p1" else message

    with pytest.raises(WeftError, match="fails its check"):
        attack(three_or_four, SLOW, "hyfdca.fused")


def test_masks_of_parties_that_were_asked_other_things_do_not_cancel():
    def other_steps(name, message):
        shorter = {"omega": 2.0 * message["omega"]}
        return {**message, **shorter} if name == "p1" and message["iteration"] == 2 else message

    with pytest.raises(WeftError, match="fails its check"):
        attack(other_steps, SLOW, "hyfdca.fused")


@pytest.mark.parametrize(
    "fields",
    [
        {"v_pads.chain": lambda old: np.zeros_like(old)},
        {"v_pads.chain": lambda old: old - np.uint64(5 << 20)},
        {"v_pads.asked.again": lambda old: None},
        {"v_pads.asked.again": lambda old: bits("p4")},
    ],
    ids=["nothing", "an older sum", "all are new", "one is new"],
)
def test_a_running_sum_is_not_begun_anew(fields):
    def anew(name, message):
        if message["iteration"] > 2:
            for field, new in fields.items():
                changed = new(message.pop(field))
                message |= {} if changed is None else {field: changed}
        return message

    with pytest.raises(WeftError, match=r"does not go on from the sum|is not of those"):
        attack(anew, SLOW, "hyfdca.fused")


# ── masks to be taken off ─────────────────────────────────────────────────────────────────────


@cache
def after_a_run():
    told = attack(lambda name, message: message, SLOW, "hyfdca.fused")
    return told, count(10_000)


def mended(name, asked, chain=0):
    told, rounds = after_a_run()
    party = told.parties[name]
    pads = PadLinks(chain=np.full(1, chain, np.uint64), asked=asked)
    return party.on(MEND, MendRequest(round=next(rounds), v_pads=pads))


def last_of(name):
    masks = after_a_run()[0].parties[name]._cipher.sum_masks
    return max(masks._sent["v"])


THREE = bits("p1", "p2", "p3")


@pytest.mark.parametrize(
    "asked",
    [
        Asked(),
        Asked(torn=5, parties=THREE, again=THREE),
        Asked(torn=-1, again=bits(*NAMES)),
        Asked(torn=-1, parties=THREE),
        Asked(torn=-1, parties=bits("p1", "p2"), again=bits("p1", "p2")),
    ],
    ids=["nothing", "another request", "nobody was silent", "a sum anew", "too few are left"],
)
def test_masks_are_not_taken_off_at_will(asked, record):
    if asked.torn == -1:
        asked = replace(asked, torn=last_of("p1"))
    with pytest.raises(ProtocolError, match=r"masks taken off|before|agreed on|does not go"):
        mended("p1", asked)
    record("45", "guarded", "refused")


def test_masks_are_taken_off_for_those_who_are_left_and_for_no_others():
    context = last_of("p2")
    asked = Asked(torn=context, parties=THREE, again=THREE)
    reply = mended("p2", asked, context)
    # Not its own contribution, and noise to whoever holds the same columns.
    assert opened_by(after_a_run()[0].parties["p1"], reply.v) is None
    # If one of them does not answer, they are asked again; nobody else is.
    assert mended("p2", asked, context).v != reply.v
    others = bits("p2", "p3", "p4")
    with pytest.raises(ProtocolError, match="left before"):
        mended("p2", replace(asked, parties=others, again=others), context)
