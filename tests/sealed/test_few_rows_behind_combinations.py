"""Combinations of columns that stand for a few rows are found, and those of many are not."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes, load_wine

from weft.solvers.secret_sharing.column_combinations_of_few_rows import stands_for_few


def scaled(block):
    return (block - block.mean(axis=0)) / block.std(axis=0)


def dummies(rare, rows=150):
    """Columns of three levels and others; those of a fourth, which so many have, are left out."""
    rng = np.random.default_rng(rare)
    level = rng.integers(0, 3, rows)
    level[:rare] = 3
    others = rng.normal(size=(rows, 6))
    block = np.hstack([others, level[:, None] == np.arange(3)])
    # Any columns that span the same tell the same.
    return scaled(block @ rng.normal(size=(9, 9)))


@pytest.mark.parametrize("rare", [1, 2, 3, 5, 8, 9])
def test_a_level_that_few_have_is_found_without_its_column(rare):
    assert stands_for_few(dummies(rare), 10)


def test_a_level_that_enough_have_is_none():
    assert not stands_for_few(dummies(14), 10)


@pytest.mark.parametrize(("size", "found"), [(50.0, True), (5.0, False)])
def test_a_row_far_from_all_others_is_found(size, found):
    block = np.random.default_rng(0).normal(size=(500, 6))
    block[3, 2] = size
    assert stands_for_few(block, 10) == found


def test_columns_that_depend_on_each_other_are_none_of_a_row():
    """Rounding tells nothing: neither of equal columns, nor of one that is the sum of others."""
    block = np.random.default_rng(0).normal(size=(200, 4))
    more = [
        block,
        block[:, :2],
        block.sum(axis=1)[:, None],
        3 * block[:, :1] + 1,
        np.ones((200, 1)),
    ]
    assert not stands_for_few(scaled(np.hstack(more[:-1])), 10)
    assert not stands_for_few(np.hstack(more), 10)
    assert not stands_for_few(np.zeros((200, 3)), 10)


@pytest.mark.parametrize(
    "block",
    [
        load_breast_cancer().data[:, :10],
        load_breast_cancer().data[:, :5],
        load_breast_cancer().data[:, 5:10],
        load_breast_cancer().data[:, :4],
        load_breast_cancer().data[:, 4:7],
        load_breast_cancer().data[:, 7:10],
        load_wine().data,
        load_diabetes().data,
    ],
    ids=["means", "by two: 1", "2", "by three: 1", "2", "3", "wine", "diabetes"],
)
def test_tables_as_people_have_them_pass(block):
    assert not stands_for_few(scaled(block), 10)


def test_small_tables_of_normal_numbers_pass():
    """With ten rows a column, the fewest that there may be."""
    for seed in range(20):
        block = np.random.default_rng(seed).normal(size=(100, 10))
        assert not stands_for_few(block, 10)


def test_larger_groups_are_looked_for_where_min_batch_is_larger():
    block = dummies(30, rows=600)
    assert stands_for_few(block, 31)
    assert not stands_for_few(block, 20)
