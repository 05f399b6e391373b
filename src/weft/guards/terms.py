"""The terms on which a party takes part in sums.

Terms come from a federation's signed roster, from a site's own policy, or from the ``[privacy]``
section of a config; a party keeps to the strictest of all. Every default is the careful one.
"""

from __future__ import annotations

from typing import Literal

import msgspec

from weft.errors import ConfigError

Matching = Literal["hmac", "oprf"]

#: Modes of the coordinator, from the one that shows least.
_MODES = ("nothing", "weights", "papers")
HIDING_CIPHERS = ("pad", "bfv", "paillier")


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a party will take part in.

    Attributes
    ----------
    min_batch
        Between any two feature sums that others see, either none of the samples of a cohort
        changed their dual variable, or at least so many did. Cohorts with fewer samples are left
        out of training.
    min_contributors
        Parties that a sum must have.
    allow_pairs
        Sums of two parties are allowed too: each can then compute the other's part. A sum of
        scalars may then also have a single party, such as the only one with labels.
    allow_sample_norms
        Holders of a sample may learn ‖x_i‖², in the place of a bound for its whole cohort.
    allow_one_column
        A sample's holders may see sums in which only one column is foreign to them: that column
        is theirs then.
    coordinator_sees
        The most that the coordinator may see.
    ciphers
        Ciphers that count as hiding a sum.
    matching
        How ids are matched at least: ``oprf`` is stronger than ``hmac``.
    """

    min_batch: int = 10
    min_contributors: int = 3
    allow_pairs: bool = False
    allow_sample_norms: bool = False
    allow_one_column: bool = False
    coordinator_sees: Literal["nothing", "weights", "papers"] = "nothing"
    ciphers: tuple[str, ...] = HIDING_CIPHERS
    matching: Matching = "hmac"

    def __post_init__(self) -> None:
        for name in ("min_batch", "min_contributors"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; give a whole number above 0")

    def stricter(self, other: Terms) -> Terms:
        """The terms that keep to both."""
        return Terms(
            min_batch=max(self.min_batch, other.min_batch),
            min_contributors=max(self.min_contributors, other.min_contributors),
            allow_pairs=self.allow_pairs and other.allow_pairs,
            allow_sample_norms=self.allow_sample_norms and other.allow_sample_norms,
            allow_one_column=self.allow_one_column and other.allow_one_column,
            coordinator_sees=min(self.coordinator_sees, other.coordinator_sees, key=_MODES.index),
            ciphers=tuple(c for c in self.ciphers if c in other.ciphers),
            matching="oprf" if "oprf" in (self.matching, other.matching) else "hmac",
        )

    def allows(self, parties: int) -> bool:
        """Whether a sum over so many parties may be opened."""
        return parties >= self.min_contributors or (parties == 2 and self.allow_pairs)


#: No limit at all: data that is nobody's secret, simulated in one process.
OPEN = Terms(
    min_batch=1,
    min_contributors=1,
    allow_pairs=True,
    allow_sample_norms=True,
    allow_one_column=True,
    coordinator_sees="papers",
    ciphers=("plain", *HIDING_CIPHERS),
)
