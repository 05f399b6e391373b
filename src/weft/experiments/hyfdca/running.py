"""One case, run: how near to the optimum its iterations come, and what an iteration costs.

HyFDCA runs under encryption, and what that takes is measured. FedAvg and HyFEM send weights in the
clear, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.algorithms.base import Checkpointing, Record
from weft.algorithms.checkpoint import NAME as CHECKPOINT
from weft.algorithms.settings import Settings
from weft.comparison.following import Follower
from weft.errors import ProtocolError
from weft.experiments.hyfdca.cases import Case, Target
from weft.experiments.hyfdca.costs import Costs, Scale
from weft.experiments.hyfdca.ground import Ground, ground_of
from weft.federation import Federation
from weft.matching.normal import normal_features
from weft.model import Model
from weft.preparation import Preparation

Floats = NDArray[np.float64]
#: Told the iteration, and how many there will be.
Progress = Callable[[int, int], None]

#: More iterations than any run makes.
_UNLIMITED = 10**9
#: Iterations of equal-iteration experiments after which P is evaluated, evenly spaced.
_POINTS = 60
#: By which factor iterations grow from point to point afterwards.
_GROWTH = 1.05
#: About how many iterations the solver takes that Weft chooses.
_AUTO_ITERATIONS = 50
#: Iterations that say what one costs, where only that is wanted.
_COUNTED = 20


class Curve(msgspec.Struct, forbid_unknown_fields=True):
    """How a run went.

    Attributes
    ----------
    iterations, losses, accuracies
        P and accuracy on samples held out, after some of the iterations; None: not finite, not
        known.
    round_trips
        Until then, setting up included.
    length
        Iterations run.
    ended
        Whether it ended by itself: it has come where it should, or it diverged.
    diverged
        How, in words; empty: it did not.
    costs
        What an iteration took, other runs beside this one.
    """

    length: int = 0
    ended: bool = False
    diverged: str = ""
    iterations: list[int] = []
    losses: list[float | None] = []
    accuracies: list[float | None] = []
    round_trips: list[int] = []
    costs: Costs | None = None

    def add(self, iteration: int, loss: float, accuracy: float | None, round_trips: int) -> None:
        self.iterations.append(iteration)
        self.losses.append(loss if math.isfinite(loss) else None)
        self.accuracies.append(accuracy)
        self.round_trips.append(round_trips)

    def reaches(self, target: Target) -> bool:
        """Whether it goes as far as is wanted, or as it can."""
        if self.ended:
            return True
        if self.costs is None or self.length < target.iterations:
            return False
        return self.length * self.costs.seconds() >= target.seconds


class _Enough(Exception):
    """All that was wanted of a run is known."""


def run(
    case: Case,
    target: Target,
    *,
    folder: Path | None = None,
    progress: Progress = lambda iteration, length: None,
) -> Curve:
    """Run a case, and follow P and the accuracy.

    Parameters
    ----------
    folder
        Where the run saves itself, to go on from there; None: nowhere.
    """
    ground = ground_of(case.data, case.setting, unit_rows=case.method == "unit", seed=case.seed)
    if case.method == "auto":
        return _certified(case, ground, progress)
    return _Course(case, ground, target, folder, progress).run()


def measure(case: Case) -> Costs:
    """What an iteration of a case costs, from its first ones."""
    ground = ground_of(case.data, case.setting, unit_rows=case.method == "unit", seed=case.seed)
    federation = _federation(ground)
    scale = Scale(federation)

    def weigh(record: Record) -> None:
        scale.weigh()
        if scale.counted >= _COUNTED:
            raise _Enough
        scale.go_on()

    with suppress(_Enough):
        federation.train(_settings(case, ground), progress=weigh, through=scale.watch)
    return scale.costs()


def _federation(ground: Ground, store: Path | None = None) -> Federation:
    return Federation(ground.split.parties, Preparation(overlap=ground.split.overlap), store=store)


def _settings(case: Case, ground: Ground) -> Settings:
    # The same however long it goes on, so that a longer run can take up a shorter one.
    return case.settings(ground.lam, _UNLIMITED, "pad" if case.encrypts else "plain")


class _Course:
    """A run of which P is evaluated as it goes on."""

    def __init__(
        self, case: Case, ground: Ground, target: Target, folder: Path | None, progress: Progress
    ) -> None:
        self._case, self._ground, self._target = case, ground, target
        self._progress = progress
        self._stride = max(1, round(target.iterations / _POINTS))
        self._next = self._stride
        self._curve = Curve()
        self._saving: Checkpointing | None = None
        # What FedAvg's parties added last is not saved, and so could not be followed.
        if folder is not None and case.encrypts:
            self._take_up(folder)
        self._federation = _federation(ground, None if self._saving is None else folder)
        self._scale = Scale(self._federation)
        self._follower: Follower | None = None

    def run(self) -> Curve:
        settings, curve = _settings(self._case, self._ground), self._curve
        scale = self._scale
        try:
            self._federation.train(
                settings,
                progress=self._follow,
                checkpointing=self._saving,
                through=scale.watch,
            )
        except _Enough:
            pass
        except ProtocolError as error:
            # Steps of the paper's may be too long for the data here: that is a result.
            if "grow without end" not in str(error):
                raise
            curve.ended = True
            curve.diverged = f"the weights grew without end after iteration {curve.length}"
        curve.costs = scale.costs()
        return curve

    def _follow(self, record: Record) -> None:
        curve, saving = self._curve, self._saving
        curve.length = record.iteration
        self._scale.weigh()
        if record.iteration >= self._next:
            self._evaluate(record)
        saves = saving is not None and record.iteration % saving.every == 0
        if saving is not None and saves:
            # Just before the run saves itself: what it then repeats is known already.
            _save(saving.folder, curve)
        self._scale.go_on(skip=saves)

    def _evaluate(self, record: Record) -> None:
        curve, target = self._curve, self._target
        if self._follower is None:
            self._follower = Follower(self._federation.parties, self._ground.features, bias=False)
        w = self._follower.weights()
        loss, accuracy = self._ground.problem.primal(w), self._ground.accuracy(w)
        curve.add(record.iteration, loss, accuracy, record.round_trips)
        each = self._scale.seconds()
        length = max(target.iterations, math.ceil(target.seconds / each))
        self._progress(record.iteration, length)
        if record.iteration >= length:
            raise _Enough
        self._next = self._after(record.iteration)

    def _after(self, iteration: int) -> int:
        """The next iteration to look at: evenly spaced, and then further and further apart."""
        equal = self._target.iterations
        if iteration < equal:
            return min(iteration + self._stride, equal)
        return max(iteration + self._stride, math.ceil(iteration * _GROWTH))

    def _take_up(self, folder: Path) -> None:
        """Go on with a run that saved itself, if there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "curve.json"
        resume = path.is_file() and (folder / CHECKPOINT).is_file()
        if resume:
            self._curve = msgspec.json.decode(path.read_bytes(), type=Curve)
            self._next = self._after(self._curve.iterations[-1])
        self._saving = Checkpointing(folder, self._case.save_every, resume)


