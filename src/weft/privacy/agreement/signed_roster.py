"""The signed roster of a federation: who belongs to it, in which roles, on which terms.

It is agreed upon once and holds for many runs. `weft.matching.holding_map.HoldingMap` is another
thing: who holds which samples and features in one run.

A roster counts only when every member has signed it. What is signed are the plain values of the
file, in one order and without blanks: a file may be laid out anew, but no value can be changed,
added or left out unnoticed, also none that a later version of Weft gives a default.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime
from functools import cached_property
from hashlib import blake2b
from typing import Any, Literal, Self, get_args

import msgspec

from weft.crypto.keys.public_keys_file import check_names
from weft.crypto.party_key_pairs import SIGNATURE_BYTES, Identity, PublicIdentity
from weft.crypto.secret_bytes import KEY_BYTES
from weft.errors import ConfigError, ProtocolError
from weft.guards.privacy_terms import Terms
from weft.privacy.agreement.limits_and_site_policy import Limits
from weft.thread_safe_decoding import prepared

#: What a member may do: bring rows or columns, bring labels, hold a key for matching ids, get the
#: model.
Role = Literal["data", "labels", "matching", "model"]
ROLES: tuple[Role, ...] = get_args(Role)

#: Whether a member's signature is there and belongs to the roster and its key.
SignatureState = Literal["signed", "missing", "wrong"]

#: Says what is signed, so that no signature for another purpose can stand for one of a roster.
_DOMAIN = b"weft roster 1\n"


class Hex(bytes):
    """Bytes that the file has as hex digits."""

    def __repr__(self) -> str:
        return f"Hex('{self.hex()}')"


#: Whoever matches as many ids as there are people finds out who is in the federation. Without
#: another agreement a member may match so many rows: fewer than there are ids to try.
MOST_ROWS = 1_000_000


class Member(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A member of a federation.

    Attributes
    ----------
    name
        Its name in every run.
    signing, sealing
        Its public identity: Ed25519 and X25519.
    roles
        What it may do.
    most_rows
        The most rows that it may match, in all its tiles together; None: `MOST_ROWS`.
    matching_key
        Public key (ristretto255) against which its answers in matching are proved; only for the
        role ``matching``.
    """

    name: str
    signing: Hex
    sealing: Hex
    roles: tuple[Role, ...]
    most_rows: int | None = None
    matching_key: Hex | None = None

    def __post_init__(self) -> None:
        who = f"member '{self.name}'"
        if len(self.signing) != KEY_BYTES or len(self.sealing) != KEY_BYTES:
            raise ConfigError(f"{who} needs two public keys of {KEY_BYTES} bytes")
        if not self.roles or len(set(self.roles)) != len(self.roles):
            raise ConfigError(f"{who} needs roles, each once, of {', '.join(ROLES)}")
        if "labels" in self.roles and "data" not in self.roles:
            raise ConfigError(f"{who} has the role labels without data; labels come with samples")
        if ("matching" in self.roles) != (self.matching_key is not None):
            raise ConfigError(f"{who} needs both the role matching and a matching_key, or neither")
        if self.matching_key is not None and len(self.matching_key) != KEY_BYTES:
            raise ConfigError(f"{who} needs a matching_key of {KEY_BYTES} bytes")
        if self.most_rows is not None and self.most_rows < 1:
            raise ConfigError(f"{who} has most_rows {self.most_rows}; give at least 1, or null")

    @property
    def row_limit(self) -> int:
        """The most rows that it may match."""
        return MOST_ROWS if self.most_rows is None else self.most_rows

    @property
    def identity(self) -> PublicIdentity:
        """The keys that it is known by."""
        return PublicIdentity(bytes(self.signing), bytes(self.sealing))


