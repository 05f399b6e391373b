"""Which terms a party insists on in a run, and when.

In any run it judges its view of the holdings by them; by fewer of them where training was announced
to be on shares alone. Terms about pairs and lone labels protect sums that somebody opens. On shares
nobody opens a sum over samples or features, and scalars are totals of the whole run, so that terms
need not allow them. What scaling opens before training is as in every run: whoever holds a column
with others gets its totals. So terms are insisted on there, and for all of it if training turns out
to be no such one. The model is a sum over samples all the same, and its readers take off what they
know: so ``min_batch`` holds for all samples, whoever holds their columns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.errors import ConfigError, ProtocolError
from weft.federation.messages import COUNT_CLASSES
from weft.matching.party_view import PartyView
from weft.privacy.agreement.party_consent_checks import Consent
from weft.protocol import Phase
from weft.protocol.declared_message_fields import malformed
from weft.sums.table_scaling_and_certificate_messages import (
    COLUMN_SPREAD,
    COLUMN_SUMS,
    EXTREMES,
    LONGEST_ROW,
    ROW_NORMS,
)

#: Open totals over the holders of a column, and over those of a sample.
_COLUMN_PHASES = (EXTREMES.name, COLUMN_SUMS.name, COLUMN_SPREAD.name)
_ROW_PHASES = (ROW_NORMS.name, LONGEST_ROW.name)


class InsistedTerms:
    """What a party insists on in a run.

    Attributes
    ----------
    announced
        Whether training is to be on shares alone.
    """

    def __init__(self, consent: Consent, keyring: Keyring) -> None:
        self._consent, self._keyring = consent, keyring
        self.announced = False

    @property
    def opens_no_sum(self) -> bool:
        """Whether nobody opens a sum over samples or features."""
        return self.announced

    def take(self) -> None:
        """The run is announced to be on shares."""
        self.announced = True
        self._keyring.few_scalars(True)

    def check_view(self, view: PartyView) -> None:
        """Refuse a place among the holdings that terms do not allow, in any run."""
        if self.announced and view.min_batch > 1 and not view.exposed.all():
            raise malformed("exposed", "is not every group, though a model tells of all of them")
        self._consent.check_seat(view, sealed=self.opens_no_sum)
        if not self.tells_counts(view) and view.labelled.any():
            self._insist_on_own_min_batch(view)

    def _insist_on_own_min_batch(self, view: PartyView) -> None:
        """Judge one's classes by one's own terms alone, before a label is looked at.

        Whoever could ask for several would learn from what is refused how large they are.
        """
        own, name = self._consent.own_terms.min_batch, self._consent.name
        if view.min_batch != own:
            raise ConfigError(
                f"party {name} refuses min_batch = {view.min_batch}: it alone has labels, and "
                f"judges its classes by min_batch = {own} of its own terms; agree on that for all "
                "parties, or on allow_lone_labels = true"
            )

    def tells_counts(self, view: PartyView) -> bool:
        """Whether the coordinator may read how many samples there are of some classes.

        It gets totals over all label holders: where one is alone, sizes of that party's classes.
        """
        if not self.opens_no_sum or view.label_parties > 1 or self._consent.alone(view.n_parties):
            return True
        return self._consent.terms.allows_scalars(1)

    def before(self, phase: Phase[Any, Any], view: Callable[[], PartyView]) -> None:
        """Insist on terms before a phase that opens sums, where training is on shares."""
        if phase.name in _ROW_PHASES:
            self._consent.check_seat(view())
        elif phase.name in _COLUMN_PHASES and view().shares_columns:
            self._consent.check_scaling(view())
        elif phase.name == COUNT_CLASSES.name:
            self._check_counts(view())

    def _check_counts(self, view: PartyView) -> None:
        """Object to telling the coordinator the sizes of one's own classes."""
        if view.labelled.any() and not self.tells_counts(view):
            raise ConfigError(
                f"party {self._consent.name} refuses class_weight = 'balanced', being the only one "
                "with labels: the coordinator would learn how many samples each class has; leave "
                "it out, or agree on allow_lone_labels = true"
            )

    def start(self, view: PartyView, *, shares: bool) -> None:
        """Training begins; in sums after all, terms hold as in any run."""
        if shares and not self.announced:
            raise ProtocolError(
                "training is to be on shares, which was not announced; stop this run"
            )
        if shares or not self.announced:
            return
        self.announced = False
        self._keyring.few_scalars(False)
        self._consent.check_labels(view.label_parties, view.n_parties)
        self._consent.check_seat(view)


class DescriptionTerms(InsistedTerms):
    """What a party insists on where columns are described: on shares or not, no sum is opened.

    Which scalars go into sums over how many parties it decides by itself, column by column.
    """

    def __init__(self, consent: Consent, keyring: Keyring) -> None:
        super().__init__(consent, keyring)
        keyring.few_scalars(True)

    @property
    def opens_no_sum(self) -> bool:
        return True
