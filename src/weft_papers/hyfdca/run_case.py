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

from weft import __version__
from weft.array_types import Floats
from weft.errors import ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.model import Model
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.matching.id_normalization import normal_features
from weft.solvers.base import Checkpointing, Record
from weft.solvers.checkpoints import NAME as CHECKPOINT
from weft.solvers.checkpoints import checkpoint_iteration
from weft.solvers.settings import Settings
from weft_evaluation.model_tracking import Follower
from weft_papers.hyfdca.cases import Case, Target
from weft_papers.hyfdca.evaluation_points import Points
from weft_papers.hyfdca.measure_iteration_cost import CostMeter, Costs
from weft_papers.hyfdca.setting_data import SettingData, setting_data
from weft_papers.run_files import read_file

#: Told the iteration, and how many there will be.
Progress = Callable[[int, int], None]

#: More iterations than any run makes.
_UNLIMITED = 10**9
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
    settings, weft
        What was run, by which version.
    """

    length: int = 0
    ended: bool = False
    diverged: str = ""
    iterations: list[int] = []
    losses: list[float | None] = []
    accuracies: list[float | None] = []
    round_trips: list[int] = []
    costs: Costs | None = None
    settings: str = ""
    weft: str = __version__

    def add(self, iteration: int, loss: float, accuracy: float | None, round_trips: int) -> None:
        self.iterations.append(iteration)
        self.losses.append(loss if math.isfinite(loss) else None)
        self.accuracies.append(accuracy)
        self.round_trips.append(round_trips)

    def reaches(self, case: Case, target: Target, alone: Costs | None = None) -> bool:
        """Whether it goes as far as is wanted, or as it can, under the case's settings.

        Parameters
        ----------
        alone
            What an iteration costs, where that was measured apart.
        """
        costs = alone or self.costs
        if self.settings != settings_of(case):
            return False
        if self.ended:
            return True
        if costs is None or self.length < target.iterations:
            return False
        # A little less: costs are only known at the end of a run.
        return self.length * costs.seconds() >= 0.98 * target.seconds


class _Enough(Exception):
    """All that was wanted of a run is known."""


def run(
    case: Case,
    target: Target,
    *,
    folder: Path | None = None,
    costs: Costs | None = None,
    progress: Progress = lambda iteration, length: None,
) -> Curve:
    """Run a case, and follow P and the accuracy.

    Parameters
    ----------
    folder
        Where the run saves itself, to go on from there; None: nowhere.
    costs
        What an iteration costs, where that was measured apart; None: as it does here.
    """
    data = setting_data(case.data, case.setting, unit_rows=case.method == "unit", seed=case.seed)
    if case.method == "auto":
        return _certified(case, data, progress)
    return _FollowedRun(case, data, target, folder, costs, progress).run()


def measure(case: Case) -> Costs | None:
    """What an iteration of a case costs, from its first ones; None: it diverges before."""
    data = setting_data(case.data, case.setting, unit_rows=case.method == "unit", seed=case.seed)
    federation = _federation(data)
    meter = CostMeter(federation)

    def follow(record: Record) -> None:
        meter.end_iteration()
        if meter.counted >= _COUNTED:
            raise _Enough
        meter.begin_iteration()

    with suppress(_Enough, ProtocolError):
        federation.train(_settings(case, data.lam), progress=follow, through=meter.watch)
    return meter.costs()


def settings_of(case: Case) -> str:
    """What a case is run with, but for λ in other units; a change of it is another run."""
    return _settings(case, case.paper.lam).to_json()


def _federation(data: SettingData, store: Path | None = None) -> Federation:
    how = Preprocessing(overlap=data.split.overlap, confirmed=ONE_TABLE)
    return Federation(data.split.parties, how, store=store)


def _settings(case: Case, lam: float) -> Settings:
    # The same however long it goes on, so that a longer run can take up a shorter one.
    return case.settings(lam, _UNLIMITED, "pad" if case.encrypts else "plain")


class _FollowedRun:
    """A run of which P is evaluated as it goes on."""

    def __init__(
        self,
        case: Case,
        data: SettingData,
        target: Target,
        folder: Path | None,
        costs: Costs | None,
        progress: Progress,
    ) -> None:
        self._case, self._data, self._costs = case, data, costs
        self._progress = progress
        self._points = Points(target)
        self._curve = Curve(settings=settings_of(case))
        self._saving: Checkpointing | None = None
        # What FedAvg's parties added last is not saved, and so could not be followed.
        if folder is not None and case.encrypts:
            self._take_up(folder)
        self._federation = _federation(data, None if self._saving is None else folder)
        self._meter = CostMeter(self._federation)
        self._follower: Follower | None = None
        known = self._curve.iterations
        self._next = self._points.after(known[-1] if known else 0, self._each)

    @property
    def _each(self) -> float:
        """Modelled seconds of an iteration, as far as is known."""
        return self._meter.seconds() if self._costs is None else self._costs.seconds()

    def run(self) -> Curve:
        settings, curve = _settings(self._case, self._data.lam), self._curve
        meter = self._meter
        try:
            self._federation.train(
                settings,
                progress=self._follow,
                checkpointing=self._saving,
                through=meter.watch,
            )
        except _Enough:
            pass
        except ProtocolError as error:
            # Steps of the paper's may be too long for the data here: that is a result.
            if "grow without end" not in str(error):
                raise
            curve.ended = True
            curve.diverged = f"the weights grew without end after iteration {curve.length}"
        curve.costs = meter.costs()
        return curve

    def _follow(self, record: Record) -> None:
        curve, saving = self._curve, self._saving
        curve.length = record.iteration
        self._meter.end_iteration()
        if record.iteration >= self._next:
            self._evaluate(record)
        saves = saving is not None and record.iteration % saving.every == 0
        if saving is not None and saves:
            # Just before the run saves itself: what it then repeats is known already.
            _save(saving.folder, curve)
        self._meter.begin_iteration(skip=saves)

    def _evaluate(self, record: Record) -> None:
        curve, points = self._curve, self._points
        if self._follower is None:
            self._follower = Follower(self._federation.parties, self._data.features, bias=False)
        w = self._follower.weights()
        loss, accuracy = self._data.problem.primal(w), self._data.accuracy(w)
        curve.add(record.iteration, loss, accuracy, record.round_trips)
        length = points.length(self._each)
        self._progress(record.iteration, length)
        if record.iteration >= length:
            raise _Enough
        self._next = points.after(record.iteration, self._each)

    def _take_up(self, folder: Path) -> None:
        """Go on with a run that saved itself, if there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        saved, resume = read_file(folder / "curve.json", Curve), False
        if saved is not None and (folder / CHECKPOINT).is_file():
            # The curve is kept first: one that is behind does not belong to the checkpoint.
            resume = saved.settings == self._curve.settings
            resume = resume and saved.length >= checkpoint_iteration(folder)
            self._curve = saved if resume else self._curve
        self._saving = Checkpointing(folder, self._case.save_every, resume)


