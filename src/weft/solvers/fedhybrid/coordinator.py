"""FedHybrid, the coordinator's half: steps for all, and the mean of everybody's share."""

from __future__ import annotations

import math

from weft.errors import ConfigError
from weft.protocol import Message
from weft.protocol.message import floats
from weft.solvers.fedhybrid.local_function import Curvature
from weft.solvers.fedhybrid.options import FedhybridOptions, facts_of
from weft.solvers.fedhybrid.steps import Auto, Rule, Safeguard, Theory
from weft.solvers.rounds.coordinator import RoundCoordinator, Scalars
from weft.solvers.rounds.run_state import Phase, RoundsState
from weft.sums.scalar_sums import add_scalars

#: Steps that were halved so often are zero.
MOST_HALVINGS = 60
#: Scalars of the survey: m_i, ℓ_i and whether a party is of Newton's type.
_SURVEYED = 3


class FedhybridCoordinator(RoundCoordinator):
    """x₀ = mean(x_i − λ_i/μ) over all parties, absent ones with what they sent last.

    The shares are one running sum, which the coordinator cannot read. It learns the means of m_i
    and ℓ_i (under ``theory`` those of every party), and the mean residual of each iteration.
    """

    phases = (Phase("local", gets=("v",), gives=("v",), scalars=(("residual", 1),)),)
    everyone = False

    # ── setting up ────────────────────────────────────────────────────────────────────────

    def set_up(self, run: RoundsState) -> None:
        """Who is of which type, and steps for all."""
        options = run.settings.read_options(FedhybridOptions)
        flags = _types(options, run.holdings.parties)
        if not run.participation.complete:
            run.note("fedhybrid with parties that come and go is experimental: no theorem")
        messages: dict[str, Message] = run.adder.open(run.holdings.parties)
        run.adder.mask(messages)
        for party, message in messages.items():
            if party in flags:
                message["newton"] = flags[party]
        replies = run.channel.ask("rounds.survey", messages).insist("finding steps")
        sums = add_scalars(replies, "curvatures", _SURVEYED, messages)
        rule = _rule(options, sums or [], replies, len(messages)) if sums else options.fixed()
        run.found = facts_of(rule)
        run.memory.update(halvings=0, smallest=-1.0)
        begin: dict[str, Message] = {p: dict(run.found) for p in run.holdings.parties}
        run.channel.ask("rounds.begin", begin).insist("setting up")

    # ── iterations ────────────────────────────────────────────────────────────────────────

    def tell(self, run: RoundsState, phase: Phase, present: list[str]) -> dict[str, Message]:
        return {party: {"halvings": int(run.memory["halvings"])} for party in present}

    def scalars_of(self, run: RoundsState, phase: Phase) -> tuple[tuple[str, int], ...]:
        # Residuals of different sets of parties cannot be compared, and their differences would
        # tell that of whoever came or went.
        return phase.scalars if run.participation.complete else ()

    def take(self, run: RoundsState, phase: Phase, scalars: Scalars) -> None:
        """Halve the steps when the residual has grown far above its smallest."""
        told = scalars["residual"]
        if told is None:
            return
        guard = Safeguard(math.inf if run.memory["smallest"] < 0 else run.memory["smallest"])
        if guard.too_long(told[0]):
            run.memory["halvings"] = min(run.memory["halvings"] + 1, MOST_HALVINGS)
        run.memory["smallest"] = guard.smallest if math.isfinite(guard.smallest) else -1.0


def _types(options: FedhybridOptions, parties: tuple[str, ...]) -> dict[str, bool]:
    """Which parties are of Newton's type; empty: each finds out for itself."""
    newton = options.newton
    if newton == "auto":
        return {}
    if isinstance(newton, list):
        unknown = sorted(set(newton) - set(parties))
        if unknown:
            raise ConfigError(
                f"newton names '{unknown[0]}', but the parties are {', '.join(parties)}; correct it"
            )
        return {party: party in newton for party in parties}
    if isinstance(newton, int):
        if newton > len(parties):
            raise ConfigError(
                f"newton is {newton}, but there are {len(parties)} parties; give at most that"
            )
        return {party: number < newton for number, party in enumerate(parties)}
    return dict.fromkeys(parties, newton == "all")


def _rule(
    options: FedhybridOptions, sums: list[float], replies: dict[str, Message], parties: int
) -> Rule:
    lower, upper, newton = sums
    if options.steps == "fixed":
        return options.fixed()
    if options.steps == "theory":
        told = [floats(reply, "bounds", _SURVEYED) for reply in replies.values()]
        bounds = [Curvature(float(low), float(high)) for low, high, _ in told]
        return Theory.of(bounds, [bool(kind) for _, _, kind in told], options.mu)
    auto = Auto.of(lower / parties, upper / parties, round(newton) == parties)
    return auto if options.mu is None else Auto(options.mu, auto.upper)
