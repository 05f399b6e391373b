"""Margins of single samples, from totals of two points that are spliced slot by slot.

Three parties by columns, breast cancer, logistic loss, careful terms, ``pad``. Every slot has a tag
of its own, so that a coordinator can put a total together of one point's z at one sample and
another's elsewhere, each slot with the record that belongs to it. Where parties take it for z of
new vectors, their losses show one margin. With hinge, tables of losses along one line would show
all of them, if only there were enough.
"""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from scene import by_columns, by_rows, run, table_of

from weft.crypto.ciphers.block_format import (
    Carried,
    pack_block,
    pad_id_of,
    read_block,
    word_block,
)
from weft.crypto.fixed_point import FixedPoint
from weft.crypto.primitives.prime_field import PRIME
from weft.errors import ProtocolError
from weft.guards import Terms
from weft.protocol.declared_message_fields import SCALAR_BYTES
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.party_feature_vectors_and_models import FeatureSide
from weft.solvers.subspace.party_searches_duals_and_losses import SampleSide
from weft.sums.party_contribution import Wire
from weft.sums.scalar_sums import add_scalars

SAMPLES, TRIED = 60, 5
NAMES = ("p1", "p2", "p3")
STAY = {"moved": np.array([[1.0], [0.0]]), "at": np.zeros((0, 1))}


class Done(BaseException):
    """The run has gone far enough."""


class Coordinator:
    """Follows the protocol up to a third search, and then asks as it likes."""

    def __init__(self, tiles, settings):
        self.ask, self.party, self._last = {}, {}, {}
        self._left = 3
        with pytest.raises(Done):
            run(tiles, settings, Terms(), around=self._around)
        first = self._last["subspace.search", NAMES[0]][0]
        self.serial, self.round = first["serial"], first["round"]
        self.common = {"iteration": first["iteration"], "by_rows": first["by_rows"]}
        self.width = len(first["steps"])

    def _around(self, name, handler):
        self.ask[name], self.party[name] = handler, handler.__self__

        def answer(phase, message):
            reply = handler(phase, message)
            self._last[phase, name] = dict(message), dict(reply)
            if phase == "subspace.search" and name == NAMES[-1]:
                self._left -= 1
                if not self._left:
                    raise Done
            return reply

        return answer

    def next(self):
        self.serial, self.round = self.serial + 1, self.round + 1
        numbers = {"serial": self.serial, "round": self.round}
        return {**numbers, "iteration": self.common["iteration"]}

    def point(self, coefficients):
        """Words, tags and pad id of the total of z at a point, as an honest coordinator has it."""
        words, tags, begun = 0, 0, self.next()
        for place, name in enumerate(NAMES):
            before = 0 if place == 0 else pad_id_of(0, self.round, place - 1)
            message = {
                **begun,
                "point": coefficients,
                "z_pads.chain": np.array([before], np.uint64),
            }
            sent = word_block(read_block(self.ask[name]("subspace.point", message)["z"], "z"), "z")
            words, tags = words + sent.words, (tags + sent.tags.astype(object)) % PRIME
        return words, tags.astype(np.uint64), pad_id_of(0, self.round, len(NAMES) - 1)

    def key(self):
        return read_block(self._last["subspace.spread", NAMES[0]][1]["z"], "z").key

    def search(self, **more):
        """Losses of all together."""
        begun = self.next()
        replies = {
            name: SimpleNamespace(
                **self.ask[name]("subspace.search", {**begun, **STAY, **self.common, **more})
            )
            for name in NAMES
        }
        count = len(replies[NAMES[0]].losses) // SCALAR_BYTES
        return np.array(add_scalars(replies, "losses", count, list(NAMES)))

    def spliced(self, zero, there, slot):
        """A total that is nothing but for one sample."""
        words, tags = zero[0].copy(), zero[1].copy()
        words[slot], tags[slot] = there[0][slot], there[1][slot]
        pads = np.full(SAMPLES, zero[2], np.uint64)
        pads[slot] = there[2]
        carried = Carried(np.ones(SAMPLES, np.uint32), None, pads)
        body = words.tobytes() + tags.tobytes()
        request = pad_id_of(0, self.round + 1, 0)
        return pack_block("pad", "z", self.key(), request, SAMPLES, 1, body, carried)


