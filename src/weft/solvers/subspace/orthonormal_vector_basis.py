"""An orthonormal basis of the newest vectors, for ascent in cohorts, from their inner products."""

from __future__ import annotations

import math

import numpy as np

from weft.array_types import Floats
from weft.solvers.subspace.coordinator_coefficients_and_products import Subspace
from weft.solvers.subspace.dual_ascent_with_approximate_gram import MOST_IN_BASIS

#: Numbers in a basis, at most, and what samples have in it, each a few bytes.
_BASIS, _INSIDE = 2**19, 2**26
#: Share of its square that a vector has outside of the span of newer ones, and is one of them.
_DEPENDENT = 1e-8


def most_in_basis(width: int, samples: int) -> int:
    """Vectors that a basis is made of, so that neither it nor what samples have in it is large."""
    fits = math.isqrt(_BASIS // width), _INSIDE // samples
    return max(1, min(MOST_IN_BASIS, *fits))


def basis_of_newest(subspace: Subspace, most: int) -> Floats:
    """Orthonormal combinations of the newest vectors (vectors × directions × problems).

    One vector after the other, from the newest on, less what lies in the span of those before;
    what is hardly more than rounding is zero.
    """
    newest = np.arange(max(0, subspace.count - most), subspace.count)[::-1]
    gram = np.ascontiguousarray(subspace.gram[np.ix_(newest, newest)].transpose(2, 0, 1))
    lengths = np.sqrt(np.maximum(np.einsum("pjj->pj", gram), 0.0))
    units = np.where(lengths > 0, 1.0 / np.where(lengths > 0, lengths, 1.0), 0.0)
    gram *= units[:, :, None] * units[:, None, :]
    basis = np.zeros_like(gram)
    for j in range(len(newest)):
        part, known = np.zeros((*units.shape, 1)), basis[:, :, :j]
        part[:, j] = 1.0
        for _ in range(2):
            part -= known @ (known.transpose(0, 2, 1) @ (gram @ part))
        square = (part.transpose(0, 2, 1) @ (gram @ part))[:, 0]
        new = square > _DEPENDENT
        basis[:, :, j] = np.where(new, part[:, :, 0] / np.sqrt(np.where(new, square, 1.0)), 0.0)
    found: Floats = (units[:, :, None] * basis)[:, ::-1].transpose(1, 2, 0)
    return np.ascontiguousarray(found)