def _save(folder: Path, curve: Curve) -> None:
    draft = folder / "curve.draft"
    draft.write_bytes(msgspec.json.encode(curve))
    draft.replace(folder / "curve.json")


def _certified(case: Case, ground: Ground, progress: Progress) -> Curve:
    """A run of the solver that Weft chooses: P where it is certified, the accuracy at its end."""
    curve, federation = Curve(ended=True), _federation(ground)
    scale = Scale(federation)

    def follow(record: Record) -> None:
        scale.weigh()
        curve.length = record.iteration
        if record.primal is not None:
            curve.add(record.iteration, record.primal, None, record.round_trips)
        progress(record.iteration, _AUTO_ITERATIONS)
        scale.go_on()

    settings = case.settings(ground.lam, None, "pad")
    trained = federation.train(settings, progress=follow, through=scale.watch)
    w = _weights(trained.model, ground)
    last = trained.result.history[-1]
    curve.add(last.iteration, ground.problem.primal(w), ground.accuracy(w), last.round_trips)
    curve.costs = scale.costs()
    return curve


def _weights(model: Model, ground: Ground) -> Floats:
    """Of the pooled table's columns; those that no party holds have none."""
    index = pd.Index(normal_features(model.features))
    places = index.get_indexer(pd.Index(normal_features(ground.features)))
    return np.where((places >= 0)[:, None], model.coef.T[places], 0.0)
