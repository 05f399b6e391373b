"""What the coordinator of a HyFDCA run keeps between iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from numpy.typing import NDArray

from weft.crypto import Adder
from weft.matching.holding_map import HoldingMap
from weft.protocol import Channel, Cyclic
from weft.solvers.cohort_speakers import CohortSpeakers
from weft.solvers.messages import Constants
from weft.solvers.run_state import RunState
from weft.solvers.settings import Settings
from weft.solvers.visible_weights import VisibleWeights
from weft.storage.files import part_of
from weft.sums.certificate import Certificate, FrozenPair
from weft.sums.posted_totals import PostedTotals
from weft.sums.running_totals import RunningTotals
from weft.sums.slot_layout import Layout


class Run(RunState):
    """What the coordinator keeps between iterations."""

    def __init__(
        self, channel: Channel, holdings: HoldingMap, settings: Settings, adder: Adder, classes: int
    ) -> None:
        super().__init__(channel, holdings, settings, adder)
        self.classes = classes
        self.row_layout = Layout(holdings.rows, holdings.parties)
        self.column_layout = Layout(holdings.columns, holdings.parties)
        self.z = RunningTotals("z", self.row_layout, classes, self.adder, windows=True)
        self.alpha = PostedTotals("alpha", self.row_layout, classes, self.adder)
        clear = settings.coordinator_sees == "papers"
        self.v = RunningTotals("v", self.column_layout, classes, self.adder, clear=clear)
        self.weights = (
            VisibleWeights(holdings, classes) if settings.coordinator_sees == "weights" else None
        )
        #: Parties that will not come back in this run: there can be no certificate then.
        self.gone: tuple[str, ...] = ()
        self.omega = 0.0
        #: Iteration up to which each party's α is current.
        self.seen = dict.fromkeys(holdings.parties, 0)
        self.certified_frozen = False
        self.best_dual = 0.0
        self.pair: FrozenPair | None = None
        self.norm_estimate = 0.0
        #: Parties whose last change of ‖w‖² was counted.
        self.norm_counted: set[str] = set()
        self.speakers = CohortSpeakers(holdings, labelled=settings.local == "safe")

    @property
    def certify_every(self) -> int:
        """As set, or once per pass over the data."""
        return self.settings.certify_every or max(1, min(100, math.ceil(1 / self.settings.iic)))

    @property
    def everyone_current(self) -> bool:
        """Whether every party takes part always and none has fallen behind."""
        return self.participation.complete and all(
            seen == self.iteration for seen in self.seen.values()
        )

    def gamma(self) -> float:
        gamma = self.settings.gamma
        if gamma == "auto":
            # Theorem 4.11 asks for 1/t where parties with all rows take turns.
            theorem = isinstance(self.participation, Cyclic) and self.holdings.vertical
            gamma = "1/t" if theorem and self.settings.local == "theory" else 1.0
        return 1.0 / self.iteration if isinstance(gamma, str) else gamma

    def constants(self, party: str) -> Constants:
        """What setting up found out, for one party's local method."""
        if self.settings.local == "safe":
            return Constants(omega=self.omega)
        if self.settings.local == "practical":
            return Constants()
        rows = self.holdings.rows
        held = int(rows.sizes[rows.cohorts[self.holdings.index[party]]].sum())
        special = self.holdings.horizontal or self.holdings.vertical
        return Constants(share=1.0 if special else held / self.holdings.n_samples)

    def freeze(self) -> FrozenPair:
        """A new pair: α as it stands now."""
        self.pair = FrozenPair(
            self.iteration,
            self.holdings.counted_rows,
            self.alpha,
            self.column_layout,
            self.adder,
            self.settings,
            self.certificate.iteration if self.certificate and self.certified_frozen else None,
        )
        return self.pair

    def accept(self, pair: FrozenPair) -> None:
        """A frozen pair is complete."""
        if pair.certificate is not None:
            self.certify(pair.certificate, frozen=True)
        self.pair = None

    def certify(self, certificate: Certificate, *, frozen: bool) -> None:
        """Keep a certificate; ``safe`` doubles ω if D fell since the last one.

        Steps that are far too long may also swing between bad points without falling further:
        D that stays where it is, below the best one seen, doubles ω too.
        """
        before = self.certificate
        self.certificate, self.certified_frozen = certificate, frozen
        if self.settings.local == "safe" and before is not None:
            old, new, best = sum(before.dual), sum(certificate.dual), self.best_dual
            slack = 1e-9 * max(1.0, abs(old))
            stuck = new < best - slack and new <= old + slack
            # ω = N bounds the curvature of any table, so that more would only slow the run.
            if (new < old - slack or stuck) and self.omega < self.holdings.n_samples:
                self.omega = min(2.0 * self.omega, float(self.holdings.n_samples))
                self.note(
                    f"D did not rise between iterations {before.iteration} and "
                    f"{certificate.iteration}: ω doubled to {self.omega:.4g}"
                )
        self.best_dual = max(self.best_dual, sum(certificate.dual))

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def head(self) -> dict[str, Any]:
        return {
            "omega": self.omega,
            "seen": self.seen,
            "certified_frozen": self.certified_frozen,
            "best_dual": self.best_dual,
            "norm_estimate": self.norm_estimate,
            "norm_counted": sorted(self.norm_counted),
        }

    def take_head(self, head: Mapping[str, Any]) -> None:
        self.omega, self.seen = head["omega"], head["seen"]
        self.certified_frozen = head["certified_frozen"]
        self.best_dual, self.norm_estimate = head["best_dual"], head["norm_estimate"]
        self.norm_counted = set(head["norm_counted"])

    def totals(self) -> dict[str, NDArray[Any]]:
        return {
            f"{totals.kind}.{name}": array
            for totals in (self.z, self.alpha, self.v)
            for name, array in totals.state().items()
        }

    def take_totals(self, arrays: Mapping[str, NDArray[Any]]) -> None:
        for totals in (self.z, self.v):
            totals.restore(part_of(arrays, totals.kind))
        self.alpha.restore(part_of(arrays, "alpha"), self.iteration)
