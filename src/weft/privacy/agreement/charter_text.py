"""A charter in plain words, for whoever is to sign it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import msgspec

from weft.guards.terms import Terms
from weft.privacy.agreement.limits import Limits
from weft.privacy.agreement.signed_roster import Charter, Member

_ROLES = {
    "data": "brings data",
    "labels": "brings labels",
    "matching": "holds a matching key",
    "model": "gets the model",
}


def _choice(yes: str, no: str) -> Callable[[Any], str]:
    return lambda value: yes if value else no


#: What each term says, by its value.
_TERMS: dict[str, Callable[[Any], str]] = {
    "min_batch": (
        "between any two feature sums that others see, at least {} samples change, or none"
    ).format,
    "min_contributors": "a sum goes over at least {} parties".format,
    "allow_pairs": _choice(
        "sums of two parties are allowed: each can compute the other's part",
        "no sums of two parties",
    ),
    "allow_lone_labels": _choice(
        "the only party with labels may tell the coordinator its losses",
        "no party alone tells the coordinator its losses",
    ),
    "allow_sample_norms": _choice(
        "holders of a sample may learn its norm ‖x_i‖²", "no norms of single samples are shared"
    ),
    "allow_one_column": _choice(
        "sums may have a single foreign column, which their readers then know",
        "no sums in which a single column is foreign",
    ),
    "allow_crossed_cells": _choice(
        "a party may compute cells of its samples and features that only others hold",
        "no party may hold a sample and a feature without the cell where they meet",
    ),
    "allow_small_changes": _choice(
        "a few samples may come or go between two runs, whose difference then shows them",
        "samples come and go between two runs in large groups, or not at all",
    ),
    "allow_networks": _choice(
        "the coordinator may see the weights of every party's own neural network",
        "the coordinator sees no party's own neural network",
    ),
    "coordinator_sees": lambda value: {
        "nothing": "the coordinator sees nothing of the model",
        "weights": "the coordinator may see the model's weights",
        "papers": "the coordinator may see every party's feature sums: for simulations only",
    }[value],
    "ciphers": lambda value: f"sums travel under {' or '.join(value) or 'no cipher at all'}",
    "matching": lambda value: (
        f"ids are matched by {value}" + (" or better" if value == "hmac" else "")
    ),
}


def member_words(member: Member) -> str:
    """What a member may do."""
    parts = [_ROLES[role] for role in member.roles]
    if member.most_rows is not None:
        parts.append(f"at most {member.most_rows} rows")
    return ", ".join(parts)


def terms_words(terms: Terms) -> Iterator[str]:
    """One sentence for each term."""
    for field in msgspec.structs.fields(terms):
        value = getattr(terms, field.name)
        told = _TERMS.get(field.name)
        yield f"{field.name} = {value}" if told is None else told(value)


def limits_words(limits: Limits) -> Iterator[str]:
    """One sentence for each limit that there is."""
    if limits.losses is not None:
        yield f"losses: only {', '.join(limits.losses)}"
    if limits.solvers is not None:
        yield f"solvers: only {', '.join(limits.solvers)}"
    if limits.most_problems is not None:
        yield f"a run trains at most {limits.most_problems} problems (λ × (1 + folds))"


def charter_words(charter: Charter) -> list[str]:
    """All of a charter, line by line."""
    members = [
        f"- {member.name} ({member.identity.fingerprint}): {member_words(member)}"
        for member in charter.members
    ]
    rules = [*terms_words(charter.terms), *limits_words(charter.limits)]
    return [
        f"Federation '{charter.federation}' has {len(charter.members)} members:",
        *members,
        "Every run keeps to this:",
        *(f"- {rule}" for rule in rules),
    ]
