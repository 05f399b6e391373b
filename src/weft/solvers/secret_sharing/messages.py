"""Messages of sealed training.

Openings are words modulo 2^64 that are uniform to whoever lacks one party's seed, and travel under
pads that the coordinator lacks besides. What the dealer, who is the coordinator, sends is one share
of what it deals; the other shares follow from seeds.
"""

from __future__ import annotations

from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.primitives.seeded_words import Words
from weft.protocol.declared_message_fields import Message, Nothing, Part
from weft.protocol.field_visibility import (
    coefficients,
    dealt,
    masked,
    numbers,
    record,
    scalars,
    totals,
)
from weft.protocol.phase_with_request_and_reply import Phase
from weft.protocol.shared_fields import SumRequest

_SHAPES = "sizes of cohorts, and who holds which"
_WIDTH = record("binary digits of what is shared", alike=True)
_OFF = numbers("how far an entry of the matrix may be off")
_PROBLEMS = record("which problems are meant", "problems", alike=True)


class SealedRequest(SumRequest):
    """A request that uses masks: worked on once, however often it is asked."""

    serial: Annotated[int, record("how many phases the parties were asked", common=True)]


class Shapes(Part):
    """Which rows and columns each party's table has, in numbers that all share."""

    row_sizes: Annotated[Ints, record(_SHAPES, "cohorts", alike=True)]
    column_sizes: Annotated[Ints, record(_SHAPES, "cohorts", alike=True)]
    row_cohorts: Annotated[Ints, record(_SHAPES, "entries", alike=True)]
    row_ends: Annotated[Ints, record(_SHAPES, "parties", alike=True)]
    column_cohorts: Annotated[Ints, record(_SHAPES, "entries", alike=True)]
    column_ends: Annotated[Ints, record(_SHAPES, "parties", alike=True)]


class BeginRequest(SealedRequest, kw_only=True):
    """``constant`` is the column whose weight λ does not hold back; −1: there is none."""

    shapes: Shapes
    constant: Annotated[int, record("the constant column, where its weight is free", alike=True)]


class BeginReply(Message):
    seed: Annotated[bytes, dealt("seed of its masks and shares")]
    bounds: Annotated[bytes, scalars("its part of bounds of the table")]


class TablesRequest(SealedRequest, kw_only=True):
    """Says how many digits everything has; asks for the table under its mask."""

    slope: Annotated[int, _WIDTH]
    cut: Annotated[int, _WIDTH]
    weighed: Annotated[bool, record("whether samples have weights", alike=True)]
    centre: Annotated[int, record("the centre of scores, as a power of two", alike=True)]


class TablesReply(Message):
    table: Annotated[Words, masked("its cells less their masks", "words")]
    weights: Annotated[
        Words | None, masked("weights of samples it counts less its masks", "words")
    ] = None


class FirstRequest(SealedRequest, kw_only=True):
    """Brings the tables of all parties; asks for slopes at w = 0."""

    tables: Annotated[Words, masked("cells of all parties less their masks", "words")]
    weights: Annotated[Words | None, masked("weights of samples less masks", "words")] = None


class SlopesReply(Message):
    """Slopes times weights, and losses times weights with them, are told under masks to be cut."""

    slopes: Annotated[Words, masked("its shares of slopes less its masks", "words")]
    losses: Annotated[bytes | None, scalars("its shares of losses, with noise")] = None
    alarms: Annotated[bytes | None, scalars("its shares of eighth powers, with noise")] = None


class HeldRequest(SealedRequest, kw_only=True):
    """Asks for slopes at w = 0 of the rows that folds leave out."""


class VectorRequest(SealedRequest, kw_only=True):
    """Brings slopes less masks; asks for Xᵀα."""

    problems: Annotated[Ints, _PROBLEMS]
    slopes: Annotated[Words, masked("slopes less masks", "words")]
    products: Annotated[Words | None, dealt("share of products of masks", "words")] = None


class VectorReply(Message):
    vector: Annotated[Words, masked("its shares of Xᵀα and its masks", "words")]


class ProductsRequest(SealedRequest, kw_only=True):
    """Brings Xᵀα and masks; asks for inner products with all vectors so far."""

    vector: Annotated[Words, masked("Xᵀα and masks", "words")]
    noise: Annotated[Ints, record("bits of noise in every product", "vectors", alike=True)]
    dealt: Annotated[Words | None, dealt("shares of masks and of their products", "words")] = None


class ProductsReply(Message):
    products: Annotated[bytes, scalars("its shares of inner products, with noise")]


