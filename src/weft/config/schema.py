"""The config files as one tree: every section, its keys and their defaults."""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from weft.data.columns.column_rules import ColumnRule
from weft.data.file_or_database_address import Database
from weft.data.reading_options import ReadingOptions
from weft.errors import ConfigError
from weft.federation.preprocessing_settings import TableSettings
from weft.guards.model_noise_size import ModelNoise
from weft.guards.sum_noise_size import SumNoise
from weft.losses import get_family
from weft.matching.overlap_rule import Overlap
from weft.solvers.held_out_evaluation_settings import EvaluationSettings
from weft.solvers.run_settings import DEFAULTS, Moment
from weft.solvers.solver_settings import SolverSettings

_Seconds = Annotated[float, Meta(gt=0)]


class KeysSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[keys]``: where the parties' keys are, for all parties that share this machine."""

    folder: Annotated[str, Meta(min_length=1, examples=["keys"])]


class FederationSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[federation]``: the roster that all members have signed."""

    roster: Annotated[str, Meta(min_length=1, examples=["roster.json"])]


class NetworkSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[network]``: seconds a party has for setting a run up, and for any other phase."""

    setup: _Seconds = 600.0
    timeout: _Seconds = 60.0


class PartySection(ReadingOptions, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[[party]]``: a party's name and files; ``label = false``: it gives no labels.

    ``source`` is the address of a database in the place of files. ``policy`` names a file with what
    this party insists on, whatever the others agreed. How its files are read is in
    `ReadingOptions`.
    """

    name: Annotated[str, Meta(examples=["north"])]
    file: str | None = None
    files: list[str] | None = None
    source: str | None = None
    id: str | None = None
    label: str | bool | None = None
    features: list[str] | None = None
    policy: str | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.source is not None:
            Database(self.source)
        if not self.name.strip() or "/" in self.name or "\\" in self.name:
            raise ConfigError("needs a name with at least one letter and no slash; rename it")
        if self.label is True:
            raise ConfigError("has label = true, which says no column; name it, or say false")


class FederationFile(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What every config of a federation has, whatever it trains.

    ``[privacy]`` stays as it is written: what counts for terms that it leaves out depends on the
    roster. ``[columns.NAME]`` says what becomes of a column at all parties that have it; what a
    party says itself comes first.
    """

    name: Annotated[str, Meta(pattern=r"\S", examples=["three hospitals"])] | None = None
    privacy: dict[str, Any] = msgspec.field(default_factory=dict)
    keys: KeysSection | None = None
    federation: FederationSection | None = None
    network: NetworkSection = NetworkSection()
    columns: dict[str, ColumnRule] = msgspec.field(default_factory=dict)
    party: tuple[PartySection, ...] = ()


class DataSection(TableSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[data]``: how tables become one problem, and defaults for every party's file.

    ``dataset`` and ``split`` cut a named data set here instead of reading ``[[party]]`` files;
    ``positive`` lists the labels that count as 1, all others count as -1.
    """

    id: str = "id"
    label: str | None = None
    overlap: Overlap | None = None
    intercept: bool = True
    dataset: str | None = None
    split: dict[str, Any] | None = None
    data_dir: str | None = None
    positive: list[str | float] | None = None


class ModelSection(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[model]``: the problem P(w) = λ/2 ‖w‖² + 1/N Σ l(x_iᵀw); see `Settings`.

    ``family`` names a distribution in the place of a loss, with an intercept that has no penalty
    unless ``penalize_intercept`` says so. Of a list of ``lambda`` all are trained, and the folds
    choose one. ``second_moments`` asks for matrices beside the model, for correlations, and
    ``inference`` for standard errors, tests and intervals.
    """

    loss: str | None = None
    family: str | None = None
    weigh: Literal["samples", "parties"] = DEFAULTS["weigh"]
    loss_parameters: dict[str, float] = msgspec.field(default_factory=dict)
    lam: float | Annotated[list[float], Meta(min_length=1, examples=[[0.1, 0.01]])] = msgspec.field(
        name="lambda", default=1e-3
    )
    penalty_factors: dict[str, float] = msgspec.field(default_factory=dict)
    class_weight: dict[str, float] | Literal["balanced"] | None = None
    penalize_intercept: bool | None = None
    second_moments: tuple[Moment, ...] = ()
    inference: bool | Literal["robust", "clustered"] = False

    def __post_init__(self) -> None:
        if self.loss is not None and self.family is not None:
            raise ConfigError(
                f"names both loss = '{self.loss}' and family = '{self.family}'; a family has its "
                "own loss: keep one of them"
            )

    @property
    def named_loss(self) -> str:
        """The loss, by its name or by that of its family."""
        if self.family is not None:
            return get_family(self.family)
        return self.loss or str(DEFAULTS["loss"])

    @property
    def penalizes_intercept(self) -> bool:
        if self.penalize_intercept is not None:
            return self.penalize_intercept
        return self.family is None


class SolverSection(SolverSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[solver]``: the algorithm and when it stops; see `SolverSettings`.

    ``[solver.options]`` is what only the named algorithm reads; ``weft algorithms`` lists it.
    """

    name: str = "auto"
    checkpoint_every: Annotated[int, Meta(ge=1)] | None = None
    record: bool = False


class LinearFile(FederationFile, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A config of one linear model.

    ``[noise]`` asks for a differentially private model, ``[sum_noise]`` for noise in feature sums;
    ``[evaluation]`` says how predictions for samples that folds leave out are judged;
    ``[compare.NAME]`` is for ``weft compare``.
    """

    data: DataSection = DataSection()
    model: ModelSection = ModelSection()
    solver: SolverSection = SolverSection()
    noise: ModelNoise | None = None
    sum_noise: SumNoise | None = None
    evaluation: EvaluationSettings = EvaluationSettings()
    compare: dict[str, dict[str, Any]] = msgspec.field(default_factory=dict)
