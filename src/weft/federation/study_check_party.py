"""A party that a study is checked with: it is matched, and takes part in no sum."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Any, ClassVar

import numpy as np

from weft.errors import ConfigError, ProtocolError
from weft.federation.party import Party
from weft.federation.party_training_start_and_release import tells_of_all
from weft.federation.study_check_messages import (
    CHECK_FILES,
    CHECK_VIEW,
    CheckedViewReply,
    CheckedViewRequest,
    FilesReply,
    Names,
)
from weft.matching.messages import ViewRequest
from weft.matching.party_view import PartyView
from weft.privacy.ledger.earlier_sealed_models_and_moments import (
    refuse_further_numbers,
    refuse_second_weighting,
)
from weft.privacy.ledger.expected_exposure import forecast, sums_too_many
from weft.privacy.ledger.run_booking import Ledger
from weft.privacy.ledger.sum_booking import spent_before
from weft.protocol import Nothing, answer, answers
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coalition_knowledge import Told
from weft.solvers.secret_sharing.label_telling_model_guard import known_from_view, refuse_wide
from weft.solvers.secret_sharing.second_moment_guard import matrices_of, numbers_told
from weft.solvers.secret_sharing.supported_losses import ALIKE

#: What of a run is asked of it: everything up to tokens.
_BEFORE_SUMS = ("announce", "classes", "columns.", "match.hello", "match.ask", "match.evaluate")
#: Beside them tokens, and what its owner is told of columns that do not fit another's.
_LATER = ("match.tokens", "match.similar", "match.units")


class CheckParty(Party):
    """A party that says what it would refuse; it gets no key of a sum, and nothing is booked.

    Parameters
    ----------
    earlier
        Its ledger, which is only read.
    notes
        What it found in its files, in words for others.
    listed
        Classes that the study makes of labels. They are listed whether or not there are samples of
        them: a submitter could ask about one label after the other.
    """

    #: It gets no model.
    saved_models: ClassVar = {}

    def __init__(
        self,
        *given: Any,
        earlier: Ledger,
        notes: Sequence[str] = (),
        listed: tuple[float, ...] = (),
        **more: Any,
    ) -> None:
        super().__init__(*given, **more, signs_transcript=False)
        self.data.listed = listed
        self._earlier, self._notes = earlier, _texts(notes)
        known = self._phases
        self._phases = {
            **{name: found for name, found in known.items() if name.startswith(_BEFORE_SUMS)},
            **{name: known[name] for name in _LATER},
            **answers(answer(CHECK_FILES, self._tell_files), answer(CHECK_VIEW, self._look)),
        }

    @property
    def exposure(self) -> str:
        return "nothing, since the study was only looked at"

    def _tell_files(self, _: Nothing) -> FilesReply:
        return FilesReply(notes=self._notes)

    def _look(self, message: CheckedViewRequest) -> CheckedViewReply:
        if self._matching.seated:
            raise ProtocolError(f"party {self.name} has looked at its view already")
        view = self._matching.sit(ViewRequest(view=message.view, bias_value=message.bias_value))
        self._announcing.check_parties(view.n_parties)
        settings = Settings.from_json(message.settings)
        ahead = forecast(
            settings,
            classes=message.classes,
            mean_square=message.mean_square,
            unit_rows=message.unit_rows,
        )
        found = []
        for check in self._checks(view, settings, message, ahead.likely):
            try:
                check()
            except ConfigError as error:
                found.append(error.told)
        units = self._units.tell(view, self._matching.features) if message.units else None
        return CheckedViewReply(objections=_texts(dict.fromkeys(found)), units=units)

    def _checks(
        self, view: PartyView, settings: Settings, told: CheckedViewRequest, likely: int
    ) -> Iterator[Callable[[], None]]:
        """All that can keep it from taking part; ``likely``: sums of the run over each sample."""
        consent = self._consent
        sealed = algorithm_of(settings.solver).shares and not told.unit_rows
        yield partial(consent.check_seat, view, sealed=sealed)
        if sealed and told.scales and view.shares_columns:
            yield partial(consent.check_scaling, view)
        yield partial(consent.check, settings, view)
        if self.data.site is not None:
            yield consent.check_site_intercept
        if not self._terms.allow_told_columns:
            self._told.look_at_own(view)
            yield self._told.insist
        weights = None
        if sealed and not self._terms.allow_exposure:
            weights = known_from_view(view, told.classes)
            yield partial(self._refuse_wide, weights)
        pages = self._earlier.book(self.name).read()
        shown = np.zeros(len(view.shared_rows) - 1, np.int64)
        if pages is not None:
            who = self.ledger.attendance(view, everyone=tells_of_all(settings, view))
            if who is not None:
                yield partial(consent.check_change, partial(pages.change, who))
                if settings.second_moments and not self._terms.allow_exposure:
                    # The columns that it knows of: there may be more.
                    columns = view.n_columns + int(view.foreign.max(initial=0))
                    more = numbers_told(columns, matrices_of(settings, told.classes))
                    rows = np.arange(view.n_rows)
                    moments = Told(((rows, more),), np.full(view.n_rows, more))
                    before = pages.numbers_told("moments", who, view.n_rows)
                    weighed = pages.numbers_told("hessians", who, view.n_rows)
                    weighs = "hessian" in settings.second_moments and settings.loss not in ALIKE
                    yield partial(
                        refuse_second_weighting, self.name, before, weighed, hessian=weighs
                    )
                    yield partial(refuse_further_numbers, self.name, "moments", moments, before)
                if weights is not None:
                    before = pages.numbers_told("models", who, view.n_rows)
                    yield partial(refuse_further_numbers, self.name, "models", weights, before)
            shown = spent_before(pages, view, self._matching.ids)[1]
        yield partial(self._refuse_exposure, view, shown + likely)

    def _refuse_wide(self, weights: Told) -> None:
        try:
            refuse_wide(weights)
        except ConfigError as error:
            raise ConfigError(f"party {self.name} {error}") from None

    def _refuse_exposure(self, view: PartyView, sums: Any) -> None:
        """By the forecast, and with sums of earlier runs."""
        terms = self._terms
        if terms.allow_exposure and terms.most_explained == 1:
            return
        fewest = view.fewest_foreign[: len(view.shared_rows) - 1]
        too_many = sums_too_many(fewest, terms.most_explained)
        if ((fewest > 0) & (sums >= too_many)).any():
            raise ConfigError(
                f"party {self.name} refuses to show another party as many sums about its samples "
                "as that one lacks columns, which this run is likely to come to; choose a way with "
                "fewer sums, or agree on allow_exposure = true"
            )


def _texts(sentences: Any) -> Names:
    return np.array(list(sentences), dtype=str)
