"""What a party's half of every method in rounds has."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.errors import ConfigError, ProtocolError
from weft.protocol import Message
from weft.protocol.message import integer, number
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.certificate import PointParty
from weft.solvers.settings import Settings
from weft.storage.files import part_of
from weft.sums.contribution import Contribution
from weft.sums.maxima import answer_largest

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Handler = Callable[[Message], Message]

#: How much longer than any good point the weights of a method may become on their way.
ROOM = 64.0


class RoundParty(ABC):
    """Answers the phases of a method, takes back what was never received, saves itself.

    A method says in :meth:`handlers` what it answers, in :meth:`point` how the totals make the
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
        #: Whether others see sums of some samples of which a few must not show.
        self.guarded = self.view.min_batch > 1 and bool(self.view.exposed.any())
        #: The iteration that is asked about.
        self.iteration = 0
        self._sequence = 0
        self._before: dict[str, NDArray[Any]] = {}

    # ── what a method says ────────────────────────────────────────────────────────────────

    @abstractmethod
    def handlers(self) -> dict[str, Handler]:
        """What this half answers, by name of the phase."""

    @abstractmethod
    def point(self, message: Message) -> Floats:
        """The model that the totals in a message stand for, as weights of this party's columns."""

    @abstractmethod
    def variables(self) -> dict[str, NDArray[Any]]:
        """All arrays that an iteration changes."""

    @abstractmethod
    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        """The inverse of :meth:`variables`."""

    def remembered(self) -> dict[str, NDArray[Any]]:
        """The variables as they are now, for the case that a reply is never received."""
        return {name: array.copy() for name, array in self.variables().items()}

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

    def begin(self, found: Message) -> None:  # noqa: B027 - not every method needs to know
        """Take what setting up found out."""

    def size(self) -> Floats:
        """What setting up shall find the largest of, over all parties."""
        return np.zeros(0)

    # ── what methods use ──────────────────────────────────────────────────────────────────

    @property
    def sample_weight(self) -> float:
        """What every sample of this party weighs in the objective; all samples weigh one."""
        if self.settings.weigh == "parties":
            return 1.0 / (self.view.n_parties * max(self.view.n_rows, 1))
        return 1.0 / self.view.n_samples

    def join(self, kind: str, bound: float) -> Contribution:
        """Take part in a running sum over features (``v``) or samples."""
        by_feature = kind == "v"
        slots = self.view.n_shared_columns if by_feature else self.view.n_shared_rows
        windows = kind == "z"
        sum_ = Contribution(kind, slots, self.classes, bound, self.cipher, windows=windows)
        self.sums[kind] = sum_
        return sum_

    def opened(self, kind: str, message: Message, own: Floats) -> Floats:
        """Totals of all slots: those shared from the message, the others this party's own."""
        sum_ = self.sums[kind]
        shared = len(sum_.sent)
        if not shared or kind not in message:
            return own.copy()
        opened = sum_.open(message[kind], self.classes)
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

    def phases(self) -> dict[str, Handler]:
        moving = {f"rounds.{n}": self._moving(handler) for n, handler in self.handlers().items()}
        settled = {n: self._settled(handler) for n, handler in self.measured.phases().items()}
        first: dict[str, Handler] = {"rounds.size": self._on_size, "rounds.begin": self._on_begin}
        return {**first, **moving, **settled}

    def _on_size(self, message: Message) -> Message:
        """One digit of the largest of what every party has."""
        return answer_largest(self.size(), message, self.cipher)

    def _on_begin(self, message: Message) -> Message:
        self.begin(message)
        return {}

    def _moving(self, handler: Handler) -> Handler:
        """A phase whose reply changes what the coordinator and this party must agree on."""

        def answer(message: Message) -> Message:
            self.settle(integer(message, "ack"))
            self.iteration = integer(message, "iteration")
            if self.iteration < 1:
                raise ProtocolError("a message is malformed: iterations are counted from 1")
            for sum_ in self.sums.values():
                sum_.accept()
            self._before = self.remembered()
            reply = handler(message)
            self._sequence += 1
            reply["sequence"] = self._sequence
            return reply

        return answer

    def _settled(self, handler: Handler) -> Handler:
        """A phase that must see the state both sides agree on."""

        def answer(message: Message) -> Message:
            self.settle(integer(message, "ack"))
            return handler(message)

        return answer

    def settle(self, ack: int) -> None:
        """Take back the last reply if ``ack`` says that the coordinator never got it."""
        if ack < self._sequence:
            self._sequence -= 1
            for sum_ in self.sums.values():
                sum_.undo()
            self.take_variables(self._before)

    def weights(self, model: int | None) -> Floats:
        """w as it stands, or that of a frozen point."""
        return self.w if model is None else self.measured.weights[model]

    # ── checkpoints ───────────────────────────────────────────────────────────────────────

    def state(self) -> dict[str, NDArray[Any]]:
        """Everything that the next iteration depends on; taken between iterations."""
        return {
            "w": self.w,
            "sequence": np.array(self._sequence),
            **{f"sent.{kind}": sum_.sent for kind, sum_ in self.sums.items()},
            **{f"own.{name}": array for name, array in self.variables().items()},
            **{f"measured.{name}": array for name, array in self.measured.state().items()},
        }

    def restore(self, state: Mapping[str, NDArray[Any]], message: Message) -> None:
        """The inverse of :meth:`state`; ``message`` carries what setting up found out."""
        self.begin(message)
        self.w = state["w"]
        self._sequence = int(state["sequence"])
        for kind, sum_ in self.sums.items():
            sum_.sent = state[f"sent.{kind}"]
        self.take_variables(part_of(state, "own"))
        self.measured.restore(part_of(state, "measured"))


def positive(message: Message, field: str) -> float:
    """A finite number above zero in a message."""
    found = number(message, field)
    if not 0.0 < found < math.inf:
        raise ProtocolError(f"a message is malformed: '{field}' is no positive number")
    return found
