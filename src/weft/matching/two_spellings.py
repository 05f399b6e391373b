"""Names and ids that two parties write in two ways: found by the coordinator, from tokens alone.

What looks like a slip stops a run until the parties mend it, or confirm that it is meant.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import DataError
from weft.fast_small_array_operations import among
from weft.matching.id_and_name_forms import MOST_BARE, Mismatches, Tokens

#: Share of the smaller party's ids that may agree in their loose form only.
TOLERATED = 0.01


class SimilarNames(DataError):
    """Two parties have columns whose names differ in their writing only.

    Attributes
    ----------
    parties
        The first two.
    columns
        How many columns of theirs.
    places
        Per party name, (tile, position among its tokens) of these columns.
    """

    #: Who has columns in common with whom, and how many, is not for a submitter.
    TOLD = (
        "columns of two parties have names that differ only in case, blanks, underscores, hyphens, "
        "points or accents, and would count as different features; the logs of their sites name "
        'them: rename them there, or set confirmed = ["names"] in [data] if that is meant'
    )

    def __init__(self, parties: tuple[str, str], places: dict[str, Ints], columns: int) -> None:
        self.parties, self.places, self.columns = parties, places, columns
        super().__init__(self.sentence({}), told=self.TOLD)

    def sentence(self, where: Mapping[str, str]) -> str:
        """What is wrong and what to do; ``where`` says which columns of whom."""
        found = "".join(f"; {party}: {names}" for party, names in where.items())
        return (
            f"{self.parties[0]} and {self.parties[1]} have {self.columns} column(s) whose names "
            "differ only in case, blanks, underscores, hyphens, points or accents, and would count "
            f'as different features{found}; rename them, or set confirmed = ["names"] in [data] '
            "if that is meant"
        )


def check_names(
    parties: Sequence[str], exact: Sequence[Sequence[Tokens]], loose: Sequence[Tokens]
) -> None:
    """Refuse columns of two parties that agree in their loose form only.

    Parameters
    ----------
    exact
        Per party and tile, tokens of the names of columns.
    loose
        Per party, tokens of their loose forms, tile after tile.
    """
    owner = np.repeat(np.arange(len(parties)), [len(forms) for forms in loose])
    names = np.concatenate([tokens for tiles in exact for tokens in tiles])
    code, forms = pd.factorize(np.concatenate(list(loose)))
    if not len(forms):
        return
    # Forms of two names or more are few, and looked at one by one.
    order = np.argsort(code, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(forms)))])
    lowest = np.minimum.reduceat(names[order], first[:-1])
    highest = np.maximum.reduceat(names[order], first[:-1])
    groups = []
    for group in np.flatnonzero(lowest != highest).tolist():
        entries = order[first[group] : first[group + 1]]
        held: dict[int, set[int]] = {}
        for party, name in zip(owner[entries].tolist(), names[entries].tolist(), strict=True):
            held.setdefault(party, set()).add(name)
        groups.append(held)
    pair = next((found for held in groups for found in _apart(held)), None)
    if pair is None:
        return
    one, other = pair
    mine, theirs, columns = set[int](), set[int](), 0
    for held in groups:
        a, b = held.get(one, set()), held.get(other, set())
        if a - b and b - a:
            mine, theirs, columns = mine | (a - b), theirs | (b - a), columns + 1
    places = {
        parties[one]: _places(exact[one], mine),
        parties[other]: _places(exact[other], theirs),
    }
    raise SimilarNames((parties[one], parties[other]), places, columns)


def _apart(held: Mapping[int, set[int]]) -> Iterator[tuple[int, int]]:
    """Pairs of parties of which each has a name that the other lacks."""
    for (a, one), (b, other) in combinations(sorted(held.items()), 2):
        if one - other and other - one:
            yield a, b


def _places(tiles: Sequence[Tokens], wanted: set[int]) -> NDArray[np.int64]:
    found = [
        (number, place)
        for number, tokens in enumerate(tiles)
        for place, token in enumerate(tokens.tolist())
        if token in wanted
    ]
    return np.array(found, np.int64).reshape(-1, 2)


def check_ids(mismatches: Mismatches, sizes: Mapping[str, int], *, least: int) -> None:
    """Refuse two parties with many ids, ``least`` or more, that agree in their loose form only."""
    for one, other, count in mismatches:
        if count >= least and count > TOLERATED * min(sizes[one], sizes[other]):
            raise TwoWritings(
                f"{{}} of {one} and {other} differ only in punctuation, blanks, accents or leading "
                "zeros, and would count as different samples; write them in one way (id_width or "
                'id_prefix of a party), or set confirmed = ["ids"] in [data] if that is meant',
                count,
                # Who shares samples with whom, and how many, is not for a submitter.
                told="ids of two parties differ only in punctuation, blanks, accents or leading "
                "zeros, and would count as different samples; write them in one way, or set "
                'confirmed = ["ids"] in [data] if that is meant (the coordinator\'s log names the '
                "parties)",
            )


class TwoWritings(DataError):
    """Ids of two parties that probably mean the same samples.

    Parameters
    ----------
    sentence
        What is wrong and what to do, with a place for how many ids.
    """

    def __init__(self, sentence: str, count: int, *, told: str) -> None:
        self._sentence, self._count = sentence, count
        super().__init__(sentence.format(f"{count} id(s)"), told=told)

    def in_a_check(self, least: int) -> str:
        """The same for whoever may know sizes of groups of ``least`` samples.

        Rounded down to a power of ten that is no less: an exact number, or its first digits, less
        the sizes of groups once ids meet, would tell those of smaller groups.
        """
        told = 10 ** (len(str(self._count)) - 1)
        return self._sentence.format(f"at least {told} ids" if told >= least else "ids")


@dataclass(frozen=True)
class PrefixedIds:
    """A party's tokens: of its ids, their loose forms, bare forms, and loose names of columns."""

    exact: Tokens
    loose: Tokens
    bare: Tokens
    columns: Tokens

    @property
    def per_bare(self) -> float:
        """How many ids each bare form stands for: not all of many are compared."""
        if len(self.bare) < MOST_BARE:
            return 1.0
        return len(np.unique(self.exact)) / len(self.bare)


