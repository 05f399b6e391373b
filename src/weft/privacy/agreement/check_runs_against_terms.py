"""What a party refuses to take part in, each in one sentence.

A sentence that counts something has a place ``{}`` for it: what others are told names no number,
since whoever asks for a run could steer the terms until it knew the sizes of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NoReturn

import numpy as np
from numpy.typing import NDArray

from weft.array_types import Ints
from weft.errors import ConfigError
from weft.guards.min_batch_across_runs import Change
from weft.guards.privacy_terms import MODES, Matching, Terms
from weft.matching.party_view import PartyView
from weft.privacy.agreement.limits_and_site_policy import NETWORKS, Limits
from weft.solvers.algorithm_choice import algorithm_of
from weft.solvers.run_settings import Settings

if TYPE_CHECKING:
    from weft.privacy.ledger.ledger_contents import Question


def check_seat(terms: Terms, view: PartyView, party: str) -> None:
    """Refuse a federation in which sums of this party would show too much."""
    check_groups(terms, view, party)
    few = _few_sharers(terms, view, np.arange(len(view.column_cohort)))
    if len(few):
        _refuse_few(terms, party, len(few), "features", few)
    check_sample_sums(terms, view, party)


def check_scaling(terms: Terms, view: PartyView, party: str) -> None:
    """Refuse to scale columns by sums that would show too much, a constant one aside."""
    few = _few_sharers(terms, view, _without_bias(view))
    if len(few):
        _refuse(
            party,
            "to scale {} that it shares with too few other parties, who could compute what its "
            "samples add to means and extremes; scale the tables before the run (scaling = "
            "'none'), or agree on allow_pairs = true",
            exact=f"{len(few)} features",
            told="features",
        )


def _check_moments(terms: Terms, view: PartyView, party: str) -> None:
    """Readers of second moments take off their own part: of two parties, the other's is left."""
    few = _few_sharers(terms, view, _without_bias(view))
    if len(few):
        _refuse(
            party,
            "second moments of {} that it shares with too few other parties, who could compute its "
            "own; leave second_moments and inference out, or agree on allow_pairs = true",
            exact=f"{len(few)} features",
            told="features",
        )


def check_site_intercept(terms: Terms, party: str) -> None:
    """Refuse a coefficient that tells how often the samples of this party have the outcome."""
    if not terms.allow_site_statistics:
        _refuse(
            party,
            "an intercept of its own site, which tells whoever gets the model how its outcomes are "
            "by themselves; leave reference_site out, or agree on allow_site_statistics = true",
        )


def check_told_column(terms: Terms, party: str, column: str) -> None:
    """Refuse to tell who has labels what this party holds of their samples."""
    if not terms.allow_told_columns:
        _refuse(
            party,
            f"to tell the values of column '{column}' to who has the labels of its samples; give "
            "these parties the column, or agree on allow_told_columns = true",
        )


def _without_bias(view: PartyView) -> Ints:
    columns: Ints = np.arange(len(view.column_cohort))
    kept: Ints = columns[columns != view.bias_slot]
    return kept


def check_groups(terms: Terms, view: PartyView, party: str) -> None:
    """Refuse a run whose guards are weaker than agreed, or that leaves small groups in."""
    if view.min_batch < terms.min_batch:
        _refuse(
            party,
            f"a run with min_batch = {view.min_batch}, because its own terms say "
            f"{terms.min_batch}; raise that of the run",
        )
    small = view.exposed & (view.sizes < terms.min_batch)
    if small.any():
        _refuse(
            party,
            f"to train on {{}} in groups of fewer than min_batch = {terms.min_batch}; leave them "
            "out",
            exact=f"{int(view.sizes[small].sum())} samples",
            told="samples",
        )


def _few_sharers(terms: Terms, view: PartyView, columns: Ints) -> Ints:
    """How many share each of those columns that several do, and too few."""
    sharers = view.column_sharers[view.column_cohort[columns]]
    refused = np.array([n > 1 and not terms.allows(n) for n in sharers.tolist()], bool)
    few: Ints = sharers[refused]
    return few


