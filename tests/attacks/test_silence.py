"""A third party falls silent: what is left of a sum of three is a sum of two.

Breast cancer, three vertical parties, HyFDCA. A party sees by how much a total has changed since
its last copy; the part of a silent party does not change. So each of the two that are left can
compute the other's part, which ``min_contributors = 3`` should keep from them. Nobody lies here.
"""

from __future__ import annotations

import numpy as np
import pytest
from scene import Diary, by_columns, run, table_of

from weft.errors import WeftError
from weft.guards import Terms
from weft.solvers.run_settings import Settings

SILENT, LAST = "p3", 10


@pytest.fixture(scope="module")
def table():
    return table_of("breast_cancer", 300)


def rest_of_z(party, phase, message, opened):
    """z of all samples, but for one's own part."""
    z = [values for kind, _, values in opened if kind == "z"]
    if phase != "hyfdca.step" or not z:
        return {}
    half = party._half
    return {"rest": z[0][:, 0] - half.table.products(None, half.w)[:, 0]}


def own_part(party, phase, message, opened):
    """For the judge."""
    if phase != "hyfdca.weights":
        return {}
    half = party._half
    return {"part": half.table.products(None, half.w)[:, 0]}


def falls_silent(name, handler):
    def answer(phase, message):
        if name == SILENT and phase == "hyfdca.weights" and message["iteration"] >= LAST:
            raise ConnectionError("no route to the party")
        return handler(phase, message)

    return answer


def nearest(rest: np.ndarray, part: np.ndarray) -> float:
    """How far the changes that p1 sees are from those of p2's part, where p3 was silent."""
    seen, true = (np.diff(some[LAST - 1 :], axis=0) for some in (rest, part))
    if not len(seen):
        return np.inf
    return float((np.linalg.norm(seen - true, axis=1) / np.linalg.norm(true, axis=1)).min())


@pytest.mark.parametrize("silent", [False, True])
def test_two_do_not_go_on_when_the_third_falls_silent(table, record, silent):
    mine, theirs = Diary(rest_of_z), Diary(own_part)
    how = Settings(lam=1e-3, gap=None, iterations=30, certify_every=1000, norms="cohort")
    around = falls_silent if silent else None
    try:
        run(by_columns(table, 3), how, Terms(), diaries={"p1": mine, "p2": theirs}, around=around)
    except WeftError:
        assert silent, "to stop is an answer to silence only"
    rest, part = np.stack(mine.all("rest")), np.stack(theirs.all("part"))
    count = min(len(rest), len(part))
    off = nearest(rest[:count], part[:count])
    if silent:
        shown = "p2's parts are not shown" if off > 0.1 else "NOT PREVENTED: p2's parts of z"
        record("17", "guarded", f"p3 silent: {shown}, error {off:.0e}")
    else:
        record("17", "guarded", f"all there: p2's parts off by {off:.2f} at least")
    assert off > 0.1
