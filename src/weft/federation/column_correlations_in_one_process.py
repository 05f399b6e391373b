"""Correlations of all columns, from XᵀX of a sealed run that trains next to nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from weft.crypto.keys import PartyKeys
from weft.data.tile import Tile
from weft.federation.derive_correlation_run import correlation_run
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.release.rounded_correlation_file import CorrelationTable
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings


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
    how, asked = correlation_run(preprocessing, settings)
    federation = Federation(tiles, how, keys=keys, consents=consents, ledger=ledger)
    moments = federation.train(asked).second_moments
    table = None if moments is None else CorrelationTable.of(moments)
    assert table is not None
    return {"columns": table.names, "matrix": table.matrix.tolist()}
