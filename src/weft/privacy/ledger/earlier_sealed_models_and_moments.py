"""How much sealed models and second moments have told of a party's samples in earlier runs.

A weight of a sealed model, and an entry of a Gram matrix, is an equation about samples whose
factors a reader knows that brought the column. One run opens few of them; runs with other columns,
targets or λ add up. So every party counts in its own ledger, sample by sample, how many numbers
went out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import ConfigError
from weft.privacy.ledger.earlier_samples import Hashes, read_per_sample
from weft.solvers.secret_sharing.coalition_knowledge import Told

#: Of weights of models, and of second moments of each column; how many Hessians there were; how
#: many folds a lone label holder has judged its classes in; and whether a sample was in a run that
#: was refused by its responses.
NumberKind = Literal["models", "moments", "hessians", "judged_folds", "judged_responses"]
NUMBER_KINDS: tuple[NumberKind, ...] = get_args(NumberKind)
#: In the place of a number of folds, once some were refused: more than any run has.
FOLDS_REFUSED = 1_000_000
#: Whether a sample was in a run that was refused by its responses, or was known and left out.
_REFUSED, _LEFT_OUT = 1, 2

_WHAT = {
    "models": ("a further sealed model", "train on more samples"),
    "moments": (
        "further second moments",
        "bring more samples, leave second_moments and inference out",
    ),
}
_OTHERS_REFUSED = (
    "refuses to judge responses of these samples: by its ledger a run over others of them was "
    "refused by responses that stand out, and both answers would tell whose they are; cut the "
    "largest, or leave them out of its own file, and train on the samples of that run first"
)
_ABOUT = {"models": "them", "moments": "each of its columns"}


@dataclass
class NumberMemory:
    """Numbers that were opened.

    Attributes
    ----------
    sample
        Keyed hashes, ascending.
    numbers
        Per sample, over all runs that it was in.
    """

    sample: Hashes
    numbers: Ints

    @classmethod
    def new(cls) -> NumberMemory:
        """No run yet."""
        return cls(np.zeros(0, np.uint64), np.zeros(0, np.int64))

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, NDArray[Any]], name: str) -> NumberMemory | None:
        """The inverse of :meth:`to_arrays`; None: that is no memory."""
        found = read_per_sample(arrays, f"{name}.sample", f"{name}.numbers", np.int64)
        return cls(*found) if found is not None and bool((found[1] >= 0).all()) else None

    def to_arrays(self, name: str) -> dict[str, NDArray[Any]]:
        """For a file."""
        return {f"{name}.sample": self.sample, f"{name}.numbers": self.numbers}

    def add(self, samples: Hashes, numbers: Ints) -> None:
        """Take down that so many more go out over each of these samples."""
        everybody = np.union1d(self.sample, samples)
        counts = np.zeros(len(everybody), np.int64)
        counts[np.searchsorted(everybody, self.sample)] = self.numbers
        counts[np.searchsorted(everybody, samples)] += numbers
        self.sample, self.numbers = everybody, counts

    def of(self, samples: Hashes) -> Ints:
        """How many went out over each of these samples."""
        found = np.zeros(len(samples), np.int64)
        known = np.isin(samples, self.sample)
        found[known] = self.numbers[np.searchsorted(self.sample, samples[known])]
        return found


def judge_once(
    memory: NumberMemory, taking: Hashes, known: Hashes, judge: Callable[[], None]
) -> None:
    """Judge responses of samples that take part, and after a refusal of no others.

    Whoever leaves out a few, and a few others after a refusal, finds whose response it is. Samples
    that the party itself has added since, or taken away, are no choice of another.

    Parameters
    ----------
    known
        All that the party has labels of.
    """
    place = np.where(np.isin(known, taking), _REFUSED, _LEFT_OUT)
    before = memory.of(known)
    if ((before > 0) & (before != place)).any():
        raise ConfigError(_OTHERS_REFUSED)
    try:
        judge()
    except ConfigError:
        memory.add(known, place - before)
        raise
    memory.add(known, -before)


def refuse_second_weighting(party: str, moments: Ints, hessians: Ints, *, hessian: bool) -> None:
    """Refuse a Hessian beside another matrix of the same samples, which weighs them otherwise.

    Made-up columns choose the weights: two matrices differ in one sample's row then.

    Parameters
    ----------
    moments, hessians
        Numbers of matrices that went out before, and how many Hessians, over each sample.
    hessian
        Whether one is to go out now.
    """
    if hessians.any() or (hessian and moments.any()):
        raise ConfigError(
            f"party {party} refuses second moments over samples of which an earlier run opened "
            "some, one of the two a Hessian: their difference can be the row of one sample; leave "
            "second_moments and inference out, or agree on allow_exposure = true"
        )


def refuse_further_numbers(party: str, kind: NumberKind, told: Told, before: Ints) -> None:
    """Refuse to tell more numbers than a share of the samples that others hold, over all runs.

    ``before`` has per local row what earlier runs told.
    """
    found = told.too_many(before)
    if found is None:
        return
    what, remedy = _WHAT[kind]
    earlier, more, most = found
    who = f"party {party} refuses {what} over these samples"
    remedy = f"{remedy}, or agree on allow_exposure = true"
    raise ConfigError(
        f"{who}: by its ledger, earlier runs opened {earlier} numbers about {_ABOUT[kind]}, "
        f"and with {more} more it would be over {most}, a fifth of those that other parties share; "
        f"{remedy}",
        told=f"{who}, of which earlier runs opened too many numbers; {remedy}",
    )
