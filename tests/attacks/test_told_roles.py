"""A coordinator that says who counts what, and how much there is of it.

A loss, a weight and a cell are counted by one named party each, so that totals add up. Whoever
names these parties can make a total of one party's own: ‖w‖² of a single weight, or losses that the
others divide by another number of samples. Unguarded are parties that believe such roles.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from types import SimpleNamespace
from unittest.mock import patch

import numpy as np
import pytest
from scene import by_columns, by_rows, run, table_of
from test_told_facts import REFUSED, SUMS, Liar

from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.primitives.scalars_modulo_2_144 import floats_of, unpacked
from weft.data import Tile
from weft.errors import WeftError
from weft.guards import Terms
from weft.matching import coordinator, slots_within_cohort
from weft.matching.confirm_holder_lists import Confirmation
from weft.matching.guard_facts_from_confirmed_lists import LyingView, check_labelled, facts_of
from weft.matching.tamper_proof_sample_count import CountCheck
from weft.privacy.agreement import party_consent_checks
from weft.solvers.run_settings import Settings

SETTINGS = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=1e-1, iterations=4)
ROWS = 120


def listening(phase, field, handlers=None, *, first=False):
    """What parties tell in a field last (or first), and a handler around theirs that notes it."""
    told = {}

    def around(name, handler):
        handler = handler if handlers is None else handlers(name, handler)

        def answer(asked, message):
            reply = handler(asked, message)
            if asked == phase and reply.get(field) is not None and not (first and name in told):
                told[name] = reply[field]
            return reply

        return answer

    return told, around


def total(told):
    """The first of the totals that the coordinator adds up."""
    limbs = unpacked(b"".join(told.values())).reshape(len(told), -1, 3).sum(axis=0)
    return floats_of(limbs)[0]


def own_weight():
    """√‖w‖² as the coordinator reads it, p1's first weight, and the true ‖w‖."""
    told, around = listening("subspace.point", "norms")
    found = run(by_columns(table_of("breast_cancer", ROWS), 3), SETTINGS, Terms(), around=around)
    weights = [np.ravel(party._half.weights(None)) for party in found.federation.parties.values()]
    norm = np.linalg.norm(np.concatenate(weights))
    return np.sqrt(total(told)), abs(weights[0][0]), norm


def test_nobody_can_say_whose_weight_counts(record, monkeypatch):
    read, single, whole = own_weight()
    assert np.isclose(read, whole)
    assert not np.isclose(read, single, rtol=0.1)
    record("34", "guarded", "‖w‖² is that of all weights")

    def believed(told):
        columns = np.zeros(told.n_columns, bool)
        columns[0] = told.party == 0
        return replace(facts_of(told), owned=columns)

    monkeypatch.setattr(slots_within_cohort, "facts_of", believed)
    read, single, _ = own_weight()
    assert np.isclose(read, single)
    record("34", "unguarded", f"one weight of one party: {read:.3g}")


# ── how many samples ──────────────────────────────────────────────────────────────────────────


def many_for_others(name, told):
    """p1's losses are divided by the true number, others' by one that leaves nothing of them."""
    if name != "p1":
        told["n_samples"] = 10**18


def losses_with_a_lie():
    """The total of losses that the coordinator reads, and p1's own."""
    liar = Liar(many_for_others)
    told, around = listening("subspace.close", "losses", liar.around)
    table = table_of("breast_cancer", ROWS)
    terms = Terms(min_batch=1, allow_exposure=True)
    found = run(by_rows(table, 3), SETTINGS, terms, around=around)
    party = found.party("p1")
    margins = party.data.table.products(None, party._half.weights(None))
    labels = party.data.labels()
    loss = SETTINGS.make_loss().value(margins, labels).sum()
    return total(told) * ROWS, float(loss)


def test_losses_are_not_divided_by_other_numbers(record, monkeypatch):
    with pytest.raises(WeftError, match=REFUSED):
        losses_with_a_lie()
    monkeypatch.setattr(Confirmation, "insist", lambda self, told: None)
    with pytest.raises(WeftError, match=REFUSED):
        losses_with_a_lie()
    record("34", "guarded", "8 lies about roles and numbers are refused")
    monkeypatch.setattr(CountCheck, "insist", lambda self, count, told: None)
    read, own = losses_with_a_lie()
    assert np.isclose(read, own, rtol=1e-9)
    record("34", "unguarded", f"p1's own losses, error {abs(read - own):.0e}")


def twice_as_many(name, told):
    told["n_samples"] = 2 * told["n_samples"]


def fewer_labels(name, told):
    """Those who count losses are said to be more than they are."""
    told["label_parties"] = told["label_parties"] + 1


def in_more_tiles(name, told):
    """Another's cells lie in so many tiles that the mean over them leaves nothing of its own."""
    told["row_sheets.tiles"] = told["row_sheets.tiles"] * 10**6


