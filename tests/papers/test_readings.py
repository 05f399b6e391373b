"""Readings of the papers' texts: what the page says of them happens."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from weft.losses import get_loss
from weft_papers.alternative_interpretations.__main__ import fedhybrid, main
from weft_papers.alternative_interpretations.fedhybrid_rate import rates
from weft_papers.alternative_interpretations.hyfdca_by_hand import Reading, Table, run

PAGE = Path(__file__).parents[2] / "docs" / "readings.md"
LAM = 0.05


@pytest.fixture(scope="module")
def table():
    random = np.random.default_rng(2)
    x = random.normal(size=(60, 6))
    y = np.where(x[:, 0] + 0.5 * random.normal(size=60) > 0.3, 1.0, -1.0)
    return Table(x, y, (2, 3))


def trace(table, reading, **changes):
    given = {"iterations": 60, "participation": 0.5, "drawn": 5} | changes
    return run(table, LAM, reading, **given)


def test_who_is_refreshed_does_not_change_the_model_only_the_messages(table):
    ours, printed = (trace(table, Reading(refreshed=r)) for r in ("absent", "printed"))
    np.testing.assert_array_equal(ours.alpha, printed.alpha)
    assert printed.refreshes > ours.refreshes
    everyone = trace(table, Reading(refreshed="printed"), participation=1.0)
    assert everyone.refreshes == 30 * len(table.parties)


def test_with_the_printed_subgradient_nothing_moves(table):
    assert not trace(table, Reading(subgradient=1)).alpha.any()
    assert trace(table, Reading(subgradient=-1)).alpha.any()


def test_the_step_is_the_loss_s_own_and_the_printed_form_ends_elsewhere(table):
    """With one draw and everyone there, the first change is the dual step over the holders."""
    first = trace(table, Reading(), iterations=1, participation=1.0, drawn=60)
    q = 1 / (LAM * len(table.y))
    zeros = np.zeros(len(table.y))
    expected = get_loss("hinge").dual_step(zeros, zeros, table.y, q)
    np.testing.assert_allclose(first.alpha, expected)
    ours, printed = (
        table.primal(trace(table, replace(Reading(), margin=m), iterations=120).w, LAM)
        for m in ("signed", "printed")
    )
    assert printed > 1.05 * ours


def test_sums_by_changes_are_the_sums_and_windows_send_less(table):
    ours, changes = (trace(table, Reading(resum=r)) for r in (True, False))
    np.testing.assert_allclose(changes.w, ours.w, atol=1e-12)
    window = trace(table, Reading(window=0))
    assert window.sent < ours.sent
    # With everyone there nothing is old: the model is the same.
    there = [trace(table, Reading(window=w), participation=1.0).alpha for w in (0, None)]
    np.testing.assert_allclose(*there, atol=1e-12)


@pytest.mark.parametrize(("m", "upper"), [(0.5, 1.0), (0.1, 10.0), (0.01, 100.0)])
def test_the_proven_rate_holds(m, upper):
    found = rates(m, upper, 1.0)
    assert found.happened >= found.proven


def test_the_printed_rate_does_not():
    found = rates(0.01, 100.0, 1.0)
    assert found.happened < found.printed / 10


def test_the_page_has_the_tables_of_the_command(capsys):
    text = PAGE.read_text(encoding="utf-8")
    for line in fedhybrid():
        assert line in text
    assert main(["nobody"]) == 2
    assert "choose hyfdca, fedhybrid, hyfem" in capsys.readouterr().err
