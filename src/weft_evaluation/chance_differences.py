"""Whether two models predict differently, or only by chance: on the same samples, in pairs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from scipy.stats import binomtest, ttest_rel

from weft.array_types import Floats
from weft.report.number_format import names
from weft_evaluation.algorithm_comparison import Outcome, quality

#: A difference that chance makes at least as often as this is noise.
_LEVEL = 0.05


def within_noise(one: Floats, other: Floats) -> bool:
    """Whether the scores of two models on the same samples could differ as they do by chance.

    Of right and wrong predictions only samples on which the two disagree tell anything: which of
    them is right there would be a coin's toss (McNemar's test, exact). Of squared errors, the mean
    difference is held against its spread (a paired t-test).
    """
    apart = one - other
    better, worse = int((apart > 0).sum()), int((apart < 0).sum())
    if better + worse == 0:
        return True
    if set(np.unique(one)) | set(np.unique(other)) <= {0.0, 1.0}:
        return bool(binomtest(better, better + worse).pvalue >= _LEVEL)
    return len(one) < 2 or not ttest_rel(one, other).pvalue < _LEVEL


def alike_to_best(outcomes: Sequence[Outcome]) -> tuple[str, dict[str, bool]]:
    """Name of the model that predicts best, and of every other whether it is within noise of it.

    The name is empty where there is no model.
    """
    judged = {o.name: (quality(o), o.by_sample) for o in outcomes if o.by_sample is not None}
    if not judged:
        return "", {}
    best = max(judged, key=lambda name: judged[name][0])
    top = judged[best][1]
    return best, {
        name: within_noise(mine, top) for name, (_, mine) in judged.items() if name != best
    }


def noise_sentence(best: str, alike: Mapping[str, bool], where: str) -> str | None:
    """Which models cannot be told from the best; None: there is nothing to compare."""
    if not alike:
        return None
    same = [name for name, is_same in alike.items() if is_same]
    if not same:
        return f"On {where}, {best} predicts better than all others, beyond noise."
    told = f"{names(same)} cannot be told from it"
    if len(same) == len(alike):
        told = "none of the others can be told from it"
    return (
        f"On {where}, {best} predicts best; {told}: differences marked ≈ are within noise (95 %, "
        "sample by sample)."
    )