class PointRequest(SealedRequest, kw_only=True):
    """Brings the coefficients of a point; asks for it under masks."""

    problems: Annotated[Ints, _PROBLEMS]
    point: Annotated[
        NDArray[np.int64], coefficients("of vectors in a point", "vectors", "problems")
    ]
    masks: Annotated[Words | None, dealt("share of masks, cut", "words")] = None


class PointReply(Message):
    point: Annotated[Words, masked("its shares of a point and its masks", "words")]


class ScoresRequest(SealedRequest, kw_only=True):
    """Brings a point under masks; asks for its scores under masks."""

    point: Annotated[Words, masked("a point and masks", "words")]


class ScoresReply(Message):
    scores: Annotated[Words, masked("its shares of scores and its masks", "words")]


class SlopesRequest(SealedRequest, kw_only=True):
    """Brings scores under masks; asks for slopes, and for losses and an alarm.

    ``period`` is that of the alarm, a power of two; zero: none is needed. Slopes are those of rows
    that a problem trains on, or of those that its fold leaves out, if ``held``.
    """

    scores: Annotated[Words, masked("scores and masks", "words")]
    series: Annotated[int, record("which series the slope is", alike=True)]
    period: Annotated[int, record("period of the alarm", alike=True)]
    held: Annotated[bool, record("whether slopes are of what folds leave out", alike=True)]
    dealt: Annotated[Words | None, dealt("share of sines and cosines of masks", "words")] = None


class WeighRequest(SealedRequest, kw_only=True):
    """Brings slopes and losses times weights under masks; asks for slopes, cut, and losses."""

    slopes: Annotated[Words, masked("weighed slopes and losses, and masks", "words")]
    dealt: Annotated[Words | None, dealt("shares of masks, cut", "words")] = None


class GramRequest(SealedRequest, kw_only=True):
    """Asks for shares of XᵀX, which parties keep for who gets the model."""

    error: Annotated[float, _OFF]
    dealt: Annotated[Words | None, dealt("share of products of masks", "words")] = None


class KeptPointRequest(SealedRequest, kw_only=True):
    """Asks for the weights of one problem of a model under masks, to make its Hessian."""

    number: Annotated[int, record("under which number the model was kept", alike=True)]
    problem: Annotated[int, record("which problem is meant", alike=True)]


class BendsRequest(SealedRequest, kw_only=True):
    """Brings scores under masks; asks for σ'(z) and slopes of one problem, or for e^z.

    Curvatures have ``width`` leading digits behind the point, and ``rest`` that follow.
    """

    scores: Annotated[Words, masked("scores and masks", "words")]
    series: Annotated[int, record("which series the slope is", alike=True)]
    width: Annotated[int, _WIDTH]
    rest: Annotated[int, _WIDTH]
    dealt: Annotated[Words | None, dealt("share of sines and cosines of masks", "words")] = None


class BendsReply(Message):
    bends: Annotated[Words, masked("its shares of σ'(z), of σ(z) − ½, and its masks", "words")]


class WeightsRequest(SealedRequest, kw_only=True):
    """Brings σ'(z) and slopes under masks; asks for both once they are cut, under others."""

    bends: Annotated[Words, masked("σ'(z), σ(z) − ½, and masks", "words")]
    dealt: Annotated[Words | None, dealt("shares of masks, cut", "words")] = None


class WeightsReply(Message):
    """σ'(z) comes as its leading digits, and those that follow."""

    weights: Annotated[Words, masked("its shares of σ'(z) and slopes less its masks", "words")]
    sums: Annotated[Words, totals("its shares of Σσ'(z) over groups of rows, and noise", "words")]


class SampleWeightsRequest(SealedRequest, kw_only=True):
    """Asks for weights of samples in the place of σ'(z): the curvatures of a squared loss."""

    number: Annotated[int, record("under which number the model was kept", alike=True)]
    width: Annotated[int, _WIDTH]
    rest: Annotated[int, _WIDTH]


class CellsRequest(SealedRequest, kw_only=True):
    """Brings σ'(z) and slopes less masks; asks for σ'(z) times cells, under masks.

    Where σ'(z) adds up to too little over some rows, parties keep the Hessian back. Shares of the
    gradient need nothing else: parties keep them for who gets the model.
    """

    weights: Annotated[Words, masked("σ'(z) and slopes less masks", "words")]
    sums: Annotated[Words, totals("Σσ'(z) over groups of rows, and noise", "words")]
    dealt: Annotated[Words | None, dealt("share of products of masks", "words")] = None


