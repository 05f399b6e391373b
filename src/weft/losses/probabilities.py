"""Probabilities of classes, from the scores of a model."""

from __future__ import annotations

import numpy as np

from weft.losses.base import Array

#: Losses whose scores are those of a probability.
WITH_PROBABILITIES = ("logistic",)


def class_probabilities(scores: Array) -> Array:
    """Probabilities of all classes, from logistic scores (samples × 1) of the second, or of each.

    With more than two classes the models of each class against the rest are normalised.
    """
    chances = 1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0)))
    if scores.shape[1] == 1:
        return np.hstack([1.0 - chances, chances])
    # Scores far below zero for every class would divide zero by zero.
    chances = np.maximum(chances, np.finfo(np.float64).tiny)
    shares: Array = chances / chances.sum(axis=1, keepdims=True)
    return shares
