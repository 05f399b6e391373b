"""FedHybrid (Niu and Wei 2021): each party takes gradient-type or Newton-type updates, as it can.

The coordinator chooses the penalty μ and, from bounds on all parties' curvature, steps for all; a
party keeps its own x_i and λ_i, and only x_i − λ_i/μ leaves, in a sum over all parties.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from time import perf_counter
from typing import Any, Literal

import msgspec
import numpy as np
from numpy.typing import NDArray

from weft.array_types import Floats
from weft.errors import ConfigError, ProtocolError
from weft.protocol import Answer, answer, answers
from weft.protocol.declared_message_fields import malformed
from weft.solvers.algorithm_entry import Algorithm, Range
from weft.solvers.fedhybrid.local_function import Curvature, LocalFunction, sample_weight
from weft.solvers.fedhybrid.step_sizes import Auto, Fixed, Pair, Rule, Safeguard, Theory
from weft.solvers.fedhybrid.updates import State, gradient_update, newton_update, stand
from weft.solvers.party_context import PartyContext
from weft.solvers.rounds.coordinator import RoundCoordinator, Scalars
from weft.solvers.rounds.coordinator_totals_and_bound import RoundsState, Step
from weft.solvers.rounds.messages import (
    LOCAL,
    SURVEY,
    Model,
    RoundReply,
    RoundRequest,
    StepPhase,
    SurveyReply,
    SurveyRequest,
)
from weft.solvers.rounds.party import Handler, RoundParty, positive
from weft.solvers.run_settings import Settings
from weft.solvers.setup_result_and_checkpoint_messages import Constants
from weft.sums.scalar_sums import add_scalars, pack_scalars

#: Steps that were halved so often are zero.
MOST_HALVINGS = 60
#: Scalars of the survey: m_i, ℓ_i and whether a party is of Newton's type.
_SURVEYED = 3

# ── options ────────────────────────────────────────────────────────────────────────────


class FedhybridOptions(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """FedHybrid: each party takes gradient-type or Newton-type updates, as it can.

    Attributes
    ----------
    newton
        Who takes Newton-type updates: ``all``, ``none``, so many (the first ones), a list of names,
        or ``auto``: whoever needs no more than ``seconds`` for one, by its own measurement.
    seconds
        What ``newton = "auto"`` lets an update cost.
    steps
        ``auto``: from the mean curvature of the parties, backtracked. ``theory``: condition (4.2)
        of the paper, proven and very slow; every party tells the coordinator the bounds m_i, ℓ_i of
        its curvature. ``fixed``: the numbers ``mu``, ``a`` and ``b``.
    mu
        The penalty μ; without it, the rule's own.
    primal
        Factor on the a_i that ``auto`` gives gradient-type parties; that of a Newton-type one is 1,
        cut where it is too long.
    dual
        Factor on every b_i of ``auto``.
    a, b
        Primal and dual step of ``fixed``, for both types, or [gradient-type, Newton-type].
    """

    newton: int | str | list[str] = "all"
    seconds: float = 0.1
    steps: Literal["auto", "theory", "fixed"] = "auto"
    mu: float | None = None
    primal: float = 1.0
    dual: float = 1.0
    a: float | list[float] | None = None
    b: float | list[float] | None = None

    def __post_init__(self) -> None:
        if isinstance(self.newton, str) and self.newton not in ("all", "none", "auto"):
            raise ConfigError(
                f"newton = '{self.newton}'; use 'all', 'none', 'auto', a number, or a list of names"
            )
        if isinstance(self.newton, int) and self.newton < 0:
            raise ConfigError(f"newton is {self.newton}; give the number of parties, at least 0")
        if not self.seconds > 0:
            raise ConfigError(f"seconds is {self.seconds:g}; give a time above 0")
        if self.mu is not None and not 0 < self.mu < math.inf:
            raise ConfigError(f"mu is {self.mu:g}; give a positive number")
        for name, factor in (("primal", self.primal), ("dual", self.dual)):
            if not 0 < factor < math.inf:
                raise ConfigError(f"{name} is {factor:g}; give a positive factor, 1 by default")
        if self.steps != "auto" and (self.primal, self.dual) != (1.0, 1.0):
            raise ConfigError(
                f"primal and dual are factors on steps = 'auto', but steps = '{self.steps}'; leave "
                "them out"
            )
        fixed = self.steps == "fixed"
        given = [number is not None for number in (self.a, self.b)]
        if (not all(given) or self.mu is None) if fixed else any(given):
            raise ConfigError(
                "steps = 'fixed' needs all three of mu, a and b"
                if fixed
                else "a and b belong to steps = 'fixed'; leave them out, or set it"
            )

    def fixed(self) -> Fixed:
        """The steps as they were given."""
        (ga, na), (gb, nb) = _two(self.a), _two(self.b)
        return Fixed(self.mu or math.nan, Pair(ga, gb), Pair(na, nb))


def _two(given: float | list[float] | None) -> tuple[float, float]:
    """A number for gradient-type parties, and one for those of Newton's type."""
    if isinstance(given, list):
        if len(given) != 2:
            raise ConfigError("a list of steps has two numbers: gradient-type, Newton-type")
        return float(given[0]), float(given[1])
    number = math.nan if given is None else float(given)
    return number, number


