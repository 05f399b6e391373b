"""An answer that is lost in whatever phase of a method that needs everyone changes no bit."""

from __future__ import annotations

from itertools import count

import numpy as np
import pytest
from saved_runs import makers, often, run_over

from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.network.envelope_bytes import Work
from weft.solvers.run_settings import Settings

HOW = Preprocessing(intercept=True, confirmed=ONE_TABLE)
#: What becomes of an answer: on its way, after it was given, or while it was made.
FATES = ("unheard", "killed after", "killed within")


def by_columns():
    """One party has the labels, and both have columns of the same samples."""
    rng = np.random.default_rng(6)
    cells, ids = rng.normal(size=(12, 3)), [f"n{row:02}" for row in range(12)]
    labels = (cells.sum(axis=1) > 0).astype(int)
    return {
        "north": (Tile.make(ids, ["a"], cells[:, :1], labels),),
        "south": (Tile.make(ids, ["b", "c"], cells[:, 1:]),),
    }


def settings_of(solver):
    # Certificates twice on the way, and once more at the end.
    return Settings(
        solver=solver, loss="logistic", lam=0.1, gap=None, iterations=4, certify_every=2
    )


def numbers_of(result):
    return result.certificate, [(r.iteration, r.primal, r.dual) for r in result.history]


class Trial:
    """Runs of one method in which one answer is lost, held against one process."""

    def __init__(self, folder, solver):
        self.folder, self.settings, self.tiles = folder, settings_of(solver), by_columns()
        self.made, self.number = makers(self.tiles, self.settings), count()
        self.expected = numbers_of(Federation(self.tiles, HOW).train(self.settings).result)

    def lose(self, fates):
        """Whom it was sent to, and when; what was sent besides."""
        outcome, _, transport, *_ = run_over(
            self.folder / str(next(self.number)),
            self.tiles, HOW, self.settings, fates, self.made,
        )  # fmt: skip
        assert numbers_of(outcome.result) == self.expected, fates
        assert len(transport.met) == len(fates)
        return [(party, work) for party, work in transport.sent if isinstance(work, Work)]


def phases_of(sent):
    """Number of the first letter to each party of each kind."""
    found = {}
    for party, work in sent:
        found.setdefault((party, *(name for name, _ in work.parts)), (party, work.number))
    return found


def test_whichever_answer_of_a_phase_of_admm_is_lost_the_run_is_the_same(tmp_path):
    """Questions about a point that is certified ride with those of an iteration."""
    with often(10**9):
        trial = Trial(tmp_path, "admm")
        found = phases_of(trial.lose({}))
        riding = ("south", "measure.products", "rounds.local")
        assert {riding, ("south", "measure.spread")} <= found.keys()
        for (party, *_), letter in found.items():
            if party == "south":
                trial.lose({letter: "unheard"})


@pytest.mark.release
@pytest.mark.parametrize("solver", ["admm", "fedsgd", "fedbcd", "d3ca"])
def test_whichever_answer_is_lost_the_run_is_the_same(solver, tmp_path):
    """Every letter to every party, in every way."""
    with often(10**9):
        trial = Trial(tmp_path, solver)
        letters = {(party, work.number) for party, work in trial.lose({})}
        for letter in sorted(letters):
            for fate in FATES:
                trial.lose({letter: fate})
