"""The form in which ids and feature names are compared.

Ids: Unicode NFKC and case folding, so that "ÄB", "äb" and full-width "ＡＢ" differ from each other
only where letters do; characters without width of their own (zero-width blanks and joiners, soft
hyphens, marks of direction, byte order marks, variation selectors) and control characters are
dropped; white space of any kind is trimmed at both ends and otherwise becomes one blank. Nothing
else changes: "7" and "007", "a-1" and "a1", "e" and "é" are different ids.

Feature names: Unicode NFC, and white space trimmed at both ends. Case and everything else counts,
for "b" and "B" may be two columns.

The loose form of a feature name serves only to find names that probably mean the same column: case
and accents dropped, and blanks, underscores, hyphens and points too, but for one between two digits
("pixel_1_12" and "pixel_11_2" are two columns).

The loose form of an id serves only to count ids that are probably the same but written in two
ways: accents, punctuation and blanks dropped, then leading zeros of runs of digits.

The bare form of an id is its loose form without what all ids of the party begin with, up to their
digits. It serves to find out that one party writes "P-007" for another's "007".
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from itertools import combinations, takewhile

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.crypto.primitives.batched_keyed_hashes import Strings, keyed_hashes
from weft.errors import DataError

Names = NDArray[np.object_]

#: Drawn with no width, but of categories that also hold visible characters (Unicode's
#: Default_Ignorable_Code_Point beyond category Cf): grapheme joiner, fillers, variation selectors.
_IGNORED = frozenset(
    map(
        chr,
        (
            *(0x034F, 0x115F, 0x1160, 0x17B4, 0x17B5, 0x180B, 0x180C, 0x180D, 0x180F),
            *(0x3164, 0xFFA0, *range(0xFE00, 0xFE10), *range(0xE0100, 0xE01F0)),
        ),
    )
)
#: Leading zeros of a run of digits; the last digit stays.
_ZEROS = re.compile(r"(?<![0-9])0+(?=[0-9])")
#: Key holders hash an id, and its loose form, with its length in two bytes (RFC 9497).
MOST_BYTES = 2**16 - 1
#: Of how many ids of a party bare forms are compared.
MOST_BARE = 4096
#: Of the hashes by which these are chosen: no secret, and the same at all parties.
_SAMPLE_KEY = b"weft bare forms"
#: Nothing so short has a longer form: four bytes a character, of which a loose form has up to four.
_SHORT = MOST_BYTES // 16
#: Signs within names of columns that people write in many ways.
_NAME_SIGNS = re.compile(r"[ \t_.\-]+")
_BETWEEN_DIGITS = re.compile(r"(?<=[0-9])[ \t_.\-]+(?=[0-9])")
_PUNCTUATION = re.compile(r"[^a-z0-9\n]+")


def normal_ids(ids: Names) -> Names:
    """Ids in the form in which they are compared; empty where nothing visible is left."""
    items: list[str] = ids.tolist()
    whole = "\n".join(items)
    # One pass over all of them where the rule has nothing to do but fold case: ASCII without
    # control characters (a line break within an id shows in the number of lines), single blanks.
    if whole.isascii() and whole.replace("\n", "").isprintable():
        folded = whole.lower()
        blank = " " in folded and (
            "  " in folded or " \n" in folded or "\n " in folded or folded != folded.strip(" ")
        )
        if folded.count("\n") == len(items) - 1 and not blank:
            # The same texts again would take as much memory as many a table.
            return ids if folded == whole else _names(folded.split("\n"))
    return _names([_normal_id(item) for item in items])


def _normal_id(text: str) -> str:
    if text.isascii() and text.isprintable():
        return " ".join(text.lower().split())
    # To the fixed point: what one step leaves may be composed or dropped by the next.
    for _ in range(8):
        before = text
        text = unicodedata.normalize("NFKC", text).casefold()
        # Whatever is dropped is not printable, or listed above.
        if not text.isprintable() or not _IGNORED.isdisjoint(text):
            text = "".join(filter(_counts, text))
        text = " ".join(text.split())
        if text == before:
            break
    return text


def _counts(sign: str) -> bool:
    if sign.isspace():
        return True
    return sign not in _IGNORED and unicodedata.category(sign) not in ("Cf", "Cc")


def normal_features(names: Names) -> Names:
    """Feature names in the form in which they are compared."""
    items: list[str] = names.tolist()
    whole = "\n".join(items)
    if whole.isascii() and whole.replace("\n", "").isprintable() and " " not in whole:
        return names
    return _names([unicodedata.normalize("NFC", item).strip() for item in items])


def loose_features(normal: Names) -> Names:
    """Loose forms of feature names; a name of signs only is its own."""
    items: list[str] = normal.tolist()
    whole = "\n".join(items)
    if not whole.isascii():
        plain = unicodedata.normalize("NFKD", whole).casefold()
        whole = "".join(sign for sign in plain if not unicodedata.combining(sign))
    # One pass over all of them: names hold no line breaks, since lines of a header do not.
    loose = _NAME_SIGNS.sub("", _BETWEEN_DIGITS.sub("\x1f", whole.lower())).split("\n")
    if len(loose) != len(items):
        return normal
    return _names([form or name for form, name in zip(loose, items, strict=True)])


def loose_ids(normal: Names) -> Names:
    """Loose forms of normal ids; an id of punctuation only is its own."""
    rows, forms = own_loose_forms(normal)
    if not len(rows):
        return normal
    loose = normal.copy()
    loose[rows] = forms
    return loose


def own_loose_forms(normal: Names) -> tuple[Ints, Names]:
    """Which normal ids have a loose form that differs from them, and these forms."""
    rows = _rows_to_loosen(Strings.of_lines(normal.tolist()))
    forms = _loosened(normal[rows].tolist())
    differs = np.flatnonzero(forms != normal[rows])
    return rows[differs], forms[differs]


def _rows_to_loosen(lines: Strings) -> Ints:
    """Which of some lines hold anything that a loose form drops, or letters beyond ASCII.

    Few ids of most tables do; only they are looked at as text.
    """
    signs = lines.content
    digit = (signs >= ord("0")) & (signs <= ord("9"))
    dropped = ~(digit | ((signs >= ord("a")) & (signs <= ord("z")))) & (signs != ord("\n"))
    leading = digit & (signs == ord("0"))
    leading[1:] &= ~digit[:-1]
    leading[:-1] &= digit[1:]
    dropped |= leading
    places = np.flatnonzero(dropped)
    lines_with = np.searchsorted(lines.end, places)
    inside = places >= lines.start[lines_with]
    found: Ints = np.flatnonzero(np.bincount(lines_with[inside], minlength=len(lines)))
    return found


def _loosened(items: list[str]) -> Names:
    whole = "\n".join(items)
    if not whole.isascii():
        loose = [_ZEROS.sub("", _unaccented(item)) for item in items]
    else:
        loose = _ZEROS.sub("", _PUNCTUATION.sub("", whole)).split("\n")[: len(items)]
    return _names([one or other for one, other in zip(loose, items, strict=True)])


def _unaccented(text: str) -> str:
    return "".join(sign for sign in unicodedata.normalize("NFKD", text) if sign.isalnum())


def common_head(ids: Names) -> str:
    """What all ids begin with, up to their digits."""
    if not len(ids):
        return ""
    pairs = zip(min(ids), max(ids), strict=False)
    common = "".join(sign for sign, _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    return common.rstrip("0123456789")


def without_head(head: str, ids: Names) -> Names:
    """Loose forms of ids without what they begin with; those of which nothing is left are
    dropped."""
    rests = _names([text[len(head) :] for text in ids.tolist()])
    normal = normal_ids(rests)
    return loose_ids(normal[normal != ""])


def bare_ids(normal: Sequence[Names]) -> Names:
    """Bare forms of a party's ids, each once, or none where they begin differently.

    Of many ids those whose hashes are least, `MOST_BARE` of them: the same ones at all parties, so
    that what two have in common among them grows with what they have in common.
    """
    ids = np.concatenate(normal)
    head = common_head(ids)
    if not head:
        return ids[:0]
    if len(ids) <= MOST_BARE:
        return np.asarray(pd.unique(without_head(head, ids)))
    lines = Strings.of_lines(ids.tolist())
    rests = Strings(lines.content, lines.start + len(head.encode()), lines.end)
    # Most are bare without their heads; nothing is made of them but hashes.
    plain = rests.end > rests.start
    plain[_rows_to_loosen(rests)] = False
    others = without_head(head, ids[~plain])
    rows = np.flatnonzero(plain)
    some = [rests.take(rows), Strings.of_lines(others.tolist())]
    hashes = np.concatenate([keyed_hashes(_SAMPLE_KEY, part) for part in some])
    taken = 2 * MOST_BARE
    while True:
        # Sorting some is enough, unless most of these are the same form.
        least = np.arange(len(hashes))
        if taken < len(hashes):
            least = np.argpartition(hashes, taken)[:taken]
        least = least[np.argsort(hashes[least], kind="stable")]
        own, forms = least < len(rows), np.empty(len(least), dtype=object)
        forms[own] = [text[len(head) :] for text in ids[rows[least[own]]].tolist()]
        forms[~own] = others[least[~own] - len(rows)]
        found = np.asarray(pd.unique(forms))
        if len(found) >= MOST_BARE or taken >= len(hashes):
            return found[:MOST_BARE]
        taken *= 2


def check_apart(normal: Names, kind: str, where: str) -> None:
    """Refuse two rows (columns) of one tile that are the same in normal form, and empty ones.

    Parameters
    ----------
    kind
        ``row`` or ``column``.
    where
        Party and file.
    """
    items: list[str] = normal.tolist()
    distinct = set(items)
    if len(distinct) == len(items) and "" not in distinct:
        return
    what = "id" if kind == "row" else "name"
    seen: dict[str, int] = {}
    for position, item in enumerate(items, start=1):
        if not item:
            raise DataError(
                f"{where}: the {what} of {kind} {position} holds no visible character; give one"
            )
        if item in seen:
            rule = "upper and lower case, blanks and invisible characters aside"
            raise DataError(
                f"{where}: {kind}s {seen[item]} and {position} have the same {what} "
                f"({rule if kind == 'row' else 'blanks at its ends aside'}); keep one of them or "
                "rename"
            )
        seen[item] = position


def check_lengths(normal: Names, where: str) -> None:
    """Refuse ids that are too long for matching; ``where`` has party and file."""
    items: list[str] = normal.tolist()
    if max(map(len, items), default=0) <= _SHORT:
        return
    for position, item in enumerate(items, start=1):
        if len(item) <= _SHORT:
            continue
        forms = (item, *loose_ids(_names([item])).tolist())
        length = max(len(form.encode()) for form in forms)
        if length > MOST_BYTES:
            raise DataError(
                f"{where}: the id of row {position} takes {length:,} bytes, more than the "
                f"{MOST_BYTES:,} that can be matched; shorten it, or name another id column"
            )


def _names(items: Sequence[str]) -> Names:
    names = np.empty(len(items), dtype=object)
    names[:] = items
    return names


Tokens = NDArray[np.uint64]
#: Two parties, and how many ids of theirs agree in their loose form only.
Mismatches = tuple[tuple[str, str, int], ...]


def count_mismatches(
    parties: Sequence[str], exact: Sequence[Tokens], loose: Sequence[Tokens]
) -> Mismatches:
    """Pairs of parties with ids that agree in their loose form and not in their exact one.

    Parameters
    ----------
    exact, loose
        Per party, the tokens of its ids and of their loose forms.
    """
    party = np.repeat(np.arange(len(parties)), [len(tokens) for tokens in exact])
    tokens, forms = np.concatenate(exact), np.concatenate(loose)
    # Of two ids with one loose form, one at least differs from it: most tables have none such.
    among = np.isin(forms, forms[forms != tokens])
    party, tokens, forms = party[among], tokens[among], forms[among]
    code, names = pd.factorize(forms)
    if not len(names):
        return ()
    # Loose forms with two exact ones or more are few, and looked at one by one.
    order = np.argsort(code, kind="stable")
    first = np.concatenate([[0], np.cumsum(np.bincount(code, minlength=len(names)))])
    sorted_tokens = tokens[order]
    lowest = np.minimum.reduceat(sorted_tokens, first[:-1])
    highest = np.maximum.reduceat(sorted_tokens, first[:-1])
    found: Counter[tuple[int, int]] = Counter()
    for group in np.flatnonzero(lowest != highest).tolist():
        entries = order[first[group] : first[group + 1]]
        held: dict[int, set[int]] = {}
        for owner, token in zip(party[entries].tolist(), tokens[entries].tolist(), strict=True):
            held.setdefault(owner, set()).add(token)
        for (a, one), (b, other) in combinations(sorted(held.items()), 2):
            # What both hold is matched; of the rest, each stands for one of the other's.
            if count := min(len(one - other), len(other - one)):
                found[a, b] += count
    return tuple((parties[a], parties[b], n) for (a, b), n in sorted(found.items()))
