"""A party's place among the holdings: its view of them, and what it leaves out as too rare."""

from __future__ import annotations

import numpy as np

from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.errors import DataError, ProtocolError
from weft.federation.leave_out_rare_classes_and_columns import RareParty
from weft.federation.messages import LEAVE_OUT, RARE, LeaveReply, LeaveRequest
from weft.federation.participation_terms_and_classes.party import AnnouncingParty
from weft.federation.party_privacy_ledger import PartyLedger
from weft.federation.terms_enforced_by_phase import InsistedTerms
from weft.federation.training_data import TrainingData
from weft.federation.unit_mismatches_party import UnitsParty
from weft.federation.weight_and_offset_letters.party import WeightsAndOffsets
from weft.matching.messages import VIEW, ViewReply, ViewRequest
from weft.matching.party import MatchingParty
from weft.matching.party_view import PartyView
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.sum_booking import count_sums
from weft.protocol import Answer, answer, answers
from weft.sums.count_sums_shown_to_party import SumCounter


class PartyHoldings:
    """Takes the view that the coordinator tells, if the party agrees to it.

    Parameters
    ----------
    by_site
        Whether sites have an intercept of their own.

    Attributes
    ----------
    sum_counter
        The sums over samples that it has opened and shown in this run.
    """

    def __init__(
        self,
        data: TrainingData,
        consent: Consent,
        keyring: Keyring,
        matching: MatchingParty,
        announcing: AnnouncingParty,
        insisted: InsistedTerms,
        told: WeightsAndOffsets,
        units: UnitsParty,
        ledger: PartyLedger,
        *,
        by_site: bool,
    ) -> None:
        self._data, self._consent, self._name = data, consent, consent.name
        self._cipher: Cipher = keyring.cipher
        self._matching, self._announcing, self._insisted = matching, announcing, insisted
        self._told, self._units, self._ledger = told, units, ledger
        self._by_site = by_site
        self.sum_counter = SumCounter(np.zeros(0, bool))
        self._rare = RareParty(
            lambda: matching.view,
            lambda: data.class_numbers(matching.view),
            keyring.cipher,
            keyring.facts_key,
            insisted.tells_counts,
        )
        #: Its view without samples that are too rare; None: nothing was left out yet.
        self._trimmed: PartyView | None = None

    def answers(self) -> dict[str, Answer]:
        return answers(
            answer(VIEW, self._take_view),
            answer(RARE, self._rare.find),
            answer(LEAVE_OUT, self._leave_out),
        )

    @property
    def view(self) -> PartyView:
        return self._matching.view if self._trimmed is None else self._trimmed

    @property
    def settled_view(self) -> PartyView:
        """Its view, once everything rare is left out."""
        if self._trimmed is None and _guarded(self.view):
            raise ProtocolError(
                f"party {self._name} was not asked what is too rare to be trained on; that comes "
                "before sums"
            )
        return self.view

    def _take_view(self, message: ViewRequest) -> ViewReply:
        if self._matching.seated:
            # Guards and counts of sums begin with a view.
            raise ProtocolError(f"party {self._name} has taken its view in this run already")
        self._data.bias = message.bias_value
        view = self._matching.sit(message)
        self._announcing.check_parties(view.n_parties)
        self._insisted.check_view(view)
        if self._by_site:
            self._check_sites(view)
        self._told.look_at_own(view)
        reply = self._matching.make_seeds(message, alone=self._consent.alone(view.n_parties))
        if message.units:
            reply.units = self._units.tell(view, self._matching.features)
        # Without a ledger, sums that nothing hides need no counting: simulations of thousands.
        if self._ledger.kept or self._cipher.name != "plain":
            self.sum_counter = count_sums(self._cipher, view)
        self._ledger.open(view, self._matching.ids, self.sum_counter)
        if not _guarded(view):
            self._ledger.attend(view, everyone=self._insisted.opens_no_sum)
        return reply

    def _check_sites(self, view: PartyView) -> None:
        """Refuse samples that would be of two sites, and to tell of its own by itself."""
        if self._data.site is not None:
            self._consent.check_site_intercept()
        if (view.computing[view.labelled] > 1).any():
            raise DataError(
                f"party {self._name} has labels of samples that another party has labels of too, "
                "but with reference_site a sample is of one site; leave the label out at all "
                "parties but one",
                told="two parties have labels of the same samples, but with reference_site a "
                "sample is of one site; leave the label out at all parties but one",
            )

    def _leave_out(self, message: LeaveRequest) -> LeaveReply:
        """Leave out what is too rare, before any sum is made of it."""
        if self._trimmed is not None:
            raise ProtocolError(f"party {self._name} has left out what is rare already")
        view = self._trimmed = self._rare.take(message)
        cells = 0
        if _guarded(view):
            self._ledger.attend(view, everyone=self._insisted.opens_no_sum)
            cells = self._data.leave_out_columns()
        return self._rare.tell(message, cells)


def _guarded(view: PartyView) -> bool:
    """Whether others see sums, or a model, from which something rare must be left out."""
    return view.min_batch > 1 and bool(view.exposed.any())
