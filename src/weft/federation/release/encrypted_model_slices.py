"""Slices of a model: what each party seals of it, and how whoever gets them joins them.

A slice is a letter (`weft.crypto.authenticated_party_letters`): the coordinator carries it and can
neither read it nor put another in its place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import cast, get_args

import numpy as np
from msgspec.structs import replace

from weft.crypto.authenticated_party_letters import LetterError, read_letter, write_letter
from weft.crypto.party_key_pairs import Identity, PublicIdentity
from weft.data.tile import MissingPolicy
from weft.errors import ProtocolError
from weft.federation.messages import ModelSlice
from weft.federation.model import Model
from weft.federation.release.model_header import Head
from weft.matching.overlap_rule import Overlap
from weft.protocol.declared_message_fields import fields_of, malformed, message_of
from weft.protocol.message_bytes import pack, unpack
from weft.protocol.shared_fields import Boxes

_PLACE = b"weft model "
_FIELDS = ("names", "weights", "shift", "factor", "constant")


def seal_slice(
    slice_: ModelSlice, writer: Identity, readers: Mapping[str, PublicIdentity], run: bytes
) -> Boxes:
    """A party's slice, sealed to everybody who gets the model, in their order."""
    content = pack(fields_of(slice_))
    return Boxes.of(
        [write_letter(writer, reader, _PLACE + run, content) for reader in readers.values()]
    )


def open_slice(
    letter: bytes, party: str, reader: Identity, writer: PublicIdentity, run: bytes
) -> ModelSlice:
    """What one party wrote; ``party`` is its name, for the error."""
    try:
        content = read_letter(reader, writer, _PLACE + run, letter)
    except LetterError:
        raise ProtocolError(
            f"the part of the model that {party} sealed cannot be opened: it was changed on its "
            "way, or is for other keys or another run; do not use this model"
        ) from None
    return message_of(ModelSlice, unpack(content.reveal()))


def _with_weights(slice_: ModelSlice, slices: Sequence[ModelSlice]) -> ModelSlice:
    """A slice with its weights, from the shares that all parties have of them."""
    mine = slice_.shares
    if mine is None:
        return slice_
    total = np.zeros_like(mine.words)
    for other in slices:
        if other.shares is None or other.shares.words.shape != total.shape:
            raise malformed("shares", "are not there from every party")
        total += other.shares.words
    weights = total.view(np.int64)[:, mine.columns].T * 2.0**-mine.bits
    return replace(slice_, weights=weights, shares=None)


def join_slices(slices: Sequence[ModelSlice], head: Head, *, overlapping: bool = False) -> Model:
    """The model of all slices, which are in the order of the parties.

    ``overlapping``: a party is gone, so that others answer for its features too.
    """
    if overlapping and any(slice_.shares is not None for slice_ in slices):
        raise malformed("shares", "are not there from every party")
    slices = [_with_weights(slice_, slices) for slice_ in slices]
    joined = {field: np.concatenate([getattr(s, field) for s in slices]) for field in _FIELDS}
    if overlapping:
        _, once = np.unique(joined["names"], return_index=True)
        joined = {field: values[np.sort(once)] for field, values in joined.items()}
    named = joined["names"][~joined["constant"]]
    if len(np.unique(named)) < len(named):
        raise malformed("names", "name a feature twice: its holders were not told the same of it")
    constant, weights = joined["constant"], joined["weights"]
    row_factor, bias = slices[0].row_factor, slices[0].bias_value
    intercept = np.zeros(weights.shape[1])
    if constant.any():
        if bias is None:
            raise malformed("bias_value", "is missing")
        intercept = weights[constant][0] * bias
    kept = {field: values[~constant] for field, values in joined.items()}
    factor = kept["factor"] * row_factor
    coef = (kept["weights"] * factor[:, None]).T
    return Model(
        features=kept["names"].astype(object),
        coef=np.ascontiguousarray(coef),
        intercept=intercept - coef @ kept["shift"],
        classes=head.class_values(),
        scaling=(kept["shift"], factor),
        loss=head.loss,
        loss_parameters=head.loss_parameters,
        lam=head.lam,
        certificate=head.certificate,
        info=head.info,
        missing=cast("MissingPolicy", _one_rule(slices, "missing", get_args(MissingPolicy))),
        overlap=cast("Overlap", _one_rule(slices, "overlap", get_args(Overlap))),
    )


def _one_rule(slices: Sequence[ModelSlice], field: str, known: Sequence[str]) -> str:
    """What all parties did with blank cells, or with cells that several hold."""
    rules = {getattr(slice_, field) for slice_ in slices}
    if len(rules) == 1 and rules <= set(known):
        return str(rules.pop())
    raise malformed(field, "is not one known rule, the same at all parties")