def check_sample_sums(terms: Terms, view: PartyView, party: str) -> None:
    """Refuse sums over samples, of training or joint prediction, that would show too much."""
    shared = view.sharers > 1
    pairs = shared & np.array([not terms.allows(n) for n in view.sharers.tolist()], bool)
    if pairs.any():
        _refuse_few(terms, party, int(view.sizes[pairs].sum()), "samples", view.sharers[pairs])
    single = view.fewest_foreign == 1
    if single.any() and not terms.allow_one_column:
        _refuse(
            party,
            "sums over {} of which another holder lacks a single column, whose values it could "
            "compute at once; bring more columns, or agree on allow_one_column = true",
            exact=f"{int(view.sizes[single].sum())} samples",
            told="samples",
        )
    if view.crossed.any() and not terms.allow_crossed_cells:
        _refuse(
            party,
            "sums over {} of which some party has a feature for other samples only, so that it "
            "could compute the cells it lacks; give it these cells, or agree on "
            "allow_crossed_cells = true",
            exact=f"{int(view.sizes[view.crossed].sum())} samples",
            told="samples",
        )


def check_readers(limits: Limits, readers: Sequence[str], party: str) -> None:
    """Refuse to show scores to a party that may not ask for them."""
    for reader in readers:
        if limits.askers is not None and reader not in limits.askers:
            _refuse(
                party,
                f"to show scores to {reader}, since only {' and '.join(limits.askers)} may ask; "
                "let one of them ask, or add it to askers",
            )


def check_scores(
    limits: Limits, question: Question, earlier: Sequence[Question], party: str
) -> None:
    """Refuse more scores than all joint predictions together may show."""
    most, before = limits.most_scores, sum(one.scores for one in earlier)
    if most is not None and before + question.scores > most:
        _refuse(
            party,
            f"{{}}, since all joint predictions may show most_scores = {most}; ask for fewer, or "
            "agree on more",
            exact=f"{question.scores} scores of its samples after {before}",
            told="further scores of its samples",
        )


def check_same_company(terms: Terms, apart: int, party: str) -> None:
    """Refuse scores of samples that were scored with other parties before.

    Such scores differ by the parts of single parties. Others hear neither of how many samples that
    is, nor with whom they were scored.
    """
    if apart and not terms.allow_pairs:
        _refuse(
            party,
            "scores of {} that were scored with other parties before, since the difference would "
            "be the part of a single party; ask with the same parties, in the same order, or agree "
            "on allow_pairs = true",
            exact=f"{apart} samples",
            told="samples",
        )


def check_claims(terms: Terms, claimed: bool, party: str) -> None:
    """Refuse a party that asks for scores and says that it has cells which this one has too.

    Nobody can check that. Taken off its claims, or off those of a second question, a score would
    be cells of this party.
    """
    if claimed and not terms.allow_pairs:
        _refuse(
            party,
            "scores of samples of which the party that asks brings columns of its too; let it "
            "leave these columns out, or agree on allow_pairs = true",
        )


def check_asked(limits: Limits, asked: int, party: str) -> None:
    """Refuse to show others scores of too few or too many samples at once."""
    least, most = limits.least_asked, limits.most_asked
    if least is not None and asked < least:
        _refuse(
            party,
            f"scores of {{}} samples of its, of which least_asked = {least} are asked for at once; "
            "ask for more",
            exact=f"only {asked}",
            told="so few",
        )
    if most is not None and asked > most:
        _refuse(
            party,
            f"scores of {{}} samples of its, of which most_asked = {most} are asked for at once; "
            "ask for fewer",
            exact=str(asked),
            told="so many",
        )


def check_labels(terms: Terms, labelled: int, parties: int, party: str) -> None:
    """Classes go to the coordinator under the same rule as losses: not those of too few."""
    if not terms.allows_scalars(parties):
        _refuse_scalars(terms, party, parties, "parties", "take part")
    if not terms.allows_scalars(labelled):
        _refuse_scalars(terms, party, labelled, "parties with labels", "bring labels")


