"""Differences between models that chance could have made are called so."""

from itertools import product
from math import comb

import numpy as np
import pytest

from weft_evaluation.algorithm_comparison import Outcome
from weft_evaluation.chance_differences import alike_to_best, noise_sentence, within_noise


def outcome(name, right):
    right = np.array(right, float)
    return Outcome(name, "federated", test={"accuracy": right.mean()}, by_sample=right)


def test_right_and_wrong_are_compared_by_mcnemars_exact_test():
    for better, worse in product(range(12), range(12)):
        one = np.repeat([1.0, 0.0, 1.0, 0.0], [better, worse, 5, 3])
        other = np.repeat([0.0, 1.0, 1.0, 0.0], [better, worse, 5, 3])
        n, least = better + worse, min(better, worse)
        # Twice the tail of fair coins.
        p = min(1.0, 2 * sum(comb(n, k) for k in range(least + 1)) / 2**n)
        assert within_noise(one, other) == (p >= 0.05), (better, worse)


def test_squared_errors_are_compared_in_pairs():
    rng = np.random.default_rng(0)
    hard = -(rng.normal(size=200) ** 2) * 10
    # A small edge on every sample counts, although samples differ far more from each other.
    assert not within_noise(hard + 0.1 + 0.05 * rng.normal(size=200), hard)
    assert within_noise(hard + rng.normal(size=200), hard)


@pytest.mark.parametrize(
    ("others", "told"),
    [
        ({"b": 0.9}, "none of the others can be told from it"),
        ({"b": 0.9, "c": 0.2}, "b cannot be told from it"),
        ({"c": 0.2}, "a predicts better than all others, beyond noise"),
        ({}, None),
    ],
)
def test_models_like_the_best_are_named(others, told):
    shares = {"a": 0.95, **others}
    found = [outcome(name, np.arange(100) < 100 * share) for name, share in shares.items()]
    best, alike = alike_to_best([*found, Outcome("failed", "federated")])
    sentence = noise_sentence(best, alike, "100 samples held out")
    assert best == "a"
    assert (sentence is None) if told is None else (told in sentence)
