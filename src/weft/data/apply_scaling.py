"""The local half of federated scaling: applying shifts and factors that all parties agreed on."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.data.tile import Block, Names, Sparse, Tile, as_names, with_data
from weft.errors import DataError

#: Cells that are scaled at a time.
_AT_ONCE = 500_000


@dataclass(frozen=True, eq=False)
class ColumnScaling:
    """Maps column j of the table to (x − shift_j) · factor_j.

    A missing (NaN) cell becomes 0 after that, which is the column's centre.

    Parameters
    ----------
    features : array of str objects, shape (m,)
        All features of the table, unique.
    shift, factor : float64 arrays, shape (m,)
        What is taken off and multiplied by.
    """

    features: Names
    shift: NDArray[np.float64]
    factor: NDArray[np.float64]

    def __post_init__(self) -> None:
        shape = (len(self.features),)
        if self.shift.shape != shape or self.factor.shape != shape:
            raise DataError(
                f"scaling of {shape[0]} features has {self.shift.shape} shifts and "
                f"{self.factor.shape} factors; give one of each per feature."
            )
        sound = np.isfinite(self.shift) & np.isfinite(self.factor)
        if not sound.all():
            name = self.features[int(sound.argmin())]
            raise DataError(
                f"scaling of column {name!r} is not finite; give a column without spread factor 1."
            )

    @cached_property
    def _place(self) -> dict[str, int]:
        return {name: position for position, name in enumerate(self.features.tolist())}

    def apply(self, tile: Tile, party: str = "") -> Tile:
        """Scale a tile whose features are among the scaling's, in any order.

        Parameters
        ----------
        tile : Tile
            The tile; it stays as it is. A scaled CSR tile shares its index arrays.
        party : str
            Name of the party, for error messages.
        """
        try:
            places = np.array([self._place[name] for name in tile.features.tolist()], dtype=int)
        except KeyError as error:
            raise DataError(
                f"{_holder(party, tile.source)}: column {error.args[0]!r} is not among the "
                f"{len(self.features)} scaled columns; train with it or drop it."
            ) from None
        where = _holder(party, tile.source)
        block = _scaled(tile.block, self.shift[places], self.factor[places], tile.features, where)
        return replace(tile, block=block)

    def to_json(self) -> dict[str, list[Any]]:
        """Plain lists, ready for `json.dumps`; floats survive the round trip exactly."""
        return {
            "features": self.features.tolist(),
            "shift": self.shift.tolist(),
            "factor": self.factor.tolist(),
        }

    @classmethod
    def from_json(cls, stored: Mapping[str, list[Any]]) -> ColumnScaling:
        """The scaling that `to_json` gave."""
        return cls(
            as_names(stored["features"], "feature name", "the stored scaling"),
            np.array(stored["shift"], dtype=np.float64),
            np.array(stored["factor"], dtype=np.float64),
        )


def _scaled(
    block: Block,
    shift: NDArray[np.float64],
    factor: NDArray[np.float64],
    features: Names,
    where: str,
) -> Block:
    if isinstance(block, np.ndarray):
        # One new array, filled band by band: tiles may be most of the memory.
        dense = np.empty_like(block)
        rows = max(1, _AT_ONCE // max(1, block.shape[1]))
        for start in range(0, len(block), rows):
            part = block[start : start + rows] - shift
            part *= factor
            part[np.isnan(part)] = 0.0
            dense[start : start + rows] = part
        return dense
    if shift.any():
        name = features[int((shift != 0).argmax())]
        raise DataError(
            f"{where}: column {name!r} is sparse and centring would fill it with non-zeros; "
            "scale with 'maxabs', which only multiplies."
        )
    return _scaled_sparse(block, factor)


def _scaled_sparse(block: Sparse, factor: NDArray[np.float64]) -> Sparse:
    data = block.data * factor[block.indices]
    gaps = np.isnan(data)
    if gaps.any():
        data[gaps] = 0.0
    return with_data(block, data)


def _holder(party: str, source: str) -> str:
    return ", ".join(part for part in (f"party {party!r}" if party else "", source) if part) or (
        "the tile"
    )
