"""What one party consents to: its federation's roster, its own policy, the terms of a config."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING, NoReturn

import msgspec

from weft.crypto.party_key_pairs import PublicIdentity
from weft.errors import ConfigError, ProtocolError
from weft.guards.intersect_allow_lists import in_all_lists
from weft.guards.min_batch_across_runs import Change
from weft.guards.privacy_terms import OPEN, Matching, Terms
from weft.matching.party_view import PartyView
from weft.privacy.agreement.check_runs_against_terms import (
    check_asked,
    check_change,
    check_claims,
    check_folds,
    check_groups,
    check_labels,
    check_matching,
    check_networks,
    check_readers,
    check_same_company,
    check_sample_sums,
    check_scalars,
    check_scaling,
    check_scores,
    check_seat,
    check_second_moments,
    check_settings,
    check_site_intercept,
    check_told_column,
    check_total,
)
from weft.privacy.agreement.limits_and_site_policy import Limits, SitePolicy
from weft.privacy.agreement.signed_roster import Member, SignedRoster
from weft.protocol.declared_message_fields import Message
from weft.protocol.shared_fields import PUBLIC, Company, company_in
from weft.solvers.run_settings import Settings

if TYPE_CHECKING:
    from weft.privacy.ledger.ledger_contents import Question


@dataclass(frozen=True)
class _Source:
    """One document that binds a party, and how it is called; ``asked``: it is a submitter's."""

    title: str
    terms: Terms
    limits: Limits
    asked: bool = False


