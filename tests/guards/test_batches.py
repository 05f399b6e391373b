"""What a guard lets through: enough samples of an atom change together, or none does."""

from __future__ import annotations

import numpy as np
from guarded import check_apart, check_steps, effective
from hypothesis import given
from hypothesis import strategies as st
from slow_batches import SlowBatches

from covering import examples
from weft.guards.min_batch_between_sums import MinBatch, SeenBatches

#: Slopes of a hinge, values next to its kink, and some that single precision does not tell apart.
VALUES = np.array([0.0, 1.0, -1.0, 0.5, 0.25, 1e-3, 1e-3 + 1e-12, 1.0 - 1e-10])


@st.composite
def scenes(draw):
    """Atoms, and vectors one after the other: few or many samples of the last, or an older, one
    change, to other slopes or to values between."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    least = draw(st.integers(1, 6))
    width = draw(st.integers(1, 3))
    n = draw(st.integers(1, 40))
    atom = rng.integers(-1, draw(st.integers(1, 3)), n)
    if draw(st.booleans()):
        atom = np.sort(atom)
    seen = [np.zeros((n, width))]
    batches = []
    for _ in range(draw(st.integers(1, 12))):
        parts = []
        for _ in range(draw(st.integers(1, 2))):
            new = seen[rng.integers(len(seen))].copy()
            if rng.random() < 0.3:
                new = new[:, rng.permutation(width)]
            share = rng.choice([0.05, 0.2, 0.6, 1.0])
            moved = rng.random(new.shape) < share
            kind = rng.integers(3)
            fresh = rng.choice(VALUES, new.shape)
            if kind == 1:
                fresh = rng.uniform(-1, 1, new.shape)
            elif kind == 2:
                fresh = np.broadcast_to(rng.choice(VALUES, (1, width)), new.shape)
            new[moved] = fresh[moved]
            seen.append(new)
            parts.append(new)
        batches.append(np.hstack(parts))
    return atom, least, width, batches


@given(scenes(), st.booleans())
@examples(200)
def test_no_two_vectors_that_others_see_differ_in_too_few_samples(scene, short):
    """In whatever digits the guard keeps them."""
    atom, least, width, batches = scene
    guard = SeenBatches(atom, least, width, short=short)
    admitted = np.zeros((len(atom), 0))
    for asked in batches:
        given_out = asked.copy()
        held = guard.admit(given_out)
        assert (given_out[atom < 0] == asked[atom < 0]).all(), "a row of no atom was changed"
        for number, kept in zip(guard.atoms.tolist(), held.tolist(), strict=True):
            changed = (given_out != asked)[atom == number].any()
            assert bool(changed) == kept, "who is held back, and only that, is reported"
        admitted = np.hstack([admitted, given_out])
    for number in np.unique(atom[atom >= 0]):
        mine = admitted[atom == number]
        check_apart(mine, least)
        for problem in range(width):
            check_steps(mine[:, problem::width], least)


@given(scenes())
@examples(100)
def test_what_fits_is_admitted_and_what_is_lacking_is_held_back(scene):
    """Asked before, and without a trace: the answers are those of a guard that was not asked."""
    atom, least, width, batches = scene
    guard, other = SeenBatches(atom, least, width), SeenBatches(atom, least, width)
    for asked in batches:
        for columns in np.split(asked, asked.shape[1] // width, axis=1):
            lacking, _ = guard.lacking(columns)
            for place in range(len(guard.atoms)):
                rows = guard.rows_of(place)
                assert (atom[rows] == guard.atoms[place]).all()
                for column in range(width):
                    fits = guard.fits(place, column, columns[rows, column].copy())
                    assert fits != lacking[place, column]
            before = guard._last.copy()
            mine, plain = columns.copy(), columns.copy()
            held = guard.admit(mine)
            assert (held == other.admit(plain)).all()
            assert (mine == plain).all()
            assert (lacking[:, 0] <= held).all()
            if width == 1:
                assert (lacking[:, 0] == held).all()
            # Held back is the last vector of that problem.
            for place in np.flatnonzero(lacking[:, 0]).tolist():
                rows = guard.rows_of(place)
                assert (
                    mine[rows, 0] == before[0][guard.start[place] : guard.start[place + 1]]
                ).all()


def near(rng, vectors, width, least):
    """Side by side, some that differ from one of ``vectors``, or from each other, in a few samples
    or just enough of them; or in many."""
    n = len(vectors)
    found = np.zeros((n, width * rng.integers(1, 4)))
    for column in range(found.shape[1]):
        pool = found[:, :column] if column and rng.random() < 0.4 else vectors
        new = pool[:, rng.integers(pool.shape[1])].copy()
        count = min(n, rng.choice([0, 1, least - 1, least, least + 2, n // 2, n]))
        moved = rng.choice(n, count, replace=False)
        new[moved] = rng.choice(VALUES, count) if rng.random() < 0.7 else rng.random(count)
        found[:, column] = new
    return found


@given(st.integers(0, 2**32 - 1), st.integers(1, 12), st.integers(1, 3), st.integers(1, 100))
@examples(100)
def test_values_and_answers_are_those_of_the_plain_rule(seed, least, width, n):
    """Asked first, or not; with what lacks softened in between, or not; of either kind."""
    rng = np.random.default_rng(seed)
    atom = rng.integers(-1, 2, n) if rng.random() < 0.5 else np.full(n, 3)
    kind = rng.integers(0, 3, n) if rng.random() < 0.5 else None
    guard, slow = SeenBatches(atom, least, width, kind), SlowBatches(atom, least, width, kind)
    for _ in range(10):
        asked = near(rng, np.hstack([np.zeros((n, 1)), slow.seen]), width, least)
        mine, plain, apart = asked.copy(), asked.copy(), None
        dual = bool(rng.random() < 0.8)
        if dual and rng.random() < 0.8:
            lacking, apart = guard.lacking(mine)
            assert np.array_equal(lacking, slow.lacking(plain))
            for place, column in np.argwhere(lacking).tolist():
                rows = guard.rows_of(place)
                for share in (0.3, 1.0):
                    soft = mine[rows, column]
                    soft[rng.random(len(rows)) < share] = rng.choice([0.3, 0.5, -0.7])
                    fits = guard.fits(place, column, soft)
                    assert fits == slow.fits(place, column, soft)
                    if fits:
                        mine[rows, column] = plain[rows, column] = soft
                        break
        held = guard.admit(mine, apart, dual=dual)
        assert np.array_equal(held, slow.admit(plain, dual=dual))
        assert np.array_equal(mine, plain)


@given(scenes())
@examples(100)
def test_a_small_change_since_the_last_copy_is_held_back(scene):
    atom, least, _, batches = scene
    guard = MinBatch(atom, least)
    old = np.zeros_like(batches[0])
    for asked in batches:
        if asked.shape != old.shape:
            continue
        new = asked.copy()
        held = guard.hold_back(new, old)
        assert (new[atom < 0] == asked[atom < 0]).all()
        for place, number in enumerate(guard.atoms.tolist()):
            rows = atom == number
            assert held[place] == (new != asked)[rows].any()
            for column in range(new.shape[1]):
                worth = effective((new - old)[rows, column])
                assert worth == 0.0 or worth >= least * (1 - 1e-6)
                there = effective(new[rows, column])
                assert there == 0.0 or there >= least * (1 - 1e-6)
        old = new


def admitted(*vectors, kind=None):
    """Which of some vectors of one atom are let through, one after the other."""
    guard = SeenBatches(np.zeros(len(vectors[0]), np.int64), 10, 1, kind)
    return [not guard.admit(vector[:, None].copy()).any() for vector in vectors]


def test_a_difference_that_single_precision_does_not_keep_is_a_difference():
    """Vectors are kept in single precision: what it cannot tell counts as too little."""
    first, between = np.full(40, 1.0), np.full(40, 0.5)
    first[:20] = -1.0 / 3.0
    one, all_ = first.copy(), first * (1 + 1e-9)
    one[30] += 1e-12
    assert admitted(first, between, one) == [True, True, False]
    assert admitted(first, between, all_) == [True, True, False]


def test_what_two_bytes_do_not_keep_counts_as_too_little():
    first, between = np.full(40, 1.0), np.full(40, 0.5)
    first[:20] = -1.0 / 3.0
    for shift, let_through in ((1e-6, False), (1e-3, True)):
        guard = SeenBatches(np.zeros(40, np.int64), 10, 1, short=True)
        vectors = first, between, first + shift
        found = [not guard.admit(vector[:, None].copy()).any() for vector in vectors]
        assert found == [True, True, let_through]


def test_a_large_difference_from_an_older_vector_among_tiny_ones_counts_as_one():
    """Forty samples differ, which were enough when they were only counted."""
    first, between = np.full(40, 0.25), np.full(40, 0.5)
    near = first + 1e-4
    near[30] = 1.0
    assert admitted(first, between, near) == [True, True, False]
    assert admitted(first, between, first + 1e-4) == [True, True, True]


def test_what_differs_from_the_rest_of_its_class_must_be_enough():
    """Sums over all samples of a class are known: Σ over all but three of it shows the three."""
    kind = np.repeat([0, 1], 20)
    vector = np.where(kind == 0, 1.0, -0.5)
    vector[:3] = 0.0
    assert admitted(vector, kind=kind) == [False]
    vector[:10] = 0.0
    assert admitted(vector, kind=kind) == [True]
    assert admitted(np.where(kind == 0, 1.0, -0.5), kind=kind) == [True]


def test_a_large_change_among_tiny_ones_counts_as_one():
    guard = SeenBatches(np.zeros(30, np.int64), 10, 1)
    vector = np.ones((30, 1))
    guard.admit(vector)
    changed = vector - 1e-6
    changed[0] = -1.0
    assert guard.admit(changed.copy()).all()
    even = vector - 1e-6
    assert not guard.admit(even).any()


def test_many_vectors_are_all_remembered():
    """More than there was room for at first."""
    rng = np.random.default_rng(0)
    guard = SeenBatches(np.zeros(64, np.int64), 10, 1)
    vectors = [rng.choice([0.0, 1.0], (64, 1)) for _ in range(50)]
    assert not any(guard.admit(vector.copy()).any() for vector in vectors)
    for old in vectors:
        near = old.copy()
        near[:3] = 1.0 - near[:3]
        assert guard.lacking(near)[0].all()
