"""Which second moments a party has no part in, since they would tell single rows to their readers.

A column's moments tell of the rows that differ from its most common value, a pair's of those where
both do: an entry with few such rows tells these, and so do combinations of columns. Readers that
are parties take off what they hold, alone or together: of the rest, too, there must be enough,
whichever of them collude.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from weft.array_types import Flags, Floats, Ints
from weft.errors import ConfigError
from weft.fast_small_array_operations import among
from weft.matching.party_view import PartyView
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.coalition_knowledge import (
    ROWS_PER_NUMBER,
    Told,
    columns_within,
    held_by_others,
    patterns,
    unions,
)
from weft.solvers.secret_sharing.column_combinations_of_few_rows import (
    largest_part,
    spanned_by,
    stands_for_few,
)
from weft.solvers.secret_sharing.supported_losses import ALIKE
from weft.solvers.secret_sharing.table_positions import WholeTable

#: Fewer matrices count as so many, a Hessian and a Gram matrix: a tenth as many numbers are opened
#: as there are cells, at most.
_FEWEST_MATRICES = 2
_LEAVE_OUT = "or leave second_moments and inference out"
_FEW_ROWS = (
    "refuses second moments of so many columns over so few samples, which would tell their rows; "
    f"bring fewer columns or more samples, {_LEAVE_OUT}"
)
_SPARSE = (
    "refuses second moments of some of its columns, which would tell of fewer samples than "
    "min_batch; join levels that few samples have into one, such as 'other' (one that is left out "
    f"is told by all others), bring columns that more samples have, {_LEAVE_OUT}"
)
_COMBINED = (
    "refuses second moments of some of its columns, a combination of which stands for fewer "
    "samples than min_batch; join levels that few samples have into one, such as 'other', also "
    f"where their column was left out, bring columns without outliers, {_LEAVE_OUT}"
)
_SITE_ALONE = (
    "refuses second moments of columns that are the same, or add up to the same, for all of its "
    "samples, as intercepts of sites are, since they may tell of one site alone; leave such "
    f"columns out, agree on allow_site_statistics = true if that is meant, {_LEAVE_OUT}"
)
_RARE_PAIRS = (
    "refuses second moments of some of its columns, which may tell with columns of others of fewer "
    "samples than min_batch; leave out 0/1 columns, agree on allow_rare_pairs = true if that is "
    f"meant, {_LEAVE_OUT}"
)
MANY_GROUPS = (
    "refuses second moments, since others hold its samples in more combinations than can be looked "
    "at, and each group of readers could take off what it holds; let fewer parties share samples, "
    f"{_LEAVE_OUT}"
)
_FEW_FOR_HESSIAN = (
    "refuses the Hessian of so few samples, which would tell their rows even if all of them were "
    f"undecided; bring more samples, ask for the Gram matrix alone, {_LEAVE_OUT}"
)
_SEVERAL = (
    "refuses a Hessian beside another matrix of the same samples, since columns that are made up "
    "for it let the two differ in the row of one sample; ask for one matrix, of two classes, or "
    f"agree on allow_exposure = true, {_LEAVE_OUT}"
)
_FEW_WEIGH = (
    "refuses sums at this model of which a few of its samples have nearly all, being the only ones "
    "that are undecided, large or far off; take a larger lam, leave such samples out, bring more, "
    "or leave inference out"
)


def numbers_told(columns: int, matrices: int) -> int:
    """How many numbers matrices tell of each column."""
    return max(matrices, _FEWEST_MATRICES) * columns


def told_by_moments(table: WholeTable, party: int, matrices: int) -> Told:
    """How many numbers matrices tell about each column of a party, over which of its rows."""
    own = table.places[party]
    others, held = held_by_others(table, party)
    everything = np.arange(len(own.rows)), table.n_columns
    parts = [everything, *_shared(table, party)]
    groups = [(rows, numbers_told(columns, matrices)) for rows, columns in parts]
    by_row = np.zeros(len(own.rows), np.int64)
    for rows, holders in patterns(held, len(own.rows)):
        theirs = [place.columns for place, holds in zip(others, holders, strict=True) if holds]
        by_row[rows] = numbers_told(len(_together(own.columns, *theirs)), matrices)
    return Told(tuple(groups), by_row)


def refuse_few_rows(rows: int, columns: int, matrices: int) -> None:
    """Refuse to tell as many numbers as there are cells behind them, nearly."""
    if rows < ROWS_PER_NUMBER * numbers_told(columns, matrices):
        raise ConfigError(_FEW_ROWS)


def refuse_sparse(cells: Floats, least: int) -> None:
    """Refuse moments of one's own columns that tell of fewer than ``least`` rows.

    Of a column with two values, sums over the rows with either follow from those of the other.
    """
    flags, values = _unusual(cells)
    flags = np.hstack([flags, 1.0 - flags[:, values == 2]])
    pairs = flags.T @ flags
    if ((pairs > 0) & (pairs < least)).any():
        raise ConfigError(_SPARSE)


def refuse_site_alone(cells: Floats) -> None:
    """Refuse moments of columns of which a combination is the same for all of a party's rows.

    If it is so at all parties but one, products with that combination are sums over the rows of
    this one alone: its own means, where a column says which site a row is from. Nobody knows of
    the others, so that each has to look at its own rows. Where every party's combinations differ
    between rows, any product has a part of each.
    """
    if spanned_by(cells) <= cells.shape[1]:
        raise ConfigError(_SITE_ALONE)


def refuse_combinations(cells: Floats, least: int, heaviest: float = 1.0) -> None:
    """Refuse moments of one's own columns that combine to what tells of fewer rows.

    ``heaviest``: how many times as much as others a row may weigh in them; then, too, no row shall
    have more than half of a combination.
    """
    # Where all weigh alike, one row of fewer than least has no more than half.
    heavy = heaviest > 1.0 and largest_part(cells) > 1.0 / (1.0 + heaviest)
    if heavy or stands_for_few(cells, least):
        raise ConfigError(_COMBINED)


def refuse_rare_pairs(cells: Floats, least: int) -> None:
    """Refuse moments of one's own columns with those of others, all over the same rows.

    Nobody knows both columns of such a pair. If each has unusual rows in more than half of them,
    both together have enough.
    """
    told = _unusual(cells)[0].sum(axis=0)
    if ((told > 0) & (2 * told < len(cells) + least)).any():
        raise ConfigError(_RARE_PAIRS)


def _unusual(cells: Floats) -> tuple[Floats, Ints]:
    """One where a cell differs from the most common of its column; how many values each has."""
    found, distinct = np.zeros(cells.shape), np.zeros(cells.shape[1], np.int64)
    for j, column in enumerate(cells.T):
        values, counts = np.unique(column, return_counts=True)
        distinct[j] = len(values)
        if len(values) > 1:
            found[:, j] = column != values[counts.argmax()]
    return found, distinct


def matrices_of(settings: Settings, problems: int) -> int:
    """How many matrices are opened, where there is a Hessian for each of so many problems."""
    wanted = settings.second_moments
    if settings.loss in ALIKE:
        # One is the other, but for a factor.
        return min(1, len(wanted))
    return ("gram" in wanted) + problems * ("hessian" in wanted)


def check_moments(
    view: PartyView,
    table: WholeTable,
    cells: Floats,
    *,
    matrices: int,
    hessian: bool,
    least: int,
    rare_pairs: bool,
    several: bool,
    site: bool,
    heaviest: float = 1.0,
) -> None:
    """Refuse a run whose second moments would tell single rows of this party.

    Parameters
    ----------
    table
        Where all tables lie.
    cells
        Of this party, in its rows and columns.
    matrices
        How many are opened.
    hessian
        Whether some of them weigh rows: how much is known when the model is, but not more than all.
    least
        Of how many rows each must tell; one: any number.
    rare_pairs
        Whether columns of two parties may be unusual together in fewer rows.
    several
        Whether matrices may weigh the same rows in several ways.
    site
        Whether they may tell of one site alone.
    heaviest
        How many times as much as others a row may weigh in them.
    """
    if hessian and matrices > 1 and not several:
        raise ConfigError(_SEVERAL)
    refuse_few_rows(table.n_rows - _left_out(view, table), table.n_columns, matrices)
    if least <= 1:
        return
    whole, place = undivided(view, cells), table.places[view.party]
    there, seen = ~view.left_out, set[bytes]()
    if not site:
        refuse_site_alone(whole[there][:, np.arange(view.n_columns) != view.bias_slot])
    for rows, columns in _regions(table, view.party):
        rows = rows[there[rows]]
        if not len(rows):
            continue
        refuse_few_rows(len(rows), columns, matrices)
        if hessian and _too_few_undecided(len(rows), columns, least):
            raise ConfigError(_FEW_FOR_HESSIAN)
        if rows.tobytes() not in seen:
            seen.add(rows.tobytes())
            refuse_sparse(whole[rows], least)
            refuse_combinations(whole[rows], least, heaviest)
    if rare_pairs:
        return
    for other in table.places:
        if not among(other.columns, place.columns).all():
            shared = np.flatnonzero(among(place.rows, other.rows) & there)
            refuse_rare_pairs(whole[shared], least)


def row_groups(table: WholeTable) -> list[Ints]:
    """Rows over which curvatures are added up: all, and all that entries are about for somebody.

    Each once: told twice, with noise of its own each time, a sum would have less of it.
    """
    everything = np.arange(table.n_rows)
    found = {everything.tobytes(): everything}
    for party, place in enumerate(table.places):
        for rows, _ in _regions(table, party):
            group = np.sort(place.rows[rows])
            if len(group):
                found.setdefault(group.tobytes(), group)
    return list(found.values())


def too_decided(
    view: PartyView, table: WholeTable, undecided: Sequence[float], least: int, *, weighed: bool
) -> bool:
    """Whether few rows have nearly all of a Hessian, as each has σ'(z) of it.

    No σ'(z) is above a quarter. So four times their sum counts rows that have a part in it, at
    least, and so does (Σωσ')²/Σ(ωσ')² where they have weights; there must be as many as one matrix
    needs, and as rows of which some tell.

    Parameters
    ----------
    undecided
        Such counts at least, over `row_groups`.
    weighed
        Whether samples have weights: those that are left out weigh nothing.
    """
    # Samples that are left out are rows of zeros, whose σ'(z) is a quarter.
    count = undecided[0] - (0 if weighed else _left_out(view, table))
    if _too_few_undecided(count, table.n_columns, least):
        return True
    if least <= 1:
        return False
    groups = (group.tobytes() for group in row_groups(table))
    told = dict(zip(groups, undecided, strict=True))
    own = table.places[view.party]
    for rows, columns in _regions(table, view.party):
        if (~view.left_out[rows]).any():
            count = told[np.sort(own.rows[rows]).tobytes()]
            count -= 0 if weighed else int(view.left_out[rows].sum())
            if _too_few_undecided(count, columns, least):
                return True
    return False


def refuse_few_weighed(cells: Floats, weights: Floats, least: int, rows_each: int) -> None:
    """Refuse a matrix Σ w x xᵀ of which few rows have nearly all, or nearly all of a combination.

    (Σw)²/Σw² is how many rows of equal weight would come to the same; k rows have no more of the
    total than the root of k by that. There must be ``rows_each`` for every column, the constant one
    among them, and times ``least``: a matrix of d columns is d(d + 1)/2 numbers, and two rows for
    each have 2d² cells, four times as many; of fewer than d, it tells what the rows span.

    That does not keep a single row apart: one that is far off and weighs more than others has most
    of some combination, and the difference to another matrix of the same rows is about this row.
    So the rule for columns holds for rows with their weights too.
    """
    square = float((weights**2).sum())
    alike = float(weights.sum()) ** 2 / square if square > 0 else 0.0
    few = alike < rows_each * max(cells.shape[1] + 1, least)
    if few or stands_for_few(cells, least, weights):
        raise ConfigError(_FEW_WEIGH)


def _too_few_undecided(undecided: float, columns: int, least: int) -> bool:
    # One matrix: two, as for rows, would refuse nearly separable tables of hundreds of samples.
    return undecided < ROWS_PER_NUMBER * max(columns, least)


def _left_out(view: PartyView, table: WholeTable) -> int:
    """Samples of the whole table that are left out: as told, or as a lone label holder knows."""
    return max(table.n_rows - view.n_samples, int(view.left_out.sum()))


def undivided(view: PartyView, cells: Floats) -> Floats:
    """Cells as they are in the table, where each of several holders brings a part of them."""
    if view.cell_holders is None or view.overlap != "mean":
        return cells
    holders = view.cell_holders[view.row_cohort][:, view.column_cohort]
    # A third of a cell, three times, may differ from it in the last bit.
    return np.round(cells * np.maximum(holders, 1), 9)


def _regions(table: WholeTable, party: int) -> Iterator[tuple[Ints, int]]:
    """Rows of this party that some entries are about, for others, and columns that they have.

    All of them; those that another party, or several together, lack: what is left of an entry when
    they take off their part; and those that they share.
    """
    own = table.places[party]
    yield np.arange(len(own.rows)), len(own.columns)
    for known in _known(table, party):
        yield np.flatnonzero(~known), len(own.columns)
    yield from _shared(table, party)


def _shared(table: WholeTable, party: int) -> Iterator[tuple[Ints, int]]:
    """Rows that others, one or several, have with other columns, and all columns there.

    Products with these are equations for the cells of this party, whose factors they know.
    """
    own = table.places[party]
    others, held = held_by_others(table, party)
    for known in _known(table, party):
        both = len(_together(own.columns, columns_within(others, held, known)))
        if both > len(own.columns):
            yield np.flatnonzero(known), both


def _known(table: WholeTable, party: int) -> list[Flags]:
    """Rows of this party that groups of others hold."""
    sets = unions(held_by_others(table, party)[1])
    if sets is None:
        raise ConfigError(MANY_GROUPS)
    return sets


def _together(*columns: Ints) -> Ints:
    return np.unique(np.concatenate(columns))
