"""Which terms a party insists on in a run that was announced to be on shares alone.

Terms about pairs, lone labels and small groups protect sums that somebody opens. On shares nobody
opens a sum over samples or features, and scalars are totals of the whole run, so that terms need
not allow them. What scaling opens before training is as in every run: whoever holds a column with
others gets its totals. So terms are insisted on there, and for all of it if training turns out to
be no such one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.crypto.party_run_keys import Keyring
from weft.matching.party_view import PartyView
from weft.privacy.agreement.consent import Consent
from weft.protocol import Phase
from weft.sums.messages import COLUMN_SPREAD, COLUMN_SUMS, EXTREMES, LONGEST_ROW, ROW_NORMS

#: Open totals over the holders of a column, and over those of a sample.
_COLUMN_PHASES = (EXTREMES.name, COLUMN_SUMS.name, COLUMN_SPREAD.name)
_ROW_PHASES = (ROW_NORMS.name, LONGEST_ROW.name)


class SealedSeat:
    """What a party insists on.

    Attributes
    ----------
    announced
        Whether training is to be on shares alone.
    opens
        Whether sums were asked for nevertheless: then what is rare must have been left out.
    """

    def __init__(self, consent: Consent, keyring: Keyring) -> None:
        self._consent, self._keyring = consent, keyring
        self.announced = self.opens = False

    def take(self) -> None:
        """The run is announced to be on shares."""
        self.announced = True
        self._keyring.few_scalars(True)

    def check_view(self, view: PartyView) -> None:
        self._consent.check_seat(view, sealed=self.announced)

    def before(self, phase: Phase[Any, Any], view: Callable[[], PartyView]) -> None:
        """Insist on terms before a phase that opens sums."""
        if not self.announced:
            return
        if phase.name in _ROW_PHASES:
            self._consent.check_seat(view())
            self.opens = True
        elif phase.name in _COLUMN_PHASES and view().shares_columns:
            self._consent.check_scaling(view())
            self.opens = True

    def leave(self, view: PartyView) -> None:
        """Training is in sums after all: terms hold as in any run."""
        self.announced = False
        self._keyring.few_scalars(False)
        self._consent.check_labels(view.label_parties, view.n_parties)
        self._consent.check_seat(view)
