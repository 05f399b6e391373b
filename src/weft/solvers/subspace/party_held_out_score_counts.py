"""Scores of samples that folds left out, as a party keeps them, and what it tells of them once."""

from __future__ import annotations

from typing import Self

import numpy as np

from weft.array_types import Floats, Ints
from weft.errors import ProtocolError
from weft.solvers.held_out_score_counts import HeldOutLayout, party_part, places_of, told_groups
from weft.solvers.party_context import BookScores, PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.subspace.class_fold_problems import Problems
from weft.solvers.subspace.held_out_quality_per_fold import HeldOut


class HeldOutScores:
    """Held-out scores of every finished model of a run.

    Two tables of counts over the same samples tell, in their difference, which samples moved past
    an edge: so a party judges one model in a run.

    Parameters
    ----------
    levels
        (rows × variables) the group of every local row.
    least
        Of how many samples a bucket is at least.
    book
        Books the buckets, which it lets be chosen by what it knows of earlier ones.
    """

    def __init__(
        self,
        layout: HeldOutLayout,
        levels: Ints,
        settings: Settings,
        least: int,
        book: BookScores,
    ) -> None:
        self._layout, self._levels, self._least, self._book = layout, levels, least, book
        self._loss = settings.make_loss()
        self._models: dict[int, HeldOut] = {}
        self._told: Floats | None = None

    @classmethod
    def of(cls, context: PartyContext, settings: Settings, problems: Problems) -> Self | None:
        """None where nothing is left out, or responses are no classes."""
        if not settings.evaluates:
            return None
        view, wanted = context.view, settings.evaluation
        layout = HeldOutLayout.of(wanted, problems.classes, view.n_parties)
        columns = []
        if context.group_levels is not None:
            columns.append(context.group_levels)
        if wanted.by_site or not wanted.groups:
            site = view.party if wanted.by_site else 0
            columns.append(np.full((view.n_rows, 1), site, np.int64))
        # A min_batch of a submitter would steer what is merged; where a party has none of its own,
        # there is nothing to steer.
        least = context.min_batch if context.min_batch > 1 else view.min_batch
        return cls(layout, np.hstack(columns), settings, least, context.book_scores)

    def keep(self, model: int, held_out: HeldOut) -> None:
        """Take the scores of a model that is finished."""
        self._models[model] = held_out

    def judge(self, model: int) -> None:
        """Count the scores of one of them."""
        if self._told is not None:
            raise ProtocolError("a message asks for counts of scores again, which are told once")
        if model not in self._models:
            raise ProtocolError("a message asks for scores of a model that is not finished")
        left, layout = self._models[model], self._layout
        scores = self._loss.class_scores(left.scores)
        levels = told_groups(layout, self._levels[left.rows], self._least)
        places = self._book(
            left.rows,
            layout.line.start,
            levels,
            lambda earlier: places_of(layout, scores, levels, self._least, earlier),
        )
        self._told = party_part(layout, scores, left.truth, levels, places, self._loss, self._least)

    @property
    def told(self) -> Floats:
        assert self._told is not None
        return self._told
