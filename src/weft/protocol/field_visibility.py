"""In which form a field of a message travels, what it says, and who may read it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum


class Form(Enum):
    """A form of travelling: its name, whether it hides its content, and who can read it."""

    BLOCK = "encrypted", True, "parties that share the slots"
    SCALARS = "masked scalars", True, "the coordinator, in total only"
    TOKENS = "tokens", True, "parties, which know the ids"
    SEALED = "sealed boxes", True, "the party it is sealed to"
    MASKED = "masked words under pads", True, "nobody: parties find uniform words"
    TOTALS = "totals under pads", True, "all parties, in total only"
    DEALT = "seeds and shares of the dealer", False, "the coordinator and this party"
    KEYS = "public keys", False, "everyone"
    RECORD = "public record", False, "the coordinator and this party"
    NUMBERS = "plain numbers", False, "the coordinator and this party"
    TEXTS = "names and settings", False, "the coordinator and this party"
    COEFFICIENTS = "coefficients", False, "the coordinator and this party"
    CLEAR = "in the clear", False, "the coordinator, by agreement"
    WEIGHTS = "weights of networks, in the clear", False, "the coordinator, by agreement"

    def __init__(self, title: str, hides: bool, readers: str) -> None:
        self.title = title
        self.hides = hides
        self.readers = readers


@dataclass(frozen=True)
class Meaning:
    """What a field says.

    Attributes
    ----------
    form
        How it travels.
    what
        What it is, in a few words.
    shape
        Names of an array's axes; empty for anything else.
    common
        It means the same in all phases, so that an overview need not tell them apart.
    alike
        All parties that are asked are told the same, and masks depend on it
        (:mod:`weft.protocol.message_bytes`).
    """

    form: Form
    what: str
    shape: tuple[str, ...] = ()
    common: bool = False
    alike: bool = False


def block(what: str) -> Meaning:
    """An encrypted block of a sum."""
    return Meaning(Form.BLOCK, what)


def scalars(what: str) -> Meaning:
    """Numbers under masks that cancel in the sum over all parties asked."""
    return Meaning(Form.SCALARS, what)


def masked(what: str, *shape: str) -> Meaning:
    """Words under masks, which stay on them when parties have taken the pads off."""
    return Meaning(Form.MASKED, what, shape)


def totals(what: str, *shape: str) -> Meaning:
    """Words that all parties read once those of all are added up, and the coordinator does not."""
    return Meaning(Form.TOTALS, what, shape)


def dealt(what: str, *shape: str) -> Meaning:
    """What a dealer and one party share, and no other party may know."""
    return Meaning(Form.DEALT, what, shape)


def sealed(what: str) -> Meaning:
    """Boxes that only their receivers can open."""
    return Meaning(Form.SEALED, what)


def tokens(what: str) -> Meaning:
    """Keyed hashes, one per entry."""
    return Meaning(Form.TOKENS, what, ("entries",))


def keys(what: str, *shape: str, common: bool = False) -> Meaning:
    """Public keys, nonces and fingerprints."""
    return Meaning(Form.KEYS, what, shape, common)


def record(what: str, *shape: str, common: bool = False, alike: bool = False) -> Meaning:
    """Bookkeeping that both sides may know."""
    return Meaning(Form.RECORD, what, shape, common, alike)


def numbers(what: str, *shape: str, common: bool = False) -> Meaning:
    """Constants of the run."""
    return Meaning(Form.NUMBERS, what, shape, common, alike=True)


def texts(what: str, *shape: str) -> Meaning:
    """Names and settings."""
    return Meaning(Form.TEXTS, what, shape)


def coefficients(what: str, *shape: str, alike: bool = True) -> Meaning:
    """What the coordinator computes from totals."""
    return Meaning(Form.COEFFICIENTS, what, shape, alike=alike)


def clear(what: str, *shape: str) -> Meaning:
    """Values of one party that the parties agreed to show the coordinator."""
    return Meaning(Form.CLEAR, what, shape)


def network_weights(what: str) -> Meaning:
    """Weights of a network, which the coordinator sees by agreement."""
    return Meaning(Form.WEIGHTS, what, ("weights",))
