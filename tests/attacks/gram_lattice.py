"""Whole vectors from their exact inner products. Not a test itself.

Vectors of whole numbers span a lattice; enough of them span all of Z^d. A basis of it whose inner
products are ones and zeros is the unit vectors, up to order and signs: so a basis is made from the
inner products alone, and reduced until it is that. The vectors are their coordinates in it.
"""

from __future__ import annotations

from fractions import Fraction

Rows = list[list[int]]
Exact = list[list[Fraction]]


def vectors_from_gram(gram: Rows, columns: int) -> Rows | None:
    """The vectors, up to order and signs of their columns; None: these are no inner products."""
    try:
        coordinates = _coordinates(gram, columns)
        basis = _basis(coordinates, columns)
        inner = [[_form(a, gram, b, columns) for b in basis] for a in basis]
        steps = _reduced(inner)
        if steps is None:
            return None
        inverse = _inverse(
            [[_dot(s, column) for column in zip(*basis, strict=True)] for s in steps]
        )
    except ZeroDivisionError:
        return None
    found = []
    for row in coordinates:
        there = [_dot(row, column) for column in zip(*inverse, strict=True)]
        if any(value.denominator != 1 for value in there):
            return None
        found.append([int(value) for value in there])
    return found


def _dot(a, b):
    return sum((x * y for x, y in zip(a, b, strict=True)), Fraction(0))


def _form(a, gram, b, columns):
    return sum(
        (a[i] * gram[i][j] * b[j] for i in range(columns) for j in range(columns)), Fraction(0)
    )


def _inverse(matrix: Exact) -> Exact:
    size = len(matrix)
    rows = [[Fraction(v) for v in row] + [Fraction(i == j) for j in range(size)]
            for i, row in enumerate(matrix)]  # fmt: skip
    for at in range(size):
        pivot = next((r for r in range(at, size) if rows[r][at]), None)
        if pivot is None:
            raise ZeroDivisionError
        rows[at], rows[pivot] = rows[pivot], rows[at]
        rows[at] = [v / rows[at][at] for v in rows[at]]
        for other in range(size):
            if other != at and rows[other][at]:
                factor = rows[other][at]
                rows[other] = [a - factor * b for a, b in zip(rows[other], rows[at], strict=True)]
    return [row[size:] for row in rows]


def _coordinates(gram: Rows, columns: int) -> Exact:
    """Every vector as a combination of the first ``columns`` ones."""
    inverse = _inverse([row[:columns] for row in gram[:columns]])
    return [[_dot(row[:columns], column) for column in inverse] for row in gram]


def _basis(rows: Exact, columns: int) -> Exact:
    """Of the lattice that rows span: Euclid's algorithm, column by column."""
    rows, basis = [row[:] for row in rows], []
    for at in range(columns):
        while True:
            some = [row for row in rows if row[at]]
            if not some:
                raise ZeroDivisionError
            least = min(some, key=lambda row: abs(row[at]))
            others = [row for row in some if row is not least]
            if not others:
                break
            for row in others:
                times = row[at] // least[at]
                row[:] = [a - times * b for a, b in zip(row, least, strict=True)]
        basis.append(least)
        rows = [row for row in rows if row is not least]
    return basis


def _reduced(inner: Exact) -> Exact | None:
    """Steps to a basis of unit vectors, by the LLL algorithm on inner products alone."""
    size = len(inner)
    steps = [[Fraction(i == j) for j in range(size)] for i in range(size)]

    def product(i, j):
        return sum(
            (steps[i][a] * inner[a][b] * steps[j][b] for a in range(size) for b in range(size)),
            Fraction(0),
        )

    def orthogonal():
        mu, norms = [[Fraction(0)] * size for _ in range(size)], []
        rest = [[Fraction(0)] * size for _ in range(size)]
        for i in range(size):
            for j in range(i + 1):
                value = product(i, j) - sum(mu[j][k] * rest[i][k] for k in range(j))
                rest[i][j] = value
                if j < i:
                    mu[i][j] = value / norms[j]
            norms.append(rest[i][i])
        return mu, norms

    at, turns = 1, 0
    while at < size:
        turns += 1
        if turns > 3000:
            return None
        for j in range(at - 1, -1, -1):
            times = round(orthogonal()[0][at][j])
            steps[at] = [a - times * b for a, b in zip(steps[at], steps[j], strict=True)]
        mu, norms = orthogonal()
        if norms[at] >= (Fraction(3, 4) - mu[at][at - 1] ** 2) * norms[at - 1]:
            at += 1
        else:
            steps[at], steps[at - 1] = steps[at - 1], steps[at]
            at = max(at - 1, 1)
    ones = all(product(i, j) == (i == j) for i in range(size) for j in range(i + 1))
    return steps if ones else None