def smaller_bounds(name, told):
    told["row_holders"] = 1


def other_units(name, told):
    if name == "p1":
        told["row_holders"] = 100


def without_columns(name, told):
    """All columns of a party but the first are left out."""
    places = np.full_like(told["tile_column_cohorts.places"], -1)
    told["tile_column_cohorts.places"] = places


@pytest.mark.parametrize(
    "lie",
    [twice_as_many, fewer_labels, in_more_tiles, smaller_bounds, other_units, without_columns],
    ids=lambda lie: lie.__name__,
)
def test_a_lie_about_roles_is_refused_before_any_sum_is_sent(lie):
    liar = Liar(lie)
    with pytest.raises(WeftError, match="stop this run"):
        run(by_columns(table_of("breast_cancer", 60), 3), SETTINGS, Terms(), around=liar.around)
    assert not SUMS & liar.answered


def test_nobody_is_said_to_have_labels_who_has_none():
    """Losses of one party would be hidden among the nothing of others."""

    def around(name, handler):
        def answer(phase, message):
            if phase == "match.view":
                flags = np.ones_like(message["seeds.participants.labelled"])
                message = {**message, "seeds.participants.labelled": flags}
                message["view.label_parties"] = len(flags)
            return handler(phase, message)

        return answer

    table = table_of("breast_cancer", 60)
    tiles = by_columns(table, 3)
    for name in ("p2", "p3"):
        (tile,) = tiles[name]
        tiles[name] = (Tile.make(tile.ids, tile.features, tile.block, None),)
    # Of classes, the party that joins the lists knows how many have labels.
    regression = Settings(lam=0.01, loss="squared", gap=1e-1)
    with pytest.raises(WeftError, match="allow_lone_labels"):
        run(tiles, regression, Terms())
    with pytest.raises(WeftError, match="wrong about whether this party has labels"):
        run(tiles, regression, Terms(), around=around)


def test_how_many_samples_stay_is_confirmed_too():
    answered = set()

    def around(name, handler):
        def answer(phase, message):
            if phase == "rare.leave":
                message = {**message, "samples": message["samples"] - 1}
            reply = handler(phase, message)
            answered.add(phase)
            return reply

        return answer

    terms = Terms(allow_exposure=True)
    with pytest.raises(WeftError, match=REFUSED):
        run(by_rows(table_of("breast_cancer", ROWS), 3), SETTINGS, terms, around=around)
    assert not SUMS & answered


def loss_of_one_sample():
    """What the coordinator is told of losses when it has dropped all tokens of samples but one."""
    told, around = listening("subspace.close", "losses")

    def one_left(party, reply):
        # Tokens come sorted, so that the first is the same sample everywhere.
        rows = [np.arange(len(reply.rows)) == 0]
        return replace(holding(party, reply), labelled=tuple(rows))

    holding = coordinator._holding
    with suppress(WeftError), patch.object(coordinator, "_holding", one_left):
        run(by_columns(table_of("breast_cancer", 60), 3), SETTINGS, Terms(), around=around)
    return told


def test_all_samples_but_one_are_not_left_out(monkeypatch, record):
    assert not loss_of_one_sample()
    monkeypatch.setattr(party_consent_checks, "check_total", lambda *_: None)
    told = loss_of_one_sample()
    assert told
    record("34", "unguarded", f"one sample's loss, all others left out: {total(told):.3g}")


def test_settings_that_differ_leave_noise_in_totals(monkeypatch):
    """p2 and p3 are told units in which nothing is left of their parts."""

    def around(name, handler):
        def answer(phase, message):
            if phase == "start" and name != "p1":
                message = {**message, "unit": message["unit"] * 2.0**30}
            return handler(phase, message)

        return answer

    def first_total():
        told, listened = listening("subspace.gather", "sizes", around, first=True)
        # What becomes of a coordinator that computes with noise is its own affair.
        with suppress(WeftError, ValueError, ArithmeticError):
            run(by_columns(table_of("breast_cancer", 60), 3), SETTINGS, Terms(), around=listened)
        return abs(total(told))

    assert first_total() > 1e6
    monkeypatch.setattr(Cipher, "agree", lambda self, told: None)
    assert first_total() == 60


def test_a_party_refuses_to_be_told_of_other_labels_than_it_said():
    """Two samples with labels in one cohort, three without in the other, and one that is alone."""
    said, places = np.array([True, True, False, False, False, True]), [0, 0, 1, 1, 1, -1]

    def told(*labelled):
        cohorts = SimpleNamespace(cut=lambda: [np.array(places)])
        return SimpleNamespace(
            sizes=np.array([2, 3]), labelled=np.array(labelled), tile_row_cohorts=cohorts
        )

    check_labelled(told(True, False), [said])
    for lie in ((False, False), (True, True), (False, True)):
        with pytest.raises(LyingView):
            check_labelled(told(*lie), [said])
