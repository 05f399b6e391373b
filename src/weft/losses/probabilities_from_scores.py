"""Probabilities of classes, from the scores of a model."""

from __future__ import annotations

import numpy as np
import scipy

from weft.losses.base import Array

#: Losses whose scores are those of a probability.
WITH_PROBABILITIES = ("logistic", "softmax")


def class_probabilities(scores: Array, loss: str) -> Array:
    """Probabilities of all classes, from scores (samples × 1) of the second of two, or of each.

    Those of logistic models of each class against the rest are normalised; of a softmax they are
    its own.
    """
    if loss == "softmax":
        return np.asarray(scipy.special.softmax(scores, axis=1), np.float64)
    chances = 1.0 / (1.0 + np.exp(-np.clip(scores, -700.0, 700.0)))
    if scores.shape[1] == 1:
        return np.hstack([1.0 - chances, chances])
    # Scores far below zero for every class would divide zero by zero.
    chances = np.maximum(chances, np.finfo(np.float64).tiny)
    shares: Array = chances / chances.sum(axis=1, keepdims=True)
    return shares
