"""What the coordinator of a HyFDCA run keeps between iterations."""

from __future__ import annotations

import math
from collections.abc import Mapping

import numpy as np
from numpy.typing import NDArray

from weft.algorithms.hyfdca.contributors import Contributors
from weft.algorithms.hyfdca.seen import SeenWeights
from weft.algorithms.settings import Settings
from weft.channels import Channel, Cyclic, Failure, Message, Request, participation_of
from weft.crypto import Adder
from weft.errors import ProtocolError
from weft.matching.roster import Roster
from weft.sums.boards import Board
from weft.sums.certificate import Certificate, FrozenPair
from weft.sums.layout import Layout
from weft.sums.totals import RunningTotals


class Run:
    """What the coordinator keeps between iterations."""

    def __init__(
        self, channel: Channel, roster: Roster, settings: Settings, adder: Adder, classes: int
    ) -> None:
        self.channel = channel
        self.roster = roster
        self.settings = settings
        self.classes = classes
        self.participation = participation_of(settings.participation, roster.parties, settings.seed)
        self.adder = adder
        self.row_layout = Layout(roster.rows, roster.parties)
        self.column_layout = Layout(roster.columns, roster.parties)
        self.z = RunningTotals("z", self.row_layout, classes, self.adder, windows=True)
        self.alpha = Board("alpha", self.row_layout, classes, self.adder)
        clear = settings.coordinator_sees == "papers"
        self.v = RunningTotals("v", self.column_layout, classes, self.adder, clear=clear)
        self.weights = (
            SeenWeights(roster, classes) if settings.coordinator_sees == "weights" else None
        )
        self.iteration = 0
        #: Parties that will not come back in this run: there can be no certificate then.
        self.gone: tuple[str, ...] = ()
        self.omega = 0.0
        #: Iteration up to which each party's α is current.
        self.seen = dict.fromkeys(roster.parties, 0)
        #: Sequence number of the last reply received from each party.
        self.ack = dict.fromkeys(roster.parties, 0)
        self.certificate: Certificate | None = None
        self.certified_frozen = False
        self.best_dual = 0.0
        self.pair: FrozenPair | None = None
        self.norm_estimate = 0.0
        #: Parties whose last change of ‖w‖² was counted.
        self.norm_counted: set[str] = set()
        self.silent_iterations = 0
        #: Parties that gave no answer when last asked.
        self.away: set[str] = set()
        self.notes: list[str] = []
        self._noted: set[str] = set()
        self.contributors = Contributors(roster)
        #: Changes of groups of samples that a guard has held back.
        self.held = 0
        self.senders = Senders(roster, labelled=settings.local == "safe")

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

    @property
    def reached_gap(self) -> bool:
        """Whether the newest certificate meets the target."""
        target = self.settings.gap
        return (
            target is not None and self.certificate is not None and self.certificate.gap <= target
        )

    def gamma(self) -> float:
        gamma = self.settings.gamma
        if gamma == "auto":
            # Theorem 4.11 asks for 1/t where parties with all rows take turns.
            theorem = isinstance(self.participation, Cyclic) and self.roster.vertical
            gamma = "1/t" if theorem and self.settings.local == "theory" else 1.0
        return 1.0 / self.iteration if isinstance(gamma, str) else gamma

    def constants(self, party: str) -> Message:
        """What setting up found out, for one party's local method."""
        if self.settings.local == "safe":
            return {"omega": self.omega}
        if self.settings.local == "practical":
            return {}
        rows = self.roster.rows
        held = int(rows.sizes[rows.cohorts[self.roster.index[party]]].sum())
        special = self.roster.horizontal or self.roster.vertical
        return {"share": 1.0 if special else held / self.roster.n_samples}

    def freeze(self) -> FrozenPair:
        """A new pair: α as it stands now."""
        self.pair = FrozenPair(
            self.iteration,
            self.roster.counted_rows,
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
            if (new < old - slack or stuck) and self.omega < self.roster.n_samples:
                self.omega = min(2.0 * self.omega, float(self.roster.n_samples))
                self.note(
                    f"D did not rise between iterations {before.iteration} and "
                    f"{certificate.iteration}: ω doubled to {self.omega:.4g}"
                )
        self.best_dual = max(self.best_dual, sum(certificate.dual))

    def acknowledge(self, request: Request) -> None:
        """Tell each party which of its replies arrived last, so that it can take back others."""
        for party, message in request.messages.items():
            message["ack"] = self.ack[party]

    def take_sequence(self, party: str, reply: Message) -> None:
        """Remember which reply of a party arrived last."""
        sequence = reply.get("sequence")
        if type(sequence) is not int or sequence != self.ack[party] + 1:
            raise ProtocolError(
                f"party {party}: its reply in iteration {self.iteration} has sequence number "
                f"{sequence!r}, expected {self.ack[party] + 1}; the run stops"
            )
        self.ack[party] = sequence
        self.away.discard(party)

    def note(self, text: str) -> None:
        """Log something once."""
        if text not in self._noted:
            self._noted.add(text)
            self.notes.append(text)

    def note_missing(self, missing: Mapping[str, Failure]) -> None:
        """Log who fell silent, once until it speaks again."""
        for party, failure in missing.items():
            if party not in self.away:
                self.note(f"iteration {self.iteration}: {party} {failure.kind} ({failure.reason})")
            self.away.add(party)


class Senders:
    """Who keeps the coordinator's α current: the first of those present who move it, per cohort.

    Parameters
    ----------
    labelled
        Whether only the holders of labels move α, or all holders of a sample.
    """

    def __init__(self, roster: Roster, *, labelled: bool) -> None:
        movers = roster.rows.marked if labelled else roster.rows.holders
        self._holder = movers.values
        self._start = movers.start[:-1]
        cohort = np.repeat(np.arange(len(movers)), movers.lengths)
        # Entries in the order of (party, cohort): a party's own cohorts are one slice.
        order = np.lexsort((cohort, self._holder))
        self._rank = np.empty(len(order), np.int64)
        self._rank[order] = np.arange(len(order))
        self._bounds = np.searchsorted(
            self._holder[order], np.arange(len(roster.parties) + 1)
        ).tolist()
        self._slot = {p: i for i, p in enumerate(roster.parties)}
        self._moved = [
            None
            if len(roster.rows.cohorts[k]) == self._bounds[k + 1] - self._bounds[k]
            else np.isin(
                roster.rows.cohorts[k], cohort[order][self._bounds[k] : self._bounds[k + 1]]
            )
            for k in range(len(roster.parties))
        ]

    def of(self, present: list[str]) -> dict[str, NDArray[np.bool_]]:
        """Per party present, a flag for each of its cohorts."""
        here = np.zeros(len(self._slot), bool)
        here[[self._slot[p] for p in present]] = True
        candidate = np.where(here[self._holder], np.arange(len(self._holder)), len(self._holder))
        first = np.minimum.reduceat(candidate, self._start)
        chosen = np.zeros(len(self._holder) + 1, bool)
        chosen[first] = True
        by_party = np.empty(len(self._holder), bool)
        by_party[self._rank] = chosen[:-1]
        flags = {}
        for party in present:
            k = self._slot[party]
            mine = by_party[self._bounds[k] : self._bounds[k + 1]]
            moved = self._moved[k]
            if moved is not None:
                mine_all = np.zeros(len(moved), bool)
                mine_all[moved] = mine
                mine = mine_all
            flags[party] = mine
        return flags
