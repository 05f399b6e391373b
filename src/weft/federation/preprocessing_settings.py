"""How the parties' tables become one problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from weft.errors import ConfigError
from weft.guards.privacy_terms import Matching
from weft.matching.overlap_rule import Overlap
from weft.sums.column_scaling_rules import Rule

#: What two parties may do differently without meaning to.
Slip: TypeAlias = Literal["names", "ids", "labels", "units", "levels"]
#: Parties that were cut from one table have its names, ids and labels: whatever differs is meant.
ONE_TABLE: tuple[Slip, ...] = get_args(Slip)


class SampleColumns(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What is said of samples beside their features: columns that are no features, and sites.

    Attributes
    ----------
    offset
        What is added to the score of a sample, with a coefficient of one.
    exposure
        The same, of which the logarithm is added: person-years, insured time.
    weight
        How many times a sample's loss counts.
    reference_site
        A party; samples of every other one that has labels get an intercept of their own, beside
        that of the model, which is this party's. None: sites have none.
    """

    offset: str | None = None
    exposure: str | None = None
    weight: str | None = None
    reference_site: str | None = None

    def __post_init__(self) -> None:
        if self.offset is not None and self.exposure is not None:
            raise ConfigError(
                "names an offset and an exposure, whose logarithm is an offset; keep one of them"
            )

    @property
    def named(self) -> tuple[str, ...]:
        """All columns that are named."""
        return tuple(name for name in self.columns.values() if name is not None)

    def column_of(self, said: Literal["offset", "weight"]) -> str | None:
        """The column that says it; None: none does."""
        if said == "weight":
            return self.weight
        return self.exposure if self.offset is None else self.offset

    @property
    def columns(self) -> dict[str, str | None]:
        """Columns by what they say."""
        return {"offset": self.offset, "exposure": self.exposure, "weight": self.weight}


class TableSettings(SampleColumns, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Scaling and blank cells, as configs, estimators and runs have them.

    Attributes
    ----------
    intercept_scaling
        The value of the constant column, where there is one.
    scaling, unit_rows
        Federated scaling of features; then all rows by one constant so that ‖x_i‖ ≤ 1.
    missing
        A blank cell in a tile: ``error``, ``zero`` or ``mean`` (needs a centring scaling).
    confirm_separate_ids
        Parties with different features whose ids never meet are meant to be so.
    confirmed
        What looks like a slip between parties and is meant: ``names`` or ``ids`` that differ in
        their writing only, vocabularies of ``labels``, columns in other ``units``, ``levels`` of a
        category that differ in their writing only.
    """

    intercept_scaling: float = 1.0
    scaling: Rule = "none"
    unit_rows: bool = False
    missing: Literal["error", "zero", "mean"] = "error"
    confirm_separate_ids: bool = False
    confirmed: tuple[Slip, ...] = ()

    @property
    def sample_columns(self) -> SampleColumns:
        """Columns that are no features."""
        return SampleColumns(**self.columns, reference_site=self.reference_site)


class Preprocessing(TableSettings, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How the parties' tables become one problem.

    Attributes
    ----------
    overlap
        A cell at several holders: ``mean``, ``first`` or ``sum`` (additive shares).
    intercept
        Whether there is a constant column.
    classes
        The class values, if agreed beforehand; else the parties with labels collect them.
    matching
        Tokens of ids from the run secret alone (``hmac``), or also through key holders (``oprf``).
    """

    overlap: Overlap = "mean"
    intercept: bool = False
    classes: Sequence[Any] | None = None
    matching: Matching = "hmac"