def check_scalars(terms: Terms, view: PartyView, party: str) -> None:
    """Refuse scalars, such as losses, in sums over so few that the coordinator reads one's own."""
    if not terms.allows_scalars(view.n_parties):
        _refuse_scalars(terms, party, view.n_parties, "parties", "take part")
    if view.labelled.any() and not terms.allows_scalars(view.label_parties):
        _refuse_scalars(terms, party, view.label_parties, "parties with labels", "bring labels")


def _refuse_scalars(terms: Terms, party: str, count: int, who: str, remedy: str) -> NoReturn:
    if count == 1:
        _refuse(
            party,
            "to tell the coordinator its losses, which those of no other party hide since it alone "
            "has labels; agree on allow_lone_labels = true, or let more bring labels",
        )
    if count == 2:
        _refuse(
            party,
            f"to tell scalars such as losses in a sum over two {who} only; agree on allow_pairs = "
            f"true, or let more {remedy}",
        )
    _refuse(
        party,
        f"to tell scalars such as losses in a sum over only {{}} {who}; lower min_contributors = "
        f"{terms.min_contributors}, or let more {remedy}",
        exact=str(count),
        told="a few",
    )


def check_matching(terms: Terms, matching: Matching, party: str) -> None:
    """Refuse a way of matching that keeps ids less secret than agreed."""
    if terms.matching == "oprf" and matching != "oprf":
        _refuse(
            party,
            f"matching = '{matching}', under which whoever has the run secret can try out ids; use "
            "'oprf'",
        )


def check_change(terms: Terms, change_of: Callable[[int], Change | None], party: str) -> None:
    """Refuse a run that would show a few samples in its difference to earlier runs.

    ``change_of`` says whom the runs would set apart in groups of fewer samples than it is given.
    """
    if terms.allow_small_changes or terms.min_batch == 1:
        return
    change = change_of(terms.min_batch)
    if change is None:
        return
    if change.ruled:
        _refuse(
            party,
            "to train on {} by another rule, or in other parts or levels, than an earlier run over "
            "some of the same samples, since the difference may be a few of them; declare columns "
            "and storage as before, or agree on allow_small_changes = true",
            exact=f"column{'s' * (len(change.ruled) > 1)} {', '.join(change.ruled)}",
            told="a column",
        )
    _refuse(
        party,
        "to train, because so few of its samples changed that the difference of two runs shows "
        f"them{{}}; let at least min_batch = {terms.min_batch} of a group come or go together, or "
        "none, or agree on allow_small_changes = true",
        exact=f" ({change})",
    )


def check_folds(terms: Terms, apart: Callable[[int], int], party: str) -> None:
    """Refuse folds that would show a few samples together with those of earlier runs.

    ``apart`` says how many would stand in parts of fewer samples than it is given.
    """
    if terms.allow_small_changes or terms.min_batch == 1 or not apart(terms.min_batch):
        return
    _refuse(
        party,
        "these folds, which cut its samples into small parts together with those of earlier runs; "
        "use the folds and the seed of before, or agree on allow_small_changes = true",
    )


def _refuse_few(
    terms: Terms, party: str, count: int, what: str, holders: NDArray[np.int64]
) -> NoReturn:
    fewest = int(holders.min())
    if fewest == 2:
        _refuse(
            party,
            "sums over {} that it shares with one other party, because each could compute the "
            "other's part; agree on allow_pairs = true if that is meant",
            exact=f"{count} {what}",
            told=what,
        )
    _refuse(
        party,
        f"sums over {{}} parties share; lower min_contributors = {terms.min_contributors}, or "
        "bring more parties",
        exact=f"{count} {what} that only {fewest}",
        told=f"{what} that too few",
    )


