"""What parties write in two ways, where one process reads all of their files.

Over a network the coordinator finds the same of names and ids from tokens
(`weft.matching.two_spellings`), and a party of labels; here findings also say what to write, and
columns are compared for their units.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

from weft.config.schema import PartySection
from weft.data.column_sizes_for_unit_check import column_sizes
from weft.data.findings_with_config_fixes import Finding
from weft.data.read_tiles import Examined
from weft.data.tile import Tile
from weft.federation.label_wording_mismatches import all_coded, mapping_between
from weft.federation.preprocessing_settings import Slip
from weft.matching.authenticated_class_list import Classes
from weft.matching.class_labels import common_classes
from weft.matching.id_and_name_forms import (
    common_head,
    loose_features,
    loose_ids,
    normal_features,
    normal_ids,
    without_head,
)
from weft.matching.two_spellings import TOLERATED
from weft.matching.unit_mismatches import powers_apart


def find_mismatches(
    parties: Sequence[PartySection],
    examined: Mapping[str, Sequence[Examined]],
    *,
    confirmed: Sequence[Slip],
    classes: bool,
) -> list[Finding]:
    """Doubts about names, ids, labels and units that differ between parties.

    Parameters
    ----------
    confirmed
        Which of them are meant to be so.
    classes
        Whether labels are classes.
    """
    tiles = {
        name: [file.tile for file in files if file.tile is not None and file.tile.n]
        for name, files in examined.items()
    }
    wrong = {
        (finding.party, finding.column)
        for files in examined.values()
        for file in files
        for finding in file.findings
        if finding.severity == "error"
    }
    coded = all_coded([_classes_of(held) for held in tiles.values() if len(_classes_of(held))])
    found: list[Finding] = []
    for one, other in combinations([party for party in parties if tiles[party.name]], 2):
        mine, theirs = tiles[one.name], tiles[other.name]
        if "names" not in confirmed:
            found += _names(one, other, mine, theirs)
        if "ids" not in confirmed:
            found += _ids(one, other, mine, theirs)
        if classes and "labels" not in confirmed:
            found += _labels(one, other, mine, theirs, coded=coded)
        if "units" not in confirmed:
            found += _units(one, other, mine, theirs, wrong)
    return _once(found)


def _once(found: Sequence[Finding]) -> list[Finding]:
    """Every line that mends something is proposed once, though several pairs need it."""
    seen: set[tuple[str, str]] = set()
    kept = []
    for finding in found:
        key = (finding.party, repr(finding.setting))
        if finding.setting is None or key not in seen:
            kept.append(finding)
        seen.add(key)
    return kept


# ── names ─────────────────────────────────────────────────────────────────────────────────────


def _names(
    one: PartySection, other: PartySection, mine: Sequence[Tile], theirs: Sequence[Tile]
) -> Iterator[Finding]:
    forms = [_forms(tiles) for tiles in (mine, theirs)]
    for form in forms[0].keys() & forms[1].keys():
        left = sorted(forms[0][form] - forms[1][form])
        right = sorted(forms[1][form] - forms[0][form])
        if left and right:
            yield Finding(
                "doubt",
                f"its column {right[0]!r} is called {left[0]!r} at {one.name}; they would count as "
                "two features",
                'give both one name with rename, or set confirmed = ["names"] in [data] if they '
                "are two",
                party=other.name,
                column=right[0],
                count=len(right),
                setting=("rename", {_in_file(other, right[0]): left[0]}),
            )


def _forms(tiles: Sequence[Tile]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for tile in tiles:
        names = normal_features(tile.features)
        for name, form in zip(names.tolist(), loose_features(names).tolist(), strict=True):
            found.setdefault(form, set()).add(name)
    return found


def _in_file(party: PartySection, name: str) -> str:
    """What a party's file calls a column."""
    return next((raw for raw, new in (party.rename or {}).items() if new == name), name)


# ── ids ───────────────────────────────────────────────────────────────────────────────────────


def _ids(
    one: PartySection, other: PartySection, mine: Sequence[Tile], theirs: Sequence[Tile]
) -> Iterator[Finding]:
    left, right = (np.concatenate([tile.ids for tile in tiles]) for tiles in (mine, theirs))
    exact = [set(normal_ids(ids).tolist()) for ids in (left, right)]
    common = exact[0] & exact[1]
    apart = [ids - common for ids in exact]
    loose = [_loose(ids) for ids in apart]
    count = len(loose[0] & loose[1])
    if count > TOLERATED * min(len(left), len(right)):
        shorter, width = _lost_zeros(one, other, apart)
        yield Finding(
            "doubt",
            f"{count} of its ids differ from those of "
            f"{one.name if shorter is other else other.name} only in punctuation, blanks, accents "
            "or leading zeros, and would count as different samples",
            f"write them in one way, such as with id_width{'' if width is None else f' = {width}'}"
            ', or set confirmed = ["ids"] in [data] if they are different',
            party=shorter.name,
            count=count,
            setting=None if width is None else ("id_width", width),
        )
        return
    forms = [_loose(ids) for ids in exact]
    for party, ids, known, there in ((one, left, forms[1], other), (other, right, forms[0], one)):
        prefix, met = _best_prefix(ids, known)
        if met > max(len(common), TOLERATED * min(len(left), len(right))):
            yield Finding(
                "doubt",
                f"{met} of its {len(ids)} ids would occur at {there.name} too, if they did not "
                f"begin with {prefix!r}; now {len(common)} do",
                f'take it off with id_prefix = "{prefix}", or set confirmed = ["ids"] in [data] if '
                "they are different",
                party=party.name,
                count=met,
                setting=("id_prefix", prefix),
            )
            return
    columns = [np.concatenate([tile.features for tile in tiles]) for tiles in (mine, theirs)]
    if set(loose_features(columns[0])) & set(loose_features(columns[1])):
        # Of other samples, it may be: each has letters of its own before its own numbers.
        return
    heads = common_head(left), common_head(right)
    bare = [_without(head, ids) for head, ids in zip(heads, (left, right), strict=True)]
    met = len(bare[0] & bare[1])
    if all(heads) and met > max(len(common), TOLERATED * min(len(left), len(right))):
        yield from _two_prefixes((one, other), heads, met)


