"""A party's side of announcements: its terms for all to read, its classes for the parties alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.crypto.secret_bytes import Secret
from weft.errors import ProtocolError
from weft.federation.label_wording_mismatches import check_vocabularies
from weft.federation.messages import (
    ANNOUNCE,
    JOIN_CLASSES,
    LIST_CLASSES,
    AnnounceReply,
    AnnounceRequest,
    ClassesReply,
    ClassesRequest,
    ListReply,
    ListRequest,
    Names,
)
from weft.matching.authenticated_class_list import AgreedClasses, Classes
from weft.matching.class_labels import (
    NONCE,
    common_classes,
    lock_classes,
    named_classes,
    open_lists,
)
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import Answer, answer, answers


class AnnouncingParty:
    """Answers what comes before everything else.

    Parameters
    ----------
    labels
        All labels that it has.
    on_shares
        Told where training is to be on shares alone; None: it never is.
    declares
        Whether it has columns that are not numbers yet.
    """

    def __init__(
        self,
        name: str,
        consent: Consent,
        keyring: Keyring,
        draws: RandomnessLog,
        *,
        labels: Callable[[], Sequence[NDArray[Any]]],
        on_shares: Callable[[], None] | None = None,
        declares: bool = False,
    ) -> None:
        self._name = name
        self._consent = consent
        self._keyring = keyring
        self._draws = draws
        self._labels = labels
        self._declares = declares
        self._on_shares, self._shares = on_shares, False
        #: How many take part, as it was told.
        self._parties = 0
        #: Whether labels are classes.
        self._sorts = False
        #: Its own list of classes, until the lists are joined.
        self._listed, self._has_listed = b"", False

    def answers(self) -> dict[str, Answer]:
        return answers(
            answer(ANNOUNCE, self._announce),
            answer(LIST_CLASSES, self._list),
            answer(JOIN_CLASSES, self._join),
        )

    def check_parties(self, parties: int) -> None:
        """Refuse to be told of other numbers of parties later."""
        if self._parties not in (0, parties):
            raise ProtocolError(
                f"party {self._name} was told of {self._parties} parties first, and of "
                f"{parties} now; stop this run"
            )

    def _announce(self, message: AnnounceRequest) -> AnnounceReply:
        """On which terms it takes part, and what it has drawn for the run."""
        if self._parties:
            # Lists of classes are joined once, which a second beginning would undo.
            raise ProtocolError(f"party {self._name} has announced itself in this run already")
        if message.shares:
            if self._on_shares is None:
                raise ProtocolError(f"party {self._name} knows no such training on shares")
            self._on_shares()
        consent, name = self._consent, message.run
        roster = consent.roster
        reply = AnnounceReply(
            keys=self._keyring.announce(name),
            terms=msgspec.json.encode(consent.terms).decode(),
            declares=self._declares,
            roster=None if roster is None else roster.fingerprint,
            recipients=_names(consent.recipients),
            holders=_names(consent.key_holders),
            solvers=_names(consent.solvers),
        )
        self._parties = message.parties
        self._sorts, self._shares = message.classes, message.shares
        return reply

    def _list(self, message: ListRequest) -> ListReply:
        """Its classes, for the other parties alone, in this run and no other."""
        if not self._sorts or self._has_listed:
            raise ProtocolError(f"party {self._name} lists its classes once in a run")
        self._has_listed = True
        self._keyring.take_company(message.company, self._parties)
        nonce = self._draws.random("classes", NONCE)
        self._listed = lock_classes(self._labels(), self._list_key(), nonce)
        return ListReply(classes=self._listed)

    def _list_key(self) -> Secret:
        return self._keyring.bound_secret("weft classes")

    def _tag_key(self) -> Secret:
        return self._keyring.bound_secret("weft agreed classes")

    def _join(self, message: ClassesRequest) -> ClassesReply:
        """Join the lists of all parties, of which it cannot tell whose they are.

        Once, and none left out: else a coordinator could have each party's list joined alone.
        """
        boxes, own, self._listed = message.boxes.cut(), self._listed, b""
        if not own or own not in boxes or len(boxes) != self._parties:
            raise ProtocolError(
                f"party {self._name} joins the lists of classes of all parties once in a run, "
                "together with its own"
            )
        lists = open_lists(boxes, self._list_key())
        # On shares, losses are totals of the run; classes are those of the model either way.
        if lists and not self._shares:
            self._consent.check_labels(len(lists), self._parties)
        classes = common_classes(lists)
        if message.named is not None:
            classes = named_classes(message.named, classes)
        elif not message.confirmed:
            check_vocabularies(lists)
        return ClassesReply(classes=AgreedClasses.of(classes, self._tag_key()))

    def agreed(self, told: AgreedClasses | None) -> Classes | None:
        """The classes of this run as its parties agreed on them; None: labels are numbers."""
        if (told is not None) != self._sorts:
            raise ProtocolError(
                f"party {self._name} was told first that labels are classes and then that they are "
                "numbers, or the other way round; stop this run"
            )
        return None if told is None else told.taken(self._tag_key())


def _names(names: Sequence[str] | None) -> Names | None:
    return None if names is None else np.array(names, dtype=str)
