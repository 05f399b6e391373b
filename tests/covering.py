"""Parameters of slow tests: some combinations with every change, all of them before a release.

Most faults show with one value of one parameter, nearly all others with a pair of values. So
``make test`` runs few combinations that hold every value, or every pair of values; the others
are marked, and run in ``make test-all``. So it is with examples that Hypothesis draws.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import combinations, product
from typing import Any

import pytest
from hypothesis import settings


def every_value(
    ids: Callable[[Any], str | None] | None = None, **values: Iterable[Any]
) -> pytest.MarkDecorator:
    """Parametrize a test so that every value of every parameter appears in ``make test``."""
    return cover(tuple(values), product(*values.values()), together=1, ids=ids)


def every_pair(
    ids: Callable[[Any], str | None] | None = None, **values: Iterable[Any]
) -> pytest.MarkDecorator:
    """Parametrize a test so that any two values of two parameters meet in ``make test``."""
    return cover(tuple(values), product(*values.values()), together=2, ids=ids)


def cover(
    names: Sequence[str],
    cases: Iterable[Sequence[Any]],
    *,
    together: int = 1,
    others: Iterable[Sequence[Any]] = (),
    ids: Callable[[Any], str | None] | None = None,
) -> pytest.MarkDecorator:
    """Parametrize a test by cases, of which ``make test`` runs a part.

    Parameters
    ----------
    together
        1: every value that a parameter has in some case is in a case that is run; 2: so is every
        pair of values.
    others
        Further cases, all for release days; those among them that stand above are not repeated.
    """
    found = [tuple(case) for case in cases]
    chosen = _choose([_tuples(case, together) for case in found])
    marked = [
        pytest.param(*case, marks=() if number in chosen else (pytest.mark.release,))
        for number, case in enumerate(found)
    ]
    further = (tuple(case) for case in others)
    marked += [
        pytest.param(*case, marks=pytest.mark.release) for case in further if case not in found
    ]
    return pytest.mark.parametrize(tuple(names), marked, ids=ids)


def before_release(*values: Any) -> list[Any]:
    """Values of a parameter that ``make test`` leaves out."""
    return [pytest.param(value, marks=pytest.mark.release) for value in values]


def some_of(values: Iterable[Any], *chosen: Any) -> list[Any]:
    """Values of a parameter, of which ``make test`` has the chosen ones only."""
    return [*chosen, *before_release(*(value for value in values if value not in chosen))]


def examples(count: int, **how: Any) -> settings:
    """So many examples of a test before a release; with every change as many as are drawn there."""
    return settings(
        max_examples=min(count, settings().max_examples) if changing() else count, **how
    )


def changing() -> bool:
    """Whether these are the tests of every change, ``make test``."""
    return settings.get_current_profile_name() == "change"


def _tuples(case: tuple[Any, ...], together: int) -> set[tuple[Any, ...]]:
    """What a case brings together: values, or pairs of them, with the places they stand at."""
    return set(combinations([(place, repr(value)) for place, value in enumerate(case)], together))


def _choose(brought: list[set[tuple[Any, ...]]]) -> set[int]:
    """Greedily, the case that brings most that is new, and little that others brought often."""
    missing = set().union(*brought)
    uses: Counter[tuple[Any, ...]] = Counter()
    chosen: set[int] = set()

    def worth(number: int) -> tuple[int, int]:
        return len(brought[number] & missing), -sum(uses[part] for part in brought[number])

    while missing:
        best = max(range(len(brought)), key=worth)
        chosen.add(best)
        missing -= brought[best]
        uses.update(brought[best])
    return chosen
