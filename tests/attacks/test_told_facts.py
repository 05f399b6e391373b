"""A coordinator that lies about who holds what, to switch guards off.

Digits as they are, four horizontal parties, cutting planes: told that nobody else sees sums of its
samples, a party would not keep to `min_batch`, and differences of cuts are rows. Told of a third
holder who is none, two would open sums of two. Unguarded are parties that believe what they are
told.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scene import (
    PAIRS,
    Diary,
    by_both,
    by_columns,
    by_rows,
    in_the_clear,
    run,
    table_of,
    tile_of,
)
from solving import best_errors, differences, rows_of_counts
from without_rings import without_masks

from weft.errors import WeftError
from weft.federation.local_federation import Preprocessing
from weft.guards import Terms
from weft.matching import slots_within_cohort
from weft.matching.confirm_holder_lists import Confirmation
from weft.matching.guard_facts_from_confirmed_lists import facts_of
from weft.protocol import Fields
from weft.solvers.run_settings import Settings

CAREFUL = Terms(min_batch=10)
PIXEL, CLASSES = 16, 10
#: Phases in which parties send the first sums.
SUMS = {"scale.extremes", "scale.sums", "size"}
REFUSED = "what not all their holders confirm"
QUICK = Settings(lam=0.01, solver="lbfgs", loss="logistic", gap=1e-2)

#: Changes the view that a party is told.
Lie = Callable[[str, dict[str, Any]], None]


class Liar:
    """Tells parties something else of who holds what; remembers which phases they answered."""

    def __init__(self, lie: Lie) -> None:
        self.lie = lie
        self.answered: set[str] = set()

    def around(self, name: str, handler: Any) -> Any:
        def answer(phase: str, message: Fields) -> Fields:
            if phase == "match.view":
                told = {k.removeprefix("view."): v for k, v in message.items()}
                self.lie(name, told)
                message = {k: told[k.removeprefix("view.")] for k in message}
            reply = handler(phase, message)
            self.answered.add(phase)
            return reply

        return answer


# ── guards off ────────────────────────────────────────────────────────────────────────────────


def unexposed(name: str, told: dict[str, Any]) -> None:
    told["exposed"] = np.zeros_like(told["exposed"])


def cuts(party, phase, message, opened):
    """The totals of new cuts, less one's own part."""
    if phase != "subspace.spread":
        return {}
    (total,) = (values for kind, _, values in opened if kind == "v")
    return {"rest": total * party.view.n_samples - party._half.samples.partial}


def rows_read(table) -> tuple[int, int]:
    """How many rows of others p1 reads when all are told that nobody sees sums of theirs."""
    diary, tiles = Diary(cuts), by_rows(table, 4)
    how = Settings(lam=20.0, solver="cutting-planes", gap=1e-5, iterations=16, cipher="plain")
    found = run(
        tiles,
        how,
        in_the_clear(CAREFUL),
        preprocessing=Preprocessing(intercept=True),
        diaries={"p1": diary},
        around=Liar(unexposed).around,
    )
    columns = found.columns_of("p1", table)
    # The constant column last.
    seen = np.hstack(diary.all("rest"))[np.argsort(np.where(columns < 0, table.m, columns))]
    seen = seen.reshape(len(seen), -1, CLASSES)
    rows = np.vstack(
        [rows_of_counts(differences(seen[:, :, c].T), table.m, PIXEL) for c in range(CLASSES)]
    )
    truth = np.vstack([held[0].block for name, held in tiles.items() if name != "p1"])
    errors = best_errors(rows, truth) if len(rows) else np.full(len(truth), np.inf)
    return int((errors < 1e-6).sum()), len(truth)


def test_told_that_nobody_sees_its_sums_a_party_keeps_its_guard(record, monkeypatch):
    table = table_of("digits", 300, scaled=False, classes=CLASSES)
    read, rows = rows_read(table)
    assert read == 0
    record("25", "guarded", f"guards stay on: {read} of {rows} rows; 6 other lies are refused")

    def believed(told):
        return replace(facts_of(told), exposed=told.exposed)

    monkeypatch.setattr(slots_within_cohort, "facts_of", believed)
    read, rows = rows_read(table)
    assert read > 0
    record("25", "unguarded", f"guards off: {read} of {rows} rows exactly")


