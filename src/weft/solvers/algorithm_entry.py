"""What an algorithm declares: its halves, what it needs, what it guarantees, who sees what."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Literal

import msgspec

from weft.guards.privacy_terms import Terms
from weft.matching.party_view import PartyView
from weft.solvers.run_settings import Settings
from weft.solvers.solver_interfaces_and_results import Coordinator, PartyFactory
from weft.solvers.sum_count_forecast import Forecast

#: How the table may be cut: both ways, by rows or by columns only, or not at all.
Cut = Literal["any", "rows", "columns", "whole"]
#: Lowest and highest value of a number that is tuned.
Range = tuple[float, float]
#: Settings, and the smallest ``iic`` that makes sense, to the numbers that are tuned.
Tuned = Callable[[Settings, float], Mapping[str, Range]]


class NoOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """For algorithms that read the common settings only."""


def bounds(**ranges: Range) -> Tuned:
    """The same numbers are tuned, within the same bounds, whatever the settings."""
    return lambda settings, least_iic: ranges


@dataclass(frozen=True)
class Algorithm:
    """A solver: its two halves, one line on what it does, and what it needs.

    Attributes
    ----------
    coordinator, party
        Make the two halves; the classes themselves, or functions that load them when a run begins.
    options
        What only this algorithm reads, as ``[solver.options]`` of a config.
    reads
        Settings, of those that not every algorithm reads, that this one does.
    cut
        ``rows``: every party has all features, and every sample is at one party. ``columns``: every
        party has all samples, and every feature is at one party. ``whole``: one party has the
        whole table.
    losses
        ``any``, ``smooth`` ones only, smooth ones and those whose kink can be ``rounded`` off, or
        only those with ``kinks``.
    weighs_samples
        Whether samples may have weights and offsets of their own.
    offsets
        Whether they may have offsets, where they all weigh the same.
    any_curvature
        Whether it trains losses of which neither slope nor curvature is bounded.
    joint_losses
        Whether it trains losses of all classes at once (softmax).
    free_intercept
        Whether it can leave the intercept without a penalty.
    infers
        Whether parties know what standard errors are made of, at the end.
    everyone
        Whether every party must take part in every iteration.
    waits
        Whether, where parties come and go, its questions wait until all of them have come by.
    spans
        Whether it trains paths of λ, leaves out folds and starts from a model.
    paths
        Whether it trains paths of λ, where it does not span all of that.
    folds
        Whether it leaves out folds, where it does not span all of that.
    shares
        Whether parties have shares of the model only, which whoever gets it adds up.
    saves
        Whether it keeps checkpoints.
    ours
        Whether Weft recommends it, rather than have it for comparison.
    papers
        Whether it can run the papers' protocol, in which feature sums travel in the clear.
    sample_sums
        Sums over samples that a party opens in an iteration, certificates aside; None: none, which
        an algorithm from outside must say itself.
    weighs
        Whether parties instead of samples may weigh the same.
    guarantee
        What it converges to.
    trips
        Round trips of an iteration, in words.
    reference
        Where it comes from.
    coordinator_sees, parties_see
        What each side learns besides what all runs show, which is sizes and totals of losses.
    shown_alone
        What of a single party's own others would see under these settings, in words; empty:
        nothing, as all is in sums over several, which an algorithm from outside must say itself.
    check
        Raises `ConfigError` for settings that are valid, but not for this algorithm.
    settle
        Settings with what they leave to the algorithm chosen under the parties' terms.
    beyond_terms
        What these settings ask of a party beyond its terms, in words and with a remedy; empty:
        nothing.
    follows_draws
        Whether a party must know how many samples the other holders of a cohort draw.
    stand_in
        Name of the algorithm that goes on under these settings when a party stays away.
    forecast
        Sums over a sample that a run takes, from settings, problems side by side and 1/N Σ ‖x_i‖²;
        None: by ``sample_sums`` and certificates, as for all methods in rounds.
    round_trips
        Round trips of training that a run is likely to take with everyone there, from settings
        and 1/N Σ ‖x_i‖²; None: nobody measured it.
    tuned
        Numbers that are usually tuned, with bounds, from settings and the smallest ``iic`` that
        makes sense; None: ``iic``, if the algorithm reads it.
    """

    name: str
    coordinator: Callable[[], Coordinator]
    party: PartyFactory
    about: str
    options: type[msgspec.Struct] = NoOptions
    reads: tuple[str, ...] = ()
    cut: Cut = "any"
    losses: Literal["any", "smooth", "rounded", "kinks"] = "any"
    weighs_samples: bool = False
    offsets: bool = False
    any_curvature: bool = False
    joint_losses: bool = False
    free_intercept: bool = False
    infers: bool = False
    everyone: bool = False
    waits: bool = False
    spans: bool = False
    paths: bool = False
    folds: bool = False
    shares: bool = False
    saves: bool = True
    ours: bool = False
    papers: bool = False
    sample_sums: int | None = None
    weighs: bool = False
    guarantee: str = ""
    trips: str = ""
    reference: str = ""
    coordinator_sees: str = ""
    parties_see: str = ""
    shown_alone: Callable[[Settings], str] = lambda settings: ""
    check: Callable[[Settings], None] = lambda settings: None
    settle: Callable[[Settings, Terms], Settings] = lambda settings, terms: settings
    beyond_terms: Callable[[Settings, Terms, PartyView], str] = lambda settings, terms, view: ""
    follows_draws: Callable[[Settings], bool] = lambda settings: False
    stand_in: Callable[[Settings], str | None] = lambda settings: None
    forecast: Callable[[Settings, int, float], Forecast] | None = None
    round_trips: Callable[[Settings, float], float] | None = None
    tuned: Tuned | None = None
