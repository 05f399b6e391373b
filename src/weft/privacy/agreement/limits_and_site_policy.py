"""What a federation or a site will compute, and a site's own policy, whatever the others agreed."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from weft.errors import ConfigError
from weft.guards.privacy_terms import OPEN, Terms
from weft.losses import LOSSES
from weft.solvers.algorithm_choice import ALGORITHMS, algorithms_of
from weft.solvers.run_settings import Settings

#: The kind of job that is allowed where nothing is said.
LINEAR = "linear"
#: Stands among solvers for all runs that train networks.
NETWORKS = "hyfem"


_COUNTS = ("most_problems", "most_iterations", "least_asked", "most_asked", "most_scores")


class Limits(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Limits on what is computed; None: no limit.

    Attributes
    ----------
    kinds
        Kinds of jobs that sites run: a kind that a plug-in adds must be named here, or be allowed
        by a term, as networks are. Whoever installs a plug-in has not agreed to its runs yet.
    losses, solvers
        Those allowed.
    most_problems
        Problems that one run may train: values of λ, times one more than the folds. Each shows
        sums of its own.
    most_iterations
        Iterations that one run may ask for, of all λ together: parties tell no more than these can
        need.
    most_epsilon, most_delta
        What all released models of a ledger may tell of one sample, added up: a model without
        noise is refused then.
    most_rho
        What all feature sums with noise of a ledger may tell, added up: runs without such noise
        are refused then.
    askers
        Parties to whom joint predictions may show scores; None: over a network nobody, unless
        another document of the site names some.
    least_asked, most_asked
        Of how many samples of a party one joint prediction shows scores to others, at least and at
        most.
    most_scores
        Scores of its samples that all joint predictions of a ledger may show to others: one for
        each sample and class, each time.
    """

    kinds: tuple[str, ...] = (LINEAR,)
    losses: tuple[str, ...] | None = None
    solvers: tuple[str, ...] | None = None
    most_problems: int | None = None
    most_iterations: int | None = None
    most_epsilon: float | None = None
    most_delta: float | None = None
    most_rho: float | None = None
    askers: tuple[str, ...] | None = None
    least_asked: int | None = None
    most_asked: int | None = None
    most_scores: int | None = None

    def __post_init__(self) -> None:
        if not self.kinds:
            raise ConfigError(f"kinds is empty; list some kinds of jobs, such as '{LINEAR}'")
        for what, given, known in (
            ("losses", self.losses, LOSSES),
            ("solvers", self.solvers, (*ALGORITHMS, NETWORKS)),
        ):
            if given is None:
                continue
            strange = [name for name in given if name not in known]
            if strange or not given:
                what_is_wrong = f"names '{strange[0]}'" if strange else "is empty"
                raise ConfigError(f"{what} {what_is_wrong}; list some of {', '.join(known)}")
        for name in ("most_epsilon", "most_delta", "most_rho"):
            most = getattr(self, name)
            if most is not None and not most > 0:
                raise ConfigError(f"{name} is {most:g}; give a number above 0")
        for name in _COUNTS:
            most = getattr(self, name)
            if most is not None and most < 1:
                raise ConfigError(f"{name} is {most}; give a whole number above 0")
        if self.askers is not None and not self.askers:
            raise ConfigError("askers is empty; list parties that may ask for scores")

    @property
    def has_budget(self) -> bool:
        """Whether it limits what released models tell."""
        return self.most_epsilon is not None or self.most_delta is not None

    def objections(self, settings: Settings) -> Iterator[tuple[str, str, str]]:
        """What a run asks beyond the limits, why that is too much, and what to do."""
        if self.losses is not None and settings.loss not in self.losses:
            allowed = " and ".join(self.losses)
            yield (
                f"loss = '{settings.loss}'",
                f"only {allowed} may be used",
                "choose one of them in [model]",
            )
        if self.solvers is not None:
            # A run in which another solver may stand in asks for both.
            for algorithm in algorithms_of(settings):
                if algorithm.name not in self.solvers:
                    allowed = " and ".join(self.solvers)
                    yield (
                        f"solver '{algorithm.name}'",
                        f"only {allowed} may be used",
                        "name one of them in [solver]",
                    )
        if self.has_budget and settings.noise is None:
            yield (
                "a model without noise",
                "most_epsilon or most_delta is set, so that models are released with noise only",
                "ask for it with epsilon in [noise]",
            )
        if self.most_rho is not None and settings.sum_noise is None:
            yield (
                "feature sums without noise",
                "most_rho is set, so that they have noise",
                "ask for it with multiplier in [sum_noise]",
            )
        asked, most, path = settings.iterations, self.most_iterations, len(settings.lambdas)
        if most is not None and (asked is None or asked * path > most):
            each = f" for each of {path} λ" if path > 1 else ""
            yield (
                f"iterations = {'any number' if asked is None else asked}{each}",
                f"a run has at most {most}",
                f"set iterations = {most // path} in [solver], or fewer"
                if path <= most
                else "list fewer values of lambda",
            )
        problems = len(settings.lambdas) * (settings.folds + 1)
        if self.most_problems is not None and problems > self.most_problems:
            yield (
                f"{problems} problems ({len(settings.lambdas)} λ × {settings.folds + 1})",
                f"at most {self.most_problems} may be trained in a run",
                "list fewer values of lambda, or have fewer folds",
            )


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
    columns
        Columns that the site offers; anything else of its files is left out. None: all. Applied
        where a deployed site reads its files, by `weft.network.site_data_keys_and_consent`.
    most_runs
        Runs that the site takes part in over a network, all in all; None: no limit. Kept by
        `weft.network.site_answers_envelopes`, which counts them.
    tell_columns
        Whether the site tells others over a network which of its columns a run cannot use, and why.
    source
        Name of the file, for messages; empty where they go to others.
    """

    terms: Terms = OPEN
    limits: Limits = field(default_factory=Limits)
    columns: tuple[str, ...] | None = None
    most_runs: int | None = None
    tell_columns: bool = True
    source: str = "policy.toml"