def _save(folder: Path, curve: Curve) -> None:
    draft = folder / "curve.draft"
    draft.write_bytes(msgspec.json.encode(curve))
    draft.replace(folder / "curve.json")


def _certified(case: Case, data: SettingData, progress: Progress) -> Curve:
    """A run of the solver that Weft chooses: P where it is certified, the accuracy at its end."""
    curve, federation = Curve(ended=True, settings=settings_of(case)), _federation(data)
    meter = CostMeter(federation)

    def follow(record: Record) -> None:
        meter.end_iteration()
        curve.length = record.iteration
        if record.primal is not None:
            curve.add(record.iteration, record.primal, None, record.round_trips)
        progress(record.iteration, _AUTO_ITERATIONS)
        meter.begin_iteration()

    settings = case.settings(data.lam, None, "pad")
    trained = federation.train(settings, progress=follow, through=meter.watch)
    w = _weights(trained.model, data)
    last = trained.result.history[-1]
    curve.add(last.iteration, data.problem.primal(w), data.accuracy(w), last.round_trips)
    curve.costs = meter.costs()
    return curve


def _weights(model: Model, data: SettingData) -> Floats:
    """Of the pooled table's columns; those that no party holds have none."""
    index = pd.Index(normal_features(model.features))
    places = index.get_indexer(pd.Index(normal_features(data.features)))
    return np.where((places >= 0)[:, None], model.coef.T[places], 0.0)
