"""Every field of every message: what it is, and who may read it.

The one table of what travels. A field that is not in it is reported by an audit as unknown, and a
test lets all methods run to see that there is none.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from enum import Enum
from functools import cache

import numpy as np

from weft.protocol.message import SCALAR_BYTES, OnDevice, Value
from weft.protocol.recording import Direction

_SCALAR = SCALAR_BYTES


class Form(Enum):
    """In which form something travels: its name, and whether it hides what it stands for."""

    BLOCK = "encrypted", True
    SCALARS = "masked scalars", True
    TOKENS = "tokens", True
    BOXES = "sealed boxes", True
    KEYS = "public keys", False
    RECORD = "public record", False
    NUMBERS = "plain numbers", False
    TEXTS = "names and settings", False
    COEFFICIENTS = "coefficients", False
    CLEAR = "in the clear", False
    WEIGHTS = "weights of networks, in the clear", False

    def __init__(self, title: str, hides: bool) -> None:
        self.title = title
        self.hides = hides

    def fits(self, value: Value) -> bool:
        """Whether a value can be of this form; what is inside a block is not looked at."""
        kind = value.dtype.kind if isinstance(value, np.ndarray) else ""
        if self is Form.BLOCK or self is Form.BOXES:
            return isinstance(value, bytes)
        if self is Form.SCALARS:
            return isinstance(value, bytes) and len(value) % _SCALAR == 0
        if self is Form.TOKENS:
            return isinstance(value, np.ndarray) and value.dtype == np.uint64
        if self is Form.KEYS:
            return isinstance(value, bytes | str | int)
        if self is Form.WEIGHTS:
            there = isinstance(value, np.ndarray) and value.dtype == np.float32
            return there or isinstance(value, OnDevice)
        if self is Form.CLEAR or self is Form.COEFFICIENTS:
            return isinstance(value, np.ndarray) and value.dtype == np.float64
        if self is Form.TEXTS:
            return isinstance(value, str | np.ndarray)
        whole = isinstance(value, int) or bool(kind and kind in "iub")
        return whole or (self is Form.NUMBERS and isinstance(value, float))


@dataclass(frozen=True)
class Meaning:
    """What a field is; ``common``: the same in all phases, which need not be told apart."""

    form: Form
    what: str
    common: bool = False


def _block(what: str) -> Meaning:
    return Meaning(Form.BLOCK, what)


def _scalars(what: str) -> Meaning:
    return Meaning(Form.SCALARS, what)


_FLAGS = _scalars("which digits of the largest it reaches")
_SLOTS = Meaning(Form.RECORD, "which of its slots these are")
_REQUEST = Meaning(Form.RECORD, "numbers of request, iteration and reply", common=True)
_WISH = Meaning(Form.RECORD, "what to do in this phase", common=True)
_CHAIN = Meaning(Form.RECORD, "labels of the pads to take off", common=True)
_RING = Meaning(Form.RECORD, "who shares masks with it", common=True)
_RING_KEYS = Meaning(Form.KEYS, "of those who share masks", common=True)
_DIGITS = Meaning(Form.NUMBERS, "digits of the largest so far", common=True)
_UNIT = Meaning(Form.NUMBERS, "common unit, a power of two")
_ROLES = Meaning(Form.RECORD, "its slots, cohorts and roles")
_OTHERS = Meaning(Form.RECORD, "how many samples other label holders draw from")
_CARDS = Meaning(Form.KEYS, "of other parties, with their numbers of rows")
_HOP = Meaning(Form.RECORD, "which of the key holders this is")
_GIFTS = Meaning(Form.RECORD, "whose seeds it makes, and for whom")
_STEP = Meaning(Form.NUMBERS, "constants of the step")
_V = _block("changes of its feature sums")
_ALPHA = _block("dual variables that it posts")
_LOSSES = _scalars("its losses and conjugates")
_ESTIMATE = _scalars("its loss over the samples drawn")
_NORMS = _scalars("its part of ‖w‖²")
_HELD = Meaning(Form.RECORD, "how many changes a guard held back")
_DUALS: dict[tuple[str, ...], Meaning] = {
    ("held",): _HELD,
    ("v",): _block("its part of new vectors b = Xᵀa/N"),
    ("alpha",): _block("dual vectors that it posts"),
    ("alpha.slots",): _SLOTS,
    ("offsets",): _scalars("its conjugates of new dual vectors"),
    ("cross",): _scalars("its part of inner products of vectors"),
}
_PARTS: dict[tuple[str, ...], Meaning] = {
    ("v",): _block("feature sums of cohorts that it speaks for"),
    ("z",): _block("inner products of cohorts that it speaks for"),
}
_WAYS = Meaning(Form.TEXTS, "of what, and by whom")
_COEFFICIENTS = Meaning(Form.COEFFICIENTS, "of vectors in a point, and steps")
_SEQUENCE = Meaning(Form.RECORD, "number of the reply")
_ROUND: dict[tuple[str, ...], Meaning] = {
    ("v",): _block("its part of sums over features"),
    ("z",): _block("its part of sums over samples"),
    ("delta",): _block("changes of dual variables that it proposes"),
    ("z.slots", "delta.slots"): _SLOTS,
    ("objective",): _scalars("its part of the objective"),
    ("residual",): _scalars("its part of a residual's norm"),
    ("held",): _HELD,
    ("sequence",): _SEQUENCE,
}
_TOTALS: dict[tuple[str, ...], Meaning] = {
    ("v",): _block("sums over parties, of its features"),
    ("z",): _block("sums over parties, of its samples"),
    ("delta",): _block("changes of dual variables of its samples"),
    ("weight", "weights"): Meaning(Form.RECORD, "how much it and all who take part weigh"),
    ("mode", "measure", "halvings"): _WISH,
    ("rho",): _STEP,
}
_ANNOUNCED = Meaning(Form.TEXTS, "on which terms it takes part, and who gets the model")
_KEEP = Meaning(Form.RECORD, "which model and dual vector to keep")
_NETWORK: dict[tuple[str, ...], Meaning] = {
    ("extractors",): Meaning(Form.WEIGHTS, "extractors of its blocks"),
    ("classifier",): Meaning(Form.WEIGHTS, "its classifier"),
}

_SEAT = (
    *("party", "n_parties", "label_parties", "n_samples"),
    *("n_shared_rows", "n_shared_columns", "n_columns"),
    *("row_holders", "column_holders", "cohort", "cohort_start", "labelled", "counts"),
    *("computing", "bias", "bias_slot", "column_cohort", "owned", "cell_holders"),
    *("n_tile_row_cohorts", "tile_row_cohorts.#"),
    *("n_tile_column_cohorts", "tile_column_cohorts.#"),
    *("n_owned_cells", "owned_cells.#"),
    *("min_batch", "exposed", "crossed", "sharers", "column_sharers", "fewest_foreign", "foreign"),
)
_LINKS = tuple(
    f"{kind}.{field}"
    for kind in ("z", "v", "alpha", "delta")
    for field in (
        *("chain", "chain.knots", "checks", "checks.knots"),
        *("news", "news.lengths", "news.marks", "news.knots"),
    )
)

#: Direction, phase ("*": any) and fields to what they are; ``#`` stands for a number.
_TABLE: dict[Direction, dict[str, dict[tuple[str, ...], Meaning]]] = {
    "up": {
        "announce": {
            ("mark",): Meaning(Form.KEYS, "fingerprint of the run secret"),
            ("terms", "roster", "recipients", "holders"): _ANNOUNCED,
            ("classes",): Meaning(Form.BOXES, "its classes, for the other parties alone"),
        },
        "classes": {("classes",): Meaning(Form.TEXTS, "class names of all parties")},
        "match.hello": {
            ("public",): Meaning(Form.KEYS, "to seal for it, and to know it by"),
            ("nonce",): Meaning(Form.KEYS, "random bytes that its masks depend on"),
            ("mark",): Meaning(Form.KEYS, "fingerprint of the run secret"),
            ("card",): _CARDS,
        },
        "match.ask": {("box",): Meaning(Form.BOXES, "blinded ids, for a key holder")},
        "match.evaluate": {("boxes",): Meaning(Form.BOXES, "answers to blinded ids, with proofs")},
        "match.tokens": {
            ("public",): Meaning(Form.KEYS, "to seal for it, and to know it by"),
            ("nonce",): Meaning(Form.KEYS, "random bytes that its masks depend on"),
            ("mark",): Meaning(Form.KEYS, "fingerprint of the run secret"),
            ("rows",): Meaning(Form.TOKENS, "keyed hashes of ids"),
            ("columns",): Meaning(Form.TOKENS, "keyed hashes of feature names"),
            ("labels",): Meaning(Form.TOKENS, "keyed hashes of id with label"),
            ("loose",): Meaning(Form.TOKENS, "keyed hashes of loose forms of ids"),
            ("loose.rows",): Meaning(Form.RECORD, "whose loose forms these are"),
            ("labelled",): Meaning(Form.RECORD, "which samples have a label"),
            ("row_counts", "column_counts"): Meaning(Form.RECORD, "sizes of its tiles"),
        },
        "match.view": {
            ("boxes",): Meaning(Form.BOXES, "seeds and keys for other holders"),
            ("boxes.lengths",): Meaning(Form.RECORD, "where a box ends"),
            ("key",): Meaning(Form.KEYS, "number of the run's key"),
            ("shared.public",): Meaning(Form.KEYS, "public half of the parties' key"),
        },
        "scale.extremes": {("v",): _block("digits that its columns reach")},
        "scale.sums": {("v",): _block("its part of column sums")},
        "scale.spread": {("v",): _block("its part of column deviations")},
        "scale.size": {("flags",): _FLAGS},
        "scale.norms": {("z",): _block("its part of row norms")},
        "scale.longest": {("flags",): _FLAGS},
        "size": {("flags",): _FLAGS},
        "hyfdca.norms": {("z",): _block("its part of row norms")},
        "hyfdca.spread": {
            ("v",): _block("its part of X̃ᵀu (power iteration)"),
            ("squares",): _scalars("its part of ‖u‖²"),
        },
        "hyfdca.gather": {("z",): _block("its part of X̃v (power iteration)")},
        "hyfdca.weights": {
            ("z",): _block("changes of its inner products"),
            ("z.slots", "want"): _SLOTS,
            ("norms",): _NORMS,
            ("w",): Meaning(Form.CLEAR, "weights of features that it answers for"),
            ("norm change",): _scalars("change of its part of ‖w‖²"),
            ("v",): _V,
            ("losses",): _LOSSES,
            ("estimate",): _ESTIMATE,
            ("held",): _HELD,
            ("sequence",): _SEQUENCE,
        },
        "hyfdca.step": {
            ("v",): _V,
            ("alpha",): _ALPHA,
            ("delta",): _block("changes of dual variables that it proposes"),
            ("alpha.slots", "delta.slots"): _SLOTS,
            ("losses",): _LOSSES,
            ("estimate",): _ESTIMATE,
            ("held",): _HELD,
            ("sequence",): _SEQUENCE,
        },
        "hyfdca.dual": {
            ("v",): _V,
            ("alpha",): _ALPHA,
            ("alpha.slots",): _SLOTS,
            ("held",): _HELD,
            ("sequence",): _SEQUENCE,
        },
        "hyfdca.again": {("alpha",): _ALPHA, ("alpha.slots",): _SLOTS},
        "certify.freeze": {("v",): _block("feature sums of the frozen pair")},
        "certify.products": {
            ("z",): _block("inner products of the frozen pair"),
            ("norms",): _NORMS,
        },
        "certify.losses": {("losses",): _LOSSES},
        "span.spread": {
            ("gram",): _scalars("its part of inner products of vectors"),
            ("squares",): _scalars("its part of the mean of ‖x_i‖²"),
            ("z",): _block("its part of Z = Xb of new vectors"),
        },
        "span.point": {
            ("norms",): _NORMS,
            ("bound",): _scalars("its part of ‖λw(α)‖² of a mixture"),
            ("z",): _block("its part of z of a point"),
            ("w",): Meaning(Form.CLEAR, "weights of features that it answers for"),
        },
        "span.search": {("losses",): _scalars("its losses along the way"), **_DUALS},
        "span.gather": {("sizes",): _scalars("how many samples it trains on"), **_DUALS},
        "span.follow": {("v",): _V},
        "span.inherit": {
            ("offsets",): _scalars("its conjugates of α of HyFDCA"),
            ("cross",): _scalars("its part of inner products of vectors"),
        },
        "span.close": {
            ("losses",): _LOSSES,
            ("scores",): _scalars("its losses and hits on samples left out"),
        },
        "span.hand": _PARTS,
        "rounds.size": {("flags",): _FLAGS},
        "rounds.survey": {
            ("curvatures",): _scalars("bounds on its curvature, and its type"),
            ("bounds",): Meaning(Form.CLEAR, "bounds on its curvature, by agreement"),
        },
        "rounds.local": _ROUND,
        "rounds.merge": _ROUND,
        "measure.products": {
            ("z",): _block("inner products of the point"),
            ("norms",): _NORMS,
            ("w",): Meaning(Form.CLEAR, "weights of features that it answers for"),
        },
        "measure.losses": {
            ("losses",): _LOSSES,
            ("held",): _HELD,
            ("v",): _block("its part of a dual vector's feature sums"),
            ("alpha",): _ALPHA,
            ("alpha.slots",): _SLOTS,
        },
        "measure.spread": {("v",): _block("its part of a dual vector's feature sums")},
        "measure.norms": {("bound",): _scalars("its part of ‖λw(α)‖²")},
        "joint.size": {("flags",): _FLAGS},
        "joint.partial": {("z",): _block("its part of the scores")},
        "neural.plan": {
            ("public",): Meaning(Form.KEYS, "to seal for it, and to know it by"),
            ("nonce",): Meaning(Form.KEYS, "random bytes that its masks depend on"),
            ("mark",): Meaning(Form.KEYS, "fingerprint of the run secret"),
            ("held",): Meaning(Form.TEXTS, "which blocks it has, of which shapes"),
            ("samples",): Meaning(Form.RECORD, "how many samples it trains on"),
        },
        "neural.scale": {("sums",): _scalars("its counts and sums of columns")},
        "neural.build": {
            ("features", "sizes"): Meaning(Form.RECORD, "sizes of its extractors"),
            ("extractors",): Meaning(Form.WEIGHTS, "first weights of blocks"),
        },
        "neural.train": {("sums",): _scalars("its loss and accuracies"), **_NETWORK},
        "release": {
            ("readers",): Meaning(Form.TEXTS, "who gets the model"),
            ("boxes",): Meaning(Form.BOXES, "its part of the model, for those who get it"),
            ("boxes.lengths",): Meaning(Form.RECORD, "where a box ends"),
        },
    },
    "down": {
        "*": {
            ("round", "iteration", "ack", "context", "epoch", "serial"): _REQUEST,
            ("peers",): _RING,
            ("peers.keys",): _RING_KEYS,
            ("digit",): _WISH,
            ("prefix",): _DIGITS,
            _LINKS: _CHAIN,
        },
        "announce": {
            ("run",): Meaning(Form.KEYS, "random name of the run"),
            ("parties",): Meaning(Form.RECORD, "how many take part"),
            ("classes",): _WISH,
        },
        "classes": {
            ("boxes",): Meaning(Form.BOXES, "classes of all parties, mixed"),
            ("boxes.lengths",): Meaning(Form.RECORD, "where a box ends"),
        },
        "match.hello": {("run",): Meaning(Form.KEYS, "random name of the run")},
        "match.ask": {
            ("hop",): _HOP,
            ("holder",): _CARDS,
            ("box",): Meaning(Form.BOXES, "answer to its blinded ids, with proofs"),
        },
        "match.evaluate": {
            ("hop",): _HOP,
            ("cards",): _CARDS,
            ("boxes",): Meaning(Form.BOXES, "blinded ids of all parties, sealed to it"),
        },
        "match.tokens": {
            ("run",): Meaning(Form.KEYS, "random name of the run"),
            ("matching",): Meaning(Form.TEXTS, "how ids are matched"),
            ("classes",): Meaning(Form.TEXTS, "class names"),
            ("box",): Meaning(Form.BOXES, "answer to its blinded ids, with proofs"),
        },
        "match.conflict": {
            ("places",): Meaning(Form.RECORD, "tokens whose labels another contradicts"),
        },
        "match.view": {
            _SEAT: _ROLES,
            ("other_party", "other_rows", "other_offset", "other_size", "other_start"): _OTHERS,
            ("overlap",): Meaning(Form.TEXTS, "what counts for a cell at several holders"),
            ("bias_value",): Meaning(Form.NUMBERS, "value of the constant column"),
            ("give.keys",): Meaning(Form.KEYS, "of other holders, and their random bytes"),
            ("way",): Meaning(Form.KEYS, "hashes of all parties' random bytes"),
            (
                *("deal", "rows.maker", "columns.maker", "rows.place", "columns.place"),
                *("give.to", "give.rows", "give.rows.start"),
                *("give.columns", "give.columns.start"),
            ): _GIFTS,
        },
        "match.keys": {
            ("boxes",): Meaning(Form.BOXES, "seeds and keys, sealed to it"),
            ("boxes.from", "boxes.lengths"): Meaning(Form.RECORD, "who made which box"),
        },
        "scale.extremes": {
            ("v",): _block("how many reach each digit of its columns"),
            ("of",): Meaning(Form.TEXTS, "of which values"),
        },
        "scale.sums": {("v",): _block("how many reach each digit of its columns")},
        "scale.spread": {("v",): _block("how many reach each digit of its columns")},
        "scale.finish": {
            ("v",): _block("means, deviations or extremes of its columns"),
            ("rule",): Meaning(Form.TEXTS, "the rule of scaling"),
        },
        "scale.norms": {("unit",): _UNIT},
        "scale.longest": {("z",): _block("norms of samples that it counts")},
        "scale.rows": {("factor",): Meaning(Form.NUMBERS, "factor of all rows")},
        "start": {
            ("settings",): Meaning(Form.TEXTS, "settings of the run"),
            ("unit", "label"): _UNIT,
            ("lam",): _STEP,
        },
        "hyfdca.norms": {("unit",): _UNIT},
        "hyfdca.spread": {
            ("z",): _block("norms, then X̃v, of its samples"),
            ("first",): _WISH,
        },
        "hyfdca.gather": {("v",): _block("X̃ᵀu of its features"), ("scale",): _STEP},
        "hyfdca.begin": {
            ("z",): _block("norms of its samples"),
            ("omega", "share"): _STEP,
        },
        "hyfdca.weights": {
            ("v",): _block("feature sums of its features"),
            ("ahead", "every", "measure", "counted", "fuse", "still"): _WISH,
            ("gamma", "omega", "active"): _STEP,
        },
        "hyfdca.step": {
            ("z",): _block("inner products of its samples"),
            ("send", "measure", "still"): _WISH,
            ("gamma", "omega", "active"): _STEP,
        },
        "hyfdca.dual": {
            ("alpha",): _block("dual variables of its samples"),
            ("delta",): _block("changes of dual variables of its samples"),
            ("alpha.slots", "delta.slots"): _SLOTS,
            ("send",): _WISH,
        },
        "hyfdca.again": {("send",): _WISH},
        "certify.freeze": {
            ("alpha",): _block("dual variables of the frozen pair"),
            ("alpha.slots",): _SLOTS,
            ("keep",): _REQUEST,
        },
        "certify.products": {
            ("v",): _block("feature sums of the frozen pair"),
            ("keep",): _REQUEST,
        },
        "certify.losses": {
            ("z",): _block("inner products of samples that it counts"),
            ("keep",): _REQUEST,
        },
        "span.spread": {
            ("v",): _block("new vectors b = Xᵀa/N of its features"),
            ("gram",): _WAYS,
            ("products", "keep", "first", "inherit"): _WISH,
            ("fold",): _COEFFICIENTS,
        },
        "span.point": {
            ("point", "weights", "fold"): _COEFFICIENTS,
            ("model", "keep"): _WISH,
        },
        "span.search": {
            ("z",): _block("Z of new vectors, or z of a point, of its samples"),
            ("point", "moved", "steps", "at", "weights", "curvature"): _COEFFICIENTS,
            ("gram", "of"): _WAYS,
            ("send",): _WISH,
        },
        "span.gather": {
            ("z",): _block("Z of new vectors, or z of a point, of its samples"),
            ("moved", "at", "direction"): _COEFFICIENTS,
            ("gram", "of"): _WAYS,
            ("send", "first"): _WISH,
        },
        "span.follow": {
            ("alpha",): _block("dual vectors of its samples"),
            ("alpha.slots",): _SLOTS,
            ("width",): _WISH,
        },
        "span.inherit": {
            ("z",): _block("Z of new vectors, of its samples"),
            ("moved",): _COEFFICIENTS,
            ("gram", "of"): _WAYS,
            ("inherit",): _WISH,
        },
        "span.close": {
            ("z",): _block("z of a point, of its samples"),
            ("of",): _WAYS,
        },
        "span.keep": {("point", "fold"): _COEFFICIENTS, ("model", "keep"): _WISH},
        "span.hand": {
            ("weights", "point"): _COEFFICIENTS,
            ("lam",): _STEP,
            ("keep", "number"): _WISH,
            ("rows", "columns"): _ROLES,
        },
        "rounds.survey": {("newton",): _WISH},
        "rounds.begin": {
            ("mu", "upper", "beta"): _STEP,
            ("sample curvature", "party curvature"): _STEP,
        },
        "rounds.local": _TOTALS,
        "rounds.merge": _TOTALS,
        "measure.products": {
            ("v",): _block("what the point is made of, of its features"),
            ("z", "alpha"): _block("what the point is made of, of its samples"),
            ("keep", "last"): _KEEP,
        },
        "measure.losses": {
            ("z",): _block("inner products of the point"),
            ("send",): _WISH,
            ("keep", "last"): _KEEP,
        },
        "measure.spread": {
            ("alpha",): _block("a dual vector, of its samples"),
            ("alpha.slots",): _SLOTS,
            ("keep", "last"): _KEEP,
        },
        "measure.norms": {
            ("v",): _block("feature sums of a dual vector"),
            ("keep", "last"): _KEEP,
        },
        "checkpoint.restore": {
            ("omega", "share", "mu", "upper", "beta"): _STEP,
            ("sample curvature", "party curvature"): _STEP,
        },
        "joint.partial": {("unit",): _UNIT},
        "joint.scores": {("z",): _block("scores of its samples")},
        "neural.plan": {
            ("run",): Meaning(Form.KEYS, "random name of the run"),
            ("settings",): Meaning(Form.TEXTS, "settings of the run"),
            ("classes",): Meaning(Form.TEXTS, "class names"),
            ("parties", "number"): Meaning(Form.RECORD, "how many take part, and its number"),
        },
        "neural.scale": {
            ("step", "widths"): _WISH,
            ("blocks",): Meaning(Form.TEXTS, "blocks whose columns are scaled"),
            ("mean",): Meaning(Form.COEFFICIENTS, "means of its columns"),
            ("digests",): Meaning(Form.KEYS, "digests of the means of all blocks"),
        },
        "neural.build": {
            ("give",): Meaning(Form.TEXTS, "blocks whose first weights it gives"),
            ("mean", "deviation"): Meaning(
                Form.COEFFICIENTS, "means and deviations of its columns"
            ),
        },
        "neural.train": {
            ("turn", "evaluate"): _WISH,
            **_NETWORK,
        },
        "neural.finish": _NETWORK,
        "release": {("model", "everything"): _KEEP},
        "release.model": {
            ("head",): Meaning(Form.TEXTS, "all of the model but its weights"),
            ("writers",): Meaning(Form.TEXTS, "whose parts these are"),
            ("boxes",): Meaning(Form.BOXES, "parts of the model, sealed to it"),
            ("boxes.lengths",): Meaning(Form.RECORD, "where a box ends"),
            ("everything",): _KEEP,
        },
    },
}

_FLAT: dict[tuple[str, str, str], Meaning] = {
    (direction, phase, field): meaning
    for direction, phases in _TABLE.items()
    for phase, groups in phases.items()
    for fields, meaning in groups.items()
    for field in fields
}


@cache
def meaning_of(direction: Direction, phase: str, field: str) -> Meaning | None:
    """What a field is; None: the table does not know it."""
    name = re.sub(r"\.\d+$", ".#", field)
    return _FLAT.get((direction, phase, name)) or _FLAT.get((direction, "*", name))


def fields_of(direction: Direction, phase: str) -> dict[str, Meaning]:
    """The fields that a message of a phase may have beside those of any phase."""
    return {
        field: meaning
        for (way, where, field), meaning in _FLAT.items()
        if (way, where) == (direction, phase)
    }
