"""Second moments on shares: XᵀX, and the Hessian's Xᵀ diag(σ'(z)) X at the released model.

All parties have E = X − A, the table less masks; A is the sum of what each party has drawn for its
own cells. So XᵀX = EᵀE + EᵀA + AᵀE + AᵀA takes no opening: a party's share of A is its own masks,
and shares of AᵀA are dealt. σ'(z) comes from the cosines of its series, is cut as scores are, and
multiplied with A, and the product with A again, by opened differences.

Shares stay with the parties until the release, which hands them to whoever gets the model. Moments
of sparse columns would tell single rows, whoever reads them, and so would a Hessian where nearly
all σ'(z) are zero: see `second_moment_guard`, for which parties open sums of σ'(z) to all, with
noise.
"""

from __future__ import annotations

import numpy as np
import scipy

from weft.array_types import Floats
from weft.crypto.primitives.seeded_words import Words, seeded_words
from weft.errors import ProtocolError
from weft.protocol import Answer, Nothing, answers
from weft.protocol.declared_message_fields import malformed
from weft.solvers.party_context import PartyContext
from weft.solvers.run_settings import Settings
from weft.solvers.secret_sharing.digit_widths import CELL_BITS
from weft.solvers.secret_sharing.few_rows_dominate_poisson_hessian import upper_cap
from weft.solvers.secret_sharing.messages import (
    BENDS,
    CELLS,
    GRAM,
    HESSIAN,
    KEPT_POINT,
    WEIGHTS,
    CellsReply,
    CellsRequest,
    GramRequest,
    HessianRequest,
    KeptPointRequest,
    PointReply,
    PointRequest,
    WeightsReply,
    WeightsRequest,
)
from weft.solvers.secret_sharing.released_model_curvature_shares import CurvatureShares
from weft.solvers.secret_sharing.second_moment_digits_and_errors import (
    FACTORIAL_NOISE,
    carry_noise,
    gradient_noise,
)
from weft.solvers.secret_sharing.second_moment_guard import (
    check_moments,
    matrices_of,
    told_by_moments,
)
from weft.solvers.secret_sharing.second_moment_kernels import CUT_TWICE, cross_products
from weft.solvers.secret_sharing.share_arithmetic import cut_scores, noise
from weft.solvers.secret_sharing.supported_losses import ALIKE
from weft.solvers.secret_sharing.table_positions import WholeTable
from weft.solvers.secret_sharing.table_product_kernels import encoded, transposed_products
from weft.solvers.solver_interfaces_and_results import MomentShare, MomentShares


