"""The class values that a federation's labels have: collected by the parties themselves.

Which party has samples of which class is nobody's business. So every party locks its list under a
key of this run, which the coordinator lacks, and one of them joins the lists without knowing whose
they are. The coordinator learns the class values, which every party needs and the model names, and
passes them on (:mod:`weft.matching.authenticated_class_list`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from weft.crypto.authenticated_party_letters import LetterError, lock, unlock
from weft.crypto.secret_bytes import Secret
from weft.errors import DataError, ProtocolError
from weft.matching.authenticated_class_list import Classes
from weft.protocol.message_bytes import pack, unpack

#: Random bytes under every list.
NONCE = 24
#: Lists are filled up to a multiple of so many bytes: their length would tell how many there are.
_UNIT = 512
#: So many different labels are classes, however few samples there are.
_FEW = 20


def lock_classes(labels: Sequence[NDArray[Any]], key: Secret, nonce: bytes) -> bytes:
    """The different labels of one party, for the others alone, in the run with that key.

    A party without labels locks an empty list: nobody can tell, and none may be left out.
    ``nonce`` is `NONCE` fresh random bytes.
    """
    values = [pd.unique(part.astype(object)) for part in labels]
    packed = pack({str(i): _array(part) for i, part in enumerate(values)})
    filled = len(packed).to_bytes(8, "big") + packed
    return lock(key, filled + bytes(-len(filled) % _UNIT), nonce)


def refuse_responses(labels: NDArray[Any], where: str) -> None:
    """Refuse numbers that measure something, which are no classes: with fractions, or hardly alike.

    Two values are classes whatever they are, and so are whole numbers of which some are alike.
    """
    try:
        distinct = np.unique(labels.astype(np.float64))
    except (TypeError, ValueError):
        return
    count = len(distinct)
    fractions = bool((distinct != np.floor(distinct)).any())
    hardly_alike = count > _FEW and 2 * count > len(labels)
    if count > 2 and (fractions or hardly_alike):
        kind = "with fractions" if fractions else "that hardly any two samples share"
        told = (
            f"holds numbers {kind}, each of which would be a class of its own; use a regression "
            "loss such as 'squared', name the classes that count as positive (positive = [...] in "
            "[data]), or name another label column"
        )
        raise DataError(f"{where} {told}", harmless=f"its label column {told}")


def open_lists(boxes: Sequence[bytes], key: Secret) -> list[Classes]:
    """The class values of every party that has labels, as numbers where all of them are."""
    if len(set(boxes)) < len(boxes):
        raise ProtocolError("a list of classes came twice; stop this run")
    found: list[Classes] = []
    for box in boxes:
        try:
            filled = unlock(key, box).reveal()
        except LetterError:
            raise ProtocolError(
                "a list of classes was not made under the run secret, or in another run; hand out "
                "one secret with 'weft keys new' and let all parties use it"
            ) from None
        message = unpack(filled[8 : 8 + int.from_bytes(filled[:8], "big")])
        lists = [value for value in message.values() if isinstance(value, np.ndarray)]
        classes = common_classes(lists)
        if len(classes):
            found.append(classes)
    return found


def named_classes(named: Classes, found: Classes) -> Classes:
    """Classes that a config names, if those of all parties are among them."""
    if not set(_spellings(found)) <= set(_spellings(named)):
        raise DataError(
            "some labels are none of the classes that the config names; correct them, or name "
            "those classes too"
        )
    return named


def _spellings(values: Classes) -> list[str]:
    """Values as texts; numbers that are equal are spelt alike."""
    return [str(float(v)) if isinstance(v, int | float) else str(v) for v in values.tolist()]


def common_classes(found: Sequence[Classes]) -> Classes:
    """Sorted class values of several label arrays, as numbers where all of them are."""
    if not found:
        return np.zeros(0)
    values = np.concatenate([pd.unique(labels.astype(object)) for labels in found])
    try:
        numbers = np.unique(values.astype(np.float64))
    except (TypeError, ValueError):
        return np.unique(np.array([str(v) for v in values]))
    whole = numbers.astype(np.int64)
    return whole if (whole == numbers).all() else numbers


def _array(values: NDArray[np.object_]) -> Classes:
    """Values as an array that can travel: numbers, flags, or texts."""
    plain = np.array(values.tolist())
    if plain.dtype.kind in "iufb":
        return plain
    return np.array([str(value) for value in values.tolist()], dtype=str)
