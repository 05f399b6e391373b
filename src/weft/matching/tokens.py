"""Pseudonyms of ids, feature names and labels.

A token is a keyed 64-bit hash (SipHash through pandas). The key comes from a secret that the
parties share and the coordinator does not have, so it can compare tokens but not read them.
Two of n different ids share a token with probability about n² / 2^65: 3e-8 for a million.
"""

from __future__ import annotations

from hashlib import blake2b
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.errors import DataError

Tokens = NDArray[np.uint64]


def tokens_of(names: NDArray[np.object_], secret: bytes, purpose: str) -> Tokens:
    """Tokens of strings; the same string gives another token for another purpose."""
    key = blake2b(purpose.encode(), key=secret[:64], digest_size=8).hexdigest()
    hashed = pd.util.hash_array(names, hash_key=key, categorize=False)
    return np.asarray(hashed, np.uint64)


def label_tokens(
    ids: NDArray[np.object_], values: NDArray[np.float64], known: NDArray[np.bool_], secret: bytes
) -> Tokens:
    """Tokens of (id, label) pairs, zero where there is no label.

    Two holders of a sample agree on its label exactly when their tokens agree, which the
    coordinator can see without seeing the label.
    """
    tokens = np.zeros(len(ids), np.uint64)
    # Adding zero turns −0.0 into 0.0, which is the same label.
    plain = (values[known] + 0.0).tolist()
    pairs = [f"{i}\x00{y!r}" for i, y in zip(ids[known], plain, strict=True)]
    if pairs:
        tokens[known] = tokens_of(np.array(pairs, dtype=object), secret, "labels")
    return tokens


def encode_labels(
    labels: NDArray[Any], known: NDArray[np.bool_], classes: NDArray[Any] | None, where: str
) -> NDArray[np.float64]:
    """Labels as numbers: the class index, or the response itself where ``classes`` is None.

    Unknown labels become NaN. ``where`` names the party and file in errors.
    """
    values = np.full(len(labels), np.nan)
    chosen = labels[known]
    if classes is None:
        try:
            values[known] = chosen.astype(np.float64)
        except (TypeError, ValueError):
            raise DataError(
                f"{where}: the label column holds text, but this loss needs numbers; "
                "choose a classification loss or another label column"
            ) from None
        return values
    if np.issubdtype(classes.dtype, np.number):
        chosen = pd.to_numeric(pd.Series(chosen), errors="coerce").to_numpy(np.float64)
    else:
        chosen = np.array([str(label) for label in chosen], dtype=object)
        classes = np.array([str(label) for label in classes], dtype=object)
    index = pd.Index(classes).get_indexer(pd.Index(chosen))
    if (index < 0).any():
        row = int(np.flatnonzero(known)[index < 0][0]) + 1
        raise DataError(
            f"{where}: the label in row {row} is none of the classes {list(classes)}; correct it, "
            "or name that class too"
        )
    values[known] = index
    return values
