"""A party's ledger in one run: every booking, and none of them where it keeps no ledger."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.data.columns.column_agreement import rules_of
from weft.data.columns.column_rules import PLAIN
from weft.data.columns.table_transformation import Transformation
from weft.data.tile import Tile
from weft.errors import ConfigError
from weft.federation.preprocessing_settings import SampleColumns
from weft.guards.model_noise_size import ModelNoise
from weft.guards.score_buckets import EarlierCounts
from weft.matching.party_view import PartyView
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.earlier_samples import Attendance, attendance
from weft.privacy.ledger.earlier_sealed_models_and_moments import NumberKind
from weft.privacy.ledger.fold_cuts_of_earlier_runs import FoldCut
from weft.privacy.ledger.ledger_contents import Kind
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.secret_sharing.coalition_knowledge import Told
from weft.sums.count_sums_shown_to_party import SumCounter

#: Stands among rules of columns for how the cells of all are kept.
_STORAGE = "(storage)"


class PartyLedger:
    """Books what a run tells of a party's samples, before it is told.

    Parameters
    ----------
    ledger
        Where it keeps count; None: nowhere, and nothing is ever refused by earlier runs.
    kind
        What it calls the run.
    tiles, beside
        What it holds, as its files have it, and which columns are about samples.

    Attributes
    ----------
    kept
        Whether there is a ledger.
    transformation
        How its columns became numbers, so far as that is agreed on.
    """

    def __init__(
        self,
        ledger: Ledger | None,
        kind: Kind,
        consent: Consent,
        draws: RandomnessLog,
        tiles: Sequence[Tile],
        beside: SampleColumns | None,
        transformation: Transformation,
    ) -> None:
        self._consent = consent
        self._tiles, self._beside = tuple(tiles), beside
        self.kept, self.transformation = ledger is not None, transformation
        self._account = None
        if ledger is not None:
            self._account = ledger.account(consent.name, kind, consent.terms, draws)

    def open(
        self, view: PartyView, ids: Sequence[NDArray[np.object_]], sum_counter: SumCounter
    ) -> None:
        if self._account is not None:
            self._account.open(view, ids, sum_counter)

    def close(self) -> None:
        """The run is over: what was booked ahead becomes what there was."""
        if self._account is not None:
            self._account.close()

    # ── who takes part ────────────────────────────────────────────────────────────────────

    def attendance(self, view: PartyView, *, everyone: bool) -> Attendance | None:
        """Who takes part under a view; ``everyone``: on shares."""
        rules = dict.fromkeys(rules_of(self._tiles), b"")
        if self._beside is not None:
            places = self._beside.columns.items()
            rules |= {name: place.encode() for place, name in places if name in rules}
        for column in self.transformation.columns:
            if column.rule != PLAIN:
                rules[column.name] = msgspec.json.encode(column, order="sorted")
        # Rounding moves nearly every cell: among so many changes nobody would notice a few.
        rules[_STORAGE] = b"float32" if self._in_single_precision() else b""
        return attendance(view, self._tiles, rules, everyone=everyone)

    def _in_single_precision(self) -> bool:
        """Whether its tables are kept so; sparse ones never are."""
        found = {t.block.dtype == np.float32 for t in self._tiles if not t.is_sparse}
        if len(found) > 1:
            raise ConfigError(
                f"party {self._consent.name} keeps one table in single precision and another with "
                "all digits; keep both one way, for its ledger to compare runs"
            )
        return True in found

    def attend(self, view: PartyView, *, everyone: bool) -> None:
        """Object to who takes part."""
        if self._account is not None:
            who = self.attendance(view, everyone=everyone)
            self._account.attend(who, self._consent.check_change)

    def attend_scores(self, view: PartyView) -> None:
        """Object to of whom held-out scores are counted."""
        if self._account is not None:
            who = self.attendance(view, everyone=True)
            self._account.attend_scores(who, self._consent.check_change)

    def note_attendance(self) -> None:
        if self._account is not None:
            self._account.note_attendance()

    # ── before training ───────────────────────────────────────────────────────────────────

    def foresee(self, solver: str, likely_sums: Callable[[], int]) -> None:
        """Object to as many sums as a run is likely to show."""
        if self._account is not None:
            self._account.solver = solver
            self._account.foresee(likely_sums())

    def foresee_numbers(self, kind: NumberKind, told: Told, hessian: bool = False) -> None:
        """Object to what a model or second moments tell."""
        if self._account is not None:
            self._account.foresee_numbers(kind, told, hessian=hessian)

    def check_budget(self, noise: ModelNoise) -> None:
        if self._account is not None:
            self._account.check_budget(noise, self._consent.budget)

    def note_folds(self, cut: FoldCut) -> None:
        if self._account is not None and len(cut.ids):
            self._account.note_folds(cut, self._consent.check_folds)

    def judge_folds(self, folds: int, judge: Callable[[], None]) -> None:
        """Judge folds of classes that are this party's alone; it is remembered how that ended."""
        if self._account is None:
            judge()
        else:
            self._account.judge_folds(folds, judge)

    def judge_responses(self, counted: Ints, judge: Callable[[], None]) -> None:
        """Judge responses of local rows; after a refusal those of no others."""
        if self._account is None:
            judge()
        else:
            known = np.concatenate([tile.ids[tile.labelled] for tile in self._tiles])
            self._account.judge_responses(counted, known, judge)

    # ── before something is told ──────────────────────────────────────────────────────────

    def spend_rho(self, rho: float) -> None:
        """Book what feature sums with noise tell."""
        if self._account is not None:
            self._account.spend_rho(rho, self._consent.sum_budget)

    def spend(self, noise: ModelNoise) -> None:
        """Book the budget of a model with noise."""
        if self._account is not None:
            self._account.spend(noise, self._consent.budget)

    def note_told(self, columns: tuple[str, ...], samples: int) -> None:
        """Book which columns others are told cell by cell."""
        if self._account is not None:
            self._account.note_told(columns, samples)

    def note_model(self) -> None:
        if self._account is not None:
            self._account.note_model()

    def note_moments(self, names: tuple[str, ...]) -> None:
        if self._account is not None:
            self._account.note_moments(names)

    def note_scores(
        self,
        names: NDArray[np.object_],
        starts: Ints,
        levels: Ints,
        choose: Callable[[Sequence[EarlierCounts]], Ints],
    ) -> Ints:
        """Choose buckets of held-out scores, so that they keep apart from earlier ones."""
        if self._account is None or not len(names):
            return choose(())
        alone = self._consent.terms.allow_small_changes
        return self._account.note_scores(names, starts, levels, choose, alone=alone)

    def note_edges(
        self, cut: Callable[[Callable[[str], Floats]], dict[str, Floats]], *, some: bool
    ) -> dict[str, Floats]:
        """Cut columns, so that their edges keep apart from earlier ones; ``some``: if any."""
        if self._account is None or not some:
            return cut(lambda _: np.zeros(0))
        return self._account.note_edges(cut, alone=self._consent.terms.allow_small_changes)
