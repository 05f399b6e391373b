"""The coordinator's side of announcements: terms, rosters and classes before anything else."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec
import numpy as np

from weft.crypto.key_and_seed_messages import RunKeys
from weft.errors import DataError, ProtocolError
from weft.federation.column_level_agreement.coordinator import agree_on_columns
from weft.federation.messages import (
    ANNOUNCE,
    JOIN_CLASSES,
    LIST_CLASSES,
    AnnounceReply,
    AnnounceRequest,
    ClassesRequest,
    ListRequest,
    Names,
)
from weft.guards.intersect_allow_lists import in_all_lists
from weft.guards.privacy_terms import Terms
from weft.matching.authenticated_class_list import AgreedClasses, Classes
from weft.matching.coordinator import check_secrets
from weft.protocol import Channel
from weft.protocol.shared_fields import Boxes, Everyone
from weft.thread_safe_decoding import prepared

#: Key holders through whom ids are matched, one after the other.
_HOLDERS = 2


@dataclass(frozen=True)
class Announced:
    """What the parties said of themselves before anything else.

    Attributes
    ----------
    terms
        The strictest of all.
    recipients
        To whom the model goes by all rosters that bind a party; None: there is no roster.
    holders
        Who of the parties hold keys for matching, the first two; None: there is no roster.
    solvers
        Those that all rosters and policies allow; None: no party's limits them.
    agreed
        The class values with the parties' tag, None for a regression.
    replies
        All that the parties said.
    """

    terms: Terms
    recipients: tuple[str, ...] | None
    holders: tuple[str, ...] | None
    solvers: tuple[str, ...] | None
    agreed: AgreedClasses | None
    replies: Mapping[str, AnnounceReply]

    @property
    def keys(self) -> dict[str, RunKeys]:
        """What every party announced of its keys."""
        return {party: reply.keys for party, reply in self.replies.items()}

    @property
    def classes(self) -> Classes | None:
        """The class values, None for a regression."""
        return None if self.agreed is None else self.agreed.values

    @property
    def width(self) -> int:
        """Weights per feature."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)


def announce(
    channel: Channel,
    run: bytes,
    *,
    sorts: bool,
    hides: bool,
    shares: bool = False,
    classes: Sequence[Any] | None = None,
    confirmed: Collection[str] = (),
) -> Announced:
    """Let every party say on which terms it takes part, and agree on classes and columns.

    Parameters
    ----------
    run
        Random name of the run.
    sorts
        Whether labels are classes.
    hides
        Whether the cipher hides anything: then all parties are told who takes part.
    shares
        Whether training is on shares alone: parties insist on less then.
    classes
        The class values, where the config names them.
    confirmed
        What looks like the same in other words and is meant to be different: "labels", "levels".
    """
    asked = AnnounceRequest(run=run, parties=len(channel.parties), classes=sorts, shares=shares)
    replies = channel.ask(ANNOUNCE, dict.fromkeys(channel.parties, asked)).insist("starting")
    check_secrets({party: reply.keys.mark for party, reply in replies.items()})
    _check_rosters(replies)
    terms = [_terms(party, reply) for party, reply in replies.items()]
    agreed = company = None
    if hides:
        cards = [replies[party].keys.card(party) for party in channel.parties]
        company = Everyone(keys=b"".join(cards))
    if sorts:
        named = None if classes is None else np.array(classes)
        agreed = _collected(channel, company, named, "labels" in confirmed)
        _check_classes(agreed.values)
    if any(reply.declares for reply in replies.values()):
        agree_on_columns(channel, company, confirmed="levels" in confirmed)
    holders = _common([reply.holders for reply in replies.values()])
    if holders is not None:
        holders = tuple(name for name in holders if name in channel.parties)[:_HOLDERS]
    return Announced(
        terms=reduce(Terms.stricter, terms),
        recipients=_common([reply.recipients for reply in replies.values()]),
        holders=holders,
        solvers=_common([reply.solvers for reply in replies.values()]),
        agreed=agreed,
        replies=replies,
    )


def _terms(party: str, reply: AnnounceReply) -> Terms:
    try:
        return msgspec.json.decode(reply.terms, type=prepared(Terms))
    except msgspec.MsgspecError:
        raise ProtocolError(
            f"party {party} announced terms that this version does not know; update both sides"
        ) from None


def _check_rosters(replies: Mapping[str, AnnounceReply]) -> None:
    """All parties that have a roster must have the same."""
    found = {p: reply.roster for p, reply in replies.items() if reply.roster is not None}
    first = next(iter(found), "")
    for party, fingerprint in found.items():
        if fingerprint != found[first]:
            raise ProtocolError(
                f"parties {first} and {party} have different rosters ({found[first]} and "
                f"{fingerprint}); let both use the one that all members signed last"
            )


def _common(lists: Sequence[Names | None]) -> tuple[str, ...] | None:
    return in_all_lists(None if names is None else names.tolist() for names in lists)


def _collected(
    channel: Channel, company: Everyone | None, named: Classes | None, confirmed: bool
) -> AgreedClasses:
    """The first party joins the lists of all; in an order that tells nothing."""
    asked = dict.fromkeys(channel.parties, ListRequest(company=company))
    replies = channel.ask(LIST_CLASSES, asked).insist("collecting the classes")
    boxes = [reply.classes for reply in replies.values()]
    message = ClassesRequest(boxes=Boxes.of(sorted(boxes)), named=named, confirmed=confirmed)
    joiner = channel.parties[0]
    told = channel.ask(JOIN_CLASSES, {joiner: message}).insist("collecting the classes")
    return told[joiner].classes


def _check_classes(classes: Classes) -> None:
    if not len(classes):
        raise DataError(
            "there is no label at any party: name the label column of at least one of them, or "
            "fill in the column that is named"
        )
    if len(classes) < 2:
        raise DataError(
            f"the label column holds only the label {classes.tolist()[0]!r}, but classification "
            "needs two classes; check the label column, or use a regression loss such as 'squared'"
        )
