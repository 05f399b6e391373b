"""Which samples weigh the same at w = 0: for guards, sums over each kind are known to others."""

from __future__ import annotations

import numpy as np

from weft.array_types import Floats, Ints
from weft.losses import Loss
from weft.matching.party_view import PartyView


def kinds_of_classes(labels: Floats, loss: Loss) -> Ints:
    """Per row, the number of its class; responses are all of one kind."""
    if loss.task == "regression":
        return np.zeros(len(labels), np.int64)
    if labels.shape[1] > 1:
        return np.asarray(labels.argmax(axis=1), np.int64)
    return np.asarray(labels[:, 0] > 0, np.int64)


def common_kinds(view: PartyView, labels: Floats, loss: Loss) -> Ints:
    """The same where all holders of a sample have its label, and must decide alike; else one."""
    told: Ints = np.where((view.computing == view.sharers)[view.row_cohort], 1, 0)
    return told * kinds_of_classes(labels, loss)
