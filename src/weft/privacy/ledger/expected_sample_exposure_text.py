"""What parties can work out about samples, in sentences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from weft.privacy.ledger.expected_exposure import (
    ERROR,
    Exposure,
    Outlook,
    Standing,
    share_explained,
)
from weft.privacy.ledger.sentence_parts import counted, distinct, listed, span

_SEALED = (
    "nothing beyond the model, also if all of them but one put together what they have: training "
    "is sealed, so that all a party reads on the way is random words, and it opens no sum"
)


@dataclass(frozen=True)
class _Kind:
    """All that happens to one receiver in the same way."""

    receiver: str
    about: tuple[str, ...]
    samples: int
    columns: tuple[int, int]
    labelled: bool
    spent: tuple[int, int]
    likely: int
    most: int | None
    standing: Standing

    @property
    def alike(self) -> tuple[object, ...]:
        """Equal for those about whom the same can be said."""
        several = len(self.about)
        return (several, self.columns, self.labelled, self.spent, self.standing)


def _kinds(look: Outlook) -> list[list[_Kind]]:
    """What happens to whom, the same things together."""
    found: dict[tuple[object, ...], list[Exposure]] = {}
    for exposure in look.exposures:
        view = exposure.view
        single = view.columns == 1
        key = (view.receiver, exposure.standing, view.labelled, single, exposure.spent > 0)
        found.setdefault(key, []).append(exposure)
    alike: dict[tuple[object, ...], list[_Kind]] = {}
    for group in found.values():
        columns, spent = [e.view.columns for e in group], [e.spent for e in group]
        kind = _Kind(
            receiver=group[0].view.receiver,
            about=tuple(p for p in look.parties if any(p in e.view.about for e in group)),
            samples=sum(e.view.samples for e in group),
            columns=(min(columns), max(columns)),
            labelled=group[0].view.labelled,
            spent=(min(spent), max(spent)),
            likely=group[0].likely,
            most=group[0].most,
            standing=group[0].standing,
        )
        alike.setdefault(kind.alike, []).append(kind)
    return list(alike.values())


def about_samples(look: Outlook) -> list[str]:
    """Who gets how many sums about which samples, and what they tell."""
    if not look.exposures and not look.sealed:
        return ["no party gets a sum over columns that it does not hold itself"]
    said = [_SEALED] if look.sealed else []
    said += [_kind(kinds) for kinds in _kinds(look)]
    said += _exactly(look)
    if look.pairs:
        said.append(_pairs(look))
    return said


def _kind(kinds: Sequence[_Kind]) -> str:
    """One sentence on who gets how many sums, and one on where that ends."""
    first, several = kinds[0], len(kinds) > 1
    sizes = [kind.samples for kind in kinds]
    without = "" if first.labelled else ", without having their labels,"
    told = (
        f"{listed([kind.receiver for kind in kinds])} {'each get' if several else 'gets'} about "
        f"{counted(first.likely, 'sum')} on each of {span(sizes)} samples{without} of which "
        f"{_holders(kinds)} {span(first.columns)} column{'s' * (first.columns[1] > 1)} that "
        f"{'they lack' if several else 'it lacks'}. "
    )
    if first.spent[1]:
        told += f"{span(first.spent)} sums of earlier runs come on top. "
    return told + _end(first, "they know" if several else f"{first.receiver} knows")


def _holders(kinds: Sequence[_Kind]) -> str:
    """Who has what the receivers lack."""
    about = kinds[0].about
    if len(kinds) == 1:
        return f"{listed(about)} {'has' if len(about) == 1 else 'have'}"
    receivers = sorted(kind.receiver for kind in kinds)
    if len(kinds) == 2 and receivers == sorted({p for kind in kinds for p in kind.about}):
        return "the other has"
    return "another party has" if len(about) == 1 else f"{len(about)} other parties have"


def _end(kind: _Kind, knows: str) -> str:
    low, high = kind.columns
    if high == 1:
        return f"KNOWN AT ONCE: with a single column there is no mixing, {knows} its values."
    need = span([max(0, low - kind.spent[1]), max(0, high - kind.spent[0])])
    then = (
        f"{knows} these columns but for the mixing, and exactly with {span(kind.columns)} of the "
        "samples known from elsewhere."
    )
    if kind.standing == "reached before":
        return f"REACHED BEFORE THIS RUN: {then}"
    if kind.standing == "likely":
        return f"LIKELY REACHED, after {need} sums: then {then}"
    if kind.standing == "close":
        end = (
            f"MAY BE REACHED: {need} sums would do, and forecasts err by up to {ERROR} times. Then "
            f"{then}"
        )
    elif kind.standing == "possible":
        end = f"Hardly reached: it takes {need} sums, but no limit of this run excludes them."
    else:
        end = f"Not reached: it takes {need} sums, and this run has at most {kind.most}."
    least, most = share_explained(kind.spent[1] + kind.likely, low)
    return (
        f"{end} Fewer tell something too: those of the forecast explain {least:.0%} of the "
        f"variance of columns that have nothing in common, and up to {most:.0%} of columns as "
        "alike as those of most tables."
    )


def _exactly(look: Outlook) -> list[str]:
    """The weights of the released model are known: its own sums need no undoing."""
    few = [e for e in look.exposures if e.view.labelled and e.view.columns <= look.released]
    if not few or look.released < 2:
        return []
    names = listed(distinct(e.view.receiver for e in few))
    return [
        f"{look.released} of the sums belong to the finished model, whose weights everybody knows "
        f"who gets it: there is no mixing to undo, and {names} can compute up to {look.released} "
        "foreign columns exactly"
    ]


def _pairs(look: Outlook) -> str:
    samples = sum(count for _, _, count, _ in look.pairs)
    both = [pair for pair in look.pairs if len(pair[3]) == 2]
    if len(look.pairs) == 1:
        one, other, _, receivers = look.pairs[0]
        if len(receivers) == 2:
            return (
                f"{one} and {other} can each compute the other's part of every sum: no third "
                f"party holds these {samples} samples"
            )
        whose = other if receivers == (one,) else one
        return (
            f"{listed(receivers)} can compute {whose}'s part of every sum: no third party holds "
            f"these {samples} samples"
        )
    named = listed([f"{one} and {other}" for one, other, _, _ in look.pairs], of="; ")
    each = "each" if len(both) == len(look.pairs) else "those with labels"
    return (
        f"{samples} samples have two holders only ({named}): {each} can compute the other's part "
        "of every sum"
    )