class Consent:
    """What a party takes part in; it keeps to the strictest of all that binds it.

    Parameters
    ----------
    name
        The party.
    terms
        Terms of a run without a roster, or on top of it.
    roster
        The roster of its federation, which all members must have signed.
    policy
        The site's own policy.
    asked
        Terms of a submitter on another machine, who may make a run stricter, but for `min_batch`
        where the party has its own.
    """

    def __init__(
        self,
        name: str,
        terms: Terms = OPEN,
        *,
        roster: SignedRoster | None = None,
        policy: SitePolicy | None = None,
        asked: Terms | None = None,
    ) -> None:
        self.name = name
        self.roster = roster
        self.policy = policy
        self._sources: list[_Source] = []
        self._member: Member | None = None
        self._listed: frozenset[bytes] = frozenset()
        self._met: set[bytes] = set()
        if roster is not None:
            self._join(roster)
        if policy is not None:
            title = f"its own policy {policy.source}".rstrip()
            self._sources.append(_Source(title, policy.terms, policy.limits))
        self._sources.append(_Source("", terms, Limits()))
        if asked is not None:
            self._sources.append(_Source("", self._unsteered(asked), Limits(), asked=True))
        #: The strictest of all.
        self.terms: Terms = _strictest(self._sources)

    @classmethod
    def open(cls, name: str) -> Consent:
        """Consent to anything: for data that is nobody's secret."""
        return cls(name)

    @property
    def own_terms(self) -> Terms:
        """The strictest of its own documents: what no submitter can make stricter.

        Whoever could would find out sizes of groups by asking from where on a party refuses.
        """
        return _strictest([source for source in self._sources if not source.asked])

    def least_told(self, view: PartyView) -> int:
        """Of how many samples what others read must be, by its own terms, or by the run's.

        Whoever else could raise its own would see what is merged, or refused, from where on.
        """
        own = self.own_terms.min_batch
        return own if own > 1 else view.min_batch

    def _unsteered(self, asked: Terms) -> Terms:
        """Terms of a submitter, without a min_batch where this party has one of its own.

        What a run leaves out depends on it, and shows in the model: under a growing one, a
        submitter would see when a bin or a class is gone, and know how many samples it has.
        """
        own = self.own_terms.min_batch
        return asked if own == 1 else msgspec.structs.replace(asked, min_batch=own)

    @property
    def budget(self) -> tuple[float, float]:
        """The most ε and δ that all released models may come to."""
        limits = [source.limits for source in self._sources]
        epsilons = [limit.most_epsilon for limit in limits if limit.most_epsilon is not None]
        deltas = [limit.most_delta for limit in limits if limit.most_delta is not None]
        return min(epsilons, default=math.inf), min(deltas, default=math.inf)

    @property
    def sum_budget(self) -> float:
        """The most ρ that all feature sums with noise may come to."""
        limits = [source.limits.most_rho for source in self._sources]
        return min((limit for limit in limits if limit is not None), default=math.inf)

    @property
    def recipients(self) -> tuple[str, ...] | None:
        """To whom the model goes; None: no roster says so."""
        return None if self.roster is None else self.roster.charter.having("model")

    @property
    def key_holders(self) -> tuple[str, ...] | None:
        """Who holds a key for matching; None: no roster says so."""
        return None if self.roster is None else self.roster.charter.having("matching")

    @property
    def solvers(self) -> tuple[str, ...] | None:
        """Solvers that all of its documents allow; None: none of them limits solvers."""
        return in_all_lists(source.limits.solvers for source in self._sources)

    def _join(self, roster: SignedRoster) -> None:
        charter = roster.charter
        roster.insist()
        if self.name not in roster.members:
            raise ConfigError(
                f"party {self.name} is no member of '{charter.federation}', whose roster lists "
                f"{', '.join(roster.members)}; correct its name, or have all members sign a roster "
                "that lists it"
            )
        title = f"the roster of '{charter.federation}'"
        self._sources.append(_Source(title, charter.terms, charter.limits))
        self._member = roster.members[self.name]
        self._listed = frozenset(member.identity.to_bytes() for member in charter.members)

    # ── what it brings ────────────────────────────────────────────────────────────────────

    def check_own(self, identity: PublicIdentity, rows: int, *, labels: bool) -> None:
        """Refuse to bring what the roster does not let this party bring.

        Parameters
        ----------
        identity
            The keys that it takes part with.
        rows
            Rows of all its tiles.
        labels
            Whether it brings labels.
        """
        member = self._member
        if member is None:
            return
        if identity != member.identity:
            raise ConfigError(
                f"party {self.name} takes part with other keys ({identity.fingerprint}) than the "
                f"roster lists ({member.identity.fingerprint}); name the folder of its keys with "
                "--keys, or in [keys]"
            )
        if "data" not in member.roles:
            self._refuse("to bring data", "does not give it the role data; leave it out")
        if labels and "labels" not in member.roles:
            self._refuse(
                "to bring labels", "does not give it the role labels; set label = false for it"
            )
        if rows > member.row_limit:
            self._refuse(
                f"to match {rows} rows",
                f"allows it {member.row_limit}; bring fewer, or have all members sign another "
                "roster",
                told="to match its rows",
            )

    def check_model(self) -> None:
        """Refuse to use a model that does not go to this party."""
        if self._member is not None and "model" not in self._member.roles:
            self._refuse("to use the model", "does not give it the role model")

    def check_readers(self, readers: Sequence[str]) -> None:
        """Refuse to show scores of joint predictions to parties that may not read them."""
        for reader in readers:
            if self.recipients is not None and reader not in self.recipients:
                self._refuse(
                    f"to show scores to {reader}", "does not give that party the role model"
                )
        self._each(lambda source: check_readers(source.limits, readers, self.name))

    def check_asker(self, asker: str) -> None:
        """Refuse to answer a party over a network that no document of this one says may ask.

        A party answers itself: it reads its own parts of scores in any case.
        """
        if asker == self.name:
            return
        if all(source.limits.askers is None for source in self._sources):
            raise ConfigError(
                f"party {self.name} refuses to show scores to {asker}, since neither its policy "
                f"nor the roster says who may ask; its owner adds askers = ['{asker}'] to its "
                "policy"
            )
        self.check_readers((asker,))

    def check_question(self, question: Question, earlier: Sequence[Question], apart: int) -> None:
        """Refuse what is too much with the joint predictions before, as its ledger has them.

        ``apart`` counts the samples that were scored with other parties then.
        """
        self._each(lambda source: check_scores(source.limits, question, earlier, self.name))
        self._each(lambda source: check_same_company(source.terms, apart, self.name))

    def check_claims(self, claimed: bool) -> None:
        """Refuse a party that asks for scores and brings cells which this one has too."""
        self._each(lambda source: check_claims(source.terms, claimed, self.name))

    def check_asked(self, asked: int) -> None:
        """Refuse to show others scores of too few or too many of its samples at once."""
        if asked:
            self._each(lambda source: check_asked(source.limits, asked, self.name))

    def _refuse(self, what: str, why: str, *, told: str | None = None) -> NoReturn:
        """Refuse for the roster's sake; ``told`` is what others hear in the place of ``what``."""
        who, because = f"party {self.name} refuses", f"{self._sources[0].title} {why}"
        raise ConfigError(f"{who} {what}: {because}", told=f"{who} {told or what}: {because}")

    # ── in whose company ──────────────────────────────────────────────────────────────────

    def check_company(self, message: Message) -> None:
        """Refuse a message that names keys of a party that the roster does not list.

        Keys of others come through the coordinator; one that names its own could read what is
        sealed to them, or take off masks.
        """
        if self._member is None:
            return
        for company in company_in(message):
            if company.keys not in self._met:
                self._check_keys(company)
                self._met.add(company.keys)

    def _check_keys(self, company: Company) -> None:
        named = [card[:PUBLIC] for card in company.cards()]
        for key in named:
            if key not in self._listed:
                raise ProtocolError(
                    f"party {self.name} was told to work with a party whose public keys the "
                    "roster does not list; find out who takes part in this run, and stop it "
                    "until then"
                )
        if len(set(named)) < len(named):
            raise ProtocolError(
                f"party {self.name} was told of the same party twice, so that masks could cancel; "
                "stop this run"
            )

    # ── what is computed ──────────────────────────────────────────────────────────────────

    def check_cipher(self, cipher: str) -> None:
        """Refuse a cipher that does not hide enough, where no settings name it."""

        def check(source: _Source) -> None:
            if cipher not in source.terms.ciphers:
                raise ConfigError(
                    f"party {self.name} refuses cipher = '{cipher}'; choose one of "
                    f"{', '.join(source.terms.ciphers)}"
                )

        self._each(check)

    def check_matching(self, matching: Matching) -> None:
        """Refuse a way of matching that keeps ids less secret than agreed."""
        self._each(lambda source: check_matching(source.terms, matching, self.name))

    def check_labels(self, labelled: int, parties: int) -> None:
        """Refuse to tell the coordinator the classes of too few parties.

        Parameters
        ----------
        labelled
            Parties whose classes are told together.
        parties
            All that take part.
        """
        if self.alone(parties):
            return
        self._each(lambda source: check_labels(source.terms, labelled, parties, self.name))
        check_labels(self.terms, labelled, parties, self.name)

    def check_seat(self, view: PartyView, *, sealed: bool = False) -> None:
        """Refuse a view whose sums would show too much; ``sealed``: the model is the only one."""
        if sealed:
            self._each(lambda source: check_groups(source.terms, view, self.name))
            return
        self._each(lambda source: check_seat(source.terms, view, self.name))
        self._check_scalars(view)

    def check_scaling(self, view: PartyView) -> None:
        """The same for scaling alone, which sums over columns."""
        self._each(lambda source: check_scaling(source.terms, view, self.name))
        # One document may allow two parties by a flag, another by its count.
        check_scaling(self.terms, view, self.name)

    def check_site_intercept(self) -> None:
        """Refuse a model with an intercept of this party's own."""
        self._each(lambda source: check_site_intercept(source.terms, self.name))

    def check_told_column(self, column: str) -> None:
        """Refuse to tell a weight or an offset to parties with labels."""
        self._each(lambda source: check_told_column(source.terms, self.name, column))

    def check_sample_sums(self, view: PartyView) -> None:
        """The same for joint prediction, which sums over samples only."""
        self._each(lambda source: check_sample_sums(source.terms, view, self.name))
        self._check_scalars(view)

    def _check_scalars(self, view: PartyView) -> None:
        if self.alone(view.n_parties):
            return
        self._each(lambda source: check_scalars(source.terms, view, self.name))
        # One document may allow a lone party by a flag, another by its count: both together do not.
        check_scalars(self.terms, view, self.name)

    def alone(self, parties: int) -> bool:
        """Whether there is nobody whose numbers its own could be hidden among.

        Where a roster lists others, a coordinator that names none of them is not believed.
        """
        return parties == 1 and len(self._listed) <= 1

    def check_change(self, change_of: Callable[[int], Change | None]) -> None:
        """Refuse a run that differs from earlier ones by a few samples, as its ledger has them.

        How few is not for a submitter to say, who could find out by asking how many they are.
        """
        found, own = cache(change_of), [source for source in self._sources if not source.asked]
        self._each(lambda source: check_change(source.terms, found, self.name), own)
        check_change(self.own_terms, found, self.name)

    def check_folds(self, apart: Callable[[int], int]) -> None:
        """Refuse folds that cut few samples apart, with those of earlier runs in its ledger."""
        own = [source for source in self._sources if not source.asked]
        self._each(lambda source: check_folds(source.terms, apart, self.name), own)
        check_folds(self.own_terms, apart, self.name)

    def check(self, settings: Settings, view: PartyView) -> None:
        """Refuse settings that go beyond what was agreed."""
        self.check_limits(settings)
        # A submitter who raises min_batch until a party refuses would know how many there are.
        own = [source for source in self._sources if not source.asked]
        self._each(lambda source: check_total(source.terms, view, self.name), own)
        self._each(lambda source: check_settings(source.terms, settings, view, self.name))

    def check_kind(self, kind: str, *, allowed_by: str = "") -> None:
        """Refuse a kind of job that is not named in what binds this party.

        Parameters
        ----------
        allowed_by
            A term that allows this kind too.
        """

        def check(source: _Source) -> None:
            if kind in source.limits.kinds:
                return
            if allowed_by and getattr(source.terms, allowed_by):
                return
            remedy = f"agree on {allowed_by} = true" if allowed_by else f"add '{kind}' to kinds"
            raise ConfigError(
                f"party {self.name} refuses a job of kind '{kind}', since only "
                f"{' and '.join(source.limits.kinds)} may be run; {remedy} if that is meant"
            )

        documents = [source for source in self._sources if source.title]
        self._each(check, documents or [source for source in self._sources if not source.asked])

    def check_networks(self, runs: str) -> None:
        """Refuse to show the coordinator the weights of its own network.

        Parameters
        ----------
        runs
            The runs that would show them, for the refusal: "neural runs".
        """
        self._each(lambda source: check_networks(source.terms, source.limits, self.name, runs))

    def check_limits(self, settings: Settings) -> None:
        """Refuse to compute what is not allowed; this much is known before anybody is matched."""

        def check(source: _Source) -> None:
            for asked, why, remedy in source.limits.objections(settings):
                raise ConfigError(f"party {self.name} refuses {asked}, since {why}; {remedy}")
            check_second_moments(source.terms, settings, self.name)

        self._each(check)

    def _each(
        self, check: Callable[[_Source], None], sources: Sequence[_Source] | None = None
    ) -> None:
        """Let every document object, and say which one does."""
        for source in self._sources if sources is None else sources:
            try:
                check(source)
            except ConfigError as error:
                if not source.title:
                    raise
                named = f" ({source.title} says so)"
                raise ConfigError(f"{error}{named}", told=error.told + named) from None


def _strictest(sources: Sequence[_Source]) -> Terms:
    return reduce(Terms.stricter, (source.terms for source in sources))
