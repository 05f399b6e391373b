"""One case, run: how near to the optimum its iterations come, and what an iteration costs.

How P falls is found by replays of the library's runs, which come to the same bits; what an
iteration costs, by a short run of the library itself. There HyFDCA runs under encryption, and what
that takes is measured; FedAvg and HyFEM send weights in the clear, as in the paper.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from contextlib import suppress
from functools import lru_cache
from pathlib import Path

import msgspec
import numpy as np
import pandas as pd

from weft import __version__
from weft.array_types import Floats
from weft.errors import ConfigError, ProtocolError
from weft.federation.local_federation import Federation
from weft.federation.model import Model
from weft.federation.preprocessing_settings import ONE_TABLE, Preprocessing
from weft.matching.id_and_name_forms import normal_features
from weft.solvers.solver_interfaces_and_results import Record
from weft.storage.atomic_files import replacing
from weft_evaluation.assemble_weights_from_parties import Follower
from weft_papers.hyfdca.cases import Case, Method, Target
from weft_papers.hyfdca.equal_time_rules import ends_of
from weft_papers.hyfdca.evaluation_points import Points
from weft_papers.hyfdca.fedavg_and_hyfem_without_messages import ReplayedAveraging
from weft_papers.hyfdca.hyfdca_without_messages import ReplayedHyfdca
from weft_papers.hyfdca.measure_iteration_cost import CostMeter, Costs, settling
from weft_papers.hyfdca.paper import BASELINES
from weft_papers.hyfdca.parties_ready_for_replay import MatchedParties
from weft_papers.hyfdca.setting_data import SettingData, setting_data

#: Told the iteration, and how many there will be.
Progress = Callable[[int, int], None]

#: More iterations than any run makes.
_UNLIMITED = 10**9
#: About how many iterations the solver takes that Weft chooses.
_AUTO_ITERATIONS = 50
#: Settings that say which run it is.
_TELLING = ("solver", "local", "iic", "participation", "options", "certify_every", "lam", "seed")
_LOCAL_METHODS: tuple[Method, Method] = ("hyfdca", "safe")
#: File of a run that is not finished.
_STATE = "state.npz"


class Curve(msgspec.Struct, forbid_unknown_fields=True):
    """How a run went.

    Attributes
    ----------
    iterations, losses, accuracies
        P and accuracy on samples held out, after some of the iterations; None: not finite, not
        known.
    length
        Iterations run.
    ended
        Whether it ended by itself: it has come where it should, or it diverged.
    diverged
        How, in words; empty: it did not.
    costs
        What an iteration took, where the run went through the library's messages.
    settings, weft
        What was run, by which version.
    """

    length: int = 0
    ended: bool = False
    diverged: str = ""
    iterations: list[int] = []
    losses: list[float | None] = []
    accuracies: list[float | None] = []
    costs: Costs | None = None
    settings: str = ""
    weft: str = __version__

    def add(self, iteration: int, loss: float, accuracy: float | None) -> None:
        self.iterations.append(iteration)
        self.losses.append(loss if math.isfinite(loss) else None)
        self.accuracies.append(accuracy)

    def reaches(self, case: Case, target: Target, costs: Costs | None = None) -> bool:
        """Whether it goes as far as is wanted, or as it can, under the case's settings.

        Parameters
        ----------
        costs
            What an iteration costs, which says how far equal time is.
        """
        if self.settings != settings_of(case):
            return False
        return self.ended or self.length >= Points([*ends_of(case, target, costs)]).length


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
        What an iteration costs, which says how far equal time is; None: not known.
    """
    data = setting_data(case.data, case.setting, unit_rows=case.method == "unit", seed=case.seed)
    if case.method == "auto":
        return _certified(case, data, progress)
    points = Points([*ends_of(case, target, costs)])
    return _FollowedRun(case, data, points, folder, progress).run()


def measure(case: Case) -> Costs | None:
    """What an iteration of a case costs when its run has settled; None: it diverges before."""
    data = setting_data(case.data, case.setting, unit_rows=case.method == "unit", seed=case.seed)
    federation = _federation(data)
    meter = CostMeter(federation, settling(case.setting.count, case.setting.fraction))

    def follow(record: Record) -> None:
        meter.end_iteration()
        if meter.enough:
            raise _Enough
        meter.begin_iteration()

    settings = case.settings(data.lam, _UNLIMITED, "pad" if case.encrypts else "plain")
    with suppress(_Enough, ProtocolError):
        federation.train(settings, progress=follow, through=meter.watch)
    return meter.costs()


def settings_of(case: Case) -> str:
    """What a case is run with, but for λ in other units; a change of it is another run.

    Only what the case says: settings that Weft gets later leave finished runs as they are.
    """
    settings = case.settings(case.paper.lam, _UNLIMITED)
    told = {name: getattr(settings, name) for name in _TELLING}
    return msgspec.json.encode(told).decode()