def facts_of(rule: Rule) -> Constants:
    """A rule as numbers that travel; fixed steps are in the settings."""
    if isinstance(rule, Auto):
        return Constants(mu=rule.mu, upper=rule.upper)
    if isinstance(rule, Theory):
        return Constants(mu=rule.mu, upper=rule.upper, beta=rule.beta)
    return Constants(mu=rule.mu)


def rule_of(facts: Constants, options: FedhybridOptions, halvings: int) -> Rule:
    """The inverse; steps of ``auto`` are halved as often as the safeguard said."""
    mu = positive(facts.mu, "mu")
    if options.steps == "auto":
        shrunk = 0.5**halvings
        upper = positive(facts.upper, "upper")
        return Auto(mu, upper, options.primal * shrunk, options.dual * shrunk)
    if options.steps == "theory":
        return Theory(mu, positive(facts.upper, "upper"), positive(facts.beta, "beta"), math.nan)
    return options.fixed()


# ── the coordinator ────────────────────────────────────────────────────────────────────


class FedhybridCoordinator(RoundCoordinator):
    """x₀ = mean(x_i − λ_i/μ) over all parties, absent ones with what they sent last.

    The shares are one running sum, which the coordinator cannot read. It learns the means of m_i
    and ℓ_i (under ``theory`` those of every party), and the mean residual of each iteration.
    """

    steps = (Step(LOCAL, gets=("v",), gives=("v",), scalars=(("residual", 1),)),)
    everyone = False

    # ── setting up ────────────────────────────────────────────────────────────────────────

    def set_up(self, run: RoundsState, unit: float) -> None:
        """Who is of which type, and steps for all."""
        options = run.settings.read_options(FedhybridOptions)
        flags = _types(options, run.holdings.parties)
        if not run.participation.complete:
            run.note("fedhybrid with parties that come and go is experimental: no theorem")
        round_ = run.adder.advance()
        messages = {
            party: SurveyRequest(round=round_, newton=flags.get(party))
            for party in run.holdings.parties
        }
        replies = run.channel.ask(SURVEY, messages).insist("finding steps")
        sums = add_scalars(replies, "curvatures", _SURVEYED, messages)
        rule = _rule(options, sums or [], replies, len(messages)) if sums else options.fixed()
        run.found = facts_of(rule)
        run.memory.update(halvings=0, smallest=-1.0)
        self.begin(run)

    # ── iterations ────────────────────────────────────────────────────────────────────────

    def tell(self, run: RoundsState, step: Step, messages: Mapping[str, RoundRequest]) -> None:
        halvings = int(run.memory["halvings"])
        for message in messages.values():
            message.halvings = halvings

    def scalars_of(self, run: RoundsState, step: Step) -> tuple[tuple[str, int], ...]:
        # Residuals of different sets of parties cannot be compared, and their differences would
        # tell that of whoever came or went.
        return step.scalars if run.participation.complete else ()

    def take(self, run: RoundsState, step: Step, scalars: Scalars) -> None:
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
    options: FedhybridOptions, sums: list[float], replies: dict[str, SurveyReply], parties: int
) -> Rule:
    lower, upper, newton = sums
    if options.steps == "fixed":
        return options.fixed()
    if options.steps == "theory":
        told = [_told(party, reply) for party, reply in replies.items()]
        bounds = [Curvature(low, high) for low, high, _ in told]
        return Theory.of(bounds, [bool(kind) for _, _, kind in told], options.mu)
    auto = Auto.of(lower / parties, upper / parties, round(newton) == parties)
    return auto if options.mu is None else Auto(options.mu, auto.upper)


