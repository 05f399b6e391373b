"""From the settings in a kit to a site that answers."""

from __future__ import annotations

from pathlib import Path

from weft.network.join_settings import JoinSettings, roster_pins
from weft.network.kits.kit import Kit
from weft.network.member_data_and_keys import load_member
from weft.network.site_endpoint import Site
from weft.network.site_models import ModelSavingParty
from weft.network.site_run import OpenedParty, PartyRequest
from weft.privacy.ledger.run_booking import Ledger


def open_site(settings: JoinSettings, kit: Kit) -> Site:
    """Read everything the site needs; the site is then ready to answer.

    Raises
    ------
    WeftError
        Something is missing or wrong.
    """
    member = load_member(
        settings.party,
        [Path(name) for name in settings.data],
        id_column=settings.id,
        label=settings.label,
        keys=Path(settings.keys),
        ledger=Ledger(kit.home / "ledger", kit.federation),
        roster=_path(settings.roster),
        policy=_path(settings.policy),
        pins=roster_pins(kit),
    )

    def open_party(request: PartyRequest) -> OpenedParty:
        party = member.open_party(request.plan, request.memory)
        return OpenedParty(ModelSavingParty(party, kit.home / "models" / request.run))

    most_runs = None if member.policy is None else member.policy.most_runs
    return Site(kit.home, open_party, most_runs=most_runs)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