def _federation(data: SettingData) -> Federation:
    how = Preprocessing(overlap=data.split.overlap, confirmed=ONE_TABLE)
    return Federation(data.split.parties, how)


@lru_cache(maxsize=1)
def _matched(name: str, number: int, unit_rows: bool, seed: int) -> MatchedParties:
    """The parties of a setting; the last ones are kept, for the next method."""
    practical, safe = (Case(name, number, method, seed) for method in _LOCAL_METHODS)
    data = setting_data(name, safe.setting, unit_rows=unit_rows, seed=seed)
    settings = [case.settings(data.lam, _UNLIMITED, "plain") for case in (practical, safe)]
    return MatchedParties(data, *settings)


class _FollowedRun:
    """A replay of which P is evaluated as it goes on; it saves itself, where it has a folder."""

    def __init__(
        self,
        case: Case,
        data: SettingData,
        points: Points,
        folder: Path | None,
        progress: Progress,
    ) -> None:
        self._case, self._data, self._points = case, data, points
        self._folder, self._progress = folder, progress
        self._curve = Curve(settings=settings_of(case))
        matched = _matched(case.data, case.number, case.method == "unit", case.seed)
        # Bits are the same under every cipher.
        seated = matched.seat(case.settings(data.lam, _UNLIMITED, "plain"))
        averages = case.method in BASELINES
        self._replay = ReplayedAveraging(seated) if averages else ReplayedHyfdca(seated)
        parties, halves = matched.federation.parties, seated.halves
        self._follower = Follower(parties, data.features, bias=False, halves=halves)
        if folder is not None:
            self._take_up(folder)

    def run(self) -> Curve:
        curve, points = self._curve, self._points
        known = curve.iterations
        following = points.after(known[-1] if known else 0)
        try:
            while curve.length < points.length:
                saved = self._case.save_every * (curve.length // self._case.save_every + 1)
                self._advance(min(following, saved, points.length))
                if curve.length >= following:
                    self._evaluate()
                    following = points.after(curve.length)
                if self._folder is not None and curve.length == saved:
                    self._save(self._folder)
        except (ConfigError, ProtocolError) as error:
            # Steps of the paper's may be too long for the data here: that is a result.
            if "grow without end" not in str(error):
                raise
            curve.ended = True
            curve.diverged = f"the weights grew without end after iteration {curve.length}"
        return curve

    def _advance(self, last: int) -> None:
        try:
            self._replay.advance(last)
        finally:
            self._curve.length = self._replay.completed

    def _evaluate(self) -> None:
        w, curve = self._follower.weights(), self._curve
        curve.add(curve.length, self._data.problem.primal(w), self._data.accuracy(w))
        self._progress(curve.length, self._points.length)

    def _save(self, folder: Path) -> None:
        """The curve and the state in one file, written whole or not at all."""
        told = np.frombuffer(msgspec.json.encode(self._curve), np.uint8)
        with replacing(folder / _STATE) as draft, draft.open("wb") as file:
            np.savez(file, allow_pickle=False, curve=told, **self._replay.state())

    def _take_up(self, folder: Path) -> None:
        """Go on with a run that saved itself, if there is one."""
        folder.mkdir(parents=True, exist_ok=True)
        if not (folder / _STATE).is_file():
            return
        with np.load(folder / _STATE, allow_pickle=False) as saved:
            curve = msgspec.json.decode(saved["curve"].tobytes(), type=Curve)
            if curve.settings == self._curve.settings:
                self._curve = curve
                self._replay.restore({name: saved[name] for name in saved.files}, curve.length)


def _certified(case: Case, data: SettingData, progress: Progress) -> Curve:
    """A run of the solver that Weft chooses: P where it is certified, the accuracy at its end."""
    curve, federation = Curve(ended=True, settings=settings_of(case)), _federation(data)
    meter = CostMeter(federation)

    def follow(record: Record) -> None:
        meter.end_iteration()
        curve.length = record.iteration
        if record.primal is not None:
            curve.add(record.iteration, record.primal, None)
        progress(record.iteration, _AUTO_ITERATIONS)
        meter.begin_iteration()

    settings = case.settings(data.lam, None, "pad")
    trained = federation.train(settings, progress=follow, through=meter.watch)
    w = _weights(trained.model, data)
    last = trained.result.history[-1]
    curve.add(last.iteration, data.problem.primal(w), data.accuracy(w))
    curve.costs = meter.costs()
    return curve


def _weights(model: Model, data: SettingData) -> Floats:
    """Of the pooled table's columns; those that no party holds have none."""
    index = pd.Index(normal_features(model.features))
    places = index.get_indexer(pd.Index(normal_features(data.features)))
    return np.where((places >= 0)[:, None], model.coef.T[places], 0.0)
