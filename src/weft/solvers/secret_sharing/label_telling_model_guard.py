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
from weft.solvers.secret_sharing.coalition_knowledge import (
    ROWS_PER_NUMBER,
    Told,
    columns_within,
    held_by_others,
    patterns,
    unions,
)
from weft.solvers.secret_sharing.table_positions import WholeTable

_WIDE = (
    "refuses a sealed model with so many columns of others for so few of the samples that they are "
    "about, which would tell its cells and labels; use fewer columns, bring more samples, or agree "
    "on allow_exposure = true"
)
_UNEVEN = (
    "refuses weights of which so few samples have nearly all that a sealed model would tell their "
    "rows; make weights more even, bring more samples, or agree on allow_exposure = true"
)
_STANDS_OUT = (
    "refuses a sealed model of {} that are alike but for those of fewer samples than min_batch, "
    "nearly, whose rows it would tell; {}, or leave such samples out"
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
    for that number: ``least`` of them, and as many as `refuse_wide` asks for unless ``wide``. A
    single one may still have nearly all: slopes go by weights, and their squares by ω². These are
    shared out as `refuse_standing_out` wants squares to be.

    Parameters
    ----------
    weights
        By local row.
    """
    everything = np.arange(len(weights)), 0
    for rows, numbers in [everything, *told.groups]:
        mine = weights[rows]
        alike = float(mine.sum()) ** 2 / max(float((mine**2).sum()), 1e-300)
        asked, fewest = 0 if wide else ROWS_PER_NUMBER * numbers, min(least, len(rows))
        if alike < max(fewest, asked) * (1 - 1e-9) or _few_have_all(mine**2, fewest):
            raise ConfigError(_UNEVEN)


def refuse_standing_out(
    values: Floats,
    what: str,
    least: int,
    weights: Floats | None = None,
    without: Floats | None = None,
    mend: str = "cut the largest",
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
    mend
        What to do about it.
    """
    if not len(values):
        return
    times = 1.0 if weights is None else weights
    if _few_have_all(times * (values - np.median(values)) ** 2, least, without):
        raise ConfigError(_STANDS_OUT.format(what, mend))


def _few_have_all(squares: Floats, least: int, without: Floats | None = None) -> bool:
    total, count = float(squares.sum()), np.arange(1, min(least, len(squares) + 1))
    most = (1.0 - 0.2 / (count + 1)) * total
    few = (np.cumsum(np.sort(squares)[::-1])[: len(count)] > most).any()
    if without is not None and len(without):
        few = few or (without[: len(count)] > most).any()
    return bool(total > 0 and few)
