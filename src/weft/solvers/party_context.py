"""What a party's half of an algorithm stands on: its view, its cells, its keys."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto import Cipher
from weft.crypto.randomness_kept_for_restart import RandomnessLog
from weft.guards.score_buckets import EarlierCounts
from weft.matching.party_view import PartyView
from weft.sums.largest_possible_sums import Bounds
from weft.sums.party_table_products import LocalTable

if TYPE_CHECKING:
    # The coordinator's process loads this file, but nothing that opens a pad.
    from weft.crypto.pads.pads_all_parties_know import OpeningPads
    from weft.solvers.secret_sharing.coalition_knowledge import Told


@dataclass(frozen=True)
class GivenValues:
    """What is added to the score of every row, and how often its loss counts: (rows × 1)."""

    offset: Floats
    weight: Floats


#: Given local rows, where places begin, groups of rows, and how to choose places by earlier counts:
#: the places.
BookScores = Callable[[Ints, Ints, Ints, Callable[[Sequence[EarlierCounts]], Ints]], Ints]


@dataclass(frozen=True)
class PartyContext:
    """All that a party brings into a run.

    Attributes
    ----------
    labels
        (rows × classes): the response, or ±1; anything where the party has no label.
    contributors
        How many parties the terms want in every sum.
    folds
        The fold of every row, where the run has folds.
    start
        Weights of this party's columns to start from, in the units of the scaled table.
    bias
        Value of the constant column, as it is trained on; None: there is none.
    given
        Offsets and weights of rows with a label; None: there are none.
    given_by_others
        Whether some of these are not from its own files.
    offset
        At least every |offset| of a sample, whoever has it.
    group_levels
        (rows × variables) groups by which held-out samples are judged; None: by none.
    draws
        Remembers what a party decides by other things than messages.
    sum_sigma
        Standard deviation of the noise that a run wants in feature sums (of v/N).
    spend_rho
        Books what such a sum tells, before it is sent.
    min_batch
        Of how many samples the least that others read of this party must tell, by its own terms.
    rare_pairs
        Whether these let columns of two parties be unusual together in fewer samples.
    site_statistics
        Whether second moments may tell of this party alone.
    tells_counts
        Whether the coordinator may read how many samples there are of some classes.
    wide_models
        Whether a model may tell readers that are parties as many numbers as they share rows, and
        second moments may weigh rows in several ways.
    foresee_models, foresee_moments
        Object to what a model tells of rows, and second moments of each column, a Hessian or none.
    book_model, book_moments
        Books what a model tells, and what second moments tell, before anything at it is opened.
    judge_folds
        Lets a lone label holder judge so many folds of its classes, if none were refused before.
    judge_responses
        Lets a label holder judge responses of some of its rows, if those of no others were refused.
    book_scores
        Books in which buckets held-out scores are counted, before they are told.
    openings
        Hides from the coordinator what all parties open; None under a cipher that hides nothing.
    """

    view: PartyView
    table: LocalTable
    labels: Floats
    cipher: Cipher
    bounds: Bounds
    contributors: int = 1
    folds: NDArray[np.int8] | None = None
    start: Floats | None = None
    bias: float | None = None
    given: GivenValues | None = None
    given_by_others: bool = False
    offset: float = 0.0
    group_levels: Ints | None = None
    draws: RandomnessLog = field(default_factory=RandomnessLog)
    sum_sigma: float = 0.0
    spend_rho: Callable[[float], None] = lambda rho: None
    min_batch: int = 1
    rare_pairs: bool = True
    site_statistics: bool = True
    tells_counts: bool = True
    wide_models: bool = True
    foresee_models: Callable[[Told], None] = lambda told: None
    foresee_moments: Callable[[Told, bool], None] = lambda told, hessian: None
    book_model: Callable[[], None] = lambda: None
    book_moments: Callable[[], None] = lambda: None
    judge_folds: Callable[[int, Callable[[], None]], None] = lambda folds, judge: judge()
    judge_responses: Callable[[Ints, Callable[[], None]], None] = lambda rows, judge: judge()
    book_scores: BookScores = lambda rows, starts, levels, choose: choose(())
    openings: OpeningPads | None = None
