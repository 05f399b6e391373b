"""What each role can make of a sealed run's records. Not a test itself.

Openings are what all parties read: scores, slopes and vectors under masks of all of them. Whoever
knows some of the masks takes those off. The dealer knows all masks and sees openings under pads.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import combinations
from unittest.mock import patch

import numpy as np

from weft.crypto.primitives.seeded_words import seeded_words
from weft.solvers.secret_sharing.dealer import Dealer
from weft.solvers.secret_sharing.digit_widths import CELL_BITS
from weft.solvers.secret_sharing.party import SealedParty
from weft.solvers.secret_sharing.sine_series import SCORE_BITS

#: Which handler opens what the phase before it hid: the name of its masks, and their sign.
_OPENERS = {"_slopes": ("scores", 1), "_vector": ("slopes", -1), "_products": ("vector", 1)}
_FIELDS = {"_slopes": "scores", "_vector": "slopes", "_products": "vector"}


@dataclass
class Opening:
    """One opening: as parties read it, and as the coordinator carried it."""

    kind: str
    sign: int
    serial: int
    opened: np.ndarray
    carried: np.ndarray


@dataclass
class Records:
    """All openings of a run, and the parties' halves with their seeds."""

    openings: list[Opening] = field(default_factory=list)
    halves: dict[str, SealedParty] = field(default_factory=dict)
    #: Per phase, all that hides scores: the parties' masks, and what A makes of the point's.
    score_masks: dict[int, np.ndarray] = field(default_factory=dict)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Write down what the first party opens, which all others open too."""
        handlers = {name: getattr(SealedParty, name) for name in _OPENERS}
        open_, at = SealedParty._open, {}

        def watched(name, handle):
            def call(party, message):
                at[party] = name, getattr(message, _FIELDS[name])
                return handle(party, message)

            return call

        def opening(party, total):
            found = open_(party, total)
            if party._party == 0 and party in at:
                name, carried = at.pop(party)
                kind, sign = _OPENERS[name]
                shape = found.shape
                carried = carried[: found.size].reshape(shape)
                # The number of the phase that hid it is the one before.
                self.openings.append(Opening(kind, sign, party._serial - 1, found, carried))
            return found

        def masking(dealer, serial):
            scores(dealer, serial)
            self.score_masks[serial] = dealer._scores.copy()

        scores = Dealer.scores
        changed = {name: watched(name, handle) for name, handle in handlers.items()}
        with (
            patch.multiple(SealedParty, **changed, _open=opening),
            patch.object(Dealer, "scores", masking),
        ):
            yield

    def unit(self, kind: str) -> float:
        slope = next(iter(self.halves.values()))._widths.slope
        bits = {"scores": SCORE_BITS, "slopes": slope, "vector": slope + CELL_BITS}[kind]
        return 2.0**-bits

    def seen(self, known: tuple[str, ...], *, carried: bool = False) -> dict[str, np.ndarray]:
        """Openings with the masks of some parties taken off, (entries × openings) by kind.

        Problems, which are opened together, stand side by side. ``carried``: as the dealer has
        them, under pads.
        """
        found = defaultdict(list)
        for one in self.openings:
            words = (one.carried if carried else one.opened).copy()
            masks = self._masks(one, known)
            words = words - masks if one.sign > 0 else words + masks
            found[one.kind].append(words.view(np.int64).T * self.unit(one.kind))
        return {kind: np.hstack(all_) for kind, all_ in found.items()}

    def _masks(self, one: Opening, known: tuple[str, ...]) -> np.ndarray:
        if one.kind == "scores" and len(known) == len(self.halves):
            return self.score_masks[one.serial]
        seeds = [self.halves[name]._seed for name in known]
        label, shape = f"{one.serial} {one.kind}", one.opened.shape
        return sum((seeded_words(seed, label, *shape) for seed in seeds), np.zeros(shape, "u8"))

    def adversaries(self) -> dict[str, dict[str, np.ndarray]]:
        """What those see whom the model allows for: all sets but all parties, and the dealer."""
        names = tuple(self.halves)
        sets = [some for size in range(1, len(names)) for some in combinations(names, size)]
        views = {" and ".join(some): self.seen(some) for some in sets}
        return {**views, "the dealer": self.seen(names, carried=True)}

    def everything(self) -> dict[str, np.ndarray]:
        """What the dealer and one party see together, whom the model keeps apart."""
        return self.seen(tuple(self.halves))
