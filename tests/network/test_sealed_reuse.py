"""Sealed training uses no mask, pad, dealt value or noise twice, whoever dies, repeats or lies.

Parties are killed and made anew from their memories, requests come again, and a coordinator asks
other things under numbers that were used, before or after it asks what it should. Everything that
hides a value is logged with what it hid: one label never hides two values.
"""

from __future__ import annotations

from collections import defaultdict
from contextlib import contextmanager, suppress
from unittest.mock import patch

import numpy as np
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from replayed import Troupe

from covering import changing
from weft.crypto import scalar_masks
from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.data.tile import Tile
from weft.errors import ProtocolError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.protocol import answer, fields_of, pack
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import party as sealed_party
from weft.solvers.secret_sharing import party_slopes
from weft.solvers.secret_sharing.dealer import Dealer
from weft.solvers.secret_sharing.party import SealedParty

SETTINGS = Settings(
    solver="sealed",
    loss="logistic",
    lam=1.0,
    gap=0.1,
    class_weight={"1": 1.5},
    second_moments=("hessian", "gram"),
)
#: Fields that a liar leaves alone: it gives every letter a new number of its own.
KEPT = ("round",)
#: Messages of a run in which all goes well; those of matrices are the last.
LETTERS = 75
MATRICES = ("gram", "bends", "weights", "cells", "hessian")
DEALS = ("point", "series", "cut_products", "vector", "products", *MATRICES)


def federation():
    rng = np.random.default_rng(3)
    block = rng.normal(size=(40, 4))
    labels = (block @ rng.normal(size=4) > 0).astype(int)
    ids, names = [f"p{n}" for n in range(40)], list("abcd")
    tiles = {
        "north": [Tile.make(ids[:20], names, block[:20], labels[:20])],
        "south": [Tile.make(ids[15:], names[:2], block[15:, :2], labels[15:])],
        "lab": [Tile.make(ids[15:], names[2:], block[15:, 2:])],
    }
    return Federation(tiles, Preprocessing(intercept=False))


class Log:
    """What was hidden, by what hid it."""

    def __init__(self):
        self.hidden = defaultdict(set)
        self._drawn, self._noise, self._streams = [], [], []

    def reused(self):
        return {name for name, found in self.hidden.items() if len(found) > 1}

    def kinds(self):
        return {name[0] for name in self.hidden}

    @contextmanager
    def watching(self):
        log, put_on, mask = self, OpeningPads.put_on, SealedParty._mask
        words, noise, pack_shares = (
            getattr(sealed_party, name) for name in ("seeded_words", "noise", "pack_shares")
        )

        def masking(party, name, *shape):
            log._drawn.append((party._seed, f"{party._serial} {name}"))
            return mask(party, name, *shape)

        def drawing(seed, label, *shape):
            if label == "table":
                log._drawn.append((seed, label))
            return words(seed, label, *shape)

        def padding(pads, sent, label):
            content = np.ascontiguousarray(sent).tobytes()
            log.hidden["pad", pads._seed.reveal(), pads._party, label].add(content)
            for seed, name in log._drawn:
                log.hidden["mask", seed, name].add(content)
            log._drawn.clear()
            return put_on(pads, sent, label)

        def noising(seed, label, bits):
            log._noise.append((seed, label))
            return noise(seed, label, bits)

        def telling(cipher, field, shares, bits):
            packed = pack_shares(cipher, field, shares, bits)
            for seed, label in log._noise:
                log.hidden["noise", seed, label].add(tuple(shares))
            for name in log._streams:
                log.hidden["pair mask", cipher.party, name].add(packed)
            log._noise.clear()
            log._streams.clear()
            return packed

        def streaming(name):
            log._streams.append(bytes(name))
            return shake(name)

        shake = scalar_masks.shake_256

        def dealt(method, deal):
            def call(dealer, serial, *told, **how):
                found = deal(dealer, serial, *told, **how)
                log.hidden["dealt", dealer._own, method, serial].add(found.tobytes())
                return found

            return call

        dealing = {name: dealt(name, getattr(Dealer, name)) for name in DEALS}
        with (
            patch.multiple(Dealer, **dealing),
            patch.object(SealedParty, "_mask", masking),
            patch.object(sealed_party, "seeded_words", drawing),
            patch.multiple(sealed_party, noise=noising, pack_shares=telling),
            patch.multiple(party_slopes, noise=noising, pack_shares=telling),
            patch.object(OpeningPads, "put_on", padding),
            patch.object(scalar_masks, "shake_256", streaming),
        ):
            yield self


