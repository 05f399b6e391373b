"""From the settings in a kit to a site that answers."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from weft.config.table_reading_file import read_reading
from weft.data.file_or_database_address import source_of
from weft.data.reading_options import AS_FOUND
from weft.network.kits.kit_folder import Kit
from weft.network.model_saving_party import ModelSavingParty
from weft.network.party_interface import OpenedParty, PartyRequest
from weft.network.saved_join_settings import JoinSettings, roster_pins
from weft.network.site_answers_envelopes import Site
from weft.network.site_data_keys_and_consent import load_member
from weft.privacy.agreement import SitePolicy
from weft.privacy.ledger.run_booking import Ledger

#: Folder of what a site gets in runs: models, and predictions that it asked for.
_MODELS = "models"


def open_site(
    settings: JoinSettings, kit: Kit, tell: Callable[[str], None] = lambda _: None
) -> Site:
    """Read everything the site needs; the site is then ready to answer.

    ``tell`` hears how its tables were read.

    Raises
    ------
    WeftError
        Something is missing or wrong.
    """
    member = load_member(
        settings.party,
        [source_of(name) for name in settings.data],
        id_column=settings.id,
        label=settings.label,
        keys=Path(settings.keys),
        ledger=Ledger(kit.home / "ledger", kit.federation),
        roster=_path(settings.roster),
        policy=_path(settings.policy),
        pins=roster_pins(kit),
        new=[source_of(name) for name in settings.new],
        models=kit.home / _MODELS,
        options=AS_FOUND if settings.reading is None else read_reading(Path(settings.reading)),
    )

    for note in member.notes:
        tell(note)

    def open_party(request: PartyRequest) -> OpenedParty:
        party = member.open_party(request.plan, request.memory, request.run)
        return OpenedParty(ModelSavingParty(party, kit.home / _MODELS / request.run))

    policy = member.policy or SitePolicy()
    return Site(kit.home, open_party, most_runs=policy.most_runs, tells_columns=policy.tell_columns)


def _path(name: str | None) -> Path | None:
    return None if name is None else Path(name)
