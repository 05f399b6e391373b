"""What the coordinator of a method in rounds keeps between iterations."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Replies
from weft.solvers.coordinator_attendance_and_certificate import RunState
from weft.solvers.coordinator_visible_weights import VisibleWeights
from weft.solvers.rounds.messages import StepPhase
from weft.solvers.rounds.point_certificate import FrozenPoint
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.storage.atomic_files import part_of
from weft.sums.coordinator_totals import IncrementTotals
from weft.sums.gap_certificate import Certificate
from weft.sums.shared_slots_by_party import Layout

#: Iterations between certificates, where the settings do not say.
CERTIFY_EVERY = 10


class Step(NamedTuple):
    """One step of an iteration: which totals go down, which sums and scalars come up.

    ``v`` are sums by feature; ``z`` and ``delta`` sums by sample. ``scalars`` are names with how
    many values each has.
    """

    phase: StepPhase
    gets: tuple[str, ...] = ()
    gives: tuple[str, ...] = ()
    scalars: tuple[tuple[str, int], ...] = ()


class RoundsState(RunState):
    """Totals, the point that is being measured, and the best bound below P*.

    Parameters
    ----------
    kinds
        The sums that the method keeps.
    windows
        Those to which parties contribute at chosen slots.
    """

    def __init__(
        self,
        channel: Channel,
        holdings: HoldingMap,
        settings: Settings,
        adder: Adder,
        classes: int,
        kinds: Iterable[str],
        windows: Collection[str] = ("z",),
    ) -> None:
        super().__init__(channel, holdings, settings, adder)
        self.classes = classes
        self.row_layout = Layout(holdings.rows, holdings.parties)
        self.column_layout = Layout(holdings.columns, holdings.parties)
        self.sums = {kind: self._new_sum(kind, kind in windows) for kind in kinds}
        if settings.coordinator_sees == "weights":
            self.weights = VisibleWeights(holdings, classes)
        self.point: FrozenPoint | None = None
        #: Samples of which parties want totals, where not of all.
        self.want: dict[str, NDArray[np.int32]] = {}
        #: The largest D seen, per class: a bound below P*, whichever point it came with.
        self.best_dual: tuple[float, ...] = ()
        #: The last point whose dual vector's feature sums anybody got, for guards; −1: none.
        self.last_shown = -1
        #: What setting up found out, for every party alike.
        self.found = Constants()
        #: What a method's own half remembers, as plain numbers.
        self.memory: dict[str, float] = {}

    def _new_sum(self, kind: str, windows: bool) -> IncrementTotals:
        layout = self.column_layout if kind == "v" else self.row_layout
        return IncrementTotals(kind, layout, self.classes, self.adder, windows=windows)

    @property
    def certify_every(self) -> int:
        return self.settings.certify_every or CERTIFY_EVERY

    def freeze(self, kinds: Iterable[str]) -> FrozenPoint:
        """A new point: the model as it stands now, which is made of these totals.

        One that is in progress is given up.
        """
        if self.point is not None and self.point.shown:
            self.last_shown = self.point.iteration
        self.point = FrozenPoint(
            self.iteration,
            self.holdings,
            {kind: self.sums[kind].copy() for kind in kinds},
            (self.row_layout, self.column_layout),
            self.adder,
            self.settings,
            self.classes,
            None if self.certificate is None else self.certificate.iteration,
            self.last_shown,
            self.contributors,
        )
        return self.point

    def take_measured(self, replies: Replies[Any]) -> None:
        """Answers about the frozen point."""
        if self.point is not None:
            self.point.receive(replies.answered)
            if self.point.certificate is not None:
                self._accept(self.point)

    def _accept(self, point: FrozenPoint) -> None:
        """A point is measured: keep P of it, and the best D of all."""
        self.point = None
        self.last_shown = point.iteration
        measured = point.certificate
        if measured is None:
            return
        self.held += point.held
        if self.weights is not None:
            self.weights.take(point.told)
        before = self.best_dual or measured.dual
        self.best_dual = tuple(max(a, b) for a, b in zip(before, measured.dual, strict=True))
        self.certificate = Certificate(measured.iteration, measured.primal, self.best_dual)

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def constants(self, party: str) -> Constants:
        return self.found

    def head(self) -> dict[str, Any]:
        shown = self.point.iteration if self.point and self.point.shown else self.last_shown
        return {
            "best_dual": self.best_dual,
            "found": self.found,
            "memory": self.memory,
            "last_shown": shown,
        }

    def take_head(self, head: Mapping[str, Any]) -> None:
        self.best_dual = tuple(head["best_dual"])
        self.found = Constants(**head["found"])
        self.memory = dict(head["memory"])
        self.last_shown = head["last_shown"]

    def totals(self) -> dict[str, NDArray[Any]]:
        return {
            **{
                f"{kind}.{name}": array
                for kind, totals in self.sums.items()
                for name, array in totals.state().items()
            },
            **{f"want.{party}": slots for party, slots in self.want.items()},
        }

    def take_totals(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for kind, totals in self.sums.items():
            totals.restore(part_of(arrays, kind))
        self.want = part_of(arrays, "want")