def _two_prefixes(
    parties: tuple[PartySection, PartySection], heads: tuple[str, str], met: int
) -> Iterator[Finding]:
    """Each party writes its own letters before the number that they have in common."""
    for at, (party, head) in enumerate(zip(parties, heads, strict=True)):
        there, their_head = parties[1 - at], heads[1 - at]
        yield Finding(
            "doubt",
            f"{met} of its ids would occur at {there.name} too, if they did not begin with "
            f"{head!r} here and with {their_head!r} there",
            f'take both off, with id_prefix = "{head}" here and id_prefix = "{their_head}" at '
            f'{there.name}, or set confirmed = ["ids"] in [data] if they are different',
            party=party.name,
            count=met,
            setting=("id_prefix", head),
        )


def _loose(ids: set[str]) -> set[str]:
    if not ids:
        return set()
    return set(loose_ids(np.array(sorted(ids), dtype=object)).tolist())


def _lost_zeros(
    one: PartySection, other: PartySection, apart: Sequence[set[str]]
) -> tuple[PartySection, int | None]:
    """Who has shorter ids of digits, and how long the other's are, if they are of one length."""
    lengths = [{len(text) for text in ids if text.isdigit()} for ids in apart]
    for party, own, there in ((other, lengths[1], lengths[0]), (one, lengths[0], lengths[1])):
        if own and len(there) == 1 and min(own) < max(there):
            return party, max(there)
    return other, None


def _without(head: str, ids: NDArray[np.object_]) -> set[str]:
    return set(without_head(head, ids).tolist())


def _best_prefix(ids: NDArray[np.object_], known: set[str]) -> tuple[str, int]:
    """What all ids begin with and others' ids do not, and how many of them meet without it."""
    common, best = common_head(ids), ("", 0)
    for length in range(1, len(common) + 1):
        met = len(_without(common[:length], ids) & known)
        # The longest of those that do: what is left may still begin with a sign.
        if met and met >= best[1]:
            best = (common[:length], met)
    return best


# ── labels ────────────────────────────────────────────────────────────────────────────────────


def _classes_of(tiles: Sequence[Tile]) -> Classes:
    return common_classes([t.labels[t.labelled] for t in tiles if t.labels is not None])


def _labels(
    one: PartySection,
    other: PartySection,
    mine: Sequence[Tile],
    theirs: Sequence[Tile],
    *,
    coded: bool,
) -> Iterator[Finding]:
    lists = [_classes_of(tiles) for tiles in (mine, theirs)]
    if not (len(lists[0]) and len(lists[1])):
        return
    mapping = mapping_between(*lists, coded=coded)
    if mapping is None:
        return
    shown = [", ".join(str(value) for value in values.tolist()[:4]) for values in lists]
    yield Finding(
        "doubt",
        f"its labels are {shown[1]}, those of {one.name} {shown[0]}; they would count as different "
        "classes",
        'map them with classes, or set confirmed = ["labels"] in [data] if they are different',
        party=other.name,
        count=len(lists[1]),
        setting=("classes", mapping) if mapping else None,
    )


# ── units ─────────────────────────────────────────────────────────────────────────────────────


def _units(
    one: PartySection,
    other: PartySection,
    mine: Sequence[Tile],
    theirs: Sequence[Tile],
    wrong: set[tuple[str, str]],
) -> Iterator[Finding]:
    sizes = [column_sizes(tiles) for tiles in (mine, theirs)]
    for name in sizes[0].keys() & sizes[1].keys():
        if (one.name, name) in wrong or (other.name, name) in wrong:
            continue
        power = powers_apart(sizes[0][name], sizes[1][name])
        if power:
            yield Finding(
                "doubt",
                f"its column {name!r} is about {10.0**power:g} times that of {one.name} (medians "
                f"{sizes[1][name][0]:.3g} and {sizes[0][name][0]:.3g}), as if in other units",
                'bring it into one unit with scale, or set confirmed = ["units"] in [data] if it '
                "is meant",
                party=other.name,
                column=name,
                setting=("scale", {name: float(f"1e{-power}")}),
            )
