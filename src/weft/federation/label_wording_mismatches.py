"""Labels that mean the same in other words: "yes" and "no" here, 1 and 0 there."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from itertools import combinations

from weft.data.number_texts import TRUTH
from weft.errors import DataError
from weft.matching.authenticated_class_list import Classes

#: What may be told of it.
_IN_WORDS = (
    "labels of two parties look like the same classes in other words, such as yes and no, 1 and 0; "
    "map them with 'classes' at one of them, or set confirmed = [\"labels\"] in [data] if they are "
    "meant to differ"
)
#: Numbers that people give to two classes.
_CODINGS = ({0.0, 1.0}, {1.0, 2.0}, {-1.0, 1.0})


def check_vocabularies(lists: Sequence[Classes]) -> None:
    """Refuse lists of classes that look like one list in several words.

    ``lists`` are those of all parties that have labels.
    """
    distinct = list({tuple(_spelt(classes)): classes for classes in lists}.values())
    coded = all_coded(distinct)
    if _written_alike(distinct):
        # Else thousands of parties with a few of many classes each would be compared in pairs.
        distinct = [classes for classes in distinct if len(classes) == 2]
    for one, other in combinations(distinct, 2):
        if mapping_between(one, other, coded=coded) is not None:
            raise DataError(
                f"one party has the labels {_listed(one)} and another {_listed(other)}, which look "
                "like the same classes in other words; map them with 'classes' of a party, or set "
                'confirmed = ["labels"] in [data] if they are meant to differ',
                # Which classes a party has is for nobody but the parties.
                told=_IN_WORDS,
                harmless=f"found that {_IN_WORDS}",
            )


def all_coded(lists: Sequence[Classes]) -> bool:
    """Whether all lists have two numbers as people give them to two classes."""
    numbers = [_numbers(_spelt(classes)) for classes in lists]
    return all(found is not None and set(found) in _CODINGS for found in numbers)


def _written_alike(lists: Sequence[Classes]) -> bool:
    """Whether every label is written in one way, and all are numbers or none of a list is.

    Then only lists of two classes can look like one list in several words.
    """
    spelt = [_spelt(classes) for classes in lists]
    texts = {text for one in spelt for text in one}
    kinds = {_numbers(one) is None for one in spelt}
    return len(kinds) < 2 and len({_plain(text) for text in texts}) == len(texts)


def mapping_between(one: Classes, other: Classes, *, coded: bool) -> dict[str, str] | None:
    """Which labels of ``other`` probably mean which of ``one``.

    None: nothing looks wrong. Empty: they do not go together, and nobody can tell which is which.
    ``coded`` says what `all_coded` finds of all parties: where a third one has other numbers, 0 and
    1 here and 1 and 2 there are rather three classes.
    """
    mine, theirs = _spelt(one), _spelt(other)
    same = {_plain(text): text for text in mine}
    found = {text: same[_plain(text)] for text in theirs if _plain(text) in same}
    if any(text != meant for text, meant in found.items()):
        return _completed(found, mine, theirs)
    if set(mine) & set(theirs) == set(mine) | set(theirs):
        return None
    numbers = [_numbers(texts) for texts in (mine, theirs)]
    if numbers[0] is not None and numbers[1] is not None:
        if coded:
            ordered = [sorted(texts, key=float) for texts in (theirs, mine)]
            return dict(zip(*ordered, strict=True))
        return None
    apart = not set(mine) & set(theirs)
    if (numbers[0] is None) != (numbers[1] is None):
        return {} if apart else None
    return {} if apart and len(mine) == len(theirs) == 2 else None


def _completed(found: dict[str, str], mine: list[str], theirs: list[str]) -> dict[str, str]:
    """A mapping of all labels: of two classes the second follows; others stay as they are."""
    left = [text for text in theirs if text not in found]
    free = [text for text in mine if text not in found.values()]
    if len(mine) == len(theirs) == 2 and len(left) == len(free) == 1:
        return found | {left[0]: free[0]}
    return found | {text: text for text in left}


def _spelt(classes: Classes) -> list[str]:
    """Values as a file has them; whole numbers without a fraction."""
    return [
        f"{value:g}" if isinstance(value, bool | int | float) else str(value)
        for value in classes.tolist()
    ]


def _plain(text: str) -> str:
    """The form in which labels are compared: case, accents and words for true and false aside."""
    folded = unicodedata.normalize("NFKD", text.strip()).casefold()
    folded = "".join(sign for sign in folded if not unicodedata.combining(sign))
    return f"{TRUTH[folded]:g}" if folded in TRUTH else folded


def _numbers(texts: Sequence[str]) -> list[float] | None:
    try:
        return [float(text) for text in texts]
    except ValueError:
        return None


def _listed(classes: Classes) -> str:
    return ", ".join(_spelt(classes)[:4]) + (", …" if len(classes) > 4 else "")
