"""How the parties' tables become one problem."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, get_args

import msgspec

from weft.guards.terms import Matching
from weft.matching.holding_map import Overlap
from weft.sums.feature_scaling import Rule

#: What two parties may do differently without meaning to.
Slip: TypeAlias = Literal["names", "ids", "labels", "units", "levels"]
#: Parties that were cut from one table have its names, ids and labels: whatever differs is meant.
ONE_TABLE: tuple[Slip, ...] = get_args(Slip)


class TableSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
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
