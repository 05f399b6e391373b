"""Correlations of all columns, from XᵀX of a sealed run that trains next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
import numpy as np

from weft.array_types import Floats
from weft.crypto.keys import PartyKeys
from weft.data.tile import Tile
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.second_moments import SecondMoments
from weft.privacy.agreement.consent import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.settings import Settings

#: A model comes along, which nobody needs: it is held down so much that it is found at once.
_LAMBDA, _GAP = 1.0, 0.9
#: Digits that are told.
_DIGITS = 3


def correlate_tiles(
    tiles: Mapping[str, Sequence[Tile]],
    preprocessing: Preprocessing,
    settings: Settings,
    *,
    consents: Mapping[str, Consent],
    keys: Mapping[str, PartyKeys] | None = None,
    ledger: Ledger | None = None,
) -> dict[str, Any]:
    """Names of columns and their correlations, under all terms and guards of second moments.

    Columns are scaled as `standard` does; a cell that is blank, or that nobody holds, counts as its
    column's mean.
    """
    how = msgspec.structs.replace(
        preprocessing,
        scaling="standard",
        unit_rows=False,
        intercept=True,
        missing="mean",
        offset=None,
        exposure=None,
        weight=None,
    )
    sorts = settings.make_loss().task != "regression"
    asked = Settings(
        solver="auto",
        mode="sealed",
        loss="logistic" if sorts else "squared",
        lam=_LAMBDA,
        gap=_GAP,
        cipher=settings.cipher,
        second_moments=("gram",),
    )
    federation = Federation(tiles, how, keys=keys, consents=consents, ledger=ledger)
    moments = federation.train(asked).second_moments
    assert moments is not None
    names, matrix = correlations(moments)
    return {"columns": names, "matrix": np.round(matrix, _DIGITS).tolist()}


def correlations(moments: SecondMoments) -> tuple[list[str], Floats]:
    """Of all columns but the constant one, which comes last; zero where a column is constant."""
    gram = moments.gram
    assert gram is not None
    last = len(moments.names) - 1
    mean = gram[:last, last] / gram[last, last]
    spread = gram[:last, :last] - np.outer(mean, mean) * gram[last, last]
    size = np.sqrt(np.maximum(np.diag(spread), 0.0))
    error = 0.0 if moments.gram_error is None else float(np.max(moments.gram_error))
    varies = size**2 > 10.0 * error
    scale = np.where(varies, 1.0 / np.where(varies, size, 1.0), 0.0)
    matrix = np.clip(spread * np.outer(scale, scale), -1.0, 1.0)
    return [str(name) for name in moments.names[:last]], matrix
