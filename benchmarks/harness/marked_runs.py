"""Training with a mark after every iteration: gap, round trips, and whose seconds it took."""

from __future__ import annotations

import gc
from dataclasses import dataclass
from time import perf_counter, process_time

import numpy as np
from numpy.typing import NDArray

from weft.data import Split, Table
from weft.federation.local_federation import Federation, Preprocessing
from weft.federation.model import Model
from weft.federation.preprocessing_settings import ONE_TABLE
from weft.guards import OPEN, Terms
from weft.protocol import Channel
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Record, Result

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Mark:
    """Where a run stood after an iteration.

    ``parties`` are the seconds of the slowest in every phase, ``others`` those that no party
    spent; all from the beginning of the run.
    """

    gap: float
    round_trips: int
    parties: float
    others: float

    def seconds(self, latency: float) -> float:
        return self.parties + self.others + self.round_trips * latency


@dataclass(frozen=True)
class Run:
    """A model, and how the run came there; the parties are let go, whose vectors fill memory."""

    model: Model
    result: Result
    marks: list[Mark]
    final: Mark
    #: When each iteration ended, in seconds of the processor.
    ends: list[float]

    @property
    def closing(self) -> Mark:
        """What came after the last iteration, as a difference."""
        last, end = self.marks[-1], self.final
        return Mark(
            end.gap,
            end.round_trips - last.round_trips,
            end.parties - last.parties,
            end.others - last.others,
        )

    def at(self, gap: float) -> Mark | None:
        """The first iteration with so small a gap; None: there is none."""
        return next((mark for mark in self.marks if mark.gap <= gap), None)

    def closed(self, gap: float, *, smallest: bool) -> Mark | None:
        """Where a run that stops at this gap ends; at its smallest gap, this run."""
        if smallest:
            return self.final if self.final.gap <= gap else None
        found = self.at(gap)
        if found is None:
            return None
        closing = self.closing
        return Mark(
            found.gap,
            found.round_trips + closing.round_trips,
            found.parties + closing.parties,
            found.others + closing.others,
        )

    def within(self, round_trips: int) -> Mark:
        """The last iteration that ended within so many round trips."""
        inside = [mark for mark in (*self.marks, self.final) if mark.round_trips <= round_trips]
        return inside[-1] if inside else self.marks[0]


def train(split: Split, settings: Settings, *, guarded: bool = True) -> Run:
    # Parties of the run before refer to each other: they would take as much memory once more.
    gc.collect()
    terms = OPEN
    if guarded:
        # The careful terms, but for the mode that is measured, and for two that want no cipher.
        terms = Terms(coordinator_sees=settings.coordinator_sees, ciphers=(settings.cipher,))
    preprocessing = Preprocessing(intercept=True, overlap=split.overlap, confirmed=ONE_TABLE)
    federation = Federation(split.parties, preprocessing, terms=terms)
    channels: list[Channel] = []
    marks: list[Mark] = []
    ends: list[float] = []
    began = told = perf_counter()

    def keep(channel: Channel) -> Channel:
        channels.append(channel)
        return channel

    def others() -> float:
        """Seconds that no party spent, up to now."""
        (channel,) = channels
        spent = sum(cost.total for cost in channel.meter.phases.values())
        return perf_counter() - began - spent

    def look(record: Record) -> None:
        nonlocal told
        now = perf_counter()
        ends.append(process_time())
        marks.append(mark(record, others()))
        if now - told > 20:
            told = now
            print(f"  … {record.round_trips} round trips, gap {marks[-1].gap:.3g}", flush=True)

    trained = federation.train(settings, progress=look, through=keep)
    final = mark(trained.result.history[-1], others())
    return Run(trained.model, trained.result, marks, final, ends)


def mark(record: Record, others: float) -> Mark:
    gap = np.inf if record.gap is None else record.gap
    return Mark(gap, record.round_trips, record.compute_seconds, others)


def released(model: Model, table: Table) -> Floats:
    """w of a model with the constant's weight last, by the pooled table's columns."""
    assert model.features.tolist() == table.features.tolist()
    return np.vstack([model.coef.T, model.intercept[None, :]])
