"""A party's side of announcements: its terms for all to read, its classes for the parties alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.crypto.keyring import Keyring
from weft.crypto.replay_log import RandomnessLog
from weft.errors import ProtocolError
from weft.federation.messages import (
    ANNOUNCE,
    JOIN_CLASSES,
    AnnounceReply,
    AnnounceRequest,
    ClassesReply,
    ClassesRequest,
    Names,
)
from weft.matching.agreed_classes import AgreedClasses, Classes
from weft.matching.class_labels import NONCE, join_classes, lock_classes, named_classes
from weft.privacy.agreement.consent import Consent
from weft.protocol import Answer, answer, answers


class AnnouncingParty:
    """Answers what comes before everything else.

    Parameters
    ----------
    labels
        All labels that it has.
    """

    def __init__(
        self,
        name: str,
        consent: Consent,
        keyring: Keyring,
        draws: RandomnessLog,
        *,
        labels: Callable[[], Sequence[NDArray[Any]]],
    ) -> None:
        self._name = name
        self._consent = consent
        self._keyring = keyring
        self._draws = draws
        self._labels = labels
        #: How many take part, as it was told.
        self._parties = 0
        #: The run's name, and whether its labels are classes.
        self._run, self._sorts = b"", False
        #: Its own list of classes, until the lists are joined.
        self._listed = b""

    def answers(self) -> dict[str, Answer]:
        return answers(answer(ANNOUNCE, self._announce), answer(JOIN_CLASSES, self._join))

    def check_parties(self, parties: int) -> None:
        """Refuse to be told of other numbers of parties later."""
        if self._parties not in (0, parties):
            raise ProtocolError(
                f"party {self._name} was told of {self._parties} parties first, and of "
                f"{parties} now; stop this run"
            )

    def _announce(self, message: AnnounceRequest) -> AnnounceReply:
        """On which terms it takes part, and its classes, for the other parties alone."""
        if self._parties:
            # Lists of classes are joined once, which a second beginning would undo.
            raise ProtocolError(f"party {self._name} has announced itself in this run already")
        consent, name = self._consent, message.run
        roster = consent.roster
        reply = AnnounceReply(
            mark=self._keyring.mark(name),
            terms=msgspec.json.encode(consent.terms).decode(),
            roster=None if roster is None else roster.fingerprint,
            recipients=_names(consent.recipients),
            holders=_names(consent.key_holders),
        )
        self._parties = message.parties
        self._run, self._sorts = name, message.classes
        if message.classes:
            nonce = self._draws.random("classes", NONCE)
            reply.classes = lock_classes(self._labels(), self._keyring.run_secret, name, nonce)
            self._listed = reply.classes
        return reply

    def _join(self, message: ClassesRequest) -> ClassesReply:
        """Join the lists of all parties, of which it cannot tell whose they are.

        Once, and none left out: else a coordinator could have each party's list joined alone.
        """
        boxes, own, self._listed = message.boxes.cut(), self._listed, b""
        if own not in boxes or len(boxes) != self._parties:
            raise ProtocolError(
                f"party {self._name} joins the lists of classes of all parties once in a run, "
                "together with its own"
            )
        secret = self._keyring.run_secret
        classes, labelled = join_classes(boxes, secret, self._run)
        if labelled:
            self._consent.check_labels(labelled, self._parties)
        if message.named is not None:
            classes = named_classes(message.named, classes)
        return ClassesReply(classes=AgreedClasses.of(classes, secret, self._run))

    def agreed(self, told: AgreedClasses | None) -> Classes | None:
        """The classes of this run as its parties agreed on them; None: labels are numbers."""
        if (told is not None) != self._sorts:
            raise ProtocolError(
                f"party {self._name} was told first that labels are classes and then that they are "
                "numbers, or the other way round; stop this run"
            )
        return None if told is None else told.taken(self._keyring.run_secret, self._run)


def _names(names: Sequence[str] | None) -> Names | None:
    return None if names is None else np.array(names, dtype=str)
