"""No Hessian of a Poisson model is told of which a few rows have nearly all, nor what they have."""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
from scipy.special import expit, logit
from sealed_runs import ALL
from test_sealed_offsets import tiles_of

from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import Terms
from weft.privacy.ledger.run_booking import Ledger
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing import party_slopes
from weft.solvers.secret_sharing.coalition_knowledge import ROWS_PER_NUMBER
from weft.solvers.secret_sharing.exponential_fourier_series import MOST_DOUBLINGS, ExponentialSeries
from weft.solvers.secret_sharing.few_rows_dominate_poisson_hessian import (
    BROAD,
    STEEP,
    MeanCaps,
    MeanCount,
    is_beyond,
    mean_counts,
    surely,
)
from weft.solvers.secret_sharing.label_leak_of_gradient import tells_gradient
from weft.solvers.secret_sharing.released_model_curvature_shares import CurvatureShares
from weft.solvers.secret_sharing.second_moment_guard import refuse_combinations
from weft.solvers.secret_sharing.share_arithmetic import noise
from weft.solvers.secret_sharing.table_positions import Place, WholeTable

ROWS = 400
BY_COLUMNS = {"a": [(ALL, slice(0, 1))], "b": [(ALL, slice(1, 2), False)]}
LEAST = 8
GUARDED = Terms(min_batch=LEAST, allow_second_moments=True, allow_pairs=True, allow_rare_pairs=True)


def exposed(largest):
    """Counts of samples alike but for the first, whose exposure is so many times that of others."""
    rng = np.random.default_rng(3)
    block, exposure = rng.normal(size=(ROWS, 2)), np.exp(0.3 * rng.normal(size=ROWS))
    exposure[0] = largest
    rates = exposure * np.exp(0.2 * block[:, 0])
    return block, rng.poisson(rates).astype(float), np.log(exposure)


