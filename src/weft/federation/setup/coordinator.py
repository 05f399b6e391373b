"""The coordinator's side of announcements: terms, rosters and classes before anything else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.errors import DataError, ProtocolError
from weft.guards.terms import Terms
from weft.matching.coordinator import check_secrets
from weft.protocol import Channel, Message
from weft.protocol.message import array, binary, text


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
        Who holds a key for matching, in their order; None: there is no roster.
    classes
        The class values, None for a regression.
    replies
        All that the parties said.
    """

    terms: Terms
    recipients: tuple[str, ...] | None
    holders: tuple[str, ...] | None
    classes: NDArray[Any] | None
    replies: Mapping[str, Message]

    @property
    def width(self) -> int:
        """Weights per feature."""
        return 1 if self.classes is None or len(self.classes) == 2 else len(self.classes)


def announce(
    channel: Channel, run: bytes, *, collect: bool, classes: Sequence[Any] | None = None
) -> Announced:
    """Let every party say on which terms it takes part, and collect the classes.

    Parameters
    ----------
    run
        Random name of the run.
    collect
        Whether labels are classes that the parties must collect.
    classes
        The class values, where they are known.
    """
    asked: Message = {"run": run, "parties": len(channel.parties)}
    if collect:
        asked["classes"] = True
    replies = channel.ask("announce", {p: dict(asked) for p in channel.parties}).insist("starting")
    check_secrets(replies)
    _check_rosters(replies)
    terms = [_terms(party, reply) for party, reply in replies.items()]
    found = None if classes is None else np.array(classes)
    if collect:
        found = _collected(channel, replies)
    if found is not None:
        _check_classes(found)
    return Announced(
        terms=reduce(Terms.stricter, terms),
        recipients=_common(replies, "recipients"),
        holders=_common(replies, "holders"),
        classes=found,
        replies=replies,
    )


def _terms(party: str, reply: Message) -> Terms:
    try:
        return msgspec.json.decode(text(reply, "terms"), type=Terms)
    except msgspec.MsgspecError:
        raise ProtocolError(
            f"party {party} announced terms that this version does not know; update both sides"
        ) from None


def _check_rosters(replies: Mapping[str, Message]) -> None:
    """All parties that have a roster must have the same."""
    found = {party: text(reply, "roster") for party, reply in replies.items() if "roster" in reply}
    first = next(iter(found), "")
    for party, fingerprint in found.items():
        if fingerprint != found[first]:
            raise ProtocolError(
                f"parties {first} and {party} have different rosters ({found[first]} and "
                f"{fingerprint}); let both use the one that all members signed last"
            )


def _common(replies: Mapping[str, Message], field: str) -> tuple[str, ...] | None:
    """Names that all parties list which list any, in the order of the first."""
    listed = [array(reply, field).tolist() for reply in replies.values() if field in reply]
    if not listed:
        return None
    return tuple(name for name in listed[0] if all(name in names for names in listed))


def _collected(channel: Channel, replies: Mapping[str, Message]) -> NDArray[Any]:
    """One party with labels joins the lists of all; in an order that tells nothing."""
    boxes = {party: binary(r, "classes") for party, r in replies.items() if "classes" in r}
    if not boxes:
        raise DataError("no party has labels; name the label column of at least one of them")
    mixed = sorted(boxes.values())
    message: Message = {
        "boxes": b"".join(mixed),
        "boxes.lengths": np.array([len(box) for box in mixed], np.int64),
    }
    joiner = next(iter(boxes))
    told = channel.ask("classes", {joiner: message}).insist("collecting the classes")
    return array(told[joiner], "classes")


def _check_classes(classes: NDArray[Any]) -> None:
    if len(classes) < 2:
        only = f"only the label {classes.tolist()[0]!r}" if len(classes) else "no label"
        raise DataError(
            f"the label column holds {only}, but classification needs two classes; "
            "check the label column, or use a regression loss such as 'squared'"
        )
