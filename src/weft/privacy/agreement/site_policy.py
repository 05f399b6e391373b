"""A site's own policy: what one party insists on, whatever the others agreed."""

from __future__ import annotations

from dataclasses import dataclass, field

from weft.guards.terms import OPEN, Terms
from weft.privacy.agreement.limits import Limits


@dataclass(frozen=True)
class SitePolicy:
    """What a site allows; `weft.config.site_policy_file.read_policy` reads one from its file.

    A term that the file does not mention is left to the roster: here it has its widest value.

    Parameters
    ----------
    terms
        What the site insists on in sums.
    limits
        What the site will compute.
    allow_exposure
        Go on although the ledger forecasts that as many sums will be shown as others have
        columns, so that they could be computed from them.
    columns
        Columns that the site offers; anything else of its files is left out. None: all. Applied
        where a deployed site reads its files, by `weft.network.column_filter`.
    most_runs
        Runs that the site takes part in over a network, all in all; None: no limit. Kept by
        `weft.network.site`, which counts them.
    source
        Name of the file, for messages; empty where they go to others.
    """

    terms: Terms = OPEN
    limits: Limits = field(default_factory=Limits)
    allow_exposure: bool = False
    columns: tuple[str, ...] | None = None
    most_runs: int | None = None
    source: str = "policy.toml"