class Charter(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What the members agree on.

    Attributes
    ----------
    federation
        Name of the federation.
    members
        In the order in which they are listed everywhere; the first makes run secrets.
    terms
        What every run keeps to.
    limits
        What runs may compute.
    serial
        Rosters of a federation are numbered: sites refuse one with a lower number than they have
        seen.
    expires
        The last day (UTC) on which it counts; None: it does not run out.
    """

    format: Literal[1]
    federation: str
    members: tuple[Member, ...]
    terms: Terms
    limits: Limits = Limits()
    serial: int = 1
    expires: date | None = None

    def __post_init__(self) -> None:
        if self.serial < 1:
            raise ConfigError(f"serial is {self.serial}; number rosters from 1 on")
        if not self.federation.strip() or not self.federation.isprintable():
            raise ConfigError(f"{self.federation!a} cannot be a federation's name; use letters")
        check_names([member.name for member in self.members])
        owners: dict[bytes, str] = {}
        for member in self.members:
            # One that is listed under two names would sign for two.
            for key in (member.signing, member.sealing):
                if owners.setdefault(bytes(key), member.name) != member.name:
                    raise ConfigError(
                        f"'{owners[bytes(key)]}' and '{member.name}' have the same public key; "
                        "every member has keys of its own"
                    )
        for role, why in (("labels", "bring labels"), ("model", "get the model")):
            if not self.having(role):
                raise ConfigError(f"no member may {why}; give one the role {role}")
        if self.terms.matching == "oprf" and not self.having("matching"):
            raise ConfigError(
                "matching = 'oprf' needs members that hold a matching key; give them the role "
                "matching"
            )

    def having(self, role: str) -> tuple[str, ...]:
        """Names of the members with a role."""
        return tuple(member.name for member in self.members if role in member.roles)


@dataclass(frozen=True)
class SignedRoster:
    """A charter and the members' signatures, as the file has them.

    `draft` makes an unsigned one; `weft.privacy.agreement.cards_and_roster_drafts` reads and writes
    them.

    Parameters
    ----------
    content
        The charter in plain values, just as the file has it.
    signatures
        Ed25519 signatures by member.
    """

    content: Mapping[str, Any]
    signatures: Mapping[str, bytes]

    def __post_init__(self) -> None:
        members = self.members
        for name, signature in self.signatures.items():
            if name not in members:
                raise ConfigError(f"it has a signature of '{name}', who is no member")
            if len(signature) != SIGNATURE_BYTES:
                raise ConfigError(f"the signature of '{name}' is not {SIGNATURE_BYTES} bytes long")

    @classmethod
    def draft(cls, charter: Charter) -> Self:
        """A roster that nobody has signed yet, with every value written out."""
        return cls(msgspec.json.decode(msgspec.json.encode(charter, enc_hook=to_hex)), {})

    @cached_property
    def charter(self) -> Charter:
        """What the members agree on."""
        return msgspec.convert(self.content, prepared(Charter), dec_hook=from_hex)

    @cached_property
    def members(self) -> dict[str, Member]:
        """The members by name, in their order."""
        return {member.name: member for member in self.charter.members}

    @cached_property
    def signed_bytes(self) -> bytes:
        """What every member signs."""
        return _DOMAIN + msgspec.json.encode(self.content, order="sorted")

    @cached_property
    def fingerprint(self) -> str:
        """128 bits of what is signed, in groups of four digits, to compare over the telephone."""
        digits = blake2b(self.signed_bytes, digest_size=16, person=b"weft roster").hexdigest()
        return " ".join(digits[start : start + 4] for start in range(0, len(digits), 4))

    def states(self) -> dict[str, SignatureState]:
        """Every member's signature, checked."""
        return {name: self._state(name) for name in self.members}

    def _state(self, name: str) -> SignatureState:
        if name not in self.signatures:
            return "missing"
        try:
            self.members[name].identity.verify(self.signed_bytes, self.signatures[name])
        except ProtocolError:
            return "wrong"
        return "signed"

    def signed_by(self, name: str, identity: Identity) -> SignedRoster:
        """The roster with one more signature; ``identity`` must be the one that it lists."""
        # Whoever only reads rosters does without curves.
        from weft.crypto.primitives.oprf import matching_key

        if name not in self.members:
            raise ConfigError(
                f"'{name}' is no member of '{self.charter.federation}', which has "
                f"{', '.join(self.members)}; correct the name"
            )
        if identity.public != self.members[name].identity:
            raise ConfigError(
                f"the roster lists other keys of '{name}' than its own, which are "
                f"{identity.public.fingerprint}; do not sign it, and have it drafted again"
            )
        key = self.members[name].matching_key
        if key is not None and key != matching_key(identity).public:
            raise ConfigError(
                f"the roster lists another matching key of '{name}' than its own; do not sign it, "
                "and have it drafted again from the card that 'weft federation join' makes"
            )
        signature = identity.sign(self.signed_bytes)
        return replace(self, signatures={**self.signatures, name: signature})

    def insist(self) -> None:
        """Refuse a roster that not every member has signed, or that has run out."""
        self.insist_on_signatures()
        expires = self.charter.expires
        if expires is not None and datetime.now(UTC).date() > expires:
            raise ConfigError(
                f"the roster of '{self.charter.federation}' ran out on {expires}; draft one with a "
                "higher serial, and have all members sign it"
            )

    def insist_on_signatures(self) -> None:
        """Refuse a roster that not every member has signed, whenever that was."""
        states = self.states()
        missing = [name for name, state in states.items() if state == "missing"]
        wrong = [name for name, state in states.items() if state == "wrong"]
        if not missing and not wrong:
            return
        faults = [f"{_names(missing)} did not sign it"] if missing else []
        if wrong:
            faults.append(
                f"the signature of {_names(wrong)} does not belong to this content and key"
            )
        raise ConfigError(
            f"the roster of '{self.charter.federation}' does not count: {', and '.join(faults)}; "
            "every member must sign it as it is, with 'weft federation sign'"
        )


def _names(names: Sequence[str]) -> str:
    return ", ".join(names[:6]) + (f" and {len(names) - 6} more" if len(names) > 6 else "")


def to_hex(value: object) -> str:
    """For msgspec: how `Hex` is written."""
    if isinstance(value, Hex):
        return value.hex()
    raise TypeError(f"a roster holds no {type(value).__name__}")


def from_hex(kind: type, value: object) -> Hex:
    """For msgspec: how `Hex` is read."""
    # fromhex alone would skip blanks.
    if kind is Hex and isinstance(value, str) and re.fullmatch("([0-9a-f]{2})+", value):
        return Hex(bytes.fromhex(value))
    raise ValueError("expected hex digits in lower case")


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
    "allow_exposure": _choice(
        "a party may get as many sums about samples as it lacks columns, and work these out; "
        "sealed models may have many columns for few samples",
        "no party gets as many sums about samples as it lacks columns of them, and sealed models "
        "tell a fifth as many numbers as parties share samples, at most",
    ),
    "most_explained": (
        "all sums about a sample explain at most {:.0%} of the variance of columns that somebody "
        "lacks, by the forecast"
    ).format,
    "allow_networks": _choice(
        "the coordinator may see the weights of every party's own neural network",
        "the coordinator sees no party's own neural network",
    ),
    "allow_second_moments": _choice(
        "who gets a sealed model may get the Hessian and the Gram matrix of all columns too",
        "nobody gets the Hessian or the Gram matrix of all columns",
    ),
    "allow_rare_pairs": _choice(
        "these matrices may tell of columns of two parties that few samples have in common",
        "these matrices tell of no columns of two parties that few samples may have in common",
    ),
    "allow_site_scores": _choice(
        "the coordinator may read how well a model predicts the samples of one party",
        "how well a model predicts is told of several parties together",
    ),
    "allow_site_statistics": _choice(
        "descriptions, and second moments, may tell of columns and outcomes of one party alone, "
        "over min_batch samples",
        "descriptions and second moments tell of no column or outcome of one party alone",
    ),
    "allow_told_columns": _choice(
        "weights and offsets of shared samples are told, cell by cell, to who has their labels, "
        "encrypted, through a coordinator that cannot read them",
        "no weights or offsets are told: who has the labels of samples has these too",
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
    if "data" in member.roles:
        parts.append(f"at most {member.row_limit:,} rows")
    return ", ".join(parts)


def terms_words(terms: Terms) -> Iterator[str]:
    """One sentence for each term."""
    for field in msgspec.structs.fields(terms):
        value = getattr(terms, field.name)
        told = _TERMS.get(field.name)
        yield f"{field.name} = {value}" if told is None else told(value)


_LIMITS: dict[str, Callable[[Any], str]] = {
    "kinds": lambda names: f"kinds of jobs: only {', '.join(names)}",
    "losses": lambda names: f"losses: only {', '.join(names)}",
    "solvers": lambda names: f"solvers: only {', '.join(names)}",
    "most_epsilon": lambda most: f"released models have noise, with ε of at most {most:g} in all",
    "most_delta": lambda most: f"released models have noise, with δ of at most {most:g} in all",
    "most_rho": lambda most: f"feature sums have noise, with ρ of at most {most:g} in all",
    "most_problems": lambda most: f"a run trains at most {most} problems (λ × (1 + folds))",
    "most_iterations": lambda most: f"a run has at most {most} iterations",
    "askers": lambda names: f"joint predictions show scores only to {', '.join(names)}",
    "least_asked": lambda least: f"a joint prediction asks for at least {least} samples of a party",
    "most_asked": lambda most: f"a joint prediction asks for at most {most} samples of a party",
    "most_scores": lambda most: f"all joint predictions show at most {most} scores of a party",
}


def limits_words(limits: Limits) -> Iterator[str]:
    """One sentence for each limit that there is: nobody signs a limit that is not shown."""
    for field in msgspec.structs.fields(limits):
        value = getattr(limits, field.name)
        if value is not None:
            told = _LIMITS.get(field.name)
            yield f"{field.name} = {value}" if told is None else told(value)


def charter_words(charter: Charter) -> list[str]:
    """All of a charter in plain words, line by line, for whoever is to sign it."""
    members = [
        f"- {member.name} ({member.identity.fingerprint}): {member_words(member)}"
        for member in charter.members
    ]
    rules = [*terms_words(charter.terms), *limits_words(charter.limits)]
    until = "" if charter.expires is None else f", counts until {charter.expires}"
    return [
        f"Federation '{charter.federation}', serial {charter.serial}{until}, has "
        f"{len(charter.members)} members:",
        *members,
        "Every run keeps to this:",
        *(f"- {rule}" for rule in rules),
    ]
