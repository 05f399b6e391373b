"""What is told of samples that folds left out, beside totals over all of them."""

from __future__ import annotations

import math

import msgspec

from weft.errors import ConfigError

#: Parts that samples can be cut into, each left out once.
MOST_FOLDS = 20
#: Levels of all groups together: each has counts of its own in every bucket.
MOST_LEVELS = 20
#: More than half would be judged by what the smaller part says.
MOST_HELD_OUT = 0.5


class EvaluationSettings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """``[evaluation]``: how held-out predictions are judged.

    Attributes
    ----------
    threshold
        From which probability on a sample counts as positive in the confusion matrix; with losses
        that give no probabilities 0.5 stands for the score 0.
    groups
        Columns at the parties with labels, and for each the values that make a group, such as
        ``{"sex": [0, 1]}``; all other values are one more group.
    by_site
        Whether each party with labels is judged by itself too, which its terms must allow.
    held_out
        What share of the samples is left out, once, in the place of folds.
    """

    threshold: float = 0.5
    groups: dict[str, tuple[float, ...]] = msgspec.field(default_factory=dict)
    by_site: bool = False
    held_out: float | None = None

    def __post_init__(self) -> None:
        if self.held_out is not None and not 0 < self.held_out <= MOST_HELD_OUT:
            raise ConfigError(
                f"held_out is {self.held_out:g}; give a share of the samples above 0 and up to "
                f"{MOST_HELD_OUT:g}, such as 0.2"
            )
        if not 0 < self.threshold < 1:
            raise ConfigError(
                f"the threshold is {self.threshold:g}; give a probability between 0 and 1"
            )
        for name, values in self.groups.items():
            if not values or len(set(values)) < len(values):
                raise ConfigError(
                    f"the groups of column '{name}' are {list(values)}; list its values once each"
                )
        if sum(len(values) + 1 for values in self.groups.values()) > MOST_LEVELS:
            raise ConfigError(f"groups have more than {MOST_LEVELS} values in all; name fewer")

    @property
    def cut_off(self) -> float:
        """The threshold as a score."""
        return math.log(self.threshold / (1.0 - self.threshold))
