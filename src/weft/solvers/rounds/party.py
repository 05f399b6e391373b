"""What a party's half of every method in rounds has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Flags, Floats
from weft.errors import ConfigError
from weft.guards.keep_apart_from_other_sent_duals import SentAside
from weft.protocol import Answer, Message, Nothing, answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import AcknowledgedRequest
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.messages import (
    BEGIN,
    POINT_LOSSES,
    POINT_NORMS,
    POINT_PRODUCTS,
    POINT_SPREAD,
    SIZE,
    BeginRequest,
    Model,
    RoundReply,
    RoundRequest,
    StepPhase,
)
from weft.solvers.rounds.point_certificate import PointParty
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.storage.atomic_files import part_of
from weft.sums.maxima_from_digit_sums import LargestParty
from weft.sums.party_contribution import Contribution
from weft.sums.table_scaling_and_certificate_messages import DigitReply, DigitRequest

Handler = Callable[[RoundRequest], RoundReply]
A = TypeVar("A", bound=AcknowledgedRequest)
M = TypeVar("M", bound=Message)

#: How much longer than any good point the weights of a method may become on their way.
ROOM = 64.0


class RoundParty(ABC):
    """Answers the steps of a method, takes back what was never received, saves itself.

    A method says in :meth:`handlers` how it answers them, in :meth:`point` how the totals make the
    model, and in :meth:`variables` what its iterations change. Everything random must come from
    :meth:`draws`, so that a resumed run draws the same.

    Attributes
    ----------
    longest
        What ‖w‖ must stay below.
    sums
        This party's contributions to running sums, by kind.
    w
        The weights of its columns as the last totals gave them.
    """

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        self.view = context.view
        self.table = context.table
        self.labels = context.labels
        self.cipher = context.cipher
        self.bounds = context.bounds
        #: How many must have a part in every sum that this party takes part in.
        self.contributors = context.contributors
        self.settings = settings
        self.loss = settings.make_loss()
        self.classes = context.labels.shape[1]
        self.longest = ROOM * context.bounds.longest
        self.w: Floats = np.zeros((self.view.n_columns, self.classes))
        self.sums: dict[str, Contribution] = {}
        self.measured = PointParty(self, self.reach)
        self._largest = LargestParty(self.cipher)
        #: Whether others see sums of some samples of which a few must not show.
        self.guarded = self.view.min_batch > 1 and bool(self.view.exposed.any())
        #: What others may have seen of steps that were taken back, where guards compare with it.
        self.aside: SentAside | None = None
        #: The iteration that is asked about.
        self.iteration = 0
        self._sequence = 0
        self._before: dict[str, NDArray[Any]] = {}

    # ── what a method says ────────────────────────────────────────────────────────────────

    @abstractmethod
    def handlers(self) -> dict[StepPhase, Handler]:
        """How this half answers the steps of an iteration."""

    @abstractmethod
    def point(self, totals: Model) -> Floats:
        """The model that totals stand for, as weights of this party's columns."""

    @abstractmethod
    def variables(self) -> dict[str, NDArray[Any]]:
        """All arrays that an iteration changes."""

    @abstractmethod
    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of :meth:`variables`."""

    def remembered(self) -> dict[str, NDArray[Any]]:
        """The variables as they are now, for the case that a reply is never received."""
        return {name: array.copy() for name, array in self.variables().items()}

    def shown(self) -> Floats:
        """How much every row weighs in what the last reply showed, for methods that guard it."""
        return np.zeros((self.view.n_rows, self.classes))

    @property
    def dual_is_shown(self) -> bool:
        """Whether others see feature sums of this method's own dual vector in any case."""
        return False

    @property
    def reach(self) -> float:
        """A bound on |z| of every point that is measured."""
        return ROOM * self.bounds.point

    def dual(self, z: Floats) -> Floats:
        """A dual vector that fits the point; unless a method has one, the slopes of the losses."""
        return self.loss.u(z, self.labels)

    def begin(self, found: Constants) -> None:  # noqa: B027 - not every method needs to know
        """Take what setting up found out."""

    def size(self) -> Floats:
        """What setting up shall find the largest of, over all parties."""
        return np.zeros(0)

    # ── what methods use ──────────────────────────────────────────────────────────────────

    @property
    def sample_weight(self) -> float:
        """What every sample of this party weighs in the objective; all samples weigh one."""
        if self.settings.weigh == "parties":
            kept = self.view.n_rows - int(self.view.left_out.sum())
            return 1.0 / (self.view.n_parties * max(kept, 1))
        return 1.0 / self.view.n_samples

    def join(self, kind: str, bound: float) -> Contribution:
        """Take part in a running sum over features (``v``) or samples."""
        by_feature = kind == "v"
        slots = self.view.n_shared_columns if by_feature else self.view.n_shared_rows
        windows = kind == "z"
        sum_ = Contribution(kind, slots, self.classes, bound, self.cipher, windows=windows)
        self.sums[kind] = sum_
        return sum_

    def opened(self, kind: str, totals: bytes | None, own: Floats) -> Floats:
        """Totals of all slots: those shared from a message, the others this party's own."""
        sum_ = self.sums[kind]
        shared = len(sum_.sent)
        if not shared:
            return own.copy()
        opened = sum_.open(totals, self.classes)
        if shared == len(own):
            return opened
        total = own.copy()
        total[:shared] = opened
        return total

    def draws(self, iteration: int) -> np.random.Generator:
        """Random numbers of this party in an iteration."""
        return np.random.default_rng((self.settings.seed, iteration, self.view.party))

    def enough(self, used: Flags) -> Flags:
        """Per class, whether of every group of samples that others see sums of, none or enough of
        the samples are used (rows × classes): every class has sums of its own."""
        view = self.view
        fine = np.ones(used.shape[1], bool)
        if not self.guarded:
            return fine
        for c in range(used.shape[1]):
            counts = np.bincount(view.row_cohort[used[:, c]], minlength=len(view.sizes))
            fine[c] = not (view.exposed & (counts > 0) & (counts < view.min_batch)).any()
        return fine

    def check_size(self, w: Floats) -> None:
        """Refuse weights that run away."""
        if not np.abs(w).max(initial=0.0) < self.longest:
            raise ConfigError(
                f"the weights grow without end under solver '{self.settings.solver}'; give it "
                "smaller steps in [solver.options], or scale the features"
            )

    # ── what the channel calls ────────────────────────────────────────────────────────────

    def phases(self) -> dict[str, Answer]:
        measured = self.measured
        return answers(
            answer(SIZE, self._on_size),
            answer(BEGIN, self._on_begin),
            *(answer(phase, self._moving(handler)) for phase, handler in self.handlers().items()),
            answer(POINT_PRODUCTS, self._settled(measured.products)),
            answer(POINT_LOSSES, self._settled(measured.losses)),
            answer(POINT_SPREAD, self._settled(measured.spread)),
            answer(POINT_NORMS, self._settled(measured.norms)),
        )

    def _on_size(self, message: DigitRequest) -> DigitReply:
        """One digit of the largest of what every party has."""
        return self._largest.tell(message, self.size)

    def _on_begin(self, message: BeginRequest) -> Nothing:
        self.begin(message.constants)
        return Nothing()

    def _moving(self, handler: Handler) -> Handler:
        """A step whose reply changes what the coordinator and this party must agree on."""

        def answered(message: RoundRequest) -> RoundReply:
            self.settle(message.ack)
            self.iteration = message.iteration
            if self.iteration < 1:
                raise malformed("iteration", "is not counted from 1")
            for sum_ in self.sums.values():
                sum_.accept()
            self._before = self.remembered()
            reply = handler(message)
            self._sequence += 1
            reply.sequence = self._sequence
            return reply

        return answered

    def _settled(self, handler: Callable[[A], M]) -> Callable[[A], M]:
        """A phase that must see the state both sides agree on."""

        def answered(message: A) -> M:
            self.settle(message.ack)
            return handler(message)

        return answered

    def settle(self, ack: int) -> None:
        """Take back the last reply if ``ack`` says that the coordinator never got it."""
        if ack < self._sequence:
            self._sequence -= 1
            for sum_ in self.sums.values():
                sum_.undo()
            if self.aside is not None:
                # The coordinator may have it all the same.
                self.aside.note(self.shown())
            self.take_variables(self._before)
            if self.aside is not None:
                self.aside.pass_by(self.shown())

    def weights(self, model: int | None) -> Floats:
        """w as it stands, or that of a frozen point."""
        return self.w if model is None else self.measured.weights[model]

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next iteration depends on; taken between iterations."""
        return {
            "w": self.w,
            "sequence": np.array(self._sequence),
            **{
                f"sum_{kind}.{name}": array
                for kind, sum_ in self.sums.items()
                for name, array in sum_.state().items()
            },
            **{f"own.{name}": array for name, array in self.variables().items()},
            **{f"measured.{name}": array for name, array in self.measured.state().items()},
            **{f"aside.{name}": array for name, array in self._sent_aside().items()},
        }

    def _sent_aside(self) -> dict[str, NDArray[Any]]:
        return {} if self.aside is None else self.aside.state()

    def restore(self, state: Mapping[str, NDArray[Any]], constants: Constants) -> None:
        """The inverse of :meth:`state`; ``constants`` are what setting up found out."""
        self.begin(constants)
        self.w = state["w"]
        self._sequence = int(state["sequence"])
        for kind, sum_ in self.sums.items():
            sum_.restore(part_of(state, f"sum_{kind}"))
        self.take_variables(part_of(state, "own"))
        self.measured.restore(part_of(state, "measured"))
        if self.aside is not None:
            self.aside.restore(part_of(state, "aside"))


def positive(number: float | None, field: str) -> float:
    """A finite number above zero in a message."""
    if number is None or not 0.0 < number < math.inf:
        raise malformed(field, "is no positive number")
    return number
