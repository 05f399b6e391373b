"""Deals: which party holds which blocks of which classes.

The texts show most of their deals as counts only: how many parties hold a block of a class
(Figures 11 and 12 of the 2024 text). Where a deal here has exactly the counts of a figure, or is
exactly a table, its docstring says so; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from weft.neural.scenes.scene import Share

Names = Sequence[str]


def _shares(held: Sequence[tuple[Sequence[str], Sequence[int]]]) -> tuple[Share, ...]:
    return tuple(
        Share(f"p{number}", tuple(blocks), tuple(classes))
        for number, (blocks, classes) in enumerate(held, start=1)
    )


def table4(blocks: Names) -> tuple[Share, ...]:
    """Table 4: six parties, four blocks, of which all have the first and the third; ten classes."""
    one, two, three, four = blocks
    halves = (range(5), range(5, 10))
    sets = ((one, two, three), (one, three, four), (one, three))
    return _shares([(held, half) for held in sets for half in halves])


def quadrant_deal(blocks: Names) -> tuple[Share, ...]:
    """Ours, for ten classes: six parties with three of four blocks, the first and third common.

    As Table 4, but every party has one of the other two, and classes mix: each is at three parties,
    with the second block at one or two of them and the fourth at the others; no two parties have
    more than three classes in common, and any two have one.
    """
    one, two, three, four = blocks
    classes = (
        (3, 4, 5, 7, 8),
        (1, 2, 3, 6, 7),
        (0, 2, 4, 6, 9),
        (0, 2, 3, 4, 8),
        (0, 1, 5, 6, 9),
        (1, 5, 7, 8, 9),
    )
    sets = [(one, two, three)] * 3 + [(one, three, four)] * 3
    return _shares(list(zip(sets, classes, strict=True)))


def view_deal(
    common: str, hubs: tuple[str, str], others: tuple[str, str, str]
) -> tuple[Share, ...]:
    """Ours, for ten classes: six parties with three of six views, one of them common to all.

    Each party has one of the two hubs and one of the three others. Each class is at three parties
    that have all six views between them.
    """
    classes = (
        (0, 2, 4, 5, 7),
        (0, 1, 5, 6, 9),
        (1, 3, 4, 6, 8),
        (1, 3, 6, 8, 9),
        (2, 3, 4, 7, 8),
        (0, 2, 5, 7, 9),
    )
    sets = [(common, hub, other) for hub in hubs for other in others]
    return _shares(list(zip(sets, classes, strict=True)))


def colour_deal(blocks: Names) -> tuple[Share, ...]:
    """Table 2's row of CIFAR-10 and EuroSAT: nine parties, twelve blocks, five of ten classes.

    Ours, in the manner of Figure 11(c): 6 to 8 blocks each and 60 in all, every block of every
    class at 1 to 4 parties. Six parties have two of the four quadrants, three have two of the three
    colours.
    """
    quadrants = [blocks[start : start + 3] for start in range(0, 12, 3)]
    colours = [blocks[start::3] for start in range(3)]
    sets = [(*a, *b) for a, b in (*combinations(quadrants, 2), *combinations(colours, 2))]
    classes = (
        (0, 1, 6, 7, 9),
        (2, 3, 5, 6, 7),
        (1, 4, 5, 8, 9),
        (2, 3, 4, 7, 9),
        (2, 4, 5, 6, 7),
        (0, 1, 4, 8, 9),
        (0, 3, 4, 6, 8),
        (0, 1, 2, 7, 8),
        (1, 2, 3, 5, 8),
    )
    return _shares(list(zip(sets, classes, strict=True)))
