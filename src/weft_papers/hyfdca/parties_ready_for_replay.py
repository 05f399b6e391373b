"""Parties of the library, matched and set up by its own messages, ready for replays.

What comes before the first iteration is left to the library: matching, fixed-point bounds, norms
and ω. Matching takes longer than many a replay, so that all methods of a setting share it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.federation.local_federation import Federation
from weft.federation.messages import START, StartRequest
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.federation.solver_by_holdings import settle
from weft.guards import OPEN
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.hyfdca.coordinator import HyfdcaCoordinator
from weft.solvers.party_context import PartyContext
from weft.solvers.run_loop import IteratedCoordinator
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.sums.maxima_from_digit_sums import units_above
from weft.sums.table_scaling_and_certificate_messages import SIZE
from weft_papers.hyfdca.participation_draws_in_bulk import drawn_at_once
from weft_papers.hyfdca.setting_data import SettingData

Integers = NDArray[np.int64]


@dataclass(frozen=True)
class Seated:
    """A run before its first iteration.

    Attributes
    ----------
    run
        What its coordinator keeps.
    halves
        The parties' parts of the algorithm, in the order of the federation.
    rows, columns
        Per party, where its shared samples and features lie among those of all.
    row_group
        Per party, a number that parties with the same shared samples have alike.
    """

    run: Any
    halves: list[Any]
    rows: list[Ints]
    columns: list[Ints]
    row_group: list[int]

    def present(self, iteration: int) -> list[int]:
        """Numbers of the parties that take part."""
        index = self.run.holdings.index
        return [index[name] for name in self.run.participation.present(iteration)]

    def present_over(self, iterations: range) -> tuple[Ints, Ints]:
        """The same of many iterations, one after the other, and where each begins."""
        participation, index = self.run.participation, self.run.holdings.index
        drawn = drawn_at_once(participation, iterations)
        if drawn is None:
            each = [self.present(t) for t in iterations]
            return np.array(list(chain(*each)), np.int64), np.cumsum([0, *map(len, each)])
        numbers = np.array([index[name] for name in participation.parties], np.int64)
        return numbers[drawn].ravel(), np.arange(len(drawn) + 1) * drawn.shape[1]


class MatchedParties:
    """The parties of a setting, matched once for all methods.

    Parameters
    ----------
    practical, safe
        HyFDCA's settings with the two local methods: the former asks most of the matching, the
        latter of setting up.
    """

    def __init__(self, data: SettingData, practical: Settings, safe: Settings) -> None:
        practical, _ = settle(practical, OPEN)
        self._safe_settings, _ = settle(safe, OPEN)
        how = Preprocessing(overlap=data.split.overlap, confirmed=ONE_TABLE)
        self.federation = Federation(data.split.parties, how)
        assembled = self.federation.assemble(practical)
        self._channel, self._holdings, self._adder, classes = assembled
        # Two classes are one problem.
        self._width = 1 if classes is None or len(classes) <= 2 else len(classes)
        self._unit, label = units_above(self._channel, self._adder, SIZE, 2).tolist()
        told = StartRequest(
            settings=self._safe_settings.to_json(),
            unit=self._unit,
            label=label,
            offset=0.0,
            weight=1.0,
            smallest_lam=safe.smallest_lam,
        )
        parties = self._channel.parties
        self._channel.ask(START, dict.fromkeys(parties, told)).insist("starting")
        self._halves: list[Any] = [party._half for party in self.federation.parties.values()]

    @cached_property
    def _safe(self) -> Any:
        """The run that norms and ω are found in."""
        run = self._new_run(HyfdcaCoordinator(), self._safe_settings)
        HyfdcaCoordinator().set_up(run, self._unit)
        return run

    def _new_run(self, coordinator: Any, settings: Settings) -> Any:
        assert isinstance(coordinator, IteratedCoordinator)
        return coordinator.new_run(
            self._channel, self._holdings, settings, self._adder, self._width
        )

    def seat(self, settings: Settings) -> Seated:
        """The parties as they are before the first iteration of a method."""
        settings, _ = settle(settings, OPEN)
        algorithm = algorithm_of(settings.solver)
        halves: list[Any] = [algorithm.party(_context(h), settings) for h in self._halves]
        run = self._new_run(algorithm.coordinator(), settings)
        if settings.solver != "hyfdca":
            # Curvatures are for rates that nobody gave; the paper gives them.
            for half in halves:
                half.begin(Constants(sample_curvature=1.0))
        elif settings.local == "safe":
            run.omega = self._safe.omega
            constants = self._safe.constants("")
            for half, known in zip(halves, self._halves, strict=True):
                half.data_norms.norms = known.data_norms.norms
                half._take_constants(constants)
        names, rows, columns = self._holdings.parties, run.row_layout, run.column_layout
        return Seated(
            run,
            halves,
            [rows.own[name] for name in names],
            [columns.own[name] for name in names],
            [rows.group[name] for name in names],
        )


def _context(half: Any) -> PartyContext:
    return PartyContext(half.view, half.table, half.labels, half.cipher, half.bounds)


def joined(arrays: list[Any]) -> Any:
    """The arrays of all parties as one, for a file."""
    return np.concatenate([np.ravel(array) for array in arrays])


def parted(whole: Any, like: list[Floats]) -> None:
    """The inverse of `joined`, into arrays of the shapes that they had."""
    begin = 0
    for array in like:
        array[...] = whole[begin : begin + array.size].reshape(array.shape)
        begin += array.size
