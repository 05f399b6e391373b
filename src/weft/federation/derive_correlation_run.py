"""The sealed run that opens XᵀX for correlations, and trains next to nothing."""

from __future__ import annotations

import msgspec

from weft.federation.preprocessing_settings import Preprocessing
from weft.solvers.run_settings import Settings

#: A model comes along, which nobody needs: it is held down so much that it is found at once.
_LAMBDA, _GAP = 1.0, 0.9


def correlation_run(
    preprocessing: Preprocessing, settings: Settings
) -> tuple[Preprocessing, Settings]:
    """What of a study's run stays in one for correlations.

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
    return how, asked
