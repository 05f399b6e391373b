"""Large arrays have pages of their own, and are in memory once where they say the same."""

from __future__ import annotations

import mmap

import numpy as np
import pytest

from covering import every_value
from small_federations import make_table
from weft import arrays_outside_heap
from weft.arrays_outside_heap import LARGE, lasting, lasting_zeros, shared
from weft.data import SPLITS
from weft.federation.local_federation import Federation
from weft.guards import Terms, min_batch_between_sums
from weft.guards.min_batch_between_sums import SeenBatches
from weft.solvers.run_settings import Settings

ROWS = LARGE // 8


def memory_of(array):
    """What an array lies in, through all its views; None: memory of its own."""
    while isinstance(array, np.ndarray):
        array = array.base
    return array.obj if isinstance(array, memoryview) else array


@pytest.mark.parametrize("shape", [(), (0, 3), (5,), (ROWS - 1, 1), (ROWS, 1), (3, ROWS)])
@pytest.mark.parametrize("kind", [np.float64, np.int16])
def test_zeros_are_as_numpy_has_them(shape, kind):
    found, usual = lasting_zeros(shape, kind), np.zeros(shape, kind)

    assert (found.dtype, found.shape, found.strides) == (usual.dtype, usual.shape, usual.strides)
    assert found.flags.c_contiguous
    assert found.flags.writeable
    assert not found.any()
    assert isinstance(memory_of(found), mmap.mmap) == (found.nbytes >= LARGE)


def test_a_copy_has_the_same_numbers_of_another_type():
    values = np.random.default_rng(0).standard_normal((2 * ROWS, 1))

    kept = lasting(values, np.float32)

    assert np.array_equal(kept, values.astype(np.float32))
    assert kept.dtype == np.float32
    assert isinstance(memory_of(kept), mmap.mmap)


def test_large_arrays_that_say_the_same_are_one_as_long_as_anybody_has_it():
    values = np.arange(ROWS)
    first, again = shared(values), shared(values.copy())

    assert again is first
    assert first is not values
    assert np.array_equal(first, values)
    values[0] = 5
    assert first[0] == 0


@pytest.mark.parametrize(
    "other",
    [
        lambda values: values + (np.arange(ROWS) == 7),
        lambda values: values.astype(np.uint64),
        lambda values: values.reshape(-1, 1),
    ],
)
def test_arrays_of_other_numbers_types_or_shapes_are_others(other):
    values = np.arange(ROWS)
    first, second = shared(values), shared(other(values))

    assert second is not first
    assert np.array_equal(second, other(values))
    assert (second.dtype, second.shape) == (other(values).dtype, other(values).shape)


def test_small_arrays_are_left_where_they_are():
    values = np.arange(10)

    assert shared(values) is values


@every_value(solver=["hyfdca", "lbfgs", "newton-cg", "cutting-planes", "admm"], classes=[2, 3])
def test_nobody_writes_to_what_parties_share(solver, classes, monkeypatch):
    """Here they share arrays of small tables as those of large ones; the model is the same."""
    loss = "hinge" if solver == "cutting-planes" else "logistic"
    settings = Settings(lam=0.1, loss=loss, solver=solver, gap=None, iterations=6, seed=3)
    terms = Terms(min_batch=2, allow_exposure=True)
    parties = SPLITS["grid"](make_table(n=90, m=12, classes=classes), k=3, q=3).parties
    model = Federation(parties, terms=terms).train(settings).model
    known = {}
    monkeypatch.setattr(arrays_outside_heap, "LARGE", 1)
    monkeypatch.setattr(arrays_outside_heap, "_SHARED", known)
    again = Federation(parties, terms=terms).train(settings).model
    assert (again.coef.tobytes(), again.intercept.tobytes()) == (
        model.coef.tobytes(),
        model.intercept.tobytes(),
    )
    assert len(known) > len(parties)
    for name, array in known.items():
        assert arrays_outside_heap._name_of(array) == name


def test_guards_keep_the_same_wherever_their_vectors_lie(monkeypatch):
    """In the heap, on pages of their own, and where the C library takes pages by itself."""
    draws = np.random.default_rng(0).standard_normal((20, 60, 1))
    atom, kept = np.repeat([0, 1], 30), []
    for large, huge in ((1 << 60, 1 << 61), (600, 1 << 60), (600, 3_000)):
        monkeypatch.setattr(min_batch_between_sums, "LARGE", large)
        monkeypatch.setattr(min_batch_between_sums, "HUGE", huge)
        batches = SeenBatches(atom, 5, 1)
        held = [batches.admit(vectors.copy()).tolist() for vectors in draws]
        kept.append((held, batches._kept[: len(draws)].tolist(), batches._sizes[:20].tolist()))

    assert kept[0] == kept[1] == kept[2]
