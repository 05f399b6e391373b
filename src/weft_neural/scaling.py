"""Zero mean and unit variance of columns over all who hold them, from masked sums.

Every party adds to the sums of all columns, with zeros where it has none: nobody but the parties
knows who added what. A party is told the means of its own columns only.
"""

from __future__ import annotations

from collections.abc import Mapping
from hashlib import blake2b
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.crypto import Adder
from weft.errors import ProtocolError
from weft.protocol import Channel
from weft.protocol.declared_message_fields import malformed
from weft.protocol.shared_fields import Participants
from weft.sums.scalar_sums import add_scalars
from weft_neural.messages import SCALE, ColumnMeans, ColumnScales, ScaledColumns, ScaleRequest

if TYPE_CHECKING:
    # The coordinator's half needs no table.
    from weft_neural.party_samples import Holdings


#: A column that varies by less, relative to its size, is constant: centred, not blown up.
_CONSTANT = 1e-12
_DIGEST = 16


class Scaling:
    """A party's half.

    Parameters
    ----------
    held
        Its samples.
    widths
        Columns of all scaled blocks of the run, in their order.
    """

    def __init__(self, held: Holdings, widths: Mapping[str, int]) -> None:
        self._widths = dict(widths)
        self._step = 0
        self._own = {
            name: np.asarray(held.blocks[name], np.float64).reshape(len(held), -1)
            for name in widths
            if name in held.blocks
        }

    def answer(self, message: ScaleRequest) -> tuple[str, Floats]:
        """Counts and sums of all columns, then sums of squares about the means; each once.

        Returns
        -------
        name, numbers
            Masks are made for the name, which tells what was asked: they cancel only if all
            parties were asked the same. Else a coordinator could ask one of them for its sums and
            the others for nothing, or for squares about other means.
        """
        step = message.step
        if step != self._step:
            raise ProtocolError(f"step {step} of scaling columns comes twice, or too early")
        self._step += 1
        if step == 0:
            own = {n: np.concatenate(_moments(x)) for n, x in self._own.items()}
            return self._asked(step, b""), self._spread(own, 2)
        if message.means is None:
            raise malformed("means", "is missing")
        means, digests = self._by_block(message.means.mean, "mean"), message.means.digests
        self._check_digests(digests, means)
        own = {n: _squares(x, means[n]) for n, x in self._own.items()}
        return self._asked(step, digests), self._spread(own, 1)

    def _asked(self, step: int, digests: bytes) -> str:
        what = repr((step, list(self._widths.items()))).encode() + digests
        return f"sums {blake2b(what, digest_size=16).hexdigest()}"

    def _check_digests(self, digests: bytes, means: Mapping[str, Floats]) -> None:
        """Those of its own blocks must be of the means that it was told."""
        if len(digests) != _DIGEST * len(self._widths):
            raise malformed("digests", "is not of all scaled blocks")
        for place, name in enumerate(self._widths):
            told = digests[_DIGEST * place : _DIGEST * (place + 1)]
            if name in means and digest_of(means[name]) != told:
                raise ProtocolError(
                    f"the means of block {name} are not those that others are told; stop this run"
                )

    @property
    def _own_widths(self) -> dict[str, int]:
        return {name: x.shape[1] for name, x in self._own.items()}

    def _by_block(self, numbers: Floats, field: str) -> dict[str, Floats]:
        """Numbers of its own columns, which must be as many as it has."""
        widths = self._own_widths
        if len(numbers) != sum(widths.values()):
            raise malformed(field, "does not hold one number per column")
        return cut(numbers, widths)

    def take(self, scales: ColumnScales | None) -> dict[str, tuple[Floats, Floats]]:
        """Mean and deviation by block of its own."""
        if scales is None:
            raise malformed("scales", "is missing, though columns were scaled")
        mean = self._by_block(scales.mean, "mean")
        deviation = self._by_block(scales.deviation, "deviation")
        if any((part <= 0).any() for part in deviation.values()):
            raise malformed("deviation", "holds one that is not above 0")
        return {name: (mean[name], deviation[name]) for name in self._own}

    def _spread(self, own: Mapping[str, Floats], times: int) -> Floats:
        """Its numbers among those of all blocks, zeros elsewhere."""
        parts = [
            own[name] if name in own else np.zeros(times * width)
            for name, width in self._widths.items()
        ]
        return np.concatenate(parts)


def _moments(x: Floats) -> tuple[Floats, Floats]:
    return (~np.isnan(x)).sum(axis=0).astype(np.float64), np.nansum(x, axis=0)


