"""The terms on which a party takes part in sums.

Terms come from a federation's signed roster, from a site's own policy, or from the ``[privacy]``
section of a config; a party keeps to the strictest of all. Every default is the careful one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from weft.errors import ConfigError

Matching = Literal["hmac", "oprf"]

#: Modes of the coordinator, from the one that shows least.
MODES = ("nothing", "weights", "papers")
#: A party knows its neighbours in a sum of scalars, which are four where there are many parties.
_MOST_CONTRIBUTORS = 5
#: Fewer parties than this in a sum are a pair.
_FEWEST = 3
HIDING_CIPHERS = ("pad", "bfv", "paillier")
_CIPHERS = ["plain", *HIDING_CIPHERS]


def admit_cipher(name: str) -> None:
    """Let terms name a cipher from outside; no terms do by themselves."""
    _CIPHERS.append(name)


class Terms(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a party will take part in.

    Attributes
    ----------
    min_batch
        Between any two feature sums that others see, either none of the samples of a cohort
        changed their dual variable, or at least so many did. Cohorts with fewer samples are left
        out of training; so are samples of a cohort whose class fewer of it have, and, for a
        cohort, columns in which fewer of its samples differ from the rest.
    min_contributors
        Parties that a sum must have.
    allow_pairs
        Sums of two parties and more are allowed: of two, each can compute the other's part.
    allow_lone_labels
        The only party with labels may tell the coordinator its losses, which are sums over its
        samples, but over no other party.
    allow_sample_norms
        Holders of a sample may learn ‖x_i‖², in the place of a bound for its whole cohort.
    allow_one_column
        A sample's holders may see sums in which only one column is foreign to them: that column
        is theirs then.
    allow_crossed_cells
        A party may hold a sample and, for other samples, a feature, while another holds the cell
        where they meet: it can compute that cell.
    allow_small_changes
        Fewer than ``min_batch`` samples of a cohort may come, go or be corrected between two
        runs: whoever sees feature sums of both can compute them. Parties know earlier runs from
        their ledgers.
    allow_exposure
        Another party may get as many sums about a sample, over all runs, as it lacks columns of it:
        then it knows these columns up to an invertible map. Parties count sums in their ledgers.
        And a sealed model, its second moments, or those of all runs together may tell more numbers
        than a fifth of the samples that another party shares: made-up columns are equations then.
    most_explained
        The largest share of the variance of columns that somebody lacks which all sums about a
        sample may explain, as forecast for correlated columns; 1 sets no limit of its own.
    allow_networks
        The coordinator may see the weights of this party's own network, as it must to match
        it with those of others: they can tell much about its samples.
    allow_second_moments
        Whoever gets a sealed model may get the Hessian and the Gram matrix XᵀX besides: means,
        spreads and correlations of all columns over all samples, whoever holds them.
    allow_rare_pairs
        These matrices may tell of columns of two parties that are unusual together in fewer than
        ``min_batch`` samples, which nobody can count beforehand: 0/1 columns, as a rule.
    allow_site_scores
        The coordinator may read how many held-out samples of this party alone have scores in which
        interval, by class, in intervals of ``min_batch`` samples and more.
    allow_site_statistics
        Descriptions may tell of columns that this party holds alone, or with fewer than
        ``min_contributors`` others, and of its outcomes by themselves: counts, means and
        distributions over ``min_batch`` samples of its own and more. Second moments and standard
        errors may be of columns that are the same for all samples of a party. Models may have an
        intercept of this party's own, which tells of its outcomes.
    allow_told_columns
        Weights, offsets and exposures that this party holds of samples without their labels may be
        told, cell by cell, to the parties that have these labels. Where there is a ledger, other
        columns than the first that were told take ``allow_exposure`` as well.
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
    allow_lone_labels: bool = False
    allow_sample_norms: bool = False
    allow_one_column: bool = False
    allow_crossed_cells: bool = False
    allow_small_changes: bool = False
    allow_exposure: bool = False
    most_explained: float = 1.0
    allow_networks: bool = False
    allow_second_moments: bool = False
    allow_rare_pairs: bool = False
    allow_site_scores: bool = False
    allow_site_statistics: bool = False
    allow_told_columns: bool = False
    coordinator_sees: Literal["nothing", "weights", "papers"] = "nothing"
    ciphers: tuple[str, ...] = HIDING_CIPHERS
    matching: Matching = "hmac"

    def __post_init__(self) -> None:
        if self.min_batch < 1:
            raise ConfigError(f"min_batch is {self.min_batch}; give a whole number above 0")
        if not 1 <= self.min_contributors <= _MOST_CONTRIBUTORS:
            raise ConfigError(
                f"min_contributors is {self.min_contributors}; give 1 to {_MOST_CONTRIBUTORS}"
            )
        if self.min_contributors < _FEWEST and not self.allow_pairs:
            raise ConfigError(
                f"min_contributors = {self.min_contributors} lets two parties add up alone; give "
                f"{_FEWEST} or more, or say allow_pairs = true too"
            )
        if not 0 < self.most_explained <= 1:
            raise ConfigError(
                f"most_explained is {self.most_explained}; give a share above 0, up to 1"
            )
        strangers = [cipher for cipher in self.ciphers if cipher not in _CIPHERS]
        if strangers or not self.ciphers:
            raise ConfigError(
                f"ciphers = {list(self.ciphers)} must name some of {', '.join(_CIPHERS)}"
            )

    def stricter(self, other: Terms) -> Terms:
        """The terms that keep to both."""
        return Terms(
            min_batch=max(self.min_batch, other.min_batch),
            min_contributors=max(self.min_contributors, other.min_contributors),
            allow_pairs=self.allow_pairs and other.allow_pairs,
            allow_lone_labels=self.allow_lone_labels and other.allow_lone_labels,
            allow_sample_norms=self.allow_sample_norms and other.allow_sample_norms,
            allow_one_column=self.allow_one_column and other.allow_one_column,
            allow_crossed_cells=self.allow_crossed_cells and other.allow_crossed_cells,
            allow_small_changes=self.allow_small_changes and other.allow_small_changes,
            allow_exposure=self.allow_exposure and other.allow_exposure,
            most_explained=min(self.most_explained, other.most_explained),
            allow_networks=self.allow_networks and other.allow_networks,
            allow_second_moments=self.allow_second_moments and other.allow_second_moments,
            allow_rare_pairs=self.allow_rare_pairs and other.allow_rare_pairs,
            allow_site_scores=self.allow_site_scores and other.allow_site_scores,
            allow_site_statistics=self.allow_site_statistics and other.allow_site_statistics,
            allow_told_columns=self.allow_told_columns and other.allow_told_columns,
            coordinator_sees=min(self.coordinator_sees, other.coordinator_sees, key=MODES.index),
            ciphers=tuple(c for c in self.ciphers if c in other.ciphers),
            matching="oprf" if "oprf" in (self.matching, other.matching) else "hmac",
        )

    def allows(self, parties: int) -> bool:
        """Whether a sum over so many parties may be opened."""
        return parties >= self.min_contributors or (parties >= 2 and self.allow_pairs)

    def allows_scalars(self, parties: int) -> bool:
        """Whether the coordinator may read sums of scalars over so many parties."""
        return self.allows(parties) or (parties == 1 and self.allow_lone_labels)


#: For data that all members may see: nothing is held back but what the coordinator sees.
PILOT = Terms(
    min_batch=1,
    min_contributors=1,
    allow_pairs=True,
    allow_lone_labels=True,
    allow_sample_norms=True,
    allow_one_column=True,
    allow_crossed_cells=True,
    allow_small_changes=True,
    allow_exposure=True,
)


def is_pilot(terms: Mapping[str, Any]) -> bool:
    """Whether terms, as plain values, hold nothing back between the parties."""
    return all(
        terms.get(name) == getattr(PILOT, name)
        for name in ("min_batch", "allow_small_changes", "allow_exposure")
    )


#: No limit at all: data that is nobody's secret, simulated in one process.
OPEN = Terms(
    min_batch=1,
    min_contributors=1,
    allow_pairs=True,
    allow_lone_labels=True,
    allow_sample_norms=True,
    allow_one_column=True,
    allow_crossed_cells=True,
    allow_small_changes=True,
    allow_exposure=True,
    allow_networks=True,
    allow_second_moments=True,
    allow_rare_pairs=True,
    allow_site_scores=True,
    allow_site_statistics=True,
    allow_told_columns=True,
    coordinator_sees="papers",
    ciphers=("plain", *HIDING_CIPHERS),
)