def check_networks(terms: Terms, limits: Limits, party: str, runs: str) -> None:
    """Refuse runs of networks, unless it is agreed that the coordinator sees them."""
    allowed = MODES.index(terms.coordinator_sees) >= MODES.index("weights")
    if not (allowed and terms.allow_networks):
        _refuse(
            party,
            f"{runs}, which show the coordinator the weights of its own network; agree on "
            "allow_networks = true and coordinator_sees = 'weights' if that is meant",
        )
    if limits.solvers is not None and NETWORKS not in limits.solvers:
        _refuse(
            party,
            f"{runs}, since only {' and '.join(limits.solvers)} may be used; add "
            f"'{NETWORKS}' to solvers if that is meant",
        )


def check_total(terms: Terms, view: PartyView, party: str) -> None:
    """Refuse a run over few samples in all."""
    if view.n_parties > 1 and view.n_samples < terms.min_batch:
        # Whoever leaves out all samples but one reads its loss, though no guard is about them.
        _refuse(
            party,
            f"a run over fewer samples in all than min_batch = {terms.min_batch}, whose losses the "
            "coordinator would read; bring more samples, or lower min_batch",
        )


def check_settings(terms: Terms, settings: Settings, view: PartyView, party: str) -> None:
    """Refuse settings that go beyond the terms."""
    asked = settings.coordinator_sees
    if MODES.index(asked) > MODES.index(terms.coordinator_sees):
        shows = {"weights": "the model's weights", "papers": "each party's feature sums"}[asked]
        _refuse(
            party,
            f"coordinator_sees = '{asked}', which shows the coordinator {shows}; use "
            f"'{terms.coordinator_sees}'",
        )
    if asked == "weights" and terms.coordinator_sees == "weights":
        _check_totals(terms, view, party)
    if settings.cipher not in terms.ciphers:
        _refuse(
            party,
            f"cipher = '{settings.cipher}'; choose one of {', '.join(terms.ciphers)}",
        )
    if settings.opens_matrices:
        _check_moments(terms, view, party)
    if settings.evaluation.by_site and not terms.allow_site_scores and view.n_parties > 1:
        _refuse(
            party,
            "an evaluation by site, which tells counts of the scores of its own samples; leave "
            "by_site out, or agree on allow_site_scores = true",
        )
    algorithm = algorithm_of(settings.solver)
    algorithm.check(settings)
    alone = algorithm.shown_alone(settings)
    if alone and terms.min_contributors > 1 and view.n_parties > 1:
        _refuse(
            party,
            f"solver '{settings.solver}' with these options, which shows {alone} of a single "
            "party; change the options, or the solver",
        )
    beyond = algorithm.beyond_terms(settings, terms, view)
    if beyond:
        _refuse(party, beyond)


def check_second_moments(terms: Terms, settings: Settings, party: str) -> None:
    """Refuse to help open matrices over all columns, unless that is agreed."""
    if settings.opens_matrices and not terms.allow_second_moments:
        asked = (
            f"second_moments = {list(settings.second_moments)}"
            if settings.second_moments
            else f"inference ('{settings.inference}')"
        )
        _refuse(
            party,
            f"{asked}, which tell readers of the model how all columns go together; agree on "
            "allow_second_moments = true if that is meant",
        )


def _check_totals(terms: Terms, view: PartyView, party: str) -> None:
    """A weight that the coordinator sees must be a sum over several parties."""
    owned = view.owned.copy()
    if view.bias_slot >= 0:
        owned[view.bias_slot] = False
    few = [n < max(3, terms.min_contributors) for n in view.column_sharers.tolist()]
    lone = owned & np.array(few, bool)[view.column_cohort]
    if lone.any():
        _refuse(
            party,
            "coordinator_sees = 'weights', because {} of its features have fewer than three "
            "holders, so that their weights are sums over its samples; use 'nothing'",
            exact=str(int(lone.sum())),
            told="some",
        )


def _refuse(party: str, what: str, *, exact: str = "", told: str = "") -> NoReturn:
    """Refuse; where ``what`` has a place ``{}``, ``told`` takes it for others, ``exact`` here."""
    whole = f"party {party} refuses {what}"
    raise ConfigError(whole.replace("{}", exact), told=whole.replace("{}", told))
