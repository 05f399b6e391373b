"""A party's half of sealed training: it holds shares, and opens nothing but masked words."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats, Ints
from weft.crypto.primitives.seeded_words import Words, seeded_words
from weft.errors import ConfigError, ProtocolError
from weft.protocol import Answer, Nothing, answers
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.digit_widths import (
    CELL_BITS,
    NOISE_RANGE,
    POINT_BITS,
    WEIGHT_BITS,
    Widths,
    intercept_units,
    largest_noise,
)
from weft.solvers.secret_sharing.fold_rows import (
    FoldRows,
    draw_label,
    refuse_small,
    rows_of_folds,
    told_of_labels,
)
from weft.solvers.secret_sharing.gamma_as_poisson import told_of_reach
from weft.solvers.secret_sharing.label_leak_by_model_coefficient import refuse_lone_rows
from weft.solvers.secret_sharing.label_telling_model_guard import refuse_wide, told_by_model
from weft.solvers.secret_sharing.messages import (
    BEGIN,
    FIRST,
    HELD,
    KEEP,
    POINT,
    PRODUCTS,
    SCORES,
    SLOPES,
    TABLES,
    VECTOR,
    WEIGH,
    BeginReply,
    BeginRequest,
    FirstRequest,
    HeldRequest,
    KeepRequest,
    PointReply,
    PointRequest,
    ProductsReply,
    ProductsRequest,
    ScoresReply,
    ScoresRequest,
    SlopesReply,
    TablesReply,
    TablesRequest,
    VectorReply,
    VectorRequest,
)
from weft.solvers.secret_sharing.party_weighted_slopes import WeightedSlopeShares
from weft.solvers.secret_sharing.point_and_vector_limit import PointAndVectorLimit
from weft.solvers.secret_sharing.scalars_opened_in_total import pack_shares
from weft.solvers.secret_sharing.share_arithmetic import (
    SharedVector,
    combined,
    constant_vector,
    cut_vector,
    noise,
    product_share,
    stacked,
)
from weft.solvers.secret_sharing.sine_series import SCORE_BITS
from weft.solvers.secret_sharing.split_overlapping_cells_into_integers import parts_of, round_parts
from weft.solvers.secret_sharing.table_bounds import own_bounds
from weft.solvers.secret_sharing.table_positions import Place, WholeTable, whole_table
from weft.solvers.secret_sharing.table_product_kernels import (
    add_products,
    encoded,
    mask_cells,
    transposed_products,
)
from weft.solvers.secret_sharing.wide_ring import gathered, numbers_of, plus, shifted_down, spread
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.solvers.solver_interfaces_and_results import ModelShare
from weft.sums.scalar_sums import pack_scalars

_WIDE = 128
_LONE_LABELS = (
    "refuses an intercept without a penalty, being the only one with labels: the coordinator would "
    "learn from it how many samples each class has; set penalize_intercept = true, or agree on "
    "allow_lone_labels = true"
)
#: In the place of a point that there is not.
_NOTHING: tuple[Ints, Words] = (np.zeros(0, np.int64), np.zeros((0, 0), np.uint64))


class SealedParty(WeightedSlopeShares):
    """Answers the phases of sealed training."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._block: Floats | None = context.table.dense()
        self._cells: NDArray[Any] = np.zeros((0, 0), np.int32)
        self._masked: list[Words] = []
        self._tables_label = ""
        self._limit = PointAndVectorLimit.of(
            settings, self._all_problems.width, offset=context.offset > 0
        )
        self._vectors: list[SharedVector] = []
        self._free = not settings.penalize_intercept
        self._constant = -1
        #: Shares of the point in hand, and of all points with a vector.
        self._point: Words | None = None
        self._points: list[tuple[Ints, Words]] = []
        self._models: dict[int, Words] = {}

    def phases(self) -> dict[str, Answer]:
        return answers(
            self._once(BEGIN, self._begin),
            self._once(TABLES, self._mask_table),
            self._once(FIRST, self._first_slopes),
            self._once(HELD, self._held_slopes),
            self._once(VECTOR, self._vector),
            self._once(PRODUCTS, self._products),
            self._once(POINT, self._mask_point),
            self._once(SCORES, self._scores),
            self._once(SLOPES, self._slopes),
            self._once(WEIGH, self._weigh),
            self._once(KEEP, self._keep),
        )

    # ── tables ────────────────────────────────────────────────────────────────────────────

    @property
    def _divides(self) -> bool:
        # A sample that is left out has no intercept.
        return self._constant >= 0 and self._whole.n_rows == self._view.n_samples

    @property
    def _place(self) -> Place:
        return self._whole.places[self._party]

    def _begin(self, message: BeginRequest) -> BeginReply:
        table = whole_table(message.shapes)
        view, block = self._view, self._block
        assert block is not None
        if len(table.places) != self._parties or table.places[self._party].shape != block.shape:
            raise malformed("shapes", "are not those of this party's table")
        self._table = table
        self._check_constant(message.constant)
        layout = self._all_problems
        refuse_small(rows_of_folds(table.n_rows, layout.folds).tolist(), view.min_batch)
        sizes = message.shapes.row_sizes
        draw = self._pads.lasting_words(draw_label(sizes, layout.folds), table.n_rows)
        folds = self._fold_rows = FoldRows.of(layout, sizes, draw)
        labels = self._labels
        self._check_table(table, block)
        # After all else that is refused: an answer about responses is booked.
        self._check_responses(block)
        moved = round_parts(block, CELL_BITS, parts_of(view, table))
        if self._squared:
            labels = labels * np.sqrt(self._counted_weights)[:, None]
        responses = labels if self._squared else None
        if self._responses and not self._squared:
            # So that Σωy is told, where a squared loss tells Σωy².
            responses = np.sqrt(labels * self._counted_weights[:, None])
        bounds = own_bounds(block, moved, self._context.table.squares, responses)
        bounds += self._told_of_weights()
        # Without offsets: who tells them would find a response by runs that are refused.
        bounds.append(told_of_reach(self._divided_responses) if self._gamma else 0.0)
        counted = self._own_rows
        if self._responses or self._context.tells_counts or not view.labelled.any():
            also = told_of_labels(self._loss)
            bounds += folds.totals(counted, labels, view.min_batch, also)
        else:
            if layout.folds:
                own = self._context.min_batch
                judge = partial(folds.refuse_unsaid, counted, labels, own)
                self._context.judge_folds(layout.folds, judge)
            bounds += folds.untold(view.min_batch)
        told = pack_scalars(self._cipher, "bounds", *bounds)
        return BeginReply(seed=self._seed, bounds=told)

    def _check_constant(self, constant: int) -> None:
        """See that the column whose weight is a vector of its own is the constant one, and free.

        Whoever counts losses has it. Parties that were told otherwise have other pads.
        """
        view, own = self._view, self._place.columns
        mine = int(own[view.bias_slot]) if self._free and view.bias_slot >= 0 else -1
        knows = mine >= 0 or view.counts.any() or not self._free or constant in own
        if (knows and constant != mine) or not -1 <= constant < self._whole.n_columns:
            raise malformed("constant", "is not the column whose weight is free")
        counts = self._responses or self._context.tells_counts
        if constant >= 0 and view.labelled.any() and not counts:
            raise ConfigError(_LONE_LABELS)
        self._constant = constant

    def _check_table(self, table: WholeTable, cells: Floats) -> None:
        """Object to what the run will make of the table, before anything is dealt."""
        context, classes = self._context, self._all_problems.classes
        labelled = bool(self._view.labelled.any())
        told = told_by_model(table, self._party, classes, labelled=labelled)
        if not context.wide_models:
            refuse_wide(told)
            if context.min_batch > 1:
                self._check_columns(table, cells)
        self._check_weights(told)
        context.foresee_models(told)

    def _check_columns(self, table: WholeTable, cells: Floats) -> None:
        counted = np.zeros(len(cells), bool)
        counted[self._counted] = True
        lam = min(self._lambdas)
        refuse_lone_rows(table, self._party, cells, counted, loss=self._loss, lam=lam)

    def _mask_table(self, message: TablesRequest) -> TablesReply:
        block, self._block = self._block, None
        if block is None:
            raise ProtocolError("a phase of sealed training comes too early")
        self._widths = Widths(message.slope, message.cut)
        self._take_centre(message.centre, message.weighed)
        masked = seeded_words(self._seed, "table", *block.shape)
        self._cells = mask_cells(block, CELL_BITS, masked)
        self._masked = [masked]
        self._tables_label = self._label()
        table = self._pads.put_on(masked, self._tables_label)
        if message.weighed and not self._squared:
            self._limit.start_apart()
        return TablesReply(table=table, weights=self._mask_weights(message.weighed))

    def _first_slopes(self, message: FirstRequest) -> SlopesReply:
        """Take all masked tables; the slopes at w = 0 follow from labels."""
        own = self._masked[0]
        tables, at = [], 0
        for party, place in enumerate(self._whole.places):
            if party == self._party:
                tables.append(own)
                continue
            size = self._pads.size(place.cells)
            words = self._pads.read(
                message.tables[at : at + size], place.cells, self._tables_label, party
            )
            tables.append(words.reshape(place.shape))
            at += size
        if at != len(message.tables):
            raise malformed("tables", "are not those of all other parties")
        self._masked = tables
        self._take_weights(message.weights)
        self._add_constant()
        self._point = np.zeros((len(self._problems), self._whole.n_columns), np.uint64)
        return SlopesReply(slopes=self._hide_slopes(self._no_slopes(), held=False))

    def _add_constant(self) -> None:
        """A free intercept is a vector of its own, the first one, and no point has it."""
        if self._constant < 0:
            return
        units, columns = intercept_units(self._widths), self._whole.n_columns
        vector = constant_vector(self._problems, columns, self._constant, units)
        self._vectors.append(vector)
        self._points.append(_NOTHING)

    def _held_slopes(self, message: HeldRequest) -> SlopesReply:
        """The slopes at w = 0 of what folds leave out."""
        if len(self._vectors) != 1 + (self._constant >= 0) or not self._all_problems.folds:
            raise ProtocolError("a phase of sealed training comes out of turn")
        return SlopesReply(slopes=self._hide_slopes(self._no_slopes(), held=True))

    def _no_slopes(self) -> Words:
        return np.zeros((len(self._problems), self._whole.n_rows), np.uint64)

    # ── one gradient ──────────────────────────────────────────────────────────────────────

    def _mask_point(self, message: PointRequest) -> PointReply:
        """w + ρ from its coefficients; shares of ρ, cut, are dealt."""
        problems, table = self._known(message.problems), self._whole
        if message.point.shape != (len(self._vectors), len(problems)):
            raise malformed("point", "does not have a coefficient of every vector")
        asked = set(problems.tolist())
        if not all(asked.issubset(vector.problems.tolist()) for vector in self._vectors):
            raise malformed("problems", "are not those of all vectors")
        self._limit.ask_point()
        self._problems = problems
        shape = len(problems), table.n_columns
        dealt = self._dealt(message.masks)
        label = f"{self._serial} cut"
        self._point = np.zeros(shape, np.uint64) - dealt.take(label, *shape)
        dealt.end()
        share = combined(self._vectors, message.point, problems, self._first)
        hidden = plus(share, self._mask("point", *shape, 2))
        return PointReply(point=self._hide(spread(hidden)))

    def _scores(self, message: ScoresRequest) -> ScoresReply:
        """z + u: own cells times what was opened, all masked cells times its share of ρ."""
        public = self._opened_point(message.point)
        assert self._point is not None
        scores = self._mask("scores", len(public), self._whole.n_rows).copy()
        for place, masked in zip(self._whole.places, self._masked, strict=True):
            # The share of the point is −ρ so far: E·(−ρ) is what this party adds.
            add_products(masked, self._point[:, place.columns], place.rows, scores)
        add_products(self._cells, public[:, self._place.columns], self._place.rows, scores)
        if self._offsets is not None:
            scores[:, self._own_rows] += encoded(self._offsets, SCORE_BITS)
        if self._first:
            self._point = self._point + public
        return ScoresReply(scores=self._hide(scores))

    def _opened_point(self, total: Words) -> Words:
        """w + ρ in units of weights."""
        return shifted_down(gathered(self._open(total)), POINT_BITS - WEIGHT_BITS)

    def _vector(self, message: VectorRequest) -> VectorReply:
        """Xᵀα + ρ: own cells times what was opened, all masked cells times its share of v."""
        opened = self._open(message.slopes)
        if not np.array_equal(message.problems, self._problems):
            raise malformed("problems", "are not those of the slopes")
        self._limit.ask_vector()
        table = self._whole
        dealt = self._dealt(message.products)
        shape = len(opened), table.n_columns
        total = dealt.take(f"{self._serial} products", *shape).copy()
        dealt.end()
        masks = seeded_words(self._seed, f"{self._slope_serial} slopes", *opened.shape)
        for place, masked in zip(table.places, self._masked, strict=True):
            total[:, place.columns] += transposed_products(masked, masks, place.rows)
        total[:, self._place.columns] += transposed_products(self._cells, opened, self._place.rows)
        assert self._point is not None
        self._points.append((self._problems, self._point))
        return VectorReply(vector=self._hide(total + self._mask("vector", *shape)))

    def _products(self, message: ProductsRequest) -> ProductsReply:
        """Cut the vector, and tell its inner products with all others, with noise."""
        opened = self._open(message.vector)
        widths, problems, serial = self._widths, self._problems, self._serial
        most = largest_noise(widths, self._whole.n_columns)
        bits = message.noise.tolist()
        if len(bits) != len(self._vectors) + 1 or not all(
            most - NOISE_RANGE <= each <= most for each in bits
        ):
            raise malformed("noise", "is less than products need, or more")
        dealt = self._dealt(message.dealt)
        one, many = opened.shape, (len(bits), *opened.shape)
        low, top, *parts = dealt.take_wide(
            f"{serial} products", one, one, many[:2], many, many, many
        )
        dealt.end()
        new = cut_vector(opened, problems, (low, top), widths.cut)
        self._vectors.append(new)
        shares = product_share(new, stacked(self._vectors, problems), parts, self._first)
        sizes = [size for size in bits for _ in problems]
        drawn = noise(self._own_seed, f"{serial} products", sizes)
        found = numbers_of(plus(shares.reshape(-1, 2), drawn))
        return ProductsReply(products=pack_shares(self._cipher, "products", found, _WIDE))

    def _known(self, problems: Ints) -> Ints:
        count = self._all_problems.width
        if not len(problems) or (np.diff(problems) <= 0).any():
            raise malformed("problems", "do not ascend")
        if problems[0] < 0 or problems[-1] >= count:
            raise malformed("problems", "are not those of this run")
        return problems

    # ── the model ─────────────────────────────────────────────────────────────────────────

    def _keep(self, message: KeepRequest) -> Nothing:
        """Remember its shares of the points that are a model."""
        words = np.zeros((self._all_problems.classes, self._whole.n_columns), np.uint64)
        if len(message.vectors) != len(words):
            raise malformed("vectors", "do not name a point for every class")
        for problem, number in enumerate(message.vectors.tolist()):
            problems, share = self._points[number] if 0 <= number < len(self._points) else _NOTHING
            if problem not in problems:
                raise malformed("vectors", "name a point that there is not")
            words[problem] = share[np.searchsorted(problems, problem)]
        self._models[message.number] = words
        return Nothing()

    def model_share(self, model: int | None) -> ModelShare:
        """Its share of the weights of a model: weights, to who gets the shares of all."""
        if model is None or model not in self._models:
            raise ProtocolError("a model of sealed training was asked for that there is not")
        words = self._models[model]
        if self._gamma:
            words = np.zeros_like(words) - words
            if self._divides and self._first:
                words[:, self._constant] += encoded(np.array(self._common_factor), WEIGHT_BITS)
        return ModelShare(words, self._place.columns, WEIGHT_BITS)

    def weights(self, model: int | None) -> Floats:
        raise ProtocolError("a party of sealed training has shares of weights, and no weights")

    # ── checkpoints, of which there are none ──────────────────────────────────────────────

    def settle(self, ack: int) -> None:
        """Nothing is ever taken back: phases are asked again until they are answered."""

    def state(self) -> dict[str, NDArray[Any]]:
        raise ProtocolError("solver 'sealed' keeps no checkpoints")

    def restore(self, state: Mapping[str, NDArray[Any]], constants: Constants) -> None:
        raise ProtocolError("solver 'sealed' keeps no checkpoints")