class Anything(str):
    """Equal to whatever it is compared with."""

    __hash__ = str.__hash__

    def __ne__(self, other):
        return False


def let_through(monkeypatch):
    """Take out that z is brought once, of what was measured last, and searched once.

    And that all of a total is of one request.
    """
    never = property(lambda sum_: False, lambda sum_, value: None)
    monkeypatch.setattr(Wire, "_of_one_request", never, raising=False)
    monkeypatch.setattr(Wire, "_whole", never, raising=False)
    monkeypatch.setattr(
        FeatureSide,
        "measured_last",
        property(lambda side: Anything(), lambda side, value: None),
        raising=False,
    )
    monkeypatch.setattr(
        SampleSide, "_searches", property(lambda side: 1, lambda side, value: None), raising=False
    )


def margins(coordinator):
    """y·z of some samples at a point, each from one search."""
    held = len(coordinator.party[NAMES[0]]._half.features.vectors)
    vectors = len(coordinator.party[NAMES[0]]._half.rows.vectors)
    there = np.zeros((held, 1))
    there[-1], there[1] = 1.0, -0.5
    zero, point = coordinator.point(np.zeros((held, 1))), coordinator.point(there)
    steps = np.zeros((3, 2, 1))
    steps[1, 1], steps[2, 1] = 1.0, -1.0
    found = []
    for slot in range(TRIED):
        z = coordinator.spliced(zero, point, slot)
        target = np.zeros((vectors + slot + 1, 1))
        target[-1] = 1.0
        losses = SAMPLES * coordinator.search(of="vectors", z=z, steps=steps, point=target)
        # log(1 + e^m) − log(1 + e^−m) is m.
        found.append(losses[2] - losses[1])
    return np.array(found), there


def truth(coordinator, there):
    """The judge's: y·z of the same samples."""
    first = coordinator.party[NAMES[0]]._half._context
    units = [FixedPoint(bound, "z").unit for bound in (first.bounds.products, first.bounds.point)]
    z = 0
    for name in NAMES:
        half = coordinator.party[name]._half
        z = z + half._context.table.products(None, half.features.vectors.combine(there))[:, 0]
    return (first.labels[:, 0] * z)[:TRIED] * units[0] / units[1]


@pytest.fixture
def coordinator():
    settings = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=None, iterations=6)
    return Coordinator(by_columns(table_of("breast_cancer", SAMPLES), 3), settings)


def test_margins_of_single_samples_follow_from_spliced_totals(coordinator, monkeypatch, record):
    let_through(monkeypatch)
    found, there = margins(coordinator)
    error = np.abs(found - truth(coordinator, there)).max()
    assert error < 1e-9
    record("37", "unguarded", f"{TRIED} of {TRIED} margins, error {error:.0e}")


def test_z_of_another_measurement_is_refused(coordinator, record):
    with pytest.raises(ProtocolError, match="z that was not measured last, or brings it again"):
        margins(coordinator)
    record("37", "guarded", "refused")


def test_losses_are_told_once_a_measurement(record):
    settings = Settings(lam=0.01, loss="hinge", solver="cutting-planes", gap=None, iterations=6)
    coordinator = Coordinator(by_rows(table_of("breast_cancer", 120), 3), settings)
    vectors = len(coordinator.party[NAMES[0]]._half.rows.vectors)
    steps = np.zeros((coordinator.width, 2, 1))
    with pytest.raises(ProtocolError, match="losses again, and nothing was measured since"):
        coordinator.search(steps=steps, point=np.zeros((vectors, 1)))
