"""Deals: which party holds which blocks of which classes.

The texts show most of their deals as counts only: how many parties hold a block of a class
(Figures 11 and 12 of the 2024 text). Where a deal here has exactly the counts of a figure, or is
exactly a table, its docstring says so; the rest is ours.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

from weft_papers.hyfem.scenes.scene import Share

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


def four_view_deal(views: Names) -> tuple[Share, ...]:
    """ModelNet40:1 of Table 2: four parties, three of four views, 20 of 40 classes.

    It has the counts of Figure 11(a): each party lacks a view of its own, and each ten classes
    in turn are at two parties.
    """
    tens = [range(start, start + 10) for start in range(0, 40, 10)]
    halves = ((0, 1), (0, 3), (2, 3), (1, 2))
    return _shares(
        [(_without(views, lacked), [*tens[a], *tens[b]]) for lacked, (a, b) in enumerate(halves)]
    )


def four_view_deal_2020(views: Names) -> tuple[Share, ...]:
    """The 2020 text's four parties: three of four views, 30 of 40 classes.

    Which ones it does not say; ours: each party lacks a view and every fourth class, so that each
    class is at three parties and each view of it at two or three.
    """
    return _shares(
        [
            (_without(views, lacked), [c for c in range(40) if c % 4 != lacked])
            for lacked in range(4)
        ]
    )


def twelve_view_deal(views: Names) -> tuple[Share, ...]:
    """ModelNet40:2 of Table 2, and the 2020 text's eight parties: 6 of 12 views, 15 of 40 classes.

    It has the counts of Figure 11(b), with its 58 of 480 pairs (12.08 %) at nobody: six parties
    hold two of the four runs of three views, one the odd and one the even views.
    """
    runs = [views[start : start + 3] for start in range(0, 12, 3)]
    sets = [(*a, *b) for a, b in combinations(runs, 2)]
    sets += [tuple(views[0::2]), tuple(views[1::2])]
    numbers = (
        (2, 3, 5, 16, 18, 19, 22, 25, 27, 28, 31, 32, 34, 38, 39),
        (3, 7, 10, 12, 18, 19, 21, 23, 26, 28, 29, 30, 33, 34, 40),
        (7, 9, 10, 12, 14, 15, 20, 24, 29, 30, 31, 32, 36, 37, 39),
        (1, 6, 8, 10, 12, 13, 14, 22, 25, 29, 32, 35, 36, 37, 39),
        (2, 5, 7, 9, 11, 14, 15, 16, 17, 19, 21, 24, 26, 30, 32),
        (1, 7, 8, 11, 16, 19, 23, 26, 27, 30, 31, 32, 33, 35, 37),
        (2, 4, 5, 8, 9, 12, 18, 19, 20, 21, 22, 25, 30, 34, 37),
        (3, 4, 8, 9, 14, 15, 20, 24, 26, 30, 31, 32, 35, 36, 40),
    )
    return _shares([(held, _from_zero(n)) for held, n in zip(sets, numbers, strict=True)])


def table3(views: Names) -> tuple[Share, ...]:
    """Table 3: six parties with 25 of 40 classes; four views, the first and the third at all.

    The classes, which the table only counts, give the counts of Figure 12(a), with its 11 of 160
    pairs (6.88 %) at nobody.
    """
    one, two, three, four = views
    sets = [(one, two, three)] * 2 + [(one, three, four)] * 2 + [(one, three)] * 2
    # By what each lacks: 15 of the 40.
    lacking = (
        (2, 7, 11, 16, 17, 18, 20, 22, 23, 25, 30, 31, 33, 38, 39),
        (2, 4, 8, 13, 15, 16, 18, 20, 21, 27, 31, 33, 35, 36, 39),
        (2, 3, 5, 9, 10, 11, 16, 19, 21, 28, 30, 31, 34, 35, 40),
        (3, 4, 7, 8, 12, 13, 14, 15, 16, 17, 21, 22, 33, 36, 40),
        (3, 4, 5, 6, 7, 9, 11, 14, 18, 20, 29, 32, 37, 39, 40),
        (4, 5, 6, 8, 9, 12, 15, 18, 20, 21, 27, 28, 32, 33, 35),
    )
    return _shares(
        [
            (held, [c for c in range(40) if c + 1 not in lacked])
            for held, lacked in zip(sets, lacking, strict=True)
        ]
    )


def pair_deal(blocks: Names) -> tuple[Share, ...]:
    """HeriGraph of Appendix C.3: six parties, two of four blocks, six of nine classes.

    Which ones it does not say. Ours: each party has another pair of blocks (of fewer blocks the
    pairs come round again), and lacks a row or a column of the classes in a 3 × 3 square, so that
    each class is at four parties and each of its blocks at one or more.
    """
    pairs = list(combinations(blocks, 2))
    lacked = [{3 * k, 3 * k + 1, 3 * k + 2} for k in range(3)] + [
        {k, k + 3, k + 6} for k in range(3)
    ]
    return _shares(
        [(pairs[k % len(pairs)], [c for c in range(9) if c not in lacked[k]]) for k in range(6)]
    )


def _without(names: Names, place: int) -> list[str]:
    return [name for other, name in enumerate(names) if other != place]


def _from_zero(numbers: Sequence[int]) -> list[int]:
    return [number - 1 for number in numbers]
