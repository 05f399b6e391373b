"""What a run is told: the problem, the solver and when to stop."""

from __future__ import annotations

import math
from typing import Any, Literal, TypeVar

import msgspec

from weft.errors import ConfigError
from weft.guards.model_noise_size import ModelNoise
from weft.guards.sum_noise_size import SumNoise
from weft.inference.standard_error_requirements import FAMILY_NAMES, Wanted
from weft.losses import Loss, get_loss
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.solver_settings import SolverSettings
from weft.solvers.subspace.settings import GO_ON
from weft.thread_safe_decoding import prepared

#: Lets loss and participation choose the algorithm (`weft.solvers.algorithm_choice`).
AUTO = "auto"
#: How a run hides what it is about: in sums, on shares, or on shares wherever that is possible.
Mode = Literal["sums", "sealed", "auto"]
#: Matrices that readers of a sealed model can get besides: Xᵀ diag(l''(z)) X, and XᵀX.
Moment = Literal["hessian", "gram"]

Options = TypeVar("Options", bound=msgspec.Struct)


#: Solvers whose feature sums are of dual vectors, which the slope of the loss bounds.
_NOISY = ("lbfgs", "cutting-planes")


#: What stands in for λ = 0 while a run goes on.
STAND_IN = 1e-8
#: Such runs go on to this gap at least: what is proved of their last step rests on small slopes.
_GAP_OF_STAND_IN = 1e-9
#: The largest penalty factor, and one over the smallest: columns are multiplied by one over its
#: root, and no cell may run out of the range of its numbers by that, not even of float32.
MOST_PENALTY = 2.0**40
#: The smallest factor that stands in for 0: columns are multiplied by the root of its inverse.
_SMALLEST_FACTOR = 1e-3