def _told(party: str, reply: SurveyReply) -> list[float]:
    """m_i, ℓ_i and the type of one party."""
    if reply.bounds is None or len(reply.bounds) != _SURVEYED:
        raise ProtocolError(f"party {party} does not tell the bounds on its curvature")
    bounds: list[float] = reply.bounds.tolist()
    return bounds


# ── a party ────────────────────────────────────────────────────────────────────────────


class FedhybridParty(RoundParty):
    """Keeps x_i and λ_i; only x_i − λ_i/μ leaves, in a sum over all parties."""

    def __init__(self, context: PartyContext, settings: Settings) -> None:
        super().__init__(context, settings)
        self._draws = context.draws
        self._options = settings.read_options(FedhybridOptions)
        view = self.view
        weight = sample_weight(
            settings.weigh, view.n_parties, int((~view.left_out).sum()), view.n_samples
        )
        self.function = LocalFunction(self.table, self.labels, self.loss, settings.lam, weight)
        self.local = State.start(self.w.shape)
        self.newton = False
        self._facts = Constants()
        self._mu = math.nan

    # ── setting up ────────────────────────────────────────────────────────────────────────

    def phases(self) -> dict[str, Answer]:
        return {**super().phases(), **answers(answer(SURVEY, self._on_survey))}

    def _on_survey(self, message: SurveyRequest) -> SurveyReply:
        """Bounds on the own curvature, and the own type, in sums over all parties."""
        self.newton = self._quick() if message.newton is None else message.newton
        bounds = self.function.curvature
        values = [bounds.lower, bounds.upper, float(self.newton)]
        told = pack_scalars(self.cipher, "curvatures", *values)
        alone = np.array(values) if self._options.steps == "theory" else None
        return SurveyReply(curvatures=told, bounds=alone)

    def _quick(self) -> bool:
        """Whether a Newton-type update costs this party little enough time."""
        # By the clock, which would not say the same after an interruption.
        return self._draws.take("newton", self._measured) == b"quick"

    def _measured(self) -> bytes:
        start = perf_counter()
        self.function.system(self.local.x, self.settings.lam).solve(self.local.x)
        return b"quick" if perf_counter() - start <= self._options.seconds else b"slow"

    def begin(self, found: Constants) -> None:
        rule_of(found, self._options, 0)  # refuses what is no rule before it is kept
        self._facts, self._mu = found, positive(found.mu, "mu")
        self.join("v", self._room())

    def _room(self) -> float:
        """A bound on x_i − λ_i/μ, where λ_i approaches ∇f_i(x₀); the same at all parties."""
        steepest = self.view.n_parties * 2.0 * self.bounds.v + self.settings.lam * self.longest
        return self.longest + steepest / self._mu

    # ── iterations ────────────────────────────────────────────────────────────────────────

    def handlers(self) -> dict[StepPhase, Handler]:
        return {LOCAL: self._on_local}

    def point(self, totals: Model) -> Floats:
        """x₀ = mean(x_i − λ_i/μ)."""
        return self.opened("v", totals.v, self.local.share(self._mu)) / self.view.n_parties

    def _on_local(self, message: RoundRequest) -> RoundReply:
        """Σ (x_j − λ_j/μ) ↓, the own one ↑."""
        mu = self._mu
        self.w = x0 = self.point(message)
        rule = rule_of(self._facts, self._options, self._halvings(message))
        pair = rule.own(self.function.curvature, self.newton)
        here = stand(self.function, self.local, x0, mu)
        update = newton_update if self.newton else gradient_update
        moved = update(self.function, self.local, here, x0, mu, pair)
        self.check_size(moved.x)
        reply = RoundReply()
        self.local = self._kept(moved, reply)
        if message.measure:
            residual = float(here.residual.sum()) / self.view.n_parties
            reply.residual = pack_scalars(self.cipher, "residual", residual)
        shared = self.view.n_shared_columns
        if shared:
            share = self.local.share(mu)[:shared]
            reply.v = self.sums["v"].increment(share, message.v_pads)
        return reply

    def _halvings(self, message: RoundRequest) -> int:
        """How often steps were halved, which only the safeguard of all does."""
        count = message.halvings
        if count is None or not 0 <= count <= MOST_HALVINGS:
            raise malformed("halvings", "is no such number")
        return count

    def _kept(self, moved: State, reply: RoundReply) -> State:
        """The new state, but for classes in which a few samples have a slope: there the old one
        stays, since a sum would show them."""
        if not self.guarded:
            return moved
        z = self.table.products(None, self.local.x)
        fine = self.enough(self.loss.u(z, self.labels) != 0.0)
        if fine.all():
            return moved
        reply.held = int((~fine).sum())
        return State(
            np.where(fine, moved.x, self.local.x),
            np.where(fine, moved.multiplier, self.local.multiplier),
        )

    def variables(self) -> dict[str, NDArray[Any]]:
        newton = np.array(self.newton)
        return {"x": self.local.x, "multiplier": self.local.multiplier, "newton": newton}

    def remembered(self) -> dict[str, NDArray[Any]]:
        # Updates make new arrays, and never change old ones.
        return self.variables()

    def take_variables(self, state: Mapping[str, NDArray[Any]]) -> None:
        self.local = State(state["x"], state["multiplier"])
        self.newton = bool(state["newton"])


