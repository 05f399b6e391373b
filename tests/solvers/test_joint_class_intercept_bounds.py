"""Bounds under free intercepts: what entries that do not cancel cost is taken off them."""

from __future__ import annotations

import numpy as np
import pytest

from weft.solvers.subspace.lower_bound_joint_intercepts import (
    CutsBesideClasses,
    best_mixture,
    cancelled,
)

VALUES = np.array([3.0, 2.9, 1.0])


def best(starts, entries, dear):
    slacks = np.ones(len(VALUES))
    return best_mixture(
        starts, entries, slacks, lambda mu: float(mu @ VALUES), lambda e: dear * float(abs(e).sum())
    )


@pytest.mark.parametrize(("dear", "chosen"), [(0.0, 0), (0.05, 0), (1.0, 1)])
def test_the_best_mixture_is_that_whose_bound_is_the_highest_once_entries_are_paid(dear, chosen):
    # Entries of one sign cancel for nobody: the first has the higher value and the larger entry.
    entries = np.array([[1.0], [0.25], [2.0]])
    found = best(list(np.eye(3)[:2]), entries, dear)
    assert found.mu.tolist() == np.eye(3)[chosen].tolist()
    assert found.value == VALUES[chosen]
    assert found.entry.tolist() == entries[chosen].tolist()


def test_entries_that_can_cancel_are_made_to_where_that_is_cheaper():
    entries = np.array([[1.0], [0.25], [-2.0]])
    mu = np.eye(3)[0]
    cheap, dear = (best([mu], entries, price) for price in (0.01, 10.0))
    assert cheap.mu.tolist() == mu.tolist()
    assert dear.entry == pytest.approx([0.0], abs=1e-12)
    assert (dear.mu >= 0.0).all()
    assert dear.mu.sum() <= 1.0 + 1e-12
    assert dear.mu.tolist() == cancelled(mu, entries, np.ones(3)).tolist()


def test_from_what_cuts_show_the_next_ones_come_to_lie_where_entries_are_zero():
    """Entries that fall evenly on the way, as of a loss whose curvature is known here."""
    part = np.array([0.6, 0.3, 0.1])
    curvature, entries = np.diag(part) - np.outer(part, part), np.array([0.02, -0.05, 0.03])
    cuts = CutsBesideClasses(3, 1.0)
    for _ in range(12):
        cuts.choose(entries, 0.1)
        ways = cuts.guesses * cuts.shift
        cuts.learn(entries, entries - ways @ curvature)
    cuts.choose(entries, 0.1)
    np.testing.assert_allclose(curvature @ (cuts.guesses[0] * cuts.shift), entries, atol=1e-6)
