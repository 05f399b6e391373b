"""What ``auto`` chooses by who holds what, once samples are matched.

Sealed training gives way to sums where the tables are not for it. Where parties come and go, the
solver that asks fewest questions takes over if it tells of enough samples at a time.
"""

from __future__ import annotations

from collections.abc import Collection, Sized

import msgspec
import numpy as np

from weft.errors import ConfigError
from weft.federation.preprocessing_settings import Preprocessing
from weft.guards.privacy_terms import Terms
from weft.matching.holding_map import HoldingMap
from weft.privacy.ledger.expected_exposure import forecast, sums_too_many
from weft.solvers.algorithm_choice import algorithm_of, in_sums, resolve
from weft.solvers.run_settings import AUTO, Settings
from weft.solvers.subspace.loss_points_and_directions_limit import tells_moments
from weft.solvers.subspace.settings import SPAN_NEWTON

_FEWER = (
    f"solver: {SPAN_NEWTON}, since parties come and go and it waits for all of them half as often; "
    "the coordinator sees totals of second moments besides or, of fewer samples, holders of labels "
    "inner products of vectors"
)
#: Totals over fewer parties are not taken for hidden, whatever terms allow.
_FEWEST_COUNTING = 3


def settle(
    settings: Settings, terms: Terms, *, saves: bool = False, warm: bool = False
) -> tuple[Settings, str]:
    """Settings with all that they leave to Weft chosen, and why the solver was."""
    settings, reason = resolve(settings, saves=saves, warm=warm)
    return algorithm_of(settings.solver).settle(settings, terms), reason


def settle_by_holdings(
    asked: Settings,
    chosen: tuple[Settings, str],
    holdings: HoldingMap,
    classes: Sized | None,
    terms: Terms,
    preprocessing: Preprocessing,
    *,
    solvers: Collection[str] | None = None,
    saves: bool = False,
    warm: bool = False,
) -> tuple[Settings, str]:
    """What was chosen, or what the holdings speak for instead, and why.

    ``asked`` is what the run was asked for, and ``chosen`` what `settle` made of it. ``classes``
    are those of the labels; None: they are responses. ``solvers`` are those that all parties allow;
    None: nobody limits them. What was chosen stays if it is not among them: parties then refuse it,
    and say so.
    """
    settings, reason = (
        in_sums(chosen[0], holdings, classes, terms, saves=saves, warm=warm) or chosen
    )
    one = classes is None or len(classes) == 2
    alike = not preprocessing.sample_columns.named
    allowed = solvers is None or SPAN_NEWTON in solvers
    if asked.solver == AUTO and allowed and one and alike and not warm:
        fewer = _with_fewer_questions(settings, holdings, terms, preprocessing)
        if fewer is not None:
            # Why it is not sealed, and at which price, stands before the solver.
            settings, reason = fewer, reason.partition("solver: ")[0] + _FEWER
    if settings is chosen[0]:
        return chosen
    settings, _ = settle(settings, terms, saves=saves, warm=warm)
    return settings, reason


def mean_square(holdings: HoldingMap, preprocessing: Preprocessing) -> float:
    """1/N Σ ‖x_i‖² of the scaled table, as far as it can be known without a sum over its cells.

    A scaled column has squares of about one; unscaled ones are taken for such.
    """
    if preprocessing.unit_rows:
        return 1.0
    return float(max(1, holdings.n_features))


def _with_fewer_questions(
    settings: Settings, holdings: HoldingMap, terms: Terms, preprocessing: Preprocessing
) -> Settings | None:
    """The same with Newton's method in the span, where that shows nobody too much.

    Of several problems, second moments would be of the same samples again and again.
    """
    algorithm = algorithm_of(settings.solver)
    one_problem = len(settings.lambdas) == 1 and not settings.folds
    plain = settings.class_weight is None and settings.evaluation.held_out is None
    fast = algorithm.waits and algorithm.ours and not algorithm.shares
    if settings.all_take_part or not (fast and one_problem and plain):
        return None
    if settings.inference != "none" or settings.groups > 1:
        return None
    other = msgspec.structs.replace(settings, solver=SPAN_NEWTON)
    try:
        algorithm_of(SPAN_NEWTON).check(other)
    except ConfigError:
        return None
    counting = _counted_in_large_groups(holdings, terms.min_batch)
    enough = len(counting) >= max(_FEWEST_COUNTING, terms.min_contributors)
    if not (enough and all(n and tells_moments(other, n, terms.min_batch) for n in counting)):
        return None
    return None if _shows_too_much(other, holdings, terms, preprocessing) else other


def _counted_in_large_groups(holdings: HoldingMap, least: int) -> list[int]:
    """How many samples parties count that count any, without those in groups below ``least``.

    Which solver it will be, a check tells a submitter, who is not told the sizes of small groups.
    """
    large = np.where(holdings.rows.sizes < least, 0, holdings.rows.sizes)
    counts = np.bincount(holdings.counter, weights=large)
    return [int(counts[party]) for party in np.unique(holdings.counter)]


def _shows_too_much(
    settings: Settings, holdings: HoldingMap, terms: Terms, preprocessing: Preprocessing
) -> bool:
    """Whether somebody is likely to get as many sums as parties would refuse."""
    if terms.allow_exposure and terms.most_explained == 1:
        return False
    square = mean_square(holdings, preprocessing)
    ahead = forecast(settings, classes=1, mean_square=square, unit_rows=preprocessing.unit_rows)
    foreign = np.unique(holdings.foreign[holdings.foreign > 0])
    return bool((ahead.likely >= sums_too_many(foreign, terms.most_explained)).any())