# ── the method ─────────────────────────────────────────────────────────────────────────


def _alone(settings: Settings) -> str:
    theory = settings.read_options(FedhybridOptions).steps == "theory"
    return "bounds on the curvature" if theory else ""


def _tuned(settings: Settings, least_iic: float) -> dict[str, Range]:
    options = settings.read_options(FedhybridOptions)
    if options.steps == "auto":
        return {"primal": (1e-2, 1e1), "dual": (1e-2, 1e1)}
    if options.steps == "theory":
        return {}
    found: dict[str, Range] = {"mu": (1e-2, 1e4)}
    # One step for both types of parties can be tuned, a pair cannot.
    return found | {
        name: (1e-5, 25.0) for name in ("a", "b") if not isinstance(getattr(options, name), list)
    }


FEDHYBRID = Algorithm(
    "fedhybrid",
    FedhybridCoordinator,
    FedhybridParty,
    "gradient-type and Newton-type parties in one primal-dual method",
    options=FedhybridOptions,
    tuned=_tuned,
    reads=("certify_every",),
    cut="rows",
    losses="smooth",
    weighs=True,
    guarantee="the optimum, at a linear rate under steps = 'theory'; parties that come and go are "
    "experimental",
    trips="1",
    reference="Niu and Wei 2021, Algorithm 1",
    coordinator_sees="ciphertexts; totals of losses, norms, residuals and curvatures (steps = "
    "'theory': every party's curvature)",
    parties_see="w, a mean over all parties",
    shown_alone=_alone,
)
