"""Ids that are probably the same but written in two ways: counted, never named."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Tokens = NDArray[np.uint64]
Ints = NDArray[np.int64]
#: Two parties, and how many ids of theirs agree in their loose form only.
Mismatches = tuple[tuple[str, str, int], ...]


def count_mismatches(
    parties: Sequence[str], exact: Sequence[Tokens], loose: Sequence[Tokens]
) -> Mismatches:
    """Pairs of parties with ids that agree in their loose form and not in their exact one.

    Parameters
    ----------
    exact, loose
        Per party, the tokens of its ids and of their loose forms.
    """
    party = np.repeat(np.arange(len(parties)), [len(tokens) for tokens in exact])
    tokens = np.concatenate(exact)
    code, names = pd.factorize(np.concatenate(loose))
    if not len(names):
        return ()
    # Loose forms with two exact ones or more are few, and looked at one by one.
    order = np.argsort(code, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(names)))])
    sorted_tokens = tokens[order]
    lowest = np.minimum.reduceat(sorted_tokens, first[:-1])
    highest = np.maximum.reduceat(sorted_tokens, first[:-1])
    found: Counter[tuple[int, int]] = Counter()
    for group in np.flatnonzero(lowest != highest).tolist():
        entries = order[first[group] : first[group + 1]]
        held: dict[int, set[int]] = {}
        for owner, token in zip(party[entries].tolist(), tokens[entries].tolist(), strict=True):
            held.setdefault(owner, set()).add(token)
        for (a, one), (b, other) in combinations(sorted(held.items()), 2):
            # What both hold is matched; of the rest, each stands for one of the other's.
            if count := min(len(one - other), len(other - one)):
                found[a, b] += count
    return tuple((parties[a], parties[b], n) for (a, b), n in sorted(found.items()))
