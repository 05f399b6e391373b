"""What it costs to match the neurons of one party with rows of the server: (20) of the 2024 text.

All three costs have the form Σ_c (a_ic x_jc² − 2 b_ic x_jc) + k_i for neuron j and row i, since the
means are those of the other parties. The factor a_ic depends on c only through which parties have
column c, so that columns with the same holders share it: their squares are added first, and one
product of matrices remains, x bᵀ.

The squares are expanded, which cancels where a neuron lies close to its row: float32 loses about
10⁻⁷ of ‖x‖² + ‖mean‖². Columns are therefore centred first (what all neurons have in common does
not count), and differences below 0 are clipped. Rows whose costs lie closer together than that
rounding may be exchanged; the objective is never computed by expansion.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from weft.neural.matching.classifiers import Floats, Ints


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
        Where in that order columns with other holders begin: G groups.
    weights
        (rows, G): Σ p of the other parties that have row and column.
    sums
        (rows, columns): Σ p x of the same.
    users
        How many other parties use each row.
    """

    rows: Ints
    order: Ints
    starts: Ints
    weights: Floats
    sums: Floats
    users: Ints

    def spread(self, values: Floats) -> Floats:
        """(rows, G) to (rows, columns)."""
        sizes = np.diff(np.append(self.starts, len(self.order)))
        return np.repeat(values, sizes, axis=1)


def weighted_costs(neurons: Floats, weight: float, others: Others) -> Floats:
    """Σ_c pW/(p + W) (x_jc − mean_ic)²: by so much the layer's objective rises."""
    weights = others.weights
    return _distances(neurons, weight * weights / (weight + weights), others)


def squared_costs(neurons: Floats, others: Others) -> Floats:
    """Σ_c (x_jc − mean_ic)² over the columns that the others have in row i."""
    return _distances(neurons, (others.weights > 0).astype(neurons.dtype), others)


def _distances(neurons: Floats, factors: Floats, others: Others) -> Floats:
    """Σ_c a_ic (x_jc − mean_ic)², (neurons, rows)."""
    ordered = neurons[:, others.order]
    centre = ordered.mean(axis=0)
    ordered -= centre
    weights = others.weights
    shares = np.divide(1, weights, out=np.zeros_like(weights), where=weights > 0)
    means = others.sums * others.spread(shares) - centre
    pulls = others.spread(factors) * means
    constant = np.einsum("ic,ic->i", pulls, means)
    squares = np.add.reduceat(np.square(ordered), others.starts, axis=1)
    costs: Floats = ordered @ pulls.T
    costs *= -2
    costs += squares @ factors.T
    costs += constant
    return np.maximum(costs, 0, out=costs)


def pfnm_costs(
    neurons: Floats, precision: float, prior: float, parties: int, others: Others
) -> Floats:
    """The MAP costs of existing rows, (8) of Yurochkin et al. (2019), with a prior mean of 0.

    Σ_c [s²/(q₀ + T) − (q x + s)²/(q₀ + T + q)] − 2 ln(m/(J − m)), where q is the party's precision
    1/σ², q₀ the prior's, T and s are the sums of the other parties' precisions and of these times
    their values, and m of all J parties use the row. A column that no other party has in the row
    has T = s = 0: it costs what it costs in a new row.

    Parameters
    ----------
    precision, prior
        q and q₀.
    parties
        J.
    others
        With precisions as weights.
    """
    ordered = neurons[:, others.order]
    before = prior + others.weights
    after = before + precision
    pulls = others.sums * others.spread(precision / after)
    squares = np.add.reduceat(np.square(ordered), others.starts, axis=1)
    rest = np.square(others.sums) * others.spread(1 / before - 1 / after)
    popularity = 2 * np.log(others.users / (parties - others.users))
    costs: Floats = ordered @ pulls.T
    costs *= -2
    costs -= squares @ (precision**2 / after).T
    costs += (rest.sum(axis=1) - popularity).astype(costs.dtype)
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
