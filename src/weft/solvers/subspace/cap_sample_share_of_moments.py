"""How much each sample weighs in second moments: neither alone nor with few others most of one.

Far from zero the logistic loss has next to no curvature, and a hinge loss whose kink is rounded off
has it next to the kink only. So scores are taken to be nearer, or the kink to be wider, until
curvature adds up to that of as many samples as there must be. What that is compared with is a sum
over all samples, smooth in each of them: where it is reached says nothing about one.

A row that is far longer than others would still be most of the moments in its direction. So samples
weigh less, the more of some direction is theirs.

By how much differs between two searches, most where one more vector is mostly one sample's: what is
left of that sample would stand alone between their moments. So all weights change from search to
search, by far more in all than that of one sample can.
"""

from __future__ import annotations

from hashlib import blake2b

import numpy as np

from weft.array_types import Flags, Floats
from weft.crypto.primitives.seeded_words import SEED_BYTES, seeded_words
from weft.errors import ProtocolError
from weft.losses import Loss

#: By what widths grow at a time.
_WIDER = 1.25
#: Scores from which on widths would grow for very long.
_FARTHEST = 1e30
#: Share of the largest moment, in units of every vector, below which a direction has too few digits
#: to say what single samples have of it: nothing is told of it.
_FLAT = 1e-11
#: The same where weights have fallen.
_EMPTY = 1e-12
#: Rows that are long together hide each other at first. Always so many rounds: how many would be
#: enough may be for a single sample to say.
_ROUNDS = 8
#: Of random words, what makes them numbers from zero to two.
_UP_TO_TWO = 2.0**-63


def spread_weights(
    loss: Loss, z: Floats, labels: Floats, width: Floats, used: Flags, least: int
) -> Floats:
    """l'' per sample and problem, over widths of ``width`` or more; zero where it is not used.

    It adds up to that of ``least`` samples with the most curvature that one can have.
    """
    if (used.sum(axis=0) < least).any():
        raise ProtocolError("a message asks for second moments of too few samples")
    if not (np.abs(z) < _FARTHEST).all():
        # Over no width, however far it grows.
        raise ProtocolError("a message asks for second moments where scores are not finite")
    wide = width.copy()
    while True:
        bend = np.where(used, loss.spread_curvature(z, labels, wide), 0.0)
        few = bend.sum(axis=0) < least * loss.sharpest(wide)
        if not few.any():
            return bend
        wide = np.where(few, _WIDER * wide, wide)


def unsteady(columns: Floats, z: Floats, weights: Floats) -> Floats:
    """Weights times numbers from zero to two, one on average, that seem random.

    They follow from all that is known of the samples, so that the same question has the same answer
    and any other one has others. Whoever knows all of that to the last bit knows the moments.
    """
    known = blake2b(np.ascontiguousarray(columns).data, digest_size=SEED_BYTES)
    known.update(np.ascontiguousarray(z).data)
    words = seeded_words(known.digest(), "second moments", len(weights))
    changed: Floats = weights * (words * _UP_TO_TWO)
    return changed


def levelled(columns: Floats, weights: Floats, least: int) -> tuple[Floats, Floats]:
    """Columns without directions that have no digits, and weights that no direction is made of.

    ``columns`` has a row for each sample, and a column for each vector. No sample makes up more
    than ``least`` times the mean share of any direction, compared with what all others have there:
    where they have nothing, it weighs nothing.
    """
    tiny = np.finfo(float).tiny
    # Of so many samples, if all weighed the same.
    number = max(float(weights.sum()) ** 2 / max(float(weights @ weights), tiny), 1.0)
    units = np.sqrt(weights @ (columns * columns))
    scale = np.where(units > 0.0, 1.0 / np.where(units > 0.0, units, 1.0), 0.0)
    even = columns * scale
    lengths, ways = np.linalg.eigh(even.T @ (even * weights[:, None]))
    some = lengths > _FLAT * lengths.max(initial=0.0)
    lengths, ways = np.sqrt(lengths[some]), ways[:, some]
    apart = even @ (ways / lengths)
    levels, most = weights, least * len(lengths) / number
    for _ in range(_ROUNDS):
        had, turned = np.linalg.eigh(apart.T @ (apart * levels[:, None]))
        across = apart @ (turned / np.sqrt(np.maximum(had, _EMPTY)))
        # What a sample has of some direction, for each of its weight.
        size = (across * across).sum(axis=1)
        left = most * (1.0 - np.minimum(levels * size, 1.0))
        levels = np.minimum(levels, weights * left / np.maximum(left + weights * size, tiny))
    return apart @ ((ways * lengths).T * units), levels
