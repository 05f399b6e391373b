"""How fine tables of losses are: few samples, few points."""

from __future__ import annotations

import numpy as np
import pytest
from guarded import PLAIN, optimum, table_of, train, watched
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from weft.data import SPLITS
from weft.errors import ProtocolError
from weft.guards import OPEN
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.coordinator_coefficients_and_products import thinned
from weft.solvers.subspace.loss_points_and_directions_limit import MOST_STEPS, most_steps

BREAST = table_of("breast_cancer", 240)
HOW = Settings(lam=1e-2, solver="cutting-planes", gap=5e-2, iterations=60, cipher="plain")


@given(st.integers(0, 5000), st.integers(1, 100))
def test_a_table_has_min_batch_samples_to_a_point_and_three_points_at_least(samples, min_batch):
    steps = most_steps(samples, min_batch)
    assert 3 <= steps <= MOST_STEPS
    if samples and min_batch > 1:
        assert steps * min_batch <= samples or steps == 3
        assert (steps + 1) * min_batch > samples or steps == MOST_STEPS
    else:
        assert steps == MOST_STEPS


def way(shares, problems):
    """Steps as shares of point and target, the same for all problems."""
    pairs = np.array([[1.0 - share, share] for share in shares])
    return np.repeat(pairs[:, :, None], problems, axis=2)


@given(
    st.lists(st.floats(0.01, 0.99), unique=True, max_size=40),
    st.integers(3, 40),
    st.integers(1, 3),
    st.randoms(),
)
def test_thinned_steps_keep_to_stay_and_to_go_all_the_way(between, most, problems, random):
    shares = [0.0, 1.0, *between]
    random.shuffle(shares)
    steps = way(shares, problems)
    kept = thinned(steps, most)
    assert len(kept) <= max(most, 2)
    assert (np.diff(kept) > 0).all()
    assert {shares.index(0.0), shares.index(1.0)} <= set(kept.tolist())
    if len(shares) <= most:
        assert len(kept) == len(shares)
    else:
        assert len(kept) >= most - 2


class Tables:
    """How many points each party was asked for."""

    def __init__(self, finer=None):
        self.asked = {}
        self.finer = finer

    def before(self, party, phase, message):
        if phase != "subspace.search":
            return message
        if self.finer is not None and party.name == "p2":
            shares = np.linspace(0.0, 1.0, self.finer).tolist()
            message = replace(message, steps=way(shares, message.steps.shape[2]))
        self.asked.setdefault(party.name, []).append(len(message.steps))
        return message


def test_nobody_is_asked_for_more_points_than_its_samples_allow():
    """Four parties of sixty samples: six points; the run certifies all the same."""
    tables = Tables()
    with watched(before=tables.before):
        federation, trained = train(SPLITS["rows"](BREAST, parties=4), HOW)
    assert set(tables.asked) == set(federation.parties)
    assert {max(counts) for counts in tables.asked.values()} == {most_steps(60, PLAIN.min_batch)}
    best, certificate = optimum(BREAST, "hinge", HOW.lam, 1), trained.result.certificate
    assert certificate.gap <= 5e-2
    assert certificate.dual[0] <= best * (1 + 1e-7)
    assert certificate.primal[0] >= best * (1 - 1e-7)


def test_without_guards_tables_are_fine():
    tables = Tables()
    with watched(before=tables.before):
        train(SPLITS["rows"](BREAST, parties=4), HOW, OPEN)
    assert max(tables.asked["p1"]) > most_steps(60, PLAIN.min_batch)


@pytest.mark.parametrize("points", [7, MOST_STEPS])
def test_a_party_refuses_a_finer_table_than_its_samples_allow(points):
    tables = Tables(points)
    with (
        watched(before=tables.before),
        pytest.raises(
            ProtocolError,
            match=f"party p2: a message asks for losses at {points} points, which is too fine for "
            "the samples counted here and min_batch = 10",
        ),
    ):
        train(SPLITS["rows"](BREAST, parties=4), HOW)


def test_a_party_answers_the_finest_table_that_its_samples_allow():
    """So that the refusal above is about one point more. The coordinator notices another size."""
    tables = Tables(6)
    with watched(before=tables.before):
        _, trained = train(SPLITS["rows"](BREAST, parties=4), HOW)
    assert set(tables.asked["p2"]) == {6}
    assert trained.result.history