class Settings(SolverSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of one run; every party gets the same.

    Attributes
    ----------
    loss, loss_parameters, lam
        The problem: P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw).
    penalize_intercept
        Whether λ holds the weight of the constant column back like any other. Solvers for smooth
        losses can do without: P(w, β) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw + β).
    penalty_factors
        How many times λ holds some features back, by name; others once: λ/2 Σ f_m w_m².
    class_weight
        How many times the losses of a class count, by its name; ``balanced``: as often as makes all
        classes count the same.
    weigh
        ``samples``: all samples weigh the same. ``parties``: all parties do, so that the objective
        is λ/2 ‖w‖² plus the mean over parties of their mean loss; for methods on rows.
    solver
        Name of the algorithm.
    mode
        ``sealed`` trains on shares. ``auto`` does so wherever it can do what is asked for, and
        else in sums, where the solver is left to Weft.
    latency
        Seconds of a round trip, where ``seconds`` shall not be those of the clock but modelled
        ones: the slowest party's computing and so much for every round trip.
    path
        Further values of λ, each started from the last: the solvers for full participation.
    noise
        Gaussian noise in the released model; None: it is released as it is.
    sum_noise
        Noise in feature sums, which holders of the same columns see; None: they have none.
    second_moments
        Matrices over all columns that are opened to whoever gets the model, at the end of a sealed
        run: the ``hessian`` at the released model, and the ``gram`` matrix XᵀX.
    evaluation
        What is told of the samples that folds leave out, of classifiers.
    inference
        Which standard errors whoever gets the model can compute: by the ``model``, ``robust`` or
        ``clustered`` by site; ``none``: no sums are made for them.
    without_penalty
        λ is zero: ``lam`` stands in for it while a run goes on, and readers take off what it did.
    """

    lam: float
    loss: str = "hinge"
    loss_parameters: dict[str, float] = msgspec.field(default_factory=dict)
    penalize_intercept: bool = True
    penalty_factors: dict[str, float] = msgspec.field(default_factory=dict)
    class_weight: dict[str, float] | Literal["balanced"] | None = None
    weigh: Literal["samples", "parties"] = "samples"
    solver: str = "hyfdca"
    mode: Mode = "sums"
    latency: float | None = None
    path: tuple[float, ...] = ()
    noise: ModelNoise | None = None
    sum_noise: SumNoise | None = None
    second_moments: tuple[Moment, ...] = ()
    evaluation: EvaluationSettings = EvaluationSettings()
    inference: Wanted = "none"
    without_penalty: bool = False

    def __post_init__(self) -> None:
        if self.evaluation.held_out is not None:
            self._leave_out_once()
        super().__post_init__()
        # A computed path has numpy's numbers, which do not travel.
        path = tuple(float(lam) for lam in self.path)
        msgspec.structs.force_setattr(self, "path", path)
        if self.lam == 0:
            msgspec.structs.force_setattr(self, "without_penalty", True)
            msgspec.structs.force_setattr(self, "lam", STAND_IN)
        if not 0 < self.lam < math.inf:
            raise ConfigError(
                f"lambda is {self.lam:g}, but no penalty is below zero; try 1e-3, or 0 with "
                "inference = true"
            )
        if self.latency is not None and not 0 <= self.latency < math.inf:
            raise ConfigError(f"latency is {self.latency:g}; give seconds of at least 0")
        if not all(0 < lam < math.inf for lam in self.path):
            raise ConfigError("a path of lambdas holds one that is not positive; try 1e-2, 1e-3")
        self.make_loss()
        self._check_penalty_factors()
        self._check_class_weight()
        self._check_evaluation()
        if len(set(self.second_moments)) < len(self.second_moments):
            raise ConfigError("second_moments names a matrix twice; name each once")
        if self.inference != "none":
            self._check_inference()
        if self.frees_weights:
            self._check_free_weights()
            gap = min(_GAP_OF_STAND_IN, math.inf if self.gap is None else self.gap)
            msgspec.structs.force_setattr(self, "gap", gap)
        if self.when_missing == GO_ON and not self.may_hand_over:
            raise ConfigError(
                "HyFDCA, which stands in for a missing party, penalises the intercept and takes "
                "losses of one class with a bounded slope or curvature only; set when_missing = "
                "'stop'"
            )
        if not self.penalize_intercept:
            self._check_free_intercept()
        if self.noise is not None:
            self._check_noise()
        if self.sum_noise is not None:
            self._check_sum_noise()

    @property
    def _fewest_folds(self) -> int:
        return 2 if self.evaluation.held_out is None else 1

    def _leave_out_once(self) -> None:
        """A share that is held out is one fold, of that size."""
        if self.folds > 1:
            raise ConfigError(
                f"folds = {self.folds} leaves every sample out once, and held_out = "
                f"{self.evaluation.held_out:g} a share of them; keep one of the two"
            )
        msgspec.structs.force_setattr(self, "folds", 1)

    def _check_inference(self) -> None:
        """Refuse standard errors of what is no likelihood, or not of the samples alone."""
        if self.make_loss().joint and self.inference != "model":
            raise ConfigError(
                f"inference = '{self.inference}' of a multinomial model is not made; set "
                "inference = true, or train family 'binomial' on two classes (positive = [...] in "
                "[data])"
            )
        if self.loss not in FAMILY_NAMES:
            raise ConfigError(
                f"inference is for models of a family, but loss '{self.loss}' has no likelihood; "
                f"choose one of {', '.join(FAMILY_NAMES.values())}, or leave inference out"
            )
        if self.noise is not None or self.sum_noise is not None:
            raise ConfigError("inference of a model with noise is not done; leave one of them out")
        if self.weigh != "samples":
            raise ConfigError("inference needs weigh = 'samples', so that samples weigh the same")

    @property
    def frees_weights(self) -> bool:
        """Whether some weights beside the intercept have no penalty."""
        return self.without_penalty or 0.0 in self.penalty_factors.values()

    @property
    def trained_factors(self) -> dict[str, float]:
        """Penalty factors while a run goes on: of weights without a penalty, small ones."""
        small = min(1.0, max(_SMALLEST_FACTOR, STAND_IN / self.lam))
        return {name: factor or small for name, factor in self.penalty_factors.items()}

    def _check_free_weights(self) -> None:
        """Refuse weights without a penalty where nothing proves that they have an optimum."""
        what = "lambda = 0" if self.without_penalty else "a penalty factor of 0"
        if self.inference == "none":
            raise ConfigError(
                f"{what} is proved by the Hessian, which is opened for standard errors alone; set "
                "inference = true too, or take a small one such as 1e-6"
            )
        if self.mode != "sums" or self.folds or self.path:
            raise ConfigError(
                f"{what} is proved at the end of a run in sums, for one model; leave out mode, "
                "folds and further lambdas, or take a small one such as 1e-6"
            )

    @property
    def opens_matrices(self) -> bool:
        """Whether readers of the model get sums over all columns besides."""
        return bool(self.second_moments) or self.inference != "none"

    def _check_penalty_factors(self) -> None:
        for name, factor in self.penalty_factors.items():
            if not 0 <= factor < math.inf:
                raise ConfigError(
                    f"the penalty factor of '{name}' is {factor:g}; give a number of 0 or above"
                )
            if factor and not 1 / MOST_PENALTY <= factor <= MOST_PENALTY:
                raise ConfigError(
                    f"the penalty factor of '{name}' is {factor:g}; give 0, or a number from "
                    f"{1 / MOST_PENALTY:.2g} to {MOST_PENALTY:.2g}"
                )
        if self.penalty_factors and (self.noise is not None or self.sum_noise is not None):
            raise ConfigError(
                "noise is made for columns as they are, not for penalty_factors, which scale "
                "them; leave these out"
            )

    def _check_class_weight(self) -> None:
        if self.class_weight is None:
            return
        if self.make_loss().task != "classification":
            raise ConfigError(
                f"class_weight is for classes, but loss '{self.loss}' has responses; leave it out"
            )
        if isinstance(self.class_weight, dict):
            for name, weight in self.class_weight.items():
                if not 0 < weight < math.inf:
                    raise ConfigError(
                        f"the weight of class '{name}' is {weight:g}; give a number above 0"
                    )
        if self.noise is not None or self.sum_noise is not None:
            raise ConfigError("noise is made for samples that weigh the same; drop class_weight")

    def _check_evaluation(self) -> None:
        sorts = self.make_loss().task == "classification"
        if self.scoring in ("accuracy", "auc") and not sorts:
            raise ConfigError(
                f"scoring = '{self.scoring}' is for classes, but loss '{self.loss}' has responses; "
                "use 'loss', or leave it out"
            )
        if self.evaluation == EvaluationSettings(held_out=self.evaluation.held_out):
            return
        if not (self.folds and sorts):
            raise ConfigError(
                "[evaluation] is about samples of classes that are left out; set folds = 5, or "
                "held_out = 0.2, and a loss for classes, or leave the section out"
            )

    @property
    def evaluates(self) -> bool:
        """Whether counts of held-out scores are told at the end."""
        return bool(self.folds) and self.make_loss().task == "classification"

    @property
    def largest_class_weight(self) -> float:
        """The largest weight of a class; 1 where none is given."""
        known = self.class_weight if isinstance(self.class_weight, dict) else {}
        return max(1.0, *known.values()) if known else 1.0

    @property
    def may_weigh(self) -> bool:
        """Whether samples may have weights and offsets beside these settings."""
        noisy = self.noise is not None or self.sum_noise is not None
        return self.weigh == "samples" and self.when_missing != GO_ON and not noisy

    def _check_free_intercept(self) -> None:
        """Refuse a free intercept where something rests on λ holding all weights back."""
        if self.noise is not None or self.sum_noise is not None:
            raise ConfigError(
                "noise is made for models all of whose weights lambda holds back; set "
                "penalize_intercept = true, or train without noise"
            )

    @property
    def may_hand_over(self) -> bool:
        """Whether HyFDCA can train this problem."""
        loss = self.make_loss()
        return self.penalize_intercept and loss.bounded and not loss.joint

    @property
    def all_take_part(self) -> bool:
        """Whether everyone takes part in every iteration."""
        return self.participation in ("everyone", 1)

    def frees_intercept(self, has_one: bool) -> bool:
        """Whether there is an intercept that λ does not hold back."""
        return has_one and not self.penalize_intercept

    def _check_sum_noise(self) -> None:
        """Refuse noise in sums where nothing bounds by how much one sample can move them."""
        loss = self.make_loss()
        if loss.task != "classification" or loss.joint or not math.isfinite(loss.lipschitz):
            raise ConfigError(
                "sum_noise needs a loss of single classes whose slope is bounded, unlike "
                f"'{loss.name}'; use hinge, smoothed_hinge or logistic"
            )
        if self.solver not in ("auto", *_NOISY) or self.hands_over:
            raise ConfigError(
                f"sum_noise is for {' and '.join(_NOISY)} without a stand-in; name one of them in "
                "[solver], with everyone in every round and when_missing = 'stop'"
            )
        if self.weigh != "samples":
            raise ConfigError("sum_noise needs weigh = 'samples', so that one sample weighs 1/N")

    def _check_noise(self) -> None:
        """Refuse noise where nothing bounds by how much one sample can move the model."""
        loss = self.make_loss()
        if loss.task != "classification" or loss.joint or not math.isfinite(loss.lipschitz):
            raise ConfigError(
                "noise needs a loss of single classes whose slope is bounded, unlike "
                f"'{loss.name}'; use hinge, smoothed_hinge or logistic"
            )
        if self.gap is None:
            raise ConfigError("noise is made for a certified gap, but gap is not set; try 1e-6")
        if self.folds or self.path:
            raise ConfigError(
                "noise covers one model, not the choice among several; give one lambda and no folds"
            )
        if self.weigh != "samples":
            raise ConfigError("noise needs weigh = 'samples', so that one sample weighs 1/N")
        if self.coordinator_sees != "nothing":
            raise ConfigError(
                f"coordinator_sees = '{self.coordinator_sees}' shows the weights without noise; "
                "use 'nothing'"
            )

    @property
    def lambdas(self) -> tuple[float, ...]:
        """All values of λ, the largest first: each is a good start for the next."""
        return tuple(sorted({self.lam, *self.path}, reverse=True))

    @property
    def smallest_lam(self) -> float:
        """The smallest λ that any problem of the run has, which a fold makes smaller yet."""
        return min(self.lambdas) * (0.25 if self.folds else 1.0)

    def read_options(self, kind: type[Options]) -> Options:
        """The options as the algorithm knows them."""
        try:
            return msgspec.convert(self.options, prepared(kind))
        except msgspec.ValidationError as error:
            known = ", ".join(field.name for field in msgspec.structs.fields(kind)) or "none"
            raise ConfigError(
                f"the options of solver '{self.solver}' do not fit ({error}); it knows {known}"
            ) from None

    def make_loss(self) -> Loss:
        return get_loss(self.loss, **self.loss_parameters)

    def to_json(self) -> str:
        return msgspec.json.encode(self).decode()

    @classmethod
    def from_json(cls, text: str) -> Settings:
        return msgspec.json.decode(text, type=prepared(cls))


#: Every default, for those who offer the settings elsewhere: configs, estimators, comparisons.
DEFAULTS: dict[str, Any] = {
    field.name: {} if field.default_factory is dict else field.default
    for field in msgspec.structs.fields(Settings)
}
