"""What a run would show, in sentences: equal ones are said once, for all whom they concern."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from textwrap import wrap
from typing import TYPE_CHECKING

from weft.privacy.ledger.expected_exposure import Outlook, Way
from weft.privacy.ledger.expected_sample_exposure_text import about_samples
from weft.privacy.ledger.sentence_parts import counted, distinct, listed, span
from weft.solvers.algorithm_choice import ALGORITHMS

if TYPE_CHECKING:
    # A coordinator looks ahead too, and loads no ledger.
    from weft.privacy.ledger.run_booking import Ledger

#: Columns of a terminal.
_WIDTH = 80

_HOW = (
    "For every sample that several parties hold, each sends a weighted total of its own columns, "
    "encrypted, and holders with the label get the grand total: a sum, below. Minus its own part, "
    "a sum tells a party one mixture of the columns that it lacks. After as many sums as there "
    "are such columns it knows them all, but for the mixing; and if it knows as many of these "
    "samples from elsewhere, it can undo the mixing and read the columns of all the others."
)


def paragraphs(look: Outlook, refusals: Sequence[tuple[str, str]] = ()) -> list[str]:
    """The whole outlook, as lines of at most 80 characters; refusals are of (party, what)."""
    lines: list[str] = []

    def section(title: str, sentences: Iterable[str], before: str = "") -> None:
        said = list(sentences)
        if not said:
            return
        lines.extend(["", title, *wrap(before, _WIDTH)])
        for sentence in said:
            lines.extend(item(sentence))

    exposed = bool(look.exposures)
    section("What parties can work out about samples", about_samples(look), _HOW if exposed else "")
    section("What else parties learn", _rest_sealed(look) if look.sealed else _rest(look))
    section(
        "What the coordinator learns",
        _coordinator_sealed(look) if look.sealed else _coordinator(look),
    )
    section("What would change these numbers", _ways(look))
    section("What the rules of this run say", [*_rules(look), *_refused(refusals)])
    return lines


def exposure_remarks(ledger: Ledger, parties: Sequence[str]) -> list[str]:
    """What the ledgers now hold, if anybody has got as many sums as it lacks columns."""
    knowing = []
    for party in parties:
        pages = ledger.book(party).read()
        if pages is None:
            continue
        known = int(((pages.foreign > 0) & (pages.received >= pages.foreign)).sum())
        if known:
            knowing.append(f"{party} of {counted(known, 'sample')}")
    if not knowing:
        return []
    return [
        "by their ledgers, these parties have now got as many sums as they lack columns, and could "
        f"work them out but for the mixing: {listed(knowing)}; see weft ledger {ledger.folder}"
    ]


def item(sentence: str) -> list[str]:
    """A sentence as an item of a list, in lines of at most 80 characters."""
    return wrap(sentence, _WIDTH, initial_indent="- ", subsequent_indent="  ")


def _rest(look: Outlook) -> list[str]:
    labels = "labels are visible to every holder of a sample, through the dual variable that its "
    if look.learners:
        counts = sorted(set(look.learners.values()))
        learn = "each learn" if len(look.learners) > 1 else "learns"
        labels += (
            f"holders share: {listed(list(look.learners))} {learn} those of {span(counts)} "
            "samples without having them"
        )
    else:
        labels += "holders share; here all of them have the labels anyway"
    said = [labels] if look.exposures or look.learners else []
    if any(e.view.columns > 1 for e in look.exposures):
        said.append(
            "with these dual variables and as many sums as it lacks columns, a party can also "
            "compute all inner products between the foreign parts of its samples, so their lengths "
            "and angles, without knowing any row"
        )
    if look.shared_columns:
        parts = [f"{c:,} with {h} holders" for h, c in look.shared_columns.items()]
        said.append(
            f"columns at several parties: {listed(parts)}; each of these gets sums over the "
            "samples of all of them"
        )
    if 2 in look.shared_columns:
        said.append(
            f"the two holders of a column ({counted(look.shared_columns[2], 'column')}) can each "
            "compute the other's part of these sums"
        )
    if look.shared_columns:
        at_least = look.terms.min_batch
        said.append(
            "between two such sums the samples of a group change together, at least "
            f"{at_least} of them or none (min_batch)"
            if at_least > 1
            else "no rule keeps two such sums from differing by a single sample (min_batch = 1)"
        )
    return said


_MOMENTS = {"hessian": "the Hessian of the mean loss", "gram": "the Gram matrix XᵀX"}


def _rest_sealed(look: Outlook) -> list[str]:
    said = [
        "the shapes of all tables: how many samples and columns each party has, and which groups "
        "of them it shares with whom",
        "what scaling takes, before training: means and deviations of a column, to its holders",
        "the model, where they get it",
    ]
    if look.second_moments:
        named = listed([_MOMENTS[name] for name in look.second_moments])
        said.append(
            f"whoever gets the model also gets {named}: means, spreads and correlations of all "
            "columns over all samples, less what it holds itself those of the others; refused "
            "where columns are sparse or samples are few"
        )
    return said


_FREE_INTERCEPT = (
    "the mean of all slopes at every step, and so the intercept of the model and the shares of the "
    "classes, since the intercept has no penalty"
)


def _coordinator_sealed(look: Outlook) -> list[str]:
    weight = "no other weight" if look.free_intercept else "no weight"
    return [
        _who_holds(look),
        "bounds of the whole table (the largest norm of a row and sum of a column, norms of all), "
        "rounded up",
        "the mean loss at every point that is tried, also of what each fold leaves out, and inner "
        "products of gradients, with noise: how good the model is, and how much columns vary "
        "together, but no gradient",
        *([_FREE_INTERCEPT] if look.free_intercept else []),
        f"{weight} of the model, no sum over samples or columns",
        "it deals the masks: TOGETHER WITH A PARTY, or by dealing falsely, it could compute all "
        "cells, so whoever runs it must do neither",
    ]


def _who_holds(look: Outlook) -> str:
    return (
        f"who holds how many samples and columns in common ({counted(look.groups, 'group')} of "
        "samples), the names of the classes, the settings, which samples a message is about, all "
        "under pseudonyms"
    )


def _coordinator(look: Outlook) -> list[str]:
    said = [_who_holds(look)]
    if len(look.label_holders) == 1:
        said.append(
            f"the losses of {look.label_holders[0]}, which alone has labels, and how good the "
            "model is"
        )
    else:
        said.append(
            f"the losses of {listed(look.label_holders)} as one sum, and how good the model is"
        )
    if ALGORITHMS[look.solver].spans:
        said.append("lengths and angles of the vectors that the model is made of, not the vectors")
    if look.counts_classes:
        said.append("how many samples each class has (class_weight = 'balanced')")
    if look.free_intercept:
        said.append(_FREE_INTERCEPT)
    weight = "no other weight" if look.free_intercept else "no weight"
    shown = {
        "nothing": f"{weight} of the model, no sum over samples or columns",
        "weights": "the weights of the model (coordinator_sees = 'weights')",
        "papers": "the sums of every party over its columns, in the clear (coordinator_sees = "
        "'papers'), from which rows can be computed",
    }
    return [*said, shown[look.coordinator_sees]]


def _ways(look: Outlook) -> list[str]:
    if not look.exposures:
        return []
    everybody = len({e.view.receiver for e in look.exposures})
    said = [
        f"{way.what}: about {counted(way.likely, 'sum')}, {_enough(way, everybody)}"
        for way in look.ways
    ]
    before = "every run adds to what was shown before, and so does every joint prediction"
    return [*said, before if look.has_ledger else f"{before}; no ledger of earlier runs was found"]


def _enough(way: Way, everybody: int) -> str:
    """Who gets as many sums as it lacks columns."""
    parts = [
        f"{how} for {'all who get any' if len(who) == everybody > 2 else listed(who)}"
        for how, who in (("enough", way.enough), ("perhaps enough", way.perhaps))
        if who
    ]
    return ", ".join(parts) or "enough for nobody"


def _rules(look: Outlook) -> list[str]:
    terms, said = look.terms, []
    if look.pairs and terms.allow_pairs:
        said.append("allow_pairs = true lets two parties add up alone; without it: refused")
    reached = distinct(e.view.receiver for e in look.exposures if e.reached)
    if reached and terms.allow_exposure:
        said.append(
            f"allow_exposure = true lets {listed(reached)} get as many sums as "
            f"{'they lack' if len(reached) > 1 else 'it lacks'} columns; without it: refused"
        )
    single = any(e.view.columns == 1 for e in look.exposures)
    if single and terms.allow_one_column:
        said.append("allow_one_column = true gives a single column away; without it: refused")
    if look.crossed and terms.allow_crossed_cells:
        said.append(
            f"allow_crossed_cells = true lets parties compute cells of {look.crossed} samples that "
            "only others hold, because they have the feature for other samples; without it: refused"
        )
    if look.changes and terms.allow_small_changes:
        shown = listed([f"{party}'s ({change})" for party, change in look.changes.items()], of="; ")
        said.append(
            "allow_small_changes = true lets the difference of two runs show a few samples: "
            f"{shown}; without it: refused"
        )
    if len(look.label_holders) == 1 and terms.allow_lone_labels and not look.sealed:
        said.append(
            "allow_lone_labels = true shows the coordinator the losses of one party; without it: "
            "refused"
        )
    if look.second_moments and terms.allow_second_moments:
        said.append(
            "allow_second_moments = true lets readers of the model have these matrices; without "
            "it: refused"
        )
    if terms.min_batch > 1:
        said.append(f"min_batch = {terms.min_batch} {_left_out(look)}")
    return said


def _left_out(look: Outlook) -> str:
    """What is too rare to be trained on."""
    if look.left_out is None:
        return (
            "leaves out smaller groups of samples, and of a group what fewer samples have "
            "(classes, values of columns), if there are any: uncounted here"
        )
    parts = [
        f"{counted(look.left_out, 'sample')} in smaller groups" if look.left_out else "",
        f"{counted(look.rare, 'sample')} of classes that fewer of their group have"
        if look.rare
        else "",
        f"{counted(look.rare_cells, 'cell')} of columns in which fewer of a group differ, which "
        "count as zero"
        if look.rare_cells
        else "",
    ]
    left = [part for part in parts if part]
    return f"leaves out {listed(left)}" if left else "leaves no sample and no cell out"


def _refused(refusals: Sequence[tuple[str, str]]) -> list[str]:
    who: dict[str, list[str]] = {}
    for party, sentence in refusals:
        what = sentence.removeprefix(f"party {party} refuses ")
        who.setdefault(what, []).append(party)
    return [f"REFUSED by {listed(parties)}: {what}" for what, parties in who.items()]