# ── other lies ────────────────────────────────────────────────────────────────────────────────


def a_third_holder(name: str, told: dict[str, Any]) -> None:
    """p3 holds the samples of p1 and p2 too, though it brings no column to them."""
    if name == "p3":
        return
    told["row_sheets.lengths"] = told["row_sheets.lengths"] + 1
    told["row_sheets.holders"] = np.append(told["row_sheets.holders"], 2)
    told["row_sheets.labelled"] = np.append(told["row_sheets.labelled"], False)
    told["row_sheets.line_lengths"] = np.append(told["row_sheets.line_lengths"], 0)
    told["row_holders"] = 3


def two_and_one(table):
    """p1 and p2 share their samples; p3 has others, and other features."""
    third = table.m // 3
    return {
        "p1": (tile_of(table, slice(0, 200), slice(0, third)),),
        "p2": (tile_of(table, slice(0, 200), slice(third, 2 * third)),),
        "p3": (tile_of(table, slice(200, 300), slice(2 * third, None)),),
    }


def test_two_are_not_made_three(record, monkeypatch):
    tiles, apart = (
        two_and_one(table_of("breast_cancer", 300)),
        Preprocessing(confirm_separate_ids=True),
    )
    with pytest.raises(WeftError, match="that it shares with one other party"):
        run(tiles, QUICK, Terms(), preprocessing=apart)
    liar = Liar(a_third_holder)
    with pytest.raises(WeftError, match=REFUSED):
        run(tiles, QUICK, Terms(), preprocessing=apart, around=liar.around)
    assert not SUMS & liar.answered
    monkeypatch.setattr(Confirmation, "insist", lambda self, told: None)
    without_masks(monkeypatch)
    run(tiles, QUICK, Terms(), preprocessing=apart, around=liar.around)
    assert "subspace.spread" in liar.answered
    record("25", "unguarded", "two open sums of two, told of a third holder")


def exposed_to_one(name, told):
    if name == "r1c1":
        told["exposed"] = ~told["exposed"]


def more_columns(name, told):
    """Another holder brings more columns than it has."""
    if name == "r1c1":
        sizes = told["row_sheets.sizes"].copy()
        sizes[-1] += 5
        told["row_sheets.sizes"] = sizes


def fewer_holders(name, told):
    """One of three holders of the columns is not mentioned to anybody else."""
    if name.endswith("c1") and name != "r3c1":
        told["column_sheets.lengths"] = told["column_sheets.lengths"] - 1
        told["column_sheets.holders"] = told["column_sheets.holders"][:-1]


def other_labels(name, told):
    if name == "r1c1":
        told["labelled"] = ~told["labelled"]


def others_labels(name, told):
    if name == "r1c1":
        flags = told["row_sheets.labelled"].copy()
        flags[-1] = False
        told["row_sheets.labelled"] = flags


def fewer_at_most(field):
    """All parties alike are told that fewer hold anything together: sums would overflow."""

    def lie(name, told):
        told[field] = told[field] - 1

    lie.__name__ = field
    return lie


@pytest.mark.parametrize(
    "lie",
    [
        *(exposed_to_one, more_columns, fewer_holders, other_labels, others_labels),
        *(fewer_at_most("row_holders"), fewer_at_most("column_holders")),
    ],
    ids=lambda lie: lie.__name__,
)
def test_a_lie_is_refused_before_any_sum_is_sent(lie):
    liar = Liar(lie)
    with pytest.raises(WeftError, match=REFUSED):
        run(by_both(table_of("digits", 300), 3, 3), QUICK, PAIRS, around=liar.around)
    assert not SUMS & liar.answered


def test_tags_of_another_run_confirm_nothing():
    kept: list[bytes] = []

    def around(name, handler):
        def answer(phase, message):
            if phase == "match.keys" and name == "p1":
                kept.append(message["tags"])
                message = {**message, "tags": kept[0]}
            return handler(phase, message)

        return answer

    tiles = by_columns(table_of("breast_cancer", 100), 3)
    run(tiles, QUICK, Terms(), around=around)
    with pytest.raises(WeftError, match=REFUSED):
        run(tiles, QUICK, Terms(), around=around)