def _squares(x: Floats, mean: Floats) -> Floats:
    found: Floats = np.nansum(np.square(x - mean), axis=0)
    return found


def cut(numbers: Floats, widths: Mapping[str, int]) -> dict[str, Floats]:
    """Numbers by block."""
    if not widths:
        return {}
    ends = np.cumsum(list(widths.values()))[:-1]
    return dict(zip(widths, np.split(numbers, ends), strict=True))


def digest_of(mean: Floats) -> bytes:
    """What those are told of a block's means who do not hold it."""
    return blake2b(np.ascontiguousarray(mean).tobytes(), digest_size=_DIGEST).digest()


def agree_on_columns(
    channel: Channel,
    adder: Adder,
    widths: Mapping[str, int],
    holders: Mapping[str, list[str]],
    participants: Participants | None,
) -> dict[str, tuple[Floats, Floats]]:
    """Coordinator: mean and deviation of the columns of all scaled blocks.

    Parameters
    ----------
    widths
        Columns by scaled block.
    holders
        Per party, which of those blocks it has.
    participants
        Who takes part, which parties are told with the first question.
    """
    total = sum(widths.values())
    if not total:
        return {}
    columns = ScaledColumns(
        blocks=np.array(list(widths), dtype=str),
        widths=np.array(list(widths.values()), np.int64),
    )
    round_ = adder.advance()
    begin = {
        party: ScaleRequest(round=round_, step=0, columns=columns, participants=participants)
        for party in channel.parties
    }
    first = _ask(channel, begin, 2 * total)
    mean, counts = {}, {}
    for name, both in cut(first, {name: 2 * width for name, width in widths.items()}).items():
        counts[name], sums = np.split(both, 2)
        counts[name] = np.maximum(counts[name], 1.0)
        mean[name] = sums / counts[name]
    digests = b"".join(digest_of(mean[name]) for name in widths)
    round_ = adder.advance()
    told = {
        party: ScaleRequest(
            round=round_, step=1, means=ColumnMeans(mean=_own_numbers(mean, own), digests=digests)
        )
        for party, own in holders.items()
    }
    squares = cut(_ask(channel, told, total), widths)
    return {
        name: (mean[name], _deviation(squares[name] / counts[name], mean[name])) for name in mean
    }


def scales_of(scaling: Mapping[str, tuple[Floats, Floats]], own: list[str]) -> ColumnScales:
    """Means and deviations of a party's own columns."""
    return ColumnScales(
        mean=_own_numbers({name: mean for name, (mean, _) in scaling.items()}, own),
        deviation=_own_numbers({name: deviation for name, (_, deviation) in scaling.items()}, own),
    )


def _own_numbers(by_block: Mapping[str, Floats], own: list[str]) -> Floats:
    """Numbers of a party's own columns."""
    return np.concatenate([by_block[name] for name in own]) if own else np.zeros(0)


def _deviation(variance: Floats, mean: Floats) -> Floats:
    deviation = np.sqrt(np.maximum(variance, 0.0))
    constant = deviation <= _CONSTANT * np.maximum(np.abs(mean), 1e-300)
    return np.where(constant, 1.0, deviation)


def _ask(channel: Channel, asked: Mapping[str, ScaleRequest], count: int) -> Floats:
    replies = channel.ask(SCALE, asked).insist("scaling columns")
    totals = add_scalars(replies, "sums", count, asked)
    if totals is None:
        raise ProtocolError("a party fell silent while columns were scaled; start again")
    return np.array(totals)


def scaled(
    held: Holdings, agreed: Mapping[str, tuple[Floats, Floats]]
) -> dict[str, NDArray[np.float32]]:
    """All blocks as networks read them: columns scaled, pixels from −1 to 1, blanks 0."""
    return {name: as_input(block, agreed.get(name)) for name, block in held.blocks.items()}


def as_input(
    block: NDArray[np.generic], agreed: tuple[Floats, Floats] | None
) -> NDArray[np.float32]:
    """One block as a network reads it."""
    if block.dtype == np.uint8:
        return (block.astype(np.float32) / np.float32(127.5)) - np.float32(1)
    if agreed is None:
        return np.nan_to_num(block.astype(np.float32), copy=False)
    mean, deviation = agreed
    flat = (block.reshape(len(block), -1).astype(np.float64) - mean) / deviation
    return np.nan_to_num(flat).astype(np.float32).reshape(block.shape)
