"""Guards across an absence: HyFDCA's α lies among the dual vectors that others see sums of."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from guarded import (
    PLAIN,
    check_apart,
    check_steps,
    effective,
    optimum,
    table_of,
    train,
    watched,
)
from hypothesis import given
from hypothesis import strategies as st
from test_guarded_training import Vectors, check_common, exposed_atoms

from weft.data import SPLITS
from weft.guards.min_batch_between_sums import SeenBatches
from weft.solvers.run_settings import Settings

LEAST = PLAIN.min_batch
BREAST = table_of("breast_cancer", 400)
FIRST, LAST = 14, 44


class Absence(Vectors):
    """The same, where one party is away for a while, with α of HyFDCA as parties summed it.

    Attributes
    ----------
    taken
        Per party, which of its blocks is α that was taken over.
    moved
        Per party, α of HyFDCA one after the other.
    """

    def __init__(self, who: str) -> None:
        super().__init__()
        self._who = who
        self._asked = 0
        self.taken: dict[str, int] = {}
        self.moved: dict[str, list[np.ndarray]] = defaultdict(list)

    def before(self, party, phase, message):
        if party.name == "p1":
            self._asked += phase.startswith(("subspace.", "hyfdca."))
        if party.name == self._who and FIRST <= self._asked < LAST:
            raise RuntimeError("away")
        return message

    def after(self, party, phase, message, reply):
        super().after(party, phase, message, reply)
        if phase.startswith("hyfdca.") and "v" in reply and "sequence" in reply:
            half = party._half.fallbacks.newest.half
            self.moved[party.name].append(half.alpha.copy())
            assert half.earlier is party._half.samples.guard.batches
        if phase == "subspace.inherit":
            self.taken[party.name] = len(self.used[party.name])
            self.used[party.name].append(party._half.samples.duals.copy())
            self.bent[party.name].append(False)


@pytest.mark.parametrize("loss", ["hinge", "logistic"])
def test_vectors_keep_apart_from_what_hyfdca_showed(loss):
    settings = Settings(
        lam=1e-4,
        loss=loss,
        solver="cutting-planes" if loss == "hinge" else "lbfgs",
        gap=3e-3,
        iterations=60,
        cipher="plain",
        patience=0.0,
        when_missing="hyfdca",
        norms="cohort",
    )
    seen = Absence("p4")
    with watched(seen.after, seen.before):
        federation, trained = train(SPLITS["rows"](BREAST, parties=4), settings)
    result = trained.result
    assert any("is back" in note for note in result.notes)
    assert len(seen.taken) == 4
    check_common(federation, seen.used)
    for party, blocks in seen.used.items():
        taken = seen.taken[party]
        for rows in exposed_atoms(federation.parties[party]):
            vectors = np.hstack(blocks)[rows]
            check_apart(vectors, LEAST)
            # α came by steps of its own; what follows it is compared with it.
            check_steps(np.hstack(blocks[:taken])[rows], LEAST)
            after = np.hstack(blocks[taken:])[rows]
            worth = effective(after[:, 1] - after[:, 0])
            assert worth == 0.0 or worth >= LEAST * (1 - 1e-6)
            shown = np.hstack(blocks[:taken])[rows]
            for alpha in seen.moved[party]:
                differ = (shown != alpha[rows]).sum(axis=0)
                assert ((differ == 0) | (differ >= LEAST)).all()
    assert len(seen.moved["p1"]) > 5
    for party, taken in seen.taken.items():
        batches = federation.parties[party]._half.samples.guard.batches
        for atom in range(len(batches.atoms)):
            near = seen.used[party][taken][batches.rows_of(atom), 0].copy()
            near[: LEAST - 1] += 0.25
            assert not batches.fits(atom, 0, near)
    (primal,), (dual,) = result.certificate.primal, result.certificate.dual
    best = optimum(BREAST, loss, settings.lam, 1)
    assert dual <= best * (1 + 1e-7)
    assert primal >= best * (1 - 1e-7)


@given(
    st.lists(st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8), max_size=4),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=8, max_size=8),
)
def test_what_is_held_apart_differs_enough_or_has_not_changed(noted, old, new):
    """Two atoms of four samples each, against a count in plain Python."""
    batches = SeenBatches(np.repeat([0, 1], 4), 3, 1)
    for vector in noted:
        batches.note(np.array(vector)[:, None])
    before, values = np.array(old)[:, None], np.array(new)[:, None]
    held = batches.hold_apart(values, before)
    for atom, rows in enumerate((slice(0, 4), slice(4, 8))):
        wished, was = new[rows], old[rows]
        apart = [np.array(wished) - np.array(vector[rows]) for vector in noted]
        near = any(0 < effective(change) < 3 for change in apart)
        expected = was if near and wished != was else wished
        assert values[rows, 0].tolist() == expected
        assert held[atom] == (near and wished != was)


@given(
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6),
    st.lists(st.sampled_from([0.0, 0.5, 1.0]), min_size=6, max_size=6),
)
def test_what_comes_after_a_noted_vector_keeps_apart_from_it(noted, new):
    batches = SeenBatches(np.zeros(6, np.int64), 3, 1)
    batches.note(np.array(noted)[:, None])
    values = np.array(new)[:, None]
    batches.admit(values)
    differ = int((values[:, 0] != noted).sum())
    assert differ == 0 or differ >= 3
