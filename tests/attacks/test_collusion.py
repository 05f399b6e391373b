"""The coordinator and one holder put together what they have.

All holders of a cohort can compute its pads, and the coordinator has everybody's contribution:
together they once opened each of them. Now neighbours share masks under the pads, so that they get
the sum over those who were asked, and no part of it.
"""

from __future__ import annotations

import numpy as np
import pytest
from without_rings import NEWEST, without_masks

from interposed import Middle, cut, header_of, interpose, quick, train
from weft.crypto.ciphers.block_format import KIND_CODES, SIGN, Carried, read_block, word_block
from weft.errors import ProtocolError


class Colluding(Middle):
    """Keeps contributions to feature sums, and what their makers put in: that is for the judge."""

    def __init__(self):
        super().__init__()
        self.sent = []

    def up(self, phase, party, message, reply):
        if phase == "hyfdca.fused" and "v" in reply:
            truth = self.parties[party]._half.v_sum._last[1]
            self.sent.append((party, message, reply["v"], truth.copy()))
        return reply

    def opened(self, message, packed):
        """What a contribution opens to, with the pads that every holder knows; None: noise."""
        cipher = self.parties[self.insider]._cipher
        on, off = header_of(packed)["label"], message["v_pads.chain"]
        _, words, tags = word_block(read_block(packed, "a block"), "a block")
        starts = cipher._streams["v"].start
        pads = [[on] if not mark else [on, int(mark) | int(SIGN)] for mark in off.tolist()]
        carried = Carried(
            np.diff(starts).astype(np.uint32),
            np.array([len(some) for some in pads], np.uint32),
            np.array([pad for some in pads for pad in some], np.uint64),
        )
        try:
            return cipher._streams["v"].show(
                KIND_CODES["v"], None, words, tags, carried, (0, NEWEST), "a contribution"
            )
        except ProtocolError:
            return None


@pytest.mark.parametrize("masked", [False, True])
def test_a_holder_and_the_coordinator_open_no_single_contribution(monkeypatch, record, masked):
    if not masked:
        without_masks(monkeypatch)
    both = Colluding()
    with interpose(both):
        train(cut("horizontal"), quick(cipher="pad", iterations=3))
    both.insider = min(both.parties)
    others = [entry for entry in both.sent if entry[0] != both.insider]
    assert len(others) >= 6
    right = 0
    for _, message, packed, truth in others:
        found = both.opened(message, packed)
        right += found is not None and np.array_equal(found, truth)
    side = "guarded" if masked else "unguarded"
    record("32", side, f"{right} of {len(others)} contributions of others opened")
    assert right == (0 if masked else len(others))
