"""Two feature sums that differ in one sample, from an α that is frozen twice.

Nine parties in a 3×3 grid, breast cancer, HyFDCA that some miss now and then. For a certificate a
coordinator tells whoever was away which α was frozen. One that lies tells an old α of some samples,
and then of one more: the feature sums of the two differ in that sample's row.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import by_both, run, table_of

from small_federations import rough_curvature
from weft.crypto.ciphers.block_format import (
    Carried,
    pack_block,
    pad_id_of,
    read_block,
    word_block,
)
from weft.errors import ProtocolError
from weft.guards import Terms
from weft.guards.keep_apart_from_other_sent_duals import SentAside
from weft.solvers.hyfdca.party_state import HyfdcaState
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.sums.party_contribution import Latest, Wire

VICTIM, FEW = "r1c1", 40
SETTINGS = Settings(
    lam=0.01,
    loss="logistic",
    solver="hyfdca",
    gap=None,
    iterations=8,
    norms="cohort",
    certify_every=1,
    participation=0.9,
)


class Done(BaseException):
    """The run has gone far enough."""


class Coordinator:
    """Follows the protocol up to the fourth step of the last party, and freezes as it likes."""

    def __init__(self):
        self._left, self._asked, self._posts = 4, [], []
        tiles = by_both(table_of("breast_cancer", 300), 3, 3)
        self._names = list(tiles)
        with pytest.raises(Done), rough_curvature():
            run(tiles, SETTINGS, Terms(allow_pairs=True), around=self._around)

    def _around(self, name, handler):
        if name == VICTIM:
            self.party, self._ask = handler.__self__, handler

        def answer(phase, message):
            reply = handler(phase, message)
            self._asked.append((phase, name, dict(message)))
            if name.startswith(VICTIM[:2]) and reply.get("alpha") is not None:
                self._posts.append(dict(reply))
            if phase == "hyfdca.step" and name == self._names[-1]:
                self._left -= 1
                if not self._left:
                    raise Done
            return reply

        return answer

    def freeze(self, count):
        """Freeze the first α that anybody posted, at so many samples; returns its feature sums."""
        posted, half = self._posts[0], self.party._half
        sent = word_block(block := read_block(posted["alpha"], "alpha"), "alpha")
        last = max(message["round"] for _, _, message in self._asked if "round" in message)
        like = next(m for p, n, m in reversed(self._asked) if p == "certify.freeze" and n == VICTIM)
        round_ = last + count
        ids = Carried(np.full(1, count, np.uint32), None, np.array([block.pad_id], np.uint64))
        body = sent.words[:count].tobytes() + sent.tags[:count].tobytes()
        head = ("pad", "alpha", block.key, pad_id_of(0, round_, 0), count, block.width)
        message = {
            **like,
            "round": round_,
            "iteration": 50 + count,
            "ack": half._sequence,
            "alpha": pack_block(*head, body, ids),
            "alpha_slots": posted["alpha_slots"][:count],
        }
        self._ask("certify.freeze", message)
        return half.frozen._sum[:, 0].copy()

    def row(self, place):
        """For the judge: the victim's cells of the sample at that place among those posted."""
        half = self.party._half
        one = np.zeros((half.view.n_rows, 1))
        one[self._posts[0]["alpha_slots"][place]] = 1.0
        cells = np.zeros((half.view.n_columns, 1))
        half.table.accumulate(None, one, cells)
        return cells[:, 0]


@pytest.fixture
def coordinator(monkeypatch):
    # That α of all samples drawn is told, or of none, would refuse most of this by itself.
    monkeypatch.setattr(HyfdcaState, "_insist_on_draws", lambda half, slots: None)
    return Coordinator()


def take_anything(monkeypatch):
    """Take out that α is none that is older than what the party has."""
    monkeypatch.setattr(
        Latest, "take", lambda wire, packed, width, slots: Wire.open(wire, packed, width, slots)
    )


def forget(monkeypatch):
    """Take out that what was sent is remembered."""
    monkeypatch.setattr(SentAside, "note", lambda aside, alpha: None)


@pytest.mark.release
def test_a_row_shows_between_two_frozen_vectors(coordinator, monkeypatch, record):
    take_anything(monkeypatch)
    forget(monkeypatch)
    first, second = coordinator.freeze(FEW), coordinator.freeze(FEW + 1)
    found, row = second - first, coordinator.row(FEW)
    cosine = abs(found @ row) / np.linalg.norm(found) / np.linalg.norm(row)
    assert cosine > 1 - 1e-9
    record("38", "unguarded", "frozen twice: one row, up to a factor")


def test_an_old_alpha_is_not_frozen(coordinator, monkeypatch, record):
    forget(monkeypatch)
    with pytest.raises(ProtocolError, match="fails its check"):
        coordinator.freeze(FEW)
    record("38", "guarded", "an old α to freeze: refused")


@pytest.mark.parametrize("kept", [True, False])
def test_a_resumed_party_knows_what_is_old(coordinator, monkeypatch, kept):
    forget(monkeypatch)
    half = coordinator.party._half
    state = {name: array.copy() for name, array in half.state().items()}
    if not kept:
        state["alpha_newest"][:] = 0
    half.alpha_wire.newest = np.zeros_like(half.alpha_wire.newest)
    half.restore(state, Constants(omega=half.method._omega))
    if not kept:
        coordinator.freeze(FEW)
        return
    with pytest.raises(ProtocolError, match="fails its check"):
        coordinator.freeze(FEW)


def test_what_is_frozen_keeps_apart_from_what_was_frozen_before(coordinator, monkeypatch, record):
    take_anything(monkeypatch)
    coordinator.freeze(FEW)
    with pytest.raises(ProtocolError, match="too close to one that was sent before"):
        coordinator.freeze(FEW + 1)
    record("38", "guarded", "another one that differs in a sample: refused")