class CellsReply(Message):
    """Without cells where the party keeps the Hessian back, which is no reason to stop.

    A gradient goes to readers if all parties let it: one that objects may be a reader itself, which
    would have its own share.
    """

    gradient: Annotated[bool, record("whether it lets readers have the gradient")]
    cells: Annotated[
        Words | None, masked("its shares of σ'(z) times cells less its masks", "words")
    ] = None


class HessianRequest(SealedRequest, kw_only=True):
    """Brings σ'(z) times cells less masks; asks for shares of Xᵀ diag(σ'(z)) X, to be kept."""

    cells: Annotated[Words, masked("σ'(z) times cells less masks", "words")]
    error: Annotated[float, _OFF]
    gradient: Annotated[bool, record("whether all let readers have the gradient", alike=True)]
    slope_error: Annotated[float, numbers("how far the gradient may be off, in length")]
    dealt: Annotated[Words | None, dealt("share of products of masks", "words")] = None


class RatiosRequest(SealedRequest, kw_only=True):
    """Brings scores of a gamma model under masks; asks for ratios of responses and means."""

    scores: Annotated[Words, masked("scores and masks", "words")]
    series: Annotated[int, record("which series the slope is", alike=True)]
    dealt: Annotated[Words | None, dealt("share of sines and cosines of masks", "words")] = None


class RatiosReply(Message):
    ratios: Annotated[Words, masked("its shares of y/μ, and its masks", "words")]


class CutRatiosRequest(SealedRequest, kw_only=True):
    """Brings ratios under masks; asks for them, less one, in ``width`` digits under others."""

    ratios: Annotated[Words, masked("y/μ and masks", "words")]
    width: Annotated[int, _WIDTH]
    dealt: Annotated[Words | None, dealt("shares of masks, cut", "words")] = None


class CutRatiosReply(Message):
    """A gradient goes to readers if all parties let it, see `CellsReply`."""

    ratios: Annotated[Words, masked("its shares of y/μ − 1 less its masks", "words")]
    gradient: Annotated[bool, record("whether it lets readers have the gradient")]


class PearsonRequest(SealedRequest, kw_only=True):
    """Brings ratios less one and masks; asks for a share of Σ(y/μ − 1)², to be kept.

    So is one of Xᵀ(1 − y/μ), the gradient.
    """

    ratios: Annotated[Words, masked("y/μ − 1 less masks", "words")]
    error: Annotated[float, numbers("how far the sum may be off")]
    gradient: Annotated[bool, record("whether all let readers have the gradient", alike=True)]
    slope_error: Annotated[float, numbers("how far the gradient may be off, in length")]
    dealt: Annotated[Words | None, dealt("share of squares and products of masks", "words")] = None


class KeepRequest(SealedRequest, kw_only=True):
    """Says which points are a model."""

    number: Annotated[int, record("under which number to keep the model")]
    vectors: Annotated[Ints, record("which vector was made at the point", "problems", alike=True)]


BEGIN = Phase("sealed.begin", BeginRequest, BeginReply)
TABLES = Phase("sealed.tables", TablesRequest, TablesReply)
FIRST = Phase("sealed.first", FirstRequest, SlopesReply)
HELD = Phase("sealed.held", HeldRequest, SlopesReply)
VECTOR = Phase("sealed.vector", VectorRequest, VectorReply)
PRODUCTS = Phase("sealed.products", ProductsRequest, ProductsReply)
POINT = Phase("sealed.point", PointRequest, PointReply)
SCORES = Phase("sealed.scores", ScoresRequest, ScoresReply)
SLOPES = Phase("sealed.slopes", SlopesRequest, SlopesReply)
WEIGH = Phase("sealed.weigh", WeighRequest, SlopesReply)
KEEP = Phase("sealed.keep", KeepRequest, Nothing)
KEPT_POINT = Phase("sealed.kept_point", KeptPointRequest, PointReply)
GRAM = Phase("sealed.gram", GramRequest, Nothing)
BENDS = Phase("sealed.bends", BendsRequest, BendsReply)
WEIGHTS = Phase("sealed.weights", WeightsRequest, WeightsReply)
SAMPLE_WEIGHTS = Phase("sealed.sample_weights", SampleWeightsRequest, WeightsReply)
CELLS = Phase("sealed.cells", CellsRequest, CellsReply)
HESSIAN = Phase("sealed.hessian", HessianRequest, Nothing)
RATIOS = Phase("sealed.ratios", RatiosRequest, RatiosReply)
CUT_RATIOS = Phase("sealed.cut_ratios", CutRatiosRequest, CutRatiosReply)
PEARSON = Phase("sealed.pearson", PearsonRequest, Nothing)