class Liars(Troupe):
    """Parties that die, and a coordinator that asks again and asks for other things.

    Parameters
    ----------
    plan
        What happens at messages of sealed training, by their number over all parties.
    """

    def __init__(self, plan):
        super().__init__()
        self.plan, self.number, self.rounds = plan, 0, 10**6
        self.repeated, self.refused, self.answered = [], 0, 0

    def answer(self, name, phase, message):
        if not phase.name.startswith("sealed."):
            return super().answer(name, phase, message)
        self.number += 1
        what, how = self.plan.get(self.number, ("nothing", 0))
        if what == "dies":
            self.rebuild(name)
        if what == "lies first":
            self._lie(name, phase, message, how)
        reply = super().answer(name, phase, self._renumbered(phase, message))
        if what == "asks again":
            self.repeated.append((reply, self._ask(name, phase, message)))
        if what == "lies after":
            self._lie(name, phase, message, how)
        return reply

    def _renumbered(self, phase, message, **changes):
        self.rounds += 1
        return phase.read_request({**fields_of(message), **changes, "round": self.rounds})

    def _ask(self, name, phase, message, **changes):
        return super().answer(name, phase, self._renumbered(phase, message, **changes))

    def _lie(self, name, phase, message, how):
        """The same with one thing changed."""
        told = fields_of(message)
        field = sorted(set(told) - set(KEPT))[how % len(set(told) - set(KEPT))]
        value = told[field]
        if isinstance(value, np.ndarray):
            value = value.copy()
            value.reshape(-1)[: max(1, how % 3)] += np.ones((), value.dtype)
        else:
            value += (1, -1, 7)[how % 3]
        try:
            self._ask(name, phase, message, **{field: value})
            self.answered += 1
        except WeftError:
            self.refused += 1


EVENTS = st.tuples(
    st.sampled_from(["dies", "asks again", "lies first", "lies after"]), st.integers(0, 30)
)
PLANS = st.dictionaries(st.integers(1, LETTERS), EVENTS, min_size=1, max_size=6)


def train(plan, log):
    troupe = Liars(plan)
    done = False
    with log.watching(), suppress(ProtocolError):
        troupe.train(federation(), SETTINGS)
        done = True
    return troupe, done


# With every change hardly more than the examples below.
@settings(max_examples=1 if changing() else 4, suppress_health_check=[HealthCheck.too_slow])
@given(plan=PLANS)
@example(plan=dict.fromkeys(range(1, LETTERS, 4), ("dies", 0)))
@example(plan=dict.fromkeys(range(1, LETTERS), ("asks again", 0)))
@example(plan={n: ("lies after", n) for n in range(1, LETTERS)})
# Message 16 is the first about a point. Where one party alone gets other coefficients, it answers,
# and nobody can open what comes of it.
@example(plan={16: ("lies first", 0)})
def test_nothing_that_hides_is_used_for_two_values(plan):
    log = Log()
    troupe, done = train(plan, log)
    assert log.hidden
    assert not log.reused()
    for first, again in troupe.repeated:
        assert pack(fields_of(first)) == pack(fields_of(again))
    if {what for what, _ in plan.values()} <= {"dies", "asks again"}:
        assert done
        assert log.kinds() == {"pad", "mask", "noise", "pair mask", "dealt"}
        assert {name[2] for name in log.hidden if name[0] == "dealt"} == set(DEALS)


def test_the_hunt_finds_masks_that_depend_on_less_than_they_should():
    """A party that answers a used number again, in other words, shows twice under one mask."""
    log = Log()

    def careless(self, phase, handle):
        def on(message):
            self._serial = message.serial
            self._cipher.lasting(message.serial, b"")
            return handle(message)

        return answer(phase, on)

    with patch.object(SealedParty, "_once", careless):
        train({16: ("lies after", 0)}, log)
    assert {name[0] for name in log.reused()} >= {"mask", "pad"}


def test_two_runs_of_the_same_tables_share_no_word_that_hides():
    logs = [Log(), Log()]
    for log in logs:
        train({}, log)
    names = [set(log.hidden) for log in logs]
    assert names[0]
    assert not names[0] & names[1]
