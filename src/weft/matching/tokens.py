"""Pseudonyms of ids, feature names and labels.

A token is a keyed 64-bit hash: BLAKE2b in its keyed mode (RFC 7693), which is a message
authentication code of its own and four times as fast here as HMAC-SHA256. The key comes from a
secret that the parties share and the coordinator does not have, and from the run's random name, so
that the coordinator can compare tokens but not read them, nor find them again in another run.
Two of n different ids share a token with probability about n² / 2^65: 3e-8 for a million.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.crypto.primitives.batched_keyed_hashes import Strings, Tails, keyed_hashes
from weft.crypto.secret_bytes import Secret
from weft.errors import DataError

Tokens = NDArray[np.uint64]
_NONE = np.zeros(0, np.uint64)


def tokens_of(contents: Iterable[bytes] | Strings, secret: Secret, purpose: str) -> Tokens:
    """Tokens of byte strings; the same string gives another token for another purpose."""
    strings = contents if isinstance(contents, Strings) else Strings.of(contents)
    # As many tables as not have no loose forms, and no bare ones.
    return keyed_hashes(_key(secret, purpose), strings) if len(strings) else _NONE


def _key(secret: Secret, purpose: str) -> bytes:
    return secret.derive("weft tokens", purpose.encode()).reveal()


def label_tokens(
    ids: Strings,
    values: NDArray[np.float64],
    known: NDArray[np.bool_],
    secret: Secret,
    classes: Sequence[bytes] | None = None,
    beside: Sequence[bytes] | None = None,
) -> Tokens:
    """Tokens of (id, label) pairs, zero where there is no label.

    Two holders of a sample agree on its label exactly when their tokens agree, which the
    coordinator can see without seeing the label.

    Parameters
    ----------
    values
        Labels as numbers.
    classes
        Names of the classes that the numbers count; None: they are the labels themselves. A token
        is one of a name, so that no other list of classes changes some tokens and not others.
    beside
        What else all holders of a label must agree on, per id.
    """
    tokens = np.zeros(len(ids), np.uint64)
    places = np.flatnonzero(known)
    if classes is None:
        # Adding zero turns −0.0 into 0.0, which is the same label.
        code, distinct = pd.factorize(values[places] + 0.0)
        labels = [b"%r" % y for y in distinct.tolist()]
    else:
        code, labels = values[places].astype(np.int64), list(classes)
    code, labels = np.asarray(code, np.int64), [b"\x00" + label for label in labels]
    if beside is not None:
        pairs = zip(places.tolist(), code.tolist(), strict=True)
        labels = [labels[y] + b"\x00" + beside[i] for i, y in pairs]
        code = np.arange(len(places))
    tails = Tails(Strings.of(labels), code)
    tokens[places] = keyed_hashes(_key(secret, "labels"), ids.take(places), tails)
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
                "choose a classification loss or another label column",
                harmless="its label column holds text, but this loss needs numbers; choose a "
                "classification loss, or let it name another label column",
            ) from None
        return values
    if np.issubdtype(classes.dtype, np.number):
        if not np.issubdtype(chosen.dtype, np.number):
            chosen = pd.to_numeric(pd.Series(chosen), errors="coerce").to_numpy(np.float64)
        order = np.argsort(classes)
        at = np.searchsorted(classes, chosen, sorter=order).clip(max=len(classes) - 1)
        index = np.where(classes[order[at]] == chosen, order[at], -1)
    else:
        names = pd.Index([str(label) for label in classes], dtype=object)
        index = names.get_indexer(pd.Index([str(label) for label in chosen], dtype=object))
    if (index < 0).any():
        row = int(np.flatnonzero(known)[index < 0][0]) + 1
        raise DataError(
            f"{where}: the label in row {row} is none of the classes {list(classes)}; correct it, "
            "or name that class too"
        )
    values[known] = index
    return values