def check_prefixes(
    parties: Sequence[str], held: Sequence[PrefixedIds], *, separate: bool, least: int
) -> None:
    """Refuse ids that would meet without what all of a party's begin with.

    One party may write more before its ids than another, or, where two have no column in common,
    each something of its own: else they are of other samples, it may be, under letters of their
    own. ``separate``: ids of parties with other columns need not meet. ``least``: fewer may not be
    told of.
    """
    everywhere = np.concatenate([party.loose for party in held])
    begins = [k for k, party in enumerate(held) if len(party.bare)]
    for k in begins:
        if not among(held[k].bare, everywhere).any():
            continue
        for j in range(len(held)):
            met = _met(held[k].bare, held[j].loose, least) * held[k].per_bare
            if j != k and _counts(met, held[k], held[j]):
                raise _prefixed(parties[k], parties[j], round(met), both=False)
    if separate:
        return
    for k, j in combinations(begins, 2):
        if among(held[k].columns, held[j].columns).any():
            continue
        met = _met(held[k].bare, held[j].bare, least) * max(held[k].per_bare, held[j].per_bare)
        if _counts(met, held[k], held[j]):
            raise _prefixed(parties[k], parties[j], round(met), both=True)


def _met(bare: Tokens, other: Tokens, least: int) -> int:
    """How many of the ids that are compared would meet, none for fewer than ``least``."""
    met = int(among(bare, other).sum())
    return met if met >= least else 0


def _counts(met: float, one: PrefixedIds, other: PrefixedIds) -> bool:
    """Whether more ids would meet than do, and more than by chance."""
    if not met or met <= TOLERATED * min(len(one.exact), len(other.exact)):
        return False
    return met > len(np.intersect1d(one.exact, other.exact))


def _prefixed(one: str, other: str, count: int, *, both: bool) -> TwoWritings:
    if both:
        what = (
            f"{{}} of {one} and {other} would meet without what all ids of each begin with; take "
            "both off with id_prefix"
        )
        told = "ids of two parties would meet without what all ids of each begin with; take both"
    else:
        what = (
            f"{{}} of {one} would occur at {other} too, without what all of its ids begin with; "
            "take it off with id_prefix"
        )
        told = "ids of a party would occur at another without what all of them begin with; take it"
    end = 'or set confirmed = ["ids"] in [data] if they are different'
    return TwoWritings(
        f"{what}, {end}",
        count,
        told=f"{told} off with id_prefix, {end} (the coordinator's log names the parties)",
    )
