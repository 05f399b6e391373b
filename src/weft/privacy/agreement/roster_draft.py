"""Drafting a roster from membership cards: nobody has signed it yet."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence

from weft.errors import ConfigError
from weft.guards.terms import Terms
from weft.privacy.agreement.limits import Limits
from weft.privacy.agreement.roster_files import Card
from weft.privacy.agreement.signed_roster import Charter, Member, Role, SignedRoster


def draft_roster(
    federation: str,
    cards: Sequence[Card],
    terms: Terms,
    *,
    limits: Limits | None = None,
    labels: Collection[str] | None = None,
    model: Collection[str] | None = None,
    matching: Collection[str] = (),
    rows: Mapping[str, int] | None = None,
) -> SignedRoster:
    """A roster in which every member brings data.

    Parameters
    ----------
    federation
        Its name.
    cards
        What the sites tell of themselves, in the order of the members.
    labels, model
        Who may bring labels, and who gets the model; None: everybody.
    matching
        Who holds a matching key; their cards must have one.
    rows
        The most rows that a member may match.
    """
    known = [card.name for card in cards]
    for what, names in (
        ("labels", labels),
        ("model", model),
        ("matching", matching),
        ("rows", rows),
    ):
        _refuse_strangers(what, names or (), known)
    roles: dict[Role, Collection[str]] = {
        "data": known,
        "labels": known if labels is None else labels,
        "matching": matching,
        "model": known if model is None else model,
    }
    members = [_member(card, roles, (rows or {}).get(card.name)) for card in cards]
    charter = Charter(
        format=1,
        federation=federation,
        members=tuple(members),
        terms=terms,
        limits=limits or Limits(),
    )
    return SignedRoster.draft(charter)


def _refuse_strangers(what: str, names: Iterable[str], known: Sequence[str]) -> None:
    strange = [name for name in names if name not in known]
    if strange:
        raise ConfigError(
            f"--{what} names '{strange[0]}', but the members are {', '.join(known)}; correct the "
            "name"
        )


def _member(card: Card, roles: Mapping[Role, Collection[str]], rows: int | None) -> Member:
    own = tuple(role for role, names in roles.items() if card.name in names)
    if "matching" in own and card.matching_key is None:
        raise ConfigError(
            f"the card of '{card.name}' has no matching key, which the role matching takes; let "
            "its site make the card with 'weft federation join'"
        )
    return Member(
        name=card.name,
        signing=card.signing,
        sealing=card.sealing,
        roles=own,
        most_rows=rows,
        matching_key=card.matching_key if "matching" in own else None,
    )
