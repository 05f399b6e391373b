"""The same column in other units: found by the coordinator, from tokens alone.

Median and spread of a column are put on a grid of three steps per power of ten, each as it is and
half a step further: so sizes within half a step of each other meet on one of the four grids, and
sizes a whole step apart on none. A holder tells keyed hashes of its places on the grids, and of the
places that its column would have in other units. Where one of the latter is another holder's place,
and the other way round, the two are about a power of ten apart, in median and spread alike. One way
would let a party tell guesses of others' sizes in the place of its own.

A hash is of the column's name too, so that only holders of a column have hashes that meet. Columns
without a size have hashes that meet none, and look like all others.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log10
from typing import Annotated

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import DataError, ProtocolError
from weft.fast_small_array_operations import among
from weft.matching.id_and_name_forms import Tokens
from weft.protocol.declared_message_fields import Part
from weft.protocol.field_visibility import tokens

#: Steps of the grids in a power of ten.
STEPS = 3
#: How many powers of ten units may lie apart: from millimetres to kilometres.
_MOST = 6
POWERS = tuple(power for power in range(-_MOST, _MOST + 1) if power)
#: Whole or half a step, for the median and for the spread.
GRIDS = ((0.0, 0.0), (0.0, 0.5), (0.5, 0.0), (0.5, 0.5))


class UnitTokens(Part):
    """Of the shared columns, in an order that tells nothing: four tokens each, and as many a power.

    Attributes
    ----------
    here
        Of sizes as they are.
    elsewhere
        Of sizes as they would be in other units.
    """

    here: Annotated[Tokens, tokens("keyed hashes of a column's name and its size, coarsely")]
    elsewhere: Annotated[Tokens, tokens("the same of its size times powers of ten")]


def places(size: tuple[float, float]) -> list[tuple[int, int]]:
    """Where a median and a spread lie on each grid."""
    median, spread = (STEPS * log10(value) for value in size)
    return [(floor(median + one), floor(spread + other)) for one, other in GRIDS]


def powers_apart(one: tuple[float, float], other: tuple[float, float]) -> int:
    """By how many powers of ten ``other`` is larger, if that is what sets the two apart; else 0."""
    for mine, theirs in zip(places(one), places(other), strict=True):
        median, spread = theirs[0] - mine[0], theirs[1] - mine[1]
        if median == spread and median % STEPS == 0 and 0 < abs(median) <= STEPS * _MOST:
            return median // STEPS
    return 0


# ── the coordinator ───────────────────────────────────────────────────────────────────────────


class OtherUnits(DataError):
    """Two parties have columns that are a power of ten apart.

    Attributes
    ----------
    parties
        The first two.
    places
        Per party name, positions of these columns among its tokens.
    powers
        By which powers of ten the second party's are larger.
    """

    #: Who has columns in common with whom, and how many, is not for a submitter.
    TOLD = (
        "columns of the same name are about a power of ten apart at two parties, in median and "
        "spread, as if in other units; the logs of their sites name them: bring them into one unit "
        'with scale there, or set confirmed = ["units"] in [data] if that is meant'
    )

    def __init__(
        self, parties: tuple[str, str], places: dict[str, Ints], powers: Sequence[int]
    ) -> None:
        self.parties, self.places, self.powers = parties, places, sorted(set(powers))
        super().__init__(self.sentence({}), told=self.TOLD)

    def sentence(self, where: Mapping[str, str]) -> str:
        """What is wrong and what to do; ``where`` says which columns of whom."""
        found = "".join(f"; {party}: {names}" for party, names in where.items())
        return f"{self._apart()}{found}; {self._mend()}"

    @property
    def in_a_check(self) -> str:
        """The same for whoever may know who holds what."""
        return f"{self._apart()}; the logs of both sites name them: {self._mend()}"

    def _apart(self) -> str:
        times = " or ".join(f"{10.0**power:g}" for power in self.powers)
        return (
            f"{len(self.places[self.parties[0]])} column(s) of {self.parties[1]} are about {times} "
            f"times as large as those of {self.parties[0]}, in median and spread, as if in other "
            "units"
        )

    def _mend(self) -> str:
        return (
            "bring them into one unit with scale of one of the parties, or set "
            'confirmed = ["units"] in [data] if that is meant'
        )


def check_units(told: Mapping[str, UnitTokens | None], columns: Mapping[str, int]) -> None:
    """Refuse columns of two parties that are a power of ten apart.

    Parameters
    ----------
    told
        What every party said, in the order of parties.
    columns
        How many columns each shares with others.
    """
    parties = list(told)
    cut = (_cut(party, told[party], columns[party]) for party in parties)
    here, elsewhere = zip(*cut, strict=True)
    owner = np.repeat(np.arange(len(parties)), [part.size for part in here])
    at = np.concatenate([np.arange(part.size) for part in here])
    every = np.concatenate([part.ravel() for part in here])
    order = np.argsort(every, kind="stable")
    every = every[order]
    found: dict[tuple[int, int], dict[tuple[int, int], int]] = {}
    for number, part in enumerate(elsewhere):
        for place in np.flatnonzero(among(part.ravel(), every)).tolist():
            column, shift = divmod(place, part.shape[1])
            token = part[column, shift]
            first, end = (int(np.searchsorted(every, token, side)) for side in ("left", "right"))
            for entry in order[first:end].tolist():
                other, (row, grid) = int(owner[entry]), divmod(int(at[entry]), len(GRIDS))
                if other <= number or shift % len(GRIDS) != grid:
                    continue
                if elsewhere[other][row, _opposite(shift)] == here[number][column, grid]:
                    power = POWERS[shift // len(GRIDS)]
                    found.setdefault((number, other), {})[column, row] = power
    if not found:
        return
    one, other = min(found)
    pairs = found[one, other]
    whose = {
        parties[one]: np.array(sorted(mine for mine, _ in pairs), np.int64),
        parties[other]: np.array(sorted(theirs for _, theirs in pairs), np.int64),
    }
    raise OtherUnits((parties[one], parties[other]), whose, list(pairs.values()))


def _opposite(shift: int) -> int:
    """Where among a column's tokens the same grid is under the opposite power."""
    power, grid = divmod(shift, len(GRIDS))
    return (len(POWERS) - 1 - power) * len(GRIDS) + grid


def _cut(
    party: str, told: UnitTokens | None, columns: int
) -> tuple[NDArray[np.uint64], NDArray[np.uint64]]:
    width = len(GRIDS)
    if told is None:
        raise ProtocolError(f"party {party} sent no tokens of its columns' sizes")
    if (len(told.here), len(told.elsewhere)) != (columns * width, columns * width * len(POWERS)):
        raise ProtocolError(f"party {party} sent tokens of sizes that do not fit its columns")
    return told.here.reshape(columns, width), told.elsewhere.reshape(columns, width * len(POWERS))
