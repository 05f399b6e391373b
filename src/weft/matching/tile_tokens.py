"""Tokens of one tile's rows: what the coordinator compares, and where each comes from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.primitives.batched_keyed_hashes import Strings
from weft.crypto.secret_bytes import Secret
from weft.matching.id_and_name_forms import own_loose_forms
from weft.matching.tokens import Tokens, label_tokens, tokens_of

Names = NDArray[np.object_]


@dataclass(frozen=True)
class TileTokens:
    """The tokens of one tile's rows, sorted, and where each comes from.

    Attributes
    ----------
    loose, loose_rows
        Tokens of loose forms that differ from the id, and the positions of their rows.
    """

    order: Ints
    rows: Tokens
    labelled: NDArray[np.bool_]
    labels: Tokens
    loose: Tokens
    loose_rows: Ints

    @classmethod
    def of(
        cls,
        ids: Names,
        target: Floats | None,
        outputs: Mapping[str, bytes] | None,
        secret: Secret,
        classes: Sequence[bytes] | None,
        beside: Sequence[bytes] | None,
    ) -> TileTokens:
        """Tokens under a secret, of ids or of what the key holders made of them."""
        exact = token_contents(ids, outputs)
        tokens = tokens_of(exact, secret, "rows")
        labelled, labels = np.ones(len(ids), bool), np.zeros(len(ids), np.uint64)
        if target is not None:
            labelled = ~np.isnan(target)
            labels = label_tokens(exact, target, labelled, secret, classes, beside)
        # No two ids of a tile are equal: a sort that may swap ties takes a quarter of the time.
        order = np.argsort(tokens)
        rows, forms = own_loose_forms(ids)
        place = np.empty(len(order), np.int64)
        place[order] = np.arange(len(order))
        by_place = np.argsort(place[rows])
        return cls(
            order=order,
            rows=tokens[order],
            labelled=labelled[order],
            labels=labels[order],
            loose=tokens_of(token_contents(forms, outputs), secret, "rows")[by_place],
            loose_rows=place[rows][by_place],
        )


def token_contents(names: Names, outputs: Mapping[str, bytes] | None) -> Strings:
    """What tokens of ids are made of: ids, or what the key holders made of them."""
    if outputs is None:
        # Ids in their normal form have no line breaks, nor have loose forms.
        return Strings.of_lines(names.tolist())
    return Strings.of(outputs[name] for name in names.tolist())