class SealedMomentsParty(CurvatureShares):
    """Answers the phases of sealed training, and those of its second moments."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        #: Whether a squared loss has a Hessian that weighs samples.
        self._weighs_squares = False
        self._matrices = matrices_of(settings, context.labels.shape[1])
        #: Whether a Hessian would tell too much.
        self._keeps_back = False
        self._cut_share: Words = np.zeros((0, 0), np.uint64)
        #: Its shares of the gradient at the model in hand, and of those that are done.
        self._gradient: Words = np.zeros(0, np.uint64)
        self._gradients: dict[tuple[int, int], MomentShare] = {}
        self._gram: MomentShare | None = None
        #: Its share of Σ log y!, of counts.
        self._factorials: Words = np.zeros(1, np.uint64)
        #: By model and problem.
        self._hessians: dict[tuple[int, int], MomentShare] = {}
        self._rests: dict[tuple[int, int], MomentShare] = {}

    def phases(self) -> dict[str, Answer]:
        return {
            **super().phases(),
            **answers(
                self._once(GRAM, self._make_gram),
                self._once(KEPT_POINT, self._kept_point),
                self._once(BENDS, self._bends),
                self._once(WEIGHTS, self._weights),
                self._once(CELLS, self._spread_cells),
                self._once(HESSIAN, self._make_hessian),
            ),
        }

    def moment_shares(self, model: int | None) -> MomentShares:
        """Its shares of all that was made of what was asked for, of a model that was kept.

        A Hessian that some party has kept back, of any class, is none; nor is there a gradient with
        it that would tell labels.
        """
        problems = range(self._all_problems.classes)
        found = [self._hessians.get((model or 0, problem)) for problem in problems]
        hessians = [share for share in found if share is not None]
        if len(hessians) < len(found) or self._keeps_back:
            hessians = []
        made = [self._gradients.get((model or 0, k)) for k in range(len(hessians))]
        # Of all problems, or of none.
        gradients = [share for share in made if share is not None]
        if len(gradients) < len(made):
            gradients = []
        gram = _made(self._gram) if self._makes_gram else None
        rests = tuple(self._rests[model or 0, k] for k in range(len(hessians)))
        labels = self._label_share() if hessians else None
        weighed = self._weighing is not None
        return MomentShares(gram, tuple(hessians), rests, tuple(gradients), labels, weighed)

    def _label_share(self) -> MomentShare | None:
        """Its share of the first vector's entry at a free intercept: how many are of which class.

        Of counts it is their sum, and what log-likelihoods have besides goes along. Readers that
        have labels take off their own, so that as many parties must have some as terms want in a
        sum. With weights or offsets nothing follows from it.
        """
        told = self._constant >= 0 and self._all_problems.classes == 1
        plain = self._weighing is None and not self._context.offset
        if not (told and plain and self._view.label_parties >= self._context.contributors):
            return None
        problem = np.array([0])
        share = self._vectors[1].of(problem).share(self._first)[:, self._constant, 0]
        if self._exponential:
            share = np.append(share, self._factorials)
        return MomentShare(share, self._widths.vector, 2.0**-self._widths.vector)

    @property
    def _makes_gram(self) -> bool:
        """The Hessian of a squared loss is the Gram matrix, by the number of samples.

        So is what is expected of a gamma model's.
        """
        alike = self._loss in ALIKE
        return "gram" in self._asked_for or (bool(self._asked_for) and alike)

    # ── the table ─────────────────────────────────────────────────────────────────────────

    def _check_table(self, table: WholeTable, cells: Floats) -> None:
        super()._check_table(table, cells)
        if self._matrices:
            self._check_moments(table, cells)

    def _check_moments(self, table: WholeTable, cells: Floats) -> None:
        context = self._context
        plain = self._loss in ALIKE and not self._weighs_squares
        weighs = "hessian" in self._asked_for and not plain
        heaviest = upper_cap(table, context.view.min_batch) if self._exponential and weighs else 1.0
        check_moments(
            context.view,
            table,
            cells,
            matrices=self._matrices,
            hessian=weighs,
            least=context.min_batch,
            rare_pairs=context.rare_pairs,
            several=context.wide_models,
            site=context.site_statistics,
            heaviest=max(heaviest, 1.0),
        )
        context.foresee_moments(told_by_moments(table, self._party, self._matrices), weighs)

    def _all_masked(self) -> Words:
        """E as one table."""
        total = np.zeros((self._whole.n_rows, self._whole.n_columns), np.uint64)
        for place, masked in zip(self._whole.places, self._masked, strict=True):
            total[np.ix_(place.rows, place.columns)] += masked
        return total

    def _own_masks(self) -> Words:
        """A of this party's cells."""
        return self._cells.astype(np.int64).view(np.uint64) - self._masked[self._party]

    # ── XᵀX ───────────────────────────────────────────────────────────────────────────────

    def _make_gram(self, message: GramRequest) -> Nothing:
        if not self._makes_gram:
            raise ProtocolError("a Gram matrix was asked for that this run is not to have")
        columns = self._whole.n_columns
        dealt = self._dealt(message.dealt)
        share = dealt.take(f"{self._serial} gram", columns, columns).copy()
        dealt.end()
        masked = self._all_masked()
        place = self._place
        crossed = cross_products(masked[place.rows], self._own_masks())
        share[:, place.columns] += crossed
        share[place.columns] += crossed.T
        if self._first:
            share += cross_products(masked, masked)
        self._gram = MomentShare(share, 2 * CELL_BITS, message.error)
        return Nothing()

    # ── Xᵀ diag(σ'(z)) X ──────────────────────────────────────────────────────────────────

    def _mask_point(self, message: PointRequest) -> PointReply:
        self._kept = None
        return super()._mask_point(message)

    def _kept_point(self, message: KeptPointRequest) -> PointReply:
        """w + ρ of one problem of a kept model: its shares have the units of weights already."""
        model, problem = message.number, message.problem
        if "hessian" not in self._asked_for or self._squared or self._keeps_back:
            raise ProtocolError("a Hessian was asked for that this run is not to have")
        if model not in self._models or any(other != model for other, _ in self._hessians):
            raise malformed("number", "is not that of the one model whose Hessian is made")
        if not 0 <= problem < self._all_problems.classes or (model, problem) in self._hessians:
            raise malformed("problem", "is not one whose Hessian is still to be made")
        self._limit.ask_point()
        share = self._models[model][problem : problem + 1]
        mask = self._mask("point", *share.shape)
        self._kept, self._problems = (model, problem), np.array([problem])
        self._point = np.zeros(share.shape, np.uint64) - mask
        return PointReply(point=self._hide(share + mask))

    def _opened_point(self, total: Words) -> Words:
        return super()._opened_point(total) if self._kept is None else self._open(total)

    def _weights(self, message: WeightsRequest) -> WeightsReply:
        """Cut σ'(z), so that its products with two cells do not wrap, and slopes; mask both."""
        opened = self._open(message.bends)[list(CUT_TWICE)]
        dealt = self._dealt(message.dealt)
        low = dealt.take(f"{self._serial} low", *opened.shape)
        top = dealt.take(f"{self._serial} top", *opened.shape)
        dealt.end()
        self._cut_share = np.stack(
            [
                cut_scores(opened[k], (low[k], top[k]), digits, self._first)
                for k, digits in enumerate(self._cuts)
            ]
        )
        leading, more = self._cut_share[:2]
        more -= leading << np.uint64(self._rest_digits)
        self._cut_share[-1, self._own_rows] += self._label_slopes(self._problems)[0]
        return self._hide_curvatures(self._cut_share)

    def _hide_curvatures(self, shares: Words) -> WeightsReply:
        """Its shares of curvatures and slopes under masks; sums of curvatures, for guards."""
        self._cut_share, self._slope_serial = shares, self._serial
        masks = self._mask("weights", *shares.shape)
        self._sums_label = f"{self._label()} sums"
        # All read sums now, and may leave before there is a model to book.
        self._context.book_model()
        if self._exponential:
            # One count is near a step, which a party that chooses exposures lays over a score: of
            # many runs it would have that score, noise or not.
            self._context.book_moments()
        return WeightsReply(
            weights=self._hide(shares - masks),
            sums=self._pads.put_on(self._sums_of(shares[0]), self._sums_label),
        )

    def _spread_cells(self, message: CellsRequest) -> CellsReply:
        """σ'(z) times cells: its share times E, and what was opened times its own masks.

        The gradient is Xᵀ times slopes, as that of any point, with noise for who gets it.
        """
        *opened, slopes = self._open(message.weights)
        table, place = self._whole, self._place
        if self._too_decided(message.sums):
            self._kept, self._keeps_back = None, True
            return CellsReply(gradient=False)
        dealt = self._dealt(message.dealt)
        shape = len(opened), table.n_rows, table.n_columns
        share = dealt.take(f"{self._serial} cells", *shape) + (
            self._cut_share[:-1, :, None] * self._all_masked()
        )
        gradient = dealt.take(f"{self._serial} gradient", 1, table.n_columns)[0]
        dealt.end()
        self._make_gradient(slopes, gradient)
        masks = self._own_masks()
        for part, bends in zip(share, opened, strict=True):
            part[np.ix_(place.rows, place.columns)] += bends[place.rows, None] * masks
        self._cut_share = share
        masked = self._hide(share - self._mask("spread", *shape))
        return CellsReply(cells=masked, gradient=self._lets_gradient)

    def _make_gradient(self, slopes: Words, dealt: Words) -> None:
        self._gradient = dealt + self._gradient_share(slopes)

    def _gradient_share(self, opened: Words) -> Words:
        """Own cells times opened slopes, all masked cells times its share of what hides them."""
        table, place = self._whole, self._place
        label = f"{self._slope_serial} weights"
        masks = seeded_words(self._seed, label, len(CUT_TWICE), table.n_rows)[-1:]
        size = gradient_noise(table.n_rows, self._widths, self._noise_scale)
        drawn = noise(self._own_seed, f"{self._serial} gradient", [size] * table.n_columns)
        share: Words = drawn[:, 0].copy()
        for there, masked in zip(table.places, self._masked, strict=True):
            share[there.columns] += transposed_products(masked, masks, there.rows)[0]
        share[place.columns] += transposed_products(self._cells, opened[None], place.rows)[0]
        return share

    def _make_hessian(self, message: HessianRequest) -> Nothing:
        opened = self._open(message.cells)
        columns, place = self._whole.n_columns, self._place
        dealt = self._dealt(message.dealt)
        shares = dealt.take(f"{self._serial} hessian", len(opened), columns, columns).copy()
        if self._exponential:
            nothing = dealt.take(f"{self._serial} nothing", 1)
            self._factorials = nothing + self._own_factorials()
        dealt.end()
        masked, masks = self._all_masked(), self._own_masks()
        for share, own, spread in zip(shares, self._cut_share, opened, strict=True):
            share += cross_products(masked, own)
            share[place.columns] += cross_products(masks, spread[place.rows])
        if self._kept is None:
            raise ProtocolError("a phase of sealed training comes out of turn")
        carried = self._carried()
        leading, rest = shares[0] + carried, shares[1] - (carried << np.uint64(self._rest_digits))
        bits = 2 * CELL_BITS + self._bend_digits
        self._hessians[self._kept] = MomentShare(leading, bits, message.error)
        bits += self._rest_digits
        self._rests[self._kept] = MomentShare(rest, bits, message.error)
        if message.gradient and self._lets_gradient:
            bits = CELL_BITS + self._widths.slope
            self._gradients[self._kept] = self._gradient_for_readers(
                self._kept[1], self._gradient, bits, message.slope_error
            )
        self._kept, self._cut_share = None, np.zeros((0, 0), np.uint64)
        return Nothing()

    def _own_factorials(self) -> Words:
        """Σ log y! of its counts, with noise: exactly, it would tell how many there are of each."""
        bits = self._widths.vector
        total = encoded(scipy.special.gammaln(self._labels + 1.0).sum(axis=0), bits)
        drawn = noise(self._own_seed, f"{self._serial} factorials", [bits + FACTORIAL_NOISE])
        found: Words = total + drawn[:, 0]
        return found

    def _carried(self) -> Words:
        """What it moves from the rest of a Hessian to its leading digits: noise, symmetric."""
        columns = self._whole.n_columns
        size = carry_noise(self._rest_digits, self._parties)
        drawn = noise(self._own_seed, f"{self._serial} carried", [size] * columns**2)[:, 0]
        above = np.triu(drawn.reshape(columns, columns))
        carried: Words = above + np.triu(above, 1).T
        return carried


def _made(share: MomentShare | None) -> MomentShare:
    if share is None:
        raise ProtocolError("second moments were asked for that there are not")
    return share
