"""Which sealed models a party has no part in, since they would tell its cells and labels.

At its optimum a model is a sum over samples: λN w = −Σ α x for every column, over the rows that
have it. Whoever holds a column knows its x, and reads w: that is an equation about the slopes α of
these rows. As many columns as rows, made-up ones too, tell every slope, and so labels, or scores
and what others' columns add to them; runs with fewer columns add up.
"""

from __future__ import annotations

import math

import numpy as np

from weft.array_types import Floats
from weft.errors import ConfigError
from weft.matching.party_view import PartyView
from weft.solvers.sealed.reader_groups import (
    ROWS_PER_NUMBER,
    Told,
    columns_within,
    held_by_others,
    patterns,
    unions,
)
from weft.solvers.sealed.table_positions import WholeTable

_WIDE = (
    "refuses a sealed model with so many columns of others for so few of the samples that they are "
    "about, which would tell its cells and labels; use fewer columns, bring more samples, or agree "
    "on allow_exposure = true"
)
_UNEVEN = (
    "refuses weights of which so few samples have nearly all that a sealed model would tell their "
    "rows; make weights more even, bring more samples, or agree on allow_exposure = true"
)
#: Which part of squares rounding may make of responses that columns explain.
_DIGITS = 1e-18
_STANDS_OUT = (
    "refuses a sealed model of {} that are alike but for those of fewer samples than min_batch, "
    "nearly, whose rows it would tell; cut the largest, or leave such samples out"
)


def told_by_model(table: WholeTable, party: int, targets: int, *, labelled: bool) -> Told:
    """How many numbers a model tells groups of others about rows of a party.

    Every target, a class or the response, has slopes of its own. But where there are more targets
    than columns of this party that a group lacks, several tell of the same column.

    Parameters
    ----------
    labelled
        Whether the party has labels, which may be all that a group lacks.
    """
    own = table.places[party]
    others, held = held_by_others(table, party)

    def numbers(known: np.ndarray[tuple[int], np.dtype[np.bool_]]) -> int:
        theirs = columns_within(others, held, known)
        if not known.all():
            # Sums over columns of its own have rows, too, that nobody else knows.
            theirs = np.setdiff1d(theirs, own.columns)
        lacking = len(np.setdiff1d(own.columns, theirs))
        if not lacking and not labelled:
            return 0
        return len(theirs) * math.ceil(targets / min(targets, max(lacking, 1)))

    sets = unions(held)
    if sets is None:
        sets = [*held, np.any(held, axis=0)]
    groups = [(np.flatnonzero(known), numbers(known)) for known in sets if known.any()]
    by_row = np.zeros(len(own.rows), np.int64)
    for rows, holders in patterns(held, len(own.rows)):
        mine = [flags for flags, holds in zip(held, holders.tolist(), strict=True) if holds]
        if mine:
            by_row[rows] = numbers(np.any(mine, axis=0))
    return Told(tuple(groups), by_row)


def known_from_view(view: PartyView, targets: int) -> Told:
    """The least that a model tells, by what a party knows before it knows where all tables lie."""
    rows = np.arange(view.n_shared_rows)
    columns = int(view.foreign.max(initial=0))
    numbers = columns * math.ceil(targets / min(targets, max(view.n_columns, 1)))
    by_row = np.zeros(view.n_rows, np.int64)
    by_row[rows] = numbers
    return Told(((rows, numbers),), by_row)


def refuse_wide(told: Told) -> None:
    """Refuse a model that tells a group nearly as many numbers as it shares rows."""
    if told.too_many() is not None:
        raise ConfigError(_WIDE)


def refuse_uneven(told: Told, weights: Floats, least: int, *, wide: bool) -> None:
    """Refuse weights that make a model of few samples out of one of many.

    (Σω)²/Σω² is how many samples of equal weight would come to the same. Rules that count rows hold
    for that number: ``least`` of them, and as many as `refuse_wide` asks for unless ``wide``.

    Parameters
    ----------
    weights
        By local row.
    """
    everything = np.arange(len(weights)), 0
    for rows, numbers in [everything, *told.groups]:
        mine = weights[rows]
        alike = float(mine.sum()) ** 2 / max(float((mine**2).sum()), 1e-300)
        asked = 0 if wide else ROWS_PER_NUMBER * numbers
        if alike < max(min(least, len(rows)), asked) * (1 - 1e-9):
            raise ConfigError(_UNEVEN)


