"""A party's side of units: how large its columns are, for nobody to read but by comparing."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.party_seeds_and_shared_key import Keyring
from weft.crypto.primitives.batched_keyed_hashes import Strings
from weft.crypto.secret_bytes import Secret
from weft.data.column_sizes_for_unit_check import FEWEST, ColumnSize, column_sizes
from weft.data.tile import Tile
from weft.errors import DataError, ProtocolError
from weft.matching.guard_facts_from_confirmed_lists import by_slot
from weft.matching.id_and_name_forms import normal_features
from weft.matching.messages import UNITS, UnitsRequest
from weft.matching.party_view import PartyView
from weft.matching.tokens import tokens_of
from weft.matching.unit_mismatches import GRIDS, POWERS, STEPS, UnitTokens, places
from weft.protocol import Answer, Nothing, answer, answers
from weft.protocol.declared_message_fields import malformed

Names = NDArray[np.object_]

#: Columns that a party names to its owner.
_NAMED = 5

#: By how many steps of the grids other units shift a size.
_SHIFTS = tuple(STEPS * power for power in POWERS)


class UnitsParty:
    """Tells tokens of the sizes of its shared columns, once in a run.

    Parameters
    ----------
    tiles
        Its tables as files have them: what a study makes of columns would steer their sizes.
    least
        Of how many samples a size may be told, if more than `FEWEST`.
    """

    def __init__(self, name: str, tiles: Sequence[Tile], keyring: Keyring, least: int) -> None:
        self._name, self._tiles, self._keyring = name, tiles, keyring
        self._least = max(FEWEST, least)
        #: Columns and their sizes, in the order of the tokens that were told.
        self._told: list[tuple[str, ColumnSize | None]] | None = None
        self._complained = False

    def answers(self) -> dict[str, Answer]:
        return answers(answer(UNITS, self._name_columns))

    def tell(self, view: PartyView, features: Sequence[Names]) -> UnitTokens:
        """Tokens of its shared columns; ``features`` are the names of all, tile by tile."""
        sizes = self._sizes()
        shared = by_slot(features, view.tile_columns, view.n_shared_columns)
        # The constant column has no name.
        names = [name for name in shared if name]
        found = [sizes.get(name) for name in names]
        secret = self._keyring.bound_secret("weft units")
        told, order = unit_tokens(names, found, secret, self._name)
        self._told = [(names[place], found[place]) for place in order.tolist()]
        return told

    def _sizes(self) -> dict[str, ColumnSize]:
        """By the form in which names of columns are compared."""
        normal: dict[str, str] = {}
        for tile in self._tiles:
            forms = normal_features(tile.features).tolist()
            normal.update(zip(tile.features.tolist(), forms, strict=True))
        sizes = column_sizes(self._tiles, self._least)
        return {normal[name]: size for name, size in sizes.items()}

    def _name_columns(self, message: UnitsRequest) -> Nothing:
        """Tell its owner which columns another party probably has in other units."""
        if self._told is None or self._complained:
            raise ProtocolError(f"party {self._name} is asked for units once, after its view")
        self._complained = True
        wanted = message.places
        if (wanted < 0).any() or (wanted >= len(self._told)).any():
            raise malformed("places", "names columns that there are not")
        found = sorted(self._told[place] for place in wanted.tolist())
        named = [
            repr(name) if size is None else f"{name!r} (median {size[0]:.3g})"
            for name, size in found[:_NAMED]
        ]
        more = f" and {len(found) - _NAMED} more" if len(found) > _NAMED else ""
        # Names of columns and medians are for the owner's log alone.
        raise DataError(
            f"in other units: {', '.join(named)}{more}", told="its log names the columns"
        )


def unit_tokens(
    names: Sequence[str], sizes: Sequence[ColumnSize | None], secret: Secret, party: str
) -> tuple[UnitTokens, Ints]:
    """A party's tokens of columns, and in which order the columns are."""
    here: list[str] = []
    elsewhere: list[str] = []
    for name, size in zip(names, sizes, strict=True):
        if size is None:
            # Of nobody else's making, and so equal to no token of another party.
            of_none = f"{name}\0\0{party}\0"
            grids = range(len(GRIDS))
            here += [f"{of_none}{grid}" for grid in grids]
            elsewhere += [f"{of_none}{grid} {power}" for power in POWERS for grid in grids]
            continue
        at = places(size)
        here += [f"{name}\0{grid} {median} {spread}" for grid, (median, spread) in enumerate(at)]
        # Fifty texts a column: numbers that two of them have in common become text once.
        (median, spread), _, _, (later, wider) = at
        first, second, third, fourth = (f"{name}\0{grid} " for grid in range(len(GRIDS)))
        for shift in _SHIFTS:
            one, two = f"{median + shift} ", f"{later + shift} "
            small, large = f"{spread + shift}", f"{wider + shift}"
            elsewhere += (first + one + small, second + one + large)
            elsewhere += (third + two + small, fourth + two + large)
    own = tokens_of(Strings.of_texts(here), secret, "units").reshape(len(names), len(GRIDS))
    width = len(GRIDS) * len(POWERS)
    other = tokens_of(Strings.of_texts(elsewhere), secret, "units").reshape(len(names), width)
    order = np.argsort(own[:, 0], kind="stable")
    return UnitTokens(here=own[order].ravel(), elsewhere=other[order].ravel()), order
