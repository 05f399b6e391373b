"""A description in one process: all parties' tables are here."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from secrets import token_bytes

from weft.crypto.keys import PartyKeys, check_keys, ephemeral_keys
from weft.data.tile import Tile
from weft.federation.descriptive_statistics_coordinator import (
    Description,
    describe_study,
    described_as,
)
from weft.federation.descriptive_statistics_party import DescribeParty
from weft.federation.preprocessing_settings import Preprocessing
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import LocalChannel, Sink
from weft.solvers.run_settings import Settings


def describe_tiles(
    tiles: Mapping[str, Sequence[Tile]],
    preprocessing: Preprocessing,
    settings: Settings,
    *,
    consents: Mapping[str, Consent],
    keys: Mapping[str, PartyKeys] | None = None,
    ledger: Ledger | None = None,
    record: bool | Sink = False,
    name: str = "",
) -> tuple[Description, LocalChannel]:
    """Describe what parties hold, each under what it consents to; also gives the channel.

    Parameters
    ----------
    record
        True: keep all messages in the channel's transcript.
    """
    check_keys(keys, tiles)
    told, own = described_as(preprocessing), keys or ephemeral_keys(tuple(tiles))
    parties = {
        party: DescribeParty(
            party,
            held,
            keys=own[party],
            cipher=settings.cipher,
            consent=consents[party],
            ledger=ledger,
            missing=told.missing,
            sample_columns=told.sample_columns,
        )
        for party, held in tiles.items()
    }
    channel = LocalChannel({p: party.on for p, party in parties.items()}, record=record)
    try:
        return describe_study(channel, told, settings, token_bytes(16), name), channel
    finally:
        for party in parties.values():
            party.close()