def unexplained(
    values: Floats, cells: Floats, weights: Floats, least: int, penalty: float = 0.0
) -> tuple[Floats, Floats]:
    """What a party's own columns and a constant leave of responses, times the root of weights.

    What they explain makes no slope, however large it is. Less than digits of cells hold is zero.

    Also by how much the sum of these squares falls without one sample, two, and more below
    ``least``: a column that differs in these, or many that say nothing, take a part of what stands
    out, as no model need do.

    Parameters
    ----------
    penalty
        λN of the model, but for the constant: what least squares explain by a large weight it
        leaves.
    """
    root = np.sqrt(weights)
    x = np.column_stack([np.ones(len(values)), cells]) * root[:, None]
    norms = np.linalg.norm(x, axis=0)
    # A column without any cells, or with none that digits hold, explains nothing.
    norms[norms < 1e-100] = 1.0
    x /= norms
    held = penalty * np.append(0.0, norms[1:] ** -2.0)
    target = (values - np.median(values)) * root
    gram = x.T @ x + np.diag(held)
    fit = np.zeros(len(held))
    for _ in range(2):
        # The second takes off what squares of numbers have rounded away.
        slope = x.T @ (target - x @ fit) - held * fit
        fit = fit + np.linalg.lstsq(gram, slope, rcond=1e-12)[0]
    left = target - x @ fit
    if float(left @ left) <= _DIGITS * float(target @ target):
        return np.zeros_like(left), np.zeros(0)
    explaining = x @ np.linalg.pinv(gram, rcond=1e-12, hermitian=True)
    return left, _falls(left, x, explaining, min(least - 1, len(left)))


def _falls(left: Floats, x: Floats, explaining: Floats, most: int) -> Floats:
    """By how much the squares of what is left fall without samples, in turn by the residual that
    each would have in the fit of all others."""
    total, left, free = float(left @ left), left.copy(), 1.0 - (explaining * x).sum(axis=1)
    falls, taken = np.zeros(most), np.zeros((most, len(left)))
    there = np.ones(len(left), bool)
    for number in range(most):
        each = np.where(there, left**2 / np.maximum(free, 1e-9), -1.0)
        which = int(each.argmax())
        there[which] = False
        # What a sample has of the others' fit, without those that were taken before.
        change = explaining @ x[which] + taken[:number].T @ taken[:number, which]
        change /= np.sqrt(max(float(free[which]), 1e-9))
        left += change * left[which] / np.sqrt(max(float(free[which]), 1e-9))
        free -= change**2
        taken[number] = change
        falls[number] = total - float(left[there] @ left[there])
    return falls


def refuse_standing_out(
    values: Floats,
    what: str,
    least: int,
    weights: Floats | None = None,
    without: Floats | None = None,
) -> None:
    """Refuse responses, or what offsets make of means, of which few samples have nearly all.

    A slope is as large as a response is far from its mean: where a few are far off, a model is
    about their rows, and where all others are alike, it says whose they are. Of k < ``least``
    samples all others shall have a fifth of 1 / (k + 1) of all squares, of a single one a tenth:
    less than of columns, since columns explain what is large in many responses.

    Parameters
    ----------
    values
        By sample; how far each is from the middle one counts.
    weights
        How many times its square counts; None: once.
    without
        By how much all squares fall without one sample, two, and so on; None: by their own.
    """
    if not len(values):
        return
    times = 1.0 if weights is None else weights
    squares = np.sort(times * (values - np.median(values)) ** 2)[::-1]
    total, count = float(squares.sum()), np.arange(1, min(least, len(squares) + 1))
    most = (1.0 - 0.2 / (count + 1)) * total
    few = (np.cumsum(squares)[: len(count)] > most).any()
    if without is not None and len(without):
        few = few or (without[: len(count)] > most).any()
    if total > 0 and few:
        raise ConfigError(_STANDS_OUT.format(what))
