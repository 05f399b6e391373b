"""What holders of a column must have in common: its rule, and the levels of a category.

Over a network no party sees another's cells: they list levels under a key of the column
(`weft.matching.encrypted_level_lists`), and one of them joins the lists as it is done here.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import msgspec

from weft.data.blank_cells import settle_missing
from weft.data.columns.column_rules import OTHER, PLAIN, ColumnRule, rule_bytes
from weft.data.columns.column_to_numbers import SettledColumn, settled_column
from weft.data.columns.raw_column_cells import CategoryCells, Cells, Pair
from weft.data.columns.table_transformation import Transformation
from weft.data.tile import MissingPolicy, Tile
from weft.errors import DataError


class Levels(msgspec.Struct, frozen=True):
    """Levels of a category, and whether there are rare ones that go by one name."""

    names: tuple[str, ...]
    rare: bool = False


def rules_of(tiles: Sequence[Tile]) -> dict[str, ColumnRule]:
    """Every column of a party with its rule, by name; those without one are plain."""
    found = {name: PLAIN for tile in tiles for name in tile.features.tolist()}
    for tile in tiles:
        if tile.declared is not None:
            found.update(tile.declared.rules)
    return found


def cells_of(tiles: Sequence[Tile], name: str) -> list[Cells]:
    """A party's cells of one declared column, per tile that has it."""
    return [
        tile.declared.cells[name]
        for tile in tiles
        if tile.declared is not None and name in tile.declared.cells
    ]


def interactions_of(tiles: Sequence[Tile]) -> list[Pair]:
    """All pairs of columns whose products are columns too."""
    pairs = (pair for t in tiles if t.declared is not None for pair in t.declared.interactions)
    return list(dict.fromkeys(pairs))


def common_bytes(tiles: Sequence[Tile], name: str) -> bytes:
    """What a party declares about a column, as bytes that are the same at all who declare it so.

    Where the party's own numbers decide, as in the ends of bins of equal size, they are in it.
    """
    rule = rules_of(tiles)[name]
    knots: tuple[float, ...] = ()
    if isinstance(rule.bins, int) or isinstance(rule.spline, int):
        knots = settled_column(name, rule, cells_of(tiles, name)).knots
    return rule_bytes(rule) + repr(knots).encode()


def own_levels(tiles: Sequence[Tile], name: str, least: int) -> Levels:
    """Levels that at least so many of a party's samples have: others stay at home, unnamed.

    The reference is none of them, for it gets no column. Whether there are rare ones depends on
    neither it nor on what stands for blank cells: a study could name a level there, and see from
    the number of columns whether a single sample has it.
    """
    rule = rules_of(tiles)[name]
    counts: dict[str, int] = {}
    blanks = 0
    for cells in cells_of(tiles, name):
        if isinstance(cells, CategoryCells):
            blanks += int(cells.blank.sum())
            for level, count in cells.counts().items():
                counts[level] = counts.get(level, 0) + count
    often = {level for level, count in counts.items() if count >= least}
    rare = len(often) < len(counts)
    if rule.blank is not None and blanks:
        fill = str(rule.blank)
        rare |= blanks < least and fill not in (*often, rule.reference)
        often |= {fill} if blanks >= least else set()
    return Levels(tuple(sorted(often - {rule.reference, OTHER})), rare)


def join_levels(lists: Sequence[Levels]) -> Levels:
    """The levels of all holders, in one order."""
    names = sorted({name for levels in lists for name in levels.names})
    return Levels(tuple(names), any(levels.rare for levels in lists))


def other_writings(levels: Iterable[str]) -> dict[str, str]:
    """Levels that differ in case, accents or blanks only from one before, and that one."""
    seen: dict[str, str] = {}
    found: dict[str, str] = {}
    for level in levels:
        folded = unicodedata.normalize("NFKD", "".join(level.split())).casefold()
        form = "".join(sign for sign in folded if not unicodedata.combining(sign))
        if seen.setdefault(form, level) != level:
            found[level] = seen[form]
    return found


def settle_columns(tiles: Sequence[Tile], agreed: Mapping[str, Levels]) -> Transformation:
    """How a party's declared columns become numbers, once levels are agreed on."""
    columns: list[SettledColumn] = []
    for name, rule in rules_of(tiles).items():
        held = cells_of(tiles, name)
        if not held:
            continue
        if rule.open:
            levels = agreed[name]
            columns.append(settled_column(name, rule, held, levels.names, other=levels.rare))
        else:
            columns.append(settled_column(name, rule, held))
    return Transformation(columns=tuple(columns), interactions=tuple(interactions_of(tiles)))


def insist_on_plain(tiles: Sequence[Tile], party: str, what: str) -> None:
    """Refuse declared columns, where nothing applies their rules."""
    if any(tile.declared is not None for tile in tiles):
        raise DataError(
            f"party {party!r} declares columns, which {what} do not know; leave columns and "
            "interactions out, and give numbers"
        )


def settled_together(
    tiles: Mapping[str, Sequence[Tile]], least: Mapping[str, int], missing: MissingPolicy
) -> dict[str, tuple[Tile, ...]]:
    """All parties' tiles as numbers without blank cells, where one process has them all.

    ``least`` says per party how many of its samples must have a level that it names.
    """
    said: dict[str, bytes] = {}
    lists: dict[str, list[Levels]] = {}
    for party, held in tiles.items():
        for name, rule in rules_of(held).items():
            own = common_bytes(held, name)
            if said.setdefault(name, own) != own:
                raise DataError(
                    f"party {party!r} declares column '{name}' otherwise than another party; let "
                    "all that hold it say the same about it"
                )
            if rule.open:
                lists.setdefault(name, []).append(own_levels(held, name, least[party]))
    agreed = {name: join_levels(found) for name, found in lists.items()}
    return {
        party: _numbers(held, settle_columns(held, agreed), missing, party)
        for party, held in tiles.items()
    }


def _numbers(
    tiles: Sequence[Tile], made: Transformation, missing: MissingPolicy, party: str
) -> tuple[Tile, ...]:
    settled = (settle_missing(tile, missing, party) for tile in tiles)
    return tuple(settle_missing(made.apply(tile).insist(party), missing, party) for tile in settled)
