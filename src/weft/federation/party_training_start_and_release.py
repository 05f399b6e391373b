"""A party's training: what it insists on before it starts, and its part of the model after it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, cast

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.data.tile import Tile
from weft.errors import ProtocolError
from weft.federation.evaluation_groups_by_column import evaluation_groups
from weft.federation.messages import ModelSlice, ReleaseRequest, StartRequest
from weft.federation.model import Model
from weft.federation.party_accepts_holdings import PartyHoldings
from weft.federation.party_checkpoints import PartyCheckpoints
from weft.federation.party_privacy_ledger import PartyLedger
from weft.federation.release.noised_weights import NoiseSize, NoisyRelease
from weft.federation.terms_enforced_by_phase import InsistedTerms
from weft.federation.training_data import TrainingData
from weft.federation.weight_and_offset_letters.party import WeightsAndOffsets
from weft.guards.model_noise_size import row_bound
from weft.guards.score_buckets import EarlierCounts
from weft.matching.party import MatchingParty
from weft.matching.party_view import PartyView
from weft.privacy.agreement.party_consent_checks import Consent
from weft.privacy.ledger.expected_exposure import forecast
from weft.protocol import Answer, Nothing, answer, answers, fields_of, pack
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.algorithm_entry import Algorithm
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import (
    FORGET,
    RESTORE,
    SAVE,
    Constants,
    ForgetRequest,
    RestoreRequest,
    SaveRequest,
)
from weft.solvers.solver_interfaces_and_results import InferringHalf, PartyHalf, SharingHalf
from weft.sums.largest_possible_sums import Bounds

if TYPE_CHECKING:
    from weft.federation.release.standard_errors_party import StatisticsGuard, StatisticsParty

#: Bytes that the noise in a model follows from.
SEED_BYTES = 32


def tells_of_all(settings: Settings, view: PartyView) -> bool:
    """Whether a run tells of all its samples, whoever else sees sums of them.

    On shares it does, and so do counts of the held-out scores that it has.
    """
    counts = settings.evaluates and bool(view.counted_rows.any())
    return algorithm_of(settings.solver).shares or counts


class PartyTraining:
    """Makes a party's half of the solver, and its slice of the model.

    Parameters
    ----------
    tiles
        Gives its cells before they were scaled.
    start
        A model to start from; only the weights of its own features are used.
    by_site
        Whether sites have an intercept of their own.

    Attributes
    ----------
    half
        Its half of the solver; None: training has not started.
    settings
        Those of the run, once it has.
    under_way
        Whether it has answered a phase of the solver.
    """

    def __init__(
        self,
        data: TrainingData,
        consent: Consent,
        keyring: Keyring,
        draws: RandomnessLog,
        ledger: PartyLedger,
        insisted: InsistedTerms,
        *,
        holdings: PartyHoldings,
        matching: MatchingParty,
        tiles: Callable[[], Sequence[Tile]],
        checkpoints: PartyCheckpoints,
        start: Model | None,
        by_site: bool,
    ) -> None:
        self._data, self._consent, self._terms = data, consent, consent.terms
        self._keyring, self._cipher, self._draws = keyring, keyring.cipher, draws
        self._ledger, self._insisted = ledger, insisted
        self._holdings, self._matching, self._checkpoints = holdings, matching, checkpoints
        self._tiles, self._model, self._by_site = tiles, start, by_site
        self.half: PartyHalf | None = None
        self.settings: Settings | None = None
        self.under_way = False
        self._noise: NoisyRelease | None = None
        #: Its part in sums for standard errors, and a bound for all parties' ‖x‖².
        self._statistics: StatisticsParty | None = None
        self._longest_row = math.inf

    def answers(self) -> dict[str, Answer]:
        """The phases of checkpoints."""
        return answers(
            answer(SAVE, self._save),
            answer(RESTORE, self._restore),
            answer(FORGET, self._forget),
        )

    # ── before the first step ─────────────────────────────────────────────────────────────

    def start(self, message: StartRequest, told: WeightsAndOffsets) -> PartyHalf:
        """Its half of the solver, unless columns should have been told that were not."""
        name = self._consent.name
        if self.half is not None:
            raise ProtocolError(f"party {name} has started in this run already")
        settings = Settings.from_json(message.settings)
        algorithm = algorithm_of(settings.solver)
        self._insisted.start(self._holdings.view, shares=algorithm.shares)
        view, data = self._holdings.settled_view, self._data
        self._consent.check(settings, view)
        if (settings.make_loss().task != "regression") != (data.classes is not None):
            raise ProtocolError(
                f"party {name} is to train with a loss that does not fit its labels as it was "
                "told of them; stop this run"
            )
        data.check_labels(settings.make_loss())
        told.insist()
        if settings.trained_factors != data.penalties:
            raise ProtocolError(
                f"party {name} was told other penalty factors than those of the run that is "
                "to start; stop this run"
            )
        if settings.noise is not None:
            self._noise = self._model_noise(settings, view)
        sigma = self._sum_sigma(settings, view)
        context = replace(
            self._context(message, settings, algorithm, view, sigma),
            given_by_others=told.from_others,
        )
        self._ledger.foresee(settings.solver, partial(self._likely_sums, settings))
        self._longest_row = message.unit * view.row_holders
        if settings.inference != "none" and not algorithm.shares:
            from weft.federation.release.standard_errors_party import StatisticsGuard

            guard = StatisticsGuard(
                self._consent.least_told(view),
                self._terms.allow_site_statistics,
                partial(self._ledger.foresee_numbers, "moments"),
            )
            self._statistics = self.checked_statistics(settings, guard)
        # In other units, or under other settings, totals would not be sums of the same.
        self._cipher.agree(pack(fields_of(message)))
        self.settings = settings
        self.half = algorithm.party(context, settings)
        return self.half

    def _context(
        self,
        message: StartRequest,
        settings: Settings,
        algorithm: Algorithm,
        view: PartyView,
        sigma: float,
    ) -> PartyContext:
        """What its half of the solver stands on."""
        data, own, ledger = self._data, self._consent.own_terms, self._ledger
        return PartyContext(
            view,
            data.table,
            data.labels(),
            self._cipher,
            Bounds.of(
                settings.make_loss(),
                message.smallest_lam,
                view.row_holders,
                message.unit,
                message.label,
                free_intercept=settings.frees_intercept(data.bias is not None),
                offset=message.offset,
                weight=message.weight * settings.largest_class_weight,
            ),
            contributors=1 if self._terms.allow_pairs else self._terms.min_contributors,
            # On shares, folds are of row numbers, and nobody opens a sum without one.
            folds=None if algorithm.shares else self._folds(settings, view),
            start=None if self._model is None else data.weights_of(self._model),
            bias=data.bias,
            given=data.given(settings),
            offset=message.offset,
            group_levels=evaluation_groups(
                self._consent.name, self._tiles(), view, settings.evaluation.groups
            ),
            draws=self._draws,
            sum_sigma=sigma,
            spend_rho=ledger.spend_rho,
            min_batch=own.min_batch,
            rare_pairs=own.allow_rare_pairs,
            site_statistics=self._terms.allow_site_statistics,
            tells_counts=self._insisted.tells_counts(view),
            wide_models=self._terms.allow_exposure or self._consent.alone(view.n_parties),
            foresee_models=partial(ledger.foresee_numbers, "models"),
            foresee_moments=partial(ledger.foresee_numbers, "moments"),
            book_model=ledger.note_model,
            book_moments=partial(ledger.note_moments, settings.second_moments),
            judge_folds=ledger.judge_folds,
            judge_responses=ledger.judge_responses,
            book_scores=self._book_scores,
            openings=self._keyring.opening_pads() if algorithm.shares else None,
        )

    def checked_statistics(self, settings: Settings, guard: StatisticsGuard) -> StatisticsParty:
        """Its part in sums for standard errors, unless the guard objects to them."""
        # Here and above: few runs tell standard errors.
        from weft.federation.release.standard_errors_party import StatisticsParty

        made = StatisticsParty(
            self._consent.name,
            self._data,
            settings,
            self._cipher,
            guard,
            self._longest_row,
            by_site=self._by_site,
        )
        made.check()
        return made

    def _model_noise(self, settings: Settings, view: PartyView) -> NoisyRelease:
        """Bound the rows, and see to it that there is budget left."""
        noise, data = settings.noise, self._data
        assert noise is not None
        self._ledger.check_budget(noise)
        data.shorten_rows(noise.row_norm)
        size = NoiseSize.of(
            settings,
            samples=view.n_samples,
            classes=data.problems,
            holders=view.row_holders,
            bias=data.bias,
        )
        return NoisyRelease(noise, size, self._consent.name)

    def _sum_sigma(self, settings: Settings, view: PartyView) -> float:
        """Bound the rows; returns the standard deviation of the noise in feature sums."""
        noise = settings.sum_noise
        if noise is None:
            return 0.0
        self._data.shorten_rows(noise.row_norm)
        rows = row_bound(noise.row_norm, view.row_holders, self._data.bias)
        loss = settings.make_loss()
        return noise.sigma(lipschitz=loss.lipschitz, rows=rows, samples=view.n_samples)

    def _book_scores(
        self,
        rows: Ints,
        starts: Ints,
        levels: Ints,
        choose: Callable[[Sequence[EarlierCounts]], Ints],
    ) -> Ints:
        """Choose buckets of held-out scores; with a ledger, so that they keep apart from others."""
        view = self._holdings.view
        names = np.full(view.n_rows, "", dtype=object)
        for own, slots in zip(self._matching.ids, view.tile_rows, strict=True):
            names[slots[slots >= 0]] = own[slots >= 0]
        return self._ledger.note_scores(names[rows], starts, levels, choose)

    def _likely_sums(self, settings: Settings) -> int:
        """Sums that the run will show of a sample, by what this party knows of the table.

        The norm of the rows is that of its own columns, taken to be like those of the others.
        """
        view, squares = self._holdings.view, self._data.table.squares
        columns = max(1, view.n_columns - (view.bias_slot >= 0))
        foreign = float(view.foreign.max(initial=0))
        mean = float(squares.mean()) if len(squares) else 0.0
        ahead = forecast(
            settings,
            classes=self._data.problems,
            mean_square=mean * (columns + foreign) / columns,
        )
        return ahead.likely

    def _folds(self, settings: Settings, view: PartyView) -> NDArray[np.int8] | None:
        """The fold of every row, if the ledger does not object to them; None: there are none."""
        if not settings.folds:
            return None
        folds = self._data.folds(self._matching.ids, settings)
        self._ledger.note_folds(folds.cut)
        if tells_of_all(settings, view):
            self._ledger.attend_scores(view)
        return folds.of_rows

    # ── its part of the model ─────────────────────────────────────────────────────────────

    def slice_of_model(self, message: ReleaseRequest) -> ModelSlice:
        """Its columns of w, or its share of them, with all that was to go with them."""
        half, settings = self.half, self.settings
        if half is None or settings is None:
            raise ProtocolError(f"party {self._consent.name} has not trained; nothing to release")
        if self._noise is not None:
            self._noise.check(message)
        if algorithm_of(settings.solver).shares:
            return self._shared_slice(cast("SharingHalf", half), message, settings)
        weights = half.weights(message.model)
        if self._noise is not None:
            weights = self._noised(self._noise, weights, message)
        slice_ = self._data.slice_of(weights, everything=message.everything)
        if self._statistics is not None and not message.everything:
            self._ledger.note_moments(("hessian",))
            slice_.statistics = self._statistics.share(cast("InferringHalf", half), message.model)
        return slice_

    def _shared_slice(
        self, half: SharingHalf, message: ReleaseRequest, settings: Settings
    ) -> ModelSlice:
        if message.everything:
            raise ProtocolError(
                f"party {self._consent.name} has shares of the model, which are worth nothing "
                "without those of everyone; bring all parties back"
            )
        self._ledger.note_model()
        slice_ = self._data.share_of(half.model_share(message.model))
        if settings.second_moments:
            made = half.moment_shares(message.model)
            if made.gram is not None or made.hessians:
                self._ledger.note_moments(settings.second_moments)
            slice_.moments = self._data.moments_of(made, self._longest_row)
        return slice_

    def _noised(self, noisy: NoisyRelease, weights: Floats, message: ReleaseRequest) -> Floats:
        """Weights with noise, which is in the ledger before it is used."""
        self._ledger.spend(noisy.noise)
        return noisy.add(weights, message, self._draws.random("model noise", SEED_BYTES))

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def _save(self, message: SaveRequest) -> Nothing:
        if self.half is None:
            raise ProtocolError(f"party {self._consent.name} has not started; nothing to save")
        self.half.settle(message.ack)
        state, keys = self.half.state(), self._keyring.state()
        self._checkpoints.put(message.iteration, state, keys, self._data.content)
        return Nothing()

    def _restore(self, message: RestoreRequest) -> Nothing:
        name = self._consent.name
        if self.half is None:
            raise ProtocolError(f"party {name} has not started; nothing to restore")
        if self.under_way:
            # What it sent since would be forgotten, and might be sent again, almost the same.
            raise ProtocolError(f"party {name} is training already; it restores nothing now")
        state, keys = self._checkpoints.take(message.iteration, self._data.content)
        epoch = message.epoch
        self._checkpoints.raise_epoch(int(keys["key"]), epoch)
        self._keyring.restore(keys, epoch)
        self.half.restore(state, message.constants or Constants())
        return Nothing()

    def _forget(self, message: ForgetRequest) -> Nothing:
        self._checkpoints.forget_before(message.iteration)
        return Nothing()
