"""What it costs to match the neurons of one party with rows of the server: (20) of the 2024 text.

All three costs have the form Σ_c a_ic (x_jc − mean_ic)² for neuron j and row i, and a part that
depends on the row alone. The factor a_ic depends on c only through which parties have column c, so
that columns with the same holders share it: their squares are added first, and of the expanded
square one product of matrices remains, x (a mean)ᵀ.

The squares are expanded, which cancels where a neuron lies close to its row: float32 loses about
10⁻⁷ of ‖x‖² + ‖mean‖². Columns are therefore centred first (what all neurons have in common does
not count), and differences below 0 are clipped. Rows whose costs lie closer together than that
rounding may be exchanged; the objective is never computed by expansion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.array_types import Ints
from weft_neural.neuron_matching import matched_layer_kernels
from weft_neural.neuron_matching.classifier_arrays import Floats
from weft_neural.neuron_matching.threaded_row_passes import by_rows


@dataclass(frozen=True)
class Others:
    """A layer of the server without one party, on that party's columns, ordered by holders.

    Attributes
    ----------
    rows
        The server's rows that other parties use.
    order
        The party's columns in the order of ``sums``.
    starts
        Where in that order each of G groups of columns with the same holders begins, and the end.
    weights
        (rows, G): Σ p of the other parties that have row and column.
    sums
        (rows, columns): Σ p x of the same; costs are computed in its place.
    users
        How many other parties use each row.
    """

    rows: Ints
    order: Ints
    starts: Ints
    weights: Floats
    sums: Floats
    users: Ints


def weighted_costs(neurons: Floats, weight: float, others: Others) -> Floats:
    """Σ_c pW/(p + W) (x_jc − mean_ic)²: by so much the layer's objective rises."""
    weights = others.weights
    costs = _squares(neurons, weight * weights / (weight + weights), _inverse(weights), others)
    return np.maximum(costs, 0, out=costs)


def squared_costs(neurons: Floats, others: Others) -> Floats:
    """Σ_c (x_jc − mean_ic)² over the columns that the others have in row i."""
    weights = others.weights
    costs = _squares(neurons, (weights > 0).astype(weights.dtype), _inverse(weights), others)
    return np.maximum(costs, 0, out=costs)


def _inverse(weights: Floats) -> Floats:
    return np.divide(1, weights, out=np.zeros_like(weights), where=weights > 0)


def _squares(neurons: Floats, factors: Floats, shares: Floats, others: Others) -> Floats:
    """Σ_c a_ic (x_jc − share_ic sum_ic)², (neurons, rows)."""
    centre = neurons.mean(axis=0)[others.order]
    ordered = np.empty_like(neurons)
    squares = np.empty((len(neurons), factors.shape[1]), dtype=neurons.dtype)
    order, starts, sums = others.order, others.starts, others.sums

    def order_some(part: slice) -> None:
        matched_layer_kernels.centred(
            neurons[part], order, starts, centre, ordered[part], squares[part]
        )

    def pull_some(part: slice) -> None:
        own = shares[part], factors[part]
        matched_layer_kernels.pulls(sums[part], starts, *own, centre, constant[part])

    by_rows(len(neurons), neurons.shape[1], order_some)
    constant = np.empty(len(factors), dtype=neurons.dtype)
    by_rows(len(sums), sums.shape[1], pull_some)
    costs: Floats = ordered @ sums.T
    costs *= -2
    costs += squares @ factors.T
    costs += constant
    return costs


def pfnm_costs(
    neurons: Floats, precision: float, prior: float, parties: int, others: Others
) -> Floats:
    """The MAP costs of existing rows after Yurochkin et al. (2019), with a prior mean of 0.

    Σ_c [s²/(q₀ + T) − (q x + s)²/(q₀ + T + q)] − 2 ln(m/(J − m)), where q is the party's precision
    1/σ², q₀ the prior's, T and s are the sums of the other parties' precisions and of these times
    their values, and m of all J parties use the row. A column that no other party has in the row
    has T = s = 0: it costs what it costs in a new row.

    This is −2 ln of the posterior at its best rows, less q‖x‖², which is the same for every row.
    The authors' released code differs: it takes ln once, m up to 10, and 0.1 as the mean of biases.

    Parameters
    ----------
    precision, prior
        q and q₀.
    parties
        J.
    others
        With precisions as weights.
    """
    before = prior + others.weights
    factors = -(precision**2) / (before + precision)
    parts = np.add.reduceat(np.square(others.sums), others.starts[:-1], axis=1)
    rest = (parts / before).sum(axis=1) - 2 * np.log(others.users / (parties - others.users))
    costs = _squares(neurons, factors, np.full_like(factors, -1 / precision), others)
    costs += rest.astype(costs.dtype)
    return costs


def pfnm_openings(neurons: Floats, precision: float, prior: float) -> Floats:
    """What a new row costs by neuron, without the part that depends on how many are new."""
    norms = np.einsum("jc,jc->j", neurons, neurons)
    opening: Floats = -(precision**2) * norms / (prior + precision)
    return opening


def pfnm_steps(count: int, gamma: float, parties: int) -> Floats:
    """The other part: 2 ln(s J/γ) for the s-th of ``count`` new rows."""
    steps: Floats = 2 * np.log(np.arange(1, count + 1) * parties / gamma)
    return steps
