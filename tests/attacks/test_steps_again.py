"""Two feature sums that differ in one sample, from a step that is taken back and taken again.

A coordinator that did not get the reply to a step says so, and the party takes it back. One that
lies got it, and asks for the step again with one z changed: the two replies differ in the row of
one sample. Breast cancer, careful terms, parties in a 3×3 grid and by rows. What z a coordinator
can bring is another matter: here it is put into the party.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from scene import by_both, by_rows, run, table_of

from small_federations import rough_curvature
from weft.errors import ProtocolError
from weft.guards import Terms
from weft.guards.keep_apart_from_other_sent_duals import SentAside
from weft.solvers.hyfdca.messages import FusedRequest, StepRequest
from weft.solvers.rounds.messages import RoundReply, RoundRequest
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants, RestoreRequest

TABLE = table_of("breast_cancer", 300)
REFUSED = "too close to one that was taken back"


def party_of(tiles, solver):
    """The half of the first party of a run, which goes on as the coordinator likes."""
    settings = Settings(
        lam=0.01, loss="logistic", solver=solver, gap=None, iterations=3, norms="cohort"
    )
    with rough_curvature():
        found = run(tiles, settings, Terms(allow_pairs=True))
    return found.party(next(iter(tiles)))._half


class Steps:
    """Has the last step of HyFDCA taken back, and taken again with other inner products."""

    def __init__(self, tiles):
        half = self.half = party_of(tiles, "hyfdca")
        self.owner = next(iter(tiles))
        self._round = 10_000
        self._phase, self._request = "hyfdca.fused", partial(FusedRequest, ahead=1)
        if half.view.n_shared_rows:
            self._phase, self._request = "hyfdca.step", StepRequest
        # Nothing need travel: what would be sent is what the party has.
        half._opened = lambda totals: None
        half._take_weights = lambda v: None
        half._post = lambda *arguments: None
        half._feature_sums = lambda pads: None
        take_back = half._take_back

        def as_in_a_new_turn():
            take_back()
            half._turn_open = True

        half._take_back = as_in_a_new_turn

    def take(self, changed=()):
        """α and feature sums after a step in which z of some samples is another one."""
        half = self.half
        slots, count = half._turn.drawn, half.alpha.shape[1]
        rows = np.arange(len(half.alpha)) if slots is None else slots
        z = np.zeros((len(rows), count))
        z[list(changed)] = 3.0
        half._drawn = lambda totals: (slots, z)
        self._round += 1
        numbers = {"round": self._round, "iteration": half._iteration, "ack": half._sequence - 1}
        half.phases()[self._phase].handle(self._request(**numbers, gamma=1.0))
        return half.alpha.copy(), half.v.copy()

    def row(self, slot):
        """For the judge."""
        one = np.zeros((len(self.half.alpha), 1))
        one[slot] = 1.0
        cells = np.zeros((self.half.view.n_columns, 1))
        self.half.table.accumulate(None, one, cells)
        return cells[:, 0]


@pytest.fixture(params=["grid", "rows"])
def steps(request):
    return Steps(by_both(TABLE, 3, 3) if request.param == "grid" else by_rows(TABLE, 4))


def test_a_row_shows_between_a_step_and_the_same_step_again(steps, monkeypatch, record):
    monkeypatch.setattr(SentAside, "note", lambda aside, alpha: None)
    (first, sums), (second, others) = steps.take(), steps.take([4])
    (moved,) = np.flatnonzero((first != second).any(axis=1))
    found, row = (others - sums)[:, 0], steps.row(moved)
    assert abs(found @ row) / np.linalg.norm(found) / np.linalg.norm(row) > 1 - 1e-9
    record("38", "unguarded", f"a step taken twice: one row of {steps.owner}, up to a factor")


def step_apart(steps, before):
    """A step near another: samples that nobody else holds stay, else it is refused."""
    if steps.half.view.n_shared_rows:
        with pytest.raises(ProtocolError, match=REFUSED):
            steps.take([4])
        return
    after, _ = steps.take([4])
    differ = int((before != after).any(axis=1).sum())
    assert differ == 0 or differ >= steps.half.view.min_batch


def test_a_step_keeps_apart_from_one_that_was_taken_back(steps, record):
    before, _ = steps.take()
    # What comes out the same is sent again, as often as anybody wants it.
    assert np.array_equal(steps.take()[0], before)
    step_apart(steps, before)
    outcome = "refused" if steps.half.view.n_shared_rows else "samples stay as they are"
    record("38", "guarded", f"a step again with one z changed: {outcome} ({steps.owner})")


def test_enough_samples_may_differ(steps):
    first, _ = steps.take()
    second, _ = steps.take(range(25))
    assert (first != second).any(axis=1).sum() == 25


def test_what_was_taken_back_is_remembered_in_checkpoints(steps):
    before, _ = steps.take()
    half = steps.half
    half.settle(half._sequence - 1)
    state = {name: array.copy() for name, array in half.state().items()}
    half.aside.restore({})
    half.restore(state, Constants(omega=half.method._omega))
    step_apart(steps, before)


class Vectors:
    """The same for a method in rounds: what it shows in a step is a vector of the attacker's."""

    def __init__(self, solver):
        half = self.half = party_of(by_rows(TABLE, 4), solver)
        self._round = 10_000
        half._v_sum = _Nothing()

    def take(self, vector):
        half = self.half

        def handler(message):
            if hasattr(half, "moved"):
                return half.moved(vector.copy(), message)
            half._kept(half.w.copy(), half.w.copy(), vector.copy())
            return RoundReply()

        self._round += 1
        request = RoundRequest(round=self._round, iteration=50, ack=half._sequence - 1)
        half._moving(handler)(request)
        return half.shown().copy()


class _Nothing:
    """A sum that nothing is put into."""

    def increment(self, values, pads):
        return b""


@pytest.mark.parametrize("solver", ["cocoa", "fedavg"])
def test_methods_in_rounds_remember_what_they_took_back(solver, monkeypatch):
    vectors = Vectors(solver)
    half = vectors.half
    rng = np.random.default_rng(0)
    first = half.shown() + rng.uniform(0.1, 0.2, half.shown().shape) * np.sign(half.labels)
    near = first.copy()
    near[4] += 0.1
    assert np.array_equal(vectors.take(first), first)
    differ = (vectors.take(near) != first).any(axis=1).sum()
    assert differ == 0 or differ >= half.view.min_batch
    assert np.array_equal(vectors.take(first), first)
    monkeypatch.setattr(SentAside, "note", lambda aside, alpha: None)
    half.aside.restore({})
    assert np.array_equal(vectors.take(near), near)


def test_nothing_is_restored_or_handed_over_while_a_party_trains():
    """Either would let steps be taken again; neither was agreed on."""
    tiles = by_rows(TABLE, 4)
    settings = Settings(lam=0.01, loss="logistic", solver="lbfgs", gap=None, iterations=2)
    party = run(tiles, settings, Terms()).party("p1")
    with pytest.raises(ProtocolError, match="which was not agreed on"):
        party._half._fall_back(None)
    with pytest.raises(ProtocolError, match="is training already"):
        party.training._restore(RestoreRequest(round=10_000, iteration=1, epoch=1))