def train(largest, terms=GUARDED, ledger=None):
    """Trained with a Hessian, and what parties opened of sums for guards."""
    block, labels, offsets = exposed(largest)
    sums, take_off = [], OpeningPads.take_off

    def taking(self, total, count, label):
        found = take_off(self, total, count, label)
        if label.endswith(" sums"):
            sums.append(found.view(np.int64).copy())
        return found

    how = Preprocessing(intercept=True, offset="o")
    asked = Settings(
        loss="poisson",
        lam=1e-4,
        gap=1e-3,
        iterations=12,
        penalize_intercept=False,
        solver="sealed",
        second_moments=("hessian",),
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(OpeningPads, "take_off", taking)
        # Else such responses and offsets are refused before there is a model.
        patch.setattr(party_slopes, "refuse_standing_out", lambda *_, **__: None)
        tiles = tiles_of(block, labels, offsets, BY_COLUMNS)
        trained = Federation(tiles, how, terms=terms, ledger=ledger).train(asked)
    scores = block @ trained.model.coef[0] + trained.model.intercept[0] + offsets
    return trained, scores, sums


@pytest.fixture(scope="module")
def even():
    return train(1.0)


@pytest.fixture(scope="module")
def uneven():
    return train(90.0)


@pytest.mark.parametrize("reach", [4.0, 11.0])
@pytest.mark.parametrize("steepness", [1, 12])
def test_counts_are_off_by_no_more_than_is_said(reach, steepness):
    count = MeanCount(reach, steepness)
    away = np.linspace(-2 * reach - 1, 2 * reach + 1, 2001)
    off = np.abs(count.series.slope_at(steepness * away) + 0.5 - expit(steepness * away)).max()
    assert off <= count.series.slope_error < 1e-6
    assert count.error(100_000) < 0.2


@pytest.mark.parametrize("spread", [0.3, 1.0, 2.0, 3.0])
def test_no_row_has_more_than_its_share_of_what_passes(spread):
    """Whatever the means are, and however far the centre of the series is from them."""

    class Table:
        n_columns, n_rows, places = 4, 500, ()

    caps = MeanCaps.of(Table(), 10, ExponentialSeries(11.0))
    needed, passed = ROWS_PER_NUMBER * 10, 0
    for seed in range(40):
        rng = np.random.default_rng(seed)
        scores = rng.normal(rng.normal(), spread, 500)
        broad, steep = (
            expit(by * (scores - caps.of_count(name))).sum()
            for by, name in ((1, BROAD), (12, STEEP))
        )
        # Noise may have taken off half a row.
        if broad >= needed and not is_beyond(steep - 0.5, 500, 4.0):
            passed += 1
            means = np.exp(scores)
            assert means.max() / means.sum() <= 1 / (2 * np.sqrt(needed))
    assert passed > 0 if spread < 2 else passed < 40


def test_a_group_that_needs_fewer_rows_has_no_larger_row():
    """Caps are chosen for 40 columns; whoever has one of them needs the fewest rows of all."""

    class Table:
        n_columns, n_rows, places = 40, 100, ()

    caps = MeanCaps.of(Table(), 2, ExponentialSeries(4.0))
    scores = np.full(100, np.log(0.045))
    scores[0] = caps.high - 0.01
    count, means = expit(scores - caps.low).sum(), np.exp(scores)
    needed = ROWS_PER_NUMBER * 2
    assert count > needed
    assert means.max() / means.sum() > 1 / (2 * np.sqrt(needed))
    assert caps.rows_alike(count) < needed
    # Where caps are chosen for, nothing changes.
    enough = ROWS_PER_NUMBER * Table.n_columns
    assert caps.rows_alike(enough) == pytest.approx(enough)


@pytest.mark.parametrize("noise", [-4.0, 0.0, 4.0])
def test_what_is_taken_for_sure_is_no_more_than_there_is(noise):
    assert surely(40.0 + noise, ROWS, 2, 4.0) <= 40.0


@pytest.mark.parametrize("doublings", range(-MOST_DOUBLINGS, MOST_DOUBLINGS + 1))
def test_counts_of_any_mean_need_many_samples_for_a_gradient(doublings):
    digits = ExponentialSeries(4.0, doublings).label_digits
    assert 0 < digits <= 0.5
    columns = np.arange(3)
    for rows, told in ((95 * 3, False), (96 * 3, digits == 0.5)):
        table = WholeTable(rows, 3, (Place(np.arange(rows), columns),))
        assert tells_gradient(table, rows, 1, digits) is told


def test_even_means_have_a_hessian_and_one_that_dominates_has_none(even, uneven):
    trained, scores, _ = even
    block = np.c_[exposed(1.0)[0], np.ones(ROWS)]
    theirs = block.T @ (np.exp(scores)[:, None] * block) / ROWS
    found = trained.second_moments
    assert (np.abs(found.hessian[0] - theirs) <= found.hessian_error[0]).all()
    assert found.hessian_error.max() < 1e-3
    gradient = block.T @ (np.exp(scores) - exposed(1.0)[1]) / ROWS
    assert np.linalg.norm(found.gradient[0] - gradient) <= found.gradient_error[0] < 1e-3
    trained, scores, _ = uneven
    assert np.exp(scores).max() > 0.15 * np.exp(scores).sum()
    assert trained.second_moments.hessian is None
    assert trained.second_moments.gradient is None
    assert any("largest means" in note for note in trained.result.notes)


def test_all_that_is_opened_are_two_counts_to_which_no_row_adds_more_than_one(even, uneven):
    """With noise of two rows from each party, and of half a row in all; not sums of means."""
    for _, scores, sums in (even, uneven):
        assert len(sums) == 2
        for told in sums:
            assert np.array_equal(told, sums[0])
            # Of all rows, which all have, once; and beyond the upper cap.
            assert len(told) == 2
        centre = round(np.log2(np.exp(scores).mean())) * np.log(2.0)
        counts, found = mean_counts(4.0), []
        for value, name in zip(sums[0], (BROAD, STEEP), strict=True):
            found.append(value * 2.0 ** -counts[name].digits(ROWS).total + 0.5 * ROWS)
        needed = ROWS_PER_NUMBER * LEAST
        low, high = np.log(ROWS / (2 * needed)), np.log(ROWS / (4 * np.sqrt(needed)))
        assert abs(found[0] - expit(scores - centre - low).sum()) <= 4.01
        assert abs(found[1] - expit(12 * (scores - centre - high) + 3.24).sum()) <= 0.501
    # The mean that dominates counts as one, however large it is.
    assert 0.49 < found[1] < 1.51


def test_the_upper_count_tells_a_score_only_within_noise_of_a_quarter_row():
    """A party brings a sample to where the count rises, and takes its own noise off what it reads.

    The attack that found a score to 0.027 on average, with noise of an eighth of a row in all.
    """
    count = mean_counts(4.0)[STEEP]
    bits, unit = count.noise(ROWS, 2), 2.0 ** -count.digits(ROWS).total
    caps, off = MeanCaps.of(_Table(), LEAST, ExponentialSeries(4.0)), []
    for number in range(400):
        score = caps.of_count(STEEP) + 0.2 * (number / 400 - 0.5)
        others = float(noise(b"%032d" % number, "sums", [bits])[0, 0].view(np.int64)) * unit
        told = expit(12 * (score - caps.of_count(STEEP))) + others
        off.append(caps.of_count(STEEP) + logit(np.clip(told, 0.01, 0.99)) / 12 - score)
    assert np.sqrt(np.mean(np.square(off))) > 0.05


def test_counts_are_told_once_over_the_same_samples(tmp_path):
    """Else noise is averaged away: what a kept-back Hessian's counts tell stands in ledgers."""
    terms = msgspec.structs.replace(GUARDED, allow_exposure=False)
    ledger = Ledger(tmp_path)
    trained, *_ = train(90.0, terms, ledger)
    assert trained.second_moments.hessian is None
    with pytest.raises(WeftError, match="of which an earlier run opened some"):
        train(90.0, terms, ledger)


class _Table:
    n_columns, n_rows, places = 3, ROWS, ()


def test_columns_of_which_one_row_has_much_are_refused_before_anything_is_dealt():
    """Half of a combination with an even mean, and nearly all of it with a large one."""
    cells = np.random.default_rng(0).normal(size=(ROWS, 1))
    cells[0] = 12.0
    refuse_combinations(cells, LEAST)
    with pytest.raises(ConfigError, match="a combination of which stands for fewer"):
        refuse_combinations(cells, LEAST, heaviest=8.0)
    refuse_combinations(cells[1:], LEAST, heaviest=8.0)


def test_without_the_guard_the_row_that_dominates_is_read_out_of_the_hessian():
    """Why there is one: a reader has cells of a sample that others hold, to a few percent."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(CurvatureShares, "_too_decided", lambda self, told: False)
        trained, _, _ = train(2000.0)
    np.testing.assert_allclose(_row_of(trained), exposed(2000.0)[0][0], atol=0.05)


def test_with_it_nothing_of_a_row_is(even):
    assert not np.allclose(_row_of(even[0]), exposed(1.0)[0][0], atol=0.3)


def _row_of(trained):
    """What one row would make of the constant column, others having a mean of one, and zero."""
    hessian = ROWS * trained.second_moments.hessian[0]
    return hessian[:-1, -1] / (hessian[-1, -1] - ROWS)
